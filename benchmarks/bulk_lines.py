"""A batch of 200,000 lines through the whole house, before an engine that computes nothing.

`python -m benchmarks.bulk_lines [--lines N] [--workers N]`: uploaded, validated, worked off with
holds and ledger, written out, and reconciled. Commits are durable. Wall time: the stub engine and
PostgreSQL share the cores with the house, so this is what a batch costs apart from its tokens.
"""

import argparse
import json
import tempfile
import time
from pathlib import Path

from benchmarks.bulk_house import (
    POLL_S,
    MemoryWatch,
    Watched,
    bulk_house,
    create_batch,
    custom_ids,
    upload,
    watch,
)
from benchmarks.model import loaded_bundle
from benchmarks.report import Row, print_report, print_table

LINES = 200_000
WORKERS = 2
ANSWER_TOKENS = 4
VALIDATION_S_MAX = 60.0
VALIDATED_LINES = 200_000
LINES_PER_S = 300.0
MEGABYTES_MAX = 300.0
TIMEOUT_S_PER_LINE = 0.05
TIMEOUT_S_MIN = 300.0


def write_lines(path: Path, lines: int, model: str) -> None:
    """A batch's input; the requests differ."""
    with path.open("w") as out:
        for number in range(lines):
            body = {
                "model": model,
                "messages": [{"role": "user", "content": f"Say what number {number} is."}],
                "max_tokens": ANSWER_TOKENS,
                "temperature": 0,
            }
            line = {
                "custom_id": f"line-{number}",
                "method": "POST",
                "url": "/v1/chat/completions",
                "body": body,
            }
            out.write(json.dumps(line) + "\n")


def main() -> None:
    """Prints the tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bulk_lines")
    parser.add_argument("--lines", type=int, default=LINES)
    parser.add_argument("--workers", type=int, default=WORKERS)
    options = parser.parse_args()
    bundle = loaded_bundle()
    extra = {"HEADRACE_BATCH_LINES_MAX": str(options.lines)}
    with (
        bulk_house(bundle, workers=options.workers, stub=True, extra=extra) as house,
        house.client() as client,
        tempfile.TemporaryDirectory(prefix="headrace-bench-") as name,
    ):
        path = Path(name) / "lines.jsonl"
        write_lines(path, options.lines, house.model)
        with MemoryWatch(house.pids()) as memory:
            uploading_s = time.monotonic()
            file_id = upload(client, path)
            began_s = time.monotonic()
            batch = create_batch(client, file_id)
            timeout_s = TIMEOUT_S_MIN + options.lines * TIMEOUT_S_PER_LINE
            watched = watch(client, batch["id"], began_s, timeout_s)
            done = watched.batch
            written = custom_ids(client, done["output_file_id"])
            refused = custom_ids(client, done["error_file_id"])
        assert sorted(written + refused) == sorted(f"line-{n}" for n in range(options.lines))
        reconciling_s = time.monotonic()
        said = house.reconcile()
        reconciled_s = time.monotonic() - reconciling_s
    print_times(watched, options.lines, began_s - uploading_s)
    print_table(
        ("process", "most, MB", f"limit {MEGABYTES_MAX:.0f} MB", "growth in its second half"),
        [
            (
                name,
                f"{memory.peak(name):.0f}",
                "met" if memory.peak(name) <= MEGABYTES_MAX else "MISSED",
                f"{memory.growth_per_minute(name):+.2f} MB/min",
            )
            for name in memory.samples
        ],
    )
    print(f"\n{len(written)} lines in the output file, {len(refused)} in the error file; ", end="")
    print(f"in {reconciled_s:.1f} s: {said}")


def print_times(watched: Watched, lines: int, upload_s: float) -> None:
    """The table of what took how long."""
    reached = watched.reached_s
    whole_s = reached[watched.batch["status"]]
    validated_s = reached.get("in_progress", whole_s)
    worked_s = reached.get("finalizing", whole_s)
    allowed_s = VALIDATION_S_MAX * lines / VALIDATED_LINES
    rows = [
        Row("upload", upload_s, "validation", validated_s, "s", ""),
        Row("validation", validated_s, "limit", allowed_s, "s", "<= 1"),
        Row(
            "working off",
            worked_s - validated_s,
            "writing out",
            max(POLL_S, whole_s - worked_s),
            "s",
            "",
        ),
        Row("whole batch", lines / whole_s, "limit", LINES_PER_S, "lines/s", ">= 1"),
    ]
    print_report(f"A batch of {lines:,} lines", rows, threads=0)
    print()


if __name__ == "__main__":
    main()
