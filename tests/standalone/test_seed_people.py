"""Whoever sets a house up can sign in to it at once, and nobody's own password is set back."""

import pytest
from django.contrib.auth import get_user_model

from headrace.standalone.seed_people import Login, seed_members, seed_people
from tenants import facade as tenants
from tenants.contracts import Role
from tests.billing.cast import make_tenant
from tests.headrace.door import Door
from tests.headrace.signing_in import sign_in

pytestmark = pytest.mark.usefixtures("django_database")


def opens(login: Login) -> bool:
    """Whether the password is taken at the door."""
    return sign_in(Door(), login.email, login.password).status_code == 302


def test_the_owner_and_the_operator_sign_in_with_what_was_printed() -> None:
    people = seed_people({})

    staff = get_user_model().objects.filter(is_staff=True).values_list("email", flat=True)
    assert opens(people.owner)
    assert opens(people.operator)
    assert people.operator.email in staff
    assert people.owner.email not in staff


def test_a_password_that_is_known_stays_and_one_that_is_lost_is_made_anew() -> None:
    before = seed_people({})

    same = seed_people({before.owner.email: before.owner.password})

    assert same.owner == before.owner
    assert same.operator.password != before.operator.password
    assert opens(same.owner)
    assert opens(same.operator)


def test_a_password_that_its_owner_changed_is_not_set_back() -> None:
    people = seed_people({})
    owner = get_user_model().objects.get(email=people.owner.email)
    owner.set_password("of-my-own-choosing")
    owner.save(update_fields=["password"])

    seed_people({people.owner.email: people.owner.password})

    assert opens(Login(people.owner.email, "of-my-own-choosing"))
    assert not opens(people.owner)


def test_the_owner_has_colleagues_each_once() -> None:
    people = seed_people({})
    acme = make_tenant("acme").organization_id

    for _ in range(2):
        seed_members(acme, people.owner_id)

    owner = tenants.actor_for_user(people.owner_id, acme, has_second_factor=None)
    assert sorted(member.role for member in tenants.list_members(owner)) == sorted(
        (Role.OWNER, Role.DEVELOPER, Role.BILLING)
    )
