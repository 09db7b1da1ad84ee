"""Reading inputs of every kind: what is found, what fails alone, what ends a job, and resuming."""

import io
import json
import random
import struct
import tracemalloc
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from batch_jobs.summaries.sources.documents import (
    Document,
    DocumentUnreadable,
    Input,
    InputLimits,
    InputUnreadable,
)
from batch_jobs.summaries.sources.opening import read_documents

MIB = 1 << 20
LIMITS = InputLimits(
    document_bytes_max=1000,
    raw_bytes_max=5000,
    documents_max=10_000,
    zip_entries_max=100,
    zip_bytes_max=200 * MIB,
    zip_ratio_max=200,
    child_memory_bytes_max=512 * MIB,
    child_cpu_s=10,
)


class Shouting:
    """An extractor that needs no child."""

    def extract(self, kind: str, content: bytes) -> str:
        """Upper case, unless it is told to fail."""
        if b"broken" in content:
            raise DocumentUnreadable("invalid_pdf", "it is broken")
        return f"{kind}: {content.decode().upper()}"


def source(content: bytes, filename: str, **changes: Any) -> Input:
    return replace(Input(filename, io.BytesIO(content), LIMITS, Shouting()), **changes)


def read(content: bytes, filename: str, **changes: Any) -> list[Document]:
    return documents_of(source(content, filename, **changes))


def documents_of(opened: Input) -> list[Document]:
    return [one for one in read_documents(opened, {}) if isinstance(one, Document)]


def texts_of(documents: Sequence[Document]) -> list[tuple[str | None, str]]:
    return [(document.name, document.text or document.error_code or "") for document in documents]


def zipped(entries: dict[str, bytes], **options: Any) -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, **options) as archive:
        for name, content in entries.items():
            archive.writestr(name, content)
    return target.getvalue()


def parquet(columns: dict[str, Any], **options: Any) -> bytes:
    target = io.BytesIO()
    pq.write_table(pa.table(columns), target, **options)
    return target.getvalue()


JSONL = (
    b'\xef\xbb\xbf{"id": "a", "text": "one"}\r\n\r\n'
    b'{"custom_id": 7, "document": "two \xc3\xa9"}\n{"content": "three"}'
)
CSV = b'id;text\na;"one;\n""two"""\r\nb;caf\xe9\nc;na\xc3\xafve\n'
PARQUET = parquet({"id": ["a", "b", "c"], "text": ["one", None, "three"]}, row_group_size=2)
ZIP = zipped(
    {
        "docs/": b"",
        "docs/a.txt": b"one",
        "docs/.DS_Store": b"x",
        "__MACOSX/a.txt": b"x",
        "b.md": b"# two",
        "c.html": b"<p>three",
        "d.pdf": b"%PDF-broken",
        "e.jsonl": b'{"id": "x", "text": "in"}\n{"text": "side"}\nnonsense\n',
        "f.csv": b"text\nrow\n",
        "g.png": b"\x89PNG",
        "h.csv": b"other\nrow\n",
    }
)
EVERY_KIND = [
    ("d.jsonl", JSONL, [("a", "one"), ("7", "two é"), (None, "three")]),
    ("d.csv", CSV, [("a", 'one;\n"two"'), ("b", "café"), ("c", "naïve")]),
    ("d.tsv", b"text\tid\none\ta\n\n\tb\nonly\n", [("a", "one"), ("b", "no_text"), (None, "only")]),
    ("d.parquet", PARQUET, [("a", "one"), ("b", "no_text"), ("c", "three")]),
    (
        "d.zip",
        ZIP,
        [
            ("docs/a.txt", "one"),
            ("b.md", "# two"),
            ("c.html", "html: <P>THREE"),
            ("d.pdf", "invalid_pdf"),
            ("x", "in"),
            ("e.jsonl:2", "side"),
            ("e.jsonl:3", "invalid_line"),
            ("f.csv:2", "row"),
            ("g.png", "unsupported_type"),
            ("h.csv", "missing_column"),
        ],
    ),
    ("d.txt", "grüße".encode("utf-16"), [("d.txt", "grüße")]),
    ("d.md", b"caf\xe9 \0", [("d.md", "café \ufffd")]),
    ("d.html", b"<p>x", [("d.html", "html: <P>X")]),
    ("d.pdf", b"%PDF-x", [("d.pdf", "pdf: %PDF-X")]),
]
IDS = [filename for filename, _, _ in EVERY_KIND]


@pytest.mark.parametrize(("filename", "content", "wanted"), EVERY_KIND, ids=IDS)
def test_each_kind_yields_its_documents(
    filename: str, content: bytes, wanted: list[tuple[str | None, str]]
) -> None:
    assert texts_of(read(content, filename)) == wanted


@pytest.mark.parametrize(("filename", "content", "wanted"), EVERY_KIND, ids=IDS)
def test_reading_goes_on_behind_any_document(
    filename: str, content: bytes, wanted: list[tuple[str | None, str]]
) -> None:
    whole = read(content, filename)

    for number, document in enumerate(whole, 1):
        cursor = json.loads(json.dumps(document.cursor))
        rest = list(read_documents(source(content, filename), cursor))
        assert rest == whole[number:]


@pytest.mark.parametrize(
    ("filename", "content"),
    [
        ("noname", b'{"text": "one"}\n'),
        ("noname", zipped({"a.txt": b"one"})),
        ("noname", parquet({"text": ["one"]})),
        ("wrong.txt", zipped({"a.txt": b"one"})),
        ("noname", b"one"),
    ],
)
def test_what_a_file_begins_with_tells_its_kind(filename: str, content: bytes) -> None:
    assert [text for _, text in texts_of(read(content, filename))] == ["one"]


@pytest.mark.parametrize(
    ("filename", "content", "code"),
    [
        ("d.docx", zipped({"word/document.xml": b"<x/>"}), "unsupported_type"),
        ("d.exe", b"MZ", "unsupported_type"),
        ("d", b"\0\1\2", "unsupported_type"),
        ("d.csv", b"title,body\n1,2\n", "missing_column"),
        ("d.csv", b"", "missing_column"),
        ("d.csv", "id,text\n".encode("utf-16"), "invalid_encoding"),
        ("d.csv", b'text\n"never closed' + b"\nx" * 2 * MIB, "row_too_large"),
        ("d.parquet", parquet({"body": ["one"]}), "missing_column"),
        ("d.parquet", b"PAR1" + b"x" * 100, "invalid_parquet"),
        ("d.parquet", PARQUET[:-40], "invalid_parquet"),
        ("d.parquet", parquet({"text": ["x"] * 10_001}), "too_many_documents"),
        ("d.zip", b"PK\3\4" + b"x" * 100, "invalid_zip"),
        ("d.zip", ZIP[: len(ZIP) // 2], "invalid_zip"),
        ("d.zip", zipped({f"{n}.txt": b"x" for n in range(101)}), "zip_too_large"),
    ],
)
def test_an_input_that_cannot_be_read_as_a_whole_says_why(
    filename: str, content: bytes, code: str
) -> None:
    with pytest.raises(InputUnreadable) as raised:
        read(content, filename)

    assert raised.value.code == code


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b"nonsense", "invalid_line"),
        (b"[1]", "invalid_line"),
        (b'{"text": "caf\xe9"}', "invalid_line"),
        (b'{"text": ' + b"[" * 2 * MIB, "document_too_large"),
        (b'{"text": ' + b"[" * MIB, "invalid_line"),
        (b"[" * 60_000, "invalid_line"),
        (b'{"id": "a"}', "no_text"),
        (b'{"text": 5}', "no_text"),
        (b'{"text": " \\n"}', "no_text"),
        (b'{"text": "' + b"x" * 1001 + b'"}', "document_too_large"),
        (b'{"text": "' + b"\xc3\xa9" * 501 + b'"}', "document_too_large"),
        (json.dumps({"id": "x" * 401, "text": "one"}).encode(), "invalid_id"),
    ],
)
def test_a_bad_line_fails_alone(line: bytes, code: str) -> None:
    documents = read(b'{"text": "before"}\n' + line + b'\n{"text": "after"}\n', "d.jsonl")

    assert [text for _, text in texts_of(documents)] == ["before", code, "after"]
    assert documents[1].line == 2
    assert documents[1].error_message


def test_nul_and_halves_of_surrogate_pairs_are_replaced() -> None:
    line = b'{"id": "a\\u0000", "text": "x\\u0000\\ud800y \\ud83d\\ude00"}'

    assert texts_of(read(line, "d.jsonl")) == [("a\ufffd", "x\ufffd\ufffdy 😀")]


def test_other_fields_can_be_named_for_id_and_text() -> None:
    content = parquet({"key": [1, 2], "text": ["no", "no"], "body": ["one", "two"]})
    named = {"id_field": "key", "text_field": "body"}

    assert texts_of(read(content, "d.parquet", **named)) == [("1", "one"), ("2", "two")]
    assert texts_of(read(b"BODY,Key\none,1\n", "d.csv", **named)) == [("1", "one")]
    line = b'{"key": 1, "body": "one", "text": "no"}'
    assert texts_of(read(line, "d.jsonl", **named)) == [("1", "one")]
    with pytest.raises(InputUnreadable, match="no column key"):
        read(b"body\none\n", "d.csv", **named)


class Endless(io.RawIOBase):
    """A file of so many bytes of one line, which are nowhere."""

    def __init__(self, size_bytes: int, tail: bytes) -> None:
        self._size, self._tail, self._at = size_bytes, tail, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        self._at = offset
        return offset

    def readinto(self, target: Any) -> int:
        left = self._size - self._at
        if left > 0:
            taken = min(left, len(target))
            target[:taken] = b"x" * taken
        else:
            taken = max(0, min(len(self._tail) + left, len(target)))
            target[:taken] = self._tail[-left : taken - left]
        self._at += taken
        return taken


def test_a_line_of_a_gigabyte_is_passed_over_in_little_memory() -> None:
    stream = io.BufferedReader(Endless(1 << 30, b'\n{"text": "after"}\n'), 1 << 20)
    opened = source(b"", "d.jsonl", stream=stream)

    tracemalloc.start()
    found = texts_of(documents_of(opened))
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert found == [(None, "document_too_large"), (None, "after")]
    assert peak_bytes < 16 * MIB


def test_a_zip_bomb_is_not_unpacked() -> None:
    bomb = zipped({"bomb.txt": b"x" * (20 * MIB), "fine.txt": b"one"})

    assert texts_of(read(bomb, "d.zip")) == [
        ("bomb.txt", "compressed_too_much"),
        ("fine.txt", "one"),
    ]


def test_a_zip_that_unpacks_to_too_much_altogether_is_refused() -> None:
    with pytest.raises(InputUnreadable) as raised:
        read(
            zipped({"a.txt": b"x" * 999, "b.txt": b"y" * 999}),
            "d.zip",
            limits=replace(LIMITS, zip_bytes_max=1500),
        )

    assert raised.value.code == "zip_too_large"


def test_a_zip_that_lies_about_an_entrys_size_unpacks_to_no_more_than_it_says() -> None:
    content = bytearray(zipped({"a.txt": b"x" * 900, "fine.txt": b"one"}))
    for place in (content.index(b"PK\1\2") + 24, content.index(b"PK\3\4") + 22):
        content[place : place + 4] = struct.pack("<L", 10)

    first, second = texts_of(read(bytes(content), "d.zip"))
    assert first in [("a.txt", "x" * 10), ("a.txt", "invalid_zip_entry")]
    assert second == ("fine.txt", "one")


def test_broken_and_encrypted_entries_fail_alone() -> None:
    content = bytearray(zipped({"a.txt": b"x" * 900, "b.txt": b"two", "fine.txt": b"one"}))
    content[content.index(b"a.txt") + 6] ^= 0xFF
    content[content.index(b"PK\1\2", content.index(b"PK\1\2") + 1) + 8] |= 1

    assert texts_of(read(bytes(content), "d.zip")) == [
        ("a.txt", "invalid_zip_entry"),
        ("b.txt", "encrypted"),
        ("fine.txt", "one"),
    ]


def test_a_zip_directory_of_many_entries_is_counted_before_it_is_built() -> None:
    content = bytearray(zipped({f"{n:05}.txt": b"" for n in range(5000)}))
    end = content.rindex(b"PK\5\6")
    content[end + 8 : end + 12] = struct.pack("<2H", 1, 1)

    with pytest.raises(InputUnreadable, match="5000 entries"):
        read(bytes(content), "d.zip")


class Noted(io.BytesIO):
    """Remembers where it was read."""

    def __init__(self, content: bytes) -> None:
        super().__init__(content)
        self.read_at: list[int] = []

    def read(self, size: int | None = -1) -> bytes:
        self.read_at.append(self.tell())
        return super().read(size)


def test_of_a_zip_the_entries_that_were_read_are_passed_over_unread() -> None:
    texts = {f"{n:02}.txt": random.Random(n).randbytes(9000).hex().encode() for n in range(30)}
    content = zipped(texts)
    limits = replace(LIMITS, document_bytes_max=MIB)
    twentieth = read(content, "d.zip", limits=limits)[19]
    noted = Noted(content)

    rest = list(read_documents(source(b"", "d.zip", stream=noted, limits=limits), twentieth.cursor))

    assert len(rest) == 10
    begin = content.index(b"20.txt") - 30
    assert all(place == 0 or place >= begin for place in noted.read_at)


def test_an_overlong_single_file_fails_as_its_document() -> None:
    assert texts_of(read(b"x" * 1001, "d.txt")) == [("d.txt", "document_too_large")]
    assert texts_of(read(b"x" * 5001, "d.html")) == [("d.html", "document_too_large")]


def test_a_parquet_bomb_of_one_long_text_ends_its_reader_only() -> None:
    texts = pa.DictionaryArray.from_arrays(pa.array([0] * 64, pa.int32()), ["x" * (32 * MIB)])
    content = parquet({"text": texts}, compression="zstd", store_schema=False)
    assert len(content) < MIB

    with pytest.raises(InputUnreadable) as raised:
        read(content, "d.parquet")

    assert raised.value.code == "invalid_parquet"


def test_parquet_cells_that_are_no_text_fail_alone() -> None:
    content = parquet({"id": [1, 2], "text": [["a"], ["b"]]})

    assert texts_of(read(content, "d.parquet")) == [("1", "no_text"), ("2", "no_text")]


def test_a_parquet_bomb_is_refused_by_its_footer() -> None:
    content = parquet({"text": ["x" * 1000] * 90_000}, use_dictionary=False, compression="zstd")

    with pytest.raises(InputUnreadable) as raised:
        read(content, "d.parquet", limits=replace(LIMITS, documents_max=100_000))

    assert raised.value.code == "parquet_too_large"


@pytest.mark.parametrize(
    ("filename", "content_of"),
    [
        ("d.jsonl", lambda rows: b'{"id": "a", "text": "one two three"}\n' * rows),
        ("d.csv", lambda rows: b"id,text\n" + b"a,one two three\n" * rows),
        (
            "d.zip",
            lambda rows: zipped(
                {
                    f"{n}.jsonl": b'{"id": "a", "text": "one two"}\n' * (rows // 50)
                    for n in range(50)
                }
            ),
        ),
    ],
)
def test_memory_does_not_grow_with_the_input(
    filename: str, content_of: Callable[[int], bytes]
) -> None:
    def peak(rows: int) -> int:
        opened = source(content_of(rows), filename)
        tracemalloc.start()
        count = sum(1 for _ in read_documents(opened, {}))
        _, peak_bytes = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert count == rows
        return peak_bytes

    assert peak(20_000) < peak(1000) + MIB


def test_a_header_of_any_length_is_told_of_in_few_words() -> None:
    with pytest.raises(InputUnreadable) as raised:
        read(b"x" * 500_000 + b"," + b"y" * 400_000 + b"\n1,2\n", "d.csv")

    assert raised.value.code == "missing_column"
    assert len(str(raised.value)) <= 500


def packed(name: str, content: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(name, content)
    return buffer.getvalue()


def test_an_entry_whose_name_is_no_text_fails_alone() -> None:
    whole = packed("caf\N{LATIN SMALL LETTER E WITH ACUTE}.txt", b"text")
    # Its local name, which is only looked at when it is opened.
    broken = whole.replace("\N{LATIN SMALL LETTER E WITH ACUTE}".encode(), b"\xff\xff", 1)

    assert [one.error_code for one in read(broken, "d.zip")] == ["invalid_zip_entry"]


def test_rows_of_an_entry_with_a_long_name_have_a_place_that_fits() -> None:
    [document] = read(packed(f"{'n' * 600}.jsonl", b'{"text": "a"}\n'), "d.zip")

    assert document.name == f"{'n' * 400}:1"
