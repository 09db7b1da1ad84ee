"""Where a webhook may be posted to: what a URL must look like, and which addresses are public.

Pure: resolves nothing. A tenant names the URL, so that everything here assumes the worst of it: the
worker that posts stands inside the operator's network. Called when an endpoint is saved, and
again with what its name resolves to at each delivery.
"""

import ipaddress
import re
from dataclasses import dataclass
from urllib.parse import urlsplit

from tenants.contracts.events import WebhookUrlRefused

URL_CHARS_MAX = 2048
HOST_CHARS_MAX = 253
HTTPS_PORT = 443
PORT_MIN = 1024
"""Other services' well-known ports are no webhook receivers; 443 alone lies below."""

_NUMERIC = re.compile(r"(0x[0-9a-f]*|[0-9]+)", re.IGNORECASE)
_HOST = re.compile(r"[a-z0-9]([a-z0-9_-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9_-]*[a-z0-9])?)*")
_PATH = re.compile(r"[!-~]*")

IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
_REFUSED_NETWORKS = tuple(
    ipaddress.ip_network(network)
    for network in (
        "168.63.129.16/32",  # the metadata service of a cloud, at a public address
        "192.0.0.0/24",
        "192.88.99.0/24",  # 6to4 relays
        # Each of these carries an IPv4 address inside, private ones too.
        "::/96",
        "::ffff:0:0/96",
        "::ffff:0:0:0/96",
        "64:ff9b::/96",
        "64:ff9b:1::/48",
        "2001::/32",
        "2002::/16",
        "fec0::/10",
    )
)


@dataclass(frozen=True, slots=True)
class Target:
    """A URL taken apart: `host` is lower-case and without brackets."""

    secure: bool
    host: str
    port: int
    path: str


def is_public(address: IpAddress) -> bool:
    """Whether the address belongs to somebody out there, by itself and by what it embeds."""
    if isinstance(address, ipaddress.IPv6Address) and address.scope_id is not None:
        return False
    if address.is_multicast or address.is_reserved or not address.is_global:
        return False
    return not any(
        address.version == network.version and address in network for network in _REFUSED_NETWORKS
    )


def may_connect(address: IpAddress, *, loopback_allowed: bool) -> bool:
    """Whether a delivery may go there; `loopback_allowed` is for demos and tests alone."""
    if loopback_allowed and address.is_loopback:
        return True
    return is_public(address)


def take_apart(url: str, *, loopback_allowed: bool = False) -> Target:
    """The parts of a webhook URL; raises WebhookUrlRefused with a reason its owner may read.

    https only; plain http is for loopback, where that is allowed. A host that is a number in any
    notation but the plain one is refused, and so is one that is a private address.
    """
    if len(url) > URL_CHARS_MAX:
        raise WebhookUrlRefused(f"it is longer than {URL_CHARS_MAX} characters")
    try:
        parts = urlsplit(url)
        host, port = (parts.hostname or "").lower(), parts.port
    except ValueError:
        raise WebhookUrlRefused("it is not a URL") from None
    if parts.scheme not in (("https", "http") if loopback_allowed else ("https",)):
        raise WebhookUrlRefused("it must begin with https://")
    if parts.username is not None or parts.password is not None:
        raise WebhookUrlRefused("it must not hold credentials")
    if parts.fragment:
        raise WebhookUrlRefused("it must not hold a fragment")
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    if not _PATH.fullmatch(path):
        raise WebhookUrlRefused("its path must be percent-encoded ASCII")
    secure = parts.scheme == "https"
    port = port if port is not None else (HTTPS_PORT if secure else 80)
    if port != HTTPS_PORT and port < PORT_MIN:
        raise WebhookUrlRefused(f"its port must be {HTTPS_PORT} or at least {PORT_MIN}")
    _check_host(host, loopback_allowed=loopback_allowed)
    return Target(secure, host, port, path)


def _check_host(host: str, *, loopback_allowed: bool) -> None:
    address = literal_address(host)
    if address is not None:
        if not may_connect(address, loopback_allowed=loopback_allowed):
            raise WebhookUrlRefused("its address is not public")
        return
    if len(host) > HOST_CHARS_MAX or not _HOST.fullmatch(host):
        raise WebhookUrlRefused("it has no valid host name; write other alphabets in punycode")
    if _NUMERIC.fullmatch(host.rpartition(".")[2]):
        # 2130706433, 0x7f.1 and 0177.0.0.1 are all 127.0.0.1 to a resolver.
        raise WebhookUrlRefused("its address must be written in the usual notation")
    if "." not in host and not loopback_allowed:
        raise WebhookUrlRefused("it must name a public host")


def literal_address(host: str) -> IpAddress | None:
    """The address that a host is, written in the usual notation; None for a name."""
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None
