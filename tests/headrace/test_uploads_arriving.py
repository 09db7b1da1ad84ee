"""How an upload's body comes in: late, slowly, cut off, by many at once, and from strangers."""

import asyncio
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import httpx
import psutil
import pytest
from django.conf import settings
from django.test import override_settings

from batch_jobs.files import storage
from batch_jobs.models import StoredFile
from headrace import arriving
from headrace.asgi import rest
from headrace.standalone.data_folder import REPOSITORY
from tests.headrace.door import Door
from tests.house import Tenant, free_port, new_tenant, wait_until

pytestmark = pytest.mark.usefixtures("django_database")
MIB = 1024 * 1024
HEAD = (
    b'--B\r\ncontent-disposition: form-data; name="purpose"\r\n\r\nuser_data\r\n'
    b'--B\r\ncontent-disposition: form-data; name="file"; filename="a.txt"\r\n\r\n'
)
TAIL = b"\r\n--B--\r\n"
Message = dict[str, Any]
Receive = Callable[[], Awaitable[Message]]


class Client:
    """Sends the parts of a body as they are asked for, then does what `after` says."""

    def __init__(self, secret: str | None, parts: list[bytes], *, after: str = "done") -> None:
        self.parts = parts
        self.after = after
        self.asked = 0
        self.answer: list[Message] = []
        self.headers = [
            (b"host", b"127.0.0.1"),
            (b"content-type", b"multipart/form-data; boundary=B"),
        ]
        if secret:
            self.headers.append((b"authorization", f"Bearer {secret}".encode()))

    async def receive(self) -> Message:
        """The next part; there is no length."""
        if self.asked < len(self.parts):
            self.asked += 1
            more = self.asked < len(self.parts) or self.after != "done"
            return {"type": "http.request", "body": self.parts[self.asked - 1], "more_body": more}
        if self.after == "leave":
            return {"type": "http.disconnect"}
        never: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        return await never  # says no more

    async def send(self, message: Any) -> None:
        self.answer.append(message)

    async def post(self) -> int:
        """The status."""
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": "POST",
            "scheme": "http",
            "path": "/v1/files",
            "raw_path": b"/v1/files",
            "query_string": b"",
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 80),
            "headers": self.headers,
        }
        await rest(scope, self.receive, self.send)
        status: int = self.answer[0]["status"]
        return status


@pytest.fixture
def acme() -> Tenant:
    return new_tenant()


OPEN_BEFORE: set[str] = set()
"""Temporary files that other tests of this process left open, for jobs that read them."""


def open_in_folder() -> set[str]:
    folder = str(settings.TEMPORARY_FOLDER)
    links = [str(link.readlink()) for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
    return {link for link in links if link.startswith(folder)}


@pytest.fixture(autouse=True)
def know_what_is_open() -> None:
    OPEN_BEFORE.clear()
    OPEN_BEFORE.update(open_in_folder())


def temporary_files() -> set[str]:
    """Those that an upload of this test has open; they have no name in any folder."""
    return open_in_folder() - OPEN_BEFORE


def nothing_is_left(tenant: Tenant) -> bool:
    files = StoredFile.objects.using("housekeeper").filter(organization_id=tenant.organization_id)
    return not files.exists() and not temporary_files()


def stored_names() -> set[str]:
    return {name for folder in storage.FOLDERS for name in storage.names_in(folder)}


def test_a_body_without_a_length_is_taken_in(acme: Tenant) -> None:
    client = Client(acme.secret, [HEAD, b"x" * MIB, b"", b"y" * MIB, TAIL])

    assert asyncio.run(client.post()) == 200
    [row] = StoredFile.objects.using("housekeeper").filter(organization_id=acme.organization_id)
    assert storage.read_range(row.storage_name, 0, 3 * MIB) == b"x" * MIB + b"y" * MIB


def test_an_upload_lies_on_the_disk_while_it_arrives(acme: Tenant) -> None:
    client = Client(acme.secret, [HEAD, b"x" * MIB, TAIL])
    quick, seen = client.receive, []

    async def watched() -> Message:
        seen.append(len(temporary_files()))
        return await quick()

    client.receive = watched  # type: ignore[method-assign]

    assert asyncio.run(client.post()) == 200
    assert max(seen) == 1
    assert temporary_files() == set()


@pytest.mark.parametrize("secret", [None, "hr-nonsense", "Bearer"])
def test_no_byte_of_a_strangers_body_is_asked_for(secret: str | None) -> None:
    client = Client(secret, [HEAD, *[b"x" * MIB] * 40])

    assert asyncio.run(client.post()) == 401
    assert client.asked == 0


@pytest.mark.parametrize(
    ("parts", "after", "status"),
    [
        ([HEAD, b"x" * MIB, b"x" * MIB], "leave", 499),
        ([], "leave", 499),
        ([HEAD, b"x" * MIB, b"x" * MIB], "done", 400),
        ([HEAD, b"x" * MIB, TAIL[:-4]], "done", 400),
        ([HEAD], "done", 400),
        ([b"x" * 100_000], "done", 400),
        ([HEAD.replace(b"user_data", b"x" * 10 * MIB), b"x", TAIL], "done", 413),
        ([b"--B\r\n" * 300_000, TAIL], "done", 400),
    ],
)
def test_an_upload_that_is_cut_off_or_no_form_leaves_nothing(
    acme: Tenant, parts: list[bytes], after: str, status: int
) -> None:
    before = stored_names()

    assert asyncio.run(Client(acme.secret, parts, after=after).post()) == status
    assert nothing_is_left(acme)
    assert stored_names() == before


def test_who_sends_no_byte_for_long_is_given_up(acme: Tenant) -> None:
    with override_settings(UPLOAD_STALL_S=0.3):
        assert asyncio.run(Client(acme.secret, [HEAD, b"x" * MIB], after="stay").post()) == 408
        assert asyncio.run(Client(acme.secret, [], after="stay").post()) == 408
    assert nothing_is_left(acme)


def test_who_trickles_is_given_up(acme: Tenant) -> None:
    client = Client(acme.secret, [HEAD, *[b"x"] * 10_000, TAIL])
    quick = client.receive

    async def slowly() -> Message:
        await asyncio.sleep(0.01)  # a client's pace, which is what is tested
        return await quick()

    client.receive = slowly  # type: ignore[method-assign]
    with override_settings(UPLOAD_STALL_S=0.5):
        assert asyncio.run(client.post()) == 408
    assert client.asked < 1000
    assert nothing_is_left(acme)


def test_who_takes_for_ever_at_a_fair_pace_is_given_up(acme: Tenant) -> None:
    client = Client(acme.secret, [HEAD, *[b"x" * 4096] * 10_000, TAIL])
    quick = client.receive

    async def steadily() -> Message:
        await asyncio.sleep(0.01)  # a client's pace: 400 KB/s
        return await quick()

    client.receive = steadily  # type: ignore[method-assign]
    with override_settings(UPLOAD_MAX_S=0.3):
        assert asyncio.run(client.post()) == 408
    assert client.asked < 1000
    assert nothing_is_left(acme)


def test_an_organization_has_a_quarter_of_the_places_and_all_are_few(acme: Tenant) -> None:
    others = [new_tenant() for _ in range(4)]

    async def post_all(secrets: list[str]) -> list[int]:
        """Each stays until the last one has its answer."""
        staying = [Client(secret, [HEAD], after="stay") for secret in secrets]
        tasks = [asyncio.create_task(client.post()) for client in staying]
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        statuses = [task.result() for task in done]
        for task in set(tasks) - done:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return statuses

    with override_settings(UPLOADS_MAX=8):
        assert asyncio.run(post_all([acme.secret] * 3)) == [503]
        crowd = [one.secret for one in (acme, *others[:3]) for _ in range(2)]
        assert asyncio.run(post_all([*crowd, others[3].secret])) == [503]
        # All places are free again, those of uploads that were cut off too.
        assert asyncio.run(Client(acme.secret, [HEAD, b"x", TAIL]).post()) == 200
    assert not arriving._uploads._places


def test_uploads_under_way_take_no_more_disk_than_there_is_for_them(acme: Tenant) -> None:
    with override_settings(UPLOADS_BYTES_MAX=3 * MIB):
        big = [HEAD, *[b"x" * MIB] * 4, TAIL]
        assert asyncio.run(Client(acme.secret, big).post()) == 503
        assert nothing_is_left(acme)
        assert asyncio.run(Client(acme.secret, [HEAD, b"x" * MIB, TAIL]).post()) == 200


def test_the_room_is_counted_exactly_however_many_upload_at_once(acme: Tenant) -> None:
    before = stored_names()
    ready = threading.Barrier(12)

    def upload(_: int) -> int:
        ready.wait()
        files = {"file": ("a.txt", b"x" * 1000)}
        answer = Door(acme.secret).post("/v1/files", files=files, data={"purpose": "evals"})
        return answer.status_code

    with (
        override_settings(STORAGE_BYTES_MAX=5000, UPLOADS_MAX=1000),
        ThreadPoolExecutor(12) as threads,
    ):
        statuses = sorted(threads.map(upload, range(12)))

    assert statuses == [200] * 5 + [413] * 7
    kept = StoredFile.objects.using("housekeeper").filter(organization_id=acme.organization_id)
    assert {row.storage_name for row in kept} == stored_names() - before
    assert kept.count() == 5


@contextmanager
def web_process() -> Iterator[tuple[psutil.Process, str]]:
    """The web process alone, with no engine; its address."""
    port = free_port()
    environment = os.environ | {"PYTHONPATH": f"{REPOSITORY}:{REPOSITORY / 'platform'}"}
    command = [sys.executable, "-m", "headrace.lifecycle.serve", "--port", str(port)]
    with subprocess.Popen(command, env=environment, cwd=REPOSITORY) as process:
        url = f"http://127.0.0.1:{port}"

        def is_up() -> bool:
            try:
                return httpx.get(f"{url}/healthz", trust_env=False).status_code == 200
            except httpx.TransportError:
                return False

        try:
            wait_until(is_up)
            yield psutil.Process(process.pid), url
        finally:
            process.terminate()
            process.wait(30)


class Watch:
    """The most memory that a process took while it was watched."""

    def __init__(self, process: psutil.Process) -> None:
        self._process = process
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look)
        self.most_bytes = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._ended.wait(0.01):
            self.most_bytes = max(self.most_bytes, self._process.memory_info().rss)


@pytest.mark.long
def test_memory_stays_flat_while_large_files_come_and_go(acme: Tenant, tmp_path: Path) -> None:
    large = tmp_path / "large.bin"
    size = 200 * MIB
    with large.open("wb") as written:
        for _ in range(size // MIB):
            written.write(os.urandom(MIB))
    with (
        web_process() as (process, url),
        httpx.Client(
            base_url=url, headers={"authorization": f"Bearer {acme.secret}"}, timeout=120
        ) as client,
    ):

        def upload(content: Any) -> str:
            form = {"purpose": "user_data"}
            answer = client.post("/v1/files", files={"file": ("a.bin", content)}, data=form)
            assert answer.status_code == 200, answer.text
            file_id: str = answer.json()["id"]
            return file_id

        upload(b"warm")
        before = process.memory_info().rss
        with Watch(process) as watch, large.open("rb") as file:
            file_id = upload(file)
            with client.stream("GET", f"/v1/files/{file_id}/content") as answer:
                received = sum(len(part) for part in answer.iter_bytes())

    assert received == size
    assert watch.most_bytes - before < 30 * MIB
    row = StoredFile.objects.using("housekeeper").get(
        organization_id=acme.organization_id, size_bytes=size
    )
    assert row.filename == "a.bin"


def files_open_in(process: psutil.Process) -> list[str]:
    """Temporary files of another process."""
    folder = Path(f"/proc/{process.pid}/fd")
    links = [str(link.readlink()) for link in folder.iterdir() if link.is_symlink()]
    return [link for link in links if link.startswith(str(settings.TEMPORARY_FOLDER))]


@pytest.mark.long
def test_a_real_client_that_vanishes_and_a_real_stranger_leave_nothing(acme: Tenant) -> None:
    head = (
        "POST /v1/files HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 100000000\r\n"
        "content-type: multipart/form-data; boundary=B\r\n"
        f"authorization: Bearer {acme.secret}\r\n\r\n"
    )
    with web_process() as (process, url):
        port = httpx.URL(url).port
        assert port is not None
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.sendall(head.encode() + HEAD + b"x" * 5 * MIB)
            wait_until(lambda: files_open_in(process))
        wait_until(lambda: not files_open_in(process))
        assert nothing_is_left(acme)

        before = process.io_counters().write_chars
        with httpx.Client(
            base_url=url, headers={"authorization": "Bearer hr-nonsense"}
        ) as stranger:
            files = {"file": ("a.bin", b"x" * 50 * MIB)}
            answer = stranger.post("/v1/files", files=files, data={"purpose": "evals"})
        assert answer.status_code == 401
        assert process.io_counters().write_chars - before < MIB

        with socket.create_connection(("127.0.0.1", port)) as client:
            client.sendall(head.encode() + HEAD + b"x" * 5 * MIB)
            wait_until(lambda: files_open_in(process))
            process.terminate()  # with an upload under way
            process.wait(30)
