"""LiteLLM's tenants come over with their keys, once, and never with more rights than they had."""

import csv
import io
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.core.management import CommandError, call_command
from django.db import connections
from psycopg import sql

import tenants.facade
from billing.contracts import PICO, QuotaMetric, QuotaPeriod, QuotaScope
from billing.facade import balance, models_for_sale, quotas
from headrace.importing.blueprint import OrganizationPlan
from headrace.importing.plan import plan_import
from tenants.contracts import KeyRejected, KeyScope, MinuteLimits, Role
from tenants.facade import authenticate, operator_of, organization_by_slug
from tests.billing.cast import make_offer
from tests.headrace.litellm_dump import LiteLlm, litellm_dump

pytestmark = pytest.mark.usefixtures("django_database")


@pytest.fixture
def theirs() -> LiteLlm:
    """What there is to import."""
    return litellm_dump()


@pytest.fixture
def folder(theirs: LiteLlm, tmp_path: Path) -> Path:
    """Their tables as JSON."""
    for name, rows in theirs.tables.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(rows))
    return tmp_path


@pytest.fixture
def model(theirs: LiteLlm) -> str:
    """A model for sale here."""
    return make_offer(f"ours-{theirs.mark}", 1, 1, 1)


def imported(*arguments: str) -> str:
    """What the command says."""
    output = io.StringIO()
    call_command("import_litellm", *arguments, stdout=output)
    return output.getvalue()


def planned(theirs: LiteLlm) -> Mapping[str, OrganizationPlan]:
    """The organizations of the plan by their names."""
    plan = plan_import(theirs.tables, datetime.now(UTC))
    return {one.display_name: one for one in plan.organizations}


def found(theirs: LiteLlm, name: str) -> UUID:
    """The organization that came of it."""
    organization = organization_by_slug(planned(theirs)[name].slug)
    assert organization is not None
    return organization.organization_id


def everything() -> list[int]:
    """How many rows there are of what an import makes."""
    counts = []
    with connections["housekeeper"].cursor() as cursor:
        for table in (
            *("tenants_organization", "tenants_project", "tenants_api_key", "tenants_user"),
            *("tenants_membership", "billing_quota_policy", "billing_alias", "billing_account"),
        ):
            cursor.execute(f"SELECT count(*) FROM {table}")
            counts.append(cursor.fetchone()[0])
    return counts


def test_a_dry_run_changes_nothing_and_tells_what_would_be(folder: Path, theirs: LiteLlm) -> None:
    before = everything()
    told = imported("--tables", str(folder))

    assert everything() == before
    assert f"Acme {theirs.mark}" in told
    assert "project Research: 2 keys" in told
    assert "dry run" in told


def test_keys_go_on_to_work_in_their_new_home(folder: Path, theirs: LiteLlm, model: str) -> None:
    imported("--tables", str(folder), "--apply", "--model", f"gpt-4o-mini={model}")

    research = authenticate(theirs.secret("research"))
    sales = authenticate(theirs.secret("shared"))
    lone = authenticate(theirs.secret("lone"))
    assert research.organization_id == sales.organization_id == found(theirs, f"Acme {theirs.mark}")
    assert research.project_id != sales.project_id
    assert lone.organization_id == found(theirs, f"Lone {theirs.mark}")
    assert lone.expires_at == datetime(2100, 1, 1, tzinfo=UTC)
    assert research.key_limits.requests_max == 10
    assert research.project_limits == MinuteLimits(requests_max=60, tokens_max=100_000)
    assert research.requests_per_minute_max == 300
    assert research.models == frozenset({"gpt-4o-mini", "small", model})


@pytest.mark.parametrize("name", ["blocked", "expired", "admin", "of-blocked", "session"])
def test_a_key_that_did_not_work_there_does_not_work_here(
    folder: Path, theirs: LiteLlm, name: str
) -> None:
    told = imported("--tables", str(folder), "--apply")

    with pytest.raises(KeyRejected):
        authenticate(theirs.secret(name))
    assert "key plain: its token is not a SHA-256: not imported" in told


def test_a_narrow_key_stays_narrow(folder: Path, theirs: LiteLlm) -> None:
    imported("--tables", str(folder), "--apply")

    narrow = authenticate(theirs.secret("narrow"))
    assert narrow.scopes == {KeyScope.EMBEDDINGS}
    assert narrow.models == frozenset({"small"})


def test_budgets_become_exact_limits_of_spending(folder: Path, theirs: LiteLlm) -> None:
    told = imported("--tables", str(folder), "--apply")
    research = authenticate(theirs.secret("research"))
    own = authenticate(theirs.secret("own"))

    found_quotas = {
        (quota.wanted.scope, quota.wanted.scope_id, quota.wanted.period, quota.wanted.is_hard): (
            quota.wanted.limit_amount
        )
        for organization_id in (research.organization_id, own.organization_id)
        for quota in quotas(operator_of(organization_id))
        if quota.wanted.metric is QuotaMetric.SPEND
    }
    organization, project, key = QuotaScope.ORGANIZATION, QuotaScope.PROJECT, QuotaScope.KEY
    day, month = QuotaPeriod.DAY, QuotaPeriod.MONTH
    expected = {
        (organization, None, month, True): 1_000_500_000_000_000,
        (organization, None, month, False): 800 * PICO,
        (project, research.project_id, day, True): 12_345_678_901_234,
        (key, research.key_id, day, True): PICO,
        (key, authenticate(theirs.secret("shared")).key_id, day, True): PICO // 10,
        (project, own.project_id, day, True): 3 * PICO,
    }
    assert expected.items() <= found_quotas.items()
    assert "team Sales: a budget per 7d: ours are per day or month" in told


def test_people_come_with_the_roles_they_had(folder: Path, theirs: LiteLlm) -> None:
    told = imported("--tables", str(folder), "--apply")
    members = {
        name: {
            member.email: member.role
            for member in tenants.facade.list_members(operator_of(found(theirs, name)))
        }
        for name in (f"Acme {theirs.mark}", f"Lone {theirs.mark}")
    }

    assert members == {
        f"Acme {theirs.mark}": {
            theirs.address("olga"): Role.OWNER,
            theirs.address("ann"): Role.DEVELOPER,
            theirs.address("vic"): Role.VIEWER,
        },
        f"Lone {theirs.mark}": {theirs.address("lea"): Role.OWNER},
    }
    assert f"user nobody-{theirs.mark}: no e-mail address" in told
    assert f"user pat-{theirs.mark}: an operator there" in told


def test_model_names_mean_models_of_ours(folder: Path, theirs: LiteLlm, model: str) -> None:
    imported("--tables", str(folder), "--apply", "--model", f"small={model}")
    research = authenticate(theirs.secret("research"))
    names = {
        name: quote.offer.public_id
        for name, quote in models_for_sale(research.organization_id, research.project_id)
    }

    assert (names["best"], names["small"]) == (model, model)


def test_a_second_run_makes_nothing_and_undoes_no_change(
    folder: Path, theirs: LiteLlm, model: str
) -> None:
    arguments = ("--tables", str(folder), "--apply", "--model", f"small={model}")
    imported(*arguments)
    key = authenticate(theirs.secret("research"))
    tenants.facade.revoke_key(key.organization_id, key.key_id, "housekeeper")
    before = everything()
    told = imported(*arguments)

    assert everything() == before
    assert "made: 0 organizations, 0 projects, 0 members, 0 keys, 0 limits" in told
    with pytest.raises(KeyRejected):
        authenticate(theirs.secret("research"))


def test_an_organization_that_cannot_be_made_whole_is_left_out_whole(
    folder: Path, theirs: LiteLlm
) -> None:
    path = folder / "LiteLLM_TeamTable.json"
    teams = json.loads(path.read_text())
    teams += [
        {**teams[0], "team_id": f"extra-{number}", "team_alias": f"T{number}", "members": []}
        for number in range(120)
    ]
    path.write_text(json.dumps(teams))
    told = imported("--tables", str(folder), "--apply")

    assert f"organization Acme {theirs.mark}: nothing of it imported" in told
    with pytest.raises(KeyRejected):
        authenticate(theirs.secret("research"))
    assert authenticate(theirs.secret("lone"))


def test_credit_is_what_the_operator_gives(folder: Path, theirs: LiteLlm) -> None:
    imported("--tables", str(folder), "--apply", "--credit-limit", "25")

    assert balance(found(theirs, f"Lone {theirs.mark}")).floor_pico == -25 * PICO


def test_copies_text_reads_as_json_does(folder: Path, theirs: LiteLlm, tmp_path: Path) -> None:
    other = tmp_path / "csv"
    other.mkdir()
    for name, rows in theirs.tables.items():
        columns = sorted({column for row in rows for column in row})
        with (other / f"{name}.csv").open("w", newline="") as file:
            writer = csv.DictWriter(file, columns)
            writer.writeheader()
            writer.writerows(
                {column: copied(row.get(column)) for column in columns} for row in rows
            )

    assert imported("--tables", str(other)) == imported("--tables", str(folder))


def copied(value: Any) -> str:
    """A value as PostgreSQL's COPY writes it."""
    match value:
        case None:
            return ""
        case bool():
            return "t" if value else "f"
        case list() if all(isinstance(one, str) for one in value):
            return "{" + ",".join(f'"{one}"' for one in value) + "}"
        case dict() | list():
            return json.dumps(value)
    return str(value)


def test_a_database_reads_as_its_tables_do(folder: Path, theirs: LiteLlm) -> None:
    with their_database(theirs) as dsn:
        from_database = imported("--dsn", dsn)

    assert from_database == imported("--tables", str(folder))


COLUMN_TYPES = {
    "max_budget": "double precision",
    "soft_budget": "double precision",
    "rpm_limit": "bigint",
    "tpm_limit": "bigint",
    "models": "text[]",
    "allowed_routes": "text[]",
    "members_with_roles": "jsonb",
    "aliases": "jsonb",
    "metadata": "jsonb",
    "litellm_params": "jsonb",
    "blocked": "boolean",
    "expires": "timestamp(3)",
}
"""LiteLLM's, where they are not text."""


@contextmanager
def their_database(theirs: LiteLlm) -> Iterator[str]:
    """A DSN at which the dump's tables are found, with columns of LiteLLM's types."""
    schema = f"litellm_{theirs.mark}"
    with connections["owner"].cursor() as cursor:
        cursor.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(schema)))
        for name, rows in theirs.tables.items():
            table = sql.Identifier(schema, name)
            columns = sql.SQL(", ").join(
                sql.SQL("{} {}").format(
                    sql.Identifier(column), sql.SQL(COLUMN_TYPES.get(column, "text"))
                )
                for column in sorted({column for row in rows for column in row})
            )
            cursor.execute(sql.SQL("CREATE TABLE {} ({})").format(table, columns))
            for row in rows:
                cursor.execute(
                    sql.SQL(
                        "INSERT INTO {} SELECT * FROM jsonb_populate_record(NULL::{}, %s::jsonb)"
                    ).format(table, table),
                    [json.dumps(row)],
                )
    database = connections["owner"].settings_dict
    try:
        yield (
            f"host={database['HOST']} port={database['PORT']} dbname={database['NAME']}"
            f" user={database['USER']} password={database['PASSWORD']}"
            f" options=-csearch_path={schema}"
        )
    finally:
        with connections["owner"].cursor() as cursor:
            cursor.execute(sql.SQL("DROP SCHEMA {} CASCADE").format(sql.Identifier(schema)))


def test_what_is_not_litellms_is_refused_without_a_word_of_the_password(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="LiteLLM_VerificationToken"):
        imported("--tables", str(tmp_path))
    secret = uuid4().hex
    with pytest.raises(CommandError) as refused:
        imported("--dsn", f"postgresql://someone:{secret}@127.0.0.1:9/none")
    assert secret not in str(refused.value)


def test_a_plan_is_the_same_whatever_the_order_of_the_rows(theirs: LiteLlm) -> None:
    now = datetime.now(UTC)
    backwards = {name: rows[::-1] for name, rows in theirs.tables.items()}

    assert (
        plan_import(backwards, now).organizations == plan_import(theirs.tables, now).organizations
    )
