"""Limits that live in PostgreSQL and are enforced inside the hold: tokens per UTC day.

A counter counts from the moment its limit is set. Minute limits are the gateway's, on Redis.
Called by operators.
"""

from uuid import UUID

from billing.models import QuotaPolicy
from tenants.facade import tenant_scope


def set_daily_tokens(
    organization_id: UUID, tokens_max: int | None, using: str = "housekeeper"
) -> None:
    """Limit the organization's prompt and output tokens per UTC day; None lifts the limit.

    Holds that stand keep standing. Raises ValueError for a negative limit.
    """
    if tokens_max is not None and tokens_max < 0:
        raise ValueError("a limit must not be negative")
    with tenant_scope(organization_id, using):
        policy, created = QuotaPolicy.objects.using(using).get_or_create(
            organization_id=organization_id, defaults={"daily_tokens_max": tokens_max}
        )
        if not created and policy.daily_tokens_max != tokens_max:
            policy.daily_tokens_max = tokens_max
            policy.save(using=using, update_fields=["daily_tokens_max"])
