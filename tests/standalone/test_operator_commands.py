"""The operator's commands, on the databases of the test run."""

import io
import os
import subprocess
import sys
from uuid import uuid4

import pytest
from django.core.management import CommandError, call_command

from billing import facade as billing
from billing.contracts import PICO, ServiceTier
from headrace.standalone.data_folder import REPOSITORY
from tenants import facade as tenants
from tenants.contracts import KeyRejected, OrganizationSuspended, Role

pytestmark = pytest.mark.usefixtures("django_database")


def done(*arguments: str) -> str:
    """The output of a command that must succeed."""
    output = io.StringIO()
    call_command(*arguments, stdout=output)
    return output.getvalue()


def refused(*arguments: str) -> str:
    """The complaint of a command that must fail."""
    with pytest.raises(CommandError) as caught:
        call_command(*arguments, stdout=io.StringIO())
    return str(caught.value)


def new_slug() -> str:
    """A tenant that no other test has."""
    return f"operated-{uuid4().hex[:12]}"


def key_of(output: str) -> tuple[str, str]:
    """The id and the secret that a command printed."""
    told = dict(line.rsplit(" ", 1) for line in output.splitlines())
    return told["key id"], told["key"]


def test_a_new_tenant_has_a_key_its_limits_and_its_credit() -> None:
    slug = new_slug()

    output = done(
        *("create_tenant", slug, "--credit", "0.02", "--requests-per-minute", "7"),
        *("--tokens-per-minute", "700", "--daily-tokens", "7000"),
    )
    identity = tenants.authenticate(key_of(output)[1])

    assert identity.organization_slug == slug
    assert (identity.requests_per_minute_max, identity.tokens_per_minute_max) == (7, 700)
    assert billing.balance(identity.organization_id).posted_pico == PICO // 50


def test_a_shell_is_told_of_a_refusal_in_one_line() -> None:
    answer = subprocess.run(
        [sys.executable, str(REPOSITORY / "manage.py"), "create_key", "nobody-of-that-name"],
        env=dict(os.environ),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert answer.returncode != 0
    assert answer.stderr.strip() == "CommandError: no tenant 'nobody-of-that-name'"


def test_a_tenant_is_made_once() -> None:
    slug = new_slug()
    done("create_tenant", slug)

    assert refused("create_tenant", slug) == f"there is a tenant '{slug}' already"


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("create_tenant", "Not A Slug"), "is no slug"),
        (("create_tenant", "fine", "--credit", "1e3"), "not an amount of money"),
        (("create_tenant", "fine", "--credit", "-5"), "is not between 0 and"),
        (("create_tenant", "fine", "--daily-tokens", "0"), "is no whole number"),
        (("create_key", "nobody-of-that-name"), "no tenant 'nobody-of-that-name'"),
        (("grant_credit", "nobody-of-that-name", "5", "--reference", "a"), "no tenant"),
        (("set_price", "no-such-model", "input", "5"), "no such model"),
    ],
)
def test_what_makes_no_sense_is_refused(arguments: tuple[str, ...], complaint: str) -> None:
    assert complaint in refused(*arguments)


def test_a_key_works_until_it_is_revoked() -> None:
    slug = new_slug()
    _, first_secret = key_of(done("create_tenant", slug))
    key_id, secret = key_of(done("create_key", slug, "--name", "laptop"))
    worked = tenants.authenticate(secret).organization_slug == slug

    done("revoke_key", slug, key_id)

    assert worked
    with pytest.raises(KeyRejected):
        tenants.authenticate(secret)
    assert tenants.authenticate(first_secret).organization_slug == slug
    assert "revoked already" in refused("revoke_key", slug, key_id)


def test_a_key_is_revoked_under_its_own_tenant_only() -> None:
    slug, other = new_slug(), new_slug()
    key_id, secret = key_of(done("create_tenant", slug))
    done("create_tenant", other)

    complaint = refused("revoke_key", other, key_id)

    assert complaint.endswith(f"is not one of {other}'s")
    assert tenants.authenticate(secret).organization_slug == slug


def test_credit_is_granted_once_per_reference() -> None:
    slug = new_slug()
    done("create_tenant", slug)

    first = done("grant_credit", slug, "5", "--reference", "invoice 1")
    again = done("grant_credit", slug, "5", "--reference", "invoice 1")
    second = done("grant_credit", slug, "0.5", "--reference", "invoice 2")
    conflict = refused("grant_credit", slug, "6", "--reference", "invoice 1")

    assert first == again == f"{slug} has 5.00 USD\n"
    assert second == f"{slug} has 5.50 USD\n"
    assert "used for another grant" in conflict


def test_a_price_holds_from_now_on() -> None:
    model = f"priced-{uuid4().hex[:12]}"
    billing.publish_offer(model, model, "headrace", 1000, 1000)
    _, secret = key_of(done("create_tenant", new_slug()))
    organization_id = tenants.authenticate(secret).organization_id

    done("set_price", model, "input", "50")
    done("set_price", model, "output", "60")
    done("set_price", model, "input", "70")
    done("set_price", model, "input", "25", "--tier", "batch")
    quote = billing.quote(organization_id, None, model, ServiceTier.INTERACTIVE)

    assert (quote.input_micros_per_mtok, quote.output_micros_per_mtok) == (70, 60)
    assert "out of bounds" in refused("set_price", model, "input", "-1")
    assert "not a valid TokenClass" in refused("set_price", model, "thought", "1")


def test_a_tenants_first_owner_is_invited() -> None:
    slug = new_slug()
    done("create_tenant", slug)

    output = done("invite_member", slug, f"{slug}@example.com")

    token = output.splitlines()[-1].partition("#")[2]
    assert tenants.invitation_offer(token).role is Role.OWNER
    assert "address" in refused("invite_member", slug, "nobody")
    assert "no tenant" in refused("invite_member", new_slug(), "ada@example.com")


def test_a_tenant_is_suspended_limited_and_taken_up_again() -> None:
    slug = new_slug()
    secret = key_of(done("create_tenant", slug))[1]

    done("set_tenant", slug, "--status", "suspended", "--requests-per-minute", "7")
    with pytest.raises(OrganizationSuspended):
        tenants.authenticate(secret)
    done("set_tenant", slug, "--status", "active")

    assert tenants.authenticate(secret).requests_per_minute_max == 7
    assert "nothing to set" in refused("set_tenant", slug)


def test_an_untouched_audit_log_is_verified() -> None:
    slug = new_slug()
    done("create_tenant", slug)

    assert "whole, ends in" in done("verify_audit", slug)
    assert "no tenant" in refused("verify_audit", new_slug())
