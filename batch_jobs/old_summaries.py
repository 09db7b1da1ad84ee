"""What a summarisation job reads and what it asks a model: JSONL in, chat requests out.

Pure: it must never touch the database, the settings or the gateway. The `summarize` command reads
its file here, the pump builds its requests here.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

from batch_jobs.contracts import InputInvalid

CUSTOM_ID_CHARS_MAX = 256
PICO = 10**12

INSTRUCTION = "Summarize this text in one short sentence."
"""Said by the user, before the text: small models rewrite the text when a system message asks. In
front, it is a prefix that all documents share and pay for at the cached price."""


@dataclass(frozen=True, slots=True)
class InputLimits:
    """How much one input file may hold."""

    documents_max: int
    document_bytes_max: int
    file_bytes_max: int


@dataclass(frozen=True, slots=True)
class Document:
    """One text to summarise, under the name its owner gave it."""

    custom_id: str
    text: str


def read_documents(stream: BinaryIO, limits: InputLimits) -> Iterator[Document]:
    """Yields the documents of a JSONL stream: objects with `text` and `id` (or `custom_id`).

    Blank lines are skipped. Raises InputInvalid, naming the line, for a line that is no such
    object, a repeated id, or more than `limits` allow; and at the end if there was no document.
    """
    seen: set[str] = set()
    file_bytes = 0
    number = 0
    while line := stream.readline(limits.document_bytes_max + 1):
        number += 1
        file_bytes += len(line)
        if len(line) > limits.document_bytes_max:
            raise InputInvalid(f"line {number}: longer than {limits.document_bytes_max} bytes")
        if file_bytes > limits.file_bytes_max:
            raise InputInvalid(f"line {number}: the file is over {limits.file_bytes_max} bytes")
        document = _parse_line(line, number)
        if document is None:
            continue
        if document.custom_id in seen:
            raise InputInvalid(f"line {number}: id {document.custom_id!r} appeared before")
        if len(seen) == limits.documents_max:
            raise InputInvalid(f"line {number}: more than {limits.documents_max} documents")
        seen.add(document.custom_id)
        yield document
    if not seen:
        raise InputInvalid("the input has no documents")


def chat_request(model: str, text: str, *, tokens_max: int) -> dict[str, Any]:  # OpenAI's JSON
    """The chat completion request that summarises `text` in at most `tokens_max` tokens."""
    return {
        "model": model,
        "messages": [
            {"role": "user", "content": f"{INSTRUCTION}\n\n{text}"},
        ],
        "max_tokens": tokens_max,
        "temperature": 0,
    }


def decimal_text(amount_pico: int) -> str:
    """An amount in pico-units as an exact decimal of whole units, for people."""
    sign = "-" if amount_pico < 0 else ""
    units, rest = divmod(abs(amount_pico), PICO)
    return f"{sign}{units}.{rest:012d}".rstrip("0").rstrip(".")


def _parse_line(line: bytes, number: int) -> Document | None:
    try:
        source = line.decode("utf-8-sig" if number == 1 else "utf-8").strip()
        if not source:
            return None
        value = json.loads(source)
    except UnicodeDecodeError as error:
        raise InputInvalid(f"line {number}: not UTF-8 ({error.reason})") from error
    except (ValueError, RecursionError) as error:
        raise InputInvalid(f"line {number}: not JSON ({error})") from error
    if not isinstance(value, dict):
        raise InputInvalid(f"line {number}: not a JSON object")
    custom_id = _text_field(value, "id" if "custom_id" not in value else "custom_id", number)
    if len(custom_id) > CUSTOM_ID_CHARS_MAX:
        raise InputInvalid(f"line {number}: id is longer than {CUSTOM_ID_CHARS_MAX} characters")
    return Document(custom_id, _text_field(value, "text", number))


def _text_field(value: dict[str, object], name: str, number: int) -> str:
    text = value.get(name)
    if not isinstance(text, str) or not text.strip():
        raise InputInvalid(f"line {number}: {name!r} must be a string that is not empty")
    # PostgreSQL stores neither; JSON can spell both (\u0000, \ud800).
    if "\0" in text or any("\ud800" <= char <= "\udfff" for char in text):
        raise InputInvalid(f"line {number}: {name!r} holds NUL or half of a surrogate pair")
    return text
