"""The fake as an ASGI application: authentication, idempotency, routing, errors, pages.

Handlers run one at a time and never wait, so a call is atomic. Run by `__main__`; the tests talk to
it over HTTP with the stock client.
"""

import asyncio
import copy
import hashlib
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qs

from billing.stripe_sync.fake import webhooks
from billing.stripe_sync.fake.controls import Controls, Trouble
from billing.stripe_sync.fake.faults import Fault, invalid
from billing.stripe_sync.fake.pages import checkout_page, success_url
from billing.stripe_sync.fake.parameters import Parameters, Tree, parse_form
from billing.stripe_sync.fake.resources import (
    catalog,
    charges,
    checkout,
    customers,
    grants,
    invoices,
    meters,
    payment_methods,
    payments,
    setups,
)
from billing.stripe_sync.fake.routes import Handler
from billing.stripe_sync.fake.store import API_VERSION, Json, Store
from billing.stripe_sync.fake.webhooks import Deliverer

BODY_BYTES_MAX = 1024 * 1024
KEY_LENGTH_MAX = 255
REPLIES_MAX = 10_000
REPLY_S = 24 * 3600
EXPAND_DEPTH_MAX = 4
SAVE_S = 1
ROUTES = (
    *customers.ROUTES,
    *payment_methods.ROUTES,
    *setups.ROUTES,
    *payments.ROUTES,
    *charges.ROUTES,
    *checkout.ROUTES,
    *catalog.ROUTES,
    *meters.ROUTES,
    *grants.ROUTES,
    *invoices.ROUTES,
    *webhooks.ROUTES,
)
EXPANDABLE = {
    "customer": "customer",
    "payment_method": "payment_method",
    "default_payment_method": "payment_method",
    "payment_intent": "payment_intent",
    "setup_intent": "setup_intent",
    "latest_charge": "charge",
    "charge": "charge",
    "invoice": "invoice",
    "product": "product",
}
"""Fields that hold an id which `expand[]` turns into the object."""
REMEMBERED = frozenset({402, 500})
"""Errors that an idempotency key repeats; a call that never started may be sent again."""

Scope = dict[str, Any]  # ASGI's
Send = Callable[[dict[str, Any]], Awaitable[None]]
Receive = Callable[[], Awaitable[dict[str, Any]]]


@dataclass(slots=True)
class Call:
    """One request, read whole."""

    method: str
    path: str
    query: str
    headers: dict[str, str]
    body: bytes
    request_id: str
    extra_headers: dict[str, str] = field(default_factory=dict)

    @property
    def key(self) -> str | None:
        """The idempotency key; only a POST has one."""
        return self.headers.get("idempotency-key") if self.method == "POST" else None

    def tree(self) -> Tree:
        """Parameters as nested values: JSON for v2, a form or query string for v1."""
        if self.method == "POST" and self.path.startswith("/v2/"):
            try:
                tree = json.loads(self.body or b"{}")
            except ValueError as error:
                raise invalid("Invalid JSON in the request body.") from error
            if not isinstance(tree, dict):
                raise invalid("The request body must be a JSON object.")
            return tree
        return parse_form(self.body.decode() if self.method == "POST" else self.query)


class Application:
    """One account behind one API key."""

    def __init__(self, store: Store, api_key: str) -> None:
        self._store = store
        self._api_key = api_key
        self._controls: Controls | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        elif scope["type"] == "http":
            call = await self._read(scope, receive)
            if call.path.startswith("/pay/"):
                await self._page(call, send)
            else:
                await self._answer(call, send)

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        deliverer = Deliverer(self._store)
        self._controls = Controls(self._store, deliverer)
        saver = asyncio.get_running_loop().create_task(self._save_now_and_then())
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                deliverer.send_pending()
                await send({"type": "lifespan.startup.complete"})
            else:
                saver.cancel()
                deliverer.close()
                self._store.save()
                await send({"type": "lifespan.shutdown.complete"})
                return

    async def _save_now_and_then(self) -> None:
        while True:
            await asyncio.sleep(SAVE_S)
            self._store.save()

    async def _read(self, scope: Scope, receive: Receive) -> Call:
        body = b""
        more = True
        while more:
            message = await receive()
            body = (body + message.get("body", b""))[: BODY_BYTES_MAX + 1]
            more = message.get("more_body", False)
        return Call(
            method=scope["method"],
            path=scope["path"],
            query=scope["query_string"].decode(),
            headers={name.decode(): value.decode("latin-1") for name, value in scope["headers"]},
            body=body,
            request_id=self._store.new_id("req"),
        )

    async def _answer(self, call: Call, send: Send) -> None:
        trouble: Trouble | None = None
        try:
            if call.path == "/healthz":
                status, body = 200, {"status": "ok"}
            elif call.path.startswith("/_fake/"):
                assert self._controls is not None
                sent = json.loads(call.body or b"{}")
                status, body = 200, await self._controls.act(call.method, call.path, sent)
            else:
                assert self._controls is not None
                trouble = self._controls.trouble_for(call.method, call.path)
                status, body = await self._api(call, trouble)
        except Fault as fault:
            status, body = fault.status, _rendered(fault)
        lost = trouble is not None and trouble.lost
        if trouble is not None:
            await asyncio.sleep(timedelta(milliseconds=trouble.delay_ms).total_seconds())
        if lost and trouble is not None and trouble.status:
            lost, status, body = False, trouble.status, _rendered(Fault(0, "No answer."))
        await _send(send, call, status, body, cut=lost)

    async def _api(self, call: Call, trouble: Trouble | None) -> tuple[int, Json]:
        if len(call.body) > BODY_BYTES_MAX:
            raise Fault(413, "Request body too large.")
        self._authenticate(call)
        if trouble is not None and trouble.status and not trouble.lost:
            raise Fault(trouble.status, "Trouble, as planned.", type_="api_error")
        if call.key is not None:
            return self._once(call, call.key)
        return 200, self._handle(call)

    def _authenticate(self, call: Call) -> None:
        scheme, _, secret = call.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not secret:
            raise Fault(
                401,
                "You did not provide an API key. You need to provide your API key in"
                " the Authorization header, using Bearer auth.",
            )
        if call.path == "/v2/billing/meter_event_stream":
            token = self._store.find("meter_event_token", secret)
            if token is None or token["expires_at"] < self._store.now():
                raise Fault(
                    401,
                    "The session token is invalid or has expired.",
                    code="billing_meter_event_session_expired",
                )
        elif secret != self._api_key:
            raise Fault(401, f"Invalid API Key provided: {secret[:8]}***{secret[-4:]}")

    def _once(self, call: Call, key: str) -> tuple[int, Json]:
        """Answers a repeated key as before. Raises Fault when it comes with other parameters."""
        if len(key) > KEY_LENGTH_MAX:
            raise invalid(f"Idempotency keys have at most {KEY_LENGTH_MAX} characters.")
        replies = self._store.replies
        asked = hashlib.sha256(call.path.encode() + b"\0" + call.body).hexdigest()
        before = replies.get(key)
        if before is not None and self._store.now() - before["created"] < REPLY_S:
            if before["asked"] != asked:
                raise Fault(
                    400,
                    "Keys for idempotent requests can only be used with the same parameters they"
                    f" were first used with. Try using a key other than '{key}' if you meant to"
                    " execute a different request.",
                    type_="idempotency_error",
                )
            call.extra_headers = {
                "idempotent-replayed": "true",
                "original-request": before["request_id"],
            }
            return before["status"], before["body"]
        try:
            status, body = 200, self._handle(call)
        except Fault as fault:
            if fault.status not in REMEMBERED:
                raise
            status, body = fault.status, _rendered(fault)
        while len(replies) >= REPLIES_MAX:
            del replies[next(iter(replies))]
        replies[key] = {
            "asked": asked,
            "status": status,
            "body": copy.deepcopy(body),
            "request_id": call.request_id,
            "created": self._store.now(),
        }
        return status, body

    def _handle(self, call: Call) -> Json:
        tree = call.tree()
        expand = tree.pop("expand", [])
        parameters = Parameters(tree)
        handler, ids = _route(call)
        self._store.request = {"id": call.request_id, "idempotency_key": call.key}
        checkout.expire_overdue(self._store)
        answer = handler(self._store, parameters, *ids)
        parameters.finish()
        answer = copy.deepcopy(answer)
        if not isinstance(expand, list) or not all(isinstance(each, str) for each in expand):
            raise invalid("Invalid array: expand", "expand")
        for path in expand:
            self._expand(answer, path.split("."), path)
        return answer

    def _expand(self, shown: Json, steps: list[str], path: str) -> None:
        if len(steps) > EXPAND_DEPTH_MAX:
            raise invalid(f"You cannot expand more than {EXPAND_DEPTH_MAX} levels of a property.")
        name, *rest = steps
        if name == "data" and isinstance(shown.get("data"), list) and rest:
            for each in shown["data"]:
                self._expand(each, rest, path)
            return
        if name == "line_items" and shown.get("object") == "checkout.session":
            shown[name] = checkout.with_line_items(self._store, shown)
        elif name in EXPANDABLE and name in shown:
            value = shown[name]
            if isinstance(value, str):
                shown[name] = copy.deepcopy(self._store.get(EXPANDABLE[name], value))
        elif not isinstance(shown.get(name), dict):
            raise invalid(f"This property cannot be expanded ({path}).", "expand")
        if rest and isinstance(shown[name], dict):
            self._expand(shown[name], rest, path)

    async def _page(self, call: Call, send: Send) -> None:
        session = self._store.find("checkout.session", call.path.removeprefix("/pay/"))
        if session is None:
            await _send_page(send, 404, "<!doctype html><title>Checkout</title>No such checkout.")
            return
        failure = ""
        if call.method == "POST":
            card = parse_qs(call.body.decode()).get("payment_method", ["pm_card_visa"])[0]
            self._store.request = {"id": None, "idempotency_key": None}
            try:
                checkout.complete(self._store, session["id"], card)
            except Fault as fault:
                failure = str(fault)
            else:
                await _send_page(send, 303, "", location=success_url(session))
                return
        await _send_page(send, 200, checkout_page(self._store, session, failure))


def _route(call: Call) -> tuple[Handler, list[str]]:
    for route in ROUTES:
        ids = route.ids(call.method, call.path)
        if ids is not None:
            return route.handler, ids
    raise Fault(404, f"Unrecognized request URL ({call.method}: {call.path}).")


def _rendered(fault: Fault) -> Json:
    return {"error": copy.deepcopy(fault.error)}


async def _send(send: Send, call: Call, status: int, body: Json, *, cut: bool) -> None:
    shown = json.dumps(body, indent=2).encode()
    headers = {
        "content-type": "application/json",
        "content-length": str(len(shown)),
        "request-id": call.request_id,
        "stripe-version": API_VERSION,
        **call.extra_headers,
    }
    if call.key is not None:
        headers["idempotency-key"] = call.key
    if 400 <= status < 500:
        headers["stripe-should-retry"] = "false"
    await send(
        {
            "type": "http.response.start",
            "status": status,
            "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
        }
    )
    if not cut:  # else the server closes a connection whose answer stays incomplete
        await send({"type": "http.response.body", "body": shown})


async def _send_page(send: Send, status: int, text: str, location: str | None = None) -> None:
    shown = text.encode()
    headers = [
        (b"content-type", b"text/html; charset=utf-8"),
        (b"content-length", str(len(shown)).encode()),
        (b"content-security-policy", b"default-src 'none'; style-src 'unsafe-inline'"),
    ]
    if location is not None:
        headers.append((b"location", location.encode()))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": shown})
