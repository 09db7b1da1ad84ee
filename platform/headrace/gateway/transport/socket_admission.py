"""Who may open a socket: by a header, or by a subprotocol with a key or a single-use ticket.

Never by the query string, which ends up in logs. Called by each consumer before it serves; a
refusal is a close code, for browsers show their scripts nothing else of it.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlsplit

from channels.generic.websocket import AsyncWebsocketConsumer
from django.conf import settings
from django.db import DatabaseError, InterfaceError

from headrace import errors
from headrace.gateway.admission.auth import (
    address_of,
    check_network,
    identify_secret,
    require_scope,
    secret_from_headers,
)
from headrace.gateway.database import in_database
from headrace.gateway.runtime import GatewayRuntime
from headrace.gateway.transport import tickets
from headrace.gateway.transport.http import header
from headrace.sign_in.sittings import (
    NotSignedIn,
    Sitting,
    may_sit,
    session_key_in,
    signed_in_by,
)
from headrace.telemetry import metrics
from tenants.contracts import KeyIdentity, KeyScope, Permission

SUBPROTOCOL = "headrace.v1"
"""The marker that a client offers beside its key; only the marker is echoed."""

CLOSE_UNAUTHORIZED = 4401
CLOSE_FORBIDDEN = 4403
CLOSE_SLOW = 4408
CLOSE_TOO_MANY = 4429
CLOSE_UNAVAILABLE = 4503
REASONS = {
    CLOSE_UNAUTHORIZED: "no valid key",
    CLOSE_FORBIDDEN: "this origin or project may not",
    CLOSE_SLOW: "messages were not read in time",
    CLOSE_TOO_MANY: "too many requests or sockets",
    CLOSE_UNAVAILABLE: "shutting down or unavailable",
}
CLOSE_WAIT_S = 5.0
"""How long a close may wait for a client that reads nothing; then the kernel's time-out ends it."""


def offered_subprotocols(scope: dict[str, Any]) -> list[str]:  # ASGI's
    """What the client offers."""
    return scope.get("subprotocols") or []


def accepted_subprotocol(scope: dict[str, Any]) -> str | None:  # ASGI's
    """What the handshake echoes."""
    return SUBPROTOCOL if SUBPROTOCOL in offered_subprotocols(scope) else None


async def admit_socket(
    socket: AsyncWebsocketConsumer, needed: KeyScope, revoked: Callable[[], None]
) -> tuple[int | None, KeyIdentity | None]:
    """Accepts the socket; the close code of a refusal, or the identity.

    An admitted one is watched by the runtime until its `disconnect` calls `dismiss_socket`;
    `revoked` is called when its key, or the person whose session it is, may no longer use it.
    """
    scope, runtime = socket.scope, socket.runtime
    refused, admitted = await _admission(scope, runtime, needed)
    if admitted is not None:
        # Nothing is awaited since the count: handshakes side by side see each other's places.
        runtime.watched_keys[socket] = (admitted.identity.key_id, revoked)
        if admitted.sitting is not None:
            runtime.sittings.sit(socket, admitted.sitting, revoked, revoked)
    try:
        # Accepted also where it is refused: a close code reaches the client only after the
        # handshake.
        await socket.accept(accepted_subprotocol(scope))
    except BaseException:
        dismiss_socket(socket)
        raise
    return refused, None if admitted is None else admitted.identity


def dismiss_socket(socket: AsyncWebsocketConsumer) -> None:
    """It needs no watching any more."""
    socket.runtime.watched_keys.pop(socket, None)
    socket.runtime.sittings.leave(socket)


@dataclass(frozen=True, slots=True)
class _Admitted:
    identity: KeyIdentity
    sitting: Sitting | None = None
    """Of a person whose ticket it was."""


async def _admission(
    scope: dict[str, Any],  # ASGI's
    runtime: GatewayRuntime,
    needed: KeyScope,
) -> tuple[int | None, _Admitted | None]:
    try:
        check_origin(header(scope, b"origin"), header(scope, b"host"))
        admitted = await _identify(scope, runtime)
        require_scope(admitted.identity, needed)
    except (DatabaseError, InterfaceError):
        return CLOSE_UNAVAILABLE, None
    except errors.ApiError as error:
        codes = {403: CLOSE_FORBIDDEN, 429: CLOSE_TOO_MANY, 503: CLOSE_UNAVAILABLE}
        return codes.get(error.status, CLOSE_UNAUTHORIZED), None
    key_id = admitted.identity.key_id
    sockets = sum(key == key_id for key, _ in runtime.watched_keys.values())
    if sockets >= settings.WEBSOCKETS_PER_KEY_MAX:
        metrics.LIMIT_HITS.labels("websockets_per_key").inc()
        return CLOSE_TOO_MANY, None
    return (CLOSE_UNAVAILABLE, None) if runtime.draining else (None, admitted)


async def _identify(scope: dict[str, Any], runtime: GatewayRuntime) -> _Admitted:  # ASGI's
    subprotocols = offered_subprotocols(scope)
    offered = [name for name in subprotocols if name != SUBPROTOCOL]
    if SUBPROTOCOL in subprotocols and len(offered) == 1:
        if offered[0].startswith(tickets.PREFIX):
            return await _bearer(scope, await tickets.redeem_ticket(runtime.redis, offered[0]))
        return _Admitted(await identify_secret(offered[0], address_of(scope)))
    secret = secret_from_headers(header(scope, b"authorization"), header(scope, b"x-api-key"))
    return _Admitted(await identify_secret(secret, address_of(scope)))


async def _bearer(scope: dict[str, Any], bearer: tickets.Bearer) -> _Admitted:  # ASGI's
    """Raises ApiError 401 where a person's ticket comes without that person's session, and where
    they have lost the right to it."""
    identity = bearer.identity
    check_network(identity, address_of(scope))
    if bearer.user_id is None:
        return _Admitted(identity)
    session_key = session_key_in(header(scope, b"cookie"))
    try:
        sitting = await in_database(signed_in_by, session_key)
    except NotSignedIn:
        raise errors.key_invalid() from None
    if sitting.user_id != bearer.user_id:
        raise errors.key_invalid()
    needs = frozenset({Permission.PLAYGROUND})
    sitting = replace(sitting, organization_id=identity.organization_id, needs=needs)
    # A ticket may have been put by before its person was removed.
    if not await in_database(may_sit, sitting):
        raise errors.key_invalid()
    return _Admitted(identity, sitting)


def check_origin(origin: str | None, host: str | None) -> None:
    """Browsers send an Origin; only our own pages may open sockets from there.

    Raises ApiError 403 for others.
    """
    if origin is None:
        return
    try:
        place = urlsplit(origin).netloc
    except ValueError:
        place = ""
    if not place or place != host:
        raise errors.origin_forbidden()
