"""Usage of closed hours, on its way to Stripe's meters: planned as rows, then sent.

A row is the tokens of an organization, hour, model and class; its id is the event's identifier,
the hour its time. What an hour gains later is a row more. So whoever dies, and however often a row
is sent, each token is counted once. Called by tasks, as the housekeeper.
"""

import hashlib
import logging
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import NamedTuple
from uuid import UUID

import stripe
from django.db.models import F
from django.db.models.functions import Now

from billing.contracts import StripeExportReport
from billing.models import StripeExport
from billing.retry import call
from billing.stripe_sync.client import stripe_client
from billing.stripe_sync.customers import ensure_customer

HOUSEKEEPER = "housekeeper"
LOOK_BACK = timedelta(hours=48)
"""How far back a run looks for what an hour has gained; a day's run looks back REACH."""
REACH = timedelta(days=40)
"""Past what Stripe takes, so that what came too late is seen and said."""
TAKEN = timedelta(days=35)
"""How old an event's time may be; Stripe's rule."""
IDENTIFIER = timedelta(hours=23)
"""How long an identifier guards against doubles, Stripe's 24 hours less an hour."""
LATE = timedelta(hours=24)
SENT_MAX = 500
"""Rows one run sends; the rest waits for the next."""
METERS_MAX = 1000
EVENT_NAME_LENGTH_MAX = 100
FAILURE_LENGTH_MAX = 200
PREFIX = "headrace"
PLAN = """
    WITH used AS (
        SELECT h.organization_id, h.hour, h.model_served AS model,
               CASE h.tier WHEN 'batch' THEN 'batch_' ELSE '' END || class.name AS token_class,
               sum(class.tokens)::bigint AS tokens
          FROM billing_usage_hour h
         CROSS JOIN LATERAL (VALUES ('input', h.uncached_input_tokens),
                                    ('cached_input', h.cached_input_tokens),
                                    ('output', h.output_tokens)) AS class (name, tokens)
         WHERE h.hour >= %s AND h.hour < %s
           AND NOT EXISTS (SELECT FROM billing_stripe_account a
                            WHERE a.organization_id = h.organization_id AND a.is_demo)
         GROUP BY 1, 2, 3, 4
    ), told AS (
        SELECT organization_id, hour, model, token_class, sum(tokens) AS tokens,
               max(sequence) AS sequence
          FROM billing_stripe_export
         WHERE hour >= %s AND hour < %s
         GROUP BY 1, 2, 3, 4
    )
    INSERT INTO billing_stripe_export
        (id, organization_id, hour, model, token_class, sequence, tokens)
    SELECT uuidv7(), u.organization_id, u.hour, u.model, u.token_class,
           coalesce(t.sequence, 0) + 1, u.tokens - coalesce(t.tokens, 0)
      FROM used u
      LEFT JOIN told t
        ON (t.organization_id, t.hour, t.model, t.token_class)
         = (u.organization_id, u.hour, u.model, u.token_class)
     WHERE u.tokens > coalesce(t.tokens, 0)
    ON CONFLICT (organization_id, hour, model, token_class, sequence) DO NOTHING
    RETURNING id"""

logger = logging.getLogger(__name__)


class MeterKey(NamedTuple):
    """What a meter counts."""

    model: str
    token_class: str

    @property
    def event_name(self) -> str:
        """The meter's name for events: readable, and another for each model and class."""
        name = f"{PREFIX}_{self.token_class}_{self.model}"
        if len(name) <= EVENT_NAME_LENGTH_MAX:
            return name
        digest = hashlib.sha256(name.encode()).hexdigest()[:16]
        return f"{name[: EVENT_NAME_LENGTH_MAX - 17]}_{digest}"


@dataclass(slots=True)
class Meters:
    """Stripe's meters by event name; makes those that are missing."""

    known: dict[str, str] = field(default_factory=dict)

    def load(self) -> None:
        """Reads what there is."""
        meters = stripe_client().v1.billing.meters.list({"limit": 100, "status": "active"})
        for number, meter in enumerate(meters.auto_paging_iter()):
            assert number < METERS_MAX, "more meters than anybody has"
            self.known[meter.event_name] = meter.id

    def ensure(self, key: MeterKey) -> str:
        """The meter's id."""
        name = key.event_name
        if name not in self.known:
            made = stripe_client().v1.billing.meters.create(
                {
                    "display_name": f"{key.model} {key.token_class}"[:FAILURE_LENGTH_MAX],
                    "event_name": name,
                    "default_aggregation": {"formula": "sum"},
                },
                {"idempotency_key": f"meter-{name}"},
            )
            self.known[name] = made.id
        return self.known[name]


def export(
    now: datetime, look_back: timedelta = LOOK_BACK, using: str = HOUSEKEEPER
) -> StripeExportReport:
    """Plan the closed hours' rows, send what waits, and say how it stands."""
    until = now.replace(minute=0, second=0, microsecond=0)
    since = until - look_back
    planned = call(PLAN, [since, until, since, until], using)
    sent = _send_waiting(now, using)
    report = _report(now, len(planned), sent, using)
    if report.late:
        logger.error(
            "%d exports to stripe wait for more than a day; the oldest is of %s",
            report.late,
            report.oldest_pending_at,
        )
    return report


def _report(now: datetime, planned: int, sent: int, using: str) -> StripeExportReport:
    rows = call(
        "SELECT count(*) FILTER (WHERE state = 'pending'),"
        " count(*) FILTER (WHERE state = 'pending' AND hour < %s),"
        " min(hour) FILTER (WHERE state = 'pending'),"
        " count(*) FILTER (WHERE state = 'refused')"
        " FROM billing_stripe_export WHERE state = 'pending' OR created_at >= %s",
        [now - LATE, now - REACH],
        using,
    )
    [(pending, late, oldest, refused)] = rows
    return StripeExportReport(planned, sent, pending, late, refused, oldest)


def _send_waiting(now: datetime, using: str) -> int:
    """Sends what waits, the oldest first; returns how many rows it closed."""
    rows = list(
        StripeExport.objects.using(using)
        .filter(state="pending", hour__lt=now)
        .order_by("hour", "id")[:SENT_MAX]
    )
    if not rows:
        return 0
    meters = Meters()
    closed = 0
    try:
        meters.load()
        for row in rows:
            closed += _send(row, meters, now, using)
    except stripe.StripeError as error:
        # Away, or of another mind about our key: the rows wait, the report says how long.
        logger.warning("exports to stripe wait: %s", error.code or error)
    return closed


def _send(row: StripeExport, meters: Meters, now: datetime, using: str) -> bool:
    """Sends one row; whether that closed it. Raises StripeError when Stripe is away."""
    if row.hour <= now - TAKEN:
        return _close(row.id, "refused", "older than 35 days", using)
    customer_id = ensure_customer(row.organization_id, using)
    key = MeterKey(row.model, row.token_class)
    meter_id = meters.ensure(key)
    # An identifier sent so long ago may be forgotten: the sum says whether it arrived.
    is_old = row.sent_at is not None and row.sent_at <= now - IDENTIFIER
    if is_old and _counted(row, meter_id, customer_id) >= _delivered(row, using) + row.tokens:
        return _close(row.id, "delivered", "", using)
    _mark_sent(row, now, using)
    try:
        stripe_client().v1.billing.meter_events.create(
            {
                "event_name": key.event_name,
                "identifier": str(row.id),
                "timestamp": int(row.hour.timestamp()),
                "payload": {"stripe_customer_id": customer_id, "value": str(row.tokens)},
            }
        )
    except stripe.InvalidRequestError as error:
        if is_duplicate(error):
            return _close(row.id, "delivered", "", using)
        reason = f"{error.code or ''} {error.user_message or error}".strip()
        logger.error("stripe refuses export %s: %s", row.id, reason)  # noqa: TRY400 - said whole
        if error.param == "timestamp" or "timestamp" in str(error.code):
            return _close(row.id, "refused", reason, using)
        _note_failure(row.id, reason, using)
        return False
    return _close(row.id, "delivered", "", using)


def is_duplicate(error: stripe.InvalidRequestError) -> bool:
    """Whether Stripe refused an event because it has it: then it is delivered."""
    return error.http_status == 400 and (
        error.code in ("duplicate_meter_event", "resource_already_exists")
        or "already exists with identifier" in (error.user_message or str(error))
    )


def _counted(row: StripeExport, meter_id: str, customer_id: str) -> int:
    start = int(row.hour.timestamp())
    sums = stripe_client().v1.billing.meters.event_summaries.list(
        meter_id, {"customer": customer_id, "start_time": start, "end_time": start + 3600}
    )
    return sum(int(each.aggregated_value) for each in sums.data)


def _delivered(row: StripeExport, using: str) -> int:
    [(tokens,)] = call(
        "SELECT coalesce(sum(tokens), 0)::bigint FROM billing_stripe_export"
        " WHERE organization_id = %s AND hour = %s AND model = %s AND token_class = %s"
        " AND state = 'delivered'",
        [row.organization_id, row.hour, row.model, row.token_class],
        using,
    )
    return int(tokens)


def _mark_sent(row: StripeExport, now: datetime, using: str) -> None:
    waiting = StripeExport.objects.using(using).filter(id=row.id, state="pending")
    waiting.update(sent_at=row.sent_at or now, attempts=F("attempts") + 1)


def _note_failure(export_id: UUID, reason: str, using: str) -> None:
    waiting = StripeExport.objects.using(using).filter(id=export_id, state="pending")
    waiting.update(failure=reason[:FAILURE_LENGTH_MAX])


def _close(export_id: UUID, state: str, failure: str, using: str) -> bool:
    waiting = StripeExport.objects.using(using).filter(id=export_id, state="pending")
    return bool(waiting.update(state=state, failure=failure[:FAILURE_LENGTH_MAX], closed_at=Now()))
