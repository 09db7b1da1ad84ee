"""Jobs in the console: the list and one job say what the API says, and its buttons do it."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import urlsplit
from uuid import UUID

import pytest
from django.conf import settings
from django.db import connections
from django.test import Client
from django.test.utils import CaptureQueriesContext

import tenants.facade
from batch_jobs import browsing
from batch_jobs.models import BulkItem, BulkJob
from billing.facade import open_account
from headrace.console_kit import formats
from tenants.contracts import Role
from tests.batch_jobs import batch_cast
from tests.batch_jobs.batch_cast import MODEL, BatchTenant, selling
from tests.batch_jobs.summary_cast import (
    SummaryTenant,
    answer,
    document,
    fail,
    make_summary_tenant,
    tend_now,
)
from tests.headrace.door import Door, member_of

QUERIES_MAX = 60
"""Those that begin and end transactions and scopes with them."""
pytestmark = pytest.mark.usefixtures("django_database")


@dataclass(frozen=True)
class Desk:
    """An organization with jobs, and an owner who looks at its pages."""

    house: SummaryTenant
    owner: Door
    slug: str

    @property
    def jobs_path(self) -> str:
        return f"/console/{self.slug}/jobs"

    def path(self, summary_id: str) -> str:
        return f"{self.jobs_path}/{UUID(summary_id.removeprefix('summary_'))}"

    def text(self, path: str) -> str:
        """A page without its tags."""
        answer = self.owner.get(path)
        assert answer.status_code == 200, answer.text
        return " ".join(re.sub(r"<[^>]*>", " ", answer.text).split())

    def do(self, verb: str, summary_id: str, **fields: str) -> int:
        """Sends a form of a job; the status."""
        return self.owner.post(self.path(summary_id), data={"do": verb, **fields}).status_code


@pytest.fixture(autouse=True)
def one_model() -> Iterator[None]:
    with selling(MODEL):
        yield


@pytest.fixture
def desk() -> Desk:
    house = make_summary_tenant("desk")
    organization_id = house.tenant.organization_id
    open_account(organization_id)
    slug = tenants.facade.read_organization(tenants.facade.operator_of(organization_id)).slug
    return Desk(house, member_of(organization_id, Role.OWNER), slug)


def set_counts(summary_id: str, **columns: object) -> None:
    job_id = UUID(summary_id.removeprefix("summary_"))
    BulkJob.objects.using("housekeeper").filter(id=job_id).update(**columns)


def test_without_jobs_the_page_teaches_the_first_one(desk: Desk) -> None:
    text = desk.text(desk.jobs_path)

    assert "/v1/files" in text
    assert "headrace summarize" in text


def test_the_list_says_what_the_api_says(desk: Desk) -> None:
    summary_id = desk.house.running("one", "two", "three", metadata={"name": "Letters"})
    set_counts(summary_id, items_completed=1, items_failed=1, charge_pico=1_234_567_890)
    read = desk.house.read(summary_id)
    text = desk.text(desk.jobs_path)

    assert "Letters running" in text
    assert "1 of 3 , 1 failed" in text
    assert formats.money_text(int(read["charge"]["amount_pico"]), "USD") in text


def test_filters_and_projects_choose_among_jobs(desk: Desk) -> None:
    desk.house.running("one", metadata={"name": "Letters"})
    project_id = desk.house.tenant.project_id
    other = tenants.facade.create_project(desk.house.tenant.organization_id, "empty")

    assert "Letters" in desk.text(f"{desk.jobs_path}?project={project_id}&kind=summary")
    assert "Letters" not in desk.text(f"{desk.jobs_path}?project={other}")
    assert "Letters" not in desk.text(f"{desk.jobs_path}?kind=batch")
    assert "Letters" not in desk.text(f"{desk.jobs_path}?state=ended")
    assert desk.owner.get(f"{desk.jobs_path}?project={UUID(int=1)}").status_code == 404


def test_a_job_shows_its_estimate_beside_what_it_took(desk: Desk) -> None:
    summary_id = desk.house.ready("one", "two", style="dry", budget="5")
    estimate = desk.house.read(summary_id)["estimate"]
    text = desk.text(desk.path(summary_id))

    assert f"Prompt tokens {estimate['prompt_tokens']} 0" in text
    assert formats.money_text(int(estimate["interactive_amount_pico"]), "USD") in text
    assert "Budget $5.00" in text
    assert "Style dry" in text


def test_a_job_and_a_list_of_many_ask_few_questions(desk: Desk) -> None:
    for number in range(12):
        summary_id = desk.house.create(f"one {number}")
    client = Client(SERVER_NAME=urlsplit(settings.PUBLIC_URL).hostname)
    client.cookies[settings.SESSION_COOKIE_NAME] = desk.owner.session_key
    for path in (desk.jobs_path, desk.path(summary_id)):
        with CaptureQueriesContext(connections["default"]) as captured:
            assert client.get(path).status_code == 200

        assert 0 < len(captured) <= QUERIES_MAX


def test_buttons_steer_a_job_through_its_states(desk: Desk) -> None:
    summary_id = desk.house.ready("one", "two")
    told = []
    for verb in ("start", "pause", "resume", "cancel"):
        assert desk.do(verb, summary_id) == 303
        told.append(desk.house.read(summary_id)["status"])

    assert told == ["in_progress", "paused", "in_progress", "cancelling"]


def test_what_is_resumed_here_goes_on_by_the_consoles_key(desk: Desk) -> None:
    summary_id = desk.house.running("one")
    desk.do("pause", summary_id)
    desk.do("resume", summary_id)
    key_id = BulkJob.objects.using("housekeeper").get(id=UUID(summary_id[-32:])).key_id
    operator = tenants.facade.operator_of(desk.house.tenant.organization_id)

    assert tenants.facade.read_key(operator, key_id).settings.name == "Console"
    assert "API key Console" in desk.text(desk.path(summary_id))


def test_what_a_state_forbids_is_said_and_changes_nothing(desk: Desk) -> None:
    summary_id = desk.house.running("one")
    assert desk.do("start", summary_id) == 303

    assert "cannot be started" in desk.text(desk.path(summary_id))
    assert desk.house.read(summary_id)["status"] == "in_progress"


def test_bounds_are_changed_and_what_cannot_be_is_said_beside_the_field(desk: Desk) -> None:
    summary_id = desk.house.running("one", budget="5")
    assert desk.do("change", summary_id, budget="7.5", deadline_at="2030-01-02T03:04") == 303
    read = desk.house.read(summary_id)
    assert (read["budget"], read["deadline_at"]) == ("7.50", "2030-01-02T03:04:00+00:00")
    for fields in ({"budget": "0"}, {"budget": "much"}, {"deadline_at": "2001-01-01T00:00"}):
        answer = desk.owner.post(desk.path(summary_id), data={"do": "change", **fields})

        assert answer.status_code == 422
        assert 'class="errorlist"' in answer.text
    assert desk.do("change", summary_id, budget="", deadline_at="") == 303
    assert desk.house.read(summary_id)["budget"] is None


def test_a_viewer_sees_no_buttons_and_no_texts(desk: Desk) -> None:
    summary_id = desk.house.ready("one")
    viewer = member_of(desk.house.tenant.organization_id, Role.VIEWER)
    page = viewer.get(desk.path(summary_id))

    assert page.status_code == 200
    assert 'name="do"' not in page.text
    assert viewer.get(f"{desk.path(summary_id)}?part=samples").status_code == 403


def test_failures_are_counted_by_reason_and_the_first_are_shown(desk: Desk) -> None:
    summary_id = desk.house.running("one", "two", "three")
    fail(summary_id, "one", "three")
    text = desk.text(f"{desk.path(summary_id)}?part=failures")

    assert "too_odd 2" in text
    assert "one in.jsonl 1 too_odd it is too odd three in.jsonl 3 too_odd" in text
    assert "Counted among" not in text


def test_only_a_bounded_part_of_a_job_is_looked_at(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    summary_id = desk.house.running("one", "two", "three")
    fail(summary_id, "one", "three")
    monkeypatch.setattr(browsing, "ROWS_LOOKED_AT_MAX", 2)
    text = desk.text(f"{desk.path(summary_id)}?part=failures")

    assert "too_odd 1" in text
    assert "Counted among" in text


def test_previewed_documents_stand_beside_their_summaries(desk: Desk) -> None:
    long = "many words " * 1000
    file_id = desk.house.upload([document("short"), document("long", long), document("left")])
    summary_id = desk.house.post(input_file_ids=[file_id]).json()["id"]
    tend_now()
    answer(summary_id, "short", "long")
    text = desk.text(f"{desk.path(summary_id)}?part=samples")

    assert "text of short Summary summary of short" in text
    assert f"{long[: browsing.SAMPLE_BYTES_MAX].strip()}… Summary summary of long" in text
    assert "left" not in text


@pytest.mark.parametrize("form", ["jsonl", "csv", "parquet"])
def test_results_are_the_very_files_of_the_api(desk: Desk, form: str) -> None:
    summary_id = desk.house.running("one", "two")
    answer(summary_id, "one", "two")
    tend_now()
    path = f"{desk.path(summary_id)}/results?format={form}"
    shown = desk.owner.get(path)
    asked = desk.house.door.get(f"/api/v1/summaries/{summary_id}/results?format={form}")

    assert f'href="{path}' in desk.owner.get(desk.path(summary_id)).text
    assert shown.status_code == asked.status_code == 200
    assert shown.content == asked.content
    assert shown.headers["content-disposition"] == asked.headers["content-disposition"]


def test_failures_are_a_file_too(desk: Desk) -> None:
    summary_id = desk.house.running("one")
    fail(summary_id, "one")
    tend_now()
    shown = desk.owner.get(f"{desk.path(summary_id)}/failures?format=csv")
    asked = desk.house.door.get(f"/api/v1/summaries/{summary_id}/failures?format=csv")

    assert "too_odd" in shown.text
    assert shown.text == asked.text


def test_a_batch_shows_its_errors_and_hands_out_its_files(desk: Desk) -> None:
    house = BatchTenant(desk.house.tenant, desk.house.door)
    batch_id = house.running("one", "two")
    batch_cast.answer(batch_id, "one")
    batch_cast.refuse(batch_id, "two")
    tend_now()
    path = f"{desk.jobs_path}/{UUID(batch_id.removeprefix('batch_'))}"
    output, errors = house.lines_of(batch_id)

    assert "1 of 2 , 1 failed" in desk.text(path)
    assert "unsupported_parameter 1" in desk.text(f"{path}?part=failures")
    for which, lines in (("output", output), ("errors", errors)):
        [line] = desk.owner.get(f"{path}/files/{which}").text.splitlines()
        assert json.loads(line) in lines.values()
    assert len(desk.owner.get(f"{path}/files/input").text.splitlines()) == 2
    assert desk.owner.get(f"{path}/files/nothing").status_code == 404


def test_a_batch_whose_lines_are_forgotten_points_to_its_file(desk: Desk) -> None:
    house = BatchTenant(desk.house.tenant, desk.house.door)
    batch_id = house.running("one")
    batch_cast.refuse(batch_id, "one")
    tend_now()
    job_id = UUID(batch_id.removeprefix("batch_"))
    BulkItem.objects.using("housekeeper").filter(job_id=job_id).delete()

    assert "the file of errors has it" in desk.text(f"{desk.jobs_path}/{job_id}?part=failures")


def test_a_bad_batch_says_what_is_wrong_with_its_input(desk: Desk) -> None:
    house = BatchTenant(desk.house.tenant, desk.house.door)
    batch_id = house.create(b"nope\n")
    tend_now()
    path = f"{desk.jobs_path}/{UUID(batch_id.removeprefix('batch_'))}"

    assert "1 invalid_json_line This line is not parseable as valid JSON." in desk.text(path)


def test_a_batch_is_cancelled(desk: Desk) -> None:
    house = BatchTenant(desk.house.tenant, desk.house.door)
    batch_id = house.running("one")
    path = f"{desk.jobs_path}/{UUID(batch_id.removeprefix('batch_'))}"

    assert desk.owner.post(path, data={"do": "cancel"}).status_code == 303
    assert house.read(batch_id)["status"] == "cancelling"


def test_what_failed_is_retried_and_results_are_deleted(desk: Desk) -> None:
    summary_id = desk.house.running("one", "two")
    answer(summary_id, "one")
    fail(summary_id, "two")
    tend_now()
    assert desk.house.read(summary_id)["status"] == "completed"
    assert desk.do("retry", summary_id) == 303
    assert desk.house.read(summary_id)["status"] == "validating"
    set_counts(summary_id, state="cancelled")
    assert desk.do("delete", summary_id) == 303

    assert desk.house.read(summary_id)["results_deleted_at"] is not None
    assert desk.owner.get(f"{desk.path(summary_id)}/results").status_code == 404
    assert "Results deleted" in desk.text(desk.path(summary_id))
    assert "?part=" not in desk.owner.get(desk.path(summary_id)).text
