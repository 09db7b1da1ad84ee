"""A real browser for tests and screenshots: Debian's Chromium, driven by Playwright.

Nothing is downloaded, and nothing but the house is reached. `Browsing` opens pages for people and
watches each of them: what a browser complains about fails the test. Called by the fixtures of
conftest.py and by screenshots.py.
"""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Page,
    Request,
    StorageState,
    sync_playwright,
)

Theme = Literal["light", "dark"]
CHROMIUM = Path(os.environ.get("HEADRACE_CHROMIUM", "/usr/bin/chromium"))
CHROMIUM_MISSING = (
    f"there is no browser at {CHROMIUM}: `apt-get install chromium`, "
    "or name one in HEADRACE_CHROMIUM"
)
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
WIDE, NARROW = 1440, 390
HEIGHTS = {WIDE: 900, NARROW: 844}
TIMEOUT_MS = 15_000
"""Of one step on a page: two cores that also run a model are slow at times."""
STATUS_LOGGED = re.compile(r"Failed to load resource: the server responded with a status of (\d+)")
LEFT_BEHIND = "net::ERR_ABORTED"
"""A request that ended because the page was left, or because its answer is a download."""
UNSAFE_ALLOWED = "DJANGO_ALLOW_ASYNC_UNSAFE"
"""Django takes Playwright's loop in this thread for ours, and would refuse the database."""


class ChromiumMissing(Exception):
    """There is no browser; the message says how to get one."""


@contextmanager
def chromium() -> Iterator[Browser]:
    """A browser. Meanwhile `asyncio.run` is impossible in this thread: Playwright's loop runs.

    Raises ChromiumMissing.
    """
    if not CHROMIUM.exists():
        raise ChromiumMissing(CHROMIUM_MISSING)
    os.environ[UNSAFE_ALLOWED] = "1"
    try:
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=[*FLAGS])
            yield browser
            browser.close()
    finally:
        del os.environ[UNSAFE_ALLOWED]


class Browsing:
    """Pages on one house, all watched. `check` raises AssertionError with what went wrong."""

    def __init__(self, browser: Browser, root_url: str) -> None:
        self._browser = browser
        self._root_url = root_url
        self._roots: tuple[str, ...] = (root_url,)
        self._contexts: list[BrowserContext] = []
        self._expected: set[tuple[int, str]] = set()
        self._faults: list[str] = []

    def page(
        self,
        state: StorageState | None = None,
        *,
        theme: Theme = "light",
        width: int = WIDE,
    ) -> Page:
        """A page of a browser that nobody has used, or that has the cookies of `state`.

        Addresses without a host are the house's.
        """
        context = self._browser.new_context(
            base_url=self._root_url,
            storage_state=state,
            viewport={"width": width, "height": HEIGHTS[width]},
            color_scheme=theme,
            reduced_motion="reduce",
            locale="en-US",
            timezone_id="UTC",
            permissions=["clipboard-read", "clipboard-write"],
        )
        self._contexts.append(context)
        context.set_default_timeout(TIMEOUT_MS)
        context.add_cookies([{"name": "theme", "value": theme, "url": self._root_url}])
        context.on("console", self._heard)
        context.on("weberror", lambda error: self._fault(f"script: {error.error}"))
        context.on("request", self._asked)
        context.on("requestfailed", self._failed)
        context.on("response", lambda answer: self._answered(answer.status, answer.url))
        return context.new_page()

    def expect(self, status: int, path: str) -> None:
        """From now on the house may answer `path` with this status; others from 400 are faults."""
        self._expected.add((status, path))

    def let_in(self, root_url: str) -> None:
        """From now on pages may be of this server too, as where people pay."""
        self._roots = (*self._roots, root_url)

    def faults(self) -> list[str]:
        """What browsers complained about so far, each once."""
        return list(dict.fromkeys(self._faults))

    def check(self) -> None:
        """Raises AssertionError if any page so far had something to complain about."""
        faults = self.faults()
        assert not faults, "\n".join(["the browser complains:", *faults])

    def close(self) -> None:
        """Closes all pages."""
        while self._contexts:
            self._contexts.pop().close()

    def _fault(self, text: str) -> None:
        self._faults.append(text)

    def _heard(self, message: ConsoleMessage) -> None:
        # What was answered is judged by `_answered`, which knows what is expected.
        if message.type in ("error", "warning") and not STATUS_LOGGED.match(message.text):
            self._fault(f"console {message.type}: {message.text} ({message.location['url']})")

    def _asked(self, request: Request) -> None:
        url = urlsplit(request.url)
        if url.scheme in ("http", "https") and not request.url.startswith(self._roots):
            self._fault(f"asked elsewhere: {request.url}")

    def _failed(self, request: Request) -> None:
        if request.failure != LEFT_BEHIND:
            self._fault(f"failed: {request.method} {request.url}: {request.failure}")

    def _answered(self, status: int, url: str) -> None:
        path = urlsplit(url).path
        if status >= 400 and (status, path) not in self._expected:
            self._fault(f"answered {status}: {url}")
