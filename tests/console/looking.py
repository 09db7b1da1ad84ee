"""What tests and screenshots ask of a page once it is there: to rest, to fit and to weigh little.

Called by test_every_page.py and screenshots.py.
"""

from typing import Any

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


def bytes_of_first_load(page: Page, path: str) -> int:
    """What a browser without a cache transfers to show a page, headers included."""
    total = 0

    def count(event: dict[str, Any]) -> None:
        nonlocal total
        total += int(event["encodedDataLength"])

    protocol = page.context.new_cdp_session(page)
    protocol.send("Network.enable")
    protocol.send("Network.setCacheDisabled", {"cacheDisabled": True})
    protocol.on("Network.loadingFinished", count)
    go(page, path)
    protocol.detach()
    return total
