"""What a stolen session cannot do: nothing that would let its thief sign in, or stay."""

import re
from urllib.parse import urlsplit

import pytest
from allauth.account.models import EmailAddress
from django.contrib.auth import get_user_model

from tests.headrace.door import Door, new_user
from tests.headrace.signing_in import PASSWORD, mails_to, new_address, sign_in, sign_up, submit

pytestmark = pytest.mark.usefixtures("django_database", "crowd")
DAYS_6 = 6 * 24 * 3600
EMAIL = "/accounts/email/"
SET = "/accounts/password/set/"
NEW_PASSWORD = "mallory-owns-this-1"


def stolen_from(address: str) -> Door:
    """A session of that person, who proved who they are six days ago."""
    user = get_user_model()._default_manager.get(email=address)
    return Door().sign_in(user.pk, seconds_ago=DAYS_6)


def addresses_of(address: str) -> list[tuple[str, bool]]:
    """All addresses of the person who signed up with this one, and whether each is the first."""
    mine = EmailAddress.objects.filter(user__emailaddress__email=address)
    return sorted(mine.values_list("email", "primary"))


def without_password() -> str:
    """The address of a person who only ever came by an identity provider."""
    user_id = new_user()
    address: str = get_user_model()._default_manager.get(pk=user_id).email
    EmailAddress.objects.create(user_id=user_id, email=address, verified=True, primary=True)
    return address


def test_an_old_session_adds_no_address() -> None:
    address, other = new_address(), new_address()
    sign_up(address)
    answer = submit(stolen_from(address), EMAIL, action_add="", email=other)

    assert urlsplit(answer.headers["location"]).path == "/accounts/reauthenticate/"
    assert addresses_of(address) == [(address, True)]
    assert mails_to(other) == []


@pytest.mark.parametrize("action", ["action_primary", "action_remove"])
def test_an_old_session_changes_no_address(action: str) -> None:
    address, second = new_address(), new_address()
    sign_up(address)
    person = get_user_model()._default_manager.get(email=address)
    EmailAddress.objects.create(user=person, email=second, verified=True)
    answer = submit(stolen_from(address), EMAIL, **{action: "", "email": second})

    assert urlsplit(answer.headers["location"]).path == "/accounts/reauthenticate/"
    assert addresses_of(address) == sorted([(address, True), (second, False)])


def test_who_gives_the_password_again_adds_an_address() -> None:
    address, other = new_address(), new_address()
    door = sign_up(address)
    sign_in(door, address)
    submit(door, "/accounts/reauthenticate/", password=PASSWORD)
    submit(door, EMAIL, action_add="", email=other)

    assert addresses_of(address) == sorted([(address, True), (other, False)])


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_an_old_session_sets_no_first_password(method: str) -> None:
    address = without_password()
    stolen = stolen_from(address)
    fields = {"password1": NEW_PASSWORD, "password2": NEW_PASSWORD}
    answer = stolen.request(method, SET, data=fields if method == "POST" else None)

    assert urlsplit(answer.headers["location"]).path == "/accounts/reauthenticate/code/"
    assert not get_user_model()._default_manager.get(email=address).has_usable_password()


def test_who_reads_the_persons_mail_sets_a_first_password() -> None:
    address = without_password()
    door = stolen_from(address)
    submit(door, "/accounts/reauthenticate/code/", recipient=address)
    [mail] = mails_to(address)
    code = re.search(r"^\s*([A-Z0-9]+(?:-[A-Z0-9]+)?)\s*$", mail["body"], re.MULTILINE)
    assert code is not None, mail["body"]
    wrong = submit(door, "/accounts/reauthenticate/code/confirm/", code="AAAA-AAAA")
    early = door.get(SET)
    submit(door, "/accounts/reauthenticate/code/confirm/", code=code[1])
    submit(door, SET, password1=NEW_PASSWORD, password2=NEW_PASSWORD)

    assert (wrong.status_code, early.status_code) == (200, 302)
    person = get_user_model()._default_manager.get(email=address)
    assert person.check_password(NEW_PASSWORD)
