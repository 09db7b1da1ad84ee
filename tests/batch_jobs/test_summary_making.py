"""What a summarisation job is made of, and who sees it."""

from collections.abc import Iterator
from typing import Any

import pytest
from django.test import override_settings

import batch_jobs.facade
from batch_jobs.contracts import BatchError
from batch_jobs.facade import SummaryOrder
from tests.batch_jobs.batch_cast import MODEL, selling
from tests.batch_jobs.summary_cast import (
    SUMMARIES,
    SummaryTenant,
    document,
    make_summary_tenant,
)
from tests.billing.cast import at_once

CROWD = 50
ENDED = {"done", "failed", "cancelled", "expired"}


@pytest.fixture
def acme(django_database: object) -> Iterator[SummaryTenant]:
    """Whose jobs they are."""
    with selling(MODEL):
        yield make_summary_tenant("acme")


@pytest.fixture
def globex(acme: SummaryTenant) -> SummaryTenant:
    """Who must see nothing of them."""
    return make_summary_tenant("globex")


@pytest.mark.parametrize(
    ("asked", "status", "param"),
    [
        ({"input_file_ids": []}, 400, "input_file_ids"),
        ({"input_file_ids": ["file-" + "0" * 32]}, 404, None),
        ({"model": "not-for-sale"}, 404, "model"),
        ({"length": "endless"}, 400, "length"),
        ({"tokens_max": 0}, 400, "tokens_max"),
        ({"language": "l" * 300}, 400, "language"),
        ({"schema": "no object"}, 400, "schema"),
        ({"budget": "0"}, 400, "budget"),
        ({"budget": "-1"}, 400, "budget"),
        ({"budget": 1.5}, 400, "budget"),
        ({"budget": "9" * 30}, 400, "budget"),
        ({"budget": "1.0000000000001"}, 400, "budget"),
        ({"deadline_at": "2020-01-01T00:00:00Z"}, 400, "deadline_at"),
        ({"deadline_at": "9999-12-31T23:59:59Z"}, 400, "deadline_at"),
        ({"deadline_at": "tomorrow"}, 400, "deadline_at"),
        ({"metadata": {str(n): "x" for n in range(17)}}, 400, "metadata"),
        ({"metadata": {"k": "x" * 513}}, 400, "metadata.k"),
        ({"priority": "high"}, 400, "priority"),
    ],
)
def test_what_makes_no_sense_makes_no_job(
    acme: SummaryTenant, asked: dict[str, Any], status: int, param: str | None
) -> None:
    answered = acme.post(**{"input_file_ids": [acme.upload([document("a")])], **asked})

    assert answered.status_code == status, answered.text
    assert answered.json()["error"]["param"] == param
    assert acme.door.get(SUMMARIES).json()["data"] == []


@pytest.mark.parametrize("number", ["1e400", "9" * 30, "-1e19", "9" * 5000])
def test_a_schema_with_a_number_that_nobody_can_keep_makes_no_job(
    acme: SummaryTenant, number: str
) -> None:
    asked = '{"input_file_ids": ["%s"], "model": "%s", "schema": {"enum": [%s]}}'
    content = asked % (acme.upload([document("a")]), MODEL, number)
    headers = {"Content-Type": "application/json"}
    answered = acme.door.post(SUMMARIES, content=content.encode(), headers=headers)

    assert answered.status_code == 400, answered.text
    assert acme.door.get(SUMMARIES).json()["data"] == []


def test_a_file_of_others_is_no_input(acme: SummaryTenant, globex: SummaryTenant) -> None:
    foreign = globex.upload([document("a")])

    assert acme.post(input_file_ids=[foreign]).status_code == 404
    assert acme.post(input_file_ids=[acme.upload([document("a")])] * 2).status_code == 400


def test_one_key_makes_one_job(acme: SummaryTenant) -> None:
    body = {"model": MODEL, "input_file_ids": [acme.upload([document("a")])]}
    first, again = (
        acme.door.post(SUMMARIES, json=body, headers={"idempotency-key": "once"}) for _ in range(2)
    )

    assert first.status_code == again.status_code == 201
    assert first.json()["id"] == again.json()["id"]
    assert again.headers["idempotent-replayed"] == "true"
    assert len(acme.door.get(SUMMARIES).json()["data"]) == 1


@override_settings(BATCH_JOBS_MAX=3)
def test_an_organization_has_so_many_unfinished_jobs(acme: SummaryTenant) -> None:
    order = SummaryOrder([_file_id(acme)], {"model": MODEL})

    def make() -> str:
        try:
            batch_jobs.facade.create_summary(acme.owner, order)
        except BatchError as error:
            return error.code
        return "made"

    outcomes = at_once([make] * 8)

    assert sorted(outcomes) == ["made"] * 3 + ["token_limit_exceeded"] * 5
    refused = acme.post(input_file_ids=[acme.upload([document("a")])])
    assert refused.status_code == 429


def test_jobs_are_listed_newest_first_for_their_project_alone(
    acme: SummaryTenant, globex: SummaryTenant
) -> None:
    made = [acme.create("a") for _ in range(3)]
    first = acme.door.get(f"{SUMMARIES}?limit=2").json()
    rest = acme.door.get(f"{SUMMARIES}?limit=2&after={first['last_id']}").json()

    assert [one["id"] for one in first["data"]] == [made[2], made[1]]
    assert first["has_more"] is True
    assert [one["id"] for one in rest["data"]] == [made[0]]
    assert globex.door.get(SUMMARIES).json()["data"] == []
    assert globex.door.get(f"{SUMMARIES}/{made[0]}").status_code == 404


def _file_id(tenant: SummaryTenant) -> Any:
    from uuid import UUID

    return UUID(tenant.upload([document("a")]).removeprefix("file-"))
