"""One POST to a tenant's address: resolved once, pinned, bounded in time and in what it reads.

Never follows a redirect, never resolves a name twice, never speaks through a proxy. Called by the
delivery task.
"""

import contextlib
import http.client
import ipaddress
import socket
import ssl
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from tenants.contracts.events import WebhookUrlRefused
from tenants.webhooks.addresses import IpAddress, Target, literal_address, may_connect, take_apart

CONNECT_TIMEOUT_S = 5.0
POST_TIMEOUT_S = 15.0
"""From the first byte sent to the last read; a receiver should answer first and work later."""
ANSWER_BYTES_MAX = 1024
"""What is read and kept of an answer's body."""
ADDRESSES_MAX = 64
ADDRESSES_TRIED_MAX = 3
ERROR_CHARS_MAX = 120

Resolve = Callable[[str, int], Sequence[str]]


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back: a status, or an error of ours in its place."""

    status_code: int | None
    error: str
    answer_start: str
    latency_ms: int

    @property
    def accepted(self) -> bool:
        """Any 2xx; a redirect is not."""
        return self.status_code is not None and 200 <= self.status_code < 300


def resolve_by_system(host: str, port: int) -> Sequence[str]:
    """All addresses of a name, as the system's resolver has them now. Raises OSError."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(address[0]) for *_, address in found]


def post(
    url: str,
    body: bytes,
    headers: Mapping[str, str],
    *,
    loopback_allowed: bool = False,
    resolve: Resolve = resolve_by_system,
    timeout_s: float = POST_TIMEOUT_S,
) -> Answer:
    """Post the body; never raises for what the other side does."""
    started = time.monotonic()
    status, error, start = None, "", b""
    try:
        target = take_apart(url, loopback_allowed=loopback_allowed)
        addresses = _pinned(target, resolve, loopback_allowed=loopback_allowed)
        status, start = _exchange(target, addresses, body, headers, timeout_s)
    except WebhookUrlRefused as refusal:
        error = f"refused: {refusal.why}"
    except TimeoutError:
        error = "timed out"
    except ssl.SSLError as failure:
        error = f"TLS: {failure.reason or 'failed'}"
    except socket.gaierror:
        error = "the host name does not resolve"
    except (OSError, http.client.HTTPException) as failure:
        error = f"no answer: {type(failure).__name__}"
    return Answer(
        status_code=status,
        error=error[:ERROR_CHARS_MAX],
        # PostgreSQL's text holds no NUL.
        answer_start=start.decode("utf-8", "replace").replace("\x00", "�"),
        latency_ms=int((time.monotonic() - started) * 1000),
    )


def _pinned(target: Target, resolve: Resolve, *, loopback_allowed: bool) -> list[IpAddress]:
    """The addresses to connect to, and no others; one bad one spoils the name.

    The name is not looked up again: an answer that changes between the check and the connection
    is never asked for.
    """
    literal = literal_address(target.host)
    found = (
        [literal]
        if literal is not None
        else [ipaddress.ip_address(text) for text in resolve(target.host, target.port)]
    )
    if not found or len(found) > ADDRESSES_MAX:
        raise WebhookUrlRefused("its name has no address, or too many")
    for address in found:
        if not may_connect(address, loopback_allowed=loopback_allowed):
            raise WebhookUrlRefused("its name resolves to an address that is not public")
        if not target.secure and not address.is_loopback:
            raise WebhookUrlRefused("it must begin with https://")
    return list(dict.fromkeys(found))


def _exchange(
    target: Target,
    addresses: Sequence[IpAddress],
    body: bytes,
    headers: Mapping[str, str],
    timeout_s: float,
) -> tuple[int, bytes]:
    """Status and first bytes of the answer; raises OSError, TimeoutError or HTTPException."""
    plain = _connect(target, addresses)
    plain.settimeout(timeout_s)
    connection = http.client.HTTPConnection(target.host, target.port)
    connection.sock = plain
    late = threading.Event()

    def give_up() -> None:
        # A drip of bytes would reset any timeout of the socket's own.
        late.set()
        with contextlib.suppress(OSError):
            socket.socket.shutdown(connection.sock, socket.SHUT_RDWR)

    watchdog = threading.Timer(timeout_s, give_up)
    watchdog.daemon = True
    watchdog.start()
    try:
        if target.secure:
            connection.sock = _tls().wrap_socket(
                plain, server_hostname=target.host, do_handshake_on_connect=False
            )
            connection.sock.do_handshake()
        connection.request("POST", target.path, body, {**_BASE_HEADERS, **headers})
        response = connection.getresponse()
        start = response.read(ANSWER_BYTES_MAX)
    except (OSError, http.client.HTTPException):
        if late.is_set():
            raise TimeoutError from None
        raise
    finally:
        watchdog.cancel()
        connection.close()
    if late.is_set():
        # What was cut off can read like an answer that ended.
        raise TimeoutError
    return response.status, start


_BASE_HEADERS = {
    "content-type": "application/json",
    "user-agent": "headrace-webhooks",
    "connection": "close",
}


def _connect(target: Target, addresses: Sequence[IpAddress]) -> socket.socket:
    failure = OSError("no address")
    for address in addresses[:ADDRESSES_TRIED_MAX]:
        try:
            return socket.create_connection((str(address), target.port), CONNECT_TIMEOUT_S)
        except OSError as error:
            failure = error
    raise failure


@cache
def _tls() -> ssl.SSLContext:
    return ssl.create_default_context()
