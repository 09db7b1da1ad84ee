"""A tenant's own names for models mean something to that tenant alone."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest
from django.db import ProgrammingError, connections

from billing.contracts import (
    Alias,
    AliasExists,
    AliasInvalid,
    AliasNotFound,
    ModelNotFound,
    ModelRetired,
    ServiceTier,
    UsageCounts,
)
from billing.facade import (
    alias,
    aliases,
    create_alias,
    delete_alias,
    hold,
    models_for_sale,
    quote,
    set_offer_life,
    settle,
    update_alias,
)
from tenants.contracts import Actor, ActorKind, Permission, PermissionDenied
from tenants.facade import create_project, tenant_scope
from tests.billing.cast import Tenant, at_once, make_offer, used
from tests.books import rows

INTERACTIVE = ServiceTier.INTERACTIVE


def fresh(name: str = "model") -> str:
    """A public id of this test's own, with what public ids may hold."""
    return f"org/{name}-{uuid4().hex[:12]}:q4"


def admin(tenant: Tenant, *permissions: Permission) -> Actor:
    """Somebody who may look at the catalog and change it."""
    allowed = permissions or (Permission.CATALOG_READ, Permission.CATALOG_WRITE)
    return Actor(ActorKind.USER, uuid4(), tenant.organization_id, frozenset(allowed))


def served(tenant: Tenant, name: str, in_project: bool = True) -> str:
    """What the tenant gets for a name."""
    project_id = tenant.project_id if in_project else None
    return quote(tenant.organization_id, project_id, name, INTERACTIVE).offer.public_id


def test_an_alias_is_served_by_its_model_and_the_receipt_shows_both(acme: Tenant) -> None:
    model = make_offer(fresh(), 10, 10, 10)
    create_alias(admin(acme), "gpt-4o-mini", model)

    quoted = acme.quoted(quote(acme.organization_id, acme.project_id, "gpt-4o-mini", INTERACTIVE))
    asked = replace(quoted.request(), model_asked="gpt-4o-mini")
    [outcome] = hold([asked])
    settle([replace(used(asked, UsageCounts(60, 0, 40)), model_served=model)])

    told = acme.receipt(asked)
    assert outcome.refusal is None
    assert (told.model_asked, told.model_served, told.charge_pico) == ("gpt-4o-mini", model, 1_000)


def test_a_projects_alias_goes_before_the_organizations_and_that_before_the_catalog(
    acme: Tenant,
) -> None:
    own, organizations, projects = (make_offer(fresh(), 1, 1, 1) for _ in range(3))
    other_project = create_project(acme.organization_id, "other")

    create_alias(admin(acme), own, organizations)
    create_alias(admin(acme), own, projects, acme.project_id)

    assert served(acme, own) == projects
    assert served(acme, own, in_project=False) == organizations
    assert (
        quote(acme.organization_id, other_project, own, INTERACTIVE).offer.public_id
        == organizations
    )


def test_an_alias_shadows_nothing_of_another_tenant(acme: Tenant, globex: Tenant) -> None:
    model, other = make_offer(fresh(), 1, 1, 1), make_offer(fresh(), 1, 1, 1)

    ours = create_alias(admin(acme), model, other)
    private = create_alias(admin(acme), fresh("alias"), model)

    assert served(acme, model) == other
    assert served(globex, model) == model
    with pytest.raises(ModelNotFound):
        served(globex, private.name)
    assert aliases(admin(globex)) == []
    for attempt in (
        lambda: alias(admin(globex), ours.alias_id),
        lambda: update_alias(admin(globex), ours.alias_id, model),
        lambda: delete_alias(admin(globex), ours.alias_id),
    ):
        with pytest.raises(AliasNotFound):
            attempt()
    assert alias(admin(acme), ours.alias_id) == ours


def test_two_tenants_may_have_the_same_alias(acme: Tenant, globex: Tenant) -> None:
    name, first, second = fresh(), make_offer(fresh(), 1, 1, 1), make_offer(fresh(), 1, 1, 1)

    create_alias(admin(acme), name, first)
    create_alias(admin(globex), name, second)

    assert (served(acme, name), served(globex, name)) == (first, second)


def test_of_many_who_make_one_alias_at_once_one_does(acme: Tenant) -> None:
    model, name = make_offer(fresh(), 1, 1, 1), fresh()

    def attempt() -> Alias | None:
        try:
            return create_alias(admin(acme), name, model)
        except AliasExists:
            return None

    made = [one for one in at_once([attempt] * 10) if one is not None]

    assert len(made) == 1
    assert aliases(admin(acme)) == made


@pytest.mark.parametrize(
    "name",
    ["", "-x", "a b", "a//b", "../x", "a/", "x" * 129, "a\0b", "ä", "a\nb", "%61", "a?b", "a#b"],
)
def test_a_name_no_path_can_carry_is_refused(acme: Tenant, name: str) -> None:
    model = make_offer(fresh(), 1, 1, 1)

    with pytest.raises(AliasInvalid, match="an alias has") as refusal:
        create_alias(admin(acme), name, model)

    assert refusal.value.param == "name"
    assert aliases(admin(acme)) == []


def test_an_alias_needs_a_model_and_a_project_that_are_the_tenants_to_use(
    acme: Tenant, globex: Tenant
) -> None:
    model, gone = make_offer(fresh(), 1, 1, 1), make_offer(fresh(), 1, 1, 1)
    set_offer_life(gone, datetime.now(UTC))

    for wrong in ("no-such-model", gone, "a\0b"):
        with pytest.raises(AliasInvalid, match="no such model"):
            create_alias(admin(acme), fresh(), wrong)
    for project_id in (globex.project_id, uuid4()):
        with pytest.raises(AliasInvalid, match="no such project"):
            create_alias(admin(acme), fresh(), model, project_id)

    assert aliases(admin(acme)) == []


def test_only_who_may_write_the_catalog_changes_aliases(acme: Tenant) -> None:
    model = make_offer(fresh(), 1, 1, 1)
    made = create_alias(admin(acme), fresh(), model)
    reader = admin(acme, Permission.CATALOG_READ)

    assert aliases(reader) == [made]
    for attempt in (
        lambda: create_alias(reader, fresh(), model),
        lambda: update_alias(reader, made.alias_id, model),
        lambda: delete_alias(reader, made.alias_id),
        lambda: aliases(admin(acme, Permission.USAGE_READ)),
    ):
        with pytest.raises(PermissionDenied):
            attempt()


def test_changes_take_effect_at_once_and_are_in_the_audit_log(acme: Tenant) -> None:
    name, first, second = fresh(), make_offer(fresh(), 1, 1, 1), make_offer(fresh(), 1, 1, 1)
    made = create_alias(admin(acme), name, first)

    update_alias(admin(acme), made.alias_id, second)
    changed = served(acme, name)
    delete_alias(admin(acme), made.alias_id)

    assert changed == second
    with pytest.raises(ModelNotFound):
        served(acme, name)
    assert rows(
        "SELECT action FROM tenants_audit_log WHERE target_id = %s ORDER BY sequence",
        str(made.alias_id),
    ) == [("alias.created",), ("alias.changed",), ("alias.deleted",)]


def test_aliases_are_paged_newest_first(acme: Tenant) -> None:
    model = make_offer(fresh(), 1, 1, 1)
    made = [create_alias(admin(acme), fresh(), model) for _ in range(5)]

    first = aliases(admin(acme), 2)
    rest = aliases(admin(acme), 100, first[-1].alias_id)
    forward = aliases(admin(acme), 2, made[1].alias_id, ascending=True)

    assert [*first, *rest] == made[::-1]
    assert forward == made[2:4]


def test_models_for_sale_are_those_of_the_catalog_and_the_projects_aliases(acme: Tenant) -> None:
    model = make_offer(fresh(), 1, 1, 1)
    for_all = create_alias(admin(acme), fresh("all"), model).name
    for_one = create_alias(admin(acme), fresh("one"), model, acme.project_id).name

    in_project = dict(models_for_sale(acme.organization_id, acme.project_id))
    outside = dict(models_for_sale(acme.organization_id))

    assert {model, for_all, for_one} <= in_project.keys()
    assert in_project[for_one].offer.public_id == model
    assert {model, for_all} <= outside.keys()
    assert for_one not in outside


def test_a_retired_model_is_refused_with_its_successor_also_by_its_aliases(acme: Tenant) -> None:
    old, new = make_offer(fresh(), 1, 1, 1), make_offer(fresh(), 1, 1, 1)
    name = create_alias(admin(acme), fresh(), old).name
    set_offer_life(old, datetime.now(UTC) + timedelta(days=1), new)
    deprecated = quote(acme.organization_id, None, old, INTERACTIVE).offer

    set_offer_life(old, datetime.now(UTC), new)

    assert (deprecated.successor, deprecated.deprecated_at is None) == (new, False)
    for asked in (old, name):
        with pytest.raises(ModelRetired) as refusal:
            served(acme, asked)
        assert refusal.value.successor == new
    assert not {old, name} & dict(models_for_sale(acme.organization_id)).keys()


def test_a_model_can_stay_after_all(acme: Tenant) -> None:
    model = make_offer(fresh(), 1, 1, 1)
    set_offer_life(model, datetime.now(UTC))

    offer = set_offer_life(model, None)

    assert (offer.deprecated_at, offer.shutdown_at, offer.successor) == (None, None, None)
    assert served(acme, model) == model


def test_an_offers_life_makes_sense(django_database: object) -> None:
    model = make_offer(fresh(), 1, 1, 1)
    soon = datetime.now(UTC) + timedelta(days=1)

    with pytest.raises(ModelNotFound):
        set_offer_life("no-such-model", soon)
    with pytest.raises(ModelNotFound):
        set_offer_life(model, soon, "no-such-model")
    with pytest.raises(ValueError, match="itself"):
        set_offer_life(model, soon, model)
    with pytest.raises(ValueError, match="before it is deprecated"):
        set_offer_life(model, soon, deprecated_at=soon + timedelta(days=1))


def test_the_wall_between_tenants_is_the_databases(acme: Tenant, globex: Tenant) -> None:
    model = make_offer(fresh(), 1, 1, 1)
    create_alias(admin(acme), fresh(), model)

    with tenant_scope(globex.organization_id), connections["default"].cursor() as cursor:
        cursor.execute("DELETE FROM billing_alias")
        assert cursor.rowcount == 0
    with (
        pytest.raises(ProgrammingError, match="row-level security"),
        tenant_scope(globex.organization_id),
        connections["default"].cursor() as cursor,
    ):
        cursor.execute(
            "INSERT INTO billing_alias (id, organization_id, name, offer_id)"
            " SELECT uuidv7(), %s, 'planted', id FROM billing_offer LIMIT 1",
            [acme.organization_id],
        )
