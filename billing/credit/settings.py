"""How a tenant is warned, recharged and invoiced: reading and saving its settings.

A tenant says when it is warned, what is bought without asking and how lines are grouped; tax and
time to pay are the operator's. Called by the views (app) and the operator's commands.
"""

import re
from uuid import UUID

from django.db import connections

from billing.contracts import BillingSettings, RechargeSettings
from billing.credit.topups import CENT_PICO, TOP_UP_MAX_PICO, TOP_UP_MIN_PICO
from billing.ledger import balance
from billing.models import BillingSettingsRow
from billing.pricing import coin_pico
from tenants.contracts import Actor, Permission
from tenants.facade import operator_of, record_audit, tenant_scope

GROUPING = re.compile(r"|project|tag:[A-Za-z0-9_.-]{1,64}")
PAYMENT_DAYS_MAX = 180


def billing_settings(organization_id: UUID, using: str = "default") -> BillingSettings:
    """The tenant's settings, or the defaults."""
    row = _row(organization_id, using)
    if row is None:
        return BillingSettings()
    return BillingSettings(
        low_balance_pico=row.low_balance_pico,
        group_lines_by=row.group_lines_by,
        tax_label=row.tax_label,
        tax_ppm=row.tax_ppm,
        payment_days=row.payment_days,
    )


def recharge_settings(organization_id: UUID, using: str = "default") -> RechargeSettings:
    """When credit is bought without asking, and what became of it lately."""
    row = _row(organization_id, using)
    if row is None:
        return RechargeSettings()
    return RechargeSettings(
        is_enabled=row.recharge_is_enabled,
        threshold_pico=row.recharge_threshold_pico,
        amount_pico=row.recharge_amount_pico,
        month_max_pico=row.recharge_month_max_pico,
        failures=row.recharge_failures,
        not_before_at=row.recharge_not_before_at,
    )


def save_billing_settings(actor: Actor, low_balance_pico: int | None, group_lines_by: str) -> None:
    """What the tenant may say of its bills. Raises ValueError for an unknown grouping."""
    actor.require(Permission.BILLING_WRITE)
    if not GROUPING.fullmatch(group_lines_by):
        raise ValueError("lines are grouped by '', 'project' or 'tag:<key>'")
    _save(
        actor,
        "billing.settings_changed",
        {"low_balance_pico": low_balance_pico, "group_lines_by": group_lines_by},
    )


def save_recharge(
    actor: Actor, *, is_enabled: bool, threshold_pico: int, amount_pico: int, month_max_pico: int
) -> None:
    """Buy credit without asking from now on, or stop. Raises ValueError for odd amounts."""
    actor.require(Permission.BILLING_WRITE)
    if is_enabled and not (
        TOP_UP_MIN_PICO <= amount_pico <= month_max_pico <= TOP_UP_MAX_PICO
        and amount_pico % CENT_PICO == 0
        and 0 <= threshold_pico <= TOP_UP_MAX_PICO
    ):
        raise ValueError("a recharge is of whole cents, and a month's maximum at least one of it")
    if is_enabled:
        currency = balance(actor.organization_id).currency
        if amount_pico % coin_pico(currency):
            raise ValueError(f"{currency} has no coin for that amount")
    _save(
        actor,
        "billing.recharge_changed",
        {
            "recharge_is_enabled": is_enabled,
            "recharge_threshold_pico": threshold_pico,
            "recharge_amount_pico": amount_pico,
            "recharge_month_max_pico": month_max_pico,
        },
    )


def set_tax(
    organization_id: UUID,
    label: str,
    tax_ppm: int,
    payment_days: int,
    using: str = "housekeeper",
) -> None:
    """The tax that this tenant's invoices bear, in parts per million, and the days to pay them.

    Raises ValueError for a rate past 100 % or a span past PAYMENT_DAYS_MAX.
    """
    if not 0 <= tax_ppm <= 1_000_000 or not 0 <= payment_days <= PAYMENT_DAYS_MAX:
        raise ValueError("no such tax rate or payment term")
    with tenant_scope(organization_id, using):
        BillingSettingsRow.objects.using(using).update_or_create(
            organization_id=organization_id,
            defaults={"tax_label": label, "tax_ppm": tax_ppm, "payment_days": payment_days},
        )
        record_audit(
            operator_of(organization_id),
            "billing.tax_changed",
            "organization",
            organization_id,
            {"label": label, "tax_ppm": tax_ppm, "payment_days": payment_days},
            using=using,
        )


def _row(organization_id: UUID, using: str) -> BillingSettingsRow | None:
    with tenant_scope(organization_id, using):
        return (
            BillingSettingsRow.objects.using(using).filter(organization_id=organization_id).first()
        )


def _save(actor: Actor, action: str, values: dict[str, int | bool | str | None]) -> None:
    with tenant_scope(actor.organization_id), connections["default"].cursor() as cursor:
        # Not by the ORM, which names every column: the app may not write those of tax.
        cursor.execute(
            "INSERT INTO billing_settings (organization_id) VALUES (%s) ON CONFLICT DO NOTHING",
            [actor.organization_id],
        )
        BillingSettingsRow.objects.filter(organization_id=actor.organization_id).update(**values)
        record_audit(
            actor,
            action,
            "organization",
            str(actor.organization_id),
            {name: value if value is None else str(value) for name, value in values.items()},
        )
