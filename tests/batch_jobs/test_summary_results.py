"""Results of a summarisation job: JSON lines, CSV and Parquet, whole and in parts."""

import csv
import io
import json
from collections.abc import Iterator
from decimal import Decimal

import httpx
import pyarrow.parquet
import pytest
from django.db import connections
from django.test import override_settings

from tests.batch_jobs.batch_cast import MODEL, selling
from tests.batch_jobs.summary_cast import (
    CACHED,
    CHARGE_PICO,
    COMPLETION,
    PROMPT,
    SUMMARIES,
    SummaryTenant,
    answer,
    answer_item,
    document,
    fail,
    item_of,
    job_of,
    make_summary_tenant,
    make_tree,
    tend_now,
)


@pytest.fixture
def acme(django_database: object) -> Iterator[SummaryTenant]:
    """Whose jobs they are."""
    with selling(MODEL):
        yield make_summary_tenant("acme")


def fetch(tenant: SummaryTenant, summary_id: str, query: str) -> httpx.Response:
    """A file of results."""
    answered = tenant.door.get(f"{SUMMARIES}/{summary_id}/{query}")
    assert answered.status_code == 200, answered.text
    assert answered.headers["x-content-type-options"] == "nosniff"
    assert answered.headers["content-disposition"].startswith(f'attachment; filename="{summary_id}')
    return answered


def table(text: str) -> list[dict[str, str]]:
    """The rows of a CSV file."""
    return list(csv.DictReader(io.StringIO(text, newline="")))


def parquet(tenant: SummaryTenant, summary_id: str, shard: int) -> list[dict[str, object]]:
    """The rows of a Parquet file."""
    content = fetch(tenant, summary_id, f"results?format=parquet&shard={shard}").content
    rows: list[dict[str, object]] = pyarrow.parquet.read_table(io.BytesIO(content)).to_pylist()
    return rows


def test_a_row_says_all_of_its_document(acme: SummaryTenant) -> None:
    files = [
        acme.upload([document("a")], "first.jsonl"),
        acme.upload([document("x"), document("b")], "second.jsonl"),
    ]
    summary_id = acme.running(input_file_ids=files)
    answer(summary_id, "a", "x")
    fail(summary_id, "b")
    tend_now()
    first, _, last = acme.results(summary_id)

    request_id = item_of(summary_id, "a").request_id
    assert request_id is not None
    assert first == {
        "custom_id": "a",
        "status": "done",
        "summary": "summary of a",
        "error": None,
        "source": "first.jsonl",
        "line": 1,
        "same_as": None,
        "request_id": f"req_{request_id.hex}",
        "prompt_tokens": PROMPT,
        "cached_tokens": CACHED,
        "completion_tokens": COMPLETION,
        "charge_pico": str(CHARGE_PICO),
        "charge": "0.000000000007",
    }
    assert (last["source"], last["line"]) == ("second.jsonl", 2)
    assert last["status"] == "failed"
    assert last["summary"] is None
    assert last["error"] == {"code": "too_odd", "message": "it is too odd"}
    assert last["charge"] == "0.00"


def test_a_long_document_is_told_with_all_its_parts(acme: SummaryTenant) -> None:
    summary_id = acme.running("long", "short")
    for part in make_tree(summary_id, "long", 4):
        answer_item(part, "a part")
    answer(summary_id, "long", "short")
    long, short = acme.results(summary_id)

    assert [row["custom_id"] for row in (long, short)] == ["long", "short"]
    assert long["prompt_tokens"] == 5 * PROMPT
    assert long["cached_tokens"] == 5 * CACHED
    assert long["completion_tokens"] == 5 * COMPLETION
    assert long["charge_pico"] == str(5 * CHARGE_PICO)
    assert short["charge_pico"] == str(CHARGE_PICO)
    total = acme.read(summary_id)["charge"]["amount_pico"]
    assert total == str(int(long["charge_pico"]) + int(short["charge_pico"]))


def test_while_a_job_runs_its_results_are_what_is_done_so_far(acme: SummaryTenant) -> None:
    summary_id = acme.running("a", "b", "c")
    assert acme.results(summary_id) == []
    answer(summary_id, "b")

    assert [row["custom_id"] for row in acme.results(summary_id)] == ["b"]
    assert [row["custom_id"] for row in parquet(acme, summary_id, 0)] == ["b"]


@override_settings(RESULTS_PAGE_ROWS=2)
@pytest.mark.parametrize("documents", [1, 2, 3, 4, 5])
def test_pages_join_without_a_gap(acme: SummaryTenant, documents: int) -> None:
    ids = [f"d{number}" for number in range(documents)]
    summary_id = acme.running(*ids)
    answer(summary_id, *ids)

    assert [row["custom_id"] for row in acme.results(summary_id)] == ids
    text = fetch(acme, summary_id, "results?format=csv").text
    assert [row["custom_id"] for row in table(text)] == ids
    assert [row["custom_id"] for row in parquet(acme, summary_id, 0)] == ids


@override_settings(RESULTS_PAGE_ROWS=2)
def test_a_file_goes_on_behind_a_document(acme: SummaryTenant) -> None:
    ids = list("abcde")
    summary_id = acme.running(*ids)
    answer(summary_id, *ids)
    rest = acme.results(summary_id, "format=jsonl&after=c")
    text = fetch(acme, summary_id, "results?format=csv&after=c").text
    unknown = acme.door.get(f"{SUMMARIES}/{summary_id}/results?after=nobody")

    assert [row["custom_id"] for row in rest] == ["d", "e"]
    assert [line.split(",")[0] for line in text.splitlines()] == ["d", "e"]
    assert (unknown.status_code, unknown.json()["error"]["param"]) == (400, "after")


def test_no_cell_is_a_formula(acme: SummaryTenant) -> None:
    summary_id = acme.running("=cmd()", "plain")
    answer_item(item_of(summary_id, "=cmd()").id, '@SUM(1)\n"quoted", and more')
    answer_item(item_of(summary_id, "plain").id, "+1")
    first, second = table(fetch(acme, summary_id, "results?format=csv").text)

    assert first["custom_id"] == "'=cmd()"
    assert first["summary"] == '\'@SUM(1)\n"quoted", and more'
    assert first["charge_pico"] == str(CHARGE_PICO)
    assert first["charge"] == "0.000000000007"
    assert second["summary"] == "'+1"


@override_settings(RESULTS_SHARD_ROWS=2, RESULTS_PAGE_ROWS=1)
def test_parquet_comes_in_shards_that_hold_each_document_once(acme: SummaryTenant) -> None:
    ids = list("abcde")
    summary_id = acme.running(*ids)
    make_tree(summary_id, "b", 3)
    answer(summary_id, "a", "d", "e")
    fail(summary_id, "c")
    shards = acme.read(summary_id)["results_shards"]
    found = [parquet(acme, summary_id, shard) for shard in range(shards)]
    beyond = acme.door.get(f"{SUMMARIES}/{summary_id}/results?format=parquet&shard={shards}")

    assert [[row["custom_id"] for row in rows] for rows in found] == [["a"], ["c", "d"], ["e"]]
    assert found[0][0]["charge"] == Decimal("0.000000000007")
    assert found[0][0]["charge_pico"] == CHARGE_PICO
    assert found[0][0]["line"] == 1
    assert found[1][0]["error_code"] == "too_odd"
    assert beyond.status_code == 404


def test_a_job_without_rows_has_an_empty_file_of_each_kind(acme: SummaryTenant) -> None:
    summary_id = acme.create("a")

    assert acme.results(summary_id) == []
    assert table(fetch(acme, summary_id, "results?format=csv").text) == []
    assert parquet(acme, summary_id, 0) == []
    assert fetch(acme, summary_id, "failures").text == ""


def test_a_summary_by_schema_is_a_value_and_not_a_text(acme: SummaryTenant) -> None:
    summary_id = acme.running("a", "b", schema={"type": "object"})
    answer_item(item_of(summary_id, "a").id, '{"people": ["Ann"]}')
    answer_item(item_of(summary_id, "b").id, '{"people": ["Bo')
    first, second = acme.results(summary_id)

    assert first["summary"] == {"people": ["Ann"]}
    assert second["summary"] == '{"people": ["Bo'
    assert parquet(acme, summary_id, 0)[0]["summary"] == '{"people": ["Ann"]}'


def test_failures_are_told_with_their_reasons(acme: SummaryTenant) -> None:
    documents = [document("a"), document("b"), {"id": "empty", "text": ""}]
    summary_id = acme.running(input_file_ids=[acme.upload(documents)])
    answer(summary_id, "a")
    fail(summary_id, "b")
    failures = [json.loads(one) for one in fetch(acme, summary_id, "failures").text.splitlines()]
    rows = table(fetch(acme, summary_id, "failures?format=csv").text)

    assert [one["custom_id"] for one in failures] == ["b", "empty"]
    assert failures[0]["error"] == {"code": "too_odd", "message": "it is too odd"}
    assert failures[1]["error"]["code"] == "no_text"
    assert failures[1]["source"] == "in.jsonl"
    assert failures[1]["line"] == 3
    assert [row["error_code"] for row in rows] == ["too_odd", "no_text"]


@pytest.mark.parametrize(
    ("query", "param"),
    [
        ("results?format=xml", "format"),
        ("results?format=csv&shard=0", "shard"),
        ("results?format=parquet&shard=-1", "shard"),
        ("results?format=parquet&shard=0&after=a", "after"),
        ("results?limit=3", "limit"),
        ("failures?format=parquet", "format"),
        ("failures?shard=1", "shard"),
    ],
)
def test_what_cannot_be_asked_of_results(acme: SummaryTenant, query: str, param: str) -> None:
    summary_id = acme.create("a")
    refused = acme.door.get(f"{SUMMARIES}/{summary_id}/{query}")

    assert refused.status_code == 400, refused.text
    assert refused.json()["error"]["param"] == param


@pytest.mark.long
def test_a_hundred_thousand_rows_are_read_in_pages_of_one_size(acme: SummaryTenant) -> None:
    summary_id = acme.running("a")
    answer(summary_id, "a")
    job = job_of(summary_id)
    with connections["housekeeper"].cursor() as cursor:
        cursor.execute(
            "INSERT INTO bulk_item (organization_id, job_id, line, custom_id, answer, state, part,"
            " place, source_offset, source_bytes, parts_left, copies, bound_pico, retry_at,"
            " lease_token, attempts, prompt_tokens, cached_tokens, completion_tokens, charge_pico)"
            " SELECT %s, %s, n, 'row ' || n, 'a summary', 'done', 0, 0, 0, 0, 0, 0, 0, now(), 0, 0,"
            " 10, 4, 3, 7 FROM generate_series(1, 100000) AS n",
            [job.organization_id, job.id],
        )
        cursor.execute(
            "UPDATE bulk_job SET items_total = 100001, items_completed = 100001 WHERE id = %s",
            [job.id],
        )
    rows = acme.results(summary_id)
    shards = [parquet(acme, summary_id, shard) for shard in range(2)]

    assert len({row["custom_id"] for row in rows}) == len(rows) == 100_001
    assert [len(shard) for shard in shards] == [100_000, 1]
