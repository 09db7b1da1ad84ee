"""The check of kernels and engine on a GPU: what it writes down, what it survives, its dry run."""

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.gpu_check.findings import Finding, Section, read_findings, table
from benchmarks.gpu_check.processes import REPOSITORY, Job, run_all

QUICK = ("linear-others", "attention-float16")


def dry_run(out: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """`python -m benchmarks.gpu_check --dry`."""
    return subprocess.run(
        [sys.executable, "-m", "benchmarks.gpu_check", "--dry", *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=REPOSITORY,
        env=os.environ | {"OUT": str(out)},
    )


@pytest.fixture
def section(tmp_path: Path) -> Section:
    return Section("some", tmp_path / "some.jsonl", seconds=60)


def test_a_check_holds_up_to_its_bound_and_never_for_no_number(
    section: Section, tmp_path: Path
) -> None:
    section.check("less", 0.5, 1.0)
    section.check("more", 1.5, 1.0)
    section.check("nothing", math.nan, 1.0)

    found = read_findings(tmp_path / "some.jsonl")
    assert [finding.held for finding in found] == [True, False, False]


def test_a_part_that_raises_is_a_failed_check_and_the_next_one_runs(
    section: Section, tmp_path: Path
) -> None:
    assert not section.attempt("divides", lambda: 1 / 0)
    assert section.attempt("counts", lambda: section.check("count", 0.0, 0.0))

    found = read_findings(tmp_path / "some.jsonl")
    assert [(finding.what, finding.held) for finding in found] == [
        ("divides", False),
        ("count", True),
    ]
    assert found[0].remark == "ZeroDivisionError: division by zero"


def test_no_part_begins_when_the_time_of_the_section_is_up(tmp_path: Path) -> None:
    section = Section("late", tmp_path / "late.jsonl", seconds=0.0)

    section.attempt("late", lambda: pytest.fail("it began"))

    [found] = read_findings(tmp_path / "late.jsonl")
    assert found.held is None
    assert found.remark.startswith("skipped")


def test_what_a_killed_section_had_written_is_kept(section: Section, tmp_path: Path) -> None:
    section.figure("speed", 3.0, "GB/s", "limit", 4.0)
    with (tmp_path / "some.jsonl").open("a") as file:
        file.write('{"section": "some", "wh')

    assert read_findings(tmp_path / "some.jsonl") == [
        Finding("some", "speed", 3.0, "GB/s", "limit", 4.0)
    ]


def test_the_table_shows_value_bound_ratio_and_verdict() -> None:
    shown = table([Finding("s", "w", 3.0, "GB/s", "limit", 4.0, held=False, remark="a|b")])

    assert shown.splitlines()[-1] == "| s | w | 3 | GB/s | limit | 4 | 0.75 | FAILED a/b |"


@pytest.mark.long
def test_a_process_that_dies_or_hangs_is_reported_and_ended(tmp_path: Path) -> None:
    dying, hanging = Job(("no-such-section",), dry=True), Job(("sampling",), dry=True)

    [died] = run_all([dying], tmp_path, seconds=60, at_once=1)
    [hung] = run_all([hanging], tmp_path, seconds=0.0, at_once=1)

    assert died.failure == "died with status 1"
    assert "no-such-section" in died.log_tail()
    assert hung.failure is not None and hung.failure.startswith("ended after")


def test_it_needs_no_library_beside_torch_and_triton() -> None:
    script = (
        "import sys, benchmarks.gpu_check.sections, benchmarks.gpu_check.interpreting\n"
        "print(sorted({name.split('.')[0] for name in sys.modules}))"
    )

    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=REPOSITORY
    )

    for absent in (
        "django",
        "msgspec",
        "tokenizers",
        "gguf",
        "safetensors",
        "llguidance",
        "pytest",
    ):
        assert f"'{absent}'" not in done.stdout


@pytest.mark.long
def test_a_dry_run_says_so_first_and_last_and_passes(tmp_path: Path) -> None:
    done = dry_run(tmp_path, "--only", *QUICK)

    assert done.returncode == 0, done.stdout
    lines = done.stdout.splitlines()
    assert lines[0] == lines[-1]
    assert lines[0].startswith("DRY RUN: no GPU here")
    report = json.loads((tmp_path / "gpu_check.json").read_text())
    assert report["dry_run"]
    assert {finding["section"] for finding in report["findings"]} == set(QUICK)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_every_section_passes_in_a_dry_run(tmp_path: Path) -> None:
    done = dry_run(tmp_path)

    assert done.returncode == 0, done.stdout
