"""`/api/v1/organizations/{id}/limits`: all limits of an organization, and where they stand.

The quotas of days and months are set here, all at once; minute limits are shown beside them and set
with the project or the key that has them. Amounts of spend are decimals of the currency in a body,
exact money in an answer.
"""

from typing import Any, ClassVar
from uuid import UUID

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

import billing.facade
import tenants.facade
from billing.contracts import (
    END_USER_LENGTH_MAX,
    Quota,
    QuotaMetric,
    QuotaPeriod,
    QuotaScope,
    QuotaWanted,
)
from billing.facade import parse_decimal
from headrace import errors
from headrace.management_api.base import TenantView
from headrace.management_api.bodies import Body, money
from headrace.management_api.minute_limits import MinuteLimitsShown, render_limits
from tenants.contracts import Permission

QUOTAS_MAX = 100
AMOUNT_CHARS_MAX = 40
SUBJECT_PREFIX_CHARS_MAX = 64
RECIPIENTS_MAX = 10


class QuotaBody(Body):
    """A quota as it is set. `limit` counts the metric; of spend it is a decimal such as "5.00"."""

    scope = serializers.ChoiceField([scope.value for scope in QuotaScope])
    scope_id = serializers.UUIDField(allow_null=True, default=None)
    end_user = serializers.CharField(max_length=END_USER_LENGTH_MAX, allow_blank=True, default="")
    metric = serializers.ChoiceField([metric.value for metric in QuotaMetric])
    period = serializers.ChoiceField([period.value for period in QuotaPeriod])
    limit = serializers.CharField(max_length=AMOUNT_CHARS_MAX)
    hard = serializers.BooleanField(default=True)
    counts_cached = serializers.BooleanField(default=True)
    recipients = serializers.ListField(
        child=serializers.EmailField(), max_length=RECIPIENTS_MAX, default=list
    )
    subject_prefix = serializers.CharField(
        max_length=SUBJECT_PREFIX_CHARS_MAX, allow_blank=True, default=""
    )


class LimitsBody(Body):
    """The quotas that shall be in force, all of them."""

    quotas = serializers.ListField(child=QuotaBody(), max_length=QUOTAS_MAX)


class SubjectShown(serializers.Serializer[Any]):
    """What an end user, or the whole scope, has used and holds now."""

    end_user = serializers.CharField()
    used = serializers.JSONField()
    held = serializers.JSONField()


class QuotaShown(serializers.Serializer[Any]):
    """A quota in force. Amounts are integers; of spend, exact money."""

    object = serializers.CharField()
    id = serializers.UUIDField()
    scope = serializers.CharField()
    scope_id = serializers.UUIDField(allow_null=True)
    end_user = serializers.CharField()
    metric = serializers.CharField()
    period = serializers.CharField()
    limit = serializers.JSONField()
    hard = serializers.BooleanField()
    counts_cached = serializers.BooleanField()
    recipients = serializers.ListField(child=serializers.EmailField())
    subject_prefix = serializers.CharField()
    time_zone = serializers.CharField()
    window_start = serializers.DateTimeField()
    resets_at = serializers.DateTimeField()
    used = SubjectShown(many=True)
    set_at = serializers.DateTimeField()
    set_by = serializers.DictField()


class LimitsShown(serializers.Serializer[Any]):
    """All limits of an organization."""

    object = serializers.CharField()
    minute = MinuteLimitsShown(allow_null=True)
    quotas = QuotaShown(many=True)


class LimitsView(TenantView):
    """The organization's limits."""

    permissions = {"GET": Permission.LIMITS_READ, "PUT": Permission.LIMITS_WRITE}
    sensitive: ClassVar[frozenset[str]] = frozenset({"PUT"})

    @extend_schema(responses=LimitsShown)
    def get(self, request: Request, organization_id: UUID) -> Response:
        """Each limit, what is used of it and held, when it resets, and who set it."""
        return Response(self._shown(billing.facade.quotas(self.actor)))

    @extend_schema(request=LimitsBody, responses=LimitsShown)
    def put(self, request: Request, organization_id: UUID) -> Response:
        """Set the quotas: those left out are lifted, and one that cannot be changes none."""
        body = self.body(LimitsBody)
        wanted = [quota_of(one, f"quotas.{place}") for place, one in enumerate(body["quotas"])]
        return Response(self._shown(billing.facade.replace_quotas(self.actor, wanted)))

    def _shown(self, quotas: list[Quota]) -> dict[str, Any]:
        minute = None
        if Permission.ORGANIZATION_READ in self.actor.permissions:
            minute = render_limits(tenants.facade.read_organization(self.actor).limits)
        return {
            "object": "limits",
            "minute": minute,
            "quotas": [render_quota(quota) for quota in quotas],
        }


def quota_of(body: dict[str, Any], param: str) -> QuotaWanted:
    """A validated `QuotaBody` as a value; raises ApiError 400 for a limit that is no amount."""
    metric = QuotaMetric(body["metric"])
    text: str = body["limit"]
    try:
        limit = parse_decimal(text) if metric is QuotaMetric.SPEND else _count(text)
    except ValueError:
        limit = -1
    if limit < 0:
        raise errors.invalid(f"'{param}.limit' is no amount of {metric.value}.", f"{param}.limit")
    return QuotaWanted(
        scope=QuotaScope(body["scope"]),
        metric=metric,
        period=QuotaPeriod(body["period"]),
        limit_amount=limit,
        scope_id=body["scope_id"],
        end_user=body["end_user"],
        is_hard=body["hard"],
        counts_cached=body["counts_cached"],
        recipients=tuple(body["recipients"]),
        subject_prefix=body["subject_prefix"],
    )


def _count(text: str) -> int:
    if not (text.isascii() and text.isdecimal()):
        raise ValueError(f"not a count: {text!r}")
    return int(text)


def render_quota(quota: Quota) -> dict[str, Any]:
    """`QuotaShown`."""
    wanted = quota.wanted

    def amount(value: int) -> object:
        return money(value) if wanted.metric is QuotaMetric.SPEND else value

    return {
        "object": "quota",
        "id": str(quota.quota_id),
        "scope": wanted.scope.value,
        "scope_id": str(wanted.scope_id) if wanted.scope_id else None,
        "end_user": wanted.end_user,
        "metric": wanted.metric.value,
        "period": wanted.period.value,
        "limit": amount(wanted.limit_amount),
        "hard": wanted.is_hard,
        "counts_cached": wanted.counts_cached,
        "recipients": list(wanted.recipients),
        "subject_prefix": wanted.subject_prefix,
        "time_zone": quota.time_zone,
        "window_start": quota.window_start.isoformat(),
        "resets_at": quota.resets_at.isoformat(),
        "used": [
            {
                "end_user": one.end_user,
                "used": amount(one.used_amount),
                "held": amount(one.held_amount),
            }
            for one in quota.subjects
        ],
        "set_at": quota.set_at.isoformat(),
        "set_by": {
            "kind": quota.set_by_kind,
            "id": str(quota.set_by_id) if quota.set_by_id else None,
        },
    }
