"""Summarisation jobs in JSON: what may be asked of one, and how one is shown.

Amounts are exact strings, times are ISO 8601. Called by the REST views and by the socket that
follows a job, so that both say the same.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.conf import settings
from rest_framework import serializers

from batch_jobs.contracts import SummaryInfo
from billing.facade import decimal_string, parse_decimal
from headrace.management_api.bodies import Body, Money, money
from headrace.management_api.bulk.shapes import MetadataField, file_id_shown

PREFIX = "summary_"
STATUSES = (
    *("validating", "ready", "in_progress", "paused", "cancelling", "finalizing"),
    *("completed", "failed", "expired", "cancelled"),
)
AMOUNT_CHARS_MAX = 40
OPTIONS = (
    *("model", "instruction", "length", "tokens_max", "language", "style", "schema"),
    *("id_field", "text_field"),
)
"""The fields of a body that are checked as options, all together."""
TIMES = (
    *("created_at", "in_progress_at", "paused_at", "cancelling_at", "finalizing_at"),
    *("completed_at", "failed_at", "expired_at", "cancelled_at", "expires_at", "deadline_at"),
)


class AmountField(serializers.CharField):
    """An amount of money as a decimal string, read as pico-units."""

    def to_internal_value(self, data: Any) -> Any:
        """Raises ValidationError, also for a JSON number, which is a float."""
        if not isinstance(data, str) or len(data) > AMOUNT_CHARS_MAX:
            raise serializers.ValidationError("Must be a decimal string.")
        try:
            return parse_decimal(super().to_internal_value(data))
        except ValueError:
            raise serializers.ValidationError("Must be a decimal string.") from None


class BoundsBody(Body):
    """What can be changed while a job is unfinished; null takes it away."""

    budget = AmountField(required=False, allow_null=True)
    deadline_at = serializers.DateTimeField(required=False, allow_null=True)


class SummaryBody(BoundsBody):
    """What a job is made of. A field of the options that is left out has its default."""

    input_file_ids = serializers.ListField(
        child=serializers.CharField(max_length=128), max_length=settings.SUMMARY_INPUT_FILES_MAX
    )
    model = serializers.CharField(required=False, max_length=256)
    instruction = serializers.CharField(required=False, allow_null=True, trim_whitespace=False)
    length = serializers.ChoiceField(["short", "medium", "long"], required=False)
    tokens_max = serializers.IntegerField(required=False, allow_null=True)
    language = serializers.CharField(required=False, allow_null=True)
    style = serializers.CharField(required=False, allow_null=True)  # type: ignore[assignment]  # a field, as DRF means it
    schema = serializers.JSONField(required=False, allow_null=True)
    id_field = serializers.CharField(required=False, allow_null=True)
    text_field = serializers.CharField(required=False, allow_null=True)
    start = serializers.BooleanField(required=False, default=True)
    metadata = MetadataField(required=False, allow_null=True)


class DocumentsShown(serializers.Serializer[Any]):
    """Documents of a job; `duplicate` and `known` are completed ones that nothing was computed
    for."""

    total = serializers.IntegerField()
    completed = serializers.IntegerField()
    failed = serializers.IntegerField()
    duplicate = serializers.IntegerField()
    known = serializers.IntegerField()


class SummaryTokensShown(serializers.Serializer[Any]):
    """Tokens so far; `cached` are among those of the prompts."""

    prompt = serializers.IntegerField()
    cached = serializers.IntegerField()
    completion = serializers.IntegerField()


class EstimateShown(Money):
    """What the whole job will take, as far as it can be told when everything is read."""

    prompt_tokens = serializers.IntegerField()
    completion_tokens = serializers.IntegerField()
    interactive_amount_pico = serializers.CharField()
    interactive_amount = serializers.CharField()
    duration_s = serializers.IntegerField(allow_null=True)
    prompt_basis = serializers.CharField()
    completion_basis = serializers.CharField()


class ProgressShown(serializers.Serializer[Any]):
    """Speed over the last minute; null is not known, as while a job is paused."""

    documents_per_s = serializers.FloatField()
    tokens_per_s = serializers.FloatField()
    remaining_s = serializers.IntegerField(allow_null=True)
    finishes_at = serializers.DateTimeField(allow_null=True)


class InputErrorShown(serializers.Serializer[Any]):
    """Why an input could not be read."""

    code = serializers.CharField()
    message = serializers.CharField()
    line = serializers.IntegerField(allow_null=True)


class SummaryShown(serializers.Serializer[Any]):
    """A summarisation job."""

    object = serializers.ChoiceField(["summary.job"])
    id = serializers.CharField()
    status = serializers.ChoiceField(STATUSES)
    pause_reason = serializers.CharField(allow_null=True)
    previewing = serializers.BooleanField()
    model = serializers.CharField()
    options = serializers.DictField()
    input_file_ids = serializers.ListField(child=serializers.CharField())
    documents = DocumentsShown()
    tokens = SummaryTokensShown()
    charge = Money()
    currency = serializers.CharField()
    budget = serializers.CharField(allow_null=True)
    estimate = EstimateShown(allow_null=True)
    progress = ProgressShown()
    results_shards = serializers.IntegerField()
    results_deleted_at = serializers.DateTimeField(allow_null=True)
    errors = InputErrorShown(many=True)  # type: ignore[assignment]  # a field; DRF takes it away
    metadata = serializers.DictField(child=serializers.CharField())
    created_at = serializers.DateTimeField()
    in_progress_at = serializers.DateTimeField(allow_null=True)
    paused_at = serializers.DateTimeField(allow_null=True)
    cancelling_at = serializers.DateTimeField(allow_null=True)
    finalizing_at = serializers.DateTimeField(allow_null=True)
    completed_at = serializers.DateTimeField(allow_null=True)
    failed_at = serializers.DateTimeField(allow_null=True)
    expired_at = serializers.DateTimeField(allow_null=True)
    cancelled_at = serializers.DateTimeField(allow_null=True)
    expires_at = serializers.DateTimeField(allow_null=True)
    deadline_at = serializers.DateTimeField(allow_null=True)


def shown(info: SummaryInfo, currency: str) -> dict[str, Any]:
    """`SummaryShown`."""
    job, progress = info.job, info.progress
    return {
        "object": "summary.job",
        "id": f"{PREFIX}{job.job_id.hex}",
        "status": job.state,
        "pause_reason": job.pause_reason or None,
        "previewing": info.previewing,
        "model": job.model,
        "options": {name: value for name, value in job.options.items() if name != "model"},
        "input_file_ids": [file_id_shown(file_id) for file_id in info.input_file_ids],
        "documents": {
            "total": job.items_total,
            "completed": job.items_completed,
            "failed": job.items_failed,
            "duplicate": info.documents_duplicate,
            "known": info.documents_known,
        },
        "tokens": {
            "prompt": job.prompt_tokens,
            "cached": job.cached_tokens,
            "completion": job.completion_tokens,
        },
        "charge": money(job.charge_pico),
        "currency": currency,
        "budget": None if job.budget_pico is None else decimal_string(job.budget_pico),
        "estimate": _estimate_shown(info.estimate) if info.estimate else None,
        "progress": {
            "documents_per_s": round(progress.documents_per_s, 3),
            "tokens_per_s": round(progress.tokens_per_s, 1),
            "remaining_s": progress.remaining_s,
            "finishes_at": _time(progress.finishes_at),
        },
        "results_shards": info.results_shards,
        "results_deleted_at": _time(info.results_deleted_at),
        "errors": [
            {"code": one.code, "message": one.message, "line": one.line} for one in job.errors
        ],
        "metadata": dict(job.metadata),
        **{name: _time(getattr(job, name)) for name in TIMES},
    }


def _estimate_shown(estimate: Mapping[str, Any]) -> dict[str, Any]:
    amount_pico = int(estimate["amount_pico"])
    interactive_pico = int(estimate["interactive_amount_pico"])
    return {
        **estimate,
        **money(amount_pico),
        "interactive_amount_pico": str(interactive_pico),
        "interactive_amount": decimal_string(interactive_pico),
    }


def _time(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat()
