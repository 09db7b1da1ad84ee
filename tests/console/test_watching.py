"""The watch itself: each way in which a page can go wrong in a browser fails its test."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, Route

from headrace.sign_in.middleware import CONTENT_POLICY
from tests.console import browser as browser_module
from tests.console.accessibility import assert_accessible
from tests.console.browser import Browsing, ChromiumMissing, chromium
from tests.console.looking import assert_fits

pytestmark = pytest.mark.long
ROOT = "http://127.0.0.1:9"
SOUND = """<!doctype html><html lang="en"><head><title>Sound</title>
<meta name="viewport" content="width=device-width"><link rel="icon" href="data:,"></head>
<body><main><h1>Sound</h1>{}</main></body></html>"""
SCRIPTS = {
    "/error.js": "console.error('no such thing')",
    "/throw.js": "throw new Error('thrown on purpose')",
    "/sound.js": "console.log('all is well')",
}
FAULTS = {
    '<p style="color: red">Red</p>': "Content Security Policy",
    "<script>alert(1)</script>": "Content Security Policy",
    '<script src="/error.js"></script>': "no such thing",
    '<script src="/throw.js"></script>': "thrown on purpose",
    '<img src="/missing.png" alt="Missing">': "answered 404",
    '<img src="/broken.png" alt="Broken">': "failed: GET",
    '<a href="http://192.0.2.1/">Elsewhere</a>': "asked elsewhere",
}


@pytest.fixture
def browsing(browser: Browser) -> Iterator[Browsing]:
    """Pages of no house: what is asked for is answered right here, and nobody checks at the end."""
    pages = Browsing(browser, ROOT)
    yield pages
    pages.close()


def open_page(browsing: Browsing, body: str) -> Page:
    def answer(route: Route) -> None:
        path = route.request.url.removeprefix(ROOT)
        if path == "/":
            headers = {"content-security-policy": CONTENT_POLICY}
            route.fulfill(body=SOUND.format(body), content_type="text/html", headers=headers)
        elif path in SCRIPTS:
            route.fulfill(body=SCRIPTS[path], content_type="text/javascript")
        elif path == "/broken.png":
            route.abort("connectionreset")
        else:
            route.fulfill(status=404, body="")

    page = browsing.page()
    page.context.route("**/*", answer)
    page.goto("/")
    return page


@pytest.mark.parametrize("body", FAULTS)
def test_what_a_browser_complains_about_fails(body: str, browsing: Browsing) -> None:
    page = open_page(browsing, body)
    if "<a " in body:
        page.locator("a").click()

    with pytest.raises(AssertionError, match=FAULTS[body]):
        browsing.check()


def test_a_sound_page_and_an_expected_refusal_pass(browsing: Browsing) -> None:
    browsing.expect(404, "/missing.png")
    page = open_page(
        browsing, '<img src="/missing.png" alt="Missing"><script src="/sound.js"></script>'
    )

    browsing.check()
    assert_fits(page)
    assert_accessible(page)


def test_a_page_that_scrolls_sideways_and_an_unlabelled_button_are_named(
    browsing: Browsing,
) -> None:
    page = open_page(
        browsing, '<table width="3000"><tr><td>Wide</td></tr></table><button></button>'
    )

    with pytest.raises(AssertionError, match="<table width"):
        assert_fits(page)
    with pytest.raises(AssertionError, match="button-name"):
        assert_accessible(page)


def test_a_missing_browser_says_how_to_get_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(browser_module, "CHROMIUM", Path("/nowhere/chromium"))

    with pytest.raises(ChromiumMissing, match="apt-get install chromium"), chromium():
        pass
