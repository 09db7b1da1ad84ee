"""Rows of people, projects, service accounts, keys and the audit log."""

from uuid import uuid4

import tenants.facade
from tenants.contracts import KeySettings, Permission, Role
from tests.headrace.door import new_user
from tests.isolation.matrix import (
    ORGANIZATION_KEY,
    PERSON,
    TENANT,
    Act,
    Arguments,
    Json,
    K,
    Row,
    T,
)
from tests.isolation.sides import Side


def member(side: Side) -> Arguments:
    """A viewer who has just joined."""
    user_id = new_user()
    tenants.facade.add_member(side.organization_id, user_id, Role.VIEWER)
    return {"user_id": user_id}


def former_member(side: Side) -> Arguments:
    """Somebody who is gone."""
    arguments = member(side)
    tenants.facade.remove_member(side.actor, arguments["user_id"])
    return arguments


def new_address() -> str:
    """An address nobody has."""
    return f"{uuid4().hex[:12]}@example.com"


def invitation(side: Side) -> Arguments:
    """An open invitation."""
    issued = tenants.facade.invite(side.actor, new_address(), Role.VIEWER)
    return {"invitation_id": issued.invitation.invitation_id}


def project(side: Side) -> Arguments:
    """A new project."""
    return {"project_id": tenants.facade.open_project(side.actor, "matrix").project_id}


def service_account(side: Side) -> Arguments:
    """A service account of the first project."""
    made = tenants.facade.create_service_account(side.actor, side.project_id, "matrix")
    return {"service_account_id": made.service_account_id}


def account_of_project(side: Side) -> Arguments:
    """The same, with its project."""
    return {"project_id": side.project_id, **service_account(side)}


def account_of_sibling(side: Side) -> Arguments:
    """The same account by way of the other project."""
    return {"project_id": side.sibling_project_id, **service_account(side)}


def disabled_account(side: Side) -> Arguments:
    """An account that was disabled."""
    arguments = account_of_project(side)
    tenants.facade.disable_service_account(side.actor, arguments["service_account_id"])
    return arguments


def key(side: Side) -> Arguments:
    """A key of the first project."""
    made = tenants.facade.create_key(side.actor, side.project_id, KeySettings("matrix"))
    return {"key_id": made.key_id}


def key_of_project(side: Side) -> Arguments:
    """The same, with its project."""
    return {"project_id": side.project_id, **key(side)}


def key_of_sibling(side: Side) -> Arguments:
    """The same key by way of the other project."""
    return {"project_id": side.sibling_project_id, **key(side)}


def revoked_key(side: Side) -> Arguments:
    """A key that was revoked."""
    arguments = key_of_project(side)
    tenants.facade.revoke_key_as(side.actor, arguments["key_id"])
    return arguments


def an_admin_key(side: Side) -> Arguments:
    """An admin key of few rights."""
    made = tenants.facade.create_admin_key(side.actor, "matrix", frozenset({Permission.USAGE_READ}))
    return {"key_id": made.key_id}


def revoked_admin_key(side: Side) -> Arguments:
    """An admin key that was revoked."""
    arguments = an_admin_key(side)
    tenants.facade.revoke_key_as(side.actor, arguments["key_id"])
    return arguments


def key_body(side: Side, _arguments: Arguments) -> Json:
    """A new key of the first project."""
    return {"name": "new", "project_id": str(side.project_id)}


def invitation_body(_side: Side, _arguments: Arguments) -> Json:
    """A new invitation."""
    return {"email": new_address(), "role": "viewer"}


A_PROJECT = frozenset({"project_id"})
PEOPLE_ROWS = {
    "api/v1/organizations/<uuid:organization_id>": Row(
        TENANT, {"GET": Act(), "PATCH": Act({"display_name": "Matrix"})}
    ),
    T + "members": Row(TENANT, {"GET": Act()}),
    T + "members/<uuid:user_id>": Row(
        TENANT,
        {"GET": Act(), "PATCH": Act({"role": "viewer"}), "DELETE": Act(status=204)},
        own=member,
        deleted=former_member,
    ),
    T + "invitations": Row(TENANT, {"GET": Act(), "POST": Act(invitation_body, 201)}),
    T + "invitations/<uuid:invitation_id>": Row(
        TENANT, {"GET": Act(), "DELETE": Act(status=204)}, own=invitation
    ),
    T + "projects": Row(TENANT, {"GET": Act(), "POST": Act({"name": "new"}, 201)}),
    T + "projects/<uuid:project_id>": Row(
        TENANT, {"GET": Act(), "PATCH": Act({"name": "renamed"})}, own=project
    ),
    T + "projects/<uuid:project_id>/archive": Row(TENANT, {"POST": Act()}, own=project),
    T + "service_accounts": Row(
        TENANT,
        {"GET": Act(), "POST": Act(key_body, 201)},
        takes=A_PROJECT,
    ),
    T + "service_accounts/<uuid:service_account_id>": Row(
        TENANT, {"GET": Act(), "DELETE": Act(status=204)}, own=service_account
    ),
    T + "keys": Row(
        TENANT,
        {"GET": Act(), "POST": Act(key_body, 201)},
        takes=A_PROJECT | {"permissions"},
    ),
    T + "keys/<uuid:key_id>": Row(
        TENANT, {"GET": Act(), "PATCH": Act({"name": "renamed"})}, own=key
    ),
    T + "keys/<uuid:key_id>/rotate": Row(TENANT, {"POST": Act({"grace_s": 60}, 201)}, own=key),
    T + "keys/<uuid:key_id>/revoke": Row(TENANT, {"POST": Act()}, own=key),
    T + "audit_log": Row(TENANT, {"GET": Act()}),
    T + "audit_log/verdict": Row(TENANT, {"GET": Act()}),
    K + "projects": Row(ORGANIZATION_KEY, {"GET": Act(), "POST": Act({"name": "new"})}),
    K + "projects/<uuid:project_id>": Row(
        ORGANIZATION_KEY, {"GET": Act(), "POST": Act({"name": "renamed"})}, own=project
    ),
    K + "projects/<uuid:project_id>/archive": Row(ORGANIZATION_KEY, {"POST": Act()}, own=project),
    K + "projects/<uuid:project_id>/service_accounts": Row(
        ORGANIZATION_KEY, {"GET": Act(), "POST": Act({"name": "new"})}, own=project
    ),
    K + "projects/<uuid:project_id>/service_accounts/<uuid:service_account_id>": Row(
        ORGANIZATION_KEY,
        {"GET": Act(), "DELETE": Act()},
        own=account_of_project,
        deleted=disabled_account,
        sibling=account_of_sibling,
    ),
    K + "projects/<uuid:project_id>/api_keys": Row(ORGANIZATION_KEY, {"GET": Act()}, own=project),
    K + "projects/<uuid:project_id>/api_keys/<uuid:key_id>": Row(
        ORGANIZATION_KEY,
        {"GET": Act(), "DELETE": Act()},
        own=key_of_project,
        deleted=revoked_key,
        sibling=key_of_sibling,
    ),
    K + "users": Row(ORGANIZATION_KEY, {"GET": Act()}),
    K + "users/<uuid:user_id>": Row(
        ORGANIZATION_KEY,
        {"GET": Act(), "POST": Act({"role": "reader"}), "DELETE": Act()},
        own=member,
        deleted=former_member,
    ),
    K + "invites": Row(ORGANIZATION_KEY, {"GET": Act(), "POST": Act(invitation_body)}),
    K + "invites/<uuid:invitation_id>": Row(
        ORGANIZATION_KEY, {"GET": Act(), "DELETE": Act()}, own=invitation
    ),
    K + "admin_api_keys": Row(
        ORGANIZATION_KEY,
        {"GET": Act(), "POST": Act({"name": "new", "permissions": ["usage.read"]})},
    ),
    K + "admin_api_keys/<uuid:key_id>": Row(
        ORGANIZATION_KEY,
        {"GET": Act(), "DELETE": Act()},
        own=an_admin_key,
        deleted=revoked_admin_key,
    ),
    K + "audit_logs": Row(ORGANIZATION_KEY, {"GET": Act()}),
}


def accepting_body(side: Side, _arguments: Arguments) -> Json:
    """An invitation of the owner to yet another organization."""
    address = tenants.facade.read_member(side.actor, side.users[Role.OWNER]).email
    other = tenants.facade.create_organization(f"other-{uuid4().hex[:12]}", "Other")
    inviter = tenants.facade.operator_of(other.organization_id)
    return {"token": tenants.facade.invite(inviter, address, Role.VIEWER).token}


def left_behind(side: Side) -> Arguments:
    """Another organization of the owner's, who is a viewer there."""
    other = tenants.facade.create_organization(f"other-{uuid4().hex[:12]}", "Other")
    tenants.facade.add_member(other.organization_id, side.users[Role.OWNER], Role.VIEWER)
    return {"organization": other.organization_id}


PERSON_ROWS = {
    "api/v1/me/organizations/<uuid:organization>": Row(
        PERSON, {"DELETE": Act(status=204)}, own=left_behind
    ),
    "api/v1/me": Row(PERSON, {"GET": Act()}),
    "api/v1/invitations/accept": Row(PERSON, {"POST": Act(accepting_body)}),
    "api/v1/organizations": Row(
        PERSON,
        {"POST": Act(lambda *_: {"display_name": f"New {uuid4().hex[:8]}"}, 201)},
    ),
}
