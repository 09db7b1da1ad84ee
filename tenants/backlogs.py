"""How much waits for workers, over all tenants: what an operator watches.

Each number is one look into an index of what waits, however much was done before. Runs as the
housekeeper, names no tenant. Called when metrics are read.
"""

from django.db import connections

from tenants.contracts import TenantBacklogs

BACKLOG_COUNTED_MAX = 10_000
"""A longer queue is told as this long."""
_BACKLOGS = """
    SELECT coalesce((SELECT extract(epoch FROM now() - created_at) FROM tenants_outbox_event
                      WHERE fanned_out_at IS NULL ORDER BY id LIMIT 1), 0),
           (SELECT count(*) FROM (SELECT FROM tenants_webhook_delivery
                                   WHERE state = 'pending' AND next_at <= now() LIMIT %s) AS due),
           coalesce((SELECT extract(epoch FROM now() - min(next_at)) FROM tenants_webhook_delivery
                      WHERE state = 'pending'), 0),
           coalesce((SELECT extract(epoch FROM now() - min(next_at)) FROM tenants_mail
                      WHERE sent_at IS NULL AND failed_at IS NULL), 0),
           (SELECT count(*) FROM tenants_webhook_endpoint WHERE disabled_at IS NOT NULL),
           (SELECT count(*) FROM tenants_export WHERE state = 'pending'),
           coalesce((SELECT extract(epoch FROM now() - min(created_at)) FROM tenants_export
                      WHERE state = 'pending'), 0)"""


def backlogs(using: str = "housekeeper") -> TenantBacklogs:
    """What waits now; a lag is 0 where nothing is due."""
    with connections[using].cursor() as cursor:
        cursor.execute(_BACKLOGS, [BACKLOG_COUNTED_MAX])
        outbox_s, due, delivery_s, mail_s, disabled, exports, export_s = cursor.fetchone()
    return TenantBacklogs(
        outbox_lag_s=max(float(outbox_s), 0),
        deliveries_due=due,
        delivery_lag_s=max(float(delivery_s), 0),
        mail_lag_s=max(float(mail_s), 0),
        endpoints_disabled=disabled,
        exports_waiting=exports,
        export_lag_s=max(float(export_s), 0),
    )
