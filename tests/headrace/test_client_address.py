"""The client's address is the peer's, unless a proxy that we trust says otherwise."""

import pytest

from headrace.client_address import client_address, parse_networks, within

NOBODY = parse_networks([])
PROXIES = parse_networks(["10.0.0.0/8", "fd00::/8"])


@pytest.mark.parametrize(
    ("peer", "forwarded_for", "expected"),
    [
        ("203.0.113.7", "", "203.0.113.7"),
        ("203.0.113.7", "198.51.100.1", "203.0.113.7"),
        ("10.0.0.1", "198.51.100.1", "198.51.100.1"),
        ("10.0.0.1", "198.51.100.1, 10.0.0.2", "198.51.100.1"),
        ("10.0.0.1", "6.6.6.6, 198.51.100.1", "198.51.100.1"),
        ("10.0.0.1", "6.6.6.6, 198.51.100.1:4711, 10.9.9.9", "198.51.100.1"),
        ("10.0.0.1", "", "10.0.0.1"),
        ("10.0.0.1", "no address", "10.0.0.1"),
        ("10.0.0.1", "6.6.6.6, no address", "10.0.0.1"),
        ("::ffff:10.0.0.1", "[2001:db8::1]:443", "2001:db8::1"),
        ("fd00::1%eth0", "2001:db8::2", "2001:db8::2"),
        ("", "198.51.100.1", ""),
    ],
)
def test_only_what_trusted_proxies_wrote_is_believed(
    peer: str, forwarded_for: str, expected: str
) -> None:
    assert client_address(peer, forwarded_for, PROXIES) == expected


def test_by_default_nobody_is_believed() -> None:
    assert client_address("10.0.0.1", "198.51.100.1", NOBODY) == "10.0.0.1"


def test_a_forged_chain_is_read_no_further_than_its_bound() -> None:
    chain = ", ".join(["6.6.6.6"] + ["10.0.0.2"] * 100)

    assert client_address("10.0.0.1", chain, PROXIES) == "10.0.0.2"


def test_addresses_lie_in_networks_of_their_own_kind_only() -> None:
    networks = parse_networks(["192.0.2.0/24", " 2001:db8::/32 ", ""])

    assert within("192.0.2.9", networks) and within("2001:db8::9", networks)
    assert within("::ffff:192.0.2.9", networks)
    assert not within("192.0.3.1", networks) and not within("", networks)


def test_a_network_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="does not appear to be"):
        parse_networks(["everywhere"])
