"""`headrace summarize` from another process, against a house that computes."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from billing import facade as billing
from headrace.standalone.data_folder import REPOSITORY
from tests.house import LiveHouse, Tenant, wait_until

pytestmark = pytest.mark.long
TIMEOUT_S = 240
TEXTS = {
    "mill.txt": "A headrace is the channel that leads water to a mill wheel, which turns a stone.",
    "notes/bees.md": "Bees collect nectar from flowers. In the hive they turn it into honey.",
    "notes/moon.html": "<h1>Moon</h1><p>The Moon circles the Earth and pulls the tides.</p>",
}


class Laptop:
    """Somebody with the command, a key and no settings of the house."""

    def __init__(self, house: LiveHouse, tenant: Tenant, home: Path) -> None:
        self.environment = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(REPOSITORY / "platform"),
            "HOME": str(home),
            "HEADRACE_BASE_URL": house.base_url,
            "HEADRACE_API_KEY": tenant.secret,
        }
        self.client = house.http(tenant.secret)

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """The command, running."""
        return subprocess.Popen(
            [sys.executable, "-m", "headrace.command_line", *arguments],
            env=self.environment,
            text=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def run(self, *arguments: str, exits: int = 0) -> tuple[str, str]:
        """What the command prints, and what it says of itself."""
        with self.start(*arguments) as process:
            out, err = process.communicate(timeout=TIMEOUT_S)
        assert process.returncode == exits, err
        return out, err

    def job(self, job_id: str) -> dict[str, object]:
        """The job, as the API tells it."""
        answer: dict[str, object] = self.client.get(f"/api/v1/summaries/{job_id}").json()
        return answer

    def files(self) -> list[str]:
        """Names of what was uploaded."""
        return [one["filename"] for one in self.client.get("/v1/files").json()["data"]]


@pytest.fixture
def tenant(house: LiveHouse) -> Tenant:
    return house.new_tenant()


@pytest.fixture
def laptop(house: LiveHouse, tenant: Tenant, tmp_path: Path) -> Laptop:
    home = tmp_path / "home"
    home.mkdir()
    return Laptop(house, tenant, home)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in TEXTS.items():
        file = tmp_path / "texts" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return tmp_path / "texts"


def rows_of(text: str) -> dict[str, dict[str, object]]:
    rows = [json.loads(line) for line in text.splitlines()]
    return {row["custom_id"]: row for row in rows}


def test_a_folder_becomes_summaries_that_are_charged_as_they_say(
    laptop: Laptop, folder: Path, tenant: Tenant, tmp_path: Path
) -> None:
    before = billing.balance(tenant.organization_id).posted_pico
    output = tmp_path / "out.jsonl"

    out, err = laptop.run("summarize", str(folder), "--tokens-max", "16", "-o", str(output))

    rows = rows_of(output.read_text())
    assert list(rows) == sorted(TEXTS)
    assert all(row["status"] == "done" and row["summary"] for row in rows.values())
    charged = before - billing.balance(tenant.organization_id).posted_pico
    assert charged == sum(int(str(row["charge_pico"])) for row in rows.values()) > 0
    assert out == ""
    assert "3 of 3 documents summarised, 0 failed" in err
    assert f"{output}" in err


def test_standard_input_goes_to_standard_output(laptop: Laptop) -> None:
    lines = "".join(json.dumps({"id": name, "text": text}) + "\n" for name, text in TEXTS.items())

    with subprocess.Popen(
        [sys.executable, "-m", "headrace.command_line", "summarize", "-", "--tokens-max", "8"],
        env=laptop.environment,
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        out, _ = process.communicate(lines, timeout=TIMEOUT_S)

    assert process.returncode == 0
    assert set(rows_of(out)) == set(TEXTS)


def test_what_failed_is_reported_and_exits_1(laptop: Laptop, tmp_path: Path) -> None:
    source, failures = tmp_path / "texts.jsonl", tmp_path / "failures.csv"
    source.write_text('{"id": "good", "text": "The mill stands."}\n{"id": "bad", "text": ""}\n')

    out, err = laptop.run(
        *("summarize", str(source), "--tokens-max", "8", "--failures", str(failures)), exits=1
    )

    assert {name: row["status"] for name, row in rows_of(out).items()} == {
        "good": "done",
        "bad": "failed",
    }
    assert "1 of 2 documents summarised, 1 failed" in err
    assert failures.read_text().splitlines()[1].startswith("bad,failed,no_text,")


def test_an_input_that_cannot_be_read_exits_2(laptop: Laptop, tmp_path: Path) -> None:
    source = tmp_path / "table.csv"
    source.write_text("name,price\nmill,3\n")

    _, err = laptop.run("summarize", str(source), exits=2)

    assert "its input was refused" in err.splitlines()[-1]
    assert "Traceback" not in err


def test_an_estimate_starts_nothing_and_a_preview_runs_three(
    laptop: Laptop, folder: Path, tenant: Tenant
) -> None:
    for number in range(3):
        (folder / f"more-{number}.txt").write_text(f"Day {number}: the wheel turned all day long.")
    before = billing.balance(tenant.organization_id).posted_pico

    out, err = laptop.run("summarize", str(folder), "--tokens-max", "8", "--estimate")
    estimated = out.strip()

    assert "6 documents: at most" in err
    assert "below the interactive price" in err
    assert laptop.job(estimated)["status"] == "ready"
    assert billing.balance(tenant.organization_id).posted_pico == before

    out, err = laptop.run("summarize", str(folder), "--tokens-max", "8", "--preview", exits=3)

    assert out.count("tokens, 0.0") == 3
    assert "not started" in err
    assert laptop.files() == ["documents-00001.zip"]  # once: the second run knew it

    laptop.run("start", estimated)
    out, err = laptop.run("summarize", "--job", estimated)

    assert len(rows_of(out)) == 6
    documents = laptop.job(estimated)["documents"]
    assert isinstance(documents, dict)
    assert documents["completed"] == 6


def test_on_a_terminal_it_asks_before_it_starts(laptop: Laptop, folder: Path) -> None:
    keyboard, stdin = os.openpty()
    try:
        with subprocess.Popen(
            [sys.executable, "-m", "headrace.command_line", "summarize", str(folder)],
            env=laptop.environment,
            text=True,
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ) as process:
            assert process.stderr is not None
            said = [next(process.stderr)]
            while "Summarise them all?" not in said[-1]:
                said.append(next(process.stderr))
            os.write(keyboard, b"n\n")
            _, err = process.communicate(timeout=TIMEOUT_S)
    finally:
        os.close(keyboard)
        os.close(stdin)

    job_id = next(line for line in said if line.startswith("job ")).split()[1]
    assert process.returncode == 3
    assert any("3 documents: at most" in line for line in said)
    assert f"not started; start it with: headrace start {job_id}" in err
    assert laptop.job(job_id)["status"] == "ready"


def test_an_interrupt_leaves_the_job_running(laptop: Laptop, folder: Path) -> None:
    for number in range(20):
        (folder / f"more-{number}.txt").write_text(f"Day {number}: " + "the wheel turned. " * 100)
    process = laptop.start("summarize", str(folder), "--tokens-max", "48")
    assert process.stderr is not None
    job_id = next(line for line in process.stderr if line.startswith("job ")).split()[1]
    wait_until(lambda: laptop.job(job_id)["status"] == "in_progress", 60)

    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=TIMEOUT_S)

    assert process.returncode == 3
    assert f"follow it with: headrace summarize --job {job_id}" in err
    assert "Traceback" not in err
    assert laptop.job(job_id)["status"] == "in_progress"

    out, _ = laptop.run("pause", job_id)
    assert "paused" in out
    _, err = laptop.run("summarize", "--job", job_id, exits=3)
    assert f"go on with: headrace resume {job_id}" in err
    laptop.run("resume", job_id, "--budget", "2")
    laptop.run("cancel", job_id)
    _, err = laptop.run("summarize", "--job", job_id, exits=3)
    assert err.splitlines()[-1] == f"headrace: {job_id} is cancelled"
    out, _ = laptop.run("jobs")
    assert job_id in out


def test_a_job_of_another_tenant_is_not_there(
    laptop: Laptop, house: LiveHouse, folder: Path, tmp_path: Path
) -> None:
    job_id = laptop.run("summarize", str(folder), "--no-wait")[0].strip()
    stranger = Laptop(house, house.new_tenant(), tmp_path)

    for command in (("summarize", "--job", job_id), ("pause", job_id), ("cancel", job_id)):
        _, err = stranger.run(*command, exits=2)
        assert err.count("\n") == 1

    # The job may have ended by itself meanwhile: what tells is that nobody stopped it.
    laptop.run("summarize", "--job", job_id)
    assert laptop.job(job_id)["status"] == "completed"


def test_manage_py_summarizes_as_a_tenant_of_the_demo(house: LiveHouse, folder: Path) -> None:
    out = house.manage("summarize", str(folder), "--tokens-max", "8", "--yes")

    assert "3 of 3 documents summarised, 0 failed" in out


def test_the_batch_in_samples_runs(house: LiveHouse, tenant: Tenant) -> None:
    done = subprocess.run(
        [sys.executable, str(REPOSITORY / "samples" / "batch.py")],
        env={
            "PATH": os.environ["PATH"],
            "OPENAI_BASE_URL": house.base_url,
            "OPENAI_API_KEY": tenant.secret,
        },
        timeout=TIMEOUT_S,
        check=False,
        text=True,
        capture_output=True,
    )

    assert done.returncode == 0, done.stderr
    assert "completed" in done.stdout
    assert "Paris" in done.stdout
    with httpx.Client(base_url=house.root_url, trust_env=False) as client:
        listed = client.get("/v1/batches", headers={"authorization": f"Bearer {tenant.secret}"})
    assert listed.json()["data"][0]["request_counts"] == {"total": 2, "completed": 2, "failed": 0}
