"""Billing meters: events in, sums per customer out. Handlers of `app`.

An identifier counts once for 24 hours, an event's time must lie within 35 days past and 5 minutes
ahead, as Stripe has it. Values are whole numbers here.
"""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from billing.stripe_sync.fake.faults import Fault, invalid
from billing.stripe_sync.fake.parameters import Parameters
from billing.stripe_sync.fake.routes import Route, listing, retrieve
from billing.stripe_sync.fake.store import Json, Store, page

IDENTIFIER_S = 24 * 3600
PAST_S = 35 * 24 * 3600
AHEAD_S = 5 * 60
STREAM_EVENTS_MAX = 100
SESSION_S = 15 * 60
WINDOWS_S = {"hour": 3600, "day": 24 * 3600}


def create_meter(store: Store, parameters: Parameters) -> Json:
    """POST /v1/billing/meters"""
    event_name = parameters.needed("event_name")
    for each in store.all("billing.meter"):
        if each["event_name"] == event_name and each["status"] == "active":
            raise invalid(
                f"A meter with the event name '{event_name}' already exists.",
                "event_name",
                "duplicate_meter_event_name",
            )
    mapping = parameters.within("customer_mapping")
    aggregation = parameters.within("default_aggregation")
    values = parameters.within("value_settings")
    meter = store.add(
        "billing.meter",
        {
            "id": store.new_id("mtr_test"),
            "object": "billing.meter",
            "created": store.now(),
            "customer_mapping": {
                "event_payload_key": mapping.text("event_payload_key") or "stripe_customer_id",
                "type": mapping.choice("type", ("by_id",), "by_id"),
            },
            "default_aggregation": {
                "formula": aggregation.choice("formula", ("sum", "count", "last"), "sum")
            },
            "display_name": parameters.needed("display_name"),
            "event_name": event_name,
            "event_time_window": parameters.text("event_time_window"),
            "livemode": False,
            "status": "active",
            "status_transitions": {"deactivated_at": None},
            "updated": store.now(),
            "value_settings": {"event_payload_key": values.text("event_payload_key") or "value"},
        },
    )
    for part in (mapping, aggregation, values):
        part.finish()
    store.emit("billing.meter.created", meter)
    return meter


def deactivate_meter(store: Store, parameters: Parameters, meter_id: str) -> Json:
    """POST /v1/billing/meters/{id}/deactivate"""
    meter = store.get("billing.meter", meter_id)
    meter["status"] = "inactive"
    meter["status_transitions"]["deactivated_at"] = store.now()
    store.emit("billing.meter.deactivated", meter)
    return meter


def reactivate_meter(store: Store, parameters: Parameters, meter_id: str) -> Json:
    """POST /v1/billing/meters/{id}/reactivate"""
    meter = store.get("billing.meter", meter_id)
    meter["status"] = "active"
    meter["status_transitions"]["deactivated_at"] = None
    store.emit("billing.meter.reactivated", meter)
    return meter


def create_event(store: Store, parameters: Parameters) -> Json:
    """POST /v1/billing/meter_events"""
    name = parameters.needed("event_name")
    identifier = parameters.text("identifier")
    timestamp = parameters.integer("timestamp")
    payload = parameters.tree("payload") or {}
    parameters.finish()
    return _record(store, name, payload, identifier, timestamp)


def _record(
    store: Store,
    name: str,
    payload: Mapping[str, Any],
    identifier: str | None,
    timestamp: int | None,
) -> Json:
    """Takes one event in. Raises Fault as Stripe refuses it."""
    now = store.now()
    meter = _active_meter(store, name)
    customer_id = _counted_customer(store, meter, payload)
    at = now if timestamp is None else timestamp
    if at < now - PAST_S:
        raise invalid(
            "The timestamp of a meter event must be within the past 35 days.",
            "timestamp",
            "timestamp_too_far_in_past",
        )
    if at > now + AHEAD_S:
        raise invalid(
            "The timestamp of a meter event must not be more than 5 minutes in the future.",
            "timestamp",
            "timestamp_in_future",
        )
    identifier = identifier or store.new_id("idmp")
    _take_identifier(store, identifier)
    return _shown(
        store.add(
            "billing.meter_event",
            {
                "id": identifier,
                "meter": meter["id"],
                "customer": customer_id,
                "object": "billing.meter_event",
                "created": now,
                "event_name": name,
                "identifier": identifier,
                "livemode": False,
                "payload": dict(payload),
                "timestamp": at,
            },
        )
    )


def _active_meter(store: Store, name: str) -> Json:
    for meter in store.all("billing.meter"):
        if meter["event_name"] == name and meter["status"] == "active":
            return meter
    raise invalid(f"No active meter found for event name: '{name}'.", "event_name", "no_meter")


def _counted_customer(store: Store, meter: Json, payload: Mapping[str, Any]) -> str:
    """Whose event it is; the value must be there too."""
    customer_key = meter["customer_mapping"]["event_payload_key"]
    value_key = meter["value_settings"]["event_payload_key"]
    codes = {
        customer_key: "meter_event_no_customer_defined",
        value_key: "meter_event_value_not_found",
    }
    for key, code in codes.items():
        if not isinstance(payload.get(key), str):
            raise invalid(f"Missing payload key: '{key}'.", f"payload[{key}]", code)
    customer_id: str = payload[customer_key]
    customer = store.find("customer", customer_id)
    if customer is None or customer.get("deleted"):
        raise invalid(
            f"No such customer: '{customer_id}'", f"payload[{customer_key}]", "resource_missing"
        )
    if not payload[value_key].isdecimal():
        raise invalid(
            "The value of a meter event must be a whole number.",
            f"payload[{value_key}]",
            "meter_event_invalid_value",
        )
    return customer_id


def _take_identifier(store: Store, identifier: str) -> None:
    known = store.find("billing.meter_event", identifier)
    if known is None:
        return
    if store.now() - known["created"] < IDENTIFIER_S:
        raise Fault(
            400,
            f"An event already exists with identifier {identifier}.",
            param="identifier",
            code="duplicate_meter_event",
        )
    # From then on the identifier counts anew, so the older event keeps another id.
    events = store.kinds["billing.meter_event"]
    events[f"{identifier}/{store.new_id('past')}"] = events.pop(identifier)


def _shown(event: Json) -> Json:
    return {key: value for key, value in event.items() if key not in ("id", "meter", "customer")}


def summaries(store: Store, parameters: Parameters, meter_id: str) -> Json:
    """GET /v1/billing/meters/{id}/event_summaries: sums of one customer, newest window first."""
    meter = store.get("billing.meter", meter_id)
    customer_id = parameters.needed("customer")
    start, end = parameters.needed_integer("start_time"), parameters.needed_integer("end_time")
    window = parameters.text("value_grouping_window")
    if window is not None and window not in WINDOWS_S:
        raise invalid(
            "Invalid value_grouping_window: must be one of hour, day", "value_grouping_window"
        )
    step = WINDOWS_S.get(window or "", 60)
    if start % step or end % step or start >= end:
        raise invalid(
            f"start_time and end_time must be in order and aligned to {step} seconds.", "start_time"
        )
    size = end - start if window is None else step
    values: dict[int, list[int]] = {}
    for event in reversed(list(store.all("billing.meter_event"))):
        if (
            event["meter"] == meter_id
            and event["customer"] == customer_id
            and start <= event["timestamp"] < end
        ):
            key = meter["value_settings"]["event_payload_key"]
            bucket = start + (event["timestamp"] - start) // size * size
            values.setdefault(bucket, []).append(int(event["payload"][key]))
    formulas: dict[str, Callable[[list[int]], int]] = {
        "sum": sum,
        "count": len,
        "last": lambda taken: taken[-1],
    }
    aggregate = formulas[meter["default_aggregation"]["formula"]]
    found = [
        {
            "id": f"mtrusg_test_{meter_id[-8:]}{bucket:x}",
            "object": "billing.meter_event_summary",
            "aggregated_value": aggregate(taken),
            "end_time": bucket + size,
            "livemode": False,
            "meter": meter_id,
            "start_time": bucket,
        }
        for bucket, taken in sorted(values.items(), reverse=True)
    ]
    return page(
        iter(found),
        f"/v1/billing/meters/{meter_id}/event_summaries",
        parameters.integer("limit"),
        parameters.text("starting_after"),
        parameters.text("ending_before"),
    )


def create_v2_event(store: Store, parameters: Parameters) -> Json:
    """POST /v2/billing/meter_events"""
    event = _record_v2(store, parameters)
    return event | {
        "object": "v2.billing.meter_event",
        "created": _written(event["created"]),
        "timestamp": _written(event["timestamp"]),
    }


def create_session(store: Store, parameters: Parameters) -> Json:
    """POST /v2/billing/meter_event_session: a token for the stream."""
    session = store.add(
        "meter_event_session",
        {
            "id": store.new_id("mes_test"),
            "object": "v2.billing.meter_event_session",
            "authentication_token": store.new_id("token"),
            "created": _written(store.now()),
            "expires_at": _written(store.now() + SESSION_S),
            "livemode": False,
        },
    )
    store.kinds.setdefault("meter_event_token", {})[session["authentication_token"]] = {
        "id": session["authentication_token"],
        "expires_at": store.now() + SESSION_S,
    }
    return session


def create_stream(store: Store, parameters: Parameters) -> Json:
    """POST /v2/billing/meter_event_stream: up to 100 events, all taken in or none."""
    events = parameters.each("events")
    parameters.finish()
    if not 1 <= len(events) <= STREAM_EVENTS_MAX:
        raise invalid(f"events must have 1 to {STREAM_EVENTS_MAX} items", "events")
    before = dict(store.kinds.get("billing.meter_event", {}))
    try:
        for each in events:
            _record_v2(store, each)
    except Fault:
        store.kinds["billing.meter_event"] = before
        raise
    return {}


def _record_v2(store: Store, parameters: Parameters) -> Json:
    name, identifier = parameters.needed("event_name"), parameters.text("identifier")
    written = parameters.text("timestamp")
    payload = parameters.tree("payload") or {}
    parameters.finish()
    try:
        at = None if written is None else int(datetime.fromisoformat(written).timestamp())
    except ValueError as error:
        raise invalid("Invalid timestamp: must be RFC 3339", "timestamp") from error
    return _record(store, name, payload, identifier, at)


def _written(at: int) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z")


ROUTES = (
    Route("POST", "/v1/billing/meters", create_meter),
    Route("GET", "/v1/billing/meters", listing("billing.meter", "/v1/billing/meters", "status")),
    Route("GET", "/v1/billing/meters/{}", retrieve("billing.meter")),
    Route("POST", "/v1/billing/meters/{}/deactivate", deactivate_meter),
    Route("POST", "/v1/billing/meters/{}/reactivate", reactivate_meter),
    Route("GET", "/v1/billing/meters/{}/event_summaries", summaries),
    Route("POST", "/v1/billing/meter_events", create_event),
    Route("POST", "/v2/billing/meter_events", create_v2_event),
    Route("POST", "/v2/billing/meter_event_session", create_session),
    Route("POST", "/v2/billing/meter_event_stream", create_stream),
)
