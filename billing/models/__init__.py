"""The tables of money: catalog, ledger, usage.

Constraints here and in sql/ hold the invariants; writing happens in the SQL functions there, since
role `app` may only read most of these. Used inside `billing` only.
"""

from billing.models.catalog import (
    AliasRow,
    OfferRow,
    Price,
    PriceBook,
    TenantPrice,
    TenantPriceBook,
)
from billing.models.corrections import CorrectionRow
from billing.models.credit import BillingSettingsRow, CreditGrantRow, GrantBurn, TopUpRow
from billing.models.invoices import (
    BillingProfileRow,
    InvoiceLineRow,
    InvoicePayment,
    InvoiceRecipient,
    InvoiceRow,
)
from billing.models.ledger import (
    Account,
    LedgerAccount,
    LedgerKind,
    LedgerLegRow,
    LedgerTransaction,
)
from billing.models.rollups import UsageDelta, UsageHour, UsageModelHour, UsageTagHour
from billing.models.stripe import (
    StripeAccount,
    StripeCheckout,
    StripeEvent,
    StripeExport,
    StripeMessage,
)
from billing.models.usage import Hold, HoldState, QuotaCounter, QuotaPolicy, UsageEvent

__all__ = [
    "Account",
    "AliasRow",
    "BillingProfileRow",
    "BillingSettingsRow",
    "CorrectionRow",
    "CreditGrantRow",
    "GrantBurn",
    "Hold",
    "HoldState",
    "InvoiceLineRow",
    "InvoicePayment",
    "InvoiceRecipient",
    "InvoiceRow",
    "LedgerAccount",
    "LedgerKind",
    "LedgerLegRow",
    "LedgerTransaction",
    "OfferRow",
    "Price",
    "PriceBook",
    "QuotaCounter",
    "QuotaPolicy",
    "StripeAccount",
    "StripeCheckout",
    "StripeEvent",
    "StripeExport",
    "StripeMessage",
    "TenantPrice",
    "TenantPriceBook",
    "TopUpRow",
    "UsageDelta",
    "UsageEvent",
    "UsageHour",
    "UsageModelHour",
    "UsageTagHour",
]
