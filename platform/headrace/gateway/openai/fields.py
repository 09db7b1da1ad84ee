"""Single fields of an OpenAI body, checked: the value, or a 400 that names the field. Pure.

Every endpoint reads its body with these, so that a fault reads the same everywhere.
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeGuard

from django.conf import settings

from billing.contracts import END_USER_LENGTH_MAX
from headrace import errors
from headrace.gateway.orders import Prompt, TokenIds
from inference.contracts import TOKENS_MAX

Body = dict[str, Any]  # JSON of a foreign shape
METADATA_KEYS_MAX = 16
METADATA_KEY_LENGTH_MAX = 64
METADATA_VALUE_LENGTH_MAX = 512


def body_of(payload: Any) -> Body:
    """The body as an object; raises ApiError 400 for any other JSON."""
    if not isinstance(payload, dict):
        raise errors.invalid("The request body must be a JSON object.", None, "invalid_type")
    return payload


def refuse_unless_default(body: Body, defaults: Mapping[str, tuple[Any, ...]]) -> None:
    """ApiError 400 for a known field that asks for what is not supported.

    `defaults` maps each such field to the values that ask for nothing.
    """
    for name, harmless in defaults.items():
        value = body.get(name)
        if value is not None and not any(_same(value, default) for default in harmless):
            raise errors.unsupported(name)


def _same(value: Any, default: Any) -> bool:
    # True == 1 in Python, but `n: true` is not `n: 1`.
    return isinstance(value, bool) == isinstance(default, bool) and bool(value == default)


def model(body: Body) -> str:
    """The model's name."""
    name = body.get("model")
    if name is None:
        raise errors.invalid("You must provide a model parameter.", "model", "missing_field")
    if not isinstance(name, str) or not name:
        raise errors.invalid("'model' must be a non-empty string.", "model", "invalid_type")
    return name


def is_integer(value: Any) -> TypeGuard[int]:
    """Whether it is a JSON integer; `true` is none."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_token_id(value: Any) -> TypeGuard[int]:
    """Whether it can be a token's id; whether it is one, the vocabulary says."""
    return is_integer(value) and 0 <= value <= TOKENS_MAX


def integer(body: Body, name: str, smallest: int, largest: int) -> int | None:
    """An integer within its range, None when absent."""
    value = any_integer(body, name)
    if value is not None and not smallest <= value <= largest:
        raise errors.invalid(f"'{name}' must be between {smallest} and {largest}.", name)
    return value


def any_integer(body: Body, name: str) -> int | None:
    """An integer of whatever size, None when absent."""
    value = body.get(name)
    if value is not None and not is_integer(value):
        raise errors.invalid(f"'{name}' must be an integer.", name, "invalid_type")
    return value


def number(body: Body, name: str, default: float, smallest: float, largest: float) -> float:
    """A number within its range."""
    value = body.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise errors.invalid(f"'{name}' must be a number.", name, "invalid_type")
    if not smallest <= value <= largest:
        raise errors.invalid(f"'{name}' must be between {smallest:g} and {largest:g}.", name)
    return float(value)


def positive_number(body: Body, name: str, default: float, largest: float) -> float:
    """A number above 0, up to `largest`."""
    value = number(body, name, default, 0.0, largest)
    if value == 0.0:
        raise errors.invalid(f"'{name}' must be above 0 and at most {largest:g}.", name)
    return value


def boolean(body: Body, name: str) -> bool:
    """A boolean, False when absent."""
    value = body.get(name)
    if value is not None and not isinstance(value, bool):
        raise errors.invalid(f"'{name}' must be true or false.", name, "invalid_type")
    return bool(value)


def choices(body: Body) -> int:
    """`n`: answers per prompt."""
    return integer(body, "n", 1, settings.CHOICES_MAX) or 1


def end_user(body: Body) -> str:
    """Whom the tenant serves: `safety_identifier`, or else `user`; '' is nobody known."""
    for name in ("safety_identifier", "user"):
        value = body.get(name)
        if value is not None:
            return _short_text(value, name, END_USER_LENGTH_MAX)
    return ""


def metadata(body: Body) -> dict[str, str]:
    """`metadata`, within OpenAI's limits; empty when absent."""
    value = body.get("metadata")
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise errors.invalid("'metadata' must be an object.", "metadata", "invalid_type")
    if len(value) > METADATA_KEYS_MAX:
        raise errors.invalid(f"'metadata' has more than {METADATA_KEYS_MAX} entries.", "metadata")
    return {
        _short_text(key, "metadata", METADATA_KEY_LENGTH_MAX): _short_text(
            text, f"metadata.{key[:METADATA_KEY_LENGTH_MAX]}", METADATA_VALUE_LENGTH_MAX
        )
        for key, text in value.items()
    }


def _short_text(value: Any, param: str, length_max: int) -> str:
    if not isinstance(value, str):
        raise errors.invalid(f"'{param}' must be a string.", param, "invalid_type")
    if len(value) > length_max:
        raise errors.invalid(f"'{param}' has more than {length_max} characters.", param)
    # What PostgreSQL stores in no text: NUL, and halves of surrogate pairs.
    if "\x00" in value or any("\ud800" <= character <= "\udfff" for character in value):
        raise errors.invalid(f"'{param}' has a character that is none.", param)
    return value


def include_usage(body: Body) -> bool:
    """Whether a stream shall end with its usage."""
    options = body.get("stream_options")
    if options is None:
        return False
    if not isinstance(options, dict):
        raise errors.invalid("'stream_options' must be an object.", "stream_options")
    return boolean(options, "include_usage")


def prompts(body: Body, name: str, entries_max: int) -> tuple[Prompt, ...]:
    """One or several prompts: a string, an array of strings, of token ids, or of such arrays."""
    value = body.get(name)
    if value is None:
        raise errors.invalid(f"You must provide '{name}'.", name, "missing_field")
    if value in ("", []):
        raise errors.invalid(f"'{name}' must not be empty.", name, "empty_array")
    if isinstance(value, str):
        return (value,)
    if not isinstance(value, list):
        raise _not_prompts(name)
    ids = sum(len(entry) if isinstance(entry, list) else 1 for entry in value)
    if ids > settings.PROMPTS_TOKENS_MAX:
        raise errors.invalid(f"'{name}' has more than {settings.PROMPTS_TOKENS_MAX} values.", name)
    if all(map(is_token_id, value)):
        return (TokenIds(tuple(value)),)
    if len(value) > entries_max:
        raise errors.invalid(f"'{name}' has more than {entries_max} entries.", name)
    if any(entry in ("", []) for entry in value):
        raise errors.invalid(f"No entry of '{name}' may be empty.", name)
    if _all(value, lambda entry: isinstance(entry, str)):
        return tuple(value)
    if _all(value, lambda entry: isinstance(entry, list) and all(map(is_token_id, entry))):
        return tuple(TokenIds(tuple(entry)) for entry in value)
    raise _not_prompts(name)


def _all(values: list[Any], fits: Callable[[Any], bool]) -> bool:
    return all(map(fits, values))


def _not_prompts(name: str) -> errors.ApiError:
    return errors.invalid(
        f"'{name}' must be a string, or an array of strings, of token ids, or of arrays of token "
        "ids.",
        name,
        "invalid_type",
    )
