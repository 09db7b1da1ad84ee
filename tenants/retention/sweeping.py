"""Forgetting what has had its time: kept prompts and answers, exports, old events and mail.

Works in bounded pieces, so that no lock is held for long; what is over its time is not shown in
the meantime either. Called by the sweep task, as the housekeeper.
"""

from django.db import connections

HOUSEKEEPER_ALIAS = "housekeeper"
PIECE_MAX = 1_000
PIECES_MAX = 100
"""Of one table in one sweep."""
EVENTS_KEPT_DAYS = 30
MAIL_KEPT_DAYS = 30
INVITATIONS_KEPT_DAYS = 90
"""After they have expired; the audit log keeps that there was one."""

_OVER = {
    "tenants_idempotent_request": "expires_at <= now()",
    "tenants_exchange": "expires_at <= now() OR EXISTS (SELECT FROM tenants_organization o"
    " WHERE o.id = organization_id AND o.prompts_kept_days IS NULL)",
    "tenants_export": "expires_at <= now()",
    "tenants_outbox_event": "created_at <= now() - make_interval(days => %(events)s)"
    " AND fanned_out_at IS NOT NULL",
    "tenants_invitation": "expires_at <= now() - make_interval(days => %(invitations)s)",
    "tenants_mail": "created_at <= now() - make_interval(days => %(mail)s)"
    " AND (sent_at IS NOT NULL OR failed_at IS NOT NULL)",
}
"""An organization that keeps prompts no more has those it kept forgotten too."""


def sweep_retention() -> int:
    """Delete what has expired, of all tenants; returns how many rows went."""
    return sum(_sweep(table, over) for table, over in _OVER.items())


def _sweep(table: str, over: str) -> int:
    swept = 0
    for _ in range(PIECES_MAX):
        with connections[HOUSEKEEPER_ALIAS].cursor() as cursor:
            cursor.execute(
                f"DELETE FROM {table} WHERE id IN"  # noqa: S608 - our own text
                f" (SELECT id FROM {table} WHERE {over} LIMIT %(most)s FOR UPDATE SKIP LOCKED)",
                {
                    "most": PIECE_MAX,
                    "events": EVENTS_KEPT_DAYS,
                    "invitations": INVITATIONS_KEPT_DAYS,
                    "mail": MAIL_KEPT_DAYS,
                },
            )
            swept += cursor.rowcount
            if cursor.rowcount < PIECE_MAX:
                break
    return swept
