"""Cutting and packing: every byte of an input is in exactly one upload, in order."""

import csv
import io
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.command_line.cutting import parts, records_of_csv, records_of_jsonl
from headrace.command_line.ending import CommandStopped
from headrace.command_line.packing import Entry, pack

BYTES_MAX = 64
CELLS = st.text(alphabet='ab",;\n\r é', max_size=8)


class Files:
    """Contents of the parts, read while they are there."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "part"

    def contents(self, paths: Iterator[Path]) -> list[bytes]:
        return [path.read_bytes() for path in paths]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    """A folder of this module's; each part overwrites the one before, as in a run."""
    return Files(tmp_path_factory.mktemp("parts"))


def cut_lines(files: Files, content: bytes, bytes_max: int = BYTES_MAX) -> list[bytes]:
    records = records_of_jsonl(io.BytesIO(content), bytes_max)
    return files.contents(parts(records, bytes_max, lambda: files.path, with_header=False))


def cut_csv(files: Files, content: bytes, bytes_max: int) -> list[bytes]:
    records = records_of_csv(io.BytesIO(content), bytes_max)
    return files.contents(parts(records, bytes_max, lambda: files.path, with_header=True))


def entry(name: str, content: bytes) -> Entry:
    opened: Callable[[], io.BytesIO] = lambda: io.BytesIO(content)  # noqa: E731 - as Entry takes it
    return Entry(name, len(content), opened)


@given(st.lists(st.binary(max_size=BYTES_MAX - 1).map(lambda line: line.replace(b"\n", b""))))
def test_lines_come_back_whole_and_in_order(files: Files, lines: list[bytes]) -> None:
    content = b"".join(line + b"\n" for line in lines)

    cut = cut_lines(files, content)

    assert b"".join(cut) == content
    assert all(len(part) <= BYTES_MAX and part.endswith(b"\n") for part in cut)


def test_the_last_line_needs_no_end(files: Files) -> None:
    assert cut_lines(files, b"a" * 60 + b"\nlast") == [b"a" * 60 + b"\n", b"last"]


def test_small_lines_share_a_part(files: Files) -> None:
    assert cut_lines(files, b"one\r\n\r\ntwo\r\n") == [b"one\r\n\r\ntwo\r\n"]


def test_an_empty_input_has_no_parts(files: Files) -> None:
    assert cut_lines(files, b"") == []


def test_a_line_larger_than_a_part_is_refused(files: Files) -> None:
    with pytest.raises(CommandStopped, match="a record is larger than 64 bytes"):
        cut_lines(files, b"a" * 64 + b"\n")


@given(st.lists(st.tuples(CELLS, CELLS), max_size=12), st.sampled_from([",", ";", "\t"]))
@settings(max_examples=200)
def test_rows_come_back_whole_under_their_header(
    files: Files, rows: list[tuple[str, str]], delimiter: str
) -> None:
    out = io.StringIO()
    writer = csv.writer(out, delimiter=delimiter, quoting=csv.QUOTE_ALL)
    writer.writerow(["id", "text"])
    writer.writerows(rows)
    content = out.getvalue().encode()

    cut = cut_csv(files, content, 96)

    header = content[: content.index(b"\n") + 1]
    assert b"".join(part.removeprefix(header) for part in cut) == content.removeprefix(header)
    read = [
        list(csv.reader(io.StringIO(part.decode(), newline=""), delimiter=delimiter))
        for part in cut
    ]
    assert all(part[0] == ["id", "text"] for part in read)
    assert [tuple(row) for part in read for row in part[1:]] == rows
    assert all(len(part) <= 96 for part in cut)


def test_a_byte_order_mark_hides_no_quote(files: Files) -> None:
    content = b'\xef\xbb\xbf"i\nd",text\n' + b"1,one\n" * 20

    cut = cut_csv(files, content, 64)

    assert all(part.startswith(b'\xef\xbb\xbf"i\nd",text\n') for part in cut)


def test_a_row_that_fits_beside_no_header_is_refused(files: Files) -> None:
    with pytest.raises(CommandStopped, match="the header are larger"):
        cut_csv(files, b"id,text\n1," + b"a" * 50 + b"\n", 56)


@given(
    st.lists(st.binary(max_size=300), max_size=12),
    st.integers(min_value=1, max_value=4),
)
def test_documents_are_packed_once_each_in_order(
    files: Files, contents: list[bytes], documents_max: int
) -> None:
    documents = [entry(f"ä/{index}.txt", content) for index, content in enumerate(contents)]

    packed = files.contents(pack(documents, 1000, documents_max, lambda: files.path))

    members: list[tuple[str, bytes]] = []
    for part in packed:
        assert len(part) <= 1000 + 22  # the end record, which every ZIP file has once
        with zipfile.ZipFile(io.BytesIO(part)) as archive:
            names = archive.namelist()
            assert 1 <= len(names) <= documents_max
            members += [(name, archive.read(name)) for name in names]
    assert members == [(f"ä/{index}.txt", content) for index, content in enumerate(contents)]


def test_the_same_documents_make_the_same_bytes(files: Files) -> None:
    first, second = (
        files.contents(pack([entry("a.txt", b"text")], 1000, 10, lambda: files.path))
        for _ in range(2)
    )

    assert first == second


def test_a_document_larger_than_a_part_is_named(files: Files) -> None:
    with pytest.raises(CommandStopped, match=r"^big\.txt is larger than 1000 bytes$"):
        files.contents(pack([entry("big.txt", b"a" * 1000)], 1000, 10, lambda: files.path))
