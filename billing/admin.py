"""What the operator's back office shows of money, by Django's admin: to be read only.

Imported by the back office's process alone, whose site hides secrets and lets nobody write. Tables
with a key of several columns are not there, for the admin knows none: usage, its sums, counters.
"""

from django.contrib import admin

from billing.models import (
    Account,
    AliasRow,
    BillingProfileRow,
    BillingSettingsRow,
    CorrectionRow,
    CreditGrantRow,
    GrantBurn,
    Hold,
    InvoiceLineRow,
    InvoicePayment,
    InvoiceRecipient,
    InvoiceRow,
    LedgerAccount,
    LedgerLegRow,
    LedgerTransaction,
    OfferRow,
    Price,
    PriceBook,
    QuotaPolicy,
    StripeAccount,
    StripeCheckout,
    StripeEvent,
    StripeExport,
    StripeMessage,
    TenantPrice,
    TenantPriceBook,
    TopUpRow,
)

register = admin.site.register

# What is for sale.
register(
    OfferRow,
    list_display=("public_id", "display_name", "owned_by", "deprecated_at", "shutdown_at"),
    search_fields=("public_id",),
)
register(AliasRow, list_display=("name", "organization", "offer"))
register(PriceBook, list_display=("version", "effective_at", "note", "created_by"))
register(TenantPriceBook, list_display=("version", "organization", "effective_at", "note"))
register(
    Price,
    list_display=("offer", "tier", "token_class", "currency", "price_micros_per_mtok", "valid"),
    list_filter=("tier", "token_class"),
)
register(
    TenantPrice,
    list_display=("organization", "offer", "tier", "token_class", "price_micros_per_mtok", "valid"),
    list_filter=("tier", "token_class"),
)

# Balances and what moved them.
register(
    Account,
    list_display=("organization", "currency", "posted_pico", "held_pico", "floor_pico"),
)
register(LedgerAccount, list_display=("id", "organization", "kind", "currency"))
register(
    LedgerTransaction,
    list_display=("id", "organization", "kind", "idempotency_key", "created_at"),
)
register(LedgerLegRow, list_display=("id", "organization", "transaction_id", "amount_pico"))
register(
    Hold,
    list_display=("id", "organization", "state", "model_asked", "amount_pico", "charge_pico"),
)
register(
    CorrectionRow,
    list_display=("id", "organization", "request_id", "old_pico", "new_pico", "reason"),
)
register(
    CreditGrantRow,
    list_display=("id", "organization", "category", "source", "amount_pico", "remaining_pico"),
    list_filter=("category",),
)
register(GrantBurn, list_display=("id", "organization", "kind", "amount_pico", "created_at"))
register(
    TopUpRow,
    list_display=("id", "organization", "state", "amount_pico", "payment_reference", "created_at"),
    list_filter=("state", "is_recharge"),
)
register(
    QuotaPolicy,
    list_display=("id", "organization", "scope", "metric", "period", "limit_amount", "is_hard"),
)
register(
    BillingSettingsRow,
    list_display=("organization", "low_balance_pico", "recharge_is_enabled"),
)

# Documents.
register(
    InvoiceRow,
    list_display=("id", "organization", "number", "kind", "total_pico", "currency", "issued_at"),
    list_filter=("kind",),
)
register(
    InvoiceLineRow,
    list_display=("id", "organization", "position", "kind", "text", "rounded_pico"),
)
register(InvoicePayment, list_display=("id", "organization", "amount_pico", "reference"))
register(InvoiceRecipient, list_display=("organization", "legal_name", "email"))
register(BillingProfileRow, list_display=("organization", "legal_name", "email"))

# Stripe.
register(StripeAccount, list_display=("organization", "customer_id", "is_demo"))
register(
    StripeMessage,
    list_display=("id", "received_at", "tries", "next_try_at", "outcome", "ended_at"),
    list_filter=("outcome",),
)
register(
    StripeEvent,
    list_display=("id", "organization", "kind", "outcome", "detail", "applied_at"),
    list_filter=("outcome",),
)
register(
    StripeCheckout,
    list_display=("organization", "top_up_id", "expires_at", "looked_at"),
    # Whoever has its address sees, and may finish, the tenant's payment.
    exclude=("url",),
)
register(
    StripeExport,
    list_display=("id", "organization", "hour", "model", "token_class", "tokens", "state"),
)
