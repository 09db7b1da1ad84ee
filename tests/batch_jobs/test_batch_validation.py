"""A batch's input is read to its end before the first line runs, and every bad line is named."""

import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from django.test import override_settings

from batch_jobs import facade, job_leases
from batch_jobs.batches import validating
from batch_jobs.batches.lines import body_of
from batch_jobs.models import StoredFile
from batch_jobs.tending import tend
from tests.batch_jobs.batch_cast import (
    MODEL,
    BatchTenant,
    answer,
    body,
    items_of,
    job_of,
    jsonl,
    line,
    make_batch_tenant,
    selling,
    tended,
)
from tests.billing.cast import at_once


@pytest.fixture
def acme(django_database: object) -> Iterator[BatchTenant]:
    """Whose batches they are; no model but one is for sale."""
    with selling(MODEL):
        yield make_batch_tenant("acme")


def validated(acme: BatchTenant, content: bytes, **more: Any) -> dict[str, Any]:
    """A batch over this input, after validation."""
    batch_id = acme.create(content, **more)
    tend(datetime.now(UTC))
    return acme.read(batch_id)


def errors_of(batch: dict[str, Any]) -> list[tuple[int | None, str, str | None]]:
    """Line, code and param of what is wrong."""
    assert batch["status"] == "failed"
    assert isinstance(batch["failed_at"], int)
    assert batch["request_counts"] == {"total": 0, "completed": 0, "failed": 0}
    assert items_of(batch["id"]) == [], "nothing of it will ever run"
    return [(one["line"], one["code"], one["param"]) for one in batch["errors"]["data"]]


def test_every_bad_line_is_named_in_one_go(acme: BatchTenant) -> None:
    lines: list[tuple[bytes, tuple[str, str | None] | None]] = [
        (json.dumps(line("good")).encode(), None),
        (b"{not json", ("invalid_json_line", None)),
        (b'["an", "array"]', ("invalid_json_line", None)),
        (b'{"custom_id": "\xff"}', ("invalid_json_line", None)),
        (jsonl([line(None)]).strip(), ("missing_required_parameter", "custom_id")),
        (jsonl([line(7)]).strip(), ("invalid_type", "custom_id")),
        (jsonl([line("x" * 513)]).strip(), ("string_above_max_length", "custom_id")),
        (jsonl([line("nul\0")]).strip(), ("invalid_value", "custom_id")),
        (jsonl([line("good")]).strip(), ("duplicate_custom_id", "custom_id")),
        (jsonl([line("a", method="GET")]).strip(), ("invalid_method", "method")),
        (jsonl([line("b", method=None)]).strip(), ("missing_required_parameter", "method")),
        (jsonl([line("c", url="/v1/embeddings")]).strip(), ("invalid_url", "url")),
        (jsonl([line("d", url=None)]).strip(), ("missing_required_parameter", "url")),
        (jsonl([line("e", body="text")]).strip(), ("invalid_type", "body")),
        (jsonl([line("f", body=None)]).strip(), ("missing_required_parameter", "body")),
        (
            jsonl([line("g", body=body(model=None))]).strip(),
            ("missing_required_parameter", "body.model"),
        ),
        (jsonl([line("h", body=body(model="other"))]).strip(), ("mismatched_model", "body.model")),
        (
            jsonl([line("i", body=body(stream=True))]).strip(),
            ("unsupported_parameter", "body.stream"),
        ),
        (jsonl([line("j", body=body(model=5))]).strip(), ("invalid_type", "body.model")),
        (jsonl([line("k", body=body(model="\0"))]).strip(), ("invalid_type", "body.model")),
        (
            jsonl([line("l", body=body(model="x" * 999))]).strip(),
            ("mismatched_model", "body.model"),
        ),
    ]

    batch = validated(acme, b"\n".join(one for one, _ in lines) + b"\n")

    assert errors_of(batch) == [
        (number, *wrong) for number, (_, wrong) in enumerate(lines, start=1) if wrong
    ]
    assert batch["errors"]["object"] == "list"
    assert all(one["message"] for one in batch["errors"]["data"])
    assert batch["error_file_id"] is None, "the object shows them all"


@pytest.mark.parametrize(
    "content",
    [
        b"\r\n".join(jsonl([line(name)]).strip() for name in ("a", "b", "c")) + b"\r\n",
        b"\xef\xbb\xbf" + jsonl(map(line, "abc")),
        jsonl(map(line, "abc")).rstrip(b"\n"),
        jsonl(map(line, "abc")) + b"\n\n",
        b"\n" + jsonl(map(line, "ab")) + b"  \r\n" + jsonl([line("c")]),
    ],
    ids=["CRLF", "BOM", "no final newline", "blank lines at the end", "blank lines between"],
)
def test_ends_of_lines_and_a_byte_order_mark_are_nobody_s_business(
    acme: BatchTenant, content: bytes
) -> None:
    batch = validated(acme, content)

    assert batch["status"] == "in_progress"
    assert batch["model"] == MODEL
    assert batch["request_counts"] == {"total": 3, "completed": 0, "failed": 0}
    for item, custom_id in zip(items_of(batch["id"]), "abc", strict=True):
        span = content[item.source_offset : item.source_offset + item.source_bytes]
        assert item.custom_id == custom_id
        assert body_of(span) == line(custom_id)["body"]
        assert content.count(b"\n", 0, item.source_offset) + 1 == item.line


@pytest.mark.parametrize("content", [b"\xef\xbb\xbf", b"\n", b" \r\n\n"])
def test_a_file_without_a_line_is_empty(acme: BatchTenant, content: bytes) -> None:
    assert errors_of(validated(acme, content)) == [(None, "empty_file", "input_file_id")]


def test_50_001_lines_are_too_many(acme: BatchTenant) -> None:
    batch = validated(acme, jsonl(line(number) for number in map(str, range(50_001))))

    assert errors_of(batch) == [(None, "too_many_tasks", "input_file_id")]


@pytest.mark.long
def test_50_000_lines_run(acme: BatchTenant) -> None:
    batch_id = acme.create(jsonl(line(number) for number in map(str, range(50_000))))
    started = time.monotonic()
    tend(datetime.now(UTC))
    took_s = time.monotonic() - started

    assert acme.read(batch_id)["request_counts"]["total"] == 50_000
    assert took_s < 15, "0.3 ms a line"


def test_a_line_that_is_too_long_is_skipped_and_named(acme: BatchTenant) -> None:
    long = line("long", body=body(messages=[{"role": "user", "content": "x" * 300}]))
    content = jsonl([line("a"), long, line("a")])
    with override_settings(BATCH_LINE_BYTES_MAX=200):
        batch = validated(acme, content)

    assert errors_of(batch) == [
        (2, "line_too_long", None),
        (3, "duplicate_custom_id", "custom_id"),
    ]


def test_a_line_of_just_the_limit_is_not_too_long(acme: BatchTenant) -> None:
    content = jsonl([line("a")])
    for ending in (b"\n", b"\r\n", b""):
        with override_settings(BATCH_LINE_BYTES_MAX=len(content.strip())):
            assert validated(acme, content.strip() + ending)["status"] == "in_progress"
        with override_settings(BATCH_LINE_BYTES_MAX=len(content.strip()) - 1):
            assert errors_of(validated(acme, content.strip() + ending)) == [
                (1, "line_too_long", None)
            ]


def test_a_model_that_is_not_for_sale_is_named_at_each_line(acme: BatchTenant) -> None:
    batch = validated(
        acme, jsonl([line("a", body=body(model="x")), line("b", body=body(model="x"))])
    )

    assert errors_of(batch) == [
        (1, "model_not_found", "body.model"),
        (2, "model_not_found", "body.model"),
    ]


def test_a_name_that_no_model_can_have_is_only_not_found(acme: BatchTenant) -> None:
    batch = validated(acme, jsonl([line("a", body=body(model="x" * 1000))]))

    assert errors_of(batch) == [(1, "model_not_found", "body.model")]


def test_more_errors_than_the_object_shows_are_in_a_file(acme: BatchTenant) -> None:
    with override_settings(BATCH_ERRORS_SHOWN_MAX=3):
        batch = validated(acme, b"{\n" * 5)

    assert errors_of(batch) == [(number, "invalid_json_line", None) for number in (1, 2, 3)]
    report = acme.content(batch["error_file_id"])
    assert [(one["line"], one["code"]) for one in report] == [
        (number, "invalid_json_line") for number in range(1, 6)
    ]
    [file] = facade.list_files(acme.owner, rows_max=9, purpose="batch_output")
    assert batch["error_file_id"] == f"file-{file.file_id.hex}"


def test_what_the_endpoint_would_refuse_is_that_line_s_answer(acme: BatchTenant) -> None:
    batch = validated(acme, jsonl([line("a", body=body(messages="no list", n="many"))]))

    assert batch["status"] == "in_progress"


def test_lines_that_begin_alike_come_together(acme: BatchTenant) -> None:
    def asked(name: str, instruction: str) -> dict[str, Any]:
        system = {"role": "system", "content": instruction}
        return line(name, body=body(messages=[system, {"role": "user", "content": name}]))

    batch = validated(
        acme,
        jsonl([asked("a", "short"), asked("b", "long"), asked("c", "short"), asked("d", "long")]),
    )

    items = sorted(items_of(batch["id"]), key=lambda item: item.place)
    assert [item.custom_id for item in items] == ["a", "c", "b", "d"]


@pytest.mark.parametrize(
    ("endpoint", "asked"),
    [
        ("/v1/completions", {"prompt": "once upon"}),
        ("/v1/embeddings", {"input": [[1, 2, 3], [4, 5]]}),
    ],
)
def test_completions_and_embeddings_are_taken_too(
    acme: BatchTenant, endpoint: str, asked: dict[str, Any]
) -> None:
    batch = validated(
        acme,
        jsonl([line("a", url=endpoint, body={"model": MODEL, **asked})]),
        endpoint=endpoint,
    )

    assert (batch["status"], batch["endpoint"]) == ("in_progress", endpoint)
    assert job_of(batch["id"]).enqueued_tokens == {"prompt": 2, "input": 5}[next(iter(asked))]


def test_one_token_too_many_for_the_organization_fails_the_batch(acme: BatchTenant) -> None:
    content = jsonl(map(line, "abcd"))  # three words each
    with override_settings(BATCH_ENQUEUED_TOKENS_MAX=24):
        first = validated(acme, content)
        second = validated(acme, content)
        third = validated(acme, content)

        assert [job_of(one["id"]).enqueued_tokens for one in (first, second)] == [12, 12]
        assert errors_of(third) == [(None, "token_limit_exceeded", None)]
        assert "24" in third["errors"]["data"][0]["message"]

        for custom_id in "abcd":
            answer(first["id"], custom_id)
        tend(datetime.now(UTC))
        assert validated(acme, content)["status"] == "in_progress", (
            "a batch that ended counts no more"
        )


def test_of_batches_validated_at_once_no_more_start_than_fit(acme: BatchTenant) -> None:
    made = [acme.create(jsonl(map(line, "abcd"))) for _ in range(8)]
    with override_settings(BATCH_ENQUEUED_TOKENS_MAX=40):
        at_once([lambda: tend(datetime.now(UTC))] * 8)

    states = sorted(acme.read(batch_id)["status"] for batch_id in made)
    assert states == ["failed"] * 5 + ["in_progress"] * 3


def test_of_batches_made_at_once_no_more_live_than_may(acme: BatchTenant) -> None:
    file_id = acme.upload(jsonl([line("a")]))
    with override_settings(BATCH_JOBS_MAX=3):
        made = at_once([lambda: acme.post(file_id)] * 12)

    failed = [one.json() for one in made if one.json()["status"] == "failed"]
    assert len(failed) == 9
    assert {one["errors"]["data"][0]["code"] for one in failed} == {"token_limit_exceeded"}


def test_a_validation_that_is_killed_starts_over(acme: BatchTenant) -> None:
    batch_id = acme.create(jsonl(map(line, "abc")))
    dead = job_leases.lease_job(datetime.now(UTC), 60)
    assert dead is not None
    tend(datetime.now(UTC))
    assert acme.read(batch_id)["status"] == "validating", "its lease still runs"

    tended(61)

    assert acme.read(batch_id)["status"] == "in_progress"
    assert [item.custom_id for item in items_of(batch_id)] == ["a", "b", "c"]
    with pytest.raises(job_leases.LeaseLost):
        validating.validate(dead, datetime.now(UTC))
    assert len(items_of(batch_id)) == 3, "one that comes back from the dead writes nothing"


def test_a_batch_that_is_cancelled_before_it_runs_has_no_lines(acme: BatchTenant) -> None:
    batch_id = acme.create(jsonl(map(line, "abc")))
    leased = job_leases.lease_job(datetime.now(UTC), 60)
    assert leased is not None
    assert acme.door.post(f"/v1/batches/{batch_id}/cancel").json()["status"] == "cancelling"

    with pytest.raises(job_leases.LeaseLost):
        validating.validate(leased, datetime.now(UTC))
    tended(61)

    batch = acme.read(batch_id)
    assert batch["status"] == "cancelled"
    assert batch["request_counts"]["total"] == 0
    assert (batch["output_file_id"], batch["error_file_id"]) == (None, None)
    assert items_of(batch_id) == []


def test_an_input_that_is_gone_fails_the_batch(acme: BatchTenant) -> None:
    batch_id = acme.create(jsonl([line("a")]))
    files = StoredFile.objects.using("housekeeper")
    files.filter(organization_id=acme.owner.organization_id).update(deleted_at=datetime.now(UTC))

    tend(datetime.now(UTC))

    assert errors_of(acme.read(batch_id)) == [(None, "file_not_found", "input_file_id")]
