"""`make screenshots`: every page in both themes and two widths, full of data and empty, as PNG.

Brings up a house of its own on the demo's history and visits what a person can reach. Fails when a
browser complains about a page or the first one weighs too much; what is ugly only people can see.
Called as `python -m tests.console.screenshots [part of a page's name]`.
"""

import os
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from playwright.sync_api import Error as BrowserError
from playwright.sync_api import Page

from headrace.standalone.data_folder import REPOSITORY, DataFolder, SetUpError
from headrace.standalone.embedded_servers import DataFolderBusyError, refuse_if_busy
from headrace.standalone.loopback_server import free_port
from headrace.standalone.processes import set_up_environment
from headrace.standalone.running_house import RunningHouse
from headrace.standalone.supervisor import (
    StopRequested,
    demo_keys,
    demo_passwords,
    house_running,
    model_served,
    stop_signals,
)
from tenants.contracts import Role
from tests.console.browser import HEIGHTS, NARROW, WIDE, Browsing, ChromiumMissing, Theme, chromium
from tests.console.looking import assert_light, go
from tests.console.people import Cast, Person

FOLDER = Path(os.environ.get("HEADRACE_SCREENSHOTS") or REPOSITORY / ".screenshots").resolve()
HOUSE = DataFolder(FOLDER / "house")
SHOWN = "acme"
THEMES: tuple[Theme, ...] = ("light", "dark")


def main(arguments: list[str]) -> int:
    """Writes the pictures of pages whose names have the argument in them, or of all."""
    wanted = arguments[0] if arguments else ""
    started_at = time.monotonic()
    try:
        with stop_signals(), _house() as running:
            for old in _pictures(wanted):
                old.unlink()
            faults = _photograph_all(running, wanted)
    except StopRequested:
        return 1
    except DataFolderBusyError:
        print(f"error: {FOLDER} is in use: name another in HEADRACE_SCREENSHOTS", file=sys.stderr)
        return 1
    except (SetUpError, ChromiumMissing) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    count = len(_pictures(wanted))
    print(f"{count} pictures in {FOLDER}, after {time.monotonic() - started_at:.0f} s")
    print("\n".join([f"complaints: {len(faults)}", *faults]))
    return 1 if faults else 0


@contextmanager
def _house() -> Iterator[RunningHouse]:
    """A fresh house with a month of history, furnished, which this process's settings point to.

    What it leaves after a failure is for looking at.
    """
    HOUSE.create()
    refuse_if_busy(HOUSE)
    shutil.rmtree(HOUSE.root)
    with house_running(
        HOUSE, free_port(), "`make screenshots`", say=_say, with_history=True
    ) as running:
        os.environ.update(set_up_environment(running.house))
        import django

        django.setup()
        from tenants.facade import organization_by_slug
        from tests.console.furnishing import furnish, submit_jobs

        _say("furnishing it")
        shown = organization_by_slug(SHOWN)
        assert shown is not None
        furnish(shown.organization_id)
        key = demo_keys(HOUSE)[SHOWN]
        submit_jobs(_root_url(running), key, model_served(running.house))
        yield running
    shutil.rmtree(HOUSE.root)


def _say(text: str) -> None:
    print(f"  {text}", flush=True)


def _root_url(running: RunningHouse) -> str:
    return running.house.base_url.removesuffix("/v1")


def _photograph_all(running: RunningHouse, wanted: str) -> list[str]:
    """Photographs what is wanted; returns what is wrong."""
    _say("photographing")
    with chromium() as browser:
        browsing = Browsing(browser, _root_url(running))
        visits = list(_visits(browsing))
        stuck = [
            f"{name}: {error}"
            for visit in visits
            for name, path in visit.paths.items()
            if wanted in name
            for error in _photograph(visit, name, path)
        ]
        faults = [*browsing.faults(), *stuck]
        try:
            weight = assert_light(visits[1].page, f"/console/{SHOWN}/")
            print(f"first page: {weight:,} bytes")
        except AssertionError as error:
            faults.append(str(error))
        browsing.close()
    return faults


@dataclass(frozen=True, slots=True)
class Visit:
    """Somebody at a browser, and the pages they look at by the names of their pictures."""

    page: Page
    theme: Theme
    paths: dict[str, str]


def _visits(browsing: Browsing) -> Iterator[Visit]:
    from tests.console.registry import (
        ACCOUNT_PATHS,
        STRANGERS_PATHS,
        operator_paths,
        rail_pages,
        reached,
    )

    cast = Cast(SHOWN)
    cast.introduce(Role.OWNER, SHOWN, _seeded_owner())
    owner = cast.member(Role.OWNER)
    founder = cast.member(Role.OWNER, cast.empty_slug)
    rail = rail_pages()
    full = {one.route: one.path(SHOWN) for one in rail}
    below = reached(cast.page(browsing, owner), rail[0].path(SHOWN))
    account = {f"account-{name}": path for name, path in ACCOUNT_PATHS.items()}
    empty = {f"{one.route}-empty": one.path(cast.empty_slug) for one in rail}
    operator = {f"operator-{name}": path for name, path in operator_paths().items()}
    for theme in THEMES:
        yield Visit(browsing.page(theme=theme), theme, STRANGERS_PATHS)
        yield Visit(cast.page(browsing, owner, theme=theme), theme, below | full | account)
        yield Visit(cast.page(browsing, founder, theme=theme), theme, empty)
        yield Visit(cast.page(browsing, cast.operator, theme=theme), theme, operator)


def _seeded_owner() -> Person:
    """Whom the seed made acme's owner."""
    from django.contrib.auth import get_user_model

    [(address, password)] = [
        login for login in demo_passwords(HOUSE).items() if login[0].startswith("owner@")
    ]
    user = get_user_model()._default_manager.get(email=address)
    return Person(address, user.pk, password=password)


def _pictures(wanted: str) -> list[Path]:
    return [file for file in FOLDER.glob("*.png") if wanted in file.name]


def _photograph(visit: Visit, name: str, path: str) -> list[str]:
    """Both widths of a page; what kept the browser from one is returned, for the rest to go on."""
    try:
        for width in (WIDE, NARROW):
            visit.page.set_viewport_size({"width": width, "height": HEIGHTS[width]})
            go(visit.page, path)
            file = FOLDER / f"{name}-{visit.theme}-{width}.png"
            visit.page.screenshot(path=file, full_page=True)
    except BrowserError as error:
        return [error.message]
    return []


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
