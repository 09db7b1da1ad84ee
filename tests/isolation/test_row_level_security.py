"""Every table of the schema is behind row-level security, or on a short list that says why.

The walk is over pg_class, so a table that no Django model knows is seen too.
"""

from dataclasses import replace
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db import DataError, IntegrityError, ProgrammingError, connections, transaction
from psycopg import sql

from billing.contracts import PICO, UsageCounts
from billing.facade import hold, roll_up, set_daily_tokens, settle
from tenants.facade import tenant_scope
from tests.billing.cast import Tenant, make_tenant, used
from tests.isolation.bills import leave_a_bill
from tests.isolation.stripe_traces import leave_stripe_traces
from tests.isolation.traces import leave_prices, leave_traces

UNPROTECTED = {
    "django_migrations": "names of migrations, no tenant's data",
    "django_content_type": "names of models, no tenant's data",
    "auth_permission": "names of permissions, no tenant's data",
    "auth_group": "the operator's staff groups",
    "auth_group_permissions": "the operator's staff groups",
    "account_emailaddress": "a person's addresses, before a tenant is known",
    "account_emailconfirmation": "a person's; empty, links are signed instead",
    "django_session": "who is signed in where: a person, not a tenant",
    "mfa_authenticator": "a person's second factors, sealed",
    "operator_order": "of the operator; the app cannot read it, functions ask who asks",
    "operator_report": "of the operator; the app cannot read it, functions ask who asks",
    "socialaccount_socialaccount": "a person's accounts at identity providers",
    "socialaccount_socialapp": "empty: providers are configured by the environment",
    "socialaccount_socialtoken": "empty: tokens of providers are not stored",
    "billing_stripe_message": "what came as Stripe's, of no tenant yet; the app cannot read it",
    "tenants_user": "a person, who may belong to several tenants or none",
    "tenants_user_groups": "the operator's staff groups",
    "tenants_user_user_permissions": "the operator's staff",
}
CATALOG = {"billing_offer", "billing_price", "billing_price_book"}
"""The operator's price list: the same for everybody, readable by everybody, no tenant column."""

BEFORE_A_TENANT_IS_KNOWN = {
    "tenants_authenticate",
    "tenants_revoked_among",
    "tenants_organization_by_slug",
    "tenants_members",
    "tenants_memberships_of",
    "tenants_standing_among",
    "tenants_invitation_offer",
    "tenants_accept_invitation",
    "tenants_record_audit",
    "tenants_queue_mail",
    "billing_open_own_account",
    "tenants_found_organization",
    "billing_quote",
    "billing_take_holds",
    "billing_settle_holds",
    "billing_void_holds",
    "billing_renew_holds",
    "billing_set_quota",
    "billing_lift_quota",
    "billing_tend_credit",
    "batch_jobs_claim_items",
    "batch_jobs_store_answers",
    "batch_jobs_end_items",
    "batch_jobs_return_items",
    "batch_jobs_renew_items",
    "batch_jobs_hold_back",
    "batch_jobs_forfeit_items",
    "batch_jobs_preview",
    "tenants_operator_tenants",
    "tenants_operator_slugs",
    "billing_operator_accounts",
    "billing_operator_usage",
    "operator_place_order",
    "operator_orders",
    "operator_report_named",
}
"""SECURITY DEFINER functions that the app may call; each checks its tenants by itself."""


@pytest.fixture(scope="module")
def acme(django_database: object) -> Tenant:
    """A tenant with a row in every table of its."""
    return lived_in("acme")


@pytest.fixture(scope="module")
def globex(django_database: object) -> Tenant:
    """The tenant who must not be seen."""
    return lived_in("globex")


def lived_in(name: str) -> Tenant:
    """A tenant with settled requests, one of them rolled up, an open one, a quota and a bill."""
    tenant = make_tenant(name, credit_pico=50, floor_pico=-PICO)
    set_daily_tokens(tenant.organization_id, 1_000_000)
    tagged = replace(tenant.request(), end_user="ann")
    hold([tagged])
    settle([used(tagged, UsageCounts(60, 0, 40))])
    roll_up()
    settle([used(tenant.held(), UsageCounts(60, 0, 40))])
    tenant.held()
    leave_traces(tenant.organization_id, tenant.project_id)
    leave_prices(tenant.organization_id)
    leave_a_bill(tenant)
    leave_stripe_traces(tenant)
    return tenant


Row = tuple[Any, ...]  # whatever the query selects


def ask(alias: str, query: str | sql.Composed, *parameters: str | UUID) -> list[Row]:
    """All rows, on a connection of that role."""
    with connections[alias].cursor() as cursor:
        cursor.execute(query, list(parameters))
        rows: list[Row] = cursor.fetchall()
    return rows


def tables(condition: str = "true") -> list[str]:
    """Names of tables and partitioned tables of the schema."""
    rows = ask(
        "owner",
        "SELECT c.relname FROM pg_class c WHERE c.relnamespace = 'public'::regnamespace"
        f" AND c.relkind IN ('r', 'p') AND ({condition}) ORDER BY 1",
    )
    return [str(name) for (name,) in rows]


def tenant_tables() -> list[str]:
    """Parents with a tenant column."""
    return tables(
        "NOT c.relispartition AND EXISTS (SELECT FROM pg_attribute a"
        " WHERE a.attrelid = c.oid AND a.attname = 'organization_id')"
    )


def test_every_table_forces_row_level_security_or_is_listed(django_database: object) -> None:
    open_tables = tables("NOT (c.relrowsecurity AND c.relforcerowsecurity)")

    assert sorted(open_tables) == sorted(UNPROTECTED)


def test_no_listed_table_has_a_tenants_column(django_database: object) -> None:
    assert not (set(UNPROTECTED) | CATALOG) & set(tenant_tables())
    assert len(tenant_tables()) >= 10


def test_every_protected_table_has_the_tenant_policy(django_database: object) -> None:
    policies = ask(
        "owner",
        "SELECT tablename, permissive, cmd, qual, with_check FROM pg_policies"
        " WHERE schemaname = 'public'",
    )

    by_table = {str(table): rest for table, *rest in policies}
    protected = set(tables("NOT c.relispartition")) - set(UNPROTECTED)
    assert len(policies) == len(by_table)
    assert set(by_table) == protected
    for table, (permissive, command, shown, written) in by_table.items():
        if table in CATALOG:
            assert (command, shown) == ("SELECT", "true")
            continue
        column = "id" if table == "tenants_organization" else "organization_id"
        assert (permissive, command) == ("PERMISSIVE", "ALL"), table
        assert shown == written, table
        assert str(shown).startswith(f"({column} = ( SELECT tenants_current()"), table


def test_there_is_no_view_that_could_look_past_the_policies(django_database: object) -> None:
    views = ask(
        "owner",
        "SELECT relname FROM pg_class WHERE relkind IN ('v', 'm')"
        " AND relnamespace = 'public'::regnamespace",
    )

    assert views == []


def test_the_app_owns_nothing_and_bypasses_nothing(django_database: object) -> None:
    [role] = ask(
        "default",
        "SELECT current_user, rolsuper, rolbypassrls, rolcreaterole, rolcreatedb"
        " FROM pg_roles WHERE rolname = current_user",
    )
    owned = ask("default", "SELECT relname FROM pg_class WHERE relowner = current_user::regrole")
    memberships = ask(
        "default", "SELECT roleid FROM pg_auth_members WHERE member = current_user::regrole"
    )

    assert role == ("headrace_app", False, False, False, False)
    assert owned == []
    assert memberships == []


def test_the_owner_sees_no_tenants_row(acme: Tenant) -> None:
    for table in tenant_tables():
        query = sql.SQL("SELECT count(*) FROM {}").format(sql.Identifier(table))

        assert ask("owner", query) == [(0,)], table


def readable(table: str) -> bool:
    """Whether the app has any right to read the table."""
    [(granted,)] = ask("owner", "SELECT has_table_privilege('headrace_app', %s, 'SELECT')", table)
    return bool(granted)


def test_raw_sql_of_the_app_without_a_scope_returns_nothing(acme: Tenant) -> None:
    filled = 0
    for table in filter(readable, [*tenant_tables(), "tenants_organization"]):
        query = sql.SQL("SELECT count(*) FROM {}").format(sql.Identifier(table))

        assert ask("default", query) == [(0,)], table
        filled += ask("housekeeper", query) != [(0,)]

    assert filled >= 10


def test_raw_sql_in_a_scope_sees_its_tenant_only(acme: Tenant, globex: Tenant) -> None:
    seen = 0
    with tenant_scope(acme.organization_id):
        for table in filter(readable, tenant_tables()):
            query = sql.SQL("SELECT DISTINCT organization_id FROM {}").format(sql.Identifier(table))
            rows = ask("default", query)
            assert rows in ([], [(acme.organization_id,)]), table
            seen += len(rows)

    assert seen >= 9


@pytest.mark.parametrize(
    ("scope", "outcome"), [("", [(0,)]), (str(uuid4()), [(0,)]), ("%", None), ("' OR true", None)]
)
def test_a_scope_of_nonsense_shows_nothing(
    acme: Tenant, scope: str, outcome: list[tuple[int]] | None
) -> None:
    with transaction.atomic():
        ask("default", "SELECT set_config('headrace.organization_id', %s, true)", scope)
        if outcome is None:
            with pytest.raises(DataError), transaction.atomic():
                ask("default", "SELECT count(*) FROM tenants_project")
        else:
            assert ask("default", "SELECT count(*) FROM tenants_project") == outcome


def test_the_app_reads_no_partition_directly(acme: Tenant) -> None:
    partitions = tables("c.relispartition")

    assert len(partitions) >= 5
    for partition in partitions:
        for role in ("headrace_app", "headrace_housekeeper", "headrace_definer"):
            granted = ask(
                "owner",
                "SELECT has_any_column_privilege(%s, %s, 'SELECT, INSERT, UPDATE, REFERENCES')",
                role,
                partition,
            )
            assert granted == [(False,)], (role, partition)


def test_nobody_grants_by_default(django_database: object) -> None:
    assert ask("owner", "SELECT count(*) FROM pg_default_acl") == [(0,)]


def test_the_app_creates_no_table(django_database: object) -> None:
    with pytest.raises(ProgrammingError, match="permission denied"):
        ask("default", "CREATE TABLE public.mine (id int)")


def test_functions_that_bypass_the_policies_are_few_and_never_public(
    django_database: object,
) -> None:
    functions = ask(
        "owner",
        "SELECT p.proname, pg_get_userbyid(p.proowner), p.proconfig,"
        " has_function_privilege('headrace_app', p.oid, 'EXECUTE'),"
        " EXISTS (SELECT FROM aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a"
        "          WHERE a.grantee = 0)"
        " FROM pg_proc p WHERE p.prosecdef AND p.pronamespace = 'public'::regnamespace",
    )

    for name, owner, configuration, _, public in functions:
        assert not public, name
        assert any("search_path=pg_catalog" in str(c) for c in configuration or []), name
        assert owner == "headrace_definer" or name == "billing_ensure_partitions", name
    ours = {name for name, _, _, app, _ in functions if app}
    assert ours == BEFORE_A_TENANT_IS_KNOWN


def test_no_guard_of_what_the_app_reaches_can_be_switched_off(django_database: object) -> None:
    """Whoever may call a function may switch its ASSERTs off; names in a body are calls."""
    switched_off = ask(
        "owner",
        r"""
        WITH RECURSIVE ours AS (
            SELECT p.oid, p.proname, p.prosrc, p.prorettype = 'trigger'::regtype AS is_trigger
              FROM pg_proc p WHERE p.pronamespace = 'public'::regnamespace
        ), reached AS (
            SELECT o.* FROM ours o
             WHERE o.is_trigger OR has_function_privilege('headrace_app', o.oid, 'EXECUTE')
            UNION
            SELECT o.* FROM ours o JOIN reached r ON r.prosrc ~ ('\m' || o.proname || '\M')
        )
        SELECT DISTINCT r.proname FROM reached r WHERE r.prosrc ~* '\massert\M'""",
    )

    assert switched_off == []


PLANTED_TX = """
    INSERT INTO billing_ledger_tx (id, organization_id, idempotency_key, kind)
    SELECT uuidv7(), organization_id, 'mine', 'grant' FROM billing_account"""
PLANTED_LEG = """
    INSERT INTO billing_ledger_leg (id, organization_id, transaction_id, account_id, amount_pico)
    SELECT uuidv7(), organization_id, transaction_id, account_id, 1 FROM billing_ledger_leg"""
PLANTED_OFFER = """
    INSERT INTO billing_offer (id, public_id, display_name, owned_by, context_tokens_max,
                               output_tokens_max)
    VALUES (uuidv7(), 'mine', 'mine', 'me', 1, 1)"""
PLANTED_MEMBER = """
    INSERT INTO tenants_membership (id, organization_id, user_id, role)
    SELECT uuidv7(), organization_id, user_id, 'owner' FROM tenants_membership"""
WRITES = [
    "SELECT * FROM tenants_mail",
    "UPDATE tenants_outbox_event SET kind = 'not.this'",
    "DELETE FROM tenants_outbox_event",
    "UPDATE tenants_webhook_delivery SET attempts = 0",
    "DELETE FROM tenants_webhook_delivery",
    "UPDATE tenants_webhook_attempt SET status_code = 200",
    "DELETE FROM tenants_webhook_attempt",
    "UPDATE tenants_exchange SET truncated = true",
    "DELETE FROM tenants_exchange",
    "UPDATE tenants_export SET requested_by = NULL",
    "UPDATE tenants_export_part SET content = ''",
    "UPDATE tenants_erasure SET erased_at = now()",
    "DELETE FROM tenants_erasure",
    PLANTED_TX,
    PLANTED_LEG,
    PLANTED_OFFER,
    "UPDATE billing_account SET posted_pico = posted_pico + 1",
    "UPDATE billing_ledger_leg SET amount_pico = 1",
    "DELETE FROM billing_ledger_leg",
    "UPDATE billing_ledger_tx SET kind = 'grant'",
    "DELETE FROM billing_ledger_tx",
    "UPDATE billing_usage_event SET charge_pico = 0",
    "UPDATE billing_usage_event SET end_user = '', tags = '{}'",
    "DELETE FROM billing_usage_event",
    "TRUNCATE billing_usage_event",
    "DELETE FROM billing_usage_delta",
    "UPDATE billing_usage_hour SET requests = 0",
    "UPDATE billing_usage_tag_hour SET requests = 0",
    "UPDATE billing_usage_model_hour SET requests = 0",
    "DELETE FROM billing_usage_tag_hour",
    "SELECT billing_forget_end_users(tenants_current(), 'ann', '{user}')",
    "SELECT billing_roll_up(1, 1)",
    "UPDATE billing_price SET price_micros_per_mtok = 0",
    "DELETE FROM billing_price",
    "UPDATE billing_price_book SET note = ''",
    "UPDATE billing_tenant_price SET price_micros_per_mtok = 0",
    "UPDATE billing_tenant_price_book SET effective_at = now()",
    "DELETE FROM billing_tenant_price",
    "INSERT INTO billing_tenant_price_book (id) VALUES (uuidv7())",
    "UPDATE billing_correction SET charged_pico = 0",
    "DELETE FROM billing_correction",
    "UPDATE billing_alias SET organization_id = organization_id",
    (
        "SELECT billing_correct_events("
        "tenants_current(), uuidv7(), 'm', now(), uuidv7(), now(), 1, 'r', 'a')"
    ),
    "UPDATE billing_hold SET state = 'voided'",
    "DELETE FROM billing_hold",
    "UPDATE billing_quota_policy SET limit_amount = 0",
    "UPDATE billing_quota_counter SET used_amount = 0",
    "DELETE FROM billing_quota_counter",
    "UPDATE tenants_organization SET requests_per_minute_max = 1000000",
    "UPDATE tenants_api_key SET secret_hash = secret_hash",
    "UPDATE tenants_api_key SET permissions = '{keys.write}', kind = 'admin'",
    "UPDATE tenants_organization SET status = 'active'",
    "UPDATE tenants_organization SET currency = 'EUR'",
    "UPDATE tenants_invitation SET role = 'owner'",
    "UPDATE tenants_invitation SET accepted_at = NULL",
    "UPDATE tenants_membership SET user_id = user_id",
    PLANTED_MEMBER,
    "SELECT tenants_audit(tenants_current(), 'user', NULL, '', NULL, 'x', 'x', 'x', '{}')",
    "SELECT billing_grant_credit(tenants_current(), 1, 'mine')",
    "SELECT billing_tend_credit(tenants_current(), now())",
    "SELECT billing_complete_top_up('', NULL, 1)",
    (
        "SELECT billing_stripe_apply('evt', 'mine', now(), tenants_current(), 'cus', NULL,"
        " 'complete', 'pi', 'usd', 1, 0, '', '')"
    ),
    "SELECT tenants_emit(tenants_current(), 'topup.succeeded', '{}')",
    "SELECT tenants_emit(tenants_current(), 'invoice.paid', '{}')",
    "SELECT * FROM billing_stripe_message",
    "UPDATE billing_stripe_message SET outcome = ''",
    "DELETE FROM billing_stripe_message",
    "INSERT INTO billing_stripe_message (body, signature, received_at) VALUES ('', '', now())",
    "SELECT billing_pay_invoice(tenants_current(), NULL, 1, '')",
    "UPDATE billing_credit_grant SET remaining_pico = amount_pico",
    "DELETE FROM billing_grant_burn",
    "UPDATE billing_top_up SET state = 'succeeded'",
    (
        "INSERT INTO billing_stripe_event (id, organization_id, kind, top_up_id, outcome,"
        " created_at) SELECT 'mine', organization_id, 'mine', id, 'applied', now()"
        " FROM billing_top_up"
    ),
    "UPDATE billing_stripe_event SET outcome = 'unchanged'",
    "DELETE FROM billing_stripe_event",
    "UPDATE billing_stripe_account SET payment_method_id = 'mine'",
    "UPDATE billing_stripe_account SET is_demo = true",
    "UPDATE billing_stripe_export SET state = 'delivered'",
    "DELETE FROM billing_stripe_export",
    "UPDATE billing_settings SET tax_ppm = 0",
    "UPDATE billing_invoice SET total_pico = 0",
    "DELETE FROM billing_invoice_line",
    "DELETE FROM billing_invoice_payment",
    "DELETE FROM billing_invoice_recipient",
    "DELETE FROM bulk_file",
    "UPDATE bulk_file SET project_id = project_id",
    "UPDATE bulk_file SET storage_name = 'another'",
    "UPDATE bulk_file SET size_bytes = 0",
    "UPDATE bulk_job SET charge_pico = 0",
    "DELETE FROM bulk_job",
    "UPDATE bulk_item SET answer = 'mine'",
    "UPDATE bulk_item SET charge_pico = 0",
    "DELETE FROM bulk_item",
    "DELETE FROM bulk_attempt",
    "UPDATE bulk_progress SET items = 0",
    "SELECT billing_sweep_holds(interval '0', 100)",
    "SELECT billing_ensure_partitions(1)",
    "LOCK TABLE ONLY billing_usage_event IN SHARE UPDATE EXCLUSIVE MODE",
]


@pytest.mark.parametrize("statement", WRITES)
def test_the_app_writes_no_books(acme: Tenant, statement: str) -> None:
    with (
        pytest.raises(ProgrammingError, match="permission denied"),
        tenant_scope(acme.organization_id),
    ):
        ask("default", statement)


def test_a_top_up_is_of_its_accounts_currency(acme: Tenant) -> None:
    """Credit is posted in that: a payment of as many smaller coins would be worth less."""
    with (
        pytest.raises(IntegrityError, match="billing_top_up_in_its_accounts_currency"),
        tenant_scope(acme.organization_id),
    ):
        ask(
            "default",
            "INSERT INTO billing_top_up (id, organization_id, amount_pico, currency,"
            " idempotency_key) VALUES (gen_random_uuid(), %s, 1000000000000, 'JPY', 'cheap')",
            acme.organization_id,
        )


KEEPERS_WRITES = [
    statement
    for statement in WRITES
    if statement.startswith(("UPDATE", "DELETE", "TRUNCATE"))
    and any(table in statement for table in ("ledger", "billing_usage", "_price"))
]


@pytest.mark.parametrize("statement", KEEPERS_WRITES)
def test_the_housekeeper_changes_no_history_either(acme: Tenant, statement: str) -> None:
    with pytest.raises(ProgrammingError, match="permission denied"):
        ask("housekeeper", statement)


def test_a_price_is_closed_and_never_moved(acme: Tenant) -> None:
    with pytest.raises(IntegrityError, match="never changed"):
        ask(
            "housekeeper",
            "UPDATE billing_price SET valid = tstzrange(lower(valid) - interval '1 day', NULL)"
            " WHERE id = %s RETURNING id",
            acme.quote.input_price_id,
        )
