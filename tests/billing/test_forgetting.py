"""End users are forgotten by name; what they used stays counted to the last token."""

from dataclasses import replace
from io import StringIO
from uuid import UUID

import pytest
from django.core.management import CommandError, call_command

from billing.contracts import (
    Quota,
    QuotaMetric,
    QuotaPeriod,
    QuotaScope,
    QuotaWanted,
    UsageCounts,
)
from billing.facade import (
    forget_end_user,
    forget_end_users,
    hold,
    quotas,
    reconcile,
    replay,
    roll_up,
    set_quota,
    settle,
    void,
)
from tenants import facade as tenants
from tests.billing.cast import Tenant, at_once, colleague, make_tenant, used
from tests.books import rows
from tests.tenants.test_erasure import everything_of

FORGOTTEN = "(forgotten)"


@pytest.fixture
def acme(django_database: object) -> Tenant:
    """A tenant with usage by Ann and by Bob, counted, queued and under way."""
    return lived_in()


def lived_in() -> Tenant:
    """Of each end user: a request rolled up, one queued, one open and one void."""
    tenant = make_tenant("acme")
    actor = tenants.operator_of(tenant.organization_id)
    tenants.update_organization(actor, cost_tags=("team", "customer"))
    for end_user in ("", "ann.quaint"):
        colleague(tenant.organization_id, wanted(end_user).recipients[0])
        set_quota(actor, wanted(end_user))
    ask(tenant, "ann.quaint", "bob.quaint")
    roll_up()
    ask(tenant, "ann.quaint", "bob.quaint")
    for name in ("ann.quaint", "bob.quaint"):
        asked = [named(tenant, name), named(tenant, name)]
        hold(asked)
        void([asked[0].request_id])
    return tenant


def wanted(end_user: str) -> QuotaWanted:
    """A daily limit that tells somebody when half of it is used."""
    return QuotaWanted(
        QuotaScope.END_USER,
        QuotaMetric.TOKENS,
        QuotaPeriod.DAY,
        300,
        end_user=end_user,
        recipients=(f"{end_user or 'boss'}@quaint.example",),
        subject_prefix="quaint",
    )


def named(tenant: Tenant, name: str):  # type: ignore[no-untyped-def]
    """A request in an end user's name, which a tag has too."""
    return replace(
        tenant.request(10, 10),
        end_user=name,
        tags={"customer": name, "team": "red"},
    )


def ask(tenant: Tenant, *names: str) -> None:
    """A settled request of 100 tokens by each."""
    for name in names:
        request = replace(named(tenant, name), prompt_tokens=60, output_tokens_max=40)
        [outcome] = hold([request])
        assert outcome.refusal is None
        settle([used(request, UsageCounts(50, 10, 40))])


def totals(tenant: Tenant) -> list[tuple[object, ...]]:
    """Every sum of the tenant's that has no name in it."""
    return [
        *rows(
            "SELECT 'events', count(*), sum(charge_pico) FROM billing_usage_event"
            " WHERE organization_id = %s",
            tenant.organization_id,
        ),
        *rows(
            "SELECT tag_name, sum(requests), sum(charge_pico) FROM billing_usage_tag_hour"
            " WHERE organization_id = %s GROUP BY 1 ORDER BY 1",
            tenant.organization_id,
        ),
        *rows(
            "SELECT policy_id, sum(used_amount), sum(held_amount) FROM billing_quota_counter"
            " WHERE organization_id = %s GROUP BY 1 ORDER BY 1",
            tenant.organization_id,
        ),
        *rows(
            "SELECT posted_pico, held_pico FROM billing_account WHERE organization_id = %s",
            tenant.organization_id,
        ),
    ]


def values(tenant: Tenant, tag: str) -> dict[str, int]:
    """Requests rolled up by a tag's value."""
    return dict(
        rows(
            "SELECT tag_value, sum(requests)::int FROM billing_usage_tag_hour"
            " WHERE organization_id = %s AND tag_name = %s GROUP BY 1",
            tenant.organization_id,
            tag,
        )
    )


def own_quotas(tenant: Tenant) -> list[Quota]:
    """What limits the tenant now."""
    return quotas(tenants.operator_of(tenant.organization_id))


def test_of_all_end_users_no_name_is_left_and_every_sum_is(acme: Tenant) -> None:
    before = totals(acme)

    forget_end_users(acme.organization_id)

    assert totals(acme) == before
    assert values(acme, "user") == values(acme, "customer") == {FORGOTTEN: 2}
    left = everything_of(acme.organization_id)
    told = [line for line in left.splitlines() if "quaint" in line]
    assert [line for line in told if not line.startswith("tenants_outbox_event")] == []
    assert own_quotas(acme) == []
    assert reconcile() == []
    assert replay().differences == ()


def test_an_erased_organization_names_no_end_user_anywhere(acme: Tenant) -> None:
    from headrace.wiring import HeadraceConfig  # noqa: F401 - Django has registered its erasers
    from tenants.retention.erasure import erase_due

    actor = tenants.operator_of(acme.organization_id)
    slug = tenants.organization_slugs("housekeeper")[acme.organization_id]
    asked = tenants.request_erasure(actor)
    tenants.confirm_erasure(actor, asked.token, slug)
    while erase_due():
        pass

    assert "quaint" not in everything_of(acme.organization_id)
    assert reconcile() == []


def test_what_was_under_way_settles_under_no_name(acme: Tenant) -> None:
    forget_end_users(acme.organization_id)
    open_holds = rows(
        "SELECT id FROM billing_hold WHERE organization_id = %s AND state = 'open'",
        acme.organization_id,
    )
    for (request_id,) in open_holds:
        request = replace(acme.request(10, 10), request_id=request_id)
        settle([used(request, UsageCounts(5, 0, 5))])
    roll_up()

    assert len(open_holds) == 2
    assert values(acme, "user") == {FORGOTTEN: 6}
    assert reconcile() == []
    assert replay().differences == ()


def test_forgetting_again_changes_nothing(acme: Tenant) -> None:
    forget_end_users(acme.organization_id)
    once = everything_of(acme.organization_id)

    forget_end_users(acme.organization_id)

    def but_the_account(text: str) -> list[str]:
        return sorted(line for line in text.splitlines() if "billing_account" not in line)

    assert but_the_account(everything_of(acme.organization_id)) == but_the_account(once)


def test_one_is_forgotten_and_the_others_are_not(acme: Tenant) -> None:
    before = totals(acme)

    requests = forget_end_user(acme.organization_id, "ann.quaint", ["customer"])

    assert requests == 4
    assert totals(acme) == before
    assert values(acme, "user") == {FORGOTTEN: 1, "bob.quaint": 1}
    assert values(acme, "customer") == {FORGOTTEN: 1, "bob.quaint": 1}
    assert values(acme, "team") == {"red": 2}
    left = everything_of(acme.organization_id)
    assert "bob.quaint" in left
    # The address to be told at was another value, and is the tenant's to say.
    assert "ann.quaint" not in left.replace("ann.quaint@", "")
    assert [quota.wanted.end_user for quota in own_quotas(acme)] == [""]
    assert reconcile() == []
    assert replay().differences == ()


def test_a_name_in_other_tags_stays_unless_they_are_named(acme: Tenant) -> None:
    forget_end_user(acme.organization_id, "ann.quaint")

    assert values(acme, "user") == {FORGOTTEN: 1, "bob.quaint": 1}
    assert values(acme, "customer") == {"ann.quaint": 1, "bob.quaint": 1}
    assert reconcile() == []


def test_events_mail_and_prompts_of_one_go_too(acme: Tenant) -> None:
    kept = {
        name: rows(
            "SELECT id FROM billing_hold WHERE organization_id = %s AND end_user = %s LIMIT 1",
            acme.organization_id,
            name,
        )[0][0]
        for name in ("ann.quaint", "bob.quaint")
    }
    for request_id in kept.values():
        tenants.keep_exchange(
            acme.organization_id, acme.project_id, request_id, b"prompt", b"answer", 7
        )

    forget_end_user(acme.organization_id, "ann.quaint", ["customer"])

    told = rows(
        "SELECT DISTINCT data ->> 'end_user' FROM tenants_outbox_event"
        " WHERE organization_id = %s AND kind = 'budget.threshold_reached'",
        acme.organization_id,
    )
    assert told == [("bob.quaint",)]
    assert exchanges(acme) == [kept["bob.quaint"]]


def exchanges(tenant: Tenant) -> list[UUID]:
    """Requests whose prompts are kept."""
    return [
        request_id
        for (request_id,) in rows(
            "SELECT id FROM tenants_exchange WHERE organization_id = %s",
            tenant.organization_id,
        )
    ]


def test_another_organization_keeps_its_own_of_the_same_name(acme: Tenant) -> None:
    globex = lived_in()
    before = everything_of(globex.organization_id)

    forget_end_user(acme.organization_id, "ann.quaint", ["customer"])
    forget_end_users(acme.organization_id)

    assert everything_of(globex.organization_id) == before


def test_the_log_says_that_one_was_forgotten_and_not_who(acme: Tenant) -> None:
    slug = tenants.organization_slugs("housekeeper")[acme.organization_id]
    said = StringIO()
    call_command("forget_end_user", slug, "ann.quaint", "--tag", "customer", stdout=said)

    [(action, details)] = rows(
        "SELECT action, details::text FROM tenants_audit_log WHERE organization_id = %s"
        " ORDER BY sequence DESC LIMIT 1",
        acme.organization_id,
    )
    assert said.getvalue() == f"forgotten in 4 requests of {slug}\n"
    assert (action, details) == ("end_user.forgotten", '{"requests": 3}')
    assert tenants.verify_audit_chain(acme.organization_id).fault is None


def test_no_name_and_an_endless_one_are_refused(acme: Tenant) -> None:
    slug = tenants.organization_slugs("housekeeper")[acme.organization_id]
    for name in ("", "x" * 129):
        with pytest.raises(CommandError, match="characters"):
            call_command("forget_end_user", slug, name)


def test_forgetting_amid_traffic_counts_every_request_once(acme: Tenant) -> None:
    def busy() -> None:
        for _ in range(5):
            ask(acme, "ann.quaint")

    def forget() -> None:
        for _ in range(4):
            forget_end_user(acme.organization_id, "ann.quaint", ["customer"])

    def count() -> None:
        for _ in range(10):
            roll_up()

    actor = tenants.operator_of(acme.organization_id)
    for quota in own_quotas(acme):
        set_quota(actor, replace(quota.wanted, limit_amount=10**6))

    at_once([busy, busy, busy, forget, count])
    roll_up()

    assert reconcile() == []
    forget_end_user(acme.organization_id, "ann.quaint", ["customer"])
    assert values(acme, "user") == {FORGOTTEN: 17, "bob.quaint": 2}
    assert reconcile() == []
