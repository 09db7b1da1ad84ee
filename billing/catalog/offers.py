"""The models for sale, and the life of each: active, deprecated for a successor, retired.

Only the operator changes them (housekeeper's alias). Past receipts name what was served then and
never change with an offer. Called by seed and operators' commands.
"""

from datetime import datetime
from uuid import UUID

from django.db import transaction
from django.utils import timezone

from billing.contracts import ModelNotFound, Offer
from billing.models import OfferRow


def publish_offer(
    public_id: str,
    display_name: str,
    owned_by: str,
    context_tokens_max: int,
    output_tokens_max: int,
    using: str = "housekeeper",
) -> UUID:
    """Put a model on sale, or update what is said of it; returns the offer's id. Idempotent.

    A deprecated offer stays deprecated: that is `set_offer_life`'s to change.
    """
    offer, _ = OfferRow.objects.using(using).update_or_create(
        public_id=public_id,
        defaults={
            "display_name": display_name,
            "owned_by": owned_by,
            "context_tokens_max": context_tokens_max,
            "output_tokens_max": output_tokens_max,
        },
    )
    offer_id: UUID = offer.id
    return offer_id


def set_offer_life(
    public_id: str,
    shutdown_at: datetime | None,
    successor: str | None = None,
    deprecated_at: datetime | None = None,
    using: str = "housekeeper",
) -> Offer:
    """Deprecate an offer, which is retired from `shutdown_at` on; None makes it active again.

    It counts as deprecated from `deprecated_at`, or now, or earlier where that was said before.
    Raises ModelNotFound for an unknown model or successor, ValueError for a model that is to
    succeed itself or to end before it is deprecated.
    """
    with transaction.atomic(using=using):
        row = OfferRow.objects.using(using).select_for_update().filter(public_id=public_id).first()
        if row is None:
            raise ModelNotFound(f"no such model: {public_id}")
        row.successor = None
        if shutdown_at is None:
            row.deprecated_at = row.shutdown_at = None
        else:
            row.deprecated_at = deprecated_at or row.deprecated_at or timezone.now()
            row.shutdown_at = shutdown_at
            row.successor = _successor(public_id, successor, using)
            if row.shutdown_at < row.deprecated_at:
                if deprecated_at is not None:
                    raise ValueError("a model cannot end before it is deprecated")
                row.deprecated_at = row.shutdown_at
        row.save(using=using, update_fields=["deprecated_at", "shutdown_at", "successor"])
    return offer_of(row)


def _successor(public_id: str, successor: str | None, using: str) -> OfferRow | None:
    if successor is None:
        return None
    if successor == public_id:
        raise ValueError("a model cannot succeed itself")
    found = OfferRow.objects.using(using).filter(public_id=successor).first()
    if found is None:
        raise ModelNotFound(f"no such model: {successor}")
    return found


def offer_of(row: OfferRow) -> Offer:
    """A row as other packages see it."""
    return Offer(
        offer_id=row.id,
        public_id=row.public_id,
        display_name=row.display_name,
        owned_by=row.owned_by,
        context_tokens_max=row.context_tokens_max,
        output_tokens_max=row.output_tokens_max,
        created_at=row.created_at,
        deprecated_at=row.deprecated_at,
        shutdown_at=row.shutdown_at,
        successor=row.successor.public_id if row.successor is not None else None,
    )
