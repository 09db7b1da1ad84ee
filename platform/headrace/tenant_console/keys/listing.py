"""`/console/<slug>/keys`: the keys of projects, or those that administer, with what each did.

Reads a page of keys and one query of what all of them used. Called by the console's routes.
"""

from collections.abc import Sequence

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.template.loader import render_to_string
from django.utils.html import format_html
from django.utils.safestring import SafeString

import billing.facade
import tenants.facade
from headrace.console_kit import formats
from headrace.console_kit.tables import Column, Row, Table
from headrace.console_kit.templatetags.kit import badge, spark
from headrace.tenant_console.keys.named import KeysView
from headrace.tenant_console.keys.snippets import chat_curl
from headrace.tenant_console.keys.states import limits_text, models_text, scopes_text
from tenants.contracts import KeyInfo, KeyKind, Permission

KEYS_SHOWN_MAX = 50
DAYS = 14


class KeysPage(KeysView):
    """All keys of a kind, of one project if asked, newest first."""

    title = "API keys"
    needs = Permission.KEYS_READ
    template = "tenant_console/keys/page.html"

    def get(self, request: HttpRequest, slug: str) -> HttpResponse:
        """`?project=`, `?kind=admin`, `?revoked=1`, `?after=`."""
        kind = KeyKind.ADMIN if request.GET.get("kind") == "admin" else KeyKind.PROJECT
        with_revoked = "revoked" in request.GET
        of_project = self.project if kind is KeyKind.PROJECT else None
        keys = tenants.facade.list_keys(
            self.actor,
            kind,
            of_project.project_id if of_project else None,
            with_revoked=with_revoked,
            rows_max=KEYS_SHOWN_MAX + 1,
            after=self.asked_id("after"),
        )
        self.filters = {
            "project": of_project.project_id if of_project else None,
            "kind": "admin" if kind is KeyKind.ADMIN else None,
        }
        shown = keys[:KEYS_SHOWN_MAX]
        table = self._admin_table(shown) if kind is KeyKind.ADMIN else self._table(shown)
        next_href = ""
        if len(keys) > KEYS_SHOWN_MAX:
            revoked = "1" if with_revoked else None
            after = shown[-1].key_id
            next_href = self.url("keys", **self.filters, revoked=revoked, after=after)
        return self.show(
            table=Table("API keys", *table, next_href=next_href),
            is_admin=kind is KeyKind.ADMIN,
            may_make=self.may(Permission.KEYS_WRITE)
            and (kind is KeyKind.PROJECT or self.may(Permission.MEMBERS_WRITE)),
            with_revoked=with_revoked,
            revoked_href=self.url("keys", **self.filters, revoked=None if with_revoked else "1"),
            new_href=self.url("keys-new", **self.filters),
            example=chat_curl(
                f"{settings.PUBLIC_URL}/v1", "YOUR_KEY", self.models[0] if self.models else "MODEL"
            ),
        )

    def _table(self, keys: list[KeyInfo]) -> tuple[list[Column], list[Row]]:
        used = billing.facade.key_activity(
            self.organization_id, self.now, str(self.zone), [key.key_id for key in keys]
        )
        columns = [
            Column("Name"),
            Column("Project", hides=True),
            Column("Scopes", hides=True),
            Column("Models", hides=True),
            Column("Limits", hides=True),
            Column("Last used"),
            Column(f"{DAYS} days", hides=True),
            Column("State"),
        ]
        rows = []
        for key in keys:
            activity = used.get(key.key_id)
            cells = [
                self._name(key),
                self.project_name(key.project_id),
                scopes_text(key.settings.scopes),
                models_text(key.settings.models),
                limits_text(key.settings.limits),
                formats.age(key.last_used_at, self.zone, self.now),
                sparked(list(activity.requests) if activity else [0] * DAYS),
                self._state(key),
            ]
            rows.append(self._row(key, cells))
        return columns, rows

    def _admin_table(self, keys: list[KeyInfo]) -> tuple[list[Column], list[Row]]:
        columns = [Column("Name"), Column("Permissions"), Column("Last used"), Column("State")]
        rows = []
        for key in keys:
            permissions = len(key.permissions)
            allowed = "all" if permissions == len(Permission) else str(permissions)
            used = formats.age(key.last_used_at, self.zone, self.now)
            rows.append(self._row(key, [self._name(key), allowed, used, self._state(key)]))
        return columns, rows

    def _row(self, key: KeyInfo, cells: Sequence[object]) -> Row:
        href = self.url("key", key.key_id)
        return Row(cells, href, is_muted=not self.state(key).works)

    def _name(self, key: KeyInfo) -> SafeString:
        account = self.account_name(key.service_account_id)
        return format_html(
            '{}<span class="cell-note"><span class="text-nowrap">{}…{}</span>{}</span>',
            key.settings.name,
            key.prefix,
            key.last4,
            f" · {account}" if account else "",
        )

    def _state(self, key: KeyInfo) -> SafeString:
        state = self.state(key)
        if state.ends_at is None:
            return badge(state.word, state.tone)
        return format_html(
            '{}<span class="cell-note text-nowrap">{}{}</span>',
            badge(state.word, state.tone),
            "stops " if state.word == "rotating" else "",
            formats.age(state.ends_at, self.zone, self.now),
        )


def sparked(values: list[int]) -> SafeString:
    """Requests by day, as a line."""
    context = spark(values, f"Requests, last {DAYS} days")
    return SafeString(render_to_string("kit/components/spark.html", context))
