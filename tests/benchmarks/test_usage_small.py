"""The benchmark of usage, small: it plants, adds up, reads every event back, prints its table."""

import subprocess
import sys

import pytest

from headrace.standalone.data_folder import REPOSITORY


@pytest.mark.long
def test_it_measures_every_report_over_every_event() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.usage", "--events", "20000", "--ingested", "250"],
        capture_output=True,
        text=True,
        check=False,
        cwd=REPOSITORY,
        timeout=280,
    )

    assert done.returncode == 0, done.stderr
    table = [line for line in done.stdout.splitlines() if line.startswith("| ")]
    assert len(table) == 1 + 23
    assert any(line.startswith("| ingest at 20,000 |") for line in table)
    assert any(line.startswith("| the page overview |") for line in table)
