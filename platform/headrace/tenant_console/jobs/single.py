"""`/console/<slug>/jobs/<id>`: how one job goes, why some of it failed, what can be done.

Failures and samples are read when their part of the page is asked for. Called by the console's
routes.
"""

from collections.abc import Callable
from http import HTTPStatus
from uuid import UUID

from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase

import batch_jobs.facade
import tenants.facade
from batch_jobs.contracts import (
    FileMissing,
    InputInvalid,
    JobStateWrong,
    JobView,
    Owner,
    TooMuchEnqueued,
)
from batch_jobs.facade import NewBounds
from headrace.console_kit import formats
from headrace.console_kit.pages import PageView
from headrace.console_kit.tables import Column, Row, Table
from headrace.tenant_console.console_keys import console_key
from headrace.tenant_console.jobs.downloads import downloads_of, has_failures
from headrace.tenant_console.jobs.forms import BoundsForm
from headrace.tenant_console.jobs.live import live_context
from headrace.tenant_console.jobs.showing import ENDED, name_of, prefixed_id
from headrace.tenant_console.jobs.steering import possible
from tenants.contracts import Permission, TenantConflict

SAMPLES_SHOWN = 3
ERRORS_SHOWN_MAX = 20
INPUTS_SHOWN_MAX = 3
OPTIONS = {
    "instruction": "Instruction",
    "length": "Length",
    "language": "Language",
    "style": "Style",
    "tokens_max": "Tokens of a summary, at most",
    "text_field": "Field of the text",
    "id_field": "Field of the id",
}


class JobPage(PageView):
    """One job of either kind."""

    page = "jobs"
    title = "Job"
    needs = Permission.JOBS_READ
    writes = Permission.JOBS_WRITE
    template = "tenant_console/jobs/job.html"

    def get(self, request: HttpRequest, slug: str, job_id: UUID) -> HttpResponse:
        """The job; `?part=failures` and `?part=samples` are parts of its page."""
        view = batch_jobs.facade.find_job(self.organization_id, job_id)
        match request.GET.get("part"):
            case "failures":
                return self._failures(view)
            case "samples":
                return self._samples(view)
        return self._page(view, self._bounds_form(view))

    def do_start(self, slug: str, job_id: UUID) -> HttpResponseBase:
        """Runs all documents of a job that is ready."""
        return self._steer(job_id, batch_jobs.facade.start_summary, "Started")

    def do_preview(self, slug: str, job_id: UUID) -> HttpResponseBase:
        """Runs three of them."""
        return self._steer(job_id, batch_jobs.facade.preview_summary, "Three documents are run")

    def do_pause(self, slug: str, job_id: UUID) -> HttpResponseBase:
        """Begins no more documents."""
        return self._steer(job_id, batch_jobs.facade.pause_summary, "Paused")

    def do_resume(self, slug: str, job_id: UUID) -> HttpResponseBase:
        """Goes on, by the console's key."""
        return self._steer(job_id, batch_jobs.facade.resume_summary, "Resumed", by_console=True)

    def do_retry(self, slug: str, job_id: UUID) -> HttpResponseBase:
        """Runs what has no summary again, by the console's key."""
        said = "What failed is run again"
        return self._steer(job_id, batch_jobs.facade.retry_summary, said, by_console=True)

    def do_cancel(self, slug: str, job_id: UUID) -> HttpResponseBase:
        """Ends it before its time."""
        view = batch_jobs.facade.find_job(self.organization_id, job_id)
        cancel: Callable[[Owner, UUID], object] = batch_jobs.facade.cancel_batch
        if view.summary is not None:
            cancel = batch_jobs.facade.cancel_summary
        return self._steer(job_id, cancel, "Cancelled; what is done stays")

    def do_delete(self, slug: str, job_id: UUID) -> HttpResponseBase:
        """Deletes what it made."""
        return self._steer(job_id, batch_jobs.facade.delete_results, "The results are deleted")

    def do_change(self, slug: str, job_id: UUID) -> HttpResponseBase:
        """Another budget or deadline."""
        view = batch_jobs.facade.find_job(self.organization_id, job_id)
        form = self._bounds_form(view, self.request.POST)
        if form.is_valid():
            names = {"budget": "budget_pico", "deadline_at": "deadline_at"}
            bounds = NewBounds(
                frozenset(names[name] for name in form.changed_data),
                form.cleaned_data["budget"],
                form.cleaned_data["deadline_at"],
            )
            try:
                batch_jobs.facade.change_bounds(self._owner(view), job_id, bounds)
            except InputInvalid as error:
                form.refuse_input(error)
            except JobStateWrong as error:
                return self.refused(str(error))
            else:
                return self.said("Changed")
        return self._page(view, form, HTTPStatus.UNPROCESSABLE_ENTITY)

    def _steer(
        self,
        job_id: UUID,
        action: Callable[[Owner, UUID], object],
        said: str,
        *,
        by_console: bool = False,
    ) -> HttpResponse:
        view = batch_jobs.facade.find_job(self.organization_id, job_id)
        try:
            action(self._owner(view, by_console=by_console), job_id)
        except (JobStateWrong, TooMuchEnqueued, TenantConflict) as error:
            return self.refused(str(error))
        return self.said(said)

    def _owner(self, view: JobView, *, by_console: bool = False) -> Owner:
        job = view.job
        key_id = console_key(self.actor, job.project_id) if by_console else job.key_id
        return Owner(self.organization_id, job.project_id, key_id)

    def _bounds_form(self, view: JobView, data: object = None) -> BoundsForm:
        initial = {"budget": view.job.budget_pico, "deadline_at": view.job.deadline_at}
        return BoundsForm(data, initial=initial, zone=self.zone, currency=self.currency)

    def _page(self, view: JobView, bounds: BoundsForm, status: int = HTTPStatus.OK) -> HttpResponse:
        job, summary = view.job, view.summary
        names = tenants.facade.key_names(self.actor, [job.key_id])
        file_ids = summary.input_file_ids if summary else (job.input_file_id,)
        inputs = [file_id for file_id in file_ids if file_id is not None]
        has_rows = summary is None or summary.results_deleted_at is None
        sees_texts = self.may(Permission.REQUESTS_READ)
        return self.show(
            status=status,
            title=name_of(job),
            **live_context(view, self.organization_id, self.currency),
            prefixed_id=prefixed_id(job),
            key_name=names.get(job.key_id),
            key_href=self.url("key", job.key_id),
            project=self._project_name(job.project_id),
            inputs=[self._input_name(view, file_id) for file_id in inputs[:INPUTS_SHOWN_MAX]],
            more_inputs=len(inputs[INPUTS_SHOWN_MAX:]),
            options=[(OPTIONS[name], job.options[name]) for name in OPTIONS if name in job.options],
            schema=job.options.get("schema"),
            metadata={name: text for name, text in job.metadata.items() if name != "name"},
            errors=self._errors(view),
            can=possible(view) if self.may(Permission.JOBS_WRITE) else None,
            bounds=bounds,
            bounds_is_open=status != HTTPStatus.OK,
            downloads=downloads_of(self, view) if sees_texts else [],
            download_note="" if job.state in ENDED else "what is done so far",
            has_samples=sees_texts and summary is not None and job.items_completed > 0 and has_rows,
            has_failures=has_rows and has_failures(view),
            follows=job.state not in ENDED,
            topic=f"job:{job.job_id}",
        )

    def _project_name(self, project_id: UUID) -> str:
        return tenants.facade.read_project(self.actor, project_id).name

    def _input_name(self, view: JobView, file_id: UUID) -> str:
        try:
            return batch_jobs.facade.read_file(self._owner(view), file_id).filename
        except FileMissing:
            return f"file-{file_id.hex}, deleted"

    def _errors(self, view: JobView) -> Table | None:
        if not view.job.errors:
            return None
        columns = [Column("Line", is_number=True), Column("Code"), Column("What is wrong")]
        rows = [
            Row([formats.UNKNOWN if one.line is None else one.line, one.code, one.message])
            for one in view.job.errors[:ERRORS_SHOWN_MAX]
        ]
        return Table("What is wrong with the input", columns, rows)

    def _failures(self, view: JobView) -> HttpResponse:
        report = batch_jobs.facade.failures_of(self.organization_id, view.job.job_id)
        reasons = Table(
            "Reasons",
            [Column("Reason"), Column("How many", is_number=True)],
            [Row([code, formats.count(number)]) for code, number in report.reasons],
            empty="What each line became is no longer kept here; the file of errors has it.",
        )
        first = Table(
            "The first of them",
            [
                Column("Id"),
                Column("Source", hides=True),
                Column("Line", is_number=True, hides=True),
                Column("Reason"),
                Column("Message"),
            ],
            [
                Row([one.custom_id, one.source or formats.UNKNOWN, one.line, one.code, one.message])
                for one in report.first
            ],
        )
        return self.show(
            "tenant_console/jobs/failures.html", reasons=reasons, first=first, report=report
        )

    def _samples(self, view: JobView) -> HttpResponse:
        self.actor.require(Permission.REQUESTS_READ)
        samples = batch_jobs.facade.sample_documents(
            self.organization_id, view.job.job_id, SAMPLES_SHOWN
        )
        return self.show("tenant_console/jobs/samples.html", samples=samples)
