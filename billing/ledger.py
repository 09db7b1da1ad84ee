"""Accounts and money in: opening a tenant's ledger accounts, granting credit, reading balances.

Never changes a posted entry: a correction is a new transaction. Called by the seed
(housekeeper's alias), by the demo and by the gateway's batch port (balance).
"""

from uuid import UUID

from django.db import IntegrityError

from billing.contracts import AccountMissing, Balance, CreditConflict
from billing.models import Account, LedgerAccount, LedgerKind
from billing.retry import call
from tenants.facade import tenant_scope


def open_account(
    organization_id: UUID, currency: str = "USD", floor_pico: int = 0, using: str = "housekeeper"
) -> None:
    """Give a tenant its ledger accounts and a balance of 0; opening again changes nothing.

    A floor below 0 is credit the operator extends.
    """
    with tenant_scope(organization_id, using):
        for kind in LedgerKind:
            ledger_account, _ = LedgerAccount.objects.using(using).get_or_create(
                organization_id=organization_id,
                kind=kind.value,
                defaults={"currency": currency},
            )
            if kind is LedgerKind.CREDIT:
                Account.objects.using(using).get_or_create(
                    organization_id=organization_id,
                    defaults={
                        "ledger_account": ledger_account,
                        "currency": currency,
                        "floor_pico": floor_pico,
                    },
                )


def grant_credit(
    organization_id: UUID, amount_pico: int, idempotency_key: str, using: str = "housekeeper"
) -> None:
    """Add prepaid credit, once per key and tenant.

    Raises ValueError unless the amount is positive and the key short, CreditConflict when the key
    was used for another amount or the organization has no account.
    """
    if amount_pico <= 0:
        raise ValueError("a grant must be positive")
    if not 1 <= len(idempotency_key) <= 100:
        raise ValueError("the idempotency key must have 1 to 100 characters")
    try:
        call(
            "SELECT billing_grant_credit(%s, %s, %s)",
            [organization_id, amount_pico, idempotency_key],
            using,
        )
    except IntegrityError as error:
        raise CreditConflict(str(error).splitlines()[0]) from error


def balance(organization_id: UUID, using: str = "default") -> Balance:
    """The tenant's prepaid account now. Raises AccountMissing when none was opened."""
    with tenant_scope(organization_id, using):
        account = Account.objects.using(using).filter(organization_id=organization_id).first()
    if account is None:
        raise AccountMissing("this organization has no account")
    return Balance(
        currency=account.currency,
        posted_pico=account.posted_pico,
        held_pico=account.held_pico,
        floor_pico=account.floor_pico,
    )
