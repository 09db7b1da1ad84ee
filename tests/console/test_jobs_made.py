"""Jobs made in the console: files come in by session, and forms name them."""

import asyncio
import json
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest
from django.test import override_settings

import tenants.facade
from batch_jobs.files import storage
from batch_jobs.models import BulkJob, StoredFile, SummaryPlan
from headrace.asgi import rest
from tenants.contracts import Role
from tests.headrace.door import Door, member_of
from tests.house import Tenant, new_tenant
from tests.isolation.rows_bulk import bulk_model

pytestmark = pytest.mark.usefixtures("django_database")
LINE = json.dumps(
    {"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": {"model": "m"}}
)


@dataclass(frozen=True)
class Desk:
    """Somebody at the pages of an organization's jobs."""

    tenant: Tenant
    door: Door

    def path(self, page: str, project_id: UUID | None = None) -> str:
        project_id = project_id or self.tenant.project_id
        return f"/console/{self.tenant.slug}/jobs/{page}?project={project_id}"

    def upload(
        self, content: bytes = b"text", name: str = "a.txt", purpose: str = "user_data", **more: Any
    ) -> httpx.Response:
        return self.door.post(
            self.path("files"), data={"purpose": purpose}, files={"file": (name, content)}, **more
        )

    def create(self, page: str, **fields: Any) -> httpx.Response:
        return self.door.post(self.path(page), data={"do": "create", **fields})

    def jobs(self) -> list[BulkJob]:
        jobs = BulkJob.objects.using("housekeeper")
        return list(jobs.filter(organization_id=self.tenant.organization_id))

    def files(self) -> list[StoredFile]:
        files = StoredFile.objects.using("housekeeper")
        return list(files.filter(organization_id=self.tenant.organization_id))


@pytest.fixture
def desk() -> Desk:
    tenant = new_tenant()
    return Desk(tenant, member_of(tenant.organization_id, Role.DEVELOPER))


def test_an_upload_is_kept_for_the_project_by_the_consoles_key(desk: Desk) -> None:
    answer = desk.upload(b"what it holds", "letter.txt")
    assert answer.status_code == 200, answer.text
    [row] = desk.files()

    assert answer.json() == {"id": str(row.id), "name": "letter.txt", "bytes": 13}
    assert (row.project_id, row.purpose) == (desk.tenant.project_id, "user_data")
    assert storage.read_range(row.storage_name, 0, 100) == b"what it holds"
    operator = tenants.facade.operator_of(desk.tenant.organization_id)
    assert tenants.facade.read_key(operator, row.key_id).settings.name == "Console"


class Body:
    """A body of which it is known how much was asked for."""

    def __init__(self) -> None:
        self.asked = 0

    async def receive(self) -> dict[str, Any]:
        self.asked += 1
        return {"type": "http.request", "body": b"x" * 1024, "more_body": True}


def refused(path: str, door: Door, **headers: str) -> tuple[int, int]:
    """The status of an upload that never ends, and how many of its parts were asked for."""
    body, answer = Body(), list[dict[str, Any]]()
    cookies = "; ".join(f"{name}={value}" for name, value in door.cookies.items())
    target, _, query = path.partition("?")
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": target,
        "raw_path": target.encode(),
        "query_string": query.encode(),
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
        "headers": [
            (b"host", b"127.0.0.1"),
            (b"content-type", b"multipart/form-data; boundary=B"),
            (b"cookie", cookies.encode()),
            *((name.encode(), value.encode()) for name, value in headers.items()),
        ],
    }

    async def send(message: Any) -> None:
        answer.append(message)

    asyncio.run(rest(scope, body.receive, send))
    return answer[0]["status"], body.asked


def test_nothing_is_read_of_who_may_not_upload(desk: Desk) -> None:
    token = {"x-csrftoken": "c" * 32}
    path, organization_id = desk.path("files"), desk.tenant.organization_id
    other = new_tenant()
    stranger = member_of(other.organization_id, Role.OWNER)

    assert refused(path, Door(), **token) == (302, 0)
    assert refused(path, stranger, **token) == (404, 0)
    assert refused(path, member_of(organization_id, Role.VIEWER), **token) == (403, 0)
    assert refused(path, desk.door) == (403, 0)
    assert refused(path, desk.door, **{"x-csrftoken": "d" * 32}) == (403, 0)
    assert refused(desk.path("files", other.project_id), desk.door, **token) == (404, 0)
    assert refused(path.partition("?")[0], desk.door, **token) == (400, 0)
    assert refused(path, desk.door, **token, **{"content-length": str(2**40)}) == (413, 0)
    assert desk.files() == []


def test_a_token_of_another_site_is_refused(desk: Desk) -> None:
    answer = desk.upload(headers={"origin": "https://evil.example"})

    assert answer.status_code == 403
    assert desk.files() == []


@override_settings(FILE_BYTES_MAX=1000, BATCH_FILE_BYTES_MAX=500)
def test_a_file_above_the_limit_is_refused_and_not_kept(desk: Desk) -> None:
    assert desk.upload(b"x" * 2000).status_code == 413
    assert desk.upload(b"x" * 600, purpose="batch").status_code == 413
    assert "larger than 500 bytes" in desk.upload(b"x" * 600, purpose="batch").text
    assert desk.files() == []


def test_summaries_wait_for_their_start_with_the_options_of_the_form(desk: Desk) -> None:
    model = bulk_model()
    ids = [desk.upload(name=name).json()["id"] for name in ("a.txt", "b.txt")]
    answer = desk.create(
        "new-summary",
        file_ids=[*ids, ""],
        name="Letters",
        model=model,
        length="medium",
        language="Danish",
        instruction="Say who wrote it.",
        schema='{"type": "object"}',
        budget="2.5",
        deadline_at="2031-02-03T04:05",
    )
    [job] = desk.jobs()
    plan = SummaryPlan.objects.using("housekeeper").get(job_id=job.id)

    assert answer.status_code == 303, answer.text
    assert answer.headers["location"] == f"/console/{desk.tenant.slug}/jobs/{job.id}"
    assert [str(one) for one in plan.input_file_ids] == ids
    assert not plan.starts_itself
    assert plan.options == {
        "model": model,
        "length": "medium",
        "tokens_max": 256,
        "language": "Danish",
        "instruction": "Say who wrote it.",
        "schema": {"type": "object"},
    }
    assert (job.metadata, job.budget_pico) == ({"name": "Letters"}, 2_500_000_000_000)
    assert job.deadline_at is not None
    assert job.deadline_at.isoformat() == "2031-02-03T04:05:00+00:00"


def test_a_batch_is_made_of_one_file(desk: Desk) -> None:
    file_id = desk.upload(LINE.encode(), "in.jsonl", "batch").json()["id"]
    asked = {"file_ids": file_id, "endpoint": "/v1/chat/completions", "name": "Night"}
    assert desk.create("new-batch", **asked).status_code == 303
    [job] = desk.jobs()

    assert (job.kind, job.state, job.metadata) == ("batch", "validating", {"name": "Night"})
    assert str(job.input_file_id) == file_id


@pytest.mark.parametrize(
    ("page", "fields", "said"),
    [
        ("new-summary", {"file_ids": ""}, "Upload a file, or choose one."),
        ("new-summary", {"schema": "{"}, "This is no JSON."),
        ("new-summary", {"schema": "[]"}, "Must be a JSON schema, as an object."),
        ("new-summary", {"budget": "0"}, "Must be more than 0"),
        ("new-summary", {"deadline_at": "2001-01-01T00:00"}, "Must be in the future."),
        ("new-summary", {"file_ids": str(uuid4())}, "No such File object"),
        ("new-summary", {"model": "nothing"}, "Select a valid choice."),
        ("new-batch", {"endpoint": "/v1/models"}, "Select a valid choice."),
        ("new-batch", {}, "Its purpose must be"),
    ],
)
def test_what_cannot_be_is_said_and_the_files_stay_chosen(
    desk: Desk, page: str, fields: dict[str, str], said: str
) -> None:
    model, file_id = bulk_model(), desk.upload().json()["id"]
    endpoint = "/v1/chat/completions"
    asked = {"file_ids": file_id, "model": model, "length": "short", "endpoint": endpoint, **fields}
    answer = desk.create(page, **asked)

    assert answer.status_code == 422
    assert said in answer.text
    if page == "new-summary" and asked["file_ids"] == file_id:
        assert f'name="file_ids" value="{file_id}"' in answer.text
    assert desk.jobs() == []


def test_no_job_is_made_of_another_projects_file(desk: Desk) -> None:
    model, file_id = bulk_model(), desk.upload().json()["id"]
    sibling = tenants.facade.create_project(desk.tenant.organization_id, "sibling")
    answer = desk.door.post(
        desk.path("new-summary", sibling),
        data={"do": "create", "file_ids": file_id, "model": model, "length": "short"},
    )

    assert answer.status_code == 422
    assert desk.jobs() == []


def test_a_viewer_makes_nothing(desk: Desk) -> None:
    viewer = Desk(desk.tenant, member_of(desk.tenant.organization_id, Role.VIEWER))

    assert viewer.door.get(viewer.path("new-summary")).status_code == 403
    assert viewer.upload().status_code == 403
    assert "new-summary" not in viewer.door.get(f"/console/{desk.tenant.slug}/jobs").text
