"""Reading JSONL documents and building their requests."""

import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batch_jobs.contracts import InputInvalid
from batch_jobs.old_summaries import (
    INSTRUCTION,
    Document,
    InputLimits,
    chat_request,
    decimal_text,
    read_documents,
)

LIMITS = InputLimits(documents_max=3, document_bytes_max=200, file_bytes_max=400)


def documents(source: bytes, limits: InputLimits = LIMITS) -> list[Document]:
    return list(read_documents(io.BytesIO(source), limits))


def test_reads_id_and_custom_id_and_skips_blank_lines() -> None:
    source = b'\xef\xbb\xbf{"id": "a", "text": "one"}\n\n  \r\n{"custom_id": "b", "text": "two"}'

    assert documents(source) == [Document("a", "one"), Document("b", "two")]


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        (b"not json", "line 2: not JSON"),
        (b"[1]", "line 2: not a JSON object"),
        (b"[" * 150, "line 2: not JSON"),
        (b'{"id": "b"}', "line 2: 'text' must be a string"),
        (b'{"id": "b", "text": "  "}', "line 2: 'text' must be a string"),
        (b'{"id": "b", "text": 7}', "line 2: 'text' must be a string"),
        (b'{"text": "x"}', "line 2: 'id' must be a string"),
        (b'{"id": "a", "text": "again"}', "line 2: id 'a' appeared before"),
        (b'{"id": "b", "text": "\\u0000"}', "line 2: 'text' holds NUL"),
        (b'{"id": "b", "text": "\\ud800"}', "line 2: 'text' holds NUL or half"),
        (b'{"id": "b", "text": "\xff"}', "line 2: not UTF-8"),
        (b'{"id": "b", "text": "' + b"x" * 300 + b'"}', "line 2: longer than 200 bytes"),
    ],
)
def test_names_the_line_that_is_no_document(line: bytes, complaint: str) -> None:
    with pytest.raises(InputInvalid, match=complaint):
        documents(b'{"id": "a", "text": "one"}\n' + line)


def test_deeply_nested_json_is_refused_rather_than_crashing() -> None:
    roomy = InputLimits(documents_max=1, document_bytes_max=10**6, file_bytes_max=10**6)

    with pytest.raises(InputInvalid, match="line 1: not JSON"):
        documents(b"[" * 500_000, roomy)


def test_refuses_more_documents_than_the_limit() -> None:
    source = b"".join(b'{"id": "%d", "text": "x"}\n' % number for number in range(4))

    with pytest.raises(InputInvalid, match="line 4: more than 3 documents"):
        documents(source)


def test_refuses_a_file_over_the_limit() -> None:
    line = b'{"id": "%d", "text": "' + b"x" * 150 + b'"}\n'

    with pytest.raises(InputInvalid, match="line 3: the file is over 400 bytes"):
        documents(b"".join(line % number for number in range(3)))


@pytest.mark.parametrize("source", [b"", b"\n\n"])
def test_refuses_an_input_without_documents(source: bytes) -> None:
    with pytest.raises(InputInvalid, match="no documents"):
        documents(source)


@given(st.text().filter(lambda text: text.strip() and "\0" not in text))
def test_any_unicode_text_arrives_unchanged(text: str) -> None:
    roomy = InputLimits(documents_max=1, document_bytes_max=10**6, file_bytes_max=10**6)
    source = json.dumps({"id": "a", "text": text}).encode()

    assert documents(source, roomy) == [Document("a", text)]


def test_the_request_is_greedy_and_bounded_and_asks_before_it_shows_the_text() -> None:
    request = chat_request("small", "<|im_start|>system", tokens_max=96)

    assert request["model"] == "small"
    assert request["max_tokens"] == 96
    assert request["temperature"] == 0
    (message,) = request["messages"]
    assert message["role"] == "user"
    assert message["content"] == f"{INSTRUCTION}\n\n<|im_start|>system"


@pytest.mark.parametrize(
    ("amount_pico", "text"),
    [
        (0, "0"),
        (1, "0.000000000001"),
        (15 * 10**11, "1.5"),
        (20 * 10**12, "20"),
        (-1, "-0.000000000001"),
    ],
)
def test_amounts_are_shown_exactly(amount_pico: int, text: str) -> None:
    assert decimal_text(amount_pico) == text
