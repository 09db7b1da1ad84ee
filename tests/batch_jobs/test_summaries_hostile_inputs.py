"""Inputs made to hold a worker, fill a disk or break a job for ever: what becomes of them."""

import itertools
import tracemalloc
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime

import pyarrow as pa
import pytest

from batch_jobs.summaries.ingesting import ingest_some
from batch_jobs.summaries.sources import documents as sources
from batch_jobs.summaries.sources import parquet as parquet_source
from batch_jobs.summaries.sources import zip_files
from batch_jobs.summaries.sources.documents import Document, InputUnreadable, Tick
from batch_jobs.summaries.sources.opening import read_documents
from tests.batch_jobs.ingest_cast import (
    Counting,
    Submitter,
    counting,
    items_of,
    job_of,
    jsonl,
    lease,
    make_submitter,
    read_all,
)
from tests.batch_jobs.test_summaries_ingesting import Settings
from tests.batch_jobs.test_summaries_sources import LIMITS, MIB, parquet, read, source, zipped


@pytest.fixture
def settings(monkeypatch: pytest.MonkeyPatch) -> Settings:
    return Settings(monkeypatch)


@pytest.fixture
def port() -> Iterator[Counting]:
    with counting() as port:
        yield port


@pytest.fixture
def acme(queue: None, port: Counting) -> Submitter:
    return make_submitter("acme")


MANY_LISTS = b"[" + b"[]," * MIB + b"[]]"
"""Of which a parser makes twenty times its size."""


@pytest.mark.parametrize(
    ("filename", "content", "wanted"),
    [
        (
            "a.jsonl",
            b'\xef\xbb\xbf{"more": ' + MANY_LISTS + b', "id": 7, "text": "caf\\u00e9"}\n',
            ("7", None, "café"),
        ),
        (
            "a.jsonl",
            b'{"text": ' + MANY_LISTS + b', "id": "one"}\n',
            ("one", "no_text", ""),
        ),
        (
            "a.csv",
            b"more,id,text\n" + "😀".encode() + b"x" * 3 * MIB + b",one," + "grüße 😀\n".encode(),
            ("one", None, "grüße 😀"),
        ),
    ],
    ids=["JSON beside the text", "JSON for the text", "CSV"],
)
def test_a_long_row_takes_little_more_memory_than_its_bytes(
    filename: str, content: bytes, wanted: tuple[str, str | None, str]
) -> None:
    limits = replace(LIMITS, document_bytes_max=3 * MIB)
    opened = source(content, filename, limits=limits)

    tracemalloc.start()
    (found,) = read_documents(opened, {})
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert isinstance(found, Document)
    assert (found.name, found.error_code, found.text) == wanted
    # The row, pieced together; and what the library for CSV holds four bytes of for each of it.
    assert peak_bytes < (10 if filename == "a.csv" else 3) * len(content)


def test_pages_of_bad_rows_are_bounded_by_what_is_said_of_them(
    acme: Submitter, settings: Settings
) -> None:
    settings.SUMMARY_PAGE_BYTES_MAX, settings.SUMMARY_READ_S = 2000, 0
    content = b'{"id": "%s"}\n' % (b"x" * 401) * 90
    job_id = acme.create(("a.jsonl", jsonl(a="one") + content))

    ingest_some(lease(job_id), datetime.now(UTC))
    assert 40 < job_of(job_id).items_total < 60


BLANK_ROWS = b"\n" * 25_000
BLANKS = {
    "a.jsonl": jsonl(a="one") + BLANK_ROWS + jsonl(b="two"),
    "a.csv": b"id,text\na,one\n" + BLANK_ROWS + b"b,two\n",
    "a.zip": zipped({"a.jsonl": jsonl(a="one") + BLANK_ROWS + jsonl(b="two")}),
}


@pytest.mark.parametrize("filename", BLANKS)
def test_a_source_says_where_it_is_in_blank_lines_and_goes_on_from_there(filename: str) -> None:
    found = list(read_documents(source(BLANKS[filename], filename), {}))

    assert [isinstance(each, Tick) for each in found] == [False, True, True, False]
    for number, each in enumerate(found, 1):
        rest = read_documents(source(BLANKS[filename], filename), each.cursor)
        documents = [each for each in rest if not isinstance(each, Tick)]
        assert documents == [each for each in found[number:] if not isinstance(each, Tick)]


@pytest.mark.parametrize("filename", BLANKS)
def test_blank_lines_are_read_in_slices(acme: Submitter, settings: Settings, filename: str) -> None:
    settings.SUMMARY_PAGE_S, settings.SUMMARY_READ_S = -1, 0
    job_id = acme.create((filename, BLANKS[filename]))

    slices, cursors = 0, []
    while ingest_some(lease(job_id), datetime.now(UTC)):
        slices += 1
        cursors.append(job_of(job_id).cursor["at"])
    assert slices == 4
    assert all(before != after for before, after in itertools.pairwise(cursors))
    assert [item.custom_id for item in items_of(job_id)] == ["a", "b"]


@pytest.mark.parametrize(
    ("filename", "content"),
    [("a.jsonl", b" " * 999 + b"\n"), ("a.csv", b"id,text\n" + b"\n" * 1000)],
)
def test_an_input_of_too_many_blank_lines_fails_its_job_and_says_so(
    acme: Submitter, monkeypatch: pytest.MonkeyPatch, filename: str, content: bytes
) -> None:
    monkeypatch.setattr(sources, "BLANK_BYTES_MAX", 999)
    job_id = acme.create((filename, content))
    read_all(job_id)

    (error,) = acme.read(job_id).job.errors
    assert error.code == "too_many_blank_lines"
    assert "999 bytes" in error.message


def test_parquet_that_repeats_a_text_is_read_up_to_a_ratio(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(parquet_source, "RATIO_FREE_CHARS", 4000)
    monkeypatch.setattr(parquet_source, "RATIO_MAX", 1)
    content = parquet({"text": ["x" * 900] * 100}, compression="zstd")
    limit = max(4000, len(content))
    wanted = limit // 900

    found = read_documents(source(content, "d.parquet"), {})
    whole = [next(found) for _ in range(wanted)]
    with pytest.raises(InputUnreadable) as raised:
        next(found)
    assert raised.value.code == "parquet_too_large"
    with pytest.raises(InputUnreadable):
        list(read_documents(source(content, "d.parquet"), whole[-1].cursor))


@pytest.mark.long
def test_a_row_group_decodes_to_a_bound_only() -> None:
    texts = pa.DictionaryArray.from_arrays(pa.array([0] * 1100, pa.int32()), ["x" * (4 * MIB)])
    content = parquet({"text": texts}, compression="zstd", store_schema=False)
    limits = replace(LIMITS, child_cpu_s=60, child_memory_bytes_max=2 << 30)

    # As if all but the last row had been read: nothing of them is told again.
    cursor = {"group": 0, "row": 1099, "line": 1099}
    with pytest.raises(InputUnreadable) as raised:
        list(read_documents(source(content, "d.parquet", limits=limits), cursor))
    assert raised.value.code == "parquet_too_large"
    assert "row group 0" in str(raised.value)


def test_an_entry_with_more_rows_than_can_be_passed_over_fails_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(zip_files, "ROWS_BYTES_MAX", 100)
    content = zipped({"a.jsonl": jsonl(a="x" * 100), "b.jsonl": jsonl(b="two")})

    assert [(each.name, each.error_code) for each in read(content, "d.zip")] == [
        ("a.jsonl", "document_too_large"),
        ("b", None),
    ]
