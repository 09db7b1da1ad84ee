"""OpenAI's `/v1/batches`: many requests in a file, answered within a day at the batch price.

Called by a project's key; another project's batches are 404 like those that never were. Reads no
file: that is a worker's.
"""

from typing import Any
from uuid import UUID

from django.http import Http404
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

import batch_jobs.facade
from batch_jobs.contracts import BulkJobInfo
from headrace.management_api.base import ProjectKeyView
from headrace.management_api.bodies import Body
from headrace.management_api.bulk.shapes import (
    ExpiresAfterBody,
    MetadataField,
    file_id_of,
    file_id_shown,
    parse_id,
)
from headrace.management_api.idempotent import idempotent_if_keyed
from headrace.management_api.openai.lists import seconds
from headrace.management_api.paging import asked_page, page_body, page_shown
from headrace.telemetry import metrics
from tenants.contracts import KeyScope

PREFIX = "batch_"
ENDPOINTS = ("/v1/chat/completions", "/v1/completions", "/v1/embeddings")
WINDOW = "24h"


class BatchBody(Body):
    """What a batch is made of."""

    input_file_id = serializers.CharField(max_length=128)
    endpoint = serializers.ChoiceField(ENDPOINTS)
    completion_window = serializers.ChoiceField([WINDOW])
    metadata = MetadataField(required=False, allow_null=True)
    output_expires_after = ExpiresAfterBody(required=False, allow_null=True)


class BatchErrorShown(serializers.Serializer[Any]):
    """What is wrong with the input; `line` counts from 1."""

    code = serializers.CharField()
    message = serializers.CharField()
    param = serializers.CharField(allow_null=True)
    line = serializers.IntegerField(allow_null=True)


class BatchErrorsShown(serializers.Serializer[Any]):
    """The first thousand; where there are more, `error_file_id` names a file of them all."""

    object = serializers.CharField()
    data = BatchErrorShown(many=True)  # type: ignore[assignment]  # a field; DRF takes it away


class RequestCountsShown(serializers.Serializer[Any]):
    """Lines; those that were never computed are neither completed nor failed."""

    total = serializers.IntegerField()
    completed = serializers.IntegerField()
    failed = serializers.IntegerField()


class InputDetailsShown(serializers.Serializer[Any]):
    """Of the input tokens."""

    cached_tokens = serializers.IntegerField()


class OutputDetailsShown(serializers.Serializer[Any]):
    """Of the output tokens."""

    reasoning_tokens = serializers.IntegerField()


class BatchUsageShown(serializers.Serializer[Any]):
    """Tokens of all lines that were answered so far."""

    input_tokens = serializers.IntegerField()
    input_tokens_details = InputDetailsShown()
    output_tokens = serializers.IntegerField()
    output_tokens_details = OutputDetailsShown()
    total_tokens = serializers.IntegerField()


class BatchShown(serializers.Serializer[Any]):
    """OpenAI's batch object; times are in seconds since 1970."""

    id = serializers.CharField()
    object = serializers.CharField()
    endpoint = serializers.CharField()
    model = serializers.CharField(allow_null=True)
    errors = BatchErrorsShown(allow_null=True)  # type: ignore[assignment]  # as above
    input_file_id = serializers.CharField()
    completion_window = serializers.CharField()
    status = serializers.ChoiceField(
        [
            "validating",
            "failed",
            "in_progress",
            "finalizing",
            "completed",
            "expired",
            "cancelling",
            "cancelled",
        ]
    )
    output_file_id = serializers.CharField(allow_null=True)
    error_file_id = serializers.CharField(allow_null=True)
    created_at = serializers.IntegerField()
    in_progress_at = serializers.IntegerField(allow_null=True)
    expires_at = serializers.IntegerField()
    finalizing_at = serializers.IntegerField(allow_null=True)
    completed_at = serializers.IntegerField(allow_null=True)
    failed_at = serializers.IntegerField(allow_null=True)
    expired_at = serializers.IntegerField(allow_null=True)
    cancelling_at = serializers.IntegerField(allow_null=True)
    cancelled_at = serializers.IntegerField(allow_null=True)
    request_counts = RequestCountsShown()
    usage = BatchUsageShown()
    metadata = serializers.DictField(child=serializers.CharField(), allow_null=True)


def shown(job: BulkJobInfo) -> dict[str, Any]:
    """BatchShown."""
    return {
        "id": f"{PREFIX}{job.job_id.hex}",
        "object": "batch",
        "endpoint": job.endpoint,
        "model": job.model or None,
        "errors": _errors_shown(job),
        "input_file_id": file_id_shown(job.input_file_id),
        "completion_window": WINDOW,
        # One whose lines wait, for the owner's money or key, is under way to its owner.
        "status": "in_progress" if job.state == "paused" else job.state,
        "output_file_id": file_id_shown(job.output_file_id),
        "error_file_id": file_id_shown(job.error_file_id),
        "created_at": seconds(job.created_at),
        "in_progress_at": seconds(job.in_progress_at),
        "expires_at": seconds(job.expires_at),
        "finalizing_at": seconds(job.finalizing_at),
        "completed_at": seconds(job.completed_at),
        "failed_at": seconds(job.failed_at),
        "expired_at": seconds(job.expired_at),
        "cancelling_at": seconds(job.cancelling_at),
        "cancelled_at": seconds(job.cancelled_at),
        "request_counts": {
            "total": job.items_total,
            "completed": job.items_completed,
            "failed": job.items_failed,
        },
        "usage": {
            "input_tokens": job.prompt_tokens,
            "input_tokens_details": {"cached_tokens": job.cached_tokens},
            "output_tokens": job.completion_tokens,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": job.prompt_tokens + job.completion_tokens,
        },
        "metadata": job.metadata or None,
    }


def _errors_shown(job: BulkJobInfo) -> dict[str, Any] | None:
    if not job.errors:
        return None
    data = [
        {"code": one.code, "message": one.message, "param": one.param, "line": one.line}
        for one in job.errors
    ]
    return {"object": "list", "data": data}


class _BatchView(ProjectKeyView):
    needs = KeyScope.BATCHES

    def job_id(self, batch_id: str) -> UUID:
        """The id in a path; raises Http404 for what is none."""
        try:
            return parse_id(PREFIX, batch_id)
        except ValueError:
            raise Http404 from None


class BatchesView(_BatchView):
    """A project's batches."""

    @extend_schema(responses=page_shown(BatchShown, serializers.CharField))
    def get(self, request: Request) -> Response:
        """Newest first."""
        page = asked_page(request, parse_id=lambda text: parse_id(PREFIX, text))
        rows = batch_jobs.facade.list_batches(
            self.owner, after=page.after, rows_max=page.rows_max, ascending=page.ascending
        )
        return Response(page_body(rows, page, shown))

    @extend_schema(request=BatchBody, responses=BatchShown)
    @idempotent_if_keyed
    def post(self, request: Request) -> Response:
        """Make one: its input is checked first, then its lines run."""
        body = self.body(BatchBody)
        expires = body.get("output_expires_after")
        job = batch_jobs.facade.create_batch(
            self.owner,
            input_file_id=file_id_of(body["input_file_id"]),
            endpoint=body["endpoint"],
            metadata=body.get("metadata") or {},
            output_expires_s=expires["seconds"] if expires else None,
        )
        if job.state == "failed":
            metrics.LIMIT_HITS.labels("bulk_jobs").inc()
        return Response(shown(job))


class BatchView(_BatchView):
    """One batch."""

    @extend_schema(responses=BatchShown)
    def get(self, request: Request, batch_id: str) -> Response:
        """How it is now."""
        return Response(shown(batch_jobs.facade.read_batch(self.owner, self.job_id(batch_id))))


class BatchCancelView(_BatchView):
    """The end of a batch before its time."""

    @extend_schema(request=None, responses=BatchShown)
    def post(self, request: Request, batch_id: str) -> Response:
        """Ask for it; lines that are done stay, and are paid for."""
        return Response(shown(batch_jobs.facade.cancel_batch(self.owner, self.job_id(batch_id))))
