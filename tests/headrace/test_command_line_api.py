"""What the command does when the API is away, busy or says no: faults of others, scripted.

Everything else is tried against a real house.
"""

import io
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from headrace.command_line.api import PATIENCE_S, Api, Refused, Unreachable
from headrace.command_line.main import main
from headrace.command_line.progress import Progress
from headrace.command_line.results import write
from tests.headrace.running_job import JOB

Answer = tuple[int, dict[str, str], Any]  # status, headers, JSON or text

DROPPED: Answer = (0, {}, "")
CUT = 203  # a success of which the last bytes never come
BROKEN_OFF = 20
FULL: Answer = (503, {"retry-after": "7"}, {"error": {"message": "Too much\nto do."}})
BROKE: Answer = (429, {"x-should-retry": "false"}, {"error": {"message": "You are out of credit."}})
FINE: Answer = (200, {}, {"id": "summary_1"})


@dataclass
class Seen:
    """One request as it came in."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass
class FakeApi:
    """Answers with `script`, one after the other; a dropped connection is status 0."""

    script: list[Answer]
    seen: list[Seen] = field(default_factory=list)
    url: str = ""


@contextmanager
def serving(*script: Answer) -> Iterator[FakeApi]:
    """A server on a free port of this machine."""
    fake = FakeApi(list(script))

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            headers = {name.lower(): value for name, value in self.headers.items()}
            fake.seen.append(Seen(self.command, self.path, headers, body))
            status, extra, value = fake.script.pop(0)
            if not status:
                self.close_connection = True
                return
            content = json.dumps(value).encode() if not isinstance(value, str) else value.encode()
            self.send_response(status)
            for name, text in extra.items():
                self.send_header(name, text)
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content[: -BROKEN_OFF if status == CUT else None])
            self.close_connection = status == CUT

        do_GET = do_POST = answer  # noqa: N815 - the library's names

        def log_message(self, *_: object) -> None:
            """Says nothing."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    fake.url = f"http://127.0.0.1:{server.server_port}/v1"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield fake
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class Clock:
    """Time that passes by pausing."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.pauses: list[float] = []

    def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now_s += seconds

    def read(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@contextmanager
def connected(fake: FakeApi, clock: Clock) -> Iterator[Api]:
    api = Api(fake.url, "hr-key", pause=clock.pause, clock=clock.read)
    try:
        yield api
    finally:
        api.close()


def test_what_was_dropped_is_asked_again_under_the_same_idempotency_key(clock: Clock) -> None:
    with serving(DROPPED, DROPPED, FINE) as fake, connected(fake, clock) as api:
        answer = api.post("/api/v1/summaries", {"a": 1}, idempotency_key="one")

    assert answer == {"id": "summary_1"}
    assert [request.headers["idempotency-key"] for request in fake.seen] == ["one"] * 3
    assert {request.body for request in fake.seen} == {b'{"a":1}'}
    assert 0.5 <= clock.pauses[0] < clock.pauses[1] <= 1.25


def test_retry_after_is_honoured(clock: Clock) -> None:
    with serving(FULL, FINE) as fake, connected(fake, clock) as api:
        api.get("/v1/files/file-1")

    assert len(clock.pauses) == 1
    assert clock.pauses[0] >= 7


def test_patience_ends(clock: Clock) -> None:
    with (
        serving(*[FULL] * 20) as fake,
        connected(fake, clock) as api,
        pytest.raises(Unreachable, match=r"^Too much to do\.$"),
    ):
        api.get("/v1/files")

    assert clock.now_s <= PATIENCE_S
    assert len(fake.seen) >= 9


def test_what_no_retry_can_help_is_said_at_once(clock: Clock) -> None:
    with (
        serving(BROKE) as fake,
        connected(fake, clock) as api,
        pytest.raises(Refused, match=r"^You are out of credit\.$") as caught,
    ):
        api.post("/api/v1/summaries", {})

    assert caught.value.status == 429
    assert clock.pauses == []


def test_an_upload_that_broke_off_is_sent_again_from_its_start(clock: Clock) -> None:
    with serving(DROPPED, FINE) as fake, connected(fake, clock) as api:
        api.upload("/v1/files", {"purpose": "user_data"}, "a.jsonl", io.BytesIO(b"the content"))

    assert all(b"the content" in request.body for request in fake.seen)
    assert len(fake.seen) == 2


def test_results_that_break_off_go_on_where_they_were(clock: Clock, tmp_path: Path) -> None:
    output = tmp_path / "out.jsonl"
    rows = [f'{{"custom_id":"{name}","summary":"of {name}"}}\n' for name in ("a", "b", "c", "d")]

    with (
        serving(
            (CUT, {}, "".join(rows[:3])), (CUT, {}, "".join(rows[2:])), (200, {}, rows[3])
        ) as fake,
        connected(fake, clock) as api,
    ):
        write(api, replace(JOB, job_id="summary_1"), output, Progress(io.StringIO()))

    assert output.read_text() == "".join(rows)
    assert [request.path.partition("?")[2] for request in fake.seen] == [
        "format=jsonl",
        "format=jsonl&after=b",
        "format=jsonl&after=c",
    ]
    assert [file.name for file in tmp_path.iterdir()] == ["out.jsonl"]


def test_results_that_never_come_leave_nothing_behind(clock: Clock, tmp_path: Path) -> None:
    with (
        serving(*[(CUT, {}, "no whole row")] * 3) as fake,
        connected(fake, clock) as api,
        pytest.raises(Unreachable, match="broke off"),
    ):
        write(api, JOB, tmp_path / "out.jsonl", Progress(io.StringIO()))

    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is taken from whoever runs the tests."""
    for name in ("HEADRACE_API_KEY", "HEADRACE_BASE_URL"):
        monkeypatch.delenv(name, raising=False)


def failed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The one line with which a command ends that exits 2."""
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    return captured.err.strip()


@pytest.mark.usefixtures("no_settings")
def test_without_a_key_nothing_is_asked(capsys: pytest.CaptureFixture[str]) -> None:
    assert failed(capsys, "jobs") == "headrace: no API key: set HEADRACE_API_KEY, or give --key"


@pytest.mark.usefixtures("no_settings")
def test_what_is_no_headrace_is_said_so(capsys: pytest.CaptureFixture[str]) -> None:
    with serving((404, {}, "<html>")) as fake:
        line = failed(capsys, "jobs", "--key", "hr-key", "--base-url", fake.url)

    assert line == "headrace: no Headrace seems to be there (HTTP 404)"
    assert fake.seen[0].path == "/api/v1/summaries?limit=20"


@pytest.mark.usefixtures("no_settings")
@pytest.mark.parametrize("url", ["127.0.0.1:8000", "ftp://127.0.0.1", "http:///v1"])
def test_what_is_no_address_is_named(capsys: pytest.CaptureFixture[str], url: str) -> None:
    line = failed(capsys, "jobs", "--key", "hr-key", "--base-url", url)

    assert line == f"headrace: {url!r} is no http(s) address of an API"


@pytest.mark.usefixtures("no_settings")
def test_a_missing_source_is_named_before_anything_is_sent(
    capsys: pytest.CaptureFixture[str],
) -> None:
    line = failed(capsys, "summarize", "missing.jsonl", "--key", "hr-key")

    assert line == "headrace: missing.jsonl: there is no such file"
