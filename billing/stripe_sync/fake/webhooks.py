"""Delivering events to webhook endpoints, signed as Stripe signs, well or badly as told.

Each endpoint has modes: delay, duplicates, reorder, tamper, drop, and several secrets while one is
being rotated. A delivery that is not answered 2xx is tried again. Called by `app` and `controls`.
"""

import asyncio
import hashlib
import hmac
import http.client
import json
from collections.abc import Coroutine
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

from billing.stripe_sync.fake.faults import invalid
from billing.stripe_sync.fake.parameters import Parameters
from billing.stripe_sync.fake.routes import Route, listing, retrieve
from billing.stripe_sync.fake.store import API_VERSION, Json, Store

DELIVERIES_AT_ONCE_MAX = 16
ATTEMPTS_MAX = 8
TIMEOUT_S = 20
STALE_S = 330
"""How far off the time of a stale signature is: past the tolerance that everybody uses."""
TAMPERINGS = ("", "body", "past", "future", "reserialised", "missing", "secret")
MODES: Json = {
    "delay_ms": 0,
    "duplicates": 0,
    "reorder": 0,
    "tamper": "",
    "drop": 0,
    "retry_ms": 1000,
    "secrets": [],
}
"""`reorder` gathers that many events and delivers them backwards; `drop` loses that many
deliveries; `duplicates` are sent besides each delivery, at the same time."""


def new_endpoint(store: Store, url: str, secret: str, enabled: list[str]) -> Json:
    """An endpoint that behaves."""
    endpoint = store.add(
        "webhook_endpoint",
        {
            "id": store.new_id("we"),
            "object": "webhook_endpoint",
            "api_version": API_VERSION,
            "application": None,
            "created": store.now(),
            "description": None,
            "enabled_events": enabled,
            "livemode": False,
            "metadata": {},
            "status": "enabled",
            "url": url,
        },
    )
    store.kinds.setdefault("endpoint_modes", {})[endpoint["id"]] = {
        **MODES,
        "id": endpoint["id"],
        "secrets": [secret],
    }
    return endpoint


def create_endpoint(store: Store, parameters: Parameters) -> Json:
    """POST /v1/webhook_endpoints: only this answer shows the secret."""
    url, enabled = parameters.needed("url"), parameters.words("enabled_events")
    if not enabled:
        raise invalid("Missing required param: enabled_events.", "enabled_events")
    secret = f"whsec_{store.new_id('x')[2:]}"
    return new_endpoint(store, url, secret, enabled) | {"secret": secret}


def delete_endpoint(store: Store, parameters: Parameters, endpoint_id: str) -> Json:
    """DELETE /v1/webhook_endpoints/{id}"""
    store.get("webhook_endpoint", endpoint_id)
    del store.kinds["webhook_endpoint"][endpoint_id]
    return {"id": endpoint_id, "object": "webhook_endpoint", "deleted": True}


def signature(body: bytes, secrets: list[str], at: int) -> str:
    """The header: a time and one signature a secret."""
    signed = b"%d." % at + body
    made = [hmac.new(each.encode(), signed, hashlib.sha256).hexdigest() for each in secrets]
    return ",".join([f"t={at}", *(f"v1={each}" for each in made)])


class Deliverer:
    """Sends events on the loop it was made on; `idle` waits until none is under way."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._tasks: set[asyncio.Task[None]] = set()
        self._at_once = asyncio.Semaphore(DELIVERIES_AT_ONCE_MAX)
        self._gathered: dict[str, list[Json]] = {}
        store.on_event = self.deliver

    def deliver(self, event: Json) -> None:
        """Starts the event on its way to every endpoint that wants it."""
        for endpoint in list(self._store.all("webhook_endpoint")):
            wanted = endpoint["enabled_events"]
            if "*" not in wanted and event["type"] not in wanted:
                continue
            event["pending_webhooks"] += 1
            modes = self._modes(endpoint["id"])
            gathered = self._gathered.setdefault(endpoint["id"], [])
            gathered.append(event)
            if len(gathered) >= modes["reorder"]:
                self._release(endpoint)

    def release(self) -> None:
        """Delivers what endpoints with `reorder` are still waiting to fill up with."""
        for endpoint in list(self._store.all("webhook_endpoint")):
            self._release(endpoint)

    def send_again(self, event: Json) -> None:
        """Delivers an event once more, whatever became of it before."""
        for endpoint in list(self._store.all("webhook_endpoint")):
            self._start(endpoint, event)

    def send_pending(self) -> None:
        """Delivers what an earlier process could not: nobody is waiting for it any more."""
        for event in reversed(list(self._store.all("event"))):
            if event["pending_webhooks"] > 0:
                self.send_again(event)

    async def idle(self, timeout_s: int) -> bool:
        """Whether every delivery was done in time."""
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=timeout_s)
        return not self._tasks

    def close(self) -> None:
        """Gives up what is under way, and what waits to be."""
        self._gathered.clear()
        for task in self._tasks:
            task.cancel()

    def _modes(self, endpoint_id: str) -> Json:
        return self._store.get("endpoint_modes", endpoint_id)

    def _release(self, endpoint: Json) -> None:
        events = self._gathered.pop(endpoint["id"], [])
        # Each is started when the one before was answered: backwards, and surely so.
        if self._modes(endpoint["id"])["reorder"]:
            self._keep(self._in_turn(endpoint, events[::-1]))
            return
        for event in events:
            self._start(endpoint, event)

    async def _in_turn(self, endpoint: Json, events: list[Json]) -> None:
        for event in events:
            await self._see_through(endpoint, event)

    def _start(self, endpoint: Json, event: Json) -> None:
        for _ in range(1 + self._modes(endpoint["id"])["duplicates"]):
            self._keep(self._see_through(endpoint, event))

    def _keep(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _see_through(self, endpoint: Json, event: Json) -> None:
        for attempt in range(ATTEMPTS_MAX):
            modes = self._modes(endpoint["id"])
            await asyncio.sleep(timedelta(milliseconds=modes["delay_ms"]).total_seconds())
            if await self._attempt(endpoint, event, modes, attempt):
                event["pending_webhooks"] = max(0, event["pending_webhooks"] - 1)
                return
            pause = timedelta(milliseconds=modes["retry_ms"] << attempt)
            await asyncio.sleep(pause.total_seconds())

    async def _attempt(self, endpoint: Json, event: Json, modes: Json, attempt: int) -> bool:
        status = 0
        if modes["drop"] > 0:
            modes["drop"] -= 1
        else:
            body, header = self._signed(event, modes)
            async with self._at_once:
                status = await asyncio.to_thread(_post, endpoint["url"], body, header)
        self._store.add(
            "delivery",
            {
                "id": self._store.new_id("del"),
                "event": event["id"],
                "type": event["type"],
                "endpoint": endpoint["id"],
                "attempt": attempt + 1,
                "status": status,
                "created": self._store.now(),
            },
        )
        return 200 <= status < 300

    def _signed(self, event: Json, modes: Json) -> tuple[bytes, str | None]:
        body = json.dumps(event, indent=2).encode()
        tamper, at = modes["tamper"], self._store.now()
        at += {"past": -STALE_S, "future": STALE_S}.get(tamper, 0)
        secrets = ["whsec_of_somebody_else"] if tamper == "secret" else modes["secrets"]
        header = signature(body, secrets, at)
        if tamper == "body":
            body = body.replace(b'"object": "event"', b'"object": "Event"', 1)
        elif tamper == "reserialised":
            body = json.dumps(event).encode()
        return body, None if tamper == "missing" else header


def _post(url: str, body: bytes, header: str | None) -> int:
    """The status of the answer; 0 for none."""
    target = urlsplit(url)
    kind = http.client.HTTPSConnection if target.scheme == "https" else http.client.HTTPConnection
    connection = kind(target.hostname or "", target.port, timeout=TIMEOUT_S)
    headers = {
        "Content-Type": "application/json; charset=utf-8",
        "User-Agent": "Stripe/1.0 (+https://stripe.com/docs/webhooks)",
    }
    if header is not None:
        headers["Stripe-Signature"] = header
    try:
        connection.request("POST", target.path or "/", body, headers)
        response = connection.getresponse()
        response.read()
    except (OSError, http.client.HTTPException):
        return 0
    else:
        return response.status
    finally:
        connection.close()


ROUTES = (
    Route("POST", "/v1/webhook_endpoints", create_endpoint),
    Route("GET", "/v1/webhook_endpoints", listing("webhook_endpoint", "/v1/webhook_endpoints")),
    Route("GET", "/v1/webhook_endpoints/{}", retrieve("webhook_endpoint")),
    Route("DELETE", "/v1/webhook_endpoints/{}", delete_endpoint),
    Route("GET", "/v1/events", listing("event", "/v1/events", "type")),
    Route("GET", "/v1/events/{}", retrieve("event")),
)
