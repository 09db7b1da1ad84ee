"""Fetches what came of a job: to a file, or to standard output.

Files are written beside their place and moved there when they are complete. Called by
`summarizing`.
"""

import json
import sys
from pathlib import Path
from typing import Any, BinaryIO

from headrace.command_line.api import Api, Unreachable
from headrace.command_line.ending import CommandStopped, ExitCode
from headrace.command_line.jobs import PATH, Job
from headrace.command_line.progress import Progress, printable, short_amount

OUTPUTS = (".jsonl", ".csv", ".parquet")
TRIES_MAX = 3
"""That bring nothing new."""
ROW_BYTES_MAX = 4 * 1024 * 1024
PRINTED_MAX = 20
"""Rows shown on a terminal; a pipe gets them all, as JSON lines."""


def write(api: Api, job: Job, output: Path | None, progress: Progress) -> None:
    """The summaries, to `output` or to standard output. Raises CommandStopped."""
    if output is None:
        if sys.stdout.isatty():
            print_first(api, job)
        else:
            sys.stdout.flush()
            _fetch_to(sys.stdout.buffer, api, f"{PATH}/{job.job_id}/results", format="jsonl")
        return
    if output.suffix in (".jsonl", ".csv") and not output.is_dir():
        _fetch(api, f"{PATH}/{job.job_id}/results", output, format=output.suffix[1:])
        progress.say(f"summaries are in {output}")
        return
    progress.say(f"summaries are in {', '.join(map(str, _shards(api, job, output)))}")


def write_failures(api: Api, job: Job, output: Path, progress: Progress) -> None:
    """Which documents failed, and why. Raises CommandStopped."""
    _fetch(api, f"{PATH}/{job.job_id}/failures", output, format=output.suffix[1:])
    progress.say(f"failures are in {output}")


def print_first(api: Api, job: Job) -> None:
    """The first summaries, for people."""
    shown = 0
    with api.download(f"{PATH}/{job.job_id}/results", format="jsonl") as response:
        for line in response.iter_lines():
            if shown == PRINTED_MAX:
                print(f"... and {job.ended - shown:,} more: give --output FILE")
                return
            print(printable(_paragraph(json.loads(line), job.currency)))
            shown += 1


def _paragraph(row: dict[str, Any], currency: str) -> str:  # JSON
    if row["error"] is not None:
        return f"{row['custom_id']}: {row['status'].upper()} {row['error']['message']}"
    tokens = row["prompt_tokens"] + row["completion_tokens"]
    summary = row["summary"]
    text = summary if isinstance(summary, str) else json.dumps(summary, ensure_ascii=False)
    cost = f"{tokens:,} tokens, {short_amount(row['charge'])} {currency}"
    return f"{row['custom_id']} ({cost}):\n  {text.strip()}"


def _shards(api: Api, job: Job, output: Path) -> list[Path]:
    """Parquet in parts: in a folder, or beside each other under numbered names."""
    in_folder = output.suffix != ".parquet" or output.is_dir()
    if in_folder:
        output.mkdir(exist_ok=True)
        paths = [output / f"part-{number:05d}.parquet" for number in range(job.results_shards)]
    elif job.results_shards == 1:
        paths = [output]
    else:
        numbers = range(job.results_shards)
        paths = [output.with_name(f"{output.stem}-{number:05d}.parquet") for number in numbers]
    for number, path in enumerate(paths):
        _fetch(api, f"{PATH}/{job.job_id}/results", path, format="parquet", shard=number)
    return paths


def _fetch(api: Api, path: str, output: Path, **params: Any) -> None:
    """The whole file. One of JSON lines that broke off goes on behind its last whole line."""
    partial = output.with_name(f".{output.name}.part")
    tries = 0
    try:
        partial.write_bytes(b"")
        while True:
            had_bytes = partial.stat().st_size
            try:
                with partial.open("ab") as file:
                    _fetch_to(file, api, path, **params)
                break
            except Unreachable:
                last = _last_row(partial) if params["format"] == "jsonl" else None
                params |= {"after": last} if last is not None else {}
                if last is None:
                    partial.write_bytes(b"")
                tries = 0 if partial.stat().st_size > had_bytes else tries + 1
                if tries == TRIES_MAX:
                    raise
        partial.replace(output)
    except OSError as error:
        raise CommandStopped(f"{output}: {error.strerror}", ExitCode.WRONG) from error
    finally:
        partial.unlink(missing_ok=True)


def _last_row(partial: Path) -> str | None:
    """The id in the last whole line, what follows it cut off; None where there is none."""
    with partial.open("r+b") as file:
        file.seek(max(0, partial.stat().st_size - ROW_BYTES_MAX))
        start, tail = file.tell(), file.read()
        end = tail.rfind(b"\n")
        if end < 0:
            return None
        file.truncate(start + end + 1)
    row: dict[str, Any] = json.loads(tail[tail.rfind(b"\n", 0, end) + 1 : end])
    return str(row["custom_id"])


def _fetch_to(file: BinaryIO, api: Api, path: str, **params: Any) -> None:
    with api.download(path, **params) as response:
        file.writelines(response.iter_bytes())
    file.flush()
