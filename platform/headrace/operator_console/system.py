"""`/operator/system`: what waits, how large things are, which versions run, settings that matter.

Most of it is what a worker wrote down last, with the time of it. Shows no secret.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.utils.safestring import SafeString

from headrace.console_kit import formats
from headrace.console_kit.tables import Column, Row, Table
from headrace.console_kit.templatetags.kit import badge
from headrace.operator_console.orders.placing import latest
from headrace.operator_console.pages import ZONE, OperatorView
from headrace.operator_console.reports.keeping import ReportName, last

ORDERS = 20
LATE_AFTER = 3
"""Reports that a worker may miss before it counts as away."""
WAITING = (
    ("tenants", "outbox_lag_s", "Oldest event not handed on", "s"),
    ("tenants", "deliveries_due", "Webhook deliveries due", ""),
    ("tenants", "delivery_lag_s", "Longest overdue delivery", "s"),
    ("tenants", "endpoints_disabled", "Webhook endpoints off after failures", ""),
    ("tenants", "mail_lag_s", "Longest overdue mail", "s"),
    ("tenants", "exports_waiting", "Exports not written", ""),
    ("billing", "rollup_events", "Usage not in rollups", ""),
)
SETTINGS = (
    "PUBLIC_URL",
    "ALLOWED_HOSTS",
    "OPERATOR_HOST",
    "REQUESTS_LIVE_MAX",
    "ENGINE_QUEUE_TIMEOUT_S",
    "REQUEST_DEADLINE_S",
    "BODY_BYTES_MAX",
    "DATABASE_POOL_MAX",
    "ACTOR_READS_PER_MINUTE_MAX",
    "ACTOR_WRITES_PER_MINUTE_MAX",
    "SESSION_COOKIE_AGE",
    "ACCOUNT_REAUTHENTICATION_TIMEOUT",
    "HOLD_LAPSE_S",
    "SWEEP_S",
    "USAGE_ROLL_UP_S",
    "RECONCILE_S",
    "LIVE_VIEWERS_MAX",
)
"""By name; none of them is a secret."""


class SystemPage(OperatorView):
    """The page."""

    page = "system"
    title = "System"
    template = "operator_console/system/page.html"

    def get(self, request: HttpRequest) -> HttpResponse:
        """What was last written down."""
        report = last(self.user_id, ReportName.HOUSE)
        seen = {} if report is None else report.content
        is_late = report is None or (
            (self.now - report.made_at).total_seconds() > LATE_AFTER * settings.OPERATOR_REPORT_S
        )
        return self.show(
            report=report,
            engines=seen.get("engines"),
            connections=seen.get("connections"),
            connections_max=seen.get("connections_max"),
            is_late=is_late,
            database=size_text(seen.get("database_bytes")),
            redis_size=size_text(seen.get("redis_bytes")),
            waiting=pairs("What waits", waiting(seen), "No worker has reported yet."),
            queues=pairs(
                "Queues",
                [
                    (name, formats.count(number))
                    for name, number in (seen.get("queues") or {}).items()
                ],
                "Redis is away, or no worker has reported yet.",
            ),
            sizes=pairs(
                "Largest tables",
                [(name, size_text(size)) for name, size in seen.get("tables", [])],
                "No worker has reported yet.",
            ),
            versions=pairs("Versions", versions(seen), "No worker has reported yet."),
            settings_table=pairs(
                "Settings", [(name, setting_text(getattr(settings, name))) for name in SETTINGS], ""
            ),
            orders=self._orders(),
        )

    def _orders(self) -> Table:
        columns = [
            *(Column("Ordered"), Column("What"), Column("By", hides=True)),
            *(Column("Outcome"), Column("Said", hides=True)),
        ]
        rows = [
            Row(
                [
                    formats.moment(one.placed_at, ZONE),
                    one.kind.value.replace("_", " "),
                    one.operator_email,
                    outcome_badge(one.outcome.value),
                    one.text,
                ]
            )
            for one in latest(self.user_id, ORDERS)
        ]
        return Table("Orders", columns, rows, empty="Nobody has ordered anything.")


def waiting(seen: Mapping[str, Any]) -> list[tuple[str, object]]:
    """Each backlog by its name."""
    return [
        (
            label,
            formats.duration_text(round(1000 * seen[part][name]))
            if unit
            else formats.count(seen[part][name]),
        )
        for part, name, label, unit in WAITING
        if part in seen
    ]


def versions(seen: Mapping[str, Any]) -> list[tuple[str, object]]:
    """Of what runs."""
    found = dict(seen.get("versions", {}))
    if "postgresql" in seen:
        found |= {"PostgreSQL": seen["postgresql"], "Redis or Valkey": seen["redis"]}
    ordered = sorted(found.items(), key=lambda item: item[0].lower())
    return [(name, number or formats.UNKNOWN) for name, number in ordered]


def pairs(caption: str, rows: Iterable[tuple[str, object]], empty: str) -> Table:
    """A table of names and values."""
    columns = (Column("Name"), Column("Value", is_number=True))
    return Table(caption, columns, [Row(row) for row in rows], empty=empty)


def size_text(size_bytes: int | None) -> str:
    """`3.4 GiB`."""
    if size_bytes is None:
        return formats.UNKNOWN
    size, unit = size_bytes, "bytes"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if size < 10 * 1024:
            break
        size, unit = size // 1024, larger
    return f"{size:,} {unit}"


def setting_text(value: object) -> str:
    """As somebody would write it."""
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return formats.UNKNOWN if value == "" else str(value)


def outcome_badge(outcome: str) -> SafeString:
    """The word and its colour."""
    tones = {"done": "green", "refused": "red"}
    return badge(outcome or "waiting", tones.get(outcome, "yellow"))
