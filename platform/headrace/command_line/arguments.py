"""The command line, read and checked before anything is sent.

`manage.py summarize` adds the same arguments to its own parser. Called by `main`.
"""

import argparse
import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from headrace.command_line.results import OUTPUTS

BASE_URL = "http://127.0.0.1:8000/v1"
DECIMAL = re.compile(r"\d{1,12}(\.\d{1,12})?")
SPAN = re.compile(r"(\d+)([mhd])")
UNITS = {"m": "minutes", "h": "hours", "d": "days"}
SCHEMA_BYTES_MAX = 1024 * 1024
EPILOG = """exit codes: 0 all documents summarised; 1 some failed; 2 the command or its input is
wrong; 3 the job is paused, cancelled, expired, or goes on without this command"""
VERBS = {
    "start": "start a job that was only read (summarize --estimate or --preview)",
    "pause": "let a job rest; what is being computed ends",
    "resume": "let a paused job go on",
    "cancel": "end a job; finished documents stay and are charged",
    "retry-failed": "run the failed documents of a finished job again",
}


def parser() -> argparse.ArgumentParser:
    """The whole of `headrace`."""
    whole = argparse.ArgumentParser(prog="headrace", description="Bulk work on a Headrace.")
    commands = whole.add_subparsers(dest="command", required=True, metavar="COMMAND")
    summarize = commands.add_parser(
        "summarize",
        help="summarise many documents at batch price",
        description="Summarise many documents at batch price, and follow the job until it ends.",
        epilog=EPILOG,
    )
    add_summarize_arguments(summarize)
    add_connection_arguments(summarize)
    listing = commands.add_parser("jobs", help="list the project's last summarisation jobs")
    listing.add_argument("--limit", type=_positive, default=20, help="how many (20)")
    add_connection_arguments(listing)
    for verb, text in VERBS.items():
        steering = commands.add_parser(verb, help=text, description=f"{text.capitalize()}.")
        steering.add_argument("job", help="its id, summary_...")
        if verb == "resume":
            _add_bounds(steering)
        add_connection_arguments(steering)
    return whole


def add_connection_arguments(to: argparse.ArgumentParser) -> None:
    """Where the API is, and who asks."""
    to.add_argument("--base-url", help=f"of the API; else HEADRACE_BASE_URL, else {BASE_URL}")
    to.add_argument(
        "--key", help="an API key; better in HEADRACE_API_KEY, where no process list shows it"
    )


def add_summarize_arguments(to: argparse.ArgumentParser) -> None:
    """What `summarize` takes beside where the API is."""
    to.add_argument(
        "sources",
        nargs="*",
        metavar="SOURCE",
        help="a file (.jsonl .csv .parquet .zip .txt .md .html .pdf), a folder of them,"
        " s3://bucket/prefix, a .manifest of s3:// addresses, file-... that was uploaded before,"
        " or - for JSON lines on standard input",
    )
    to.add_argument("--job", metavar="ID", help="follow this job instead of starting one")
    wish = to.add_argument_group("the summaries")
    wish.add_argument("--instruction", help="what to tell the model before each document")
    wish.add_argument("--length", choices=("short", "medium", "long"))
    wish.add_argument("--tokens-max", type=_positive, metavar="N", help="of one summary")
    wish.add_argument("--language", help="of the summaries, as in English")
    wish.add_argument("--style", help="as in bullet points")
    wish.add_argument(
        "--schema", type=_schema, metavar="FILE", help="a JSON schema that each summary follows"
    )
    wish.add_argument("--model")
    wish.add_argument("--id-field", metavar="NAME", help="field or column of ids (id, custom_id)")
    wish.add_argument("--text-field", metavar="NAME", help="field or column of texts (text)")
    _add_bounds(to)
    to.add_argument("--name", help="for you to know the job by")
    to.add_argument(
        "--metadata",
        type=_pair,
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="repeatable",
    )
    how = to.add_argument_group("how to go about it")
    how.add_argument(
        "--estimate", action="store_true", help="read everything, say the price, start nothing"
    )
    how.add_argument(
        "--preview", action="store_true", help="summarise three documents first, and ask"
    )
    how.add_argument("--yes", "-y", action="store_true", help="ask nothing")
    how.add_argument("--no-wait", dest="wait", action="store_false", help="print the id and return")
    how.add_argument(
        "--output",
        "-o",
        type=_output,
        metavar="FILE",
        help="results, by suffix: .jsonl, .csv, .parquet; a folder takes Parquet in parts",
    )
    how.add_argument(
        "--failures", type=_failures, metavar="FILE", help="what failed, .jsonl or .csv"
    )


def job_body(options: argparse.Namespace, file_ids: list[str], *, start: bool) -> dict[str, Any]:
    """The request that makes the job; what was not given is left to the API."""
    metadata = dict(options.metadata)
    if options.name:
        metadata["name"] = options.name
    body = {
        "input_file_ids": file_ids,
        "model": options.model,
        "instruction": options.instruction,
        "length": options.length,
        "tokens_max": options.tokens_max,
        "language": options.language,
        "style": options.style,
        "schema": options.schema,
        "id_field": options.id_field,
        "text_field": options.text_field,
        "metadata": metadata or None,
        "start": start,
        **bounds(options),
    }
    return {name: value for name, value in body.items() if value is not None}


def bounds(options: argparse.Namespace) -> dict[str, str]:
    """Budget and deadline, where they were given."""
    given = {"budget": options.budget, "deadline_at": options.deadline}
    return {name: value for name, value in given.items() if value is not None}


def _add_bounds(to: argparse.ArgumentParser) -> None:
    to.add_argument(
        "--budget", type=_decimal, metavar="AMOUNT", help="pause the job before it costs more"
    )
    to.add_argument(
        "--deadline",
        type=_moment,
        metavar="TIME",
        help="8h, 90m, 2d, or 2027-01-01T06:00:00Z: warn early when it is in danger",
    )


def _positive(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or not 0 < int(text) < 2**31:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number above 0")
    return int(text)


def _decimal(text: str) -> str:
    if not DECIMAL.fullmatch(text):
        raise argparse.ArgumentTypeError(f"{text!r} is no amount like 20 or 0.5")
    return text


def _moment(text: str) -> str:
    if span := SPAN.fullmatch(text):
        number, unit = span.groups()
        try:
            return (datetime.now(UTC) + timedelta(**{UNITS[unit]: int(number)})).isoformat()
        except OverflowError as error:
            raise argparse.ArgumentTypeError(f"{text} is too far away") from error
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no time like 8h or ...T06:00Z") from error
    return moment.astimezone(UTC).isoformat()  # without an offset, it is this machine's time


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE")
    return name, value


def _schema(text: str) -> Any:  # JSON of any shape
    try:
        with Path(text).open("rb") as file:
            return json.loads(file.read(SCHEMA_BYTES_MAX + 1))
    except OSError as error:
        raise argparse.ArgumentTypeError(f"{text}: {error.strerror}") from error
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text} is no JSON: {error}") from error


def _output(text: str) -> Path:
    path = Path(text)
    if path.suffix and path.suffix not in OUTPUTS:
        raise argparse.ArgumentTypeError(f"{text}: results are {', '.join(OUTPUTS)}")
    return _writable(path)


def _failures(text: str) -> Path:
    path = Path(text)
    if path.suffix not in (".jsonl", ".csv"):
        raise argparse.ArgumentTypeError(f"{text}: failures are .jsonl or .csv")
    return _writable(path)


def _writable(path: Path) -> Path:
    """Hours later is too late to learn that there is no such folder."""
    if not path.parent.is_dir():
        raise argparse.ArgumentTypeError(f"{path.parent} is no folder")
    return path
