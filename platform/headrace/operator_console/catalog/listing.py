"""`/operator/models`: what is for sale, what it costs now, before and later, and its end."""

from collections.abc import Sequence
from http import HTTPStatus

from django.http import HttpRequest, HttpResponse

import billing.facade
from billing.contracts import Offer, PriceSpan, ServiceTier, TokenClass
from headrace.console_kit import formats
from headrace.console_kit.tables import Column, Row, Table
from headrace.console_kit.templatetags.kit import badge
from headrace.operator_console.catalog.forms import CLASS_LABELS, LifeForm
from headrace.operator_console.orders.shapes import OrderKind
from headrace.operator_console.pages import ZONE, OperatorView
from headrace.tenant_console.billing.prices import unit_price

ROWS = 50
BOOKS = 10


class ModelsPage(OperatorView):
    """Offers and the list's prices; `?model=` for the history of one."""

    page = "models"
    title = "Models and prices"
    template = "operator_console/catalog/page.html"

    def get(self, request: HttpRequest) -> HttpResponse:
        """The catalog."""
        return self._page(LifeForm(offers=billing.facade.offers()))

    def do_life(self) -> HttpResponse:
        """Announces a model's end, or takes it back."""
        form = LifeForm(self.request.POST, offers=billing.facade.offers())
        if not form.is_valid():
            return self._page(form, HTTPStatus.UNPROCESSABLE_ENTITY)
        shutdown_at = form.cleaned_data["shutdown_at"]
        return self.order(
            OrderKind.SET_OFFER_LIFE,
            model=form.cleaned_data["model"],
            successor=form.cleaned_data["successor"],
            shutdown_at=shutdown_at.isoformat() if shutdown_at else None,
        )

    def _page(self, form: LifeForm, status: int = HTTPStatus.OK) -> HttpResponse:
        model = self.request.GET.get("model", "")
        after = self.asked_id("after")
        spans = billing.facade.list_prices(ROWS + 1, after, public_id=model or None)
        shown, more = spans[:ROWS], spans[ROWS:]
        offers = billing.facade.offers()
        return self.show(
            status=status,
            form=form,
            model=model,
            offers_table=self._offers(offers),
            now_table=self._now(billing.facade.list_prices(in_force_only=True)),
            history=Table(
                "Price history",
                [
                    *(Column("Model"), Column("Tier"), Column("Tokens")),
                    Column("Per million", is_number=True),
                    *(Column("From"), Column("Until"), Column("Version", is_number=True)),
                    Column("State", hides=True),
                ],
                [self._span(one) for one in shown],
                empty="No price was published.",
                next_href=self.url("models", model=model, after=shown[-1].price_id) if more else "",
            ),
            books=self._books(),
        )

    def _offers(self, offers: Sequence[Offer]) -> Table:
        columns = [
            *(Column("Model"), Column("State")),
            Column("Context", is_number=True),
            Column("Output at most", is_number=True, hides=True),
            *(Column("Owned by", hides=True), Column("Since", hides=True)),
        ]
        rows = [
            Row(
                [
                    offer.public_id,
                    self._state(offer),
                    formats.count(offer.context_tokens_max),
                    formats.count(offer.output_tokens_max),
                    offer.owned_by,
                    formats.day_text(offer.created_at, ZONE),
                ],
                href=self.url("models", model=offer.public_id),
            )
            for offer in offers
        ]
        return Table("Models", columns, rows, empty="No model is for sale.")

    def _state(self, offer: Offer) -> str:
        if offer.shutdown_at is None:
            return badge("for sale", "green")
        after = f"; then {offer.successor}" if offer.successor else ""
        ends = formats.day_text(offer.shutdown_at, ZONE)
        if offer.shutdown_at <= self.now:
            return badge(f"ended {ends}{after}", "gray")
        return badge(f"ends {ends}{after}", "yellow")

    def _now(self, spans: Sequence[PriceSpan]) -> Table:
        prices: dict[tuple[str, ServiceTier, str], dict[TokenClass, int]] = {}
        for span in spans:
            key = (span.public_id, span.tier, span.currency)
            prices.setdefault(key, {})[span.token_class] = span.price_micros_per_mtok
        rows = [
            Row(
                [
                    *(model, tier.value, currency),
                    *(unit_price(units.get(one), currency) for one in CLASS_LABELS),
                ]
            )
            for (model, tier, currency), units in sorted(prices.items())
        ]
        columns = [
            *(Column("Model"), Column("Tier"), Column("Currency", hides=True)),
            *(Column(label, is_number=True) for label in CLASS_LABELS.values()),
        ]
        return Table("Prices now", columns, rows, empty="No model has a price.")

    def _span(self, one: PriceSpan) -> Row:
        word, tone = "in force", "green"
        if one.effective_at > self.now:
            word, tone = "announced", "blue"
        elif one.ends_at is not None and one.ends_at <= self.now:
            word, tone = "past", "gray"
        return Row(
            [
                one.public_id,
                one.tier.value,
                CLASS_LABELS[one.token_class],
                unit_price(one.price_micros_per_mtok, one.currency),
                formats.moment(one.effective_at, ZONE),
                formats.moment(one.ends_at, ZONE) if one.ends_at else "until changed",
                one.book_version,
                badge(word, tone),
            ],
            is_muted=word == "past",
        )

    def _books(self) -> Table:
        columns = [
            *(Column("Version"), Column("From"), Column("Published")),
            *(Column("By", hides=True), Column("Note", hides=True)),
        ]
        rows = [
            Row(
                [
                    book.version,
                    formats.moment(book.effective_at, ZONE),
                    formats.moment(book.created_at, ZONE),
                    book.created_by,
                    book.note,
                ]
            )
            for book in billing.facade.price_books(BOOKS)
        ]
        return Table("Price books", columns, rows, empty="No price book was published.")
