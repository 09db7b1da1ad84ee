"""Whose address a request came from: one pure rule for CIDR checks and the audit log.

Believes `X-Forwarded-For` only as far as trusted proxies wrote it: by default nobody is trusted and
the peer of the connection is the client. Called by every door.
"""

from collections.abc import Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

HOPS_MAX = 16
"""Proxies that are looked through; the address before these counts as the client's."""

IPV6_PREFIX_BITS = 64
"""What one subscriber has: more addresses than anybody could count."""


def parse_networks(names: Sequence[str]) -> tuple[Network, ...]:
    """The networks of CIDR names or single addresses; raises ValueError for anything else."""
    return tuple(ip_network(name.strip()) for name in names if name.strip())


def client_address(peer: str, forwarded_for: str, trusted_proxies: Sequence[Network]) -> str:
    """The client's address, or '' where the connection has none (a Unix socket).

    `peer` is the other end of the connection, `forwarded_for` all X-Forwarded-For headers joined by
    commas. Each proxy appends the address it was reached from, so the list is read from its end
    while the writer is trusted; what stands before that is the client's own claim.
    """
    address = _parsed(peer)
    if address is None:
        return ""
    claims = [claim.strip() for claim in forwarded_for.split(",") if claim.strip()]
    for claim in reversed(claims[-HOPS_MAX:]):
        if not within(str(address), trusted_proxies):
            break
        claimed = _parsed(claim)
        if claimed is None:
            break
        address = claimed
    return str(address)


def within(address: str, networks: Sequence[Network]) -> bool:
    """Whether the address lies in one of the networks; an unreadable one lies in none."""
    parsed = _parsed(address)
    return parsed is not None and any(
        parsed.version == network.version and parsed in network for network in networks
    )


def subscriber_of(address: str) -> str:
    """Whom an address stands for, where requests are counted; all without one stand together."""
    parsed = _parsed(address)
    if isinstance(parsed, IPv6Address):
        return str(ip_network((parsed, IPV6_PREFIX_BITS), strict=False))
    return "" if parsed is None else str(parsed)


def _parsed(text: str) -> Address | None:
    """An address, without brackets, port and zone; an IPv4 one in IPv6 clothes is IPv4."""
    bare = text.partition("%")[0]
    if bare.startswith("["):
        bare = bare[1:].partition("]")[0]
    elif bare.count(":") == 1:
        bare = bare.partition(":")[0]
    try:
        address = ip_address(bare)
    except ValueError:
        return None
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address
