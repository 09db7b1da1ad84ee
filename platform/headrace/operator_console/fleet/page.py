"""`/operator/`: the engines, live. Shows what they report every second, and nothing from before."""

from collections.abc import Sequence
from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from headrace.console_kit import formats
from headrace.console_kit.tables import Column, Row, Table
from headrace.gateway.announcing import EngineReport
from headrace.operator_console.fleet.readings import EngineShown, shown
from headrace.operator_console.hour_prices import hour_prices
from headrace.operator_console.pages import OperatorView

COLUMNS = (
    Column("Engine"),
    Column("Running", is_number=True),
    Column("Waiting", is_number=True),
    Column("KV used", is_number=True),
    Column("More fit", is_number=True),
    Column("Prompt / s", is_number=True, hides=True),
    Column("Output / s", is_number=True),
    Column("First token", is_number=True, hides=True),
    Column("Then each", is_number=True, hides=True),
    Column("Per Mtok", is_number=True),
)


class FleetPage(OperatorView):
    """The page; its part comes by the socket, within a second."""

    page = "fleet"
    title = "Fleet"
    template = "operator_console/fleet/page.html"

    def get(self, request: HttpRequest) -> HttpResponse:
        """Unknown until the socket tells."""
        return self.show(
            is_asking=True,
            prices=hour_prices(),
            currency=settings.GPU_HOUR_CURRENCY,
        )


def fleet_context(reports: Sequence[EngineReport] | None) -> dict[str, Any]:
    """What the part shows; `reports` None is that nobody knows."""
    prices = hour_prices()
    engines = [shown(one, prices.of(one.engine_id)) for one in reports or ()]
    running = sum(one.running for one in engines)
    return {
        "is_known": reports is not None,
        "engines": engines,
        "running": running,
        "waiting": sum(one.waiting for one in engines),
        "batch_running": sum(one.batch_running for one in engines),
        "kv_used": sum(one.kv_tokens_used for one in engines),
        "kv_total": sum(one.kv_tokens_total for one in engines),
        "prompt_per_s": _sum([one.prompt_tokens_per_s for one in engines]),
        "cached_per_s": _sum([one.cached_tokens_per_s for one in engines]),
        "output_per_s": _sum([one.output_tokens_per_s for one in engines]),
        "table": Table("Engines", COLUMNS, [_row(one) for one in engines]),
    }


def _row(engine: EngineShown) -> Row:
    fits = formats.UNKNOWN
    if engine.more_requests is not None:
        context = formats.count_text(engine.context_tokens)
        fits = f"{formats.count_text(engine.more_requests)} at {context} tokens"
    return Row(
        [
            format_html(
                "<span title='at {}'>{}</span>"
                "<div class='text-secondary' title='bundle {}'>{}</div>"
                "<div class='text-secondary'>up {}</div>",
                *(engine.address or formats.UNKNOWN, engine.engine_id),
                *(engine.bundle_hash, engine.model),
                formats.duration_text(engine.up_ms),
            ),
            _with_batch(engine.running, engine.batch_running),
            _with_batch(engine.waiting, engine.batch_waiting),
            formats.percent_text(engine.kv_tokens_used, engine.kv_tokens_total),
            fits,
            formats.count(engine.prompt_tokens_per_s),
            formats.count(engine.output_tokens_per_s),
            formats.duration_text(engine.first_token_ms),
            formats.duration_text(engine.between_tokens_ms),
            _cost(engine),
        ],
        id=f"engine-{engine.engine_id}",
    )


def _cost(engine: EngineShown) -> SafeString:
    currency = settings.GPU_HOUR_CURRENCY
    cost = formats.money(engine.cost_per_mtok_pico, currency)
    if engine.hour_price_pico is None:
        return cost
    hour = formats.money(engine.hour_price_pico, currency)
    return format_html("{}<div class='text-secondary'>{} an hour</div>", cost, hour)


def _with_batch(number: int, of_batch: int) -> str:
    return f"{number:,} ({of_batch:,} batch)" if of_batch else f"{number:,}"


def _sum(rates: Sequence[int | None]) -> int | None:
    known = [rate for rate in rates if rate is not None]
    return sum(known) if known else None
