"""The raw ASGI application of the token routes, mounted ahead of Django.

A route is a path and a method; everything else under `/v1` that is not Django's answers 404 in
JSON, and names the right path when the base URL was pasted wrongly.
"""

from collections.abc import Awaitable, Callable, Mapping

import structlog

from headrace import errors
from headrace.gateway.openai import models_route
from headrace.gateway.openai.chat_request import parse_chat_request
from headrace.gateway.openai.chat_response import ChatFraming
from headrace.gateway.openai.completions_request import parse_completions_request
from headrace.gateway.openai.completions_response import CompletionsFraming
from headrace.gateway.openai.embeddings_request import parse_embeddings_request
from headrace.gateway.openai.embeddings_response import EmbeddingsFraming
from headrace.gateway.openai.generation_route import GenerationRoute
from headrace.gateway.openai.models_route import models
from headrace.gateway.runtime import GatewayRuntime
from headrace.gateway.transport.http import Message, Receive, Scope, Send, send_error
from headrace.gateway.transport.tickets import issue_ticket
from tenants.contracts import KeyScope

log = structlog.get_logger(__name__)
Route = Callable[[GatewayRuntime, Scope, Receive, Send], Awaitable[None]]

ROUTES: Mapping[str, tuple[str, Route]] = {
    "/v1/chat/completions": (
        "POST",
        GenerationRoute(KeyScope.CHAT, parse_chat_request, ChatFraming),
    ),
    "/v1/completions": (
        "POST",
        GenerationRoute(KeyScope.COMPLETIONS, parse_completions_request, CompletionsFraming),
    ),
    "/v1/embeddings": (
        "POST",
        GenerationRoute(KeyScope.EMBEDDINGS, parse_embeddings_request, EmbeddingsFraming),
    ),
    "/v1/models": ("GET", models),
    "/v1/stream/tickets": ("POST", issue_ticket),
}
"""Exact paths; `/v1/models/{id}` is matched by its prefix, since ids may hold slashes."""

DJANGO_PREFIXES = ("/v1/usage/", "/v1/organization/", "/v1/files", "/v1/batches")


def find_route(path: str) -> tuple[str, Route] | None:
    """The method and handler of a path, with or without a trailing slash."""
    trimmed = path.rstrip("/")
    if trimmed in ROUTES:
        return ROUTES[trimmed]
    if path.startswith(f"{models_route.PREFIX}/"):
        return ROUTES[models_route.PREFIX]
    return None


def is_ours(path: str) -> bool:
    """Whether this application, not Django, answers the path (unknown `/v1` paths included)."""
    if find_route(path) is not None or _misplaced(path):
        return True
    return path.startswith("/v1/") and not path.startswith(DJANGO_PREFIXES)


async def token_routes(runtime: GatewayRuntime, scope: Scope, receive: Receive, send: Send) -> None:
    """Dispatches one request."""
    path, method = scope["path"], scope["method"]
    found = find_route(path)
    if found is None:
        await send_error(send, _unknown(path, method))
    elif found[0] != method:
        await send_error(send, errors.method_not_allowed(method, path, found[0]))
    else:
        await _answer(found[1], runtime, scope, receive, send)


async def _answer(
    route: Route, runtime: GatewayRuntime, scope: Scope, receive: Receive, send: Send
) -> None:
    """Runs a route; what it did not expect becomes an error in the dialect all the same."""
    started = False

    async def watched_send(message: Message) -> None:
        nonlocal started
        started = True
        await send(message)

    try:
        await route(runtime, scope, receive, watched_send)
    except Exception as error:  # a process edge: the client must get an answer it can read
        known = errors.from_domain(error)
        if known is None:
            log.exception("route failed", path=scope["path"][:200])
        if started:
            raise
        await send_error(send, known or errors.engine_failed("Internal error."))


def _misplaced(path: str) -> str | None:
    for right in ROUTES:
        tail = right.removeprefix("/v1")
        if path.rstrip("/") in (tail, right + right, right + tail, "/v1" + right):
            return right
    return None


def _unknown(path: str, method: str) -> errors.ApiError:
    right = _misplaced(path)
    advice = (
        f" Did you mean {right}? The base URL of your client should end in /v1." if right else ""
    )
    return errors.unknown_url(method, path, advice)
