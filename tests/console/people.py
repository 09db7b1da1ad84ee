"""Who sits at the browser in tests and screenshots: members of every role, and an operator.

They exist in the database of the house that this process is on; each signs in through the real
form, once, and then keeps the cookies for a few minutes. Called by the fixtures and screenshots.
"""

import time
from dataclasses import dataclass
from uuid import UUID, uuid4

from playwright.sync_api import Page, StorageState, expect

from headrace.standalone.demo_people import Mailbox
from tenants.contracts import Role
from tests.console.browser import Browsing, Theme
from tests.headrace.signing_in import PASSWORD, totp

SIGN_IN_REUSED_S = 200
"""Less than ACCOUNT_REAUTHENTICATION_TIMEOUT: whoever is signed in may do what is sensitive."""
TOTP_TRIES = 2
"""A code may have changed between reading and sending it."""


@dataclass(frozen=True, slots=True)
class Person:
    """Somebody with a confirmed address; a second factor if they have one."""

    address: str
    user_id: UUID
    totp_secret: str | None = None
    password: str = PASSWORD


class Cast:
    """The people of one house, made when they are first asked for.

    `full_slug` names the organization that has everything.
    """

    def __init__(self, full_slug: str) -> None:
        self.full_slug = full_slug
        self._members: dict[tuple[str, Role], Person] = {}
        self._operator: Person | None = None
        self._states: dict[str, tuple[float, StorageState]] = {}
        self._empty_slug: str | None = None

    @property
    def empty_slug(self) -> str:
        """An organization as it is right after somebody founded it."""
        if self._empty_slug is None:
            self._empty_slug = new_organization("Empty Orchard")
        return self._empty_slug

    def introduce(self, role: Role, slug: str, person: Person) -> None:
        """From now on that member of an organization is somebody who is there already."""
        self._members[slug, role] = person

    def member(self, role: Role, slug: str = "") -> Person:
        """The member of this role that tests have in an organization, by default the full one."""
        from tenants.facade import add_member, organization_by_slug

        slug = slug or self.full_slug
        if (slug, role) not in self._members:
            organization = organization_by_slug(slug)
            assert organization is not None, f"the house has no organization {slug}"
            person = new_person(f"{role.value}.{slug}")
            add_member(organization.organization_id, person.user_id, role)
            self._members[slug, role] = person
        return self._members[slug, role]

    @property
    def operator(self) -> Person:
        """Staff, with the second factor that the operator's console demands."""
        if self._operator is None:
            self._operator = new_person("operator", is_staff=True)
        return self._operator

    def state(self, browsing: Browsing, person: Person) -> StorageState:
        """The cookies of somebody who signed in lately, by the form."""
        signed_in_at, state = self._states.get(person.address, (0.0, None))
        if state is None or time.monotonic() - signed_in_at > SIGN_IN_REUSED_S:
            page = browsing.page()
            sign_in(page, person)
            state = page.context.storage_state()
            self._states[person.address] = (time.monotonic(), state)
            page.context.close()
        return state

    def page(
        self, browsing: Browsing, person: Person, *, theme: Theme = "light", width: int = 1440
    ) -> Page:
        """A page of theirs, signed in."""
        return browsing.page(self.state(browsing, person), theme=theme, width=width)


def sign_in(page: Page, person: Person) -> None:
    """Fills in the form, and the second one if they have a second factor."""
    page.goto("/accounts/login/")
    fill_sign_in(page, person.address, person.password)
    if person.totp_secret is None:
        expect(page).not_to_have_url("/accounts/login/")
        return
    for _ in range(TOTP_TRIES):
        page.wait_for_url("**/accounts/2fa/authenticate/**")
        page.locator("input[name=code]").fill(totp(person.totp_secret))
        with page.expect_navigation():
            page.locator("input[name=code]").press("Enter")
        if "/2fa/authenticate" not in page.url:
            return
    raise AssertionError(f"{person.address} is not let in: {page.inner_text('main, body')}")


def fill_sign_in(page: Page, address: str, password: str) -> None:
    """Sends the form that is open as people do, by Enter."""
    page.locator("input[name=login]").fill(address)
    page.locator("input[name=password]").fill(password)
    with page.expect_navigation():
        page.locator("input[name=password]").press("Enter")


def prove_again(page: Page, password: str = PASSWORD) -> None:
    """Gives the password where the house asks for it once more, and is back where it was asked."""
    page.wait_for_url("**/accounts/reauthenticate/**")
    page.locator("input[name=password]").fill(password)
    with page.expect_navigation():
        page.locator("input[name=password]").press("Enter")


def new_person(name: str, *, is_staff: bool = False) -> Person:
    """A person who belongs nowhere yet. Staff get a second factor."""
    from allauth.account.models import EmailAddress
    from allauth.mfa.totp.internal.auth import TOTP, generate_totp_secret
    from django.contrib.auth import get_user_model

    address = f"{name}.{uuid4().hex[:6]}@example.com"
    # The web's own role makes nobody staff.
    people = get_user_model()._default_manager
    people.db_manager("housekeeper").create_user(
        email=address, password=PASSWORD, is_staff=is_staff
    )
    user = people.get(email=address)
    EmailAddress.objects.create(user=user, email=address, verified=True, primary=True)
    secret = generate_totp_secret() if is_staff else None
    if secret is not None:
        TOTP.activate(user, secret)
    return Person(address, user.pk, secret)


def new_organization(display_name: str) -> str:
    """The slug of an organization without projects, keys, money or use."""
    from billing import facade as billing
    from tenants import facade as tenants

    slug = f"{display_name.lower().replace(' ', '-')}-{uuid4().hex[:6]}"
    organization_id = tenants.create_organization(slug, display_name).organization_id
    billing.open_account(organization_id)
    return slug


def link_mailed(mailbox: Mailbox, address: str, about: str) -> str:
    """The path of the first link to us in the newest mail about something."""
    text = mailbox.wait(address, about)
    start = text.index("/accounts/")
    return text[start:].split()[0]
