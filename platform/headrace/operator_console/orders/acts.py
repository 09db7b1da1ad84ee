"""What each kind of order does, by the facades that the operator's commands use.

Runs as the housekeeper. Each act may be done twice without harm: a grant goes by its order's id,
the others set what they say. Answers are JSON for a page. Called by a worker.
"""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from django.contrib.auth import get_user_model

import billing.facade
import tenants.facade
from billing.contracts import (
    AccountMissing,
    CreditConflict,
    CreditLimitTooLow,
    DraftBook,
    GrantCategory,
    ModelNotFound,
    PriceBookInvalid,
    PricesSuspicious,
    PricesUnchanged,
)
from headrace.operator_console.orders.shapes import OrderKind, Placed
from tenants.contracts import (
    Actor,
    InvalidValue,
    MinuteLimits,
    OrganizationNotFound,
    OrganizationStatus,
)

PREVIEW = timedelta(days=30)
PREVIEW_LINES_MAX = 500
AUTHOR_CHARS_MAX = 128
Answer = dict[str, Any]


class Refused(Exception):
    """What was ordered cannot be done; says why."""

    def __init__(self, text: str, **more: Any) -> None:
        super().__init__(text)
        self.answer: Answer = {"text": f"{text[:1].upper()}{text[1:]}".rstrip(".") + ".", **more}


def grant_credit(order: Placed) -> Answer:
    """`organization_id`, `amount_pico`, `reference`, `category`, `expires_at`."""
    asked = order.asked
    expires_at = asked["expires_at"]
    billing.facade.grant_credit(
        UUID(asked["organization_id"]),
        int(asked["amount_pico"]),
        asked["reference"],
        category=GrantCategory(asked["category"]),
        expires_at=datetime.fromisoformat(expires_at) if expires_at else None,
        operator_id=order.operator_id,
    )
    return {"text": "The credit is granted."}


def set_credit_limit(order: Placed) -> Answer:
    """`organization_id`, `limit_pico`."""
    asked = order.asked
    billing.facade.set_credit_limit(
        UUID(asked["organization_id"]), int(asked["limit_pico"]), operator=_actor(order)
    )
    return {"text": "The credit limit is set."}


def set_minute_limits(order: Placed) -> Answer:
    """`organization_id`, `limits` by name."""
    asked = order.asked
    tenants.facade.set_organization_limits(
        UUID(asked["organization_id"]), MinuteLimits(**asked["limits"]), operator=_actor(order)
    )
    return {"text": "The minute limits are set. Processes know within a second."}


def set_status(order: Placed) -> Answer:
    """`organization_id`, `status`."""
    asked = order.asked
    operator, status = _actor(order), OrganizationStatus(asked["status"])
    if tenants.facade.read_organization(operator).status is OrganizationStatus.CLOSED:
        # Its owner may have had it deleted since the page was shown.
        raise Refused("a closed tenant stays closed")
    tenants.facade.set_organization_status(operator.organization_id, status, operator=operator)
    return {"text": f"The tenant is {status.value}."}


def preview_prices(order: Placed) -> Answer:
    """`document`, `organization_id`: what the last 30 days would have cost."""
    draft = _draft(order.asked)
    end_at = datetime.now(UTC)
    lines = billing.facade.preview_events(draft, end_at - PREVIEW, end_at)
    slugs = {str(one): slug for one, slug in tenants.facade.organization_slugs().items()}
    return {
        "text": "This is what the usage of the last 30 days would have cost.",
        "currency": draft.currency,
        "lines": [
            {
                "tenant": slugs.get(line.tenant, line.tenant),
                "model": line.model,
                "tier": line.tier.value,
                "requests": line.requests,
                "now_pico": str(line.now_pico),
                "draft_pico": str(line.draft_pico),
            }
            for line in lines
            if line.now_pico != line.draft_pico
        ][:PREVIEW_LINES_MAX],
        "now_pico": str(sum(line.now_pico or 0 for line in lines)),
        "draft_pico": str(sum(line.draft_pico or 0 for line in lines)),
    }


def publish_prices(order: Placed) -> Answer:
    """`document`, `organization_id`, `effective_at`, `accept_warnings`."""
    asked = order.asked
    effective_at = asked["effective_at"]
    try:
        book = billing.facade.publish_book(
            _draft(asked),
            _author(order.operator_id),
            datetime.fromisoformat(effective_at) if effective_at else None,
            accept_warnings=asked["accept_warnings"],
        )
    except PricesUnchanged:
        return {"text": "These prices are in force then anyway."}
    except PricesSuspicious as error:
        raise Refused("nothing was published: this looks odd", warnings=error.warnings) from error
    return {
        "text": f"Version {book.version} holds from {book.effective_at:%Y-%m-%d %H:%M:%S} UTC on.",
        "warnings": book.warnings,
    }


def set_offer_life(order: Placed) -> Answer:
    """`model`, `shutdown_at`, `successor`."""
    asked = order.asked
    shutdown_at = asked["shutdown_at"]
    offer = billing.facade.set_offer_life(
        asked["model"],
        datetime.fromisoformat(shutdown_at) if shutdown_at else None,
        asked["successor"] or None,
    )
    if offer.shutdown_at is None:
        return {"text": f"{offer.public_id} is for sale."}
    return {"text": f"{offer.public_id} is served until {offer.shutdown_at:%Y-%m-%d %H:%M} UTC."}


def _saying_why(act: Callable[[Placed], Answer]) -> Callable[[Placed], Answer]:
    def done(order: Placed) -> Answer:
        try:
            return act(order)
        except (
            *(AccountMissing, CreditConflict, CreditLimitTooLow, ModelNotFound, PriceBookInvalid),
            *(InvalidValue, OrganizationNotFound, ValueError),
        ) as error:
            raise Refused(str(error)) from error

    return done


ACTS: Mapping[OrderKind, Callable[[Placed], Answer]] = {
    OrderKind.GRANT_CREDIT: _saying_why(grant_credit),
    OrderKind.SET_CREDIT_LIMIT: _saying_why(set_credit_limit),
    OrderKind.SET_MINUTE_LIMITS: _saying_why(set_minute_limits),
    OrderKind.SET_STATUS: _saying_why(set_status),
    OrderKind.PREVIEW_PRICES: _saying_why(preview_prices),
    OrderKind.PUBLISH_PRICES: _saying_why(publish_prices),
    OrderKind.SET_OFFER_LIFE: _saying_why(set_offer_life),
}


def _actor(order: Placed) -> Actor:
    organization_id = UUID(order.asked["organization_id"])
    return tenants.facade.operator_of(
        organization_id, order.operator_id, order.ip, order.request_id
    )


def _draft(asked: Mapping[str, Any]) -> DraftBook:
    tenant = asked["organization_id"]
    return billing.facade.parse_price_document(asked["document"], UUID(tenant) if tenant else None)


def _author(operator_id: UUID) -> str:
    person = get_user_model().objects.using("housekeeper").get(pk=operator_id)
    return person.get_username()[:AUTHOR_CHARS_MAX]
