"""What a client is told when its hold is refused. Pure; called by admission."""

from zoneinfo import ZoneInfo

from billing.contracts import HoldOutcome, HoldRefusal, QuotaInTheWay, QuotaMetric, QuotaScope
from billing.facade import decimal_string
from headrace import errors

_SCOPES = {
    QuotaScope.ORGANIZATION: "your organization",
    QuotaScope.PROJECT: "your project",
    QuotaScope.KEY: "your API key",
    QuotaScope.END_USER: "this end user",
}


def hold_refusal(outcome: HoldOutcome, currency: str) -> errors.ApiError:
    """The error for a hold that does not stand."""
    match outcome.refusal:
        case HoldRefusal.KEY_REVOKED:
            return errors.key_invalid()
        case HoldRefusal.PROJECT_ARCHIVED:
            return errors.project_archived()
        case HoldRefusal.ORGANIZATION_SUSPENDED:
            return errors.organization_suspended()
        case HoldRefusal.INSUFFICIENT_QUOTA:
            return errors.insufficient_quota(
                "You exceeded your current quota: the prepaid balance does not cover this "
                "request. Top up, or lower max_completion_tokens."
            )
        case HoldRefusal.QUOTA_EXCEEDED:
            assert outcome.quota is not None
            return errors.quota_used_up(outcome.quota, quota_text(outcome.quota, currency))
        case HoldRefusal.STALE_QUOTE:
            return errors.overloaded("Prices have just changed; try again.")
        case HoldRefusal.DUPLICATE:
            return errors.duplicate_request()
        case None:
            raise AssertionError("the hold stands")


def quota_text(quota: QuotaInTheWay, currency: str) -> str:
    """Whose limit, how much, and when it starts again, in the organization's own time."""
    limit = str(quota.limit_amount)
    if quota.metric is QuotaMetric.SPEND:
        limit = f"{decimal_string(quota.limit_amount)} {currency}"
    else:
        limit += f" {quota.metric.value.replace('_', ' ')}"
    resets_at = quota.resets_at.astimezone(ZoneInfo(quota.time_zone))
    return (
        f"You exceeded your current quota: this request may take {_SCOPES[quota.scope]} over its "
        f"limit of {limit} per {quota.period.value}. It starts again at "
        f"{resets_at:%Y-%m-%d %H:%M %z} ({quota.time_zone})."
    )
