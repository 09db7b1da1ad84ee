"""OpenAI's spend limits, spend alerts and rate limits, of the organization and of its projects.

A spend limit is the hard monthly quota of spend, an alert a soft one with recipients; both are the
same quotas that `/api/v1/organizations/{id}/limits` shows. Thresholds are whole cents, rounded down
where the exact limit is finer.
"""

from typing import Any
from uuid import UUID

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

import billing.facade
import tenants.facade
from billing.contracts import (
    PICO,
    Quota,
    QuotaMetric,
    QuotaNotFound,
    QuotaPeriod,
    QuotaScope,
    QuotaWanted,
)
from headrace import errors
from headrace.management_api.authentication import ApiKeyUser
from headrace.management_api.base import OrganizationKeyView
from headrace.management_api.bodies import Body
from headrace.management_api.openai.lists import DeletedShown, deleted
from headrace.management_api.paging import asked_page, page_body, page_shown
from tenants.contracts import Permission

CENT_PICO = PICO // 100
CENTS_MAX = 10**15
RECIPIENTS_MAX = 10
SUBJECT_PREFIX_CHARS_MAX = 64
LIMITS = {
    "GET": Permission.LIMITS_READ,
    "POST": Permission.LIMITS_WRITE,
    "DELETE": Permission.LIMITS_WRITE,
}


class SpendLimitBody(Body):
    """OpenAI's body of a spend limit; the currency is the organization's."""

    threshold_amount = serializers.IntegerField(min_value=0, max_value=CENTS_MAX)
    currency = serializers.CharField(max_length=3)
    interval = serializers.ChoiceField(["month"])


class ChannelBody(Body):
    """Who is written to, and what the subject begins with."""

    type = serializers.ChoiceField(["email"])
    recipients = serializers.ListField(
        child=serializers.EmailField(), min_length=1, max_length=RECIPIENTS_MAX
    )
    subject_prefix = serializers.CharField(
        max_length=SUBJECT_PREFIX_CHARS_MAX, allow_blank=True, allow_null=True, default=None
    )


class SpendAlertBody(SpendLimitBody):
    """OpenAI's body of a spend alert."""

    notification_channel = ChannelBody()


class OpenAiSpendLimit(serializers.Serializer[Any]):
    """OpenAI's spend limit object."""

    object = serializers.CharField()
    threshold_amount = serializers.IntegerField()
    currency = serializers.CharField()
    interval = serializers.CharField()
    enforcement = serializers.DictField()


class OpenAiSpendLimitDeleted(serializers.Serializer[Any]):
    """A spend limit that is gone."""

    object = serializers.CharField()
    deleted = serializers.BooleanField()


class OpenAiSpendAlert(serializers.Serializer[Any]):
    """OpenAI's spend alert object."""

    object = serializers.CharField()
    id = serializers.UUIDField()
    threshold_amount = serializers.IntegerField()
    currency = serializers.CharField()
    interval = serializers.CharField()
    notification_channel = serializers.DictField()


class _SpendView(OrganizationKeyView):
    """What the views of one scope's spend share."""

    permissions = LIMITS

    def named(self, project_id: UUID | None, thing: str) -> str:
        """OpenAI's name of an object of this scope."""
        return f"{'organization' if project_id is None else 'project'}.{thing}"

    def found(self, project_id: UUID | None, *, hard: bool) -> list[Quota]:
        """The scope's monthly quotas of spend; raises for a project that is not there."""
        if project_id is not None:
            tenants.facade.read_project(self.actor, project_id)
        scope = QuotaScope.ORGANIZATION if project_id is None else QuotaScope.PROJECT
        return [
            quota
            for quota in billing.facade.quotas(self.actor)
            if (quota.wanted.scope, quota.wanted.scope_id) == (scope, project_id)
            and (quota.wanted.metric, quota.wanted.period) == (QuotaMetric.SPEND, QuotaPeriod.MONTH)
            and quota.wanted.is_hard is hard
        ]

    def wanted(self, project_id: UUID | None, body: dict[str, Any]) -> QuotaWanted:
        """The quota that a body asks for; raises ApiError 400 for another currency."""
        if body["currency"] != self.currency:
            raise errors.invalid(f"'currency' must be {self.currency}.", "currency")
        channel = body.get("notification_channel")
        return QuotaWanted(
            scope=QuotaScope.ORGANIZATION if project_id is None else QuotaScope.PROJECT,
            metric=QuotaMetric.SPEND,
            period=QuotaPeriod.MONTH,
            limit_amount=body["threshold_amount"] * CENT_PICO,
            scope_id=project_id,
            is_hard=channel is None,
            recipients=tuple(channel["recipients"]) if channel else (),
            subject_prefix=(channel["subject_prefix"] or "") if channel else "",
        )

    @property
    def currency(self) -> str:
        """The organization's."""
        user: object = self.request.user
        assert isinstance(user, ApiKeyUser)
        return user.identity.currency

    def shown(self, quota: Quota) -> dict[str, Any]:
        """What limits and alerts have in common."""
        return {
            "threshold_amount": quota.wanted.limit_amount // CENT_PICO,
            "currency": self.currency,
            "interval": "month",
        }


class SpendLimitView(_SpendView):
    """The hard monthly limit of an organization's or a project's spend."""

    @extend_schema(responses=OpenAiSpendLimit)
    def get(self, request: Request, project_id: UUID | None = None) -> Response:
        """The limit; 404 where there is none."""
        return Response(self._shown(self._standing(project_id), project_id))

    @extend_schema(request=SpendLimitBody, responses=OpenAiSpendLimit)
    def post(self, request: Request, project_id: UUID | None = None) -> Response:
        """Set it."""
        wanted = self.wanted(project_id, self.body(SpendLimitBody))
        return Response(self._shown(billing.facade.set_quota(self.actor, wanted), project_id))

    @extend_schema(responses=OpenAiSpendLimitDeleted)
    def delete(self, request: Request, project_id: UUID | None = None) -> Response:
        """Lift it."""
        billing.facade.lift_quota(self.actor, self._standing(project_id).quota_id)
        kind = f"{self.named(project_id, 'spend_limit')}.deleted"
        return Response({"object": kind, "deleted": True})

    def _standing(self, project_id: UUID | None) -> Quota:
        for quota in self.found(project_id, hard=True):
            return quota
        raise QuotaNotFound("no spend limit")

    def _shown(self, quota: Quota, project_id: UUID | None) -> dict[str, Any]:
        taken = sum(one.used_amount + one.held_amount for one in quota.subjects)
        enforcing = taken >= quota.wanted.limit_amount
        return {
            "object": self.named(project_id, "spend_limit"),
            **self.shown(quota),
            "enforcement": {"status": "enforcing" if enforcing else "inactive"},
        }


class _AlertView(_SpendView):
    def shown_alert(self, quota: Quota, project_id: UUID | None) -> dict[str, Any]:
        """OpenAiSpendAlert."""
        return {
            "object": self.named(project_id, "spend_alert"),
            "id": str(quota.quota_id),
            **self.shown(quota),
            "notification_channel": {
                "type": "email",
                "recipients": list(quota.wanted.recipients),
                "subject_prefix": quota.wanted.subject_prefix or None,
            },
        }


class SpendAlertsView(_AlertView):
    """Alerts of an organization's or a project's spend."""

    @extend_schema(responses=page_shown(OpenAiSpendAlert))
    def get(self, request: Request, project_id: UUID | None = None) -> Response:
        """Alerts, newest first."""
        page = asked_page(request)
        rows = self.found(project_id, hard=False)
        if not page.ascending:
            rows.reverse()
        if page.after is not None:
            ids = [quota.quota_id for quota in rows]
            rows = rows[ids.index(page.after) + 1 :] if page.after in ids else []
        return Response(page_body(rows, page, lambda row: self.shown_alert(row, project_id)))

    @extend_schema(request=SpendAlertBody, responses=OpenAiSpendAlert)
    def post(self, request: Request, project_id: UUID | None = None) -> Response:
        """A new alert; the same amount again is the alert that stands."""
        wanted = self.wanted(project_id, self.body(SpendAlertBody))
        return Response(self.shown_alert(billing.facade.set_quota(self.actor, wanted), project_id))


class SpendAlertView(_AlertView):
    """One alert."""

    @extend_schema(responses=OpenAiSpendAlert)
    def get(self, request: Request, alert_id: UUID, project_id: UUID | None = None) -> Response:
        """The alert."""
        return Response(self.shown_alert(self._standing(project_id, alert_id), project_id))

    @extend_schema(request=SpendAlertBody, responses=OpenAiSpendAlert)
    def post(self, request: Request, alert_id: UUID, project_id: UUID | None = None) -> Response:
        """Another amount, or other recipients."""
        wanted = self.wanted(project_id, self.body(SpendAlertBody))
        self._standing(project_id, alert_id)
        changed = billing.facade.change_quota(self.actor, alert_id, wanted)
        return Response(self.shown_alert(changed, project_id))

    @extend_schema(responses=DeletedShown)
    def delete(self, request: Request, alert_id: UUID, project_id: UUID | None = None) -> Response:
        """Lift it."""
        billing.facade.lift_quota(self.actor, self._standing(project_id, alert_id).quota_id)
        return Response(deleted(self.named(project_id, "spend_alert"), alert_id))

    def _standing(self, project_id: UUID | None, alert_id: UUID) -> Quota:
        for quota in self.found(project_id, hard=False):
            if quota.quota_id == alert_id:
                return quota
        raise QuotaNotFound("no such alert")
