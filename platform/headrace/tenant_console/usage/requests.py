"""`/console/<slug>/requests`: the requests behind a chart, newest first; each leads to its receipt.

Prompts are nowhere in them. Called by the console's routes.
"""

from datetime import UTC, datetime
from uuid import UUID

from django.http import HttpRequest, HttpResponse

import billing.facade
import tenants.facade
from billing.contracts import RequestFilter, RequestSummary, ServiceTier
from headrace import errors
from headrace.console_kit import formats
from headrace.console_kit.pages import PageView
from headrace.console_kit.tables import Column, Row, Table
from headrace.console_kit.templatetags.kit import badge
from headrace.gateway.request_ids import parse_request_id, public_request_id
from headrace.tenant_console.usage.asking import END_USER, YEARS, Asked, asked
from tenants.contracts import Permission

ROWS = 50
GOOD_ENDS = frozenset({"stop", "length", "tool_calls", "cancelled"})
KEPT = ("project", "key", "model", "tier", "user", "tag", "start", "end", "failed")


class RequestsPage(PageView):
    """Settled requests, by the same filters as the usage page."""

    page = "usage"
    title = "Requests"
    needs = Permission.REQUESTS_READ
    template = "tenant_console/requests/page.html"

    def get(self, request: HttpRequest, slug: str) -> HttpResponse:
        """`?start=`, `?end=`, `?failed=1`, `?after=` beside the filters of usage."""
        query = request.GET.dict()
        if found := parse_request_id(query.get("id", "").strip()):
            return self.go(self.url("receipt", public_request_id(found)))
        wanted = asked(query, self.organization.cost_tags)
        failed = query.get("failed") == "1"
        page = billing.facade.recent_requests(
            self.organization_id,
            _filter(wanted, self._instant("start"), self._instant("end"), failed=failed),
            ROWS + 1,
            self._after(),
        )
        shown = page.requests[:ROWS]
        kept = {name: query.get(name) for name in KEPT}
        goes_on_after = page.goes_on_after if len(shown) < ROWS else shown[-1].request_id
        if len(page.requests) <= ROWS and page.goes_on_after is None:
            goes_on_after = None
        next_href = ""
        if goes_on_after is not None:
            next_href = self.url("requests", **kept, after=public_request_id(goes_on_after))
        return self.show(
            table=self._table(shown, next_href),
            kept=kept,
            failed=failed,
            unknown_id=bool(query.get("id")),
            failed_href=self.url("requests", **{**kept, "failed": None if failed else "1"}),
            usage_href=self.url(
                "usage", **{name: kept[name] for name in ("project", "key", "model", "user", "tag")}
            ),
        )

    def _table(self, requests: tuple[RequestSummary, ...], next_href: str) -> Table:
        names = tenants.facade.key_names(self.actor, {one.key_id for one in requests})
        return Table(
            "Requests",
            [
                Column("Time"),
                Column("Model"),
                Column("Key", hides=True),
                Column("End user", hides=True),
                Column("Input", is_number=True),
                Column("Cached", is_number=True, hides=True),
                Column("Output", is_number=True),
                Column("First token", is_number=True, hides=True),
                Column("Charge", is_number=True),
                Column("End"),
            ],
            [
                Row(
                    [
                        formats.moment(one.occurred_at, self.zone),
                        one.model_served or one.model_asked,
                        names.get(one.key_id, formats.UNKNOWN),
                        one.end_user or formats.UNKNOWN,
                        formats.count(
                            one.counts.uncached_input_tokens + one.counts.cached_input_tokens
                        ),
                        formats.count(one.counts.cached_input_tokens),
                        formats.count(one.counts.output_tokens),
                        formats.duration_text(one.queue_ms + one.prefill_ms),
                        formats.money(one.charge_pico, one.currency),
                        badge(
                            one.finish_reason, "gray" if one.finish_reason in GOOD_ENDS else "red"
                        ),
                    ],
                    self.url("receipt", public_request_id(one.request_id)),
                )
                for one in requests
            ],
            empty="No request here. Take a filter away, or look at another period.",
            next_href=next_href,
        )

    def _instant(self, name: str) -> datetime | None:
        text = self.request.GET.get(name)
        if not text:
            return None
        try:
            at = datetime.fromisoformat(text)
        except ValueError:
            raise errors.invalid(f"'{name}' must be a time, by ISO 8601.", name) from None
        if at.year not in YEARS:
            raise errors.invalid(f"'{name}' must be of the years 2000 to 2199.", name)
        return (at if at.tzinfo else at.replace(tzinfo=self.zone)).astimezone(UTC)

    def _after(self) -> UUID | None:
        text = self.request.GET.get("after")
        if not text:
            return None
        found = parse_request_id(text)
        if found is None:
            raise errors.invalid("'after' must be a request's id.", "after")
        return found


def _filter(
    wanted: Asked, start_at: datetime | None, end_at: datetime | None, *, failed: bool
) -> RequestFilter:
    tag = END_USER if wanted.user else wanted.tag or None
    return RequestFilter(
        start_at=start_at,
        end_at=end_at,
        project_id=wanted.project_id,
        key_id=wanted.key_id,
        model=wanted.model or None,
        tier=ServiceTier(wanted.tier) if wanted.tier else None,
        errors_only=failed,
        tag=tag,
        tag_value=wanted.user or wanted.tag_value,
    )
