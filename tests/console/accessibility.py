"""Whether a page can be used by everybody, as far as axe-core can tell.

axe is vendored (vendor/axe-core-*, MPL-2.0) and only ever runs in tests: no page of ours loads it.
"""

from functools import cache
from pathlib import Path
from typing import Any

from playwright.sync_api import Page

[AXE] = Path(__file__).with_name("vendor").glob("axe-core-*/axe.min.js")
SEVERE = ("serious", "critical")
NODES_SHOWN_MAX = 5


def assert_accessible(page: Page) -> None:
    """Raises AssertionError with a list of what is serious or critical on the page as it is now."""
    found = violations(page)
    assert not found, "\n".join([f"{page.url} is not for everybody:", *found])


def violations(page: Page) -> list[str]:
    """What axe calls serious or critical, each with the elements it is about."""
    # The debugger evaluates this; the page's own policy would not let it.
    page.evaluate(_source())
    result: dict[str, Any] = page.evaluate("() => axe.run(document, {resultTypes: ['violations']})")
    return [
        f"  {one['id']} ({one['impact']}): {one['help']}\n" + _elements(one["nodes"])
        for one in result["violations"]
        if one["impact"] in SEVERE
    ]


def _elements(nodes: list[dict[str, Any]]) -> str:
    lines = []
    for node in nodes[:NODES_SHOWN_MAX]:
        why = [check["message"] for kind in ("any", "all", "none") for check in node[kind]]
        lines.append(f"    {node['target']}: {'; '.join(why)}\n      {node['html'][:200]}")
    if len(nodes) > NODES_SHOWN_MAX:
        lines.append(f"    and {len(nodes) - NODES_SHOWN_MAX} more")
    return "\n".join(lines)


@cache
def _source() -> str:
    return AXE.read_text() + "; undefined"
