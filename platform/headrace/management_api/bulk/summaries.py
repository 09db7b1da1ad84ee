"""`/api/v1/summaries`: many documents of a project summarised at the batch price.

Called by a project's key; another project's jobs are 404 like those that never were. Reads no
document: that is a worker's. Results are in `summary_results`, the socket in `progress_socket`.
"""

from typing import Any
from uuid import UUID

from django.conf import settings
from django.http import Http404
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

import batch_jobs.facade
from batch_jobs.contracts import SummaryInfo
from batch_jobs.facade import NewBounds, SummaryOrder
from headrace.management_api.authentication import calling_identity
from headrace.management_api.base import ProjectKeyView
from headrace.management_api.bodies import Body
from headrace.management_api.bulk.shapes import file_id_of, parse_id
from headrace.management_api.bulk.summary_shapes import (
    OPTIONS,
    PREFIX,
    BoundsBody,
    SummaryBody,
    SummaryShown,
    shown,
)
from headrace.management_api.idempotent import idempotent_if_keyed
from headrace.management_api.paging import asked_page, page_body, page_shown
from tenants.contracts import KeyScope


class SummaryJobView(ProjectKeyView):
    """Base of the views of jobs."""

    needs = KeyScope.BATCHES

    def job_id(self, summary_id: str) -> UUID:
        """The id in a path; raises Http404 for what is none."""
        try:
            return parse_id(PREFIX, summary_id)
        except ValueError:
            raise Http404 from None

    def shown(self, info: SummaryInfo) -> dict[str, Any]:
        """A job as JSON."""
        return shown(info, calling_identity(self.request).currency)


class SummariesView(SummaryJobView):
    """A project's summarisation jobs."""

    @extend_schema(responses=page_shown(SummaryShown, serializers.CharField))
    def get(self, request: Request) -> Response:
        """Newest first."""
        page = asked_page(request, parse_id=lambda text: parse_id(PREFIX, text))
        rows = batch_jobs.facade.list_summaries(
            self.owner, rows_max=page.rows_max, after=page.after, ascending=page.ascending
        )
        return Response(page_body(rows, page, self.shown))

    @extend_schema(request=SummaryBody, responses={201: SummaryShown})
    @idempotent_if_keyed
    def post(self, request: Request) -> Response:
        """Make one. Its documents are read first; unless `start` is false they run then."""
        body = self.body(SummaryBody)
        order = SummaryOrder(
            input_file_ids=[file_id_of(one) for one in body["input_file_ids"]],
            options={"model": settings.SUMMARY_MODEL}
            | {name: body[name] for name in OPTIONS if name in body},
            budget_pico=body.get("budget"),
            deadline_at=body.get("deadline_at"),
            starts_itself=body["start"],
            metadata=body.get("metadata") or {},
        )
        info = batch_jobs.facade.create_summary(self.owner, order)
        return Response(self.shown(info), status=201)


class SummaryView(SummaryJobView):
    """One summarisation job."""

    @extend_schema(responses=SummaryShown)
    def get(self, request: Request, summary_id: str) -> Response:
        """How it is now: what is done, what it cost, how fast it goes."""
        job_id = self.job_id(summary_id)
        return Response(self.shown(batch_jobs.facade.read_summary(self.owner, job_id)))

    @extend_schema(request=BoundsBody, responses=SummaryShown)
    def patch(self, request: Request, summary_id: str) -> Response:
        """Another budget or deadline. A budget with room again resumes a job that had used up its
        own."""
        job_id = self.job_id(summary_id)
        body = self.body(BoundsBody, partial=True)
        names = {"budget": "budget_pico", "deadline_at": "deadline_at"}
        bounds = NewBounds(
            changed=frozenset(names[name] for name in body),
            budget_pico=body.get("budget"),
            deadline_at=body.get("deadline_at"),
        )
        return Response(self.shown(batch_jobs.facade.change_bounds(self.owner, job_id, bounds)))

    @extend_schema(responses=SummaryShown)
    def delete(self, request: Request, summary_id: str) -> Response:
        """Delete the results of a job that has ended. Its totals stay."""
        job_id = self.job_id(summary_id)
        return Response(self.shown(batch_jobs.facade.delete_results(self.owner, job_id)))


class SummaryStartView(SummaryJobView):
    """The start of a job that was to wait for it."""

    @extend_schema(request=None, responses=SummaryShown)
    def post(self, request: Request, summary_id: str) -> Response:
        """Run all its documents."""
        self.body(Body)
        job_id = self.job_id(summary_id)
        return Response(self.shown(batch_jobs.facade.start_summary(self.owner, job_id)))


class SummaryPreviewView(SummaryJobView):
    """A look at what a job will make."""

    @extend_schema(request=None, responses=SummaryShown)
    def post(self, request: Request, summary_id: str) -> Response:
        """Run three of its documents; then it is ready again."""
        self.body(Body)
        job_id = self.job_id(summary_id)
        return Response(self.shown(batch_jobs.facade.preview_summary(self.owner, job_id)))


class SummaryPauseView(SummaryJobView):
    """A stop for a while."""

    @extend_schema(request=None, responses=SummaryShown)
    def post(self, request: Request, summary_id: str) -> Response:
        """Begin no more documents; those under way end."""
        self.body(Body)
        job_id = self.job_id(summary_id)
        return Response(self.shown(batch_jobs.facade.pause_summary(self.owner, job_id)))


class SummaryResumeView(SummaryJobView):
    """The end of a stop."""

    @extend_schema(request=None, responses=SummaryShown)
    def post(self, request: Request, summary_id: str) -> Response:
        """Go on; 409 while its budget is used up."""
        self.body(Body)
        job_id = self.job_id(summary_id)
        return Response(self.shown(batch_jobs.facade.resume_summary(self.owner, job_id)))


class SummaryCancelView(SummaryJobView):
    """The end of a job before its time."""

    @extend_schema(request=None, responses=SummaryShown)
    def post(self, request: Request, summary_id: str) -> Response:
        """Ask for it; documents that are done stay, and are paid for."""
        self.body(Body)
        job_id = self.job_id(summary_id)
        return Response(self.shown(batch_jobs.facade.cancel_summary(self.owner, job_id)))


class SummaryRetryView(SummaryJobView):
    """Another try."""

    @extend_schema(request=None, responses=SummaryShown)
    def post(self, request: Request, summary_id: str) -> Response:
        """Run again, in the same job, what has no summary; what is done is kept."""
        self.body(Body)
        job_id = self.job_id(summary_id)
        return Response(self.shown(batch_jobs.facade.retry_summary(self.owner, job_id)))
