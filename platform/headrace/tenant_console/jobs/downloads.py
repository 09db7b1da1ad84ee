"""What a job made, as files: results and failures of summaries, the files of a batch.

The very files that the API answers with, streamed as they are read. They hold texts, so they are
for those who may read requests. Called by the console's routes and by the page of a job.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar
from uuid import UUID

from django.http import HttpRequest
from django.http.response import HttpResponseBase

import batch_jobs.facade
from batch_jobs.contracts import BulkJobInfo, JobNotFound, JobView, Owner
from headrace.console_kit.pages import PageView
from headrace.management_api.bulk.files import content_answer
from headrace.management_api.bulk.summary_results import failures_answer, results_answer
from headrace.tenant_console.jobs.showing import ENDED
from tenants.contracts import Permission

SHARDS_SHOWN_MAX = 100


@dataclass(frozen=True, slots=True)
class Download:
    """A file to be had."""

    label: str
    href: str


class _DownloadView(PageView):
    page = "jobs"
    title = "Download"
    needs = Permission.REQUESTS_READ

    def job(self, job_id: UUID) -> BulkJobInfo:
        """Raises JobNotFound."""
        return batch_jobs.facade.find_job(self.organization_id, job_id).job

    def owner_of(self, job: BulkJobInfo) -> Owner:
        """Its project, by its own key."""
        return Owner(self.organization_id, job.project_id, job.key_id)


class ResultsDownload(_DownloadView):
    """`?format=jsonl|csv|parquet`, `&shard=`: a row for each document."""

    def get(self, request: HttpRequest, slug: str, job_id: UUID) -> HttpResponseBase:
        """The file, so far."""
        owner = self.owner_of(self.job(job_id))
        return results_answer(owner, job_id, request.GET.dict())


class FailuresDownload(_DownloadView):
    """`?format=jsonl|csv`: a row for each document without a summary."""

    def get(self, request: HttpRequest, slug: str, job_id: UUID) -> HttpResponseBase:
        """The file, so far."""
        owner = self.owner_of(self.job(job_id))
        return failures_answer(owner, job_id, request.GET.dict())


class BatchFileDownload(_DownloadView):
    """The input, output or error file of a batch."""

    names: ClassVar[Mapping[str, str]] = {
        "input": "input_file_id",
        "output": "output_file_id",
        "errors": "error_file_id",
    }

    def get(self, request: HttpRequest, slug: str, job_id: UUID, which: str) -> HttpResponseBase:
        """The file; ranges too."""
        job = self.job(job_id)
        file_id: UUID | None = getattr(job, self.names[which]) if which in self.names else None
        if file_id is None:
            raise JobNotFound(f"{job_id} has no such file")
        return content_answer(self.owner_of(job), file_id, request)


def downloads_of(page: PageView, view: JobView) -> list[Download]:
    """What there is of a job."""
    job, summary = view.job, view.summary
    if summary is None:
        labels = {"output": "Output", "errors": "Errors", "input": "Input"}
        return [
            Download(label, page.url("job-file", job.job_id, which))
            for which, label in labels.items()
            if getattr(job, BatchFileDownload.names[which]) is not None
        ]
    if summary.results_deleted_at is not None or not (job.items_completed + job.items_failed):
        return []
    found = [
        Download("JSON lines", page.url("job-results", job.job_id, format="jsonl")),
        Download("CSV", page.url("job-results", job.job_id, format="csv")),
    ]
    shards = min(summary.results_shards, SHARDS_SHOWN_MAX)
    for shard in range(shards):
        label = "Parquet" if summary.results_shards == 1 else f"Parquet {shard + 1}"
        href = page.url("job-results", job.job_id, format="parquet", shard=shard)
        found.append(Download(label, href))
    if has_failures(view):
        found.append(Download("Failures", page.url("job-failures", job.job_id, format="csv")))
    return found


def has_failures(view: JobView) -> bool:
    """Whether anything of it has failed, or was left when it ended."""
    job = view.job
    return bool(job.items_failed) or (job.state in ENDED and job.items_completed < job.items_total)
