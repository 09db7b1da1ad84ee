"""From a constraint that stopped a money function to the typed error that says so.

The functions of sql/ refuse by naming a constraint; this is the one table of what each means to a
caller. Called by the modules beside it.
"""

from collections.abc import Sequence
from typing import Any

from django.db import IntegrityError

from billing.contracts import (
    BillingError,
    CreditConflict,
    CreditLimitTooLow,
    InvoiceConflict,
    InvoiceNotFound,
    RefundTooLarge,
    TopUpConflict,
    TopUpNotFound,
)
from billing.retry import call

MEANINGS: dict[str, type[BillingError]] = {
    "billing_grant_account": CreditConflict,
    "billing_grant_once": CreditConflict,
    "billing_top_up_missing": TopUpNotFound,
    "billing_top_up_payment": TopUpConflict,
    "billing_top_up_payment_once": TopUpConflict,
    "billing_top_up_forward": TopUpConflict,
    "billing_top_up_paid": TopUpConflict,
    "billing_top_up_once": TopUpConflict,
    "billing_refund_once": TopUpConflict,
    "billing_refund_amount": RefundTooLarge,
    "billing_account_above_floor": CreditLimitTooLow,
    "billing_invoice_missing": InvoiceNotFound,
    "billing_invoice_due": InvoiceConflict,
    "billing_payment_once": InvoiceConflict,
    "billing_credit_note_once": InvoiceConflict,
}


def move_money(sql: str, parameters: Sequence[Any], using: str) -> list[tuple[Any, ...]]:
    """`retry.call`, raising the typed error of the constraint that stopped it."""
    try:
        return call(sql, parameters, using)
    except IntegrityError as error:
        raise refused(error) from error


def refused(error: IntegrityError) -> Exception:
    """The typed error of the constraint that was hit; the error itself where nobody expects it."""
    diagnosis = getattr(error.__cause__, "diag", None)
    kind = MEANINGS.get(getattr(diagnosis, "constraint_name", None) or "")
    return error if kind is None else kind(str(error).splitlines()[0])
