"""`/console/<slug>/audit`: entries of the audit log, filtered and paged, and the chain's verdict.

Called by the console's routes.
"""

import json
from collections.abc import Iterable
from http import HTTPStatus
from uuid import UUID

from django.http import HttpRequest, HttpResponse
from django.template.loader import render_to_string
from django.utils.functional import cached_property
from django.utils.html import format_html
from django.utils.safestring import SafeString

import tenants.facade
from headrace.console_kit import formats
from headrace.console_kit.pages import PageView
from headrace.console_kit.tables import Column, Row, Table
from headrace.gateway.request_ids import public_request_id
from headrace.tenant_console.audit.forms import ACTIONS, KINDS, AuditForm
from tenants.contracts import ActorKind, AuditEntry, Permission

ENTRIES_SHOWN_MAX = 50
MEMBERS_MAX = 500
"""Whose addresses are shown, and offered as a filter."""
ID_CHARS_SHOWN = 8


class AuditPage(PageView):
    """What was done in the organization, newest first."""

    page = "audit"
    title = "Audit log"
    needs = Permission.AUDIT_READ
    template = "tenant_console/audit/page.html"

    def get(self, request: HttpRequest, slug: str) -> HttpResponse:
        """The filters are in the address; `?verdict=1` walks the chain."""
        form = AuditForm(request.GET, actors=self._actors)
        if not form.is_valid():
            return self._page(form, [], HTTPStatus.UNPROCESSABLE_ENTITY)
        entries = tenants.facade.list_audit(
            self.actor,
            form.wanted(self.zone),
            rows_max=ENTRIES_SHOWN_MAX + 1,
            after=self.asked_id("after"),
        )
        return self._page(form, entries)

    @cached_property
    def _members(self) -> dict[UUID, str]:
        found = tenants.facade.list_members(self.actor, rows_max=MEMBERS_MAX, ascending=True)
        return {one.user_id: one.email for one in found}

    @property
    def _actors(self) -> dict[UUID, str]:
        """Members, and whoever the address names."""
        asked = self.asked_id("actor")
        others = {asked: _short(asked)} if asked and asked not in self._members else {}
        return others | self._members

    def _page(
        self, form: AuditForm, entries: list[AuditEntry], status: int = HTTPStatus.OK
    ) -> HttpResponse:
        shown = entries[:ENTRIES_SHOWN_MAX]
        next_href = ""
        if len(entries) > ENTRIES_SHOWN_MAX:
            next_href = self.url("audit", **form.asked, after=shown[-1].entry_id)
        verdict = None
        if "verdict" in self.request.GET:
            verdict = tenants.facade.verify_audit_chain(self.organization_id)
        columns = [
            Column("When"),
            Column("Who", hides=True),
            Column("Action"),
            Column("Object", hides=True),
        ]
        keys = self._key_names(shown)
        rows = [self._row(entry, keys) for entry in shown]
        return self.show(
            status=status,
            form=form,
            table=Table("Audit log", columns, rows, "Nothing of this kind.", next_href),
            actions=ACTIONS,
            kinds=KINDS,
            is_filtered=bool(form.asked),
            plain_href=self.url("audit"),
            csv_href=self.url("audit-csv", **form.asked),
            verdict=verdict,
            verdict_href=self.url("audit", **form.asked, verdict="1"),
        )

    def _key_names(self, entries: Iterable[AuditEntry]) -> dict[UUID, str]:
        found = [one.actor_id for one in entries if one.actor_kind is ActorKind.API_KEY]
        key_ids = [key_id for key_id in found if key_id is not None]
        return tenants.facade.key_names(self.actor, key_ids) if key_ids else {}

    def _row(self, entry: AuditEntry, keys: dict[UUID, str]) -> Row:
        who = self._who(entry, keys)
        return Row(
            [
                format_html(
                    '<span class="text-nowrap">{}</span>',
                    formats.moment(entry.occurred_at, self.zone),
                ),
                who,
                self._action(entry, who),
                self._object(entry),
            ],
            id=f"entry-{entry.sequence}",
        )

    def _who(self, entry: AuditEntry, keys: dict[UUID, str]) -> SafeString | str:
        if entry.actor_id is None:
            return entry.actor_kind.value
        name = self._members.get(entry.actor_id)
        if entry.actor_kind is ActorKind.API_KEY:
            name = f"key {keys.get(entry.actor_id, _short(entry.actor_id))}"
        href = self.url("audit", actor=entry.actor_id)
        return format_html('<a href="{}">{}</a>', href, name or _short(entry.actor_id))

    def _object(self, entry: AuditEntry) -> SafeString:
        user_id = _parsed(entry.target_id) if entry.target_kind == "user" else None
        member = self._members.get(user_id) if user_id else None
        href = self.url("audit", kind=entry.target_kind, object=entry.target_id)
        return format_html(
            '<a href="{}" title="{}">{} {}</a>',
            href,
            entry.target_id,
            entry.target_kind,
            member or _short(entry.target_id),
        )

    def _action(self, entry: AuditEntry, who: SafeString | str) -> SafeString:
        details = [
            (name.replace("_", " "), value if isinstance(value, str) else json.dumps(value))
            for name, value in sorted(entry.details.items())
        ]
        request_id = public_request_id(entry.request_id) if entry.request_id else ""
        context = {"entry": entry, "who": who, "details": details, "request_id": request_id}
        template = "tenant_console/audit/details.html"
        return SafeString(render_to_string(template, context))


def _short(any_id: object) -> str:
    """The end of an id: ids of one time begin alike."""
    text = str(any_id)
    return text if len(text) <= ID_CHARS_SHOWN else f"…{text[-ID_CHARS_SHOWN:]}"


def _parsed(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None
