"""What an operator orders is done once, by a worker, and only if it is what they ordered."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest
from django.db import ProgrammingError, connections
from uuid_utils.compat import uuid7

from billing.contracts import PICO
from billing.facade import balance, credit_grants
from headrace.operator_console.orders.carrying_out import carry_out
from headrace.operator_console.orders.placing import find
from headrace.operator_console.orders.shapes import OrderKind, Outcome, Placed, signature
from tenants.contracts import OrganizationStatus
from tenants.facade import (
    list_audit,
    operator_of,
    read_organization,
    set_organization_status,
)
from tests.billing.cast import Tenant, make_tenant
from tests.console.operators import new_staff
from tests.headrace.door import Door

pytestmark = pytest.mark.usefixtures("django_database")


@pytest.fixture(scope="module")
def operator_id(django_database: object) -> UUID:
    """Somebody of the staff."""
    return new_staff()


@pytest.fixture
def operator(operator_id: UUID) -> Door:
    """They, who have just signed in."""
    return Door().sign_in(operator_id)


@pytest.fixture
def tenant() -> Tenant:
    """A tenant without credit."""
    return make_tenant("acme", credit_pico=0)


def order(door: Door, tenant: Tenant, verb: str, **fields: Any) -> httpx.Response:
    data = {"do": verb, "order_id": str(uuid7()), **fields}
    return door.post(f"/operator/tenants/{tenant.organization_id}", data=data)


def outcome(door: Door, answer: httpx.Response) -> str:
    """What the page says after a worker was there."""
    assert answer.status_code == 303, answer.text
    carry_out()
    shown = door.get(answer.headers["location"])
    assert shown.status_code == 200
    return shown.text


def audited(tenant: Tenant, action: str) -> list[UUID | None]:
    """Who did this, of the staff."""
    entries = list_audit(operator_of(tenant.organization_id))
    return [
        one.actor_id for one in entries if one.action == action and one.actor_kind == "operator"
    ]


GRANT = {"amount": "12.5", "reference": "ticket 7", "category": "promotional"}


def test_a_grant_waits_for_a_worker_and_is_there_then(
    operator: Door, operator_id: UUID, tenant: Tenant
) -> None:
    answer = order(operator, tenant, "grant", **GRANT)
    waiting = operator.get(answer.headers["location"])

    assert "A worker does this" in waiting.text
    assert balance(tenant.organization_id).posted_pico == 0
    assert "The credit is granted." in outcome(operator, answer)
    assert balance(tenant.organization_id).posted_pico == 12_500_000_000_000
    [grant] = credit_grants(tenant.organization_id)
    assert grant.source == "grant:ticket 7"
    assert audited(tenant, "credit.granted") == [operator_id]


def test_a_form_sent_twice_orders_once(operator: Door, tenant: Tenant) -> None:
    order_id = str(uuid7())
    for _ in range(2):
        order(operator, tenant, "credit_limit", limit="3", order_id=order_id)

    assert carry_out() == 1
    assert balance(tenant.organization_id).floor_pico == -3 * PICO


def test_a_credit_limit_below_what_is_owed_is_refused_and_says_why(
    operator: Door, operator_id: UUID, tenant: Tenant
) -> None:
    assert "The credit limit is set." in outcome(
        operator, order(operator, tenant, "credit_limit", limit="20")
    )
    assert audited(tenant, "credit.limit_changed") == [operator_id]
    other = make_tenant("owes", credit_pico=0, floor_pico=-PICO)
    other.held()

    text = outcome(operator, order(operator, other, "credit_limit", limit="0"))

    assert "More than this is owed or held already." in text


def test_minute_limits_that_are_empty_stay(
    operator: Door, operator_id: UUID, tenant: Tenant
) -> None:
    actor = operator_of(tenant.organization_id)
    before = read_organization(actor).limits

    text = outcome(operator, order(operator, tenant, "minute_limits", limits_requests_max="77"))

    after = read_organization(actor).limits
    assert "The minute limits are set." in text
    assert (after.requests_max, after.tokens_max) == (77, before.tokens_max)
    assert audited(tenant, "limit.changed") == [operator_id]


def test_a_tenant_is_suspended_by_its_name_and_resumed(
    operator: Door, operator_id: UUID, tenant: Tenant
) -> None:
    actor = operator_of(tenant.organization_id)
    slug = read_organization(actor).slug
    wrong = order(operator, tenant, "suspend", confirm="somebody-else")
    assert wrong.status_code == 422
    assert "This is not its name." in wrong.text

    outcome(operator, order(operator, tenant, "suspend", confirm=slug))
    assert read_organization(actor).status is OrganizationStatus.SUSPENDED
    outcome(operator, order(operator, tenant, "resume"))

    assert read_organization(actor).status is OrganizationStatus.ACTIVE
    assert audited(tenant, "organization.suspended") == [operator_id]
    assert audited(tenant, "organization.reactivated") == [operator_id]


def test_a_tenant_that_was_closed_meanwhile_stays_closed(operator: Door, tenant: Tenant) -> None:
    actor = operator_of(tenant.organization_id)
    asked = [order(operator, tenant, "resume")]
    set_organization_status(tenant.organization_id, OrganizationStatus.CLOSED)
    asked.append(order(operator, tenant, "suspend", confirm=read_organization(actor).slug))

    for answer in asked:
        assert "A closed tenant stays closed." in outcome(operator, answer)
    assert read_organization(actor).status is OrganizationStatus.CLOSED


@pytest.mark.parametrize(
    ("verb", "fields", "said"),
    [
        ("grant", GRANT | {"amount": "0"}, "Grant more than nothing."),
        ("grant", GRANT | {"amount": "much"}, "Write an amount"),
        ("grant", GRANT | {"reference": ""}, "This field is required."),
        ("credit_limit", {"limit": "-1"}, "Write an amount"),
        ("minute_limits", {"limits_requests_max": "0"}, "greater than or equal to 1"),
    ],
)
def test_what_is_wrong_is_said_beside_its_field(
    verb: str, fields: dict[str, str], said: str, operator: Door, tenant: Tenant
) -> None:
    answer = order(operator, tenant, verb, **fields)

    assert answer.status_code == 422
    assert said in answer.text
    assert carry_out() == 0


def test_an_order_wants_a_recent_sign_in(operator_id: UUID, tenant: Tenant) -> None:
    answer = order(Door().sign_in(operator_id, seconds_ago=3600), tenant, "grant", **GRANT)

    assert answer.headers["location"].startswith("/accounts/reauthenticate/")
    assert carry_out() == 0


def insert(placed: Placed, signed: bytes) -> None:
    """As SQL that got into the web process would place it."""
    with connections["default"].cursor() as cursor:
        cursor.execute(
            "SELECT operator_place_order(%s, %s, %s, %s, %s, %s, %s, %s)",
            [
                placed.operator_id,
                placed.order_id,
                placed.ip,
                placed.request_id,
                placed.kind,
                placed.body,
                signed,
                100,
            ],
        )


def test_what_the_web_process_did_not_sign_is_not_done(operator_id: UUID, tenant: Tenant) -> None:
    organization = f'"organization_id": "{tenant.organization_id}"'
    small, large = (
        Placed(
            *(uuid7(), operator_id, "", None, OrderKind.SET_CREDIT_LIMIT),
            f'{{{organization}, "limit_pico": "{limit_pico}"}}',
        )
        for limit_pico in (1, 10**30)
    )
    insert(large, signature(small))
    carry_out()

    found = find(operator_id, large.order_id)
    assert found is not None
    assert (found.outcome, found.text) == (Outcome.REFUSED, "It is not signed by this house.")
    assert balance(tenant.organization_id).floor_pico == 0


def test_who_is_no_operator_any_more_orders_nothing(tenant: Tenant) -> None:
    from django.contrib.auth import get_user_model

    leaver = new_staff()
    answer = order(Door().sign_in(leaver), tenant, "credit_limit", limit="3")
    get_user_model().objects.using("housekeeper").filter(pk=leaver).update(is_staff=False)
    carry_out()

    order_id = UUID(answer.headers["location"].partition("order=")[2])
    found = find(new_staff(), order_id)
    assert found is not None
    assert found.text == "Who ordered it is no operator any more."
    assert balance(tenant.organization_id).floor_pico == 0


def test_what_waited_too_long_is_refused(operator: Door, tenant: Tenant) -> None:
    answer = order(operator, tenant, "credit_limit", limit="3")
    long_ago = datetime.now(UTC) - timedelta(hours=2)
    with connections["owner"].cursor() as cursor:
        cursor.execute("UPDATE operator_order SET placed_at = %s WHERE outcome = ''", [long_ago])

    assert "It waited for too long." in outcome(operator, answer)
    assert balance(tenant.organization_id).floor_pico == 0


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM operator_order",
        "INSERT INTO operator_order (id) VALUES (uuidv7())",
        "UPDATE operator_order SET outcome = ''",
        "SELECT * FROM operator_report",
    ],
)
def test_the_webs_role_has_no_right_to_the_tables(query: str) -> None:
    with (
        pytest.raises(ProgrammingError, match="permission denied"),
        connections["default"].cursor() as cursor,
    ):
        cursor.execute(query)


def test_an_order_of_nobody_is_404(operator: Door, tenant: Tenant) -> None:
    path = f"/operator/tenants/{tenant.organization_id}"

    assert operator.get(f"{path}?order={uuid4()}").status_code == 404
    assert operator.get(f"/operator/orders/{uuid4()}").status_code == 404
