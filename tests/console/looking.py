"""What tests and screenshots ask of a page once it is there: to rest, to fit and to weigh little.

Called by test_every_page.py and screenshots.py.
"""

from typing import Any
from urllib.parse import urlsplit

from playwright.sync_api import Page, Response

OVERFLOWING = """() => {
    const width = document.documentElement.clientWidth;
    if (document.documentElement.scrollWidth <= width) return [];
    return [...document.body.querySelectorAll('*')]
        .filter(one => one.getBoundingClientRect().right > width + 1)
        .filter(one => !one.parentElement.closest('[data-scrolls], .table-responsive, pre'))
        .slice(0, 5)
        .map(one => one.outerHTML.slice(0, 160));
}"""
QUIET_MS = 150
AT_REST = """quietMs => {
    const loaded = performance.getEntriesByType('resource').map(one => one.responseEnd);
    return document.readyState === 'complete'
        && document.fonts.status === 'loaded'
        && !document.querySelector('.htmx-request, .htmx-settling, .htmx-swapping')
        && performance.now() - Math.max(0, ...loaded) > quietMs;
}"""
FIRST_LOAD_BYTES_MAX = 250_000
"""Compressed, with everything that a browser without a cache loads to show a page."""


def go(page: Page, path: str) -> Response:
    """Opens a page of the house and waits until nothing moves on it any more."""
    answer = page.goto(path)
    assert answer is not None, path
    rest(page)
    return answer


def rest(page: Page) -> None:
    """Waits until the page has loaded and swapped in all that it asked for."""
    page.wait_for_function(AT_REST, arg=QUIET_MS)


def assert_fits(page: Page) -> None:
    """Raises AssertionError naming what makes the page scroll sideways."""
    outside: list[str] = page.evaluate(OVERFLOWING)
    assert not outside, "\n".join([f"{page.url} scrolls sideways:", *outside])


def assert_light(page: Page, path: str) -> int:
    """What a browser without a cache transfers to show a page, headers included.

    Raises AssertionError listing it when that is more than FIRST_LOAD_BYTES_MAX.
    """
    addresses: dict[str, str] = {}
    weights: dict[str, int] = {}

    def answered(event: dict[str, Any]) -> None:
        addresses[event["requestId"]] = urlsplit(event["response"]["url"]).path

    def loaded(event: dict[str, Any]) -> None:
        weights[event["requestId"]] = int(event["encodedDataLength"])

    protocol = page.context.new_cdp_session(page)
    protocol.send("Network.enable")
    protocol.send("Network.setCacheDisabled", {"cacheDisabled": True})
    protocol.on("Network.responseReceived", answered)
    protocol.on("Network.loadingFinished", loaded)
    go(page, path)
    protocol.detach()
    total = sum(weights.values())
    listed = [f"{weight:>9,} {addresses[one]}" for one, weight in weights.items()]
    assert total <= FIRST_LOAD_BYTES_MAX, "\n".join(
        [
            f"{path} makes a browser load {total:,} bytes of at most {FIRST_LOAD_BYTES_MAX:,}:",
            *listed,
        ]
    )
    return total
