"""A webhook goes to public addresses only, in whatever notation a private one is written."""

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenants.contracts.events import WebhookUrlRefused
from tenants.webhooks.addresses import Target, is_public, take_apart

PRIVATE = [
    "0.0.0.0",
    "10.1.2.3",
    "100.64.0.1",
    "100.100.100.200",
    "127.0.0.1",
    "127.255.255.254",
    "169.254.169.254",
    "168.63.129.16",
    "172.16.0.1",
    "192.0.0.192",
    "192.0.2.1",
    "192.88.99.1",
    "192.168.1.1",
    "198.18.0.1",
    "203.0.113.9",
    "224.0.0.1",
    "233.252.0.1",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "::7f00:1",
    "::ffff:127.0.0.1",
    "::ffff:8.8.8.8",
    "::ffff:0:127.0.0.1",
    "64:ff9b::7f00:1",
    "64:ff9b::a9fe:a9fe",
    "64:ff9b:1::a00:1",
    "100::1",
    "2001::1",
    "2001:db8::1",
    "2002:7f00:1::",
    "2002:c0a8:101::1",
    "fc00::1",
    "fd00:ec2::254",
    "fe80::1",
    "fe80::1%eth0",
    "2606:4700::1%eth0",
    "fec0::1",
    "ff02::1",
]
PUBLIC = ["8.8.8.8", "1.1.1.1", "93.184.216.34", "2606:4700:4700::1111", "2a00:1450:4001::1"]


@pytest.mark.parametrize("address", PRIVATE)
def test_what_is_not_public_is_never_connected_to(address: str) -> None:
    assert not is_public(ipaddress.ip_address(address))


@pytest.mark.parametrize("address", PUBLIC)
def test_the_internet_is_public(address: str) -> None:
    assert is_public(ipaddress.ip_address(address))


@given(st.ip_addresses(v=4))
def test_an_ipv4_address_inside_an_ipv6_one_is_not_public(address: ipaddress.IPv4Address) -> None:
    number = int(address)
    for prefix in ("::ffff:0:0", "64:ff9b::", "::"):
        embedded = ipaddress.IPv6Address(int(ipaddress.IPv6Address(prefix)) + number)
        assert not is_public(embedded)
    assert not is_public(ipaddress.IPv6Address((0x2002 << 112) + (number << 80)))


@pytest.mark.parametrize(
    ("url", "target"),
    [
        ("https://example.com", Target(True, "example.com", 443, "/")),
        ("https://Hooks.Example.com:8443/a?b=c", Target(True, "hooks.example.com", 8443, "/a?b=c")),
        ("https://8.8.8.8/x", Target(True, "8.8.8.8", 443, "/x")),
        ("https://[2606:4700:4700::1111]/", Target(True, "2606:4700:4700::1111", 443, "/")),
        ("https://xn--bcher-kva.example/", Target(True, "xn--bcher-kva.example", 443, "/")),
    ],
)
def test_a_public_url_is_taken(url: str, target: Target) -> None:
    assert take_apart(url) == target


@pytest.mark.parametrize(
    "url",
    [
        "",
        "example.com",
        "http://example.com/",
        "ftp://example.com/",
        "file:///etc/passwd",
        "https://",
        "https:///x",
        "https://user:word@example.com/",
        "https://user@example.com/",
        "https://example.com/#part",
        "https://example.com:22/",
        "https://example.com:80/",
        "https://example.com:0/",
        "https://example.com:99999/",
        "https://example.com:x/",
        "https://localhost/",
        "https://metadata/",
        "https://127.0.0.1/",
        "https://127.1/",
        "https://2130706433/",
        "https://0x7f000001/",
        "https://0x7f.1/",
        "https://0177.0.0.1/",
        "https://017700000001/",
        "https://10.0.0.0x1/",
        "https://169.254.169.254/latest/meta-data/",
        "https://[::1]/",
        "https://[::ffff:127.0.0.1]/",
        "https://[::ffff:7f00:1]/",
        "https://[fe80::1%25eth0]/",
        "https://[::1/",
        "https://1.2.3/",
        "https://example.com./",
        "https://exam ple.com/",
        "https://example.com/a b",
        "https://example.com/a\r\nHost: inner",
        "https://example.com\\@10.0.0.1/",
        "https://①②⑦.⓪.⓪.①/",
        "https://bücher.example/",
        "https://" + "a" * 2048 + ".com/",
    ],
)
def test_a_url_that_could_lead_inside_is_refused(url: str) -> None:
    with pytest.raises(WebhookUrlRefused):
        take_apart(url)


@given(st.text(max_size=60))
def test_whatever_is_taken_names_a_host_and_a_usable_port(text: str) -> None:
    try:
        target = take_apart(f"https://{text}")
    except WebhookUrlRefused:
        return
    assert target.secure
    assert target.host
    assert target.port == 443 or target.port >= 1024
    assert all("!" <= character <= "~" for character in target.path)


def test_loopback_is_open_where_it_is_allowed_and_nothing_else_inside() -> None:
    assert not take_apart("http://127.0.0.1:8000/x", loopback_allowed=True).secure
    for url in ("http://10.0.0.1:8000/", "https://169.254.169.254/"):
        with pytest.raises(WebhookUrlRefused):
            take_apart(url, loopback_allowed=True)
