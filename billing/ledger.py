"""Accounts: opening a tenant's, how far the operator lets it go below zero, reading its balance.

Never changes a posted entry: a correction is a new transaction. Called by the seed
(housekeeper's alias), by the operator's commands, by views and by the gateway's batch port.
"""

from uuid import UUID

from django.db import IntegrityError

from billing.contracts import AccountMissing, Balance, CreditLimitTooLow
from billing.models import Account, LedgerAccount, LedgerKind
from tenants.contracts import Actor
from tenants.facade import operator_of, record_audit, tenant_scope


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


def set_credit_limit(
    organization_id: UUID,
    limit_pico: int,
    using: str = "housekeeper",
    *,
    operator: Actor | None = None,
) -> None:
    """Let the balance go this far below zero, on account: 0 is prepaid.

    `operator` is who of them sets it, for the audit log. Raises ValueError for a negative limit,
    AccountMissing, or CreditLimitTooLow when more is owed or held already.
    """
    if limit_pico < 0:
        raise ValueError("a credit limit is not negative")
    try:
        with tenant_scope(organization_id, using):
            changed = (
                Account.objects.using(using)
                .filter(organization_id=organization_id)
                .update(floor_pico=-limit_pico)
            )
            if changed:
                record_audit(
                    operator or operator_of(organization_id),
                    "credit.limit_changed",
                    "organization",
                    organization_id,
                    {"limit_pico": str(limit_pico)},
                    using=using,
                )
    except IntegrityError as error:
        raise CreditLimitTooLow("more than this is owed or held already") from error
    if not changed:
        raise AccountMissing("this organization has no account")


def balance(organization_id: UUID, using: str = "default") -> Balance:
    """The tenant's account now. Raises AccountMissing when none was opened."""
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
