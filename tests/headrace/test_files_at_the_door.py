"""`/v1/files` through the door: what its owner does with files, and nobody else."""

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import httpx
import openai
import pytest
from django.conf import settings
from django.test import override_settings

from batch_jobs.contracts import Owner
from batch_jobs.files.writing import write_file
from batch_jobs.models import BulkJob, StoredFile, SummaryPlan
from headrace.asgi import rest
from tenants.contracts import KeyScope, KeySettings
from tenants.facade import create_key, create_project, issue_key, operator_of
from tests.headrace.door import HOST, Door, admin_key
from tests.house import Tenant, new_tenant

pytestmark = pytest.mark.usefixtures("django_database")
JSONL = b'{"custom_id": "a"}\n'
MONTH_S = 30 * 24 * 3600


@pytest.fixture
def acme() -> Tenant:
    return new_tenant()


@pytest.fixture
def door(acme: Tenant) -> Door:
    return Door(acme.secret)


def owner(tenant: Tenant) -> Owner:
    return Owner(tenant.organization_id, tenant.project_id, tenant.key_id)


def rows(tenant: Tenant) -> Any:
    return StoredFile.objects.using("housekeeper").filter(organization_id=tenant.organization_id)


def upload(
    door: Door, content: bytes = JSONL, name: str = "in.jsonl", **fields: Any
) -> httpx.Response:
    form = {"purpose": "user_data", **fields}
    return door.post("/v1/files", files={"file": (name, content)}, data=form)


def uploaded(door: Door, content: bytes = JSONL, **fields: str) -> str:
    answer = upload(door, content, **fields)
    assert answer.status_code == 200, answer.text
    file_id: str = answer.json()["id"]
    return file_id


def refused(answer: httpx.Response, status: int, param: str | None = None) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    error: dict[str, Any] = answer.json()["error"]
    assert error["param"] == param
    return error


def test_a_file_is_uploaded_read_and_deleted(door: Door, acme: Tenant) -> None:
    before = int(datetime.now(UTC).timestamp())

    file = upload(door).json()

    assert file.pop("id").startswith("file-")
    assert before <= file.pop("created_at") <= before + 5
    assert file == {
        "object": "file",
        "bytes": len(JSONL),
        "expires_at": None,
        "filename": "in.jsonl",
        "purpose": "user_data",
        "status": "processed",
        "status_details": None,
    }
    file_id = uploaded(door)
    assert door.get(f"/v1/files/{file_id}").json()["id"] == file_id
    gone = door.delete(f"/v1/files/{file_id}")
    assert (gone.status_code, gone.json()) == (
        200,
        {"id": file_id, "object": "file", "deleted": True},
    )
    assert rows(acme).get(id=file_id.removeprefix("file-")).deleted_at is not None
    for method, path in (("GET", ""), ("GET", "/content"), ("HEAD", "/content"), ("DELETE", "")):
        assert door.request(method, f"/v1/files/{file_id}{path}").status_code == 404


def test_the_stock_client_has_its_way(acme: Tenant) -> None:
    async def use() -> None:
        transport = httpx.ASGITransport(app=cast("Any", rest))
        async with openai.AsyncOpenAI(
            base_url=f"{HOST}/v1",
            api_key=acme.secret,
            max_retries=0,
            http_client=httpx.AsyncClient(transport=transport),
            _strict_response_validation=True,
        ) as client:
            file = await client.files.create(
                file=("in.jsonl", JSONL),
                purpose="batch",
                expires_after={"anchor": "created_at", "seconds": 3600},
            )
            others = [await client.files.create(file=JSONL, purpose="user_data") for _ in range(4)]

            assert file.expires_at == file.created_at + 3600
            assert (file.object, file.status, file.bytes) == ("file", "processed", len(JSONL))
            assert await client.files.retrieve(file.id) == file
            assert (await client.files.content(file.id)).content == JSONL
            listed = [one.id async for one in client.files.list(limit=2)]
            assert listed == [one.id for one in reversed([file, *others])]
            assert [one.id async for one in client.files.list(purpose="batch")] == [file.id]
            ascending = [one.id async for one in client.files.list(limit=3, order="asc")]
            assert ascending == list(reversed(listed))
            assert (await client.files.delete(file.id)).deleted
            with pytest.raises(openai.NotFoundError):
                await client.files.retrieve(file.id)

    asyncio.run(use())


def test_a_batchs_file_is_kept_for_a_month_unless_told_otherwise(door: Door) -> None:
    kept = upload(door, purpose="batch").json()
    told: Any = {"expires_after[anchor]": "created_at", "expires_after[seconds]": "7200"}
    shorter = upload(door, purpose="batch", **told).json()

    assert abs(kept["expires_at"] - kept["created_at"] - MONTH_S) <= 1
    assert abs(shorter["expires_at"] - shorter["created_at"] - 7200) <= 1


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"purpose": "world domination"}, "purpose"),
        ({"purpose": "batch_output"}, "purpose"),
        ({"purpose": "staged"}, "purpose"),
        ({"project_id": "mine"}, "project_id"),
        ({"expires_after[seconds]": "3600"}, "expires_after[anchor]"),
        ({"expires_after[anchor]": "last_active_at"}, "expires_after[anchor]"),
        ({"expires_after[anchor]": "created_at"}, "expires_after[seconds]"),
        *(
            (
                {"expires_after[anchor]": "created_at", "expires_after[seconds]": seconds},
                "expires_after[seconds]",
            )
            for seconds in ("3599", "2592001", "-1", "1e9", "९९९९", "99999999999999999999")
        ),
    ],
)
def test_a_form_that_says_something_wrong_is_refused(
    door: Door, acme: Tenant, fields: dict[str, Any], param: str
) -> None:
    refused(upload(door, **fields), 400, param)

    assert not rows(acme).exists()


def test_a_form_without_its_one_file_is_refused(door: Door, acme: Tenant) -> None:
    form = {"purpose": (None, b"batch")}
    several = [("file", ("a", b"a")), ("file", ("b", b"b")), ("purpose", (None, b"batch"))]
    for files in (form, {"file": (None, b"no name"), **form}, several):
        refused(door.post("/v1/files", files=cast("Any", files)), 400, "file")
    refused(door.post("/v1/files", files={"picture": ("a", b"a"), **form}), 400, "picture")
    refused(door.post("/v1/files", json={"purpose": "batch"}), 400)
    refused(door.post("/v1/files", data={"purpose": "batch"}), 400)
    refused(door.post("/v1/files"), 400)
    assert refused(upload(door, b""), 400, "file")["code"] == "empty_file"
    twice = [("purpose", (None, b"batch")), ("purpose", (None, b"evals")), ("file", ("a", b"a"))]
    refused(door.post("/v1/files", files=cast("Any", twice)), 400, "purpose")

    assert not rows(acme).exists()


@pytest.mark.parametrize(
    ("name", "kept"),
    [
        ("Berichte für 2026, 日本.jsonl", "Berichte für 2026, 日本.jsonl"),
        ("../../etc/passwd", "passwd"),
        ("C:\\Users\\me\\in.jsonl", "in.jsonl"),
        ("a" * 255, "a" * 255),
        ("50%, they said.txt", "50%, they said.txt"),
        ("a&amp;b.txt", "a&amp;b.txt"),
        ("a" * 256, None),
        ("..", None),
        ("nul\0.txt", None),
        ("line\nbreak.txt", None),
    ],
)
def test_a_files_name_is_shown_and_never_a_path(door: Door, name: str, kept: str | None) -> None:
    if kept is None:
        # httpx escapes control characters as browsers do; others send them as they are.
        body = b"".join(
            (
                b'--B\r\ncontent-disposition: form-data; name="purpose"\r\n\r\nevals\r\n',
                b"--B\r\ncontent-disposition: form-data; name=\"file\"; filename*=utf-8''",
                httpx.QueryParams({"n": name}).__str__()[2:].replace("+", "%20").encode(),
                b"\r\n\r\ntext\r\n--B--\r\n",
            )
        )
        headers = {"content-type": "multipart/form-data; boundary=B"}
        refused(door.post("/v1/files", content=body, headers=headers), 400, "file")
        return
    file = upload(door, name=name).json()
    content = door.get(f"/v1/files/{file['id']}/content")

    assert file["filename"] == kept
    assert content.headers["content-disposition"].startswith("attachment; filename")
    assert content.headers["x-content-type-options"] == "nosniff"
    assert content.headers["content-type"] == "application/octet-stream"


def test_a_download_can_be_of_a_range(door: Door) -> None:
    whole = bytes(range(256)) * 10_000  # more than two parts
    path = f"/v1/files/{uploaded(door, whole)}/content"

    def ranged(asked: str) -> httpx.Response:
        return door.get(path, headers={"range": asked})

    size = len(whole)
    assert door.get(path).content == whole
    for asked, start, end in (
        ("bytes=0-0", 0, 1),
        ("bytes=100-199", 100, 200),
        (f"bytes={size - 5}-", size - 5, size),
        ("bytes=-7", size - 7, size),
        (f"bytes=-{size * 2}", 0, size),
        (f"bytes=1000-{size * 2}", 1000, size),
        ("bytes=1048570-1048590", 1048570, 1048591),
    ):
        answer = ranged(asked)
        assert (answer.status_code, answer.content) == (206, whole[start:end]), asked
        assert answer.headers["content-range"] == f"bytes {start}-{end - 1}/{size}"
        assert answer.headers["content-length"] == str(end - start)
    for nonsense in ("bytes=0-1,5-6", "bytes=5-1", "bytes=-", "lines=1-2", "bytes=a-b"):
        answer = ranged(nonsense)
        assert (answer.status_code, len(answer.content)) == (200, size), nonsense
    for beyond in (f"bytes={size}-", "bytes=-0"):
        answer = ranged(beyond)
        assert (answer.status_code, answer.content) == (416, b""), beyond
        assert answer.headers["content-range"] == f"bytes */{size}"
    head = door.request("HEAD", path)
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-length"] == str(size)


def test_an_expired_file_is_gone_and_a_staged_one_was_never_there(door: Door, acme: Tenant) -> None:
    past = datetime.now(UTC) - timedelta(seconds=1)
    expired = write_file(owner(acme), "batch_output", "out", [b"x"], expires_at=past)
    staged = write_file(owner(acme), "staged", "shard", [b"x"])
    kept = write_file(owner(acme), "batch_output", "out", [b"x"])

    for hidden in (expired, staged):
        path = f"/v1/files/file-{hidden.file_id.hex}"
        for method, more in (("GET", ""), ("GET", "/content"), ("DELETE", "")):
            refused(door.request(method, path + more), 404)
    for query in ("", "?purpose=batch_output"):
        listed = door.get(f"/v1/files{query}").json()["data"]
        assert [file["id"] for file in listed] == [f"file-{kept.file_id.hex}"]
    assert door.get("/v1/files?purpose=staged").json()["data"] == []


def test_a_file_is_its_projects_alone(door: Door, acme: Tenant) -> None:
    file_id = uploaded(door)
    project_id = create_project(acme.organization_id, "sibling", using="housekeeper")
    sibling = issue_key(acme.organization_id, project_id, "test", using="housekeeper")
    colleague = issue_key(acme.organization_id, acme.project_id, "test", using="housekeeper")

    for stranger in (Door(sibling.secret), Door(new_tenant().secret)):
        refused(stranger.get(f"/v1/files/{file_id}"), 404)
        refused(stranger.get(f"/v1/files/{file_id}/content"), 404)
        refused(stranger.delete(f"/v1/files/{file_id}"), 404)
        assert stranger.get("/v1/files").json()["data"] == []
        assert stranger.get(f"/v1/files?after={file_id}&order=asc").json()["data"] == []
    assert Door(colleague.secret).get(f"/v1/files/{file_id}/content").content == JSONL


def test_it_takes_a_projects_key_with_the_scope_and_no_other_tenants_name(acme: Tenant) -> None:
    narrow = create_key(
        operator_of(acme.organization_id),
        acme.project_id,
        KeySettings("chat", scopes=frozenset({KeyScope.CHAT})),
    )
    for key, status in (
        (narrow.secret, 403),
        (admin_key(acme.organization_id), 403),
        ("hr-nonsense", 401),
        (None, 401),
    ):
        refused(Door(key).get("/v1/files"), status)
        refused(upload(Door(key)), status)
    door = Door(acme.secret)
    for header, code in (
        ({"openai-organization": "globex"}, "mismatched_organization"),
        ({"openai-project": str(acme.organization_id)}, "mismatched_project"),
    ):
        assert refused(door.get("/v1/files", headers=header), 401)["code"] == code
    right = {"openai-organization": acme.slug, "openai-project": str(acme.project_id)}
    assert door.get("/v1/files", headers=right).status_code == 200

    assert not rows(acme).exists()


def test_what_is_too_large_is_refused_and_leaves_nothing(door: Door, acme: Tenant) -> None:
    with override_settings(FILE_BYTES_MAX=200_000, BATCH_FILE_BYTES_MAX=1000):
        refused(upload(door, b"x" * 200_001), 413)
        refused(upload(door, b"x" * 300_000), 413)
        refused(upload(door, b"x" * 1001, purpose="batch"), 413)
        refused(upload(door, b"x", purpose="x" * 700_000), 413)

        assert not rows(acme).exists()
        assert upload(door, b"x" * 200_000).status_code == 200
        assert upload(door, b"x" * 1000, purpose="batch").status_code == 200


def test_a_file_that_a_job_has_yet_to_read_stays(door: Door, acme: Tenant) -> None:
    of_batch, of_summary, free = uploaded(door), uploaded(door), uploaded(door)

    def job(kind: str, input_file_id: str | None) -> BulkJob:
        return BulkJob.objects.using("housekeeper").create(
            organization_id=acme.organization_id,
            project_id=acme.project_id,
            key_id=acme.key_id,
            kind=kind,
            endpoint="/v1/chat/completions",
            input_file_id=input_file_id and input_file_id.removeprefix("file-"),
        )

    jobs = [job("batch", of_batch), job("summary", None)]
    SummaryPlan.objects.using("housekeeper").create(
        job=jobs[1],
        organization_id=acme.organization_id,
        options={},
        input_file_ids=[of_summary.removeprefix("file-")],
    )

    for needed in (of_batch, of_summary):
        error = refused(door.delete(f"/v1/files/{needed}"), 409)
        assert error["code"] == "invalid_state"
        assert door.get(f"/v1/files/{needed}").status_code == 200
    assert door.delete(f"/v1/files/{free}").status_code == 200
    BulkJob.objects.using("housekeeper").filter(id__in=[one.id for one in jobs]).update(
        state="completed"
    )
    for needed in (of_batch, of_summary):
        assert door.delete(f"/v1/files/{needed}").status_code == 200


def test_an_organization_stores_as_much_as_it_may(door: Door, acme: Tenant) -> None:
    with override_settings(STORAGE_BYTES_MAX=100):
        first = uploaded(door, b"x" * 60)
        error = refused(upload(door, b"x" * 41), 413)
        assert error["code"] == "storage_quota_exceeded"
        uploaded(door, b"x" * 40)
        refused(upload(door, b"x"), 413)
        door.delete(f"/v1/files/{first}")
        uploaded(door, b"x" * 60)
    with override_settings(FILES_MAX=2):
        refused(upload(door, b"x"), 413)
    assert upload(Door(new_tenant().secret)).status_code == 200
    assert rows(acme).count() == 3


def test_a_storage_that_is_full_or_away_is_no_fault_of_the_clients(
    door: Door, acme: Tenant, tmp_path: Path
) -> None:
    file_id = uploaded(door)
    (tmp_path / "files").write_text("no folder")
    bulk = {
        "BACKEND": "batch_jobs.files.local_storage.LocalStorage",
        "OPTIONS": {"location": tmp_path / "files"},
    }
    with override_settings(STORAGES={**settings.STORAGES, "bulk": bulk}):
        answer = upload(door)
        assert refused(answer, 503)["code"] == "overloaded"
        assert answer.headers["retry-after"] == "2"
    assert [row.id.hex for row in rows(acme)] == [file_id.removeprefix("file-")]


@pytest.mark.parametrize(
    "query", ["limit=0", "limit=10001", "limit=x", "order=random", "after=file-1", "page=2"]
)
def test_a_list_is_asked_for_in_words_that_it_knows(door: Door, query: str) -> None:
    refused(door.get(f"/v1/files?{query}"), 400, query.partition("=")[0])
