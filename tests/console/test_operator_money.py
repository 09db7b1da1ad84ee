"""The operator's pages of money and of the house: what workers wrote down, and exact sums."""

import re
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from io import StringIO
from typing import Any
from uuid import uuid4

import pytest
from django.conf import settings
from django.core.management import call_command
from django.db import ProgrammingError, connections
from django.test import override_settings

from billing.contracts import PICO, ServiceTier, TenantUsage, UsageCounts
from billing.facade import settle, usage_overview
from headrace.console_kit import formats
from headrace.operator_console import money
from headrace.operator_console.margins import margins, model_costs_pico
from headrace.operator_console.models import ReportRow
from headrace.operator_console.money import by, month_at
from headrace.operator_console.reports.engine_time import (
    OTHERS,
    added,
    engine_seconds,
    report_engine_time,
)
from headrace.operator_console.reports.house import report_house
from headrace.operator_console.reports.keeping import ReportName, keep, last
from headrace.operator_console.system import SETTINGS, size_text
from tenants.facade import operator_of, read_organization, tenant_slugs
from tests.billing.cast import make_tenant, used
from tests.console.engines import report_engine_of
from tests.console.operators import new_staff, operator
from tests.headrace.door import new_user

pytestmark = pytest.mark.usefixtures("django_database")


def usage(model: str, tokens: int, charge_pico: int, currency: str = "USD") -> TenantUsage:
    return TenantUsage(
        *(uuid4(), model, ServiceTier.INTERACTIVE, currency, 1, tokens, 0, 0, charge_pico)
    )


def test_charges_are_summed_by_name_and_currency_the_most_first() -> None:
    rows = by(
        [
            usage("small", 100, 10 * PICO),
            usage("large", 10**6, 25 * PICO),
            usage("small", 900, 5 * PICO),
            usage("small", 10, 7 * PICO, "EUR"),
        ],
        "Model",
        lambda one: one.model,
    ).rows

    said = [[re.sub("<[^>]*>", "", str(cell)) for cell in row.cells] for row in rows]
    assert said == [
        ["large", "1", "1M", "$25.00", "$25.00", "62 %"],
        ["small", "2", "1,000", "$15.00", "$15,000.00", "38 %"],
        ["small", "1", "10", "€7.00", "€700,000.00", "100 %"],
    ]


def test_months_are_whole_hours_of_utc() -> None:
    now = datetime(2026, 3, 1, 0, 30, tzinfo=UTC)

    assert month_at(now, is_last=False) == (
        datetime(2026, 3, 1, tzinfo=UTC),
        datetime(2026, 3, 1, 1, tzinfo=UTC),
    )
    assert month_at(now, is_last=True) == (
        datetime(2026, 2, 1, tzinfo=UTC),
        datetime(2026, 3, 1, tzinfo=UTC),
    )


def test_a_tenant_is_there_with_what_its_own_overview_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Those of all tests before have used more.
    monkeypatch.setattr(money, "TENANTS_MAX", 10_000)
    tenant = make_tenant("spends", credit_pico=PICO)
    settle([used(tenant.held(), UsageCounts(60, 0, 40))])
    slug = read_organization(operator_of(tenant.organization_id)).slug
    month = usage_overview(tenant.organization_id, datetime.now(UTC), "UTC").month

    page = operator().get("/operator/money").text

    row = re.search(rf"<tr><td>{slug}</td>.*?</tr>", page, re.DOTALL)
    assert row is not None
    assert formats.money(month.charge_pico, "USD") in row[0]


def test_the_last_reconcile_is_shown_whoever_ran_it() -> None:
    call_command("reconcile", stdout=StringIO())
    kept = last(new_staff(), ReportName.BOOKS)

    assert kept is not None
    assert kept.content["broken"] == []
    assert "the books agree" in operator().get("/operator/money").text


def test_what_is_broken_is_named() -> None:
    """As the report would say it, were the books broken."""
    content = {
        "took_ms": 5,
        "invariants": 60,
        "rows": 7,
        "broken": [{"broken_when": "legs do not sum", "table": "t", "findings": ["a, 5"]}],
    }
    keep(ReportName.BOOKS, content)
    page = operator().get("/operator/money").text

    assert "1 of 60 invariants" in page
    assert "legs do not sum" in page
    assert "a, 5" in page


def test_before_any_worker_reported_nothing_is_known() -> None:
    with connections["owner"].cursor() as cursor:
        cursor.execute("DELETE FROM operator_report")
    caller = operator()

    assert "No worker has reported yet" in caller.get("/operator/system").text
    assert "Not reconciled yet" in caller.get("/operator/money").text


def test_the_system_page_says_what_a_worker_saw_and_since_when_none_has() -> None:
    report_house()
    page = operator().get("/operator/system").text
    assert "As a worker saw it" in page
    assert "PostgreSQL" in page
    assert "billing_usage_event" in page
    assert "No worker has reported since" not in page

    long_ago = datetime.now(UTC) - timedelta(hours=1)
    ReportRow.objects.using("housekeeper").filter(name="house").update(made_at=long_ago)

    assert "No worker has reported since" in operator().get("/operator/system").text


def test_no_secret_is_among_the_settings() -> None:
    page = operator().get("/operator/system").text

    secrets = [settings.SECRET_KEY, settings.DATABASES["default"]["PASSWORD"], settings.REDIS_URL]
    assert not [one for one in secrets if one and one in page]
    assert not [one for one in SETTINGS if "KEY" in one or "PASSWORD" in one or "SECRET" in one]


def test_reports_and_names_are_for_operators() -> None:
    person = new_user()
    for ask in (lambda: last(person, ReportName.HOUSE), lambda: tenant_slugs(person, [uuid4()])):
        with pytest.raises(ProgrammingError, match="for operators"):
            ask()


@pytest.mark.parametrize(
    ("size_bytes", "said"),
    [(None, formats.UNKNOWN), (9, "9 bytes"), (11 * 1024, "11 KiB"), (3 * 1024**3, "3,072 MiB")],
)
def test_sizes_read_in_the_unit_that_shows_most(size_bytes: int | None, said: str) -> None:
    assert size_text(size_bytes) == said


NOON = datetime(2026, 11, 29, 12, tzinfo=UTC)
GAP_MAX = timedelta(minutes=2)


def looks(*seen: tuple[timedelta, list[tuple[str, str]]]) -> dict[str, Any]:
    """The report after looks so long after noon."""
    content: dict[str, Any] | None = None
    for after, engines in seen:
        content = added(content, engines, NOON + after, GAP_MAX)
    assert content is not None
    return content


def test_engine_time_begins_with_a_whole_hour_and_leaves_gaps_out() -> None:
    minute, hour = timedelta(minutes=1), timedelta(hours=1)
    small, large = ("small", OTHERS), ("large", "engine-a")
    content = looks(
        (minute, [small]),
        (hour - minute / 2, [small]),
        (hour + minute / 2, [small]),
        (hour + minute, [small, small, large]),
        (hour + 30 * minute, [small]),
        (hour + 31 * minute, []),
    )

    assert content["since"] == (NOON + hour).isoformat()
    assert engine_seconds(content, NOON) == {"small": {OTHERS: 90}, "large": {"engine-a": 30}}


def test_time_from_before_engines_had_prices_is_that_of_the_others() -> None:
    before = {
        "since": NOON.isoformat(),
        "at": NOON.isoformat(),
        "months": {"2026-11": {"small": 60}},
    }
    content = added(before, [("small", "engine-a")], NOON + timedelta(minutes=1), GAP_MAX)

    assert engine_seconds(content, NOON) == {"small": {OTHERS: 60, "engine-a": 60}}


def test_an_engines_time_is_shared_by_tokens() -> None:
    ours, theirs, other = usage("m", 300, 9), usage("m", 100, 1), usage("unseen", 5, 5)
    found = margins(
        [ours, theirs, other], {"m": Fraction(8)}, lambda one: "us" if one is ours else "they"
    )

    assert [(one.name, one.charge_pico, one.cost_pico, one.margin_pico) for one in found] == [
        ("us", 9, 6, 3),
        ("they", 1, 2, -1),
    ]


def test_a_model_costs_what_each_of_its_engines_costs() -> None:
    prices = {"engine-a": 7200, OTHERS: 3600}
    seconds = {
        "m": {"engine-a": 10, OTHERS: 5},
        "unpriced in part": {"engine-a": 10, "engine-b": 10},
    }

    assert model_costs_pico(seconds, prices.get) == {"m": 25}


def test_a_margin_is_shown_once_there_is_a_price_and_time() -> None:
    tenant = make_tenant("brings", credit_pico=PICO)
    settle([used(tenant.held(), UsageCounts(60, 0, 40))])
    now = datetime.now(UTC)
    seconds = {f"{now:%Y-%m}": {"served": 3600}}
    content = {"since": "2026-01-01T00:00:00+00:00", "at": now.isoformat(), "months": seconds}
    keep(ReportName.ENGINE_TIME, content)
    assert "No margin yet" in operator().get("/operator/money").text

    with override_settings(GPU_HOUR_PRICE_PICO=3 * PICO):
        page = operator().get("/operator/money").text

    assert "Margin by tenant" in page
    assert "$3.00" in page


def test_a_margin_goes_by_each_engines_price() -> None:
    tenant = make_tenant("brings", credit_pico=PICO)
    settle([used(tenant.held(), UsageCounts(60, 0, 40))])
    now = datetime.now(UTC)
    seconds = {f"{now:%Y-%m}": {"served": {"engine-a": 1800, OTHERS: 3600}}}
    content = {"since": "2026-01-01T00:00:00+00:00", "at": now.isoformat(), "months": seconds}
    keep(ReportName.ENGINE_TIME, content)

    own = override_settings(GPU_HOUR_PRICES_PICO={"engine-a": 20 * PICO})
    with own, override_settings(GPU_HOUR_PRICE_PICO=3 * PICO):
        page = operator().get("/operator/money").text
    with own:
        unpriced_in_part = operator().get("/operator/money").text

    assert "$13.00" in page
    assert "No margin yet" in unpriced_in_part
    assert "every engine of a model" in unpriced_in_part


@pytest.mark.parametrize("named", [True, False])
def test_a_worker_tells_engines_with_a_price_apart(named: bool) -> None:
    model = f"model-{uuid4().hex[:8]}"
    now = datetime.now(UTC)
    earlier = (now - timedelta(seconds=60)).isoformat()
    keep(ReportName.ENGINE_TIME, {"since": earlier, "at": earlier, "months": {}})
    report_engine_of(model)
    prices = {f"engine-of-{model}": PICO} if named else {}

    with override_settings(GPU_HOUR_PRICES_PICO=prices):
        report_engine_time(now)

    report = last(new_staff(), ReportName.ENGINE_TIME)
    assert report is not None
    name = f"engine-of-{model}" if named else OTHERS
    assert engine_seconds(report.content, now)[model] == {name: 60}


def test_a_worker_writes_engine_time_down() -> None:
    report_engine_time(datetime.now(UTC))

    assert last(new_staff(), ReportName.ENGINE_TIME) is not None
