"""The door to `billing`: everything other packages may call. Import nothing else but contracts.

Functions take and return frozen values and integers. Those of a request (quote, hold, settle,
void, renew, receipt, balance) run as role `app`; the operator's and the sweeper's as housekeeper.
"""

from billing.catalog import offers, publish_offer, quote, set_price
from billing.holds import hold, renew, settle, void
from billing.ledger import balance, grant_credit, open_account
from billing.pricing import (
    cost_pico,
    counts_of,
    decimal_string,
    estimate_pico,
    parse_decimal,
)
from billing.quotas import set_daily_tokens
from billing.receipts import receipt
from billing.reconcile import reconcile, reconcile_report
from billing.sweeper import sweep
from billing.usage.report import usage_page
from billing.usage.rollups import roll_up

__all__ = [
    "balance",
    "cost_pico",
    "counts_of",
    "decimal_string",
    "estimate_pico",
    "grant_credit",
    "hold",
    "offers",
    "open_account",
    "parse_decimal",
    "publish_offer",
    "quote",
    "receipt",
    "reconcile",
    "reconcile_report",
    "renew",
    "roll_up",
    "set_daily_tokens",
    "set_price",
    "settle",
    "sweep",
    "usage_page",
    "void",
]
