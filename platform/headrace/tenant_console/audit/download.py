"""`/console/<slug>/audit.csv`: the entries that the page's filters show, all of them, as a file.

With the fields of the API, newest first; never a part of them without saying so. Called by the
console's routes.
"""

import json
from collections.abc import Sequence
from http import HTTPStatus

from django.conf import settings
from django.http import HttpRequest, HttpResponse

import tenants.facade
from headrace.management_api.csv_rows import csv_rows
from headrace.management_api.people.audit import render_entry
from headrace.tenant_console.audit.forms import AuditForm
from headrace.tenant_console.audit.log import AuditPage
from tenants.contracts import AuditEntry

CSV_HEAD = (
    *("sequence", "occurred_at", "action", "actor_kind", "actor_id", "ip", "request_id"),
    *("target_kind", "target_id", "details", "id"),
)


class AuditCsv(AuditPage):
    """A file; where there is none the page, which says why."""

    def get(self, request: HttpRequest, slug: str) -> HttpResponse:
        """The filters are in the address, as those of the page; AUDIT_CSV_ROWS_MAX at most."""
        form = AuditForm(request.GET, actors=self._actors)
        entries = []
        if form.is_valid():
            entries = tenants.facade.list_audit(
                self.actor, form.wanted(self.zone), rows_max=settings.AUDIT_CSV_ROWS_MAX + 1
            )
        if len(entries) > settings.AUDIT_CSV_ROWS_MAX:
            form.add_error("since", f"A file has at most {settings.AUDIT_CSV_ROWS_MAX:,} entries.")
        if form.errors:
            return self._page(form, entries, HTTPStatus.UNPROCESSABLE_ENTITY)
        return HttpResponse(
            _file(entries),
            content_type="text/csv; charset=utf-8",
            headers={"content-disposition": 'attachment; filename="audit.csv"'},
        )


def _file(entries: Sequence[AuditEntry]) -> bytes:
    rows = []
    for entry in entries:
        shown = render_entry(entry)
        shown["details"] = json.dumps(shown["details"], ensure_ascii=False, sort_keys=True)
        rows.append([shown[name] for name in CSV_HEAD])
    return csv_rows([CSV_HEAD, *rows])
