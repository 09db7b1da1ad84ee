"""`manage.py summarize`, with the pump run beside it instead of a worker."""

import io
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import UUID, uuid4

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import connections

from batch_jobs.facade import read_job
from batch_jobs.ports import BatchCompletionResult
from batch_jobs.old_pump import PumpLimits, pump
from billing import facade as billing
from billing.contracts import ServiceTier
from tests.batch_jobs.cast import ScriptedPort, Tenant
from tests.house import wait_until

MODEL = "summarizer"
LIMITS = PumpLimits(
    items_max=8,
    lease_s=60,
    lease_renewals_max=10,
    attempts_max=3,
    retry_s=0,
    job_age_max_s=3600,
    summary_tokens_max=96,
)


@pytest.fixture(autouse=True)
def model_for_sale(queue: None) -> None:
    """One model of these tests' own, at batch price."""
    billing.publish_offer(MODEL, MODEL, "headrace", 1000, 1000)
    for token_class in ("input", "output"):
        billing.set_price(MODEL, ServiceTier.BATCH, token_class, 1)


@pytest.fixture
def two_texts(tmp_path: Path) -> Path:
    """An input of two documents."""
    file = tmp_path / "texts.jsonl"
    file.write_text('{"id": "a", "text": "one"}\n{"id": "b", "text": "two"}\n')
    return file


@contextmanager
def pumped(port: ScriptedPort) -> Iterator[None]:
    """Pumps in a thread, as a worker would, until the block ends."""
    ended = threading.Event()

    def run() -> None:
        try:
            while not ended.wait(0.02):
                pump(port, LIMITS)
        finally:
            connections.close_all()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def summarize(*arguments: str) -> str:
    """What the command prints; its progress goes to standard error."""
    out = io.StringIO()
    call_command("summarize", *arguments, "--model", MODEL, stdout=out, stderr=io.StringIO())
    return out.getvalue()


def test_prints_each_summary_its_tokens_and_the_charge(acme: Tenant, two_texts: Path) -> None:
    with pumped(ScriptedPort()):
        output = summarize(str(two_texts), "--key", acme.secret, "--timeout-s", "30")

    assert output.splitlines() == [
        "a (10 + 3 tokens, 4 cached, 0.000000000007 USD):",
        "  summary of one",
        "b (10 + 3 tokens, 4 cached, 0.000000000007 USD):",
        "  summary of two",
        "2 of 2 summarised, 26 tokens, charged 0.000000000014 USD",
    ]


def test_a_failed_document_is_named_and_fails_the_command(acme: Tenant, two_texts: Path) -> None:
    refusal = BatchCompletionResult(uuid4(), 0, "insufficient_quota", "You are out of credit.")
    out = io.StringIO()

    with (
        pumped(ScriptedPort(results={"two": [refusal]})),
        pytest.raises(CommandError, match="1 of 2 documents failed"),
    ):
        call_command(
            *("summarize", str(two_texts), "--key", acme.secret, "--model", MODEL),
            stdout=out,
            stderr=out,
        )

    assert "b: FAILED insufficient_quota: You are out of credit." in out.getvalue()


def test_a_job_that_takes_too_long_goes_on_without_the_command(
    acme: Tenant, two_texts: Path
) -> None:
    with pytest.raises(CommandError, match="goes on without us"):
        summarize(str(two_texts), "--key", acme.secret, "--timeout-s", "0")


def test_no_wait_prints_the_job_only(acme: Tenant, two_texts: Path) -> None:
    job_id = UUID(summarize(str(two_texts), "--key", acme.secret, "--no-wait").strip())

    job = read_job(acme.organization_id, job_id)
    assert (job.state, job.items_total) == ("queued", 2)


def test_a_job_is_read_back_by_its_id(acme: Tenant, two_texts: Path) -> None:
    job_id = summarize(str(two_texts), "--key", acme.secret, "--no-wait").strip()
    queued = summarize("--job", job_id, "--key", acme.secret)
    with pumped(ScriptedPort()):
        wait_until(lambda: read_job(acme.organization_id, UUID(job_id)).state == "completed")
    completed = summarize("--job", job_id, "--key", acme.secret)

    assert queued.splitlines() == [
        f"job {job_id}: queued",
        "0 of 2 summarised, 0 tokens, charged 0 USD",
    ]
    assert completed.splitlines()[0] == f"job {job_id}: completed"
    assert "  summary of two" in completed.splitlines()


def test_a_job_of_another_tenant_is_not_found(
    acme: Tenant, globex: Tenant, two_texts: Path
) -> None:
    job_id = summarize(str(two_texts), "--key", acme.secret, "--no-wait").strip()

    with pytest.raises(CommandError, match="has no such job"):
        summarize("--job", job_id, "--key", globex.secret)


def test_a_model_that_is_not_for_sale_queues_nothing(acme: Tenant, two_texts: Path) -> None:
    stderr = io.StringIO()

    with pytest.raises(CommandError, match="no model 'nope' is for sale to acme"):
        call_command(
            *("summarize", str(two_texts), "--key", acme.secret, "--model", "nope"), stderr=stderr
        )

    assert "queued" not in stderr.getvalue()


def test_a_line_that_is_no_document_is_named_and_nothing_queued(
    acme: Tenant, tmp_path: Path
) -> None:
    file = tmp_path / "bad.jsonl"
    file.write_text('{"id": "a", "text": "one"}\nnonsense\n')

    with pytest.raises(CommandError, match="line 2: not JSON"):
        summarize(str(file), "--key", acme.secret)


@pytest.mark.parametrize("key", ["nonsense", "hr-" + "A" * 49])
def test_a_key_that_is_refused_queues_nothing(acme: Tenant, two_texts: Path, key: str) -> None:
    with pytest.raises(CommandError, match="API key was refused"):
        summarize(str(two_texts), "--key", key)


def test_without_demo_data_a_key_has_to_be_given(acme: Tenant, two_texts: Path) -> None:
    with pytest.raises(CommandError, match="give an API key with --key"):
        summarize(str(two_texts))


def test_a_file_that_is_not_there_is_named(acme: Tenant, tmp_path: Path) -> None:
    with pytest.raises(CommandError, match=r"missing\.jsonl: No such file or directory$"):
        summarize(str(tmp_path / "missing.jsonl"), "--key", acme.secret)
