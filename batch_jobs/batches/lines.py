"""Lines of a batch's input: what one must look like, and the request in it. Pure.

Validation checks every line here before the first one runs; the pump reads the request of each
line that it runs. What the endpoint thinks of a request is not asked: that is the line's answer.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec
from msgspec import UNSET

CUSTOM_ID_CHARS_MAX = 512
SHOWN_CHARS_MAX = 100
PREFIX_CHARS = 512
"""Requests that begin with so much of the same text run one after the other."""


class _Line(msgspec.Struct):
    custom_id: Any = UNSET  # JSON of a foreign shape, checked below
    method: Any = UNSET
    url: Any = UNSET
    body: Any = UNSET


class _Request(msgspec.Struct):
    body: dict[str, Any]


_line = msgspec.json.Decoder(_Line)
_request = msgspec.json.Decoder(_Request)


@dataclass(slots=True)
class LineInvalid(Exception):
    """Why a line cannot be run, in OpenAI's words for it where there are any."""

    code: str
    message: str
    param: str | None = None


@dataclass(frozen=True, slots=True)
class CheckedLine:
    """A line that can be run. `prefix` stands for how its text begins."""

    custom_id: str
    body: dict[str, Any]
    prefix: int


def body_of(line: bytes) -> dict[str, Any]:
    """The request body in a line that passed validation; raises DecodeError for any other."""
    return _request.decode(line).body


@dataclass(slots=True)
class LineChecker:
    """Checks the lines of one input: each for itself, and against those before it.

    The first line that names a model says which one the batch is for; `sells` tells whether its
    project can buy it. Remembers 16 bytes for each custom id.
    """

    endpoint: str
    sells: Callable[[str], bool]
    model: str = ""
    _for_sale: bool = False
    _seen: set[bytes] = field(default_factory=set)

    def check(self, line: bytes) -> CheckedLine:
        """The line as it is run; raises LineInvalid with the first thing that is wrong with it."""
        found = _decoded(line)
        custom_id = self._custom_id(found.custom_id)
        if found.method is UNSET:
            raise _missing("method")
        if found.method != "POST":
            raise LineInvalid("invalid_method", "The method must be 'POST'.", "method")
        if found.url is UNSET:
            raise _missing("url")
        if found.url != self.endpoint:
            raise LineInvalid(
                "invalid_url",
                "The URL provided for this request does not match the batch endpoint"
                f" '{self.endpoint}'.",
                "url",
            )
        if found.body is UNSET:
            raise _missing("body")
        if not isinstance(found.body, dict):
            raise LineInvalid("invalid_type", "The body must be a JSON object.", "body")
        self._check_model(found.body.get("model", UNSET))
        if found.body.get("stream") not in (None, False):
            raise LineInvalid(
                "unsupported_parameter", "A batch cannot stream its answers.", "body.stream"
            )
        return CheckedLine(custom_id, found.body, hash(leading_text(found.body)[:PREFIX_CHARS]))

    def _custom_id(self, custom_id: Any) -> str:
        if custom_id is UNSET or custom_id is None or custom_id == "":
            raise _missing("custom_id")
        if not isinstance(custom_id, str):
            raise LineInvalid("invalid_type", "The custom_id must be a string.", "custom_id")
        if len(custom_id) > CUSTOM_ID_CHARS_MAX:
            raise LineInvalid(
                "string_above_max_length",
                f"The custom_id is longer than {CUSTOM_ID_CHARS_MAX} characters.",
                "custom_id",
            )
        if "\0" in custom_id:
            raise LineInvalid("invalid_value", "The custom_id holds a NUL.", "custom_id")
        digest = hashlib.blake2b(custom_id.encode(), digest_size=16).digest()
        if digest in self._seen:
            raise LineInvalid(
                "duplicate_custom_id",
                f"The custom_id '{_shown(custom_id)}' is a duplicate of another request's. It must"
                " be unique for each request in a batch.",
                "custom_id",
            )
        self._seen.add(digest)
        return custom_id

    def _check_model(self, model: Any) -> None:
        if model is UNSET or model is None or model == "":
            raise _missing("body.model")
        if not isinstance(model, str) or "\0" in model:
            raise LineInvalid("invalid_type", "The model must be a string of text.", "body.model")
        if not self.model:
            self.model = model
            self._for_sale = self.sells(model)
        if model != self.model:
            raise LineInvalid(
                "mismatched_model",
                f"The provided model '{_shown(model)}' does not match the model of the first"
                f" request, '{_shown(self.model)}'. All requests of a batch must use one model.",
                "body.model",
            )
        if not self._for_sale:
            raise LineInvalid(
                "model_not_found",
                f"The provided model '{_shown(model)}' is not supported by the Batch API.",
                "body.model",
            )


def leading_text(body: dict[str, Any]) -> str:
    """How a request's prompt begins: its first message, or its first prompt or input."""
    messages = body.get("messages")
    first = messages[:1] if isinstance(messages, list) else body.get("prompt", body.get("input"))
    while isinstance(first, list | dict):
        if isinstance(first, dict):
            first = first.get("content", first.get("text"))
        elif first and isinstance(first[0], int):
            return repr(first[:PREFIX_CHARS])
        else:
            first = first[0] if first else None
    return first if isinstance(first, str) else ""


def prompt_of(body: dict[str, Any]) -> tuple[str, int]:
    """All text that a request sends, and how many token ids: for estimates."""
    texts: list[str] = []
    ids = 0
    left: list[Any] = [body.get("messages"), body.get("prompt"), body.get("input")]
    while left:
        one = left.pop()
        if isinstance(one, str):
            texts.append(one)
        elif isinstance(one, int):
            ids += 1
        elif isinstance(one, list):
            left.extend(one)
        elif isinstance(one, dict):
            left.extend([one.get("content"), one.get("text")])
    return "\n".join(texts), ids


def _decoded(line: bytes) -> _Line:
    try:
        str(line, "utf-8")  # the decoder skips over what it does not need
    except UnicodeDecodeError:
        raise LineInvalid("invalid_json_line", "This line is not valid UTF-8.") from None
    try:
        return _line.decode(line)
    except msgspec.ValidationError:
        raise LineInvalid("invalid_json_line", "This line is not a JSON object.") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise LineInvalid(
            "invalid_json_line", "This line is not parseable as valid JSON."
        ) from None


def _missing(param: str) -> LineInvalid:
    return LineInvalid(
        "missing_required_parameter", f"Missing required parameter: '{param}'.", param
    )


def _shown(text: str) -> str:
    return text if len(text) <= SHOWN_CHARS_MAX else f"{text[:SHOWN_CHARS_MAX]}..."
