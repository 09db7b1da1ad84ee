"""What the back office shows of the operator's own orders and reports: to be read only.

Imported by the back office's process alone, whose site hides signatures and lets nobody write.
"""

from django.contrib import admin

from headrace.operator_console.models import OrderRow, ReportRow

register = admin.site.register

register(
    OrderRow,
    list_display=("id", "kind", "operator_id", "placed_at", "outcome", "ended_at"),
    list_filter=("outcome",),
)
register(ReportRow, list_display=("name", "made_at"))
