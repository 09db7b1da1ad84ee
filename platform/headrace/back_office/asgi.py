"""The back office's ASGI entry: Django as the web process serves it, and nothing beside it."""

from headrace import errors
from headrace.asgi import rest
from headrace.gateway.transport.http import Receive, Scope, Send, host_is_ours, send_error


async def application(scope: Scope, receive: Receive, send: Send) -> None:
    """One request, by a name of this machine: no page elsewhere may speak to us as ourselves."""
    if host_is_ours(scope):
        await rest(scope, receive, send)
    else:
        await send_error(send, errors.host_unknown())
