"""The search box: finds by name or id what the viewer's own pages show, and nothing else."""

import pytest

from tenants.contracts import Role
from tests.isolation.sides import Side, make_side
from tests.isolation.test_console_matrix import slug_of


@pytest.fixture
def side(django_database: None) -> Side:
    """An organization to look through."""
    return make_side("searched")


def found(side: Side, role: Role, text: str) -> str:
    """What the box shows."""
    answer = side.members[role].get(f"/console/{slug_of(side)}/search", params={"q": text})
    assert answer.status_code == 200
    return answer.text


def test_it_finds_by_name_whatever_the_case(side: Side) -> None:
    assert f"/projects/{side.sibling_project_id}" in found(side, Role.VIEWER, "SIBL")
    assert f"/keys/{side.key_id}" in found(side, Role.DEVELOPER, "tes")
    assert "/billing" in found(side, Role.BILLING, "bill")


def test_a_pasted_id_leads_to_its_page(side: Side) -> None:
    text = f"req_{'0' * 12}7{'0' * 3}8{'0' * 15}"

    assert f"/requests/{text}" in found(side, Role.OWNER, text)
    assert "/jobs/" in found(side, Role.OWNER, f"batch_{'0' * 32}")


def test_it_shows_nobody_what_their_pages_would_not(side: Side) -> None:
    text = f"req_{'0' * 12}7{'0' * 3}8{'0' * 15}"

    assert "/requests/" not in found(side, Role.VIEWER, text)
    assert "/team/" not in found(side, Role.VIEWER, "example.com")
    assert "/team/" in found(side, Role.OWNER, "example.com")


def test_what_nobody_is_called_is_said_with_what_to_try(side: Side) -> None:
    assert "Nothing is called" in found(side, Role.OWNER, "<b>zzz</b>")
    assert "<b>zzz" not in found(side, Role.OWNER, "<b>zzz</b>")
    assert found(side, Role.OWNER, "").strip() == ""
