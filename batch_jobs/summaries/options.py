"""What a summarisation job asks of the model, as its owner chose it: checked once, then frozen.

Pure. Jobs keep the options as JSON in their plan; what they say decides, with a document's text,
whether two documents have the same summary.
"""

import functools
import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from batch_jobs.contracts import InputInvalid

TOKENS_MAX_OF_LENGTH = {"short": 96, "medium": 256, "long": 768}
"""How long a summary of each length may get."""
TOKENS_MIN = 8
TOKENS_MAX = 8192
INSTRUCTION_CHARS_MAX = 8000
WORDS_CHARS_MAX = 200
"""Of a language, a style, the name of a field or a model."""
SCHEMA_CHARS_MAX = 64 * 1024
INTEGER_END = 2**63
NUMBER_MIN = 1e-15
"""Of the numbers in a schema: jsonb spells each out, whatever its exponent."""
_CANONICAL: dict[str, Any] = {
    "sort_keys": True,
    "separators": (",", ":"),
    "allow_nan": False,
    "ensure_ascii": False,
}
WORDING = 1
"""Raise it when `asking` words its requests differently: summaries made before are then others."""


@dataclass(frozen=True, slots=True)
class SummaryOptions:
    """The options of one job; `schema` is a JSON schema as canonical JSON.

    `id_field` and `text_field` name the fields or columns of an input with rows; None are the
    usual ones. They say nothing about the summary, so the digest leaves them out.
    """

    model: str
    instruction: str | None = None
    length: str = "short"
    tokens_max: int = TOKENS_MAX_OF_LENGTH["short"]
    language: str | None = None
    style: str | None = None
    schema: str | None = None
    id_field: str | None = None
    text_field: str | None = None

    def to_json(self) -> dict[str, Any]:  # JSON
        """As `parse_options` reads it; fields that were left out stay out."""
        fields = {name: value for name, value in asdict(self).items() if value is not None}
        if self.schema is not None:
            fields["schema"] = json.loads(self.schema)
        return fields


def parse_options(fields: Mapping[str, Any]) -> SummaryOptions:  # JSON
    """The options that `fields` spell; null is the same as left out.

    Raises InputInvalid, its message beginning with the field's name and a colon.
    """
    given = {name: value for name, value in fields.items() if value is not None}
    for name in given:
        if name not in SummaryOptions.__slots__:
            raise InputInvalid(f"{name}: there is no such option")
    model = _words(given, "model", WORDS_CHARS_MAX)
    if model is None:
        raise InputInvalid("model: must be given")
    length = _words(given, "length", WORDS_CHARS_MAX) or "short"
    if length not in TOKENS_MAX_OF_LENGTH:
        raise InputInvalid(f"length: must be one of {', '.join(TOKENS_MAX_OF_LENGTH)}")
    return SummaryOptions(
        model=model,
        instruction=_words(given, "instruction", INSTRUCTION_CHARS_MAX),
        length=length,
        tokens_max=_tokens_max(given, TOKENS_MAX_OF_LENGTH[length]),
        language=_words(given, "language", WORDS_CHARS_MAX),
        style=_words(given, "style", WORDS_CHARS_MAX),
        schema=_schema(given),
        id_field=_words(given, "id_field", WORDS_CHARS_MAX),
        text_field=_words(given, "text_field", WORDS_CHARS_MAX),
    )


def canonical(options: SummaryOptions) -> bytes:
    """What decides over a summary beside the text, the same bytes for the same options."""
    fields = asdict(options) | {"wording": WORDING}
    del fields["id_field"], fields["text_field"]
    return json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()


def digest(options: SummaryOptions, text: str) -> bytes:
    """SHA-256 of the options and the text: documents that share it share their summary."""
    state = _options_hash(options).copy()
    state.update(text.encode())
    return state.digest()


@functools.lru_cache(maxsize=16)
def _options_hash(options: SummaryOptions) -> "hashlib._Hash":
    return hashlib.sha256(canonical(options) + b"\0")


def _words(given: Mapping[str, Any], name: str, chars_max: int) -> str | None:
    value = given.get(name)
    if value is None:
        return None
    if not isinstance(value, str) or not value.strip():
        raise InputInvalid(f"{name}: must be a string that is not empty")
    if len(value) > chars_max:
        raise InputInvalid(f"{name}: must have at most {chars_max} characters")
    if not _is_storable(value):
        raise InputInvalid(f"{name}: holds NUL or half of a surrogate pair")
    return value.strip()


def _tokens_max(given: Mapping[str, Any], default: int) -> int:
    value = given.get("tokens_max", default)
    if isinstance(value, bool) or not isinstance(value, int):
        raise InputInvalid("tokens_max: must be an integer")
    if not TOKENS_MIN <= value <= TOKENS_MAX:
        raise InputInvalid(f"tokens_max: must be {TOKENS_MIN} to {TOKENS_MAX}")
    return value


def _schema(given: Mapping[str, Any]) -> str | None:
    value = given.get("schema")
    if value is None:
        return None
    if not isinstance(value, dict):
        raise InputInvalid("schema: must be a JSON schema, as an object")
    try:
        text = json.dumps(_kept(json.dumps(value, allow_nan=False)), **_CANONICAL)
    except (ValueError, RecursionError) as error:
        raise InputInvalid(f"schema: {error}") from error
    if len(text) > SCHEMA_CHARS_MAX:
        raise InputInvalid(f"schema: must have at most {SCHEMA_CHARS_MAX} characters, as JSON")
    if "\\u0000" in text or not _is_storable(text):
        raise InputInvalid("schema: holds NUL or half of a surrogate pair")
    return text


def _kept(text: str) -> Any:  # JSON
    """What PostgreSQL gives back of it; raises ValueError for a number that it would spell out."""
    return json.loads(text, parse_int=_integer, parse_float=_number)


def _integer(spelled: str) -> int:
    number = int(spelled)
    if not -INTEGER_END <= number < INTEGER_END:
        raise ValueError(f"the number {spelled[:40]} does not fit into 64 bits")
    return number


def _number(spelled: str) -> int | float:
    number = float(spelled)
    if not -INTEGER_END <= number < INTEGER_END or 0 < abs(number) < NUMBER_MIN:
        raise ValueError(f"the number {spelled[:40]} is too large or too small")
    # jsonb keeps decimals: what was 1e17 is read as an integer, and would have another digest.
    return int(number) if number.is_integer() else number


def _is_storable(text: str) -> bool:
    # PostgreSQL stores neither; JSON can spell both (\u0000, \ud800).
    return "\0" not in text and not any("\ud800" <= char <= "\udfff" for char in text)
