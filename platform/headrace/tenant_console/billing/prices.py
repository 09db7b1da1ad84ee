"""`/console/<slug>/billing/prices`: what models cost now, what they cost before and will cost.

Called by the console's routes; `unit_price` by other pages of money.
"""

from collections.abc import Sequence

from django.http import HttpRequest, HttpResponse
from django.utils.html import format_html
from django.utils.safestring import SafeString

import billing.facade
from billing.contracts import PriceSpan, Quote, ServiceTier, TokenClass
from headrace.console_kit import formats
from headrace.console_kit.tables import Column, Row, Table
from headrace.console_kit.templatetags.kit import badge
from headrace.tenant_console.billing.named import ROWS, BillingView
from tenants.contracts import Permission

MICRO_PICO = 10**6
NOTED = '{}<span class="cell-note">{}</span>'
CLASSES = {
    TokenClass.INPUT: "Input",
    TokenClass.CACHED_INPUT: "Cached input",
    TokenClass.CACHE_WRITE: "Cache write",
    TokenClass.OUTPUT: "Output",
}


class PricesPage(BillingView):
    """Prices per million tokens."""

    title = "Prices"
    needs = Permission.CATALOG_READ
    section = "billing-prices"
    template = "tenant_console/billing/prices.html"

    def get(self, request: HttpRequest, slug: str) -> HttpResponse:
        """`?model=` for the history of one, `?after=` for its older part."""
        model = request.GET.get("model", "")
        found = billing.facade.price_history(
            self.actor, ROWS + 1, self.asked_id("after"), public_id=model or None
        )
        shown = found[:ROWS]
        sold = billing.facade.models_for_sale(self.organization_id)
        batch = dict(billing.facade.models_for_sale(self.organization_id, tier=ServiceTier.BATCH))
        next_href = ""
        if len(found) > ROWS:
            next_href = self.url("billing-prices", model=model, after=shown[-1].price_id)
        return self.show(
            now_table=self._now(sold, batch),
            models=sorted({quote.offer.public_id for _, quote in sold} | ({model} - {""})),
            model=model,
            history=Table(
                "Price history",
                [
                    Column("Model"),
                    Column("Tokens"),
                    Column("Per million", is_number=True),
                    Column("From"),
                    Column("Until", hides=True),
                    Column("List", hides=True),
                    Column("State", hides=True),
                ],
                [self._row(one) for one in shown],
                empty="No such price was published.",
                next_href=next_href,
            ),
        )

    def _now(self, sold: Sequence[tuple[str, Quote]], batch: dict[str, Quote]) -> Table:
        columns = [
            Column("Model"),
            *(
                Column(text, is_number=True, hides=one is TokenClass.CACHE_WRITE)
                for one, text in CLASSES.items()
            ),
        ]
        rows = [
            Row([self._name(name, one), *self._prices(one)])
            for name, quote in sold
            for one in (quote, batch.get(name))
            if one is not None
        ]
        return Table("Prices now", columns, rows, empty="No model is for sale.")

    def _name(self, name: str, quote: Quote) -> SafeString:
        offer = quote.offer
        notes = [quote.tier.value]
        if name != offer.public_id:
            notes.append(f"means {offer.public_id}")
        if offer.deprecated_at is not None:
            notes.append(f"deprecated, ends {formats.day_text(offer.shutdown_at, self.zone)}")
        return format_html(NOTED, name, ", ".join(notes))

    def _prices(self, quote: Quote) -> list[str]:
        return [
            unit_price(price, quote.currency)
            for price in (
                quote.input_micros_per_mtok,
                quote.cached_input_micros_per_mtok,
                quote.cache_write_micros_per_mtok,
                quote.output_micros_per_mtok,
            )
        ]

    def _row(self, one: PriceSpan) -> Row:
        word, tone = "in force", "green"
        if one.effective_at > self.now:
            word, tone = "announced", "blue"
        elif one.ends_at is not None and one.ends_at <= self.now:
            word, tone = "past", "gray"
        return Row(
            [
                format_html(NOTED, one.public_id, one.tier.value),
                CLASSES[one.token_class],
                unit_price(one.price_micros_per_mtok, one.currency),
                formats.moment(one.effective_at, self.zone),
                formats.moment(one.ends_at, self.zone) if one.ends_at else "until changed",
                "agreed with you" if one.own else f"list {one.book_version}",
                badge(word, tone),
            ],
            is_muted=word == "past",
        )


def unit_price(price_micros_per_mtok: int | None, currency: str) -> str:
    """A price per million tokens with all its decimals."""
    if price_micros_per_mtok is None:
        return formats.UNKNOWN
    return formats.money_exact(price_micros_per_mtok * MICRO_PICO, currency)
