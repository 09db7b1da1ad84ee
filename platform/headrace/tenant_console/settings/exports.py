"""`/console/<slug>/settings/data`: everything the organization may see of its own, as a ZIP.

A worker writes it; this page has it written and hands it out. Called by the console's routes.
"""

from collections.abc import AsyncIterator
from uuid import UUID

from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.utils.html import format_html
from django.utils.safestring import SafeString

import tenants.facade
from headrace.console_kit import formats
from headrace.console_kit.pages import PageView
from headrace.console_kit.tables import Column, Row, Table
from headrace.console_kit.templatetags.kit import badge
from headrace.gateway.database import in_database
from tenants.contracts import Actor, Permission
from tenants.contracts.retention import Export, ExportPending

EXPORTS_SHOWN_MAX = 20
TONES = {"pending": "yellow", "ready": "green", "failed": "red"}
MEGABYTE = 1_000_000


class ExportsPage(PageView):
    """Exports that have not expired."""

    page = "settings"
    title = "Data exports"
    needs = writes = Permission.DATA_EXPORT
    is_sensitive = True
    template = "tenant_console/settings/data.html"

    def get(self, request: HttpRequest, slug: str) -> HttpResponse:
        """The list, newest first."""
        exports = tenants.facade.list_exports(self.actor, rows_max=EXPORTS_SHOWN_MAX)
        columns = [
            Column("Asked for"),
            Column("State"),
            Column("Size", is_number=True, hides=True),
            Column("Kept until", hides=True),
            Column("Download", is_hidden_title=True, is_number=True),
        ]
        rows = [self._row(one) for one in exports]
        return self.show(
            table=Table("Exports", columns, rows),
            is_pending=any(one.state == "pending" for one in exports),
            back=self.url("settings"),
        )

    def do_request(self, slug: str) -> HttpResponseBase:
        """Has one written."""
        try:
            tenants.facade.request_export(self.actor)
        except ExportPending as error:
            return self.refused(f"This cannot be done: {error}.")
        return self.said("The export is being written. A mail tells when it is ready")

    def _row(self, export: Export) -> Row:
        size = formats.UNKNOWN if export.size_bytes is None else _size_text(export.size_bytes)
        return Row(
            [
                formats.moment(export.created_at, self.zone),
                badge(export.state, TONES.get(export.state, "gray")),
                size,
                formats.moment(export.expires_at, self.zone),
                self._link(export) if export.state == "ready" else "",
            ]
        )

    def _link(self, export: Export) -> SafeString:
        href = self.url("settings-export", export.export_id)
        return format_html('<a class="btn btn-sm" href="{}" download>Download</a>', href)


class ExportDownload(PageView):
    """What an export holds."""

    page = "settings"
    title = "Data export"
    needs = Permission.DATA_EXPORT

    def get(self, request: HttpRequest, slug: str, export_id: UUID) -> HttpResponseBase:
        """The ZIP, in parts; the audit log says who took it."""
        tenants.facade.read_export(self.actor, export_id)
        if not self.signed_in_lately():
            return self.prove_again()
        export = tenants.facade.open_export(self.actor, export_id)
        return StreamingHttpResponse(
            _parts(self.actor, export_id),
            content_type="application/zip",
            headers={
                "content-length": str(export.size_bytes),
                "content-disposition": f'attachment; filename="export-{export_id}.zip"',
                "cache-control": "no-store",
                "x-content-type-options": "nosniff",
            },
        )


async def _parts(actor: Actor, export_id: UUID) -> AsyncIterator[bytes]:
    """One transaction a part; no thread waits while a slow client reads."""
    number = 0
    while True:
        part = await in_database(tenants.facade.export_part, actor, export_id, number)
        if part is None:
            return
        yield part
        number += 1


def _size_text(size_bytes: int) -> str:
    if size_bytes < MEGABYTE:
        return f"{-(-size_bytes // 1000):,} kB"
    tenths = size_bytes * 10 // MEGABYTE
    return f"{tenths // 10:,}.{tenths % 10} MB"
