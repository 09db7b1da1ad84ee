"""What an organization has, owes and pays, under `/api/v1/organizations/{id}/billing` and near.

Money comes in as decimal strings and goes out as integers and decimals, both strings. Nothing here
moves any: a top-up waits for its payment, and documents are the books' own.
"""

from collections.abc import Callable
from datetime import datetime
from typing import Any, ClassVar, TypeVar
from uuid import UUID

from django.conf import settings
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

import billing.facade
from billing.contracts import CreditGrant, RechargeSettings, TopUp
from headrace import errors
from headrace.management_api.base import TenantView
from headrace.management_api.bodies import Body, Money, money
from headrace.management_api.idempotent import idempotency_key, idempotent
from headrace.management_api.paging import asked_page, page_body, page_shown
from tenants.contracts import Permission

Answer = TypeVar("Answer")

AMOUNT = r"^\d{1,12}(\.\d{1,12})?$"
AMOUNT_CHARS_MAX = 25
URL_CHARS_MAX = 2048
IDEMPOTENCY_KEY = OpenApiParameter(
    "Idempotency-Key",
    OpenApiTypes.STR,
    OpenApiParameter.HEADER,
    required=True,
    description="what makes this payment one of a kind; the same key answers the same top-up",
)


class Amount(serializers.RegexField):
    """An amount as a decimal string; a JSON number is a float to some, so none is taken."""

    def __init__(self, **options: Any) -> None:
        super().__init__(AMOUNT, max_length=AMOUNT_CHARS_MAX, **options)

    def to_internal_value(self, data: Any) -> str:
        """Raises ValidationError for anything but a string of its shape."""
        if not isinstance(data, str) or not data.isascii():
            self.fail("invalid")
        text: str = super().to_internal_value(data)
        return text


class BalanceShown(serializers.Serializer[Any]):
    """The account now; `available` is what a request may still reserve."""

    object = serializers.CharField()
    currency = serializers.CharField()
    balance = Money()
    held = Money()
    available = Money()
    credit_limit = Money()


class CreditShown(serializers.Serializer[Any]):
    """A grant, as of now."""

    object = serializers.CharField()
    id = serializers.UUIDField()
    category = serializers.ChoiceField(["promotional", "paid"])
    priority = serializers.IntegerField()
    amount = Money()
    remaining = Money()
    effective_at = serializers.DateTimeField()
    expires_at = serializers.DateTimeField(allow_null=True)
    created_at = serializers.DateTimeField()


class TopUpBody(Body):
    """How much to pay in, and where to come back to afterwards."""

    amount = Amount()
    return_url = serializers.URLField(max_length=URL_CHARS_MAX, required=False)


class TopUpShown(serializers.Serializer[Any]):
    """A top-up."""

    object = serializers.CharField()
    id = serializers.UUIDField()
    state = serializers.ChoiceField(["pending", "succeeded", "failed", "refunded"])
    currency = serializers.CharField()
    amount = Money()
    refunded = Money()
    automatic = serializers.BooleanField()
    failure = serializers.CharField(allow_null=True)
    created_at = serializers.DateTimeField()
    completed_at = serializers.DateTimeField(allow_null=True)


class TopUpStarted(TopUpShown):
    """A top-up and the page on which to pay it."""

    payment_url = serializers.CharField()


class RechargeBody(Body):
    """When to buy credit without asking."""

    enabled = serializers.BooleanField()
    threshold = Amount()
    amount = Amount()
    month_max = Amount()


class RechargeShown(serializers.Serializer[Any]):
    """The recharge, and what became of it lately."""

    object = serializers.CharField()
    enabled = serializers.BooleanField()
    threshold = Money()
    amount = Money()
    month_max = Money()
    failures = serializers.IntegerField()
    not_before = serializers.DateTimeField(allow_null=True)


_READ = {"GET": Permission.BILLING_READ}


class BalanceView(TenantView):
    """The account."""

    permissions = _READ

    @extend_schema(responses=BalanceShown)
    def get(self, request: Request, organization_id: UUID) -> Response:
        """What there is, what open requests reserve, and how far it may go below zero."""
        account = billing.facade.balance(organization_id)
        return Response(
            {
                "object": "billing.balance",
                "currency": account.currency,
                "balance": money(account.posted_pico),
                "held": money(account.held_pico),
                "available": money(
                    max(account.posted_pico - account.held_pico - account.floor_pico, 0)
                ),
                "credit_limit": money(max(-account.floor_pico, 0)),
            }
        )


class CreditsView(TenantView):
    """Credit by its sources."""

    permissions = _READ

    @extend_schema(responses=page_shown(CreditShown))
    def get(self, request: Request, organization_id: UUID) -> Response:
        """Grants, newest first, with what usage until now has left of them."""
        page = asked_page(request)
        rows = billing.facade.credit_grants(
            organization_id, rows_max=page.rows_max, after=page.after, ascending=page.ascending
        )
        return Response(page_body(rows, page, render_grant))


class TopUpsView(TenantView):
    """Money paid in."""

    permissions = {"GET": Permission.BILLING_READ, "POST": Permission.BILLING_WRITE}
    sensitive: ClassVar[frozenset[str]] = frozenset({"POST"})

    @extend_schema(responses=page_shown(TopUpShown))
    def get(self, request: Request, organization_id: UUID) -> Response:
        """Top-ups, newest first."""
        page = asked_page(request)
        rows = billing.facade.top_ups(
            organization_id, rows_max=page.rows_max, after=page.after, ascending=page.ascending
        )
        return Response(page_body(rows, page, render_top_up))

    @extend_schema(request=TopUpBody, responses={201: TopUpStarted}, parameters=[IDEMPOTENCY_KEY])
    @idempotent
    def post(self, request: Request, organization_id: UUID) -> Response:
        """Begin to pay in; credit follows the payment."""
        body = self.body(TopUpBody)
        return_url: str = body.get("return_url", "")
        # From the page of a payment people go on to what they take for ours.
        if return_url and not f"{return_url}/".startswith(f"{settings.PUBLIC_URL}/"):
            raise errors.invalid("'return_url' must be a page of this house.", "return_url")
        started = _checked(
            "amount",
            lambda: billing.facade.begin_topup(
                self.actor,
                billing.facade.parse_decimal(body["amount"]),
                idempotency_key(request),
                return_url,
            ),
        )
        shown = render_top_up(started.top_up)
        return Response({**shown, "payment_url": started.payment_url}, status=201)


class TopUpView(TenantView):
    """One top-up."""

    permissions = _READ

    @extend_schema(responses=TopUpShown)
    def get(self, request: Request, organization_id: UUID, top_up_id: UUID) -> Response:
        """Where it is."""
        return Response(render_top_up(billing.facade.top_up(organization_id, top_up_id)))


class RechargeView(TenantView):
    """Credit bought without asking."""

    permissions = {"GET": Permission.BILLING_READ, "PUT": Permission.BILLING_WRITE}
    sensitive: ClassVar[frozenset[str]] = frozenset({"PUT"})

    @extend_schema(responses=RechargeShown)
    def get(self, request: Request, organization_id: UUID) -> Response:
        """The rule, and the pause after a failure."""
        return Response(render_recharge(billing.facade.recharge_settings(organization_id)))

    @extend_schema(request=RechargeBody, responses=RechargeShown)
    def put(self, request: Request, organization_id: UUID) -> Response:
        """Set the rule."""
        body = self.body(RechargeBody)
        _checked(
            "amount",
            lambda: billing.facade.save_recharge(
                self.actor,
                is_enabled=body["enabled"],
                threshold_pico=billing.facade.parse_decimal(body["threshold"]),
                amount_pico=billing.facade.parse_decimal(body["amount"]),
                month_max_pico=billing.facade.parse_decimal(body["month_max"]),
            ),
        )
        return Response(render_recharge(billing.facade.recharge_settings(organization_id)))


def render_grant(grant: CreditGrant) -> dict[str, Any]:
    """The grant as JSON."""
    return {
        "object": "billing.credit",
        "id": str(grant.grant_id),
        "category": grant.category.value,
        "priority": grant.priority,
        "amount": money(grant.amount_pico),
        "remaining": money(grant.remaining_pico),
        "effective_at": grant.effective_at.isoformat(),
        "expires_at": moment(grant.expires_at),
        "created_at": grant.created_at.isoformat(),
    }


def render_top_up(top_up: TopUp) -> dict[str, Any]:
    """The top-up as JSON; the provider's name of its payment is not the client's business."""
    return {
        "object": "billing.topup",
        "id": str(top_up.top_up_id),
        "state": top_up.state.value,
        "currency": top_up.currency,
        "amount": money(top_up.amount_pico),
        "refunded": money(top_up.refunded_pico),
        "automatic": top_up.is_recharge,
        "failure": top_up.failure or None,
        "created_at": top_up.created_at.isoformat(),
        "completed_at": moment(top_up.completed_at),
    }


def render_recharge(recharge: RechargeSettings) -> dict[str, Any]:
    """The rule as JSON."""
    return {
        "object": "billing.recharge",
        "enabled": recharge.is_enabled,
        "threshold": money(recharge.threshold_pico),
        "amount": money(recharge.amount_pico),
        "month_max": money(recharge.month_max_pico),
        "failures": recharge.failures,
        "not_before": moment(recharge.not_before_at),
    }


def moment(at: datetime | None) -> str | None:
    """A time in JSON."""
    return None if at is None else at.isoformat()


def _checked(param: str, act: Callable[[], Answer]) -> Answer:
    """What `act` returns; a value it will not take is 400 of that parameter."""
    try:
        return act()
    except ValueError as error:
        raise errors.invalid(f"'{param}': {error}.", param) from error
