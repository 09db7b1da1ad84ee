"""Who can sign in to a fresh house: acme's owner, colleagues of theirs, and the operator.

Passwords are made here, once for each person, and kept where the demo's keys are; one that somebody
has changed stays theirs. Nobody has a second factor: the operator's console asks for one at the
first sign-in. Called by `seed`.
"""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from allauth.account.models import EmailAddress
from django.contrib.auth import get_user_model

from tenants import facade as tenants
from tenants.contracts import Role

HOUSEKEEPER = "housekeeper"
PASSWORD_BYTES = 15
OWNER = ("owner@acme.example", "Olga Owner")
OPERATOR = ("operator@headrace.example", "Oscar Operator")
COLLEAGUES = {
    Role.DEVELOPER: ("dev@acme.example", "Dana Developer"),
    Role.BILLING: ("billing@acme.example", "Bill Billing"),
}


@dataclass(frozen=True, slots=True)
class Login:
    """What a person types."""

    email: str
    password: str


@dataclass(frozen=True, slots=True)
class People:
    """Those who can sign in."""

    owner_id: UUID
    owner: Login
    operator: Login


def seed_people(known_passwords: Mapping[str, str]) -> People:
    """Makes who is missing; a person whose password nobody knows any more gets another."""
    owner_id, owner = _person(*OWNER, known_passwords)
    _, operator = _person(*OPERATOR, known_passwords, is_staff=True, is_superuser=True)
    return People(owner_id, owner, operator)


def seed_members(organization_id: UUID, owner_id: UUID) -> None:
    """The owner, and colleagues who never sign in."""
    tenants.add_member(organization_id, owner_id, Role.OWNER)
    for role, (email, display_name) in COLLEAGUES.items():
        user = _users().filter(email=email).first()
        if user is None:
            user = _users().create_user(email, None, display_name=display_name)
        tenants.add_member(organization_id, user.pk, role)


def _person(
    email: str, display_name: str, known_passwords: Mapping[str, str], **flags: bool
) -> tuple[UUID, Login]:
    user = _users().filter(email=email).first()
    password = known_passwords.get(email)
    if user is None:
        password = secrets.token_urlsafe(PASSWORD_BYTES)
        user = _users().create_user(email, password, display_name=display_name, **flags)
    elif password is None:
        password = secrets.token_urlsafe(PASSWORD_BYTES)
        user.set_password(password)
        user.save(using=HOUSEKEEPER, update_fields=["password"])
    # Signed up as anybody would have: the address is confirmed, by whoever seeds.
    EmailAddress.objects.get_or_create(
        user_id=user.pk, email=email, defaults={"verified": True, "primary": True}
    )
    return user.pk, Login(email, password)


def _users() -> Any:  # the manager of a class that only `tenants` may name
    return get_user_model().objects.db_manager(HOUSEKEEPER)
