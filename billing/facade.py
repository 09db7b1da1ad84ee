"""The door to `billing`: everything other packages may call. Import nothing else but contracts.

Functions take and return frozen values and integers. Those of a request (quote, hold, settle,
void, renew, receipt, balance) run as role `app`; the operator's and the sweeper's as housekeeper.
"""

from billing.catalog.aliases import alias, aliases, create_alias, delete_alias, update_alias
from billing.catalog.offers import publish_offer, set_offer_life
from billing.catalog.price_books import publish_book, set_price
from billing.catalog.price_checks import display as display_price
from billing.catalog.quotes import models_for_sale, quote
from billing.holds import hold, renew, settle, void
from billing.ledger import balance, grant_credit, open_account
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
from billing.quotas import set_daily_tokens
from billing.receipts import receipt
from billing.reconcile import reconcile, reconcile_report
from billing.sweeper import sweep
from billing.usage.report import usage_page
from billing.usage.rollups import roll_up

__all__ = [
    "alias",
    "aliases",
    "balance",
    "cost_pico",
    "counts_of",
    "create_alias",
    "decimal_string",
    "delete_alias",
    "display_price",
    "estimate_pico",
    "grant_credit",
    "hold",
    "models_for_sale",
    "open_account",
    "parse_decimal",
    "parse_per_million",
    "per_million_string",
    "per_token_string",
    "publish_book",
    "publish_offer",
    "quote",
    "receipt",
    "reconcile",
    "reconcile_report",
    "renew",
    "roll_up",
    "set_daily_tokens",
    "set_offer_life",
    "set_price",
    "settle",
    "sweep",
    "update_alias",
    "usage_page",
    "void",
]
