"""Models, aliases and prices at the management API's door, and the operator's price commands."""

import io
import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest
from django.core.management import CommandError, call_command

import billing.facade
from billing.contracts import DraftBook, PriceEntry, ServiceTier, TokenClass, UsageCounts
from headrace.gateway.request_ids import public_request_id
from tenants.contracts import Permission
from tests.billing.cast import Tenant, make_offer, make_tenant, used
from tests.books import rows
from tests.headrace.door import Door, admin_key

INTERACTIVE = ServiceTier.INTERACTIVE
Json = dict[str, Any]


@pytest.fixture
def acme(django_database: object) -> Tenant:
    """The tenant who asks."""
    return make_tenant("acme")


@pytest.fixture
def globex(django_database: object) -> Tenant:
    """The tenant who must not be seen."""
    return make_tenant("globex")


def fresh() -> str:
    """A public id of this test's own."""
    return f"org/m-{uuid4().hex[:12]}:q4"


def ask(
    tenant: Tenant, method: str, path: str, body: Json | None = None, **query: Any
) -> httpx.Response:
    """With an admin key of the tenant, under its routes."""
    secret = admin_key(tenant.organization_id, Permission.CATALOG_READ, Permission.CATALOG_WRITE)
    url = f"/api/v1/organizations/{tenant.organization_id}/{path}"
    options: Json = {"json": body} if body is not None else {}
    if query:
        options["params"] = query
    return Door(secret).request(method, url, **options)


def slug_of(tenant: Tenant) -> str:
    """What commands call the tenant."""
    [(slug,)] = rows("SELECT slug FROM tenants_organization WHERE id = %s", tenant.organization_id)
    return str(slug)


def done(*words: str) -> str:
    """What a command prints."""
    out = io.StringIO()
    call_command(*words, stdout=out, stderr=io.StringIO())
    return out.getvalue()


def refused(*words: str) -> str:
    """Why a command did nothing."""
    with pytest.raises(CommandError) as refusal:
        call_command(*words, stdout=io.StringIO(), stderr=io.StringIO())
    return str(refusal.value)


def price_file(folder: Path, model: str, tiers: Json, **more: str) -> str:
    """A price book on disk."""
    path = folder / f"{uuid4().hex}.json"
    path.write_text(json.dumps({"prices": {model: tiers}, **more}))
    return str(path)


def test_an_alias_lives_at_the_door(acme: Tenant) -> None:
    first, second = make_offer(fresh(), 1, 1, 1), make_offer(fresh(), 1, 1, 1)

    made = ask(acme, "POST", "aliases", {"name": "gpt-4o-mini", "model": first})
    alias_id = made.json()["id"]
    again = ask(acme, "POST", "aliases", {"name": "gpt-4o-mini", "model": second})
    changed = ask(acme, "PATCH", f"aliases/{alias_id}", {"model": second})
    listed = ask(acme, "GET", "aliases").json()
    gone = ask(acme, "DELETE", f"aliases/{alias_id}")

    assert (made.status_code, made.json()["model"], made.json()["project_id"]) == (201, first, None)
    assert (again.status_code, again.json()["error"]["code"]) == (409, "already_exists")
    assert changed.json() == made.json() | {"model": second}
    assert (listed["data"], listed["has_more"]) == ([changed.json()], False)
    assert gone.status_code == 204
    assert ask(acme, "GET", f"aliases/{alias_id}").status_code == 404


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"name": "a b"}, "name"),
        ({"model": "no-such-model"}, "model"),
        ({"project_id": str(uuid4())}, "project_id"),
        ({"project_id": "mine"}, "project_id"),
        ({"offer_id": "x"}, "offer_id"),
    ],
)
def test_a_bad_alias_names_the_field(acme: Tenant, change: Json, param: str) -> None:
    body = {"name": "mini", "model": make_offer(fresh(), 1, 1, 1)} | change

    answer = ask(acme, "POST", "aliases", body)

    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)
    assert ask(acme, "GET", "aliases").json()["data"] == []


def test_models_show_aliases_prices_of_both_tiers_and_their_end(acme: Tenant) -> None:
    model, heir = make_offer(fresh(), 50_000, 5_000, 250_000), make_offer(fresh(), 1, 1, 1)
    make_offer(model, 25_000, None, 125_000, tier=ServiceTier.BATCH)
    until = datetime.now(UTC) + timedelta(days=30)
    billing.facade.set_offer_life(model, until, heir)
    ask(acme, "POST", "aliases", {"name": "mini", "model": model})

    shown = {}
    after: str | None = ""
    while after is not None:
        page = ask(acme, "GET", "models", limit=100, after=after).json()
        shown.update({one["id"]: one for one in page["data"]})
        after = page["last_id"] if page["has_more"] else None

    assert shown["mini"] == shown[model] | {"id": "mini"}
    mini = shown["mini"]
    assert (mini["model"], mini["status"], mini["successor"]) == (model, "deprecated", heir)
    assert datetime.fromisoformat(mini["shutdown_at"]) == until
    assert mini["interactive"] == {
        "currency": "USD",
        "input": "0.05",
        "cached_input": "0.005",
        "cache_write": "0.05",
        "output": "0.25",
    }
    assert (mini["batch"]["input"], mini["batch"]["cached_input"]) == ("0.025", "0.025")
    assert shown[heir]["status"] == "active"
    assert shown[heir]["batch"] is None


def test_prices_show_what_was_is_and_will_be(acme: Tenant, globex: Tenant) -> None:
    model = make_offer(fresh(), 40_000, None, 250_000)
    billing.facade.set_price(model, INTERACTIVE, "input", 50_000)
    billing.facade.set_price(
        model, INTERACTIVE, "input", 45_000, organization_id=acme.organization_id
    )
    then = datetime.now(UTC) + timedelta(days=1)
    billing.facade.publish_book(
        DraftBook((PriceEntry(model, INTERACTIVE, TokenClass.OUTPUT, 260_000),)), "test", then
    )

    ours = ask(acme, "GET", "prices", model=model).json()["data"]
    theirs = ask(globex, "GET", "prices", model=model).json()["data"]
    now = ask(acme, "GET", "prices", model=model, in_force="true").json()["data"]

    assert [(one["token_class"], one["per_million_tokens"], one["own"]) for one in ours] == [
        ("output", "0.26", False),
        ("input", "0.045", True),
        ("input", "0.05", False),
        ("output", "0.25", False),
        ("input", "0.04", False),
    ]
    assert [one["in_force"] for one in ours] == [False, True, True, True, False]
    assert ours[1]["per_token"] == "0.000000045"
    assert datetime.fromisoformat(ours[0]["effective_at"]) == then
    assert ours[3]["ends_at"] == ours[0]["effective_at"]
    assert theirs == [one for one in ours if not one["own"]]
    assert now == [one for one in ours if one["in_force"]]


def test_prices_are_paged(acme: Tenant) -> None:
    model = make_offer(fresh(), 1, 1, 1)

    first = ask(acme, "GET", "prices", model=model, limit=2).json()
    rest = ask(acme, "GET", "prices", model=model, limit=2, after=first["last_id"]).json()

    assert (len(first["data"]), first["has_more"]) == (2, True)
    assert (len(rest["data"]), rest["has_more"]) == (1, False)
    assert len({one["id"] for one in first["data"] + rest["data"]}) == 3


@pytest.mark.parametrize(
    "query", ["in_force=yes", "limit=0", "after=x", "colour=red", "model=a&model=b"]
)
def test_a_question_that_makes_no_sense_is_refused(acme: Tenant, query: str) -> None:
    answer = ask(acme, "GET", f"prices?{query}")

    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == query.partition("=")[0]


def test_a_price_file_is_published_and_shown_both_ways(acme: Tenant, tmp_path: Path) -> None:
    model = make_offer(fresh())
    tiers = {"interactive": {"input": "0.05", "output": "0.25"}}

    printed = done("publish_prices", price_file(tmp_path, model, tiers, note="autumn"))

    assert f"{model}: interactive input: 0.05 USD per million tokens = 0.00000005 USD" in printed
    quoted = billing.facade.quote(acme.organization_id, None, model, INTERACTIVE)
    assert (quoted.input_micros_per_mtok, quoted.output_micros_per_mtok) == (50_000, 250_000)


def test_a_slip_is_not_published_until_it_is_accepted(acme: Tenant, tmp_path: Path) -> None:
    model = make_offer(fresh(), 50_000, None, 250_000)
    slip = price_file(tmp_path, model, {"interactive": {"output": "0.01"}})
    per_token = price_file(tmp_path, model, {"interactive": {"output": "0.00000025"}})

    assert "--accept-warnings" in refused("publish_prices", slip)
    assert "per token" in refused("publish_prices", per_token)
    assert "no tenant" in refused("publish_prices", slip, "--tenant", "nobody-there")
    assert "past" in refused(
        "publish_prices", slip, "--accept-warnings", "--effective-at", "2020-01-01"
    )
    before = billing.facade.quote(acme.organization_id, None, model, INTERACTIVE)
    done("publish_prices", slip, "--accept-warnings", "--tenant", slug_of(acme))
    after = billing.facade.quote(acme.organization_id, None, model, INTERACTIVE)

    assert (before.output_micros_per_mtok, after.output_micros_per_mtok) == (250_000, 10_000)


def test_a_price_is_set_for_one_tenant_and_shown_both_ways(acme: Tenant, globex: Tenant) -> None:
    model = make_offer(fresh(), 50_000, None, 250_000)

    printed = done("set_price", model, "input", "40000", "--tenant", slug_of(acme))
    again = done("set_price", model, "input", "40000", "--tenant", slug_of(acme))

    assert "0.04 USD per million tokens = 0.00000004 USD per token" in printed
    assert "as before" in again
    prices = [
        billing.facade.quote(one.organization_id, None, model, INTERACTIVE).input_micros_per_mtok
        for one in (acme, globex)
    ]
    assert prices == [40_000, 50_000]


def test_an_operator_sets_an_alias_and_changes_it(acme: Tenant) -> None:
    first, second = make_offer(fresh(), 1, 1, 1), make_offer(fresh(), 1, 1, 1)

    for model in (first, second):
        assert done("set_alias", slug_of(acme), "mini", model).endswith(f"mini means {model}\n")

    served = billing.facade.quote(acme.organization_id, None, "mini", INTERACTIVE).offer
    assert served.public_id == second
    assert "an alias has" in refused("set_alias", slug_of(acme), "a b", first)


def test_an_operator_deprecates_a_model_and_takes_it_back(acme: Tenant) -> None:
    model, heir = make_offer(fresh(), 1, 1, 1), make_offer(fresh(), 1, 1, 1)

    printed = done("deprecate_model", model, "--shutdown-at", "2099-01-01", "--successor", heir)
    offer = billing.facade.quote(acme.organization_id, None, model, INTERACTIVE).offer
    back = done("deprecate_model", model, "--reinstate")

    assert f"until 2099-01-01 00:00:00 UTC; {heir} succeeds it" in printed
    assert offer.successor == heir
    assert back == f"{model} is for sale\n"
    assert "no such model" in refused("deprecate_model", "no-such-model", "--reinstate")


def sold(tenant: Tenant, model: str) -> str:
    """A settled request at 10 pico-units for each of 100 tokens; its id as clients know it."""
    quoted = billing.facade.quote(tenant.organization_id, None, model, INTERACTIVE)
    request = tenant.quoted(quoted).held(60, 40)
    billing.facade.settle([replace(used(request, UsageCounts(60, 0, 40)), model_served=model)])
    return public_request_id(request.request_id)


def test_last_hours_usage_is_previewed_and_then_repriced(acme: Tenant, tmp_path: Path) -> None:
    model = make_offer(fresh(), 10, 10, 10)
    request_id = sold(acme, model)
    draft = price_file(tmp_path, model, {"interactive": {"output": "0.000005"}})
    span = ("--from", "2020-01-01", "--to", "2099-01-01")
    words = ("reprice", "--model", model, *span, "--reason", "typed per token")

    previewed = done("preview_prices", draft, *span)
    done("publish_prices", draft, "--accept-warnings")
    dry = done(*words, "--dry-run")
    corrected = done(*words)
    again = done(*words)

    slug = slug_of(acme)
    line = next(one for one in previewed.splitlines() if one.startswith(f"{slug}  {model}"))
    assert line.endswith("0.000000001 charged, 0.0000000008 by the draft")
    assert f"{slug}: 1 events would be corrected: 0.00 charged, 0.0000000002 given back" in dry
    assert "0.0000000002 given back, 0.00 written off" in corrected
    assert again.endswith("0 events corrected\n")
    receipt = Door(acme.secret).get(f"/v1/usage/requests/{request_id}").json()
    [correction] = receipt["corrections"]
    assert (receipt["amount_pico"], correction["amount"]) == ("1000", "-0.0000000002")
    assert (correction["new_pico"], correction["reason"]) == ("800", "typed per token")
    assert "no such book" in refused(*words, "--book", "999999")


def test_an_export_is_previewed_and_what_was_not_read_is_told(tmp_path: Path, acme: Tenant) -> None:
    model = make_offer(fresh(), 10, 10, 10)
    draft = price_file(tmp_path, model, {"interactive": {"output": "1"}})
    usage = tmp_path / "usage.csv"
    usage.write_text("team,model,prompt_tokens,completion_tokens\nads,gpt-4o-mini,100,10\n")
    words = ("preview_prices", draft, "--usage", str(usage), "--map", f"gpt-4o-mini={model}")

    printed = done(*words)
    usage.write_text(f"{usage.read_text()}ads,gpt-4o-mini,-1,10\n")

    assert f"ads  {model}  interactive: 1 requests, 100 input + 10 output tokens" in printed
    assert "1 rows read, 0 refused" in printed
    assert "Total: 0.0000000011 USD at prices in force, 0.000010001 by the draft" in printed
    assert "not read in full" in refused(*words)
    assert "which usage" in refused("preview_prices", draft)
