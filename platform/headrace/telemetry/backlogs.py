"""What waits for workers, as gauges: read off the database whenever the worker's metrics are read.

Shows nothing while the database is away: alert on absence too. No gauge names a tenant. Registered
by the worker, whose database role sees all tenants; never by the web process.
"""

import structlog
from django.db import DatabaseError, InterfaceError, connections
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

import billing.facade
import tenants.facade

HOUSEKEEPER_ALIAS = "housekeeper"

log = structlog.get_logger(__name__)


class BacklogCollector(Collector):
    """The gauges of both packages."""

    def describe(self) -> list[Metric]:
        """Nothing in advance: registering must not ask the database."""
        return []

    def collect(self) -> list[Metric]:
        """Prometheus families of this moment; none without a database."""
        try:
            events = tenants.facade.backlogs(HOUSEKEEPER_ALIAS)
            usage = billing.facade.backlogs(HOUSEKEEPER_ALIAS)
        except (DatabaseError, InterfaceError) as error:
            log.warning("backlogs not read: database away", error=str(error).strip())
            return []
        finally:
            connections[HOUSEKEEPER_ALIAS].close()  # each reading comes on a thread of its own
        return [
            GaugeMetricFamily(f"headrace_{name}", help_text, value=value)
            for name, help_text, value in (
                ("outbox_lag_seconds", "Oldest event not fanned out", events.outbox_lag_s),
                ("webhook_deliveries_due", "Deliveries that are due", events.deliveries_due),
                ("webhook_delivery_lag_seconds", "Longest overdue", events.delivery_lag_s),
                ("webhook_endpoints_disabled", "Failed too long", events.endpoints_disabled),
                ("mail_lag_seconds", "Longest overdue mail", events.mail_lag_s),
                ("exports_waiting", "Exports asked for, not written", events.exports_waiting),
                ("export_lag_seconds", "Oldest export not written", events.export_lag_s),
                ("rollup_queue_events", "Usage not in rollups", usage.rollup_events),
                ("stripe_export_late_hours", "Oldest hour untold", usage.stripe_late_hours),
                ("stripe_inbox_lag_seconds", "Oldest message", usage.stripe_inbox_lag_s),
                ("stripe_messages_rejected", "Not signed by Stripe", usage.stripe_rejected),
                ("stripe_messages_unapplied", "Signed, not taken", usage.stripe_unapplied),
            )
        ]
