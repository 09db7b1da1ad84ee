"""`make screenshots`: every page in both themes and two widths, full of data and empty, as PNG.

Brings up a house of its own on the demo's data and visits what a person can reach. Fails when a
browser complains about a page or the first one weighs too much; what is ugly only people can see.
Called as `python -m tests.console.screenshots [part of a page's name]`.
"""

import os
import shutil
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass

from playwright.sync_api import Page

from headrace.standalone.data_folder import REPOSITORY, DataFolder, SetUpError
from headrace.standalone.loopback_server import free_port
from headrace.standalone.processes import set_up_environment
from headrace.standalone.running_house import RunningHouse
from headrace.standalone.supervisor import StopRequested, house_running, stop_signals
from tests.console.browser import HEIGHTS, NARROW, WIDE, Browsing, ChromiumMissing, Theme, chromium
from tests.console.looking import FIRST_LOAD_BYTES_MAX, bytes_of_first_load, go

FOLDER = REPOSITORY / ".screenshots"
THEMES: tuple[Theme, ...] = ("light", "dark")


@dataclass(frozen=True, slots=True)
class Shot:
    """A page to photograph: the name of its files, and where it is."""

    name: str
    path: str


def main(arguments: list[str]) -> int:
    """Writes the pictures of pages whose names have the argument in them, or of all."""
    wanted = arguments[0] if arguments else ""
    shutil.rmtree(FOLDER, ignore_errors=True)
    started_at = time.monotonic()
    try:
        with (
            stop_signals(),
            house_running(
                DataFolder(FOLDER / "house"), free_port(), "`make screenshots`", say=_say
            ) as running,
        ):
            faults = _photograph_all(running, wanted)
    except StopRequested:
        return 1
    except (SetUpError, ChromiumMissing) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    shutil.rmtree(FOLDER / "house")
    count = len(list(FOLDER.glob("*.png")))
    print(f"{count} pictures in {FOLDER}, after {time.monotonic() - started_at:.0f} s")
    return 1 if faults else 0


def _say(text: str) -> None:
    print(f"  {text}", flush=True)


def _photograph_all(running: RunningHouse, wanted: str) -> int:
    os.environ.update(set_up_environment(running.house))
    import django

    django.setup()
    root_url = running.house.base_url.removesuffix("/v1")
    with chromium() as browser:
        browsing = Browsing(browser, root_url)
        for theme, page, shots in _visits(browsing):
            for shot in shots:
                if wanted in shot.name:
                    _photograph(page, shot, theme)
        transferred = bytes_of_first_load(browsing.page(), "/accounts/login/")
        print(f"first page: {transferred:,} bytes of at most {FIRST_LOAD_BYTES_MAX:,}")
        faults = browsing.faults()
        browsing.close()
    print(f"complaints of the browser: {len(faults)}")
    for fault in faults:
        print(f"  {fault}")
    return len(faults) + (transferred > FIRST_LOAD_BYTES_MAX)


def _visits(browsing: Browsing) -> Iterator[tuple[Theme, Page, list[Shot]]]:
    """Each person at a browser, with what they look at."""
    from tenants.contracts import Role
    from tests.console.people import Cast
    from tests.console.registry import (
        ACCOUNT_PATHS,
        STRANGERS_PATHS,
        operator_paths,
        rail_pages,
        reached,
    )

    cast = Cast()
    owner = cast.member(Role.OWNER)
    founder = cast.member(Role.OWNER, cast.empty_slug)
    rail = {one.route: one for one in rail_pages()}
    start = next(iter(rail.values())).path(cast.full_slug)
    below = reached(cast.page(browsing, owner), start).items()
    full = [
        *(Shot(route, one.path(cast.full_slug)) for route, one in rail.items()),
        *(Shot(route, path) for route, path in below if route not in rail),
        *(Shot(f"account-{name}", path) for name, path in ACCOUNT_PATHS.items()),
    ]
    empty = [Shot(f"{route}-empty", one.path(cast.empty_slug)) for route, one in rail.items()]
    operator = [Shot(f"operator-{name}", path) for name, path in operator_paths().items()]
    strangers = [Shot(name, path) for name, path in STRANGERS_PATHS.items()]
    for theme in THEMES:
        yield theme, browsing.page(theme=theme), strangers
        yield theme, cast.page(browsing, owner, theme=theme), full
        yield theme, cast.page(browsing, founder, theme=theme), empty
        yield theme, cast.page(browsing, cast.operator, theme=theme), operator


def _photograph(page: Page, shot: Shot, theme: Theme) -> None:
    for width in (WIDE, NARROW):
        page.set_viewport_size({"width": width, "height": HEIGHTS[width]})
        go(page, shot.path)
        page.screenshot(path=FOLDER / f"{shot.name}-{theme}-{width}.png", full_page=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
