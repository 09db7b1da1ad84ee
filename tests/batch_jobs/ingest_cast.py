"""The cast of ingestion: a project that hands over documents, and a tender that works by hand."""

import io
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from batch_jobs import facade, ports
from batch_jobs.contracts import Owner, SummaryInfo
from batch_jobs.facade import SummaryOrder
from batch_jobs.files.reading import Span, read_spans
from batch_jobs.job_leases import LeasedJob
from batch_jobs.models import BulkItem, BulkJob
from batch_jobs.ports import ModelTerms
from batch_jobs.summaries.ingesting import ingest_some
from tests.batch_jobs.cast import Tenant, make_tenant

MODEL = "small"


@dataclass
class Counting:
    """The part of the pipeline that ingestion asks: two models for sale, a word is a token."""

    context_tokens_max: int = 8192
    counted: list[str] = field(default_factory=list)

    def terms(self, organization_id: UUID, project_id: UUID, model: str) -> ModelTerms | None:
        """`small`, which `alias` stands for, too."""
        if model not in (MODEL, "alias"):
            return None
        return ModelTerms(MODEL, self.context_tokens_max, 4096, "USD", 3, 1, 5, 6, 2, 10)

    def refusal(self, endpoint: str, body: dict[str, Any]) -> str | None:
        """Whatever asks for something deep."""
        return "is too deep" if "deep" in str(body["response_format"]) else None

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Words."""
        self.counted.extend(texts)
        return [len(text.split()) for text in texts]


@contextmanager
def counting(context_tokens_max: int = 8192) -> Iterator[Counting]:
    """The house's pipeline is this one while the block runs."""
    real = ports._pipeline_port
    port = Counting(context_tokens_max)
    ports.provide_pipeline_port(port)  # type: ignore[arg-type]  # all that ingestion asks
    yield port
    ports._pipeline_port = real


@dataclass(frozen=True)
class Submitter:
    """A project that has documents summarised."""

    tenant: Tenant

    @property
    def owner(self) -> Owner:
        """On whose behalf files and jobs are made."""
        return Owner(self.tenant.organization_id, self.tenant.project_id, self.tenant.key_id)

    def upload(self, content: bytes, filename: str = "docs.jsonl") -> UUID:
        """The id of a file with this content."""
        stored = facade.store_upload(self.owner, "user_data", filename, io.BytesIO(content), None)
        return stored.file_id

    def create(self, *files: tuple[str, bytes], starts_itself: bool = True, **options: Any) -> UUID:
        """A job that nobody has begun to read, over files of these names and contents."""
        order = SummaryOrder(
            input_file_ids=[self.upload(content, filename) for filename, content in files],
            options={"model": MODEL} | options,
            starts_itself=starts_itself,
        )
        return facade.create_summary(self.owner, order).job.job_id

    def ingested(self, *files: tuple[str, bytes], **more: Any) -> UUID:
        """A job whose input is read to its end."""
        job_id = self.create(*files, **more)
        read_all(job_id)
        return job_id

    def read(self, job_id: UUID) -> SummaryInfo:
        """The job as its owner sees it."""
        return facade.read_summary(self.owner, job_id)


def make_submitter(name: str) -> Submitter:
    """A fresh organization."""
    return Submitter(make_tenant(name))


def jsonl(**texts: str) -> bytes:
    """JSON lines of ids and texts."""
    return b"".join(
        json.dumps({"id": name, "text": text}).encode() + b"\n" for name, text in texts.items()
    )


def lease(job_id: UUID) -> LeasedJob:
    """The job, taken over from whoever tends it."""
    row = BulkJob.objects.using("housekeeper").get(id=job_id)
    row.tend_token += 1
    row.save(update_fields=["tend_token"])
    return LeasedJob(
        *(row.id, row.organization_id, row.project_id, row.key_id),
        *(row.kind, row.state, row.tend_token, False),
    )


def read_all(job_id: UUID) -> None:
    """Reads the job's input to its end."""
    while ingest_some(lease(job_id), datetime.now(UTC)):
        pass


def job_of(job_id: UUID) -> BulkJob:
    """The row."""
    return BulkJob.objects.using("housekeeper").select_related("plan").get(id=job_id)


def items_of(job_id: UUID) -> list[BulkItem]:
    """The rows of all that is computed or shared, in their order."""
    return list(BulkItem.objects.using("housekeeper").filter(job_id=job_id).order_by("id"))


def states_of(job_id: UUID) -> dict[str | None, str]:
    """What became of each document."""
    return {item.custom_id: item.error_code or item.state for item in items_of(job_id)}


def text_of(item: BulkItem) -> str:
    """What a worker would read for the item."""
    assert item.source_id is not None
    span = Span(item.organization_id, item.source_id, item.source_offset, item.source_bytes)
    return read_spans([span])[0].decode()
