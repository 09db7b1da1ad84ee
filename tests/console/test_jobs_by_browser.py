"""A job in a real browser: files uploaded, an estimate, a preview, then live to its results."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Page, expect

from batch_jobs.models import StoredFile
from tenants.contracts import Role
from tests.console.accessibility import assert_accessible
from tests.console.browser import Browsing
from tests.console.looking import rest
from tests.console.people import Cast
from tests.house import LiveHouse, Tenant

STEP_MS = 90_000
"""Until a worker has done a step, on two cores that run a model too."""
LETTERS = ("one", "two", "three", "four")
pytestmark = pytest.mark.long


@pytest.fixture
def acme(house: LiveHouse) -> Tenant:
    """Whose jobs they are."""
    return house.new_tenant()


@pytest.fixture
def page(browsing: Browsing, acme: Tenant) -> Page:
    """Of a developer, at the list of jobs."""
    cast = Cast(acme.slug)
    page = cast.page(browsing, cast.member(Role.DEVELOPER))
    page.goto(f"/console/{acme.slug}/jobs")
    return page


def letters(folder: Path) -> list[Path]:
    """Texts to summarise."""
    paths = [folder / f"{name}.txt" for name in LETTERS]
    for path in paths:
        path.write_text(f"Letter {path.stem}. The mill on the river needs a new wheel. " * 5)
    return paths


def is_now(page: Page, state: str) -> None:
    """The page shows the state and what it allows, without being loaded again by hand."""
    shown = page.locator("[data-shown-state]")
    expect(shown).to_have_attribute("data-shown-state", state, timeout=STEP_MS)


def test_files_become_summaries_under_the_eyes_of_who_uploaded_them(
    browsing: Browsing, house: LiveHouse, page: Page, acme: Tenant, tmp_path: Path
) -> None:
    page.get_by_role("link", name="New summaries").click()
    rest(page)
    page.set_input_files("#upload", letters(tmp_path))
    expect(page.locator("[data-uploads] input[name=file_ids]")).to_have_count(len(LETTERS))
    assert_accessible(page)
    kept = StoredFile.objects.using("housekeeper").filter(
        organization_id=acme.organization_id, expires_at__gt=datetime.now(UTC) + timedelta(days=29)
    )
    assert kept.count() == len(LETTERS)
    page.get_by_label("Name").fill("Letters")
    page.get_by_label("Model").select_option(house.model)
    page.get_by_role("button", name="Read and estimate").click()

    is_now(page, "ready")
    page.get_by_role("button", name="Change").click()
    browsing.expect(422, urlsplit(page.url).path)
    page.get_by_label("Budget in USD").fill("0")
    page.get_by_role("button", name="Save").click()
    expect(page.locator("#change-form .errorlist")).to_contain_text("Must be more than 0")
    page.locator("#change-form").get_by_role("button", name="Close").click()

    page.get_by_role("button", name="Preview").click()
    expect(page.locator(".side-by-side")).to_have_count(3, timeout=STEP_MS)
    is_now(page, "ready")
    assert_accessible(page)
    page.get_by_role("button", name="Start").click()
    is_now(page, "completed")
    with page.expect_download() as found:
        page.get_by_role("link", name="JSON lines").click()
    rows = [json.loads(row) for row in Path(found.value.path()).read_text().splitlines()]

    assert sorted(row["custom_id"] for row in rows) == sorted(f"{name}.txt" for name in LETTERS)
    assert all(row["summary"] for row in rows)
    expect(page.locator(".stat", has_text="Progress")).to_contain_text("4 of 4")


def test_what_the_server_refuses_of_an_upload_is_said_beside_it(
    browsing: Browsing, page: Page, acme: Tenant, tmp_path: Path
) -> None:
    page.get_by_role("link", name="New summaries").click()
    browsing.expect(400, f"/console/{acme.slug}/jobs/files")
    nothing = tmp_path / "nothing.txt"
    nothing.touch()
    rest(page)
    page.set_input_files("#upload", nothing)

    expect(page.locator("[data-uploads] .field-error")).to_have_text("The file is empty.")
    page.get_by_role("button", name="Remove").click()
    expect(page.locator("[data-uploads] li")).to_have_count(0)
