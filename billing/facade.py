"""The door to `billing`: everything other packages may call. Import nothing else but contracts.

Functions take and return frozen values and integers. Those of a request (quote, hold, settle,
void, renew, receipt, balance) run as role `app`; the operator's and the sweeper's as housekeeper.
"""

from billing.catalog.aliases import (
    alias,
    aliases,
    create_alias,
    delete_alias,
    set_alias,
    update_alias,
)
from billing.catalog.listing import list_prices, offers, price_books
from billing.catalog.offers import publish_offer, set_offer_life
from billing.catalog.preview import preview_events, preview_export
from billing.catalog.price_books import publish_book, set_price
from billing.catalog.price_checks import display as display_price
from billing.catalog.price_document import parse_price_document
from billing.catalog.price_history import price_history
from billing.catalog.quotes import models_for_sale, quote
from billing.catalog.repricing import reprice
from billing.clock import clock_at, prepare_past
from billing.credit.granting import credit_grants, grant_credit, tend_credit, tend_credit_of
from billing.credit.recharges import begin_recharge, recharge_due, watch_balances
from billing.credit.settings import (
    billing_settings,
    recharge_settings,
    save_billing_settings,
    save_recharge,
    set_tax,
)
from billing.credit.topups import (
    begin_topup,
    complete_topup,
    continue_topup,
    fail_topup,
    note_payment,
    refund_topup,
    top_up,
    top_ups,
    use_payment_provider,
)
from billing.forgetting import forget_end_user, forget_end_users
from billing.holds import hold, renew, settle, void
from billing.invoices.closing import close_due
from billing.invoices.pdf import invoice_pdf
from billing.invoices.profiles import forget_addresses, profile_of, save_profile
from billing.invoices.reading import invoice, invoice_numbered, invoices
from billing.invoices.receivables import credit_note, record_payment
from billing.invoices.wording import document_title, line_text
from billing.ledger import balance, open_account, set_credit_limit
from billing.opening import open_own_account
from billing.pricing import (
    cost_pico,
    counts_of,
    decimal_string,
    estimate_pico,
    parse_decimal,
    parse_per_million,
    per_million_string,
    per_token_string,
)
from billing.quotas import (
    change_quota,
    lift_quota,
    quotas,
    replace_quotas,
    set_daily_tokens,
    set_quota,
)
from billing.receipts import receipt
from billing.reconcile import reconcile, reconcile_report, register_invariants
from billing.replay import replay
from billing.stripe_sync.customers import is_demo
from billing.stripe_sync.customers import keep_out as keep_out_of_stripe
from billing.stripe_sync.provider import connect_stripe
from billing.stripe_sync.webhooks import receive as receive_stripe_event
from billing.sweeper import sweep
from billing.usage.backlogs import backlogs
from billing.usage.buckets import bucket_end, previous_span
from billing.usage.key_activity import key_activity
from billing.usage.latencies import first_token_latencies
from billing.usage.of_all import tenant_accounts, usage_of_all
from billing.usage.overview import cache_savings, usage_overview
from billing.usage.quota_preview import preview_quota
from billing.usage.report import usage_page
from billing.usage.requests import recent_requests
from billing.usage.rollups import roll_up
from billing.usage.series import class_series, top_series

__all__ = [
    "alias",
    "aliases",
    "backlogs",
    "balance",
    "begin_recharge",
    "begin_topup",
    "billing_settings",
    "bucket_end",
    "cache_savings",
    "change_quota",
    "class_series",
    "clock_at",
    "close_due",
    "complete_topup",
    "connect_stripe",
    "continue_topup",
    "cost_pico",
    "counts_of",
    "create_alias",
    "credit_grants",
    "credit_note",
    "decimal_string",
    "delete_alias",
    "display_price",
    "document_title",
    "estimate_pico",
    "fail_topup",
    "first_token_latencies",
    "forget_addresses",
    "forget_end_user",
    "forget_end_users",
    "grant_credit",
    "hold",
    "invoice",
    "invoice_numbered",
    "invoice_pdf",
    "invoices",
    "is_demo",
    "keep_out_of_stripe",
    "key_activity",
    "lift_quota",
    "line_text",
    "list_prices",
    "models_for_sale",
    "note_payment",
    "offers",
    "open_account",
    "open_own_account",
    "parse_decimal",
    "parse_per_million",
    "parse_price_document",
    "per_million_string",
    "per_token_string",
    "prepare_past",
    "preview_events",
    "preview_export",
    "preview_quota",
    "previous_span",
    "price_books",
    "price_history",
    "profile_of",
    "publish_book",
    "publish_offer",
    "quotas",
    "quote",
    "receipt",
    "receive_stripe_event",
    "recent_requests",
    "recharge_due",
    "recharge_settings",
    "reconcile",
    "reconcile_report",
    "record_payment",
    "refund_topup",
    "register_invariants",
    "renew",
    "replace_quotas",
    "replay",
    "reprice",
    "roll_up",
    "save_billing_settings",
    "save_profile",
    "save_recharge",
    "set_alias",
    "set_credit_limit",
    "set_daily_tokens",
    "set_offer_life",
    "set_price",
    "set_quota",
    "set_tax",
    "settle",
    "sweep",
    "tenant_accounts",
    "tend_credit",
    "tend_credit_of",
    "top_series",
    "top_up",
    "top_ups",
    "update_alias",
    "usage_of_all",
    "usage_overview",
    "usage_page",
    "use_payment_provider",
    "void",
    "watch_balances",
]
