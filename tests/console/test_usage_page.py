"""Usage pages: their numbers are the API's to the last unit, their address holds every filter."""

import re
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from uuid_utils.compat import uuid7

import billing.facade
from billing.contracts import BucketWidth, HoldRequest, ServiceTier, UsageCounts
from headrace import errors
from headrace.console_kit.formats import money_exact
from headrace.tenant_console.usage.asking import Asked, Measure, asked, span_of, width_of
from tenants.contracts import Role
from tests.billing.cast import make_offer, used
from tests.isolation.sides import Side, make_side
from tests.isolation.test_console_matrix import slug_of

AMSTERDAM = ZoneInfo("Europe/Amsterdam")
NOW = datetime(2026, 11, 29, 23, 30, tzinfo=UTC)
"""In Amsterdam it is the 30th already."""
COUNTS = (UsageCounts(1234, 500, 67), UsageCounts(10, 0, 3))


def test_an_address_says_all_that_was_asked() -> None:
    wanted = Asked(
        span="7d", by_hour=True, split="model", measure=Measure.SPEND, model="m", compares=True
    )
    query = {name: str(value) for name, value in wanted.query.items() if value is not None}

    assert asked(query, ()) == wanted


def test_days_are_the_organizations() -> None:
    start_at, end_at = span_of(Asked(span="month"), NOW, AMSTERDAM)

    assert start_at.astimezone(AMSTERDAM).isoformat() == "2026-11-01T00:00:00+01:00"
    assert end_at.astimezone(AMSTERDAM).isoformat() == "2026-12-01T00:00:00+01:00"
    assert width_of(Asked(), start_at, end_at) is BucketWidth.DAY


def test_a_span_across_a_change_of_clocks_has_whole_days() -> None:
    wanted = asked({"from": "2026-10-24", "to": "2026-10-26"}, ())

    start_at, end_at = span_of(wanted, NOW, AMSTERDAM)

    assert end_at - start_at == timedelta(hours=73)


@pytest.mark.parametrize(
    "query",
    [
        *({"span": "1y"}, {"split": "tag:team"}, {"measure": "joy"}, {"from": "yesterday"}),
        *({"project": "x"}, {"user": "u", "tag": "team=a"}, {"tag": "team"}, {"model": "m" * 300}),
    ],
)
def test_what_cannot_be_asked_is_refused(query: dict[str, str]) -> None:
    with pytest.raises(errors.ApiError) as refused:
        asked(query, ("other",))

    assert refused.value.status == 400
    assert refused.value.param


def test_only_tokens_have_classes() -> None:
    assert asked({"measure": "spend"}, ()).split == "model"


@pytest.fixture
def busy(django_database: None) -> Side:
    """An organization that has settled two requests."""
    side = make_side("busy")
    model = make_offer("sold-on-the-usage-page", 1_000_003, 250_001, 4_000_007)
    for counts in COUNTS:
        request = HoldRequest(
            request_id=uuid7(),
            organization_id=side.organization_id,
            project_id=side.project_id,
            key_id=side.key_id,
            quote=billing.facade.quote(
                side.organization_id, side.project_id, model, ServiceTier.INTERACTIVE
            ),
            model_asked=model,
            prompt_tokens=counts.uncached_input_tokens + counts.cached_input_tokens,
            output_tokens_max=100,
        )
        [outcome] = billing.facade.hold([request])
        assert outcome.refusal is None
        billing.facade.settle([used(request, counts)])
    return side


def charged_by_the_api(side: Side) -> int:
    start = (datetime.now(UTC) - timedelta(days=1)).date().isoformat()
    answer = side.admin.get(
        f"/api/v1/organizations/{side.organization_id}/usage?start_time={start}"
    ).json()
    results = [row for bucket in answer["data"] for row in bucket["results"]]
    return sum(int(row["charge"]["amount_pico"]) for row in results)


def test_the_page_shows_what_the_api_says(busy: Side) -> None:
    charged_pico = charged_by_the_api(busy)
    assert charged_pico > 0
    for query in ("", "?measure=spend&split=key", "?split=project&compare=1", "?span=24h"):
        page = busy.members[Role.VIEWER].get(f"/console/{slug_of(busy)}/usage{query}")

        assert page.status_code == 200
        assert f'title="{money_exact(charged_pico, "USD")}"' in page.text, query


def test_its_csv_has_the_same_sum(busy: Side) -> None:
    owner = busy.owner
    page = owner.get(f"/console/{slug_of(busy)}/usage?split=model")
    href = re.search(r'href="(/api/v1/[^"]+usage\.csv[^"]+)"', page.text)
    assert href is not None

    head, *lines = owner.get(href[1].replace("&amp;", "&")).text.splitlines()

    column = head.split(",").index("charge_pico")
    assert sum(int(line.split(",")[column]) for line in lines) == charged_by_the_api(busy)


def test_from_a_bar_to_a_receipt(busy: Side) -> None:
    owner = busy.owner
    page = owner.get(f"/console/{slug_of(busy)}/usage?span=24h")
    href = re.search(r'<a href="(/console/[^"]+/requests\?[^"]+)">', page.text)
    assert href is not None
    listed = owner.get(href[1].replace("&amp;", "&"))
    receipts = re.findall(r'href="(/console/[^"]+/requests/req_\w+)"', listed.text)
    assert len(receipts) == len(COUNTS)

    receipt = owner.get(receipts[-1])

    assert "1,234" in receipt.text
    charged_pico = sum(
        tokens * price
        for tokens, price in zip((1234, 500, 67), (1_000_003, 250_001, 4_000_007), strict=True)
    )
    assert money_exact(charged_pico, "USD") in receipt.text


def test_who_may_not_see_requests_gets_no_way_to_them(busy: Side) -> None:
    page = busy.members[Role.VIEWER].get(f"/console/{slug_of(busy)}/usage")

    assert "/requests" not in page.text
