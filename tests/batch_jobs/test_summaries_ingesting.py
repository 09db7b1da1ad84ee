"""From uploaded documents to items: copies, trees, failures, kills, and what it will all take."""

import itertools
import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from django.conf import settings as django_settings
from django.db import connections

from batch_jobs.contracts import InputInvalid, StorageAway, StorageFull
from batch_jobs.facade import INVARIANTS
from batch_jobs.job_leases import LeaseLost
from batch_jobs.models import BulkItem, BulkJob, StoredFile
from batch_jobs.summaries import staging
from batch_jobs.summaries.ingesting import ingest_some
from batch_jobs.summaries.options import parse_options
from tests.batch_jobs.ingest_cast import (
    MODEL,
    Counting,
    Submitter,
    counting,
    items_of,
    job_of,
    jsonl,
    lease,
    make_submitter,
    read_all,
    states_of,
    text_of,
)
from tests.batch_jobs.test_summaries_sources import parquet, zipped


class Settings:
    """The house's settings, as long as a test runs."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.__dict__["change"] = monkeypatch.setattr

    def __setattr__(self, name: str, value: object) -> None:
        self.__dict__["change"](django_settings, name, value)


@pytest.fixture
def settings(monkeypatch: pytest.MonkeyPatch) -> Settings:
    return Settings(monkeypatch)


class Killed(BaseException):
    """The worker is gone."""


@pytest.fixture
def port() -> Iterator[Counting]:
    with counting() as port:
        yield port


@pytest.fixture
def acme(queue: None, port: Counting) -> Submitter:
    return make_submitter("acme")


@pytest.fixture
def globex(queue: None, port: Counting) -> Submitter:
    return make_submitter("globex")


def answer_all(job_id: UUID) -> None:
    """Writes summaries of all that is queued down, as the pump does, and ends the job."""
    with connections["housekeeper"].cursor() as cursor:
        cursor.execute(
            "UPDATE bulk_item SET state = 'done', answer = concat('summary of ', custom_id),"
            " prompt_tokens = 10, completion_tokens = 4, request_id = gen_random_uuid(),"
            " ended_at = now() WHERE job_id = %s AND state IN ('queued', 'waiting')",
            [job_id],
        )
        cursor.execute(
            "INSERT INTO bulk_attempt (request_id, organization_id, item_id)"
            " SELECT request_id, organization_id, id FROM bulk_item WHERE job_id = %s",
            [job_id],
        )
        cursor.execute(
            "UPDATE bulk_job j SET state = 'completed', completed_at = now(),"
            " items_completed = i.done, prompt_tokens = i.prompt, completion_tokens = i.completion"
            " FROM (SELECT count(*) AS done, sum(prompt_tokens) AS prompt,"
            "              sum(completion_tokens) AS completion"
            "         FROM bulk_item WHERE job_id = %s AND state = 'done') AS i WHERE j.id = %s",
            [job_id, job_id],
        )


def test_documents_become_items_that_lead_to_their_texts(acme: Submitter) -> None:
    job_id = acme.ingested(
        ("a.jsonl", jsonl(one="grüße one", two="text two")), ("b.txt", b"text three")
    )

    items = items_of(job_id)
    assert [(item.custom_id, text_of(item), item.state) for item in items] == [
        ("one", "grüße one", "queued"),
        ("two", "text two", "queued"),
        ("b.txt", "text three", "queued"),
    ]
    assert [(item.input_number, item.line) for item in items] == [(0, 1), (0, 2), (1, 1)]
    assert all(item.parent_id is None and item.same_as_id is None for item in items)
    shown = acme.read(job_id)
    assert (shown.job.state, shown.job.items_total) == ("in_progress", 3)
    assert shown.job.in_progress_at is not None
    assert job_of(job_id).plan.bytes_read == len("grüße onetext twotext three".encode())


def test_a_job_that_is_to_wait_is_ready_with_its_estimate(acme: Submitter) -> None:
    job_id = acme.ingested(("a.jsonl", jsonl(one="w " * 50)), starts_itself=False, tokens_max=20)

    shown = acme.read(job_id)
    assert (shown.job.state, shown.job.in_progress_at) == ("ready", None)
    estimate = dict(shown.estimate)
    prompt = 50 + 7 + 32  # the text, the instruction, the template
    assert estimate == {
        "prompt_tokens": prompt,
        "completion_tokens": 20,
        "amount_pico": prompt * 3 + 20 * 5,
        "interactive_amount_pico": prompt * 6 + 20 * 10,
        "duration_s": None,
        "prompt_basis": "counted",
        "completion_basis": "at_most",
    }
    assert job_of(job_id).enqueued_tokens == prompt


def sample_progress(submitter: Submitter) -> None:
    """Twenty tokens of each job of an organization's ended just now."""
    with connections["housekeeper"].cursor() as cursor:
        cursor.execute(
            "INSERT INTO bulk_progress (organization_id, job_id, bucket_at, items, prompt_tokens,"
            " completion_tokens, charge_pico) SELECT organization_id, id, now(), 1, 15, 5, 0"
            " FROM bulk_job WHERE organization_id = %s",
            [submitter.tenant.organization_id],
        )


def test_an_estimate_learns_from_what_ran_before(acme: Submitter) -> None:
    answer_all(acme.ingested(("a.jsonl", jsonl(one="first text"))))
    sample_progress(acme)
    other = acme.read(acme.ingested(("a.jsonl", jsonl(one="second text")))).estimate

    assert (other["completion_basis"], other["completion_tokens"]) == ("measured", 4)
    # 20 tokens in a bucket of ten seconds.
    assert other["duration_s"] == -(-(other["prompt_tokens"] + 4) // 2)


def test_an_estimate_tells_nothing_of_what_others_run(acme: Submitter, globex: Submitter) -> None:
    answer_all(globex.ingested(("a.jsonl", jsonl(one="first text"))))
    sample_progress(globex)

    assert acme.read(acme.ingested(("a.jsonl", jsonl(one="text")))).estimate["duration_s"] is None


def test_identical_documents_are_computed_once(acme: Submitter) -> None:
    texts = jsonl(a="same", b="same", c="other")
    job_id = acme.ingested(("1.jsonl", texts), ("2.jsonl", jsonl(d="same", e="same ")))

    a, b, c, d, e = items_of(job_id)
    assert [item.state for item in (a, b, c, d, e)] == [
        *("queued", "waiting", "queued"),
        *("waiting", "queued"),
    ]
    assert (b.same_as_id, d.same_as_id, a.copies) == (a.id, a.id, 2)
    assert (b.source_id, b.digest, d.digest) == (None, None, None)
    assert acme.read(job_id).documents_duplicate == 2
    assert acme.read(job_id).job.items_total == 5


def test_what_an_earlier_job_of_the_project_summarised_is_not_computed_again(
    acme: Submitter, globex: Submitter
) -> None:
    first = acme.ingested(("a.jsonl", jsonl(a="kept", b="changed")))
    answer_all(first)
    second = acme.ingested(("a.jsonl", jsonl(x="kept", b="changed since", y="kept")))

    x, b, y = items_of(second)
    assert (x.state, x.answer, x.charge_pico, x.request_id) == ("done", "summary of a", 0, None)
    assert (y.state, y.answer) == ("done", "summary of a")
    assert (b.state, text_of(b)) == ("queued", "changed since")
    shown = acme.read(second)
    assert (shown.documents_known, shown.job.items_completed) == (2, 2)
    for stranger, options in ((globex, {}), (acme, {"length": "long"})):
        again = stranger.ingested(("a.jsonl", jsonl(a="kept")), **options)
        assert states_of(again) == {"a": "queued"}


def test_an_unchanged_job_is_over_once_it_is_read(acme: Submitter) -> None:
    answer_all(acme.ingested(("a.jsonl", jsonl(a="kept"))))
    job_id = acme.ingested(("a.jsonl", jsonl(a="kept")), starts_itself=False, model="alias")

    shown = acme.read(job_id)
    assert (shown.job.state, shown.job.items_completed) == ("finalizing", 1)
    assert shown.estimate["amount_pico"] == 0


def test_one_bad_document_stops_nothing(acme: Submitter) -> None:
    content = jsonl(a="one") + b"nonsense\n" + jsonl(b=" ", a="two", c="three")
    job_id = acme.ingested(("docs.jsonl", content), ("x.pdf", b"%PDF-1.4 broken"))

    assert states_of(job_id) == {
        "a": "queued",
        "docs.jsonl:2": "invalid_line",
        "b": "no_text",
        "a#4": "duplicate_id",
        "c": "queued",
        "x.pdf": "invalid_pdf",
    }
    failed = [item for item in items_of(job_id) if item.state == "failed"]
    assert all(item.error_message and item.ended_at and item.source_id is None for item in failed)
    shown = acme.read(job_id)
    assert (shown.job.state, shown.job.items_total, shown.job.items_failed) == ("in_progress", 6, 4)


def test_a_repeated_id_never_takes_one_that_a_document_has(
    acme: Submitter, settings: Settings
) -> None:
    settings.SUMMARY_PAGE_DOCUMENTS = 2
    lines = [("a", "1"), ("a#2", "2"), ("a#3", "3"), ("a", "4"), ("a#4", "5"), ("a", "6")]
    content = b"".join(json.dumps({"id": i, "text": t}).encode() + b"\n" for i, t in lines)
    job_id = acme.ingested(("docs.jsonl", content))

    assert states_of(job_id) == {
        "a": "queued",
        "a#2": "queued",
        "a#3": "queued",
        "a#4": "duplicate_id",
        "a#4#5": "duplicate_id",
        "a#6": "duplicate_id",
    }


LONG = "".join(
    f"# Chapter {chapter}\n\n"
    + "".join(f"Sentence {n} of it says so. " for n in range(40))
    + "\n\n"
    for chapter in range(30)
)


@pytest.mark.parametrize("context_tokens_max", [400, 900])
def test_a_document_longer_than_the_context_becomes_a_tree_that_reaches_all_of_it(
    queue: None, context_tokens_max: int
) -> None:
    with counting(context_tokens_max) as port:
        acme = make_submitter("acme")
        job_id = acme.ingested(("long.txt", LONG.encode()), ("short.txt", b"short"), tokens_max=40)
        budget = context_tokens_max - 40 - 128

        items = {item.id: item for item in items_of(job_id)}
        root = next(item for item in items.values() if item.custom_id == "long.txt")
        children: dict[int | None, list[BulkItem]] = {}
        for item in items.values():
            children.setdefault(item.parent_id, []).append(item)

        def leaves(item: BulkItem) -> Iterator[BulkItem]:
            below = sorted(children.get(item.id, []), key=lambda each: each.part)
            assert [each.part for each in below] == list(range(len(below)))
            assert item.parts_left == len(below)
            assert item.state == ("waiting" if below else "queued")
            if below:
                assert item.source_id is None
                assert len(below) * (40 + 8) <= budget
                assert all(each.id > item.id for each in below)
            else:
                yield item
            yield from itertools.chain.from_iterable(map(leaves, below))

        texts = [text_of(leaf) for leaf in leaves(root)]
        assert "".join(texts) == LONG
        assert max(port.count_tokens(texts)) <= budget
        assert {item.custom_id for item in items.values()} == {"long.txt", "short.txt", None}
        depth = 0
        leaf = next(iter(leaves(root)))
        while leaf.parent_id is not None:
            leaf, depth = items[leaf.parent_id], depth + 1
        assert depth == (3 if context_tokens_max == 400 else 2)
        assert acme.read(job_id).job.items_total == 2


def test_a_document_of_many_bytes_and_few_tokens_is_computed_whole(queue: None) -> None:
    with counting(300):
        job_id = make_submitter("acme").ingested(
            ("a.txt", b"xxxxxxxxx " * 90), ("b.txt", b"word " * 90), tokens_max=40
        )

    assert [(item.state, item.source_bytes) for item in items_of(job_id)] == [
        ("queued", 900),
        ("queued", 450),
    ]


def test_a_document_that_cannot_be_merged_fails_alone(queue: None) -> None:
    with counting(250):
        acme = make_submitter("acme")
        job_id = acme.ingested(("a.jsonl", jsonl(long=LONG, short="short")), tokens_max=60)

    assert states_of(job_id) == {"long": "document_too_long", "short": "queued"}


def test_a_document_of_too_many_parts_fails_alone(queue: None, settings: Settings) -> None:
    settings.SUMMARY_PARTS_MAX = 3
    with counting(400):
        job_id = make_submitter("acme").ingested(("a.jsonl", jsonl(long=LONG)), tokens_max=40)

    assert states_of(job_id) == {"long": "document_too_long"}


def test_every_item_is_bounded_by_what_it_can_be_charged(acme: Submitter) -> None:
    job_id = acme.ingested(("a.jsonl", jsonl(a="x" * 100)), tokens_max=20)

    (item,) = items_of(job_id)
    # A text has at most as many tokens as bytes.
    assert 100 * 3 + 20 * 5 < item.bound_pico <= (100 + 7 + 50 + 128) * 3 + 20 * 5


def test_what_is_read_agrees_with_what_reconciling_expects(queue: None) -> None:
    with counting(400):
        acme = make_submitter("acme")
        answer_all(acme.ingested(("a.jsonl", jsonl(known="kept"))))
        content = jsonl(a="one", b="one", c="kept", d="kept", long=LONG, e=LONG) + b"nonsense\n"
        acme.ingested(("docs.jsonl", content), tokens_max=40)
        acme.ingested(("bad.csv", b"title\nx\n"))

    with connections["housekeeper"].cursor() as cursor:
        for name, _, query in INVARIANTS:
            cursor.execute(query)
            assert cursor.fetchall() == [], name


PAGES = [jsonl(**{f"{page}-{n}": f"text {page} {n}" for n in range(10)}) for page in range(5)]


@pytest.mark.parametrize("step", ["stage_texts", "keep_shard", "insert_rows", "count_copies"])
def test_a_reader_killed_anywhere_repeats_nothing(
    acme: Submitter, settings: Settings, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    settings.SUMMARY_PAGE_DOCUMENTS = 4
    job_id = acme.create(("a.jsonl", b"".join(PAGES)), ("b.zip", zipped({"z.txt": b"zipped"})))
    real = getattr(staging, step)
    calls = itertools.count(1)

    def killed_now_and_then(*args: Any) -> Any:
        result = real(*args)
        if next(calls) % 3 == 0:
            raise Killed
        return result

    monkeypatch.setattr(staging, step, killed_now_and_then)
    kills = 0
    while True:
        try:
            read_all(job_id)
            break
        except Killed:
            kills += 1
    assert kills > 3
    monkeypatch.undo()

    wanted = [(f"{page}-{n}", f"text {page} {n}") for page in range(5) for n in range(10)]
    items = items_of(job_id)
    assert [(item.custom_id, text_of(item)) for item in items] == [*wanted, ("z.txt", "zipped")]
    assert acme.read(job_id).job.items_total == 51
    staged = StoredFile.objects.using("housekeeper").filter(purpose="staged")
    kept = set(staged.filter(expires_at=None).values_list("id", flat=True))
    assert kept == {item.source_id for item in items}


def test_a_reader_that_was_superseded_writes_nothing(
    acme: Submitter, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.SUMMARY_PAGE_DOCUMENTS = 4
    job_id = acme.create(("a.jsonl", PAGES[0]))
    real = staging.stage_texts
    pages = itertools.count(1)

    def overtaken(*args: Any) -> Any:
        if next(pages) == 2:
            lease(job_id)
        return real(*args)

    monkeypatch.setattr(staging, "stage_texts", overtaken)
    with pytest.raises(LeaseLost):
        ingest_some(lease(job_id), datetime.now(UTC))
    assert len(items_of(job_id)) == 4
    monkeypatch.undo()

    read_all(job_id)
    assert [item.custom_id for item in items_of(job_id)] == [f"0-{n}" for n in range(10)]


def test_a_job_is_read_in_slices(acme: Submitter, settings: Settings) -> None:
    settings.SUMMARY_PAGE_DOCUMENTS, settings.SUMMARY_READ_S = 4, 0
    job_id = acme.create(("a.jsonl", PAGES[0]))

    assert ingest_some(lease(job_id), datetime.now(UTC))
    assert (job_of(job_id).state, job_of(job_id).items_total) == ("validating", 4)
    read_all(job_id)
    assert (job_of(job_id).state, job_of(job_id).items_total) == ("in_progress", 10)


@pytest.mark.parametrize(
    ("files", "code"),
    [
        ([("a.jsonl", b"\n\n")], "empty_input"),
        ([("a.zip", zipped({}))], "empty_input"),
        ([("a.csv", b"title\nx\n")], "missing_column"),
        ([("good.jsonl", PAGES[0]), ("bad.parquet", parquet({"body": ["x"]}))], "missing_column"),
        ([("good.jsonl", PAGES[0]), ("bad.docx", zipped({"a.xml": b""}))], "unsupported_type"),
        ([("a.jsonl", b"nonsense\n" * 100)], "invalid_line"),
    ],
)
def test_an_input_that_cannot_be_read_fails_its_job_and_leaves_nothing(
    acme: Submitter, files: Sequence[tuple[str, bytes]], code: str
) -> None:
    job_id = acme.ingested(*files)

    shown = acme.read(job_id)
    assert (shown.job.state, shown.job.items_total) == ("failed", 0)
    assert shown.job.failed_at is not None
    assert {error.code for error in shown.job.errors} == {code}
    assert items_of(job_id) == []
    staged = StoredFile.objects.using("housekeeper").filter(purpose="staged", deleted_at=None)
    assert not staged.filter(organization_id=acme.tenant.organization_id).exists()


def test_a_job_with_too_many_documents_fails(acme: Submitter, settings: Settings) -> None:
    settings.SUMMARY_PAGE_DOCUMENTS, settings.SUMMARY_DOCUMENTS_MAX = 4, 9
    job_id = acme.ingested(("a.jsonl", PAGES[0]))

    assert [error.code for error in acme.read(job_id).job.errors] == ["too_many_documents"]
    assert items_of(job_id) == []


def test_an_input_that_keeps_killing_its_readers_fails_its_job(
    acme: Submitter, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.SUMMARY_READ_TRIES_MAX = 3
    job_id = acme.create(("a.jsonl", PAGES[0]))
    monkeypatch.setattr(
        "batch_jobs.summaries.ingesting._end_try", lambda _: None
    )  # the dead do not clear up

    def fatal(*_: Any) -> None:
        raise Killed

    monkeypatch.setattr(staging, "stage_texts", fatal)
    for _ in range(3):
        with pytest.raises(Killed):
            read_all(job_id)
    read_all(job_id)

    assert [error.code for error in acme.read(job_id).job.errors] == ["unreadable_input"]


@pytest.mark.parametrize("error", [ValueError, OSError])
def test_an_input_that_breaks_its_reader_again_and_again_fails_the_job(
    acme: Submitter,
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
    error: type[Exception],
) -> None:
    settings.SUMMARY_READ_TRIES_MAX = 3
    job_id = acme.create(("a.jsonl", PAGES[0]))

    def broken(*_: Any) -> None:
        raise error("nobody thought of it")

    monkeypatch.setattr(staging, "stage_texts", broken)
    for _ in range(3):
        with pytest.raises(error, match="nobody"):
            read_all(job_id)
    read_all(job_id)

    assert [error.code for error in acme.read(job_id).job.errors] == ["unreadable_input"]


def test_a_failure_of_ours_is_no_try(
    acme: Submitter, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.SUMMARY_READ_TRIES_MAX = 3
    job_id = acme.create(("a.jsonl", PAGES[0]))

    def away(*_: Any) -> None:
        raise StorageAway("the storage is away")

    monkeypatch.setattr(staging, "stage_texts", away)
    for _ in range(5):
        with pytest.raises(StorageAway):
            read_all(job_id)
    monkeypatch.undo()

    read_all(job_id)
    assert job_of(job_id).state == "in_progress"


def test_what_is_cancelled_while_it_is_read_is_read_no_further(
    acme: Submitter, settings: Settings
) -> None:
    settings.SUMMARY_PAGE_DOCUMENTS, settings.SUMMARY_READ_S = 4, 0
    job_id = acme.create(("a.jsonl", PAGES[0]))
    leased = lease(job_id)
    ingest_some(leased, datetime.now(UTC))
    BulkJob.objects.using("housekeeper").filter(id=job_id).update(state="cancelling")

    with pytest.raises(LeaseLost):
        ingest_some(leased, datetime.now(UTC))
    assert len(items_of(job_id)) == 4


def test_a_job_over_the_organizations_tokens_fails(acme: Submitter, settings: Settings) -> None:
    settings.BATCH_ENQUEUED_TOKENS_MAX = 100
    job_id = acme.ingested(("a.jsonl", jsonl(a="w " * 100)))

    assert [error.code for error in acme.read(job_id).job.errors] == ["token_limit_exceeded"]


@pytest.mark.parametrize(
    "options", [{"tokens_max": 4097}, {"schema": {"title": "deep"}}], ids=["tokens_max", "schema"]
)
def test_what_every_document_would_fail_with_is_refused_before_a_job_is_made(
    acme: Submitter, options: dict[str, Any]
) -> None:
    with pytest.raises(InputInvalid, match=f"^{next(iter(options))}: "):
        acme.create(("a.jsonl", PAGES[0]), **options)
    assert not BulkJob.objects.using("housekeeper").exists()
    job_id = acme.ingested(("a.jsonl", PAGES[0]), tokens_max=4096, schema={"type": "object"})
    assert job_of(job_id).state == "in_progress"


def test_the_numbers_of_a_schema_are_kept_as_they_are_meant(acme: Submitter) -> None:
    limits = [2**63 - 1, -(2**63), 1e17, 9.2e18, 1.0, -0.0, 0.1, 1e-15, 1.5e-9, 123456789.125]
    schema = {"type": "object", "properties": {"a": {"enum": limits}}}
    job_id = acme.create(("a.jsonl", PAGES[0]), schema=schema)

    asked = parse_options({"model": MODEL, "schema": schema})
    assert parse_options(job_of(job_id).plan.options) == asked


def test_a_model_that_is_gone_fails_its_job(acme: Submitter) -> None:
    job_id = acme.create(("a.jsonl", PAGES[0]))
    job = job_of(job_id)
    job.plan.options = {"model": "gone"}
    job.plan.save(using="housekeeper")
    read_all(job_id)

    assert [error.code for error in acme.read(job_id).job.errors] == ["model_not_found"]


def test_shards_hold_every_text_once(acme: Submitter) -> None:
    job_id = acme.ingested(("a.jsonl", b"".join([*PAGES, jsonl(again="text 0 0")])))

    items = items_of(job_id)
    (shard_id,) = {item.source_id for item in items if item.source_id}
    shard = StoredFile.objects.using("housekeeper").get(id=shard_id)
    assert shard.size_bytes == sum(item.source_bytes for item in items)
    assert len({item.source_offset for item in items if item.source_id}) == 50


def staged_bytes_of(submitter: Submitter) -> int:
    """What its organization stores for its jobs alone."""
    staged = StoredFile.objects.using("housekeeper").filter(
        organization_id=submitter.tenant.organization_id, purpose="staged", deleted_at=None
    )
    return sum(staged.values_list("size_bytes", flat=True))


def test_what_jobs_stage_takes_room_from_uploads_but_is_no_file_of_their_owners(
    acme: Submitter, settings: Settings
) -> None:
    content = jsonl(a="text")
    acme.ingested(("a.jsonl", content))
    settings.FILES_MAX, settings.STORAGE_BYTES_MAX = 2, len(content) + len("text") + 10

    with pytest.raises(StorageFull, match="4 of them texts"):
        acme.upload(b"eleven more")
    acme.upload(b"ten bytes.")
    with pytest.raises(StorageFull, match="2 files"):
        acme.upload(b"")


def test_a_job_whose_texts_do_not_fit_fails_and_leaves_nothing(
    acme: Submitter, settings: Settings
) -> None:
    other_id = acme.ingested(("a.jsonl", jsonl(a="of another job")))
    content = b"".join(PAGES)
    job_id = acme.create(("b.jsonl", content), starts_itself=False)
    stored = len(jsonl(a="of another job")) + len("of another job") + len(content)
    settings.SUMMARY_PAGE_DOCUMENTS, settings.STORAGE_BYTES_MAX = 4, stored + 100
    read_all(job_id)

    shown = acme.read(job_id)
    assert (shown.job.state, shown.job.items_total, shown.job.charge_pico) == ("failed", 0, 0)
    (error,) = shown.job.errors
    assert error.code == "storage_quota_exceeded"
    assert error.message.startswith(f"Your organization may store {stored + 100} bytes")
    assert items_of(job_id) == []
    assert staged_bytes_of(acme) == len("of another job")
    assert job_of(other_id).state == "in_progress"

    settings.STORAGE_BYTES_MAX = stored + len(content) + 50 * len("text 0 0")
    assert job_of(acme.ingested(("b.jsonl", content))).state == "in_progress"


def test_a_job_far_over_the_organizations_tokens_is_not_read_to_its_end(
    acme: Submitter, settings: Settings
) -> None:
    settings.SUMMARY_PAGE_DOCUMENTS, settings.BATCH_ENQUEUED_TOKENS_MAX = 4, 100
    # What comes behind its first pages would fail it with another code.
    job_id = acme.ingested(("a.jsonl", PAGES[0]), ("bad.docx", zipped({"a.xml": b""})))

    assert [error.code for error in acme.read(job_id).job.errors] == ["token_limit_exceeded"]
    assert staged_bytes_of(acme) == 0
