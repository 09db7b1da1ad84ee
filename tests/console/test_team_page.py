"""Members and invitations on pages, from both sides of an invitation."""

from uuid import UUID, uuid4

import pytest

from tenants import facade
from tenants.contracts import Invitation, LastOwner, Member, Role, TenantObjectNotFound
from tests.headrace.door import Door, member_of, new_user
from tests.headrace.signing_in import add_authenticator, mails_to, new_address, sign_in, sign_up
from tests.tenants.cast import Tenant, make_tenant


@pytest.fixture
def acme(django_database: object) -> Tenant:
    """The organization whose members these are."""
    return make_tenant("acme")


@pytest.fixture
def owner(acme: Tenant) -> Door:
    """Its owner, who has just signed in."""
    return member_of(acme.organization_id, Role.OWNER)


def at(tenant: Tenant, path: str = "team") -> str:
    return f"/console/{tenant.slug}/{path}"


def joined(tenant: Tenant, role: Role) -> UUID:
    """Somebody who belongs there."""
    user_id = new_user()
    facade.add_member(tenant.organization_id, user_id, role)
    return user_id


def read(tenant: Tenant, user_id: UUID) -> Member:
    return facade.read_member(facade.operator_of(tenant.organization_id), user_id)


def open_invitations(tenant: Tenant) -> list[Invitation]:
    return facade.list_invitations(facade.operator_of(tenant.organization_id), only_open=True)


def invite(door: Door, tenant: Tenant, email: str, role: str = "viewer") -> int:
    fields = {"do": "invite", "email": email, "role": role, "expires_after_days": "7"}
    return door.post(at(tenant, "team/invite"), data=fields).status_code


def token_for(address: str) -> str:
    """What the mail's link holds behind its #."""
    text = mails_to(address)[-1]["link"]
    path, _, token = text.partition("#")
    assert path.endswith("/console/invitation")
    return token


def open_link(door: Door, token: str) -> None:
    """What the page's script does with the link of the mail."""
    door.get("/console/invitation")
    opened = door.post(
        "/console/invitation",
        data={"do": "open", "token": token},
        headers={"x-csrftoken": door.cookies["csrftoken"]},
    )
    assert (opened.status_code, opened.headers["location"]) == (303, "/console/invitation")


def accept(door: Door) -> tuple[int, str]:
    answer = door.post("/console/invitation", data={"do": "accept"})
    return answer.status_code, answer.headers.get("location", "")


def test_members_are_shown_with_their_role_and_second_factor(acme: Tenant, owner: Door) -> None:
    address = new_address()
    careful = sign_up(address)
    sign_in(careful, address)
    add_authenticator(careful)
    user_id = UUID(careful.get("/api/v1/me").json()["id"])
    facade.add_member(acme.organization_id, user_id, Role.BILLING)
    listed = owner.get(at(acme)).text
    page = owner.get(at(acme, f"team/{user_id}")).text

    assert address in listed
    assert ">billing<" in listed
    assert ">on<" in page
    assert ">off<" in owner.get(at(acme, f"team/{joined(acme, Role.VIEWER)}")).text


def test_an_invitation_goes_out_is_shown_and_is_withdrawn(acme: Tenant, owner: Door) -> None:
    address = new_address()
    status = invite(owner, acme, address, "developer")
    [open_one] = open_invitations(acme)
    page = owner.get(at(acme)).text
    again = owner.get(at(acme, f"team/invite?invitation={open_one.invitation_id}")).text
    fields = {"do": "withdraw", "invitation_id": str(open_one.invitation_id)}
    withdrawn = owner.post(at(acme), data=fields)

    assert status == 303
    assert (open_one.email, open_one.role) == (address, Role.DEVELOPER)
    assert address in page
    assert f'value="{address}"' in again
    assert token_for(address) not in page + again
    assert withdrawn.status_code == 303
    assert open_invitations(acme) == []


@pytest.mark.parametrize(
    ("email", "role"), [("nobody", "viewer"), ("a@example.com", "king"), ("", "viewer")]
)
def test_a_bad_invitation_is_sent_back(acme: Tenant, owner: Door, email: str, role: str) -> None:
    assert invite(owner, acme, email, role) == 422
    assert open_invitations(acme) == []


def test_nobody_invites_a_member_or_above_their_own_role(acme: Tenant, owner: Door) -> None:
    admin = member_of(acme.organization_id, Role.ADMIN)
    member = read(acme, joined(acme, Role.VIEWER))

    assert invite(owner, acme, member.email) == 422
    assert invite(admin, acme, new_address(), "owner") == 422
    assert 'value="owner"' not in admin.get(at(acme, "team/invite")).text


def test_a_role_is_changed_and_a_member_removed(acme: Tenant, owner: Door) -> None:
    user_id = joined(acme, Role.VIEWER)
    path = at(acme, f"team/{user_id}")
    changed = owner.post(path, data={"do": "change", "role": "developer"})
    role = read(acme, user_id).role
    removed = owner.post(at(acme), data={"do": "remove", "user_id": str(user_id)})

    assert (changed.status_code, role) == (303, Role.DEVELOPER)
    assert removed.status_code == 303
    with pytest.raises(TenantObjectNotFound):
        read(acme, user_id)


def test_an_admin_does_not_touch_an_owner(acme: Tenant) -> None:
    owner_id = joined(acme, Role.OWNER)
    joined(acme, Role.OWNER)
    admin = member_of(acme.organization_id, Role.ADMIN)
    fields = {"do": "remove", "user_id": str(owner_id)}

    assert "Change role" not in admin.get(at(acme, f"team/{owner_id}")).text
    assert admin.post(at(acme), data=fields).status_code == 403
    assert read(acme, owner_id).role is Role.OWNER


def test_whoever_leaves_is_gone_and_the_last_owner_stays(acme: Tenant, owner: Door) -> None:
    viewer = member_of(acme.organization_id, Role.VIEWER)
    left = viewer.post(at(acme, "leave"), data={"do": "leave", "confirm": acme.slug})
    stays = owner.post(at(acme, "leave"), data={"do": "leave", "confirm": acme.slug})

    assert (left.status_code, left.headers["location"]) == (303, "/console/")
    assert viewer.get(at(acme, "")).status_code == 404
    assert stays.status_code == 422
    assert "needs an owner" in stays.text
    assert LastOwner.__name__ not in stays.text


def test_a_newcomer_opens_the_link_signs_up_and_belongs(acme: Tenant, owner: Door) -> None:
    address = new_address()
    invite(owner, acme, address)
    newcomer = Door()
    open_link(newcomer, token_for(address))
    offer = newcomer.get("/console/invitation").text
    kept = newcomer.cookies
    newcomer = sign_up(address)
    newcomer.cookies = kept
    sign_in(newcomer, address)
    home = newcomer.get("/console/")
    accepted = accept(newcomer)

    assert "Join acme" in offer
    assert "?next=/console/invitation" in offer
    assert home.headers["location"] == "/console/invitation"
    assert accepted == (303, at(acme, ""))
    assert newcomer.get(at(acme, "")).status_code == 200
    assert "headrace-invitation" not in newcomer.cookies


def test_an_invitation_for_another_address_stays_open(acme: Tenant, owner: Door) -> None:
    address = new_address()
    invite(owner, acme, address)
    stranger = Door().sign_in(new_user())
    open_link(stranger, token_for(address))
    status, _ = accept(stranger)

    assert status == 403
    assert stranger.get(at(acme, "")).status_code == 404
    assert [one.email for one in open_invitations(acme)] == [address]


def test_the_token_is_in_no_address_and_no_page(acme: Tenant, owner: Door) -> None:
    address = new_address()
    invite(owner, acme, address)
    token = token_for(address)
    newcomer = Door()
    open_link(newcomer, token)

    assert token not in newcomer.get("/console/invitation").text


@pytest.mark.parametrize("token", ["", "unknown", "é", "x" * 500, uuid4().hex])
def test_an_unknown_token_opens_nothing(django_database: object, token: str) -> None:
    newcomer = Door()
    newcomer.get("/console/invitation")
    answer = newcomer.post(
        "/console/invitation",
        data={"do": "open", "token": token},
        headers={"x-csrftoken": newcomer.cookies["csrftoken"]},
    )

    assert answer.status_code == 404
    assert "is not open" in answer.text
    assert "headrace-invitation" not in newcomer.cookies


def test_who_is_not_signed_in_accepts_nothing(acme: Tenant, owner: Door) -> None:
    address = new_address()
    invite(owner, acme, address)
    newcomer = Door()
    open_link(newcomer, token_for(address))
    accept(newcomer)

    assert [one.email for one in open_invitations(acme)] == [address]
