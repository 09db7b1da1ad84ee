"""The entry point of `headrace`: reads the command line, does what it says, ends with one line.

The edge of the process: errors raised on purpose become a line and an exit code here. Called by the
`headrace` script, `python -m headrace.command_line` and `manage.py summarize`.
"""

import os
import sys
from argparse import Namespace
from collections.abc import Sequence

from headrace.command_line import jobs
from headrace.command_line.api import Api
from headrace.command_line.arguments import BASE_URL, VERBS, bounds, parser
from headrace.command_line.ending import CommandStopped, ExitCode
from headrace.command_line.progress import Progress, printable, short_amount
from headrace.command_line.summarizing import summarize

ROUTES = {"retry-failed": "retry"}
"""Verbs that the API calls otherwise."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code; argparse exits by itself on a wrong line."""
    options = parser().parse_args(arguments)
    options.program = "headrace summarize"
    key = options.key or os.environ.get("HEADRACE_API_KEY", "")
    base_url = options.base_url or os.environ.get("HEADRACE_BASE_URL") or BASE_URL
    return run(options, base_url, key)


def run(options: Namespace, base_url: str, key: str) -> int:
    """Does what `options` say; every end on purpose is a line on standard error."""
    progress = Progress(sys.stderr)
    try:
        return _connected(options, base_url, key, progress)
    except CommandStopped as stopped:
        progress.say(f"headrace: {stopped}")
        return stopped.code
    except BrokenPipeError:
        # Whoever read us has enough; Python would complain when it flushes at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.STOPPED
    except OSError as error:
        progress.say(f"headrace: {error}")
        return ExitCode.WRONG
    except KeyboardInterrupt:
        progress.say("headrace: interrupted")
        return ExitCode.STOPPED


def _connected(options: Namespace, base_url: str, key: str, progress: Progress) -> ExitCode:
    if not key:
        raise CommandStopped("no API key: set HEADRACE_API_KEY, or give --key")
    api = Api(base_url, key)
    try:
        return _act(options, api, key, progress)
    finally:
        progress.close()
        api.close()


def _act(options: Namespace, api: Api, key: str, progress: Progress) -> ExitCode:
    if options.command == "summarize":
        return summarize(options, api, key, progress)
    if options.command == "jobs":
        for job in jobs.latest(api, options.limit):
            print(printable(_listed(job)))
        return ExitCode.DONE
    assert options.command in VERBS
    print(printable(_listed(_steered(options, api))))
    return ExitCode.DONE


def _steered(options: Namespace, api: Api) -> jobs.Job:
    if options.command == "resume" and (changes := bounds(options)):
        job = jobs.change(api, options.job, changes)
        # One whose budget was used up goes on as soon as there is room in it.
        if job.status != "paused":
            return job
    return jobs.act(api, options.job, ROUTES.get(options.command, options.command))


def _listed(job: jobs.Job) -> str:
    counts = f"{job.ended:,}/{job.total:,}"
    cost = f"{short_amount(job.amount)} {job.currency}"
    return f"{job.job_id}  {job.status:<11}  {counts:>15}  {cost:>12}  {job.created_at}  {job.name}"
