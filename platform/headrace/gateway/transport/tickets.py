"""Single-use tickets for sockets: what a browser shows instead of a key.

`POST /v1/stream/tickets` with a key answers a ticket that opens one socket within
`SOCKET_TICKET_TTL_S`; the playground gives out tickets that open one for its person's session only.
Redis keeps a ticket's hash and who is behind it, never the key; whoever redeems it first takes it.
The key's state is checked again by every hold and by the revocation poll.
"""

import hashlib
import secrets
from dataclasses import dataclass
from functools import cache
from uuid import UUID

import msgspec
import redis
import redis.asyncio
from django.conf import settings
from redis.exceptions import RedisError

from headrace import errors
from headrace.gateway.admission.auth import identify
from headrace.gateway.request_ids import new_request_id, public_request_id
from headrace.gateway.runtime import GatewayRuntime
from headrace.gateway.transport.http import (
    Receive,
    Scope,
    Send,
    encode_headers,
    send_error,
    send_json,
)
from tenants.contracts import KeyIdentity, KeyScope

PREFIX = "ticket."
"""A ticket begins with it, so that a subprotocol can be told from a key."""
TICKET_BYTES = 32
TICKET_CHARS_MAX = 64
SOCKET_SCOPES = frozenset({KeyScope.CHAT, KeyScope.BATCHES})
"""Each socket asks for its own of them again."""


@dataclass(frozen=True, slots=True)
class Bearer:
    """Who is behind a ticket; with a `user_id` it is of use in that person's session only."""

    identity: KeyIdentity
    user_id: UUID | None = None


async def issue_ticket(
    runtime: GatewayRuntime, scope: Scope, _receive: Receive, send: Send
) -> None:
    """The route `POST /v1/stream/tickets`."""
    try:
        identity = await identify(scope)
        if identity.scopes.isdisjoint(SOCKET_SCOPES):
            raise errors.insufficient_permissions("This API key lacks a scope that opens a socket.")
        ticket = await _issue(runtime.redis, identity)
    except errors.ApiError as error:
        await send_error(send, error)
        return
    headers = encode_headers({"x-request-id": public_request_id(new_request_id())})
    body = {
        "object": "stream.ticket",
        "ticket": ticket,
        "expires_in_s": settings.SOCKET_TICKET_TTL_S,
    }
    await send_json(send, 200, body, headers)


async def _issue(connection: redis.asyncio.Redis, identity: KeyIdentity) -> str:
    ticket = _new_ticket()
    try:
        await connection.set(
            _key(ticket), msgspec.json.encode(Bearer(identity)), ex=settings.SOCKET_TICKET_TTL_S
        )
    except RedisError:
        raise _unavailable() from None
    return ticket


def issue_to_person(identity: KeyIdentity, user_id: UUID) -> str:
    """A ticket for the session of a person whom the caller has authenticated; for synchronous
    views. Raises ApiError 503."""
    ticket = _new_ticket()
    told = msgspec.json.encode(Bearer(identity, user_id))
    try:
        _connection().set(_key(ticket), told, ex=settings.SOCKET_TICKET_TTL_S)
    except RedisError:
        raise _unavailable() from None
    return ticket


async def redeem_ticket(connection: redis.asyncio.Redis, ticket: str) -> Bearer:
    """Who is behind a ticket, which is used up; raises ApiError 401 or 503."""
    if len(ticket) > TICKET_CHARS_MAX:
        raise errors.key_invalid()
    try:
        stored = await connection.getdel(_key(ticket))
    except RedisError:
        raise _unavailable() from None
    if stored is None:
        raise errors.key_invalid()
    return msgspec.json.decode(stored, type=Bearer)


@cache
def _connection() -> redis.Redis:
    timeout_s = settings.REDIS_TIMEOUT_S
    return redis.Redis.from_url(
        settings.REDIS_URL, socket_timeout=timeout_s, socket_connect_timeout=timeout_s
    )


def _new_ticket() -> str:
    return PREFIX + secrets.token_urlsafe(TICKET_BYTES)


def _unavailable() -> errors.ApiError:
    return errors.overloaded("Tickets are not available right now.")


def _key(ticket: str) -> str:
    return "ticket:" + hashlib.sha256(ticket.encode()).hexdigest()
