"""`/console/<slug>/playground`: a conversation with a model, over `/v1/stream` like any client's.

The page's script opens the socket with a ticket for this person's session, on behalf of the
project's playground key: so holds, limits, prices and receipts are those of every request, and
revoking the key, signing out or losing the right ends it. Nothing of a conversation is kept here.
"""

from collections.abc import Sequence

from django.conf import settings
from django.http import HttpRequest, HttpResponse, JsonResponse

import billing.facade
import tenants.facade
from billing.contracts import Quote
from headrace import errors
from headrace.console_kit.pages import PageView
from headrace.gateway.announcing import reports_now
from headrace.gateway.transport.tickets import issue_to_person
from tenants.contracts import KeyScope, KeySettings, Permission

KEY = KeySettings("Playground", scopes=frozenset({KeyScope.CHAT}))
"""One of each project, of an account of its own, made when it is first needed."""
OUTPUT_TOKENS = 512
"""Asked for at first: a reader's patience, not a model's limit."""


class PlaygroundPage(PageView):
    """The page, and tickets for its script."""

    page = "playground"
    title = "Playground"
    needs = Permission.PLAYGROUND
    writes = Permission.PLAYGROUND
    template = "tenant_console/playground/page.html"

    def get(self, request: HttpRequest, slug: str) -> HttpResponse:
        """The page for the project that the address names, or the first; the first model that an
        engine serves now is chosen."""
        project = self.project or next(iter(self.projects), None)
        sold = (
            billing.facade.models_for_sale(self.organization_id, project.project_id)
            if project
            else []
        )
        about = {
            "place": slug,
            "currency": self.currency,
            "base_url": f"{settings.PUBLIC_URL.rstrip('/')}/v1",
            "receipts": self.url("requests"),
            "counted": self._counted,
            "models": {name: _priced(quote) for name, quote in sold},
        }
        return self.show(
            chosen=project,
            offered=_served_first(sold),
            about=about,
            output_tokens=OUTPUT_TOKENS,
            projects_href=self.url("projects"),
            keys_href=self.link("keys"),
        )

    def do_ticket(self, slug: str) -> HttpResponse:
        """A ticket as JSON, for one socket; raises ApiError 404 for a project that is not here."""
        project_id = self.posted_id("project")
        if all(project.project_id != project_id for project in self.projects):
            raise errors.ApiError(404, "No such project.")
        key_id = tenants.facade.key_of_service_account(self.actor, project_id, KEY)
        identity = tenants.facade.identity_of_key(self.actor, key_id)
        ticket = issue_to_person(identity, self.user_id)
        return JsonResponse({"ticket": ticket}, headers={"cache-control": "no-store"})

    @property
    def _counted(self) -> str:
        """Where a request's receipt is told in numbers; '' for who may not see it."""
        if not self.may(Permission.REQUESTS_READ):
            return ""
        return f"/api/v1/organizations/{self.organization_id}/requests/"


def _served_first(sold: Sequence[tuple[str, Quote]]) -> list[tuple[str, Quote, bool]]:
    """With whether an engine serves it now; while nobody knows, all are taken to be served."""
    reports = reports_now()
    serving = None if reports is None else {report.model for report in reports}
    offered = [
        (name, quote, serving is None or quote.offer.public_id in serving) for name, quote in sold
    ]
    return sorted(offered, key=lambda one: not one[2])


def _priced(quote: Quote) -> dict[str, int]:
    """Amounts in pico-units per token, which are micro-units per million tokens."""
    return {
        "input_pico": quote.input_micros_per_mtok,
        "cached_pico": quote.cached_input_micros_per_mtok,
        "output_pico": quote.output_micros_per_mtok,
        "output_tokens_max": quote.offer.output_tokens_max,
        "context_tokens_max": quote.offer.context_tokens_max,
    }
