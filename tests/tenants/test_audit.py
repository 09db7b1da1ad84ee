"""The audit log names every act, and shows whoever changes it afterwards."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import pytest
from django.db import IntegrityError, ProgrammingError, connections
from django.db.backends.utils import CursorWrapper

from billing.facade import reconcile
from tenants import facade
from tenants.contracts import (
    ActorKind,
    AuditEntry,
    KeySettings,
    MinuteLimits,
    OrganizationStatus,
    PermissionDenied,
    Role,
    ScopeMissing,
)
from tests.billing.cast import at_once
from tests.tenants.people_cast import IP, Company, make_company, make_person


@pytest.fixture
def acme(django_database: object) -> Company:
    """The organization that is watched."""
    return make_company("acme")


def log(company: Company) -> list[AuditEntry]:
    """Every entry, in the order they were made."""
    return facade.list_audit(company.owner, ascending=True)


def note(organization_id: UUID, action: str, **details: object) -> None:
    """One entry of the operator's."""
    with facade.tenant_scope(organization_id):
        facade.record_audit(facade.operator_of(organization_id), action, "thing", "x", details)


@contextmanager
def tampering(organization_id: UUID) -> Iterator[CursorWrapper]:
    """As somebody who owns the tables and turns their triggers off."""
    with connections["owner"].cursor() as cursor:
        cursor.execute("ALTER TABLE tenants_audit_log DISABLE TRIGGER USER")
        cursor.execute(
            "SELECT set_config('headrace.organization_id', %s, false)", [str(organization_id)]
        )
        try:
            yield cursor
        finally:
            cursor.execute("RESET headrace.organization_id")
            cursor.execute("ALTER TABLE tenants_audit_log ENABLE TRIGGER USER")


def test_an_entry_says_who_did_what_from_where(acme: Company) -> None:
    admin = acme.actor(Role.ADMIN)

    facade.change_role(admin, acme.people[Role.VIEWER].user_id, Role.DEVELOPER)

    [entry] = facade.list_audit(acme.owner, rows_max=1)
    assert (entry.action, entry.target_kind) == ("role.changed", "user")
    assert entry.target_id == str(acme.people[Role.VIEWER].user_id)
    assert entry.details == {"from": "viewer", "to": "developer"}
    assert (entry.actor_kind, entry.actor_id) == (ActorKind.USER, admin.actor_id)
    assert (entry.ip, entry.request_id) == (IP, admin.request_id)
    assert abs(entry.occurred_at - datetime.now(UTC)) < timedelta(minutes=1)


def test_every_act_of_administration_is_in_the_log(acme: Company) -> None:
    owner = acme.owner
    ada = make_person("ada")
    project = facade.open_project(owner, "lab").project_id
    before = {entry.entry_id for entry in log(acme)}

    facade.update_project(owner, project, name="laboratory")
    facade.update_project(owner, project, limits=MinuteLimits(requests_max=1))
    account = facade.create_service_account(owner, project, "ci").service_account_id
    key = facade.create_key(owner, project, KeySettings("ci"), account)
    facade.update_key(owner, key.key_id, lambda _: KeySettings("continuous"))
    facade.revoke_key_as(owner, facade.rotate_key(owner, key.key_id).key_id)
    facade.disable_service_account(owner, account)
    facade.close_project(owner, project)
    facade.update_organization(owner, display_name="Acme & Sons")
    facade.set_organization_limits(acme.tenant.organization_id, MinuteLimits(requests_max=1))
    facade.set_organization_status(acme.tenant.organization_id, OrganizationStatus.SUSPENDED)
    facade.set_organization_status(acme.tenant.organization_id, OrganizationStatus.ACTIVE)
    withdrawn = facade.invite(owner, ada.email, Role.ADMIN)
    facade.revoke_invitation(owner, withdrawn.invitation.invitation_id)
    facade.accept_invitation(ada.user_id, facade.invite(owner, ada.email, Role.VIEWER).token, IP)
    facade.change_role(owner, ada.user_id, Role.BILLING)
    facade.remove_member(owner, ada.user_id)

    done = [entry.action for entry in log(acme) if entry.entry_id not in before]
    assert done == [
        "project.renamed",
        "limit.changed",
        "service_account.created",
        "key.created",
        "key.updated",
        "key.created",
        "key.rotated",
        "key.revoked",
        "service_account.disabled",
        "project.archived",
        "organization.updated",
        "limit.changed",
        "organization.suspended",
        "organization.reactivated",
        "invitation.created",
        "invitation.revoked",
        "invitation.created",
        "invitation.accepted",
        "role.changed",
        "member.removed",
    ]
    assert facade.verify_audit_chain(acme.tenant.organization_id).fault is None


def test_the_log_holds_no_addresses_and_no_secrets(acme: Company) -> None:
    owner = acme.owner
    ada = make_person("ada")
    issued = facade.invite(owner, ada.email, Role.VIEWER)
    facade.accept_invitation(ada.user_id, issued.token)
    key = facade.issue_key(acme.tenant.organization_id, acme.tenant.project_id, "key")

    text = str(log(acme))

    for hidden in (ada.email, issued.token, key.secret, key.secret[9:-4]):
        assert hidden not in text
    assert str(ada.user_id) in text


def test_what_was_refused_or_rolled_back_leaves_no_entry(acme: Company) -> None:
    before = log(acme)

    with pytest.raises(PermissionDenied):
        facade.invite(acme.actor(Role.VIEWER), "ada@example.org", Role.OWNER)

    def note_and_fail() -> None:
        with facade.tenant_scope(acme.tenant.organization_id):
            note(acme.tenant.organization_id, "never.happened")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        note_and_fail()

    assert log(acme) == before
    assert facade.verify_audit_chain(acme.tenant.organization_id).fault is None


def test_an_entry_needs_a_scope(acme: Company) -> None:
    with pytest.raises(ScopeMissing):
        facade.record_audit(acme.owner, "out.of.scope", "thing", "x")


def test_the_log_is_filtered_and_paged(acme: Company) -> None:
    for number in range(5):
        note(acme.tenant.organization_id, f"thing.{number % 2}", number=number)
    note(acme.tenant.organization_id, "other.act")
    wanted = facade.AuditFilter(actions=("thing.0", "thing.1"))

    everything = facade.list_audit(acme.owner, wanted)
    first = facade.list_audit(acme.owner, wanted, rows_max=2)
    rest = facade.list_audit(acme.owner, wanted, after=first[-1].entry_id)
    odd = facade.list_audit(acme.owner, facade.AuditFilter(actions=("thing.1",)), ascending=True)

    assert [entry.details["number"] for entry in everything] == [4, 3, 2, 1, 0]
    assert [*first, *rest] == everything
    assert [entry.details["number"] for entry in odd] == [1, 3]


def test_the_log_is_searched_by_actor_target_and_time(acme: Company) -> None:
    admin = acme.actor(Role.ADMIN)
    facade.update_organization(admin, display_name="Acme II")
    [renamed] = facade.list_audit(acme.owner, facade.AuditFilter(actor_id=admin.actor_id))
    later = renamed.occurred_at + timedelta(microseconds=1)

    def found(**asked: object) -> list[UUID]:
        entries = facade.list_audit(acme.owner, facade.AuditFilter(**asked))  # type: ignore[arg-type]  # named below
        return [entry.entry_id for entry in entries]

    assert renamed.action == "organization.updated"
    assert renamed.entry_id in found(target_kind="organization", since=renamed.occurred_at)
    assert renamed.entry_id not in found(until=renamed.occurred_at)
    assert renamed.entry_id not in found(since=later)
    assert renamed.entry_id in found(target_id=str(acme.tenant.organization_id), until=later)
    assert found(target_id=str(uuid4())) == []


def test_the_log_is_for_those_who_may_read_it_and_of_one_organization(acme: Company) -> None:
    globex = make_company("globex")
    note(acme.tenant.organization_id, "secret.act")

    for role in (Role.DEVELOPER, Role.BILLING, Role.VIEWER):
        with pytest.raises(PermissionDenied):
            facade.list_audit(acme.actor(role))
    assert "secret.act" not in {entry.action for entry in log(globex)}
    foreign = facade.list_audit(acme.owner, rows_max=1)[0].entry_id
    assert facade.list_audit(globex.owner, after=foreign) == []


def test_entries_made_at_once_form_one_chain(acme: Company) -> None:
    before = len(log(acme))

    at_once([lambda: note(acme.tenant.organization_id, "thing.done")] * 20)

    verdict = facade.verify_audit_chain(acme.tenant.organization_id)
    assert (verdict.entries, verdict.fault) == (before + 20, None)
    assert [entry.sequence for entry in log(acme)] == list(range(1, before + 21))


def test_the_housekeeper_verifies_as_well(acme: Company) -> None:
    organization_id = acme.tenant.organization_id

    assert facade.verify_audit_chain(
        organization_id, using="housekeeper"
    ) == facade.verify_audit_chain(organization_id)


def test_an_organization_without_entries_is_whole(django_database: object) -> None:
    assert facade.verify_audit_chain(uuid4()).fault is None


EDIT = "UPDATE tenants_audit_log l SET {} WHERE sequence = {{n}}"
REHASH = EDIT.format("hash = sha256(l.previous_hash || tenants_audit_canonical(l))")
TAMPERINGS: list[tuple[list[str], str]] = [
    ([EDIT.format("details = '{{\"number\": 7}}'")], "entry 8 was changed"),
    ([EDIT.format("action = 'thing.undone'")], "entry 8 was changed"),
    ([EDIT.format("actor_kind = 'system'")], "entry 8 was changed"),
    ([EDIT.format("ip = '198.51.100.1'")], "entry 8 was changed"),
    (
        [EDIT.format("occurred_at = occurred_at - interval '1 microsecond'")],
        "entry 8 was changed",
    ),
    # The same text, cut elsewhere.
    ([EDIT.format("target_kind = 'thin', target_id = 'gx'")], "entry 8 was changed"),
    ([EDIT.format("details = '{{}}'"), REHASH], "entry 9 does not follow the one before it"),
    (["DELETE FROM tenants_audit_log WHERE sequence = {n}"], "entry 8 is missing"),
    (["DELETE FROM tenants_audit_log WHERE sequence >= {n}"], "entry 8 is missing"),
    (["DELETE FROM tenants_audit_log WHERE sequence < {n}"], "entry 1 is missing"),
    (["DELETE FROM tenants_audit_log"], "entry 1 is missing"),
    (
        [
            EDIT.format("sequence = 0"),
            "UPDATE tenants_audit_log SET sequence = {n} WHERE sequence = {n} + 1",
            "UPDATE tenants_audit_log SET sequence = {n} + 1 WHERE sequence = 0",
        ],
        "entry 8 does not follow the one before it",
    ),
    (
        [
            "DELETE FROM tenants_audit_log WHERE sequence = {n}",
            "UPDATE tenants_audit_log SET sequence = {n} WHERE sequence = {n} + 1",
            "UPDATE tenants_audit_log SET sequence = {n} + 1 WHERE sequence = {n} + 2",
        ],
        "entry 8 does not follow the one before it",
    ),
    (["UPDATE tenants_audit_head SET hash = sha256('')"], "entry 10 is not the one"),
]


@pytest.mark.parametrize(("statements", "fault"), TAMPERINGS)
def test_a_log_that_was_tampered_with_shows_it(
    acme: Company, statements: list[str], fault: str
) -> None:
    organization_id = acme.tenant.organization_id
    while len(log(acme)) < 10:
        note(organization_id, "thing.done", number=1)
    assert facade.verify_audit_chain(organization_id).fault is None

    with tampering(organization_id) as cursor:
        for statement in statements:
            cursor.execute(statement.format(n=8))

    found = str(facade.verify_audit_chain(organization_id).fault)
    reconciled = [line for line in reconcile() if str(organization_id) in line]
    with tampering(organization_id) as cursor:
        # `reconcile` of other tests looks at every chain.
        cursor.execute("DELETE FROM tenants_audit_log")
        cursor.execute("DELETE FROM tenants_audit_head")
    assert fault in found
    assert any("audit log" in line for line in reconciled), reconciled


WRITES = [
    "UPDATE tenants_audit_log SET action = 'x'",
    "DELETE FROM tenants_audit_log",
    "TRUNCATE tenants_audit_log",
    "INSERT INTO tenants_audit_log SELECT * FROM tenants_audit_log",
    "UPDATE tenants_audit_head SET sequence = 0",
    "DELETE FROM tenants_audit_head",
]


@pytest.mark.parametrize("alias", ["default", "housekeeper"])
@pytest.mark.parametrize("statement", WRITES)
def test_nobody_may_change_the_log(acme: Company, alias: str, statement: str) -> None:
    with (
        pytest.raises(ProgrammingError, match="permission denied"),
        facade.tenant_scope(acme.tenant.organization_id, alias),
        connections[alias].cursor() as cursor,
    ):
        cursor.execute(statement)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE tenants_audit_log SET action = 'x'",
        "DELETE FROM tenants_audit_log",
        "TRUNCATE tenants_audit_log",
    ],
)
def test_not_even_the_tables_owner_may_while_its_triggers_stand(
    acme: Company, statement: str
) -> None:
    with (
        pytest.raises(IntegrityError, match="never changed"),
        facade.tenant_scope(acme.tenant.organization_id, "owner"),
        connections["owner"].cursor() as cursor,
    ):
        cursor.execute(statement)


def test_the_app_adds_no_entry_for_an_organization_it_is_not_in(acme: Company) -> None:
    with (
        pytest.raises(ProgrammingError, match="permission denied"),
        connections["default"].cursor() as cursor,
    ):
        cursor.execute(
            "SELECT tenants_audit(%s, 'user', NULL, '', NULL, 'x', 'x', 'x', '{}')",
            [acme.tenant.organization_id],
        )
    with pytest.raises(IntegrityError), connections["default"].cursor() as cursor:
        cursor.execute("SELECT tenants_record_audit('user', NULL, '', NULL, 'x', 'x', 'x', '{}')")
