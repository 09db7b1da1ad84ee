"""How full limits are, as meters: each an element that its live part takes the place of.

Called by the page of limits and by the live topic, which draw the same.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from django.utils.html import format_html
from django.utils.safestring import SafeString

from billing.contracts import Quota, QuotaMetric, QuotaSubject
from headrace.console_kit import formats
from headrace.gateway.admission.minute_limits import METRICS, LimitScope
from headrace.gateway.admission.peeking import peek
from headrace.tenant_console.limits.wording import amount
from tenants.contracts import NO_LIMITS, MinuteLimited

NOBODY = QuotaSubject("", 0, 0)
MINUTE_METRICS = {
    "requests": "requests a minute",
    "tokens": "tokens a minute",
    "input_tokens": "input tokens a minute",
    "output_tokens": "output tokens a minute",
    "concurrency": "requests at once",
}


@dataclass(frozen=True, slots=True)
class Meter:
    """`element_id` is the place on the page; `used` None is unknown."""

    element_id: str
    used: int | None
    held: int
    limit: int
    label: str
    text: SafeString


@dataclass(frozen=True, slots=True)
class MinuteLimit:
    """A minute limit of somebody, and how full it is."""

    of: MinuteLimited
    meter: Meter


def fullest(quota: Quota) -> QuotaSubject:
    """Whoever has used most of a quota, with what they hold."""
    return max(quota.subjects, key=lambda one: one.used_amount + one.held_amount, default=NOBODY)


def is_reached(quota: Quota) -> bool:
    """Whether somebody may use no more of it."""
    one = fullest(quota)
    return one.used_amount + one.held_amount >= quota.wanted.limit_amount


def quota_meter(quota: Quota, currency: str) -> Meter:
    """Of the fullest subject."""
    one = fullest(quota)
    return subject_meter(quota, one, currency, f"quota-{quota.quota_id.hex}", one.end_user)


def subject_meter(
    quota: Quota, one: QuotaSubject, currency: str, element_id: str, label: str
) -> Meter:
    """Of one subject of a quota."""
    metric, limit = quota.wanted.metric, quota.wanted.limit_amount
    return Meter(
        element_id,
        one.used_amount,
        one.held_amount,
        limit,
        label,
        _text(metric, one.used_amount, one.held_amount, limit, currency),
    )


def _text(metric: QuotaMetric, used: int, held: int, limit: int, currency: str) -> SafeString:
    parts = format_html("{} used", amount(metric, used, currency))
    if held:
        parts = format_html("{}, {} held", parts, amount(metric, held, currency))
    free = amount(metric, max(0, limit - used - held), currency)
    return format_html("{}, {} free of {}", parts, free, amount(metric, limit, currency))


def minute_limits(organization_id: UUID, limited: Sequence[MinuteLimited]) -> list[MinuteLimit]:
    """A meter for each minute limit; what is used is unknown while Redis is away."""
    bound = [one for one in limited if one.limits != NO_LIMITS]
    scopes = [_scope(one) for one in bound]
    seen = peek(organization_id, scopes)
    found = []
    for place, (one, scope) in enumerate(zip(bound, scopes, strict=True)):
        for metric in METRICS:
            limit = scope.limit(metric)
            if limit is None:
                continue
            used = None if seen is None else seen[place].used(metric)
            text = format_html("{} of {}", formats.count(used), formats.count(limit))
            element_id = f"minute-{one.scope}-{one.scope_id.hex}-{metric}"
            meter = Meter(element_id, used, 0, limit, MINUTE_METRICS[metric], text)
            found.append(MinuteLimit(one, meter))
    return found


def _scope(one: MinuteLimited) -> LimitScope:
    """By the name that the gateway counts under."""
    subject = "" if one.scope == "organization" else one.scope_id.hex
    return LimitScope(one.scope, subject, one.limits)
