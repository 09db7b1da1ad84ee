"""The receipt: everything one request was held, counted and charged for.

Reads under the tenant's scope, so another tenant's id answers like an unknown one; reading never
bills. Called by `GET /v1/usage/requests/{id}` and by the gateway's batch port.
"""

from dataclasses import replace
from uuid import UUID

from billing.contracts import (
    Correction,
    LedgerLeg,
    Receipt,
    ReceiptNotFound,
    ServiceTier,
    UsageCounts,
    UsageSource,
)
from billing.models import CorrectionRow, Hold, LedgerLegRow, UsageEvent
from tenants.facade import tenant_scope


def receipt(organization_id: UUID, request_id: UUID) -> Receipt:
    """The receipt of one request of this tenant. Raises ReceiptNotFound."""
    with tenant_scope(organization_id):
        hold = Hold.objects.filter(organization_id=organization_id, id=request_id).first()
        if hold is None:
            raise ReceiptNotFound("no such request")
        event = None
        if hold.closed_at is not None:
            # An event carries its hold's closing time: the partition is known.
            event = UsageEvent.objects.filter(
                organization_id=organization_id, occurred_at=hold.closed_at, request_id=request_id
            ).first()
        legs: tuple[LedgerLeg, ...] = ()
        if event is not None:
            legs = tuple(
                LedgerLeg(account_kind=kind, amount_pico=amount_pico)
                for kind, amount_pico in LedgerLegRow.objects.filter(
                    organization_id=organization_id, transaction_id=event.ledger_tx_id
                )
                .order_by("account__kind")
                .values_list("account__kind", "amount_pico")
            )
        corrections = tuple(
            Correction(
                made_at=row.created_at,
                reason=row.reason,
                old_pico=row.old_pico,
                new_pico=row.new_pico,
                charged_pico=row.charged_pico,
                written_off_pico=row.written_off_pico,
                ledger_transaction_id=row.ledger_tx_id,
            )
            for row in CorrectionRow.objects.filter(
                organization_id=organization_id, request_id=request_id
            ).order_by("id")
        )
    return replace(_receipt(hold, event, legs), corrections=corrections)


def _receipt(hold: Hold, event: UsageEvent | None, legs: tuple[LedgerLeg, ...]) -> Receipt:
    return Receipt(
        request_id=hold.id,
        project_id=hold.project_id,
        key_id=hold.key_id,
        state=hold.state,
        tier=ServiceTier(hold.tier),
        currency=hold.currency,
        model_asked=hold.model_asked,
        model_served=(event.model_served or None) if event else None,
        counts=(
            UsageCounts(event.uncached_input_tokens, event.cached_input_tokens, event.output_tokens)
            if event
            else UsageCounts()
        ),
        input_micros_per_mtok=hold.input_micros_per_mtok,
        cached_input_micros_per_mtok=hold.cached_input_micros_per_mtok,
        output_micros_per_mtok=hold.output_micros_per_mtok,
        held_pico=hold.amount_pico,
        charge_pico=hold.charge_pico,
        finish_reason=event.finish_reason if event else None,
        source=UsageSource(event.source) if event else None,
        queue_ms=event.queue_ms if event else 0,
        prefill_ms=event.prefill_ms if event else 0,
        decode_ms=event.decode_ms if event else 0,
        held_at=hold.created_at,
        settled_at=hold.closed_at,
        end_user=hold.end_user,
        tags=hold.tags,
        ledger_transaction_id=event.ledger_tx_id if event else None,
        ledger_legs=legs,
    )
