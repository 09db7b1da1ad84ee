"""`/v1/files` through the door: uploads, lists, downloads in ranges, deletions."""

import httpx
import openai
import pytest

from tests.headrace.door import Door
from tests.house import new_tenant

pytestmark = pytest.mark.usefixtures("django_database")
JSONL = b'{"custom_id": "a"}\n'


def upload(
    door: Door, content: bytes = JSONL, name: str = "in.jsonl", **fields: str
) -> httpx.Response:
    return door.post(
        "/v1/files", files={"file": (name, content)}, data={"purpose": "batch", **fields}
    )


def test_a_file_is_uploaded_read_and_deleted() -> None:
    door = Door(new_tenant().secret)

    answer = upload(door)

    assert answer.status_code == 200, answer.text
    file = answer.json()
    assert door.get(f"/v1/files/{file['id']}").json() == file
    content = door.get(f"/v1/files/{file['id']}/content")
    assert content.content == JSONL
    assert door.delete(f"/v1/files/{file['id']}").json() == {
        "id": file["id"],
        "object": "file",
        "deleted": True,
    }
    assert door.get(f"/v1/files/{file['id']}").status_code == 404
