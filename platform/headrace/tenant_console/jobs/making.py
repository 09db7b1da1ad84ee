"""`/console/<slug>/jobs/new-summary` and `new-batch`: a job out of files that were uploaded.

Summaries wait for their start: they are read first, then show an estimate. Files come in through
`uploading`; the forms name them by id. Called by the console's routes.
"""

from abc import abstractmethod
from collections.abc import Sequence
from functools import cached_property
from http import HTTPStatus
from typing import ClassVar
from uuid import UUID

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase

import batch_jobs.facade
import billing.facade
from batch_jobs.contracts import (
    FileInfo,
    FileMissing,
    InputInvalid,
    ModelUnknown,
    Owner,
    TooMuchEnqueued,
)
from batch_jobs.facade import SummaryOrder
from billing.contracts import ServiceTier
from headrace.console_kit.pages import PageView
from headrace.management_api.bulk.shapes import EXPIRES_S_MAX
from headrace.tenant_console.console_keys import console_key
from headrace.tenant_console.jobs.forms import BatchForm, JobForm, SummaryForm
from headrace.tenant_console.jobs.showing import NAME_FIELD
from tenants.contracts import Permission, ProjectInfo, TenantConflict

FILES_OFFERED_MAX = 50
DAY_S = 24 * 3600
LIFE_S = min(settings.FILE_LIFE_S, EXPIRES_S_MAX)
"""How long what is uploaded here is kept."""
MADE_BY_JOBS = "batch_output"
"""The purpose of files that nobody makes a job of."""


class _MakingPage(PageView):
    page = "jobs"
    needs = writes = Permission.JOBS_WRITE
    template = "tenant_console/jobs/new.html"
    purpose: ClassVar[str]
    accepts: ClassVar[str]
    bytes_max: ClassVar[int]

    def get(self, request: HttpRequest, slug: str) -> HttpResponse:
        """The form, empty."""
        return self._page(self.form())

    def do_create(self, slug: str) -> HttpResponseBase:
        """Makes the job and shows it; says beside a field why it cannot be."""
        form = self.form(self.request.POST)
        if form.is_valid() and self.target is not None:
            try:
                job_id = self.make(form)
            except InputInvalid as error:
                form.refuse_input(error)
            except ModelUnknown:
                form.add_error("model", "This model is not for sale at the batch price.")
            except (FileMissing, TooMuchEnqueued, TenantConflict) as error:
                form.add_error(None, str(error))
            else:
                return self.go(self.url("job", job_id))
        return self._page(form, HTTPStatus.UNPROCESSABLE_ENTITY)

    @abstractmethod
    def form(self, data: object = None) -> JobForm:
        """What is asked."""

    @abstractmethod
    def make(self, form: JobForm) -> UUID:
        """The job's id; raises what the facade raises."""

    @cached_property
    def target(self) -> ProjectInfo | None:
        """The project that the job will be of: the one asked for, else the oldest."""
        return self.project or (self.projects[-1] if self.projects else None)

    @property
    def owner(self) -> Owner:
        """On whose behalf files are taken and jobs run."""
        assert self.target is not None, "without a project there is no form"
        project_id = self.target.project_id
        return Owner(self.organization_id, project_id, console_key(self.actor, project_id))

    @cached_property
    def files(self) -> Sequence[FileInfo]:
        """What the project has uploaded lately."""
        if self.target is None:
            return ()
        owner = Owner(self.organization_id, self.target.project_id, UUID(int=0))
        found = batch_jobs.facade.list_files(owner, rows_max=settings.SUMMARY_INPUT_FILES_MAX)
        return [one for one in found if self.takes(one.purpose)]

    def takes(self, purpose: str) -> bool:
        """Whether a job may be made of such a file."""
        return purpose != MADE_BY_JOBS

    def _page(self, form: JobForm, status: int = HTTPStatus.OK) -> HttpResponse:
        chosen = set(self.request.POST.getlist("file_ids"))
        return self.show(
            status=status,
            form=form,
            target=self.target,
            files=self.files[:FILES_OFFERED_MAX],
            chosen=[one for one in self.files if str(one.file_id) in chosen],
            purpose=self.purpose,
            accepts=self.accepts,
            bytes_max=self.bytes_max,
            life_s=LIFE_S,
            life_days=LIFE_S // DAY_S,
            upload_href=self.url("job-upload", project=self.target and self.target.project_id),
            back=self.url("jobs", project=self.project and self.project.project_id),
        )


class NewSummaryPage(_MakingPage):
    """Summaries of documents."""

    title = "New summaries"
    purpose = "user_data"
    accepts = ".jsonl,.csv,.tsv,.parquet,.zip,.txt,.md,.html,.htm,.pdf"
    bytes_max = settings.FILE_BYTES_MAX

    def form(self, data: object = None) -> SummaryForm:
        """With the models that are for sale at the batch price."""
        models: list[str] = []
        if self.target is not None:
            sold = billing.facade.models_for_sale(
                self.organization_id, self.target.project_id, ServiceTier.BATCH
            )
            models = [name for name, _ in sold]
        return SummaryForm(data, models=models, zone=self.zone, currency=self.currency)

    def make(self, form: JobForm) -> UUID:
        """One that waits to be started."""
        asked = form.cleaned_data
        order = SummaryOrder(
            input_file_ids=asked["file_ids"],
            options=SummaryForm.options_of(asked),
            budget_pico=asked["budget"],
            deadline_at=asked["deadline_at"],
            starts_itself=False,
            metadata=_named(asked["name"]),
        )
        return batch_jobs.facade.create_summary(self.owner, order).job.job_id


class NewBatchPage(_MakingPage):
    """Requests, a line each."""

    title = "New batch"
    purpose = "batch"
    accepts = ".jsonl"
    bytes_max = settings.BATCH_FILE_BYTES_MAX

    def takes(self, purpose: str) -> bool:
        """Files that were uploaded for this."""
        return purpose == self.purpose

    def form(self, data: object = None) -> BatchForm:
        """What a batch needs."""
        return BatchForm(data)

    def make(self, form: JobForm) -> UUID:
        """One that runs as soon as it is read."""
        asked = form.cleaned_data
        if len(asked["file_ids"]) > 1:
            raise InputInvalid("file_ids: a batch has one file")
        job = batch_jobs.facade.create_batch(
            self.owner,
            input_file_id=asked["file_ids"][0],
            endpoint=asked["endpoint"],
            metadata=_named(asked["name"]),
            output_expires_s=None,
        )
        return job.job_id


def _named(name: str) -> dict[str, str]:
    return {NAME_FIELD: name} if name else {}
