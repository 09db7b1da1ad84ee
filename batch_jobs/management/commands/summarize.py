"""`manage.py summarize FILE.jsonl`: summarise documents in bulk, at batch price.

Queues a job for the Celery worker under a tenant's API key, follows it, and prints summaries,
tokens and the charge; `--job ID` prints those of a job queued before. It computes nothing itself
and has no rights beyond the key's.
"""

import json
import sys
import time
from argparse import ArgumentParser
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO
from uuid import UUID

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from batch_jobs import facade
from batch_jobs.contracts import InputInvalid, JobNotFound, SummaryItem, SummaryJob
from batch_jobs.old_summaries import InputLimits, decimal_text, read_documents
from batch_jobs.ports import completion_port
from tenants.contracts import KeyIdentity, TenantError
from tenants.facade import authenticate

POLL_S = 0.5
TIMEOUT_DEFAULT_S = 3600
ENDED = ("done", "failed")


class Command(BaseCommand):
    """Exits with an error when the input is invalid, an item failed, or the wait timed out."""

    help = "Summarise the documents of a JSONL file through the worker, at batch price."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """One JSON object a line: {"id": "a name of yours", "text": "what to summarise"}."""
        source = parser.add_mutually_exclusive_group(required=True)
        source.add_argument(
            "file", nargs="?", help='JSON lines of {"id", "text"}; - reads standard input'
        )
        source.add_argument("--job", type=UUID, help="print what became of this job, queue none")
        owner = parser.add_mutually_exclusive_group()
        owner.add_argument("--tenant", default="acme", help="a tenant of the demo data (acme)")
        owner.add_argument("--key", help="an API key, instead of a demo tenant's")
        parser.add_argument("--model", default=settings.SUMMARY_MODEL, help="the model to ask")
        parser.add_argument("--no-wait", dest="wait", action="store_false", help="only queue it")
        parser.add_argument(
            "--timeout-s", type=float, default=TIMEOUT_DEFAULT_S, help="how long to wait for it"
        )

    def handle(self, *_: Any, **options: Any) -> None:
        """Queue, follow, print."""
        identity = _identity(options["key"] or _demo_key(options["tenant"]))
        if options["job"] is not None:
            job = _read(identity, options["job"])
            self.stdout.write(f"job {job.job_id}: {job.state}")
            self._print(job, identity.currency)
            return
        job = _create(identity, options["file"], options["model"])
        self.stderr.write(f"job {job.job_id}: {job.items_total} documents queued")
        if not options["wait"]:
            self.stdout.write(str(job.job_id))
            return
        self._print(self._follow(job, options["timeout_s"]), identity.currency)

    def _print(self, job: SummaryJob, currency: str) -> None:
        """Each document that has ended, then the sums; CommandError when one failed."""
        tokens = 0
        for item in facade.read_items(job.organization_id, job.job_id):
            if item.state not in ENDED:
                continue
            tokens += item.prompt_tokens + item.completion_tokens
            self.stdout.write(_lines_of(item, currency))
        self.stdout.write(
            f"{job.items_completed} of {job.items_total} summarised, {tokens} tokens,"
            f" charged {decimal_text(job.charge_pico)} {currency}"
        )
        if job.items_failed:
            raise CommandError(f"{job.items_failed} of {job.items_total} documents failed")

    def _follow(self, job: SummaryJob, timeout_s: float) -> SummaryJob:
        """The completed job; says how far it is whenever that changes."""
        deadline = time.monotonic() + timeout_s
        told = -1
        while True:
            job = facade.read_job(job.organization_id, job.job_id)
            ended = job.items_completed + job.items_failed
            if ended != told:
                told = ended
                self.stderr.write(f"{ended} of {job.items_total} done ({job.state})")
            if job.state == "completed":
                return job
            if time.monotonic() > deadline:
                raise CommandError(
                    f"job {job.job_id} is not done after {timeout_s:g} s; it goes on without us"
                    " (is a worker running?)"
                )
            time.sleep(POLL_S)


def _identity(secret: str) -> KeyIdentity:
    try:
        return authenticate(secret)
    except TenantError as error:
        raise CommandError(f"the API key was refused: {error}") from error


def _demo_key(tenant: str) -> str:
    file = Path(settings.DATA_FOLDER) / "demo.json"
    try:
        secret = json.loads(file.read_text())["keys"][tenant]
    except FileNotFoundError as error:
        raise CommandError(f"no {file}: give an API key with --key") from error
    except (ValueError, KeyError, TypeError) as error:
        raise CommandError(f"{file} has no key of {tenant!r}: give one with --key") from error
    if not isinstance(secret, str):
        raise CommandError(f"{file} has no key of {tenant!r}: give one with --key")
    return secret


def _read(identity: KeyIdentity, job_id: UUID) -> SummaryJob:
    try:
        return facade.read_job(identity.organization_id, job_id)
    except JobNotFound as error:
        raise CommandError(f"{identity.organization_slug} has no such job: {job_id}") from error


def _create(identity: KeyIdentity, file: str, model: str) -> SummaryJob:
    if not completion_port().knows_model(identity.organization_id, identity.project_id, model):
        raise CommandError(
            f"no model {model!r} is for sale to {identity.organization_slug} at batch price"
        )
    limits = InputLimits(
        documents_max=settings.BATCH_DOCUMENTS_MAX,
        document_bytes_max=settings.BATCH_DOCUMENT_BYTES_MAX,
        file_bytes_max=settings.BATCH_FILE_BYTES_MAX,
    )
    try:
        with _opened(file) as stream:
            return facade.create_summary_job(
                identity.organization_id,
                identity.project_id,
                identity.key_id,
                ((each.custom_id, each.text) for each in read_documents(stream, limits)),
                model=model,
                documents_max=limits.documents_max,
            )
    except InputInvalid as error:
        raise CommandError(f"{file}: {error}") from error
    except OSError as error:
        raise CommandError(f"{file}: {error.strerror or error}") from error


@contextmanager
def _opened(file: str) -> Iterator[BinaryIO]:
    if file == "-":
        yield sys.stdin.buffer
        return
    with Path(file).open("rb") as stream:
        yield stream


def _lines_of(item: SummaryItem, currency: str) -> str:
    if item.state == "failed":
        return f"{item.custom_id}: FAILED {item.error_code}: {item.error_message}"
    cost = f"{decimal_text(item.charge_pico)} {currency}"
    tokens = f"{item.prompt_tokens} + {item.completion_tokens} tokens"
    return f"{item.custom_id} ({tokens}, {item.cached_tokens} cached, {cost}):\n  {item.summary}"
