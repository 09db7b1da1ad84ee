"""What the command reads from its line, and what it says while a job runs."""

import io
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from headrace.command_line.arguments import bounds, job_body, parser
from headrace.command_line.progress import Progress, duration, printable, short_amount
from tests.headrace.running_job import JOB


class Terminal(io.StringIO):
    """Somebody looks."""

    def isatty(self) -> bool:
        return True


class Clock:
    """Time that stands until it is moved."""

    now_s = 100.0

    def read(self) -> float:
        return self.now_s


def test_what_is_not_given_is_left_to_the_api() -> None:
    options = parser().parse_args(["summarize", "a.jsonl"])

    assert job_body(options, ["file-1"], start=True) == {
        "input_file_ids": ["file-1"],
        "start": True,
    }


def test_what_is_given_is_passed_on(tmp_path: Path) -> None:
    schema = tmp_path / "schema.json"
    schema.write_text('{"type": "object"}')
    options = parser().parse_args(
        [
            *("summarize", "a.jsonl", "--instruction", "Who wrote it?", "--length", "long"),
            *("--tokens-max", "50", "--language", "German", "--style", "verse", "--model", "mill"),
            *("--schema", str(schema), "--id-field", "key", "--text-field", "body"),
            *("--budget", "0.5", "--deadline", "2027-01-01T06:00:00+01:00"),
            *("--name", "nightly", "--metadata", "team=data", "--metadata", "run=a=b"),
        ]
    )

    assert job_body(options, ["file-1"], start=False) == {
        "input_file_ids": ["file-1"],
        "model": "mill",
        "instruction": "Who wrote it?",
        "length": "long",
        "tokens_max": 50,
        "language": "German",
        "style": "verse",
        "schema": {"type": "object"},
        "id_field": "key",
        "text_field": "body",
        "metadata": {"team": "data", "run": "a=b", "name": "nightly"},
        "start": False,
        "budget": "0.5",
        "deadline_at": "2027-01-01T05:00:00+00:00",
    }


def test_a_deadline_may_be_a_span_from_now() -> None:
    options = parser().parse_args(["resume", "summary_1", "--deadline", "8h"])

    away = datetime.fromisoformat(bounds(options)["deadline_at"]) - datetime.now(UTC)
    assert timedelta(hours=7, minutes=59) < away <= timedelta(hours=8)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--budget", "1e3"], "is no amount"),
        (["--budget", "-1"], "is no amount"),
        (["--deadline", "tomorrow"], "is no time"),
        (["--deadline", "9999999999999d"], "is too far away"),
        (["--tokens-max", "0"], "is no whole number above 0"),
        (["--metadata", "team"], "is not KEY=VALUE"),
        (["--output", "out.xlsx"], "results are .jsonl, .csv, .parquet"),
        (["--output", "no/such/folder/out.csv"], "no/such/folder is no folder"),
        (["--failures", "failures.parquet"], "failures are .jsonl or .csv"),
        (["--schema", "missing.json"], "No such file or directory"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_is_sent(
    capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    with pytest.raises(SystemExit) as caught:
        parser().parse_args(["summarize", "a.jsonl", *arguments])

    assert caught.value.code == 2
    assert message in capsys.readouterr().err


def test_a_terminal_shows_a_bar_with_throughput_cost_and_remaining_time() -> None:
    terminal = Terminal()
    progress = Progress(terminal)

    progress.show(replace(JOB, completed=0, failed=0))
    progress.show(JOB)
    progress.close()

    last = terminal.getvalue().rstrip().rsplit("\r", 1)[-1]
    assert "in_progress  25%" in last
    assert "503/2000" in last
    assert last.endswith("12.3 docs/s, 2,460 tokens/s, 0.012 USD, 2 min left, 3 failed")


def test_elsewhere_a_line_is_written_now_and_then() -> None:
    file, clock = io.StringIO(), Clock()
    progress = Progress(file, clock.read)

    progress.show(replace(JOB, status="validating", total=700))
    progress.show(JOB)
    progress.show(replace(JOB, completed=501))
    clock.now_s += 11
    progress.show(replace(JOB, completed=502))
    progress.show(replace(JOB, status="completed", completed=1997))

    lines = file.getvalue().splitlines()
    assert [line.split(",")[0] for line in lines] == [
        "reading the input: 700 documents so far",
        "in_progress: 503 of 2",
        "in_progress: 505 of 2",
        "completed: 2",
    ]


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0, "0 s"), (59.6, "1 min"), (3599, "1 h 0 min"), (7800, "2 h 10 min"), (90_000, "1 d 1 h")],
)
def test_durations_are_rounded_for_people(seconds: float, words: str) -> None:
    assert duration(seconds) == words


@pytest.mark.parametrize(
    ("amount", "shown"),
    [("12", "12"), ("12.3456", "12.34"), ("0.000000123456", "0.00000012"), ("0", "0")],
)
def test_amounts_are_cut_for_people(amount: str, shown: str) -> None:
    assert short_amount(amount) == shown


def test_the_samples_are_what_the_readme_says() -> None:
    texts = Path(__file__).parents[2] / "samples" / "texts"

    sizes = [file.stat().st_size for file in texts.iterdir()]

    assert len(sizes) == 14
    assert max(sizes) < 6000
    assert all(file.read_text(encoding="ascii").strip() for file in texts.iterdir())


def test_a_laptop_needs_neither_django_nor_torch() -> None:
    program = (
        "import sys, headrace.command_line.main;"
        "print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    )

    done = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )

    loaded = set(done.stdout.split())
    assert "httpx" in loaded
    assert not loaded & {
        "django",
        "torch",
        "boto3",
        "tenants",
        "billing",
        "batch_jobs",
        "inference",
    }


def test_words_of_others_do_not_steer_the_terminal() -> None:
    heard = io.StringIO()

    Progress(heard).say("a\x1b]0;title\x07b\u202ec\x9bd")

    assert heard.getvalue() == "a\ufffd]0;title\ufffdb\ufffdc\ufffdd\n"
    assert printable("first\n\tsecond \N{WOMAN}\u200d\N{ROCKET}") == (
        "first\n\tsecond \N{WOMAN}\u200d\N{ROCKET}"
    )
