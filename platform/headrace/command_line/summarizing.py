"""`headrace summarize`: uploads, makes the job, follows it, fetches what came of it.

The job is the API's and outlives this process: an interrupt leaves it running and says how to come
back to it. Called by `main` and by `manage.py summarize`.
"""

import sys
import time
from argparse import Namespace

from headrace.command_line import jobs, results
from headrace.command_line.api import PATIENCE_S, Api, Unreachable
from headrace.command_line.arguments import job_body
from headrace.command_line.ending import CommandStopped, ExitCode
from headrace.command_line.inputs import PartLimits, check
from headrace.command_line.jobs import ENDED, IDLE, Estimate, Job
from headrace.command_line.progress import Progress, duration, short_amount
from headrace.command_line.uploading import upload_all

POLL_FIRST_S = 0.3
POLL_MAX_S = 5.0
POLL_GROWTH = 1.2
FOLLOW_PATIENCE_S = 600
"""How long the API may be away while a job is followed."""
ERRORS_SHOWN_MAX = 20
PAUSE_REASONS = {
    "budget": "has used up its budget",
    "balance": "is paused: the balance is used up",
    "key": "is paused: its key may not be used now",
}


def summarize(options: Namespace, api: Api, key: str, progress: Progress) -> ExitCode:
    """Everything from the sources to the results. Raises CommandStopped."""
    if options.job is not None:
        if options.sources:
            raise CommandStopped("either SOURCE or --job, not both")
        job = jobs.get(api, options.job, PATIENCE_S)
        if not options.wait:
            return _hand_over(options, api, job, progress)
    else:
        job = _made(options, api, key, progress)
        if not options.wait:
            print(job.job_id)
            return ExitCode.DONE
    try:
        if options.job is None and _asks(options):
            job = _decided(options, api, job, progress)
        job = _followed(api, job, progress)
        return _hand_over(options, api, job, progress)
    except KeyboardInterrupt:
        raise CommandStopped(_left(options, job.job_id), ExitCode.STOPPED) from None
    except Unreachable as error:
        message = f"{error}; {_left(options, job.job_id)}"
        raise CommandStopped(message, ExitCode.STOPPED) from error


def _made(options: Namespace, api: Api, key: str, progress: Progress) -> Job:
    if not options.sources:
        raise CommandStopped("name a SOURCE, or --job ID")
    check(options.sources)
    file_ids = upload_all(api, key, options.sources, PartLimits(), progress)
    if not file_ids:
        raise CommandStopped(f"there are no documents in {', '.join(options.sources)}")
    job = jobs.create(api, job_body(options, file_ids, start=not _asks(options)))
    progress.say(f"job {job.job_id}")
    return job


def _asks(options: Namespace) -> bool:
    """Whether the job waits for a word after it was read."""
    if not options.wait or options.yes:
        return bool(options.estimate or options.preview)
    return bool(options.estimate or options.preview or sys.stdin.isatty())


def _decided(options: Namespace, api: Api, job: Job, progress: Progress) -> Job:
    """The job, started if that is wanted. Raises CommandStopped where it is left as it is."""
    job = _followed(api, job, progress)
    if job.status in ENDED:
        return job
    progress.close()
    progress.say(_estimate_line(job, job.estimate))
    starting = f"start it with: headrace start {job.job_id}"
    if options.preview:
        job = _followed(api, jobs.act(api, job.job_id, "preview"), progress)
        progress.close()
        results.print_first(api, job)
    if job.status in ENDED:
        return job
    if options.estimate and not options.preview:
        print(job.job_id)
        raise CommandStopped(starting, ExitCode.DONE)
    if not options.yes and not _agreed(progress):
        raise CommandStopped(f"not started; {starting}", ExitCode.STOPPED)
    return jobs.act(api, job.job_id, "start")


def _agreed(progress: Progress) -> bool:
    if not sys.stdin.isatty():
        return False
    progress.say("Summarise them all? [y/N]")
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _followed(api: Api, job: Job, progress: Progress) -> Job:
    """The job once it ended or rests, shown until then."""
    wait_s = POLL_FIRST_S
    while True:
        progress.show(job)
        if job.status in ENDED | IDLE:
            return job
        time.sleep(wait_s)
        wait_s = min(wait_s * POLL_GROWTH, POLL_MAX_S)
        job = jobs.get(api, job.job_id, FOLLOW_PATIENCE_S)


def _hand_over(options: Namespace, api: Api, job: Job, progress: Progress) -> ExitCode:
    """Results, failures and the last word on a job that ended or rests."""
    progress.close()
    if job.status == "failed":
        for error in job.errors[:ERRORS_SHOWN_MAX]:
            progress.say(error)
        raise CommandStopped(f"{job.job_id} failed: its input was refused", ExitCode.WRONG)
    if job.ended:
        results.write(api, job, options.output, progress)
    if options.failures is not None:
        results.write_failures(api, job, options.failures, progress)
    progress.say(_total_line(job))
    if job.status == "completed":
        return ExitCode.SOME_FAILED if job.failed else ExitCode.DONE
    raise CommandStopped(_stand(job), ExitCode.STOPPED)


def _stand(job: Job) -> str:
    if job.status == "paused":
        why = PAUSE_REASONS.get(job.pause_reason, "is paused")
        more = " --budget MORE" if job.pause_reason == "budget" else ""
        return f"{job.job_id} {why}; go on with: headrace resume {job.job_id}{more}"
    if job.status == "ready":
        return f"{job.job_id} is not started; start it with: headrace start {job.job_id}"
    return f"{job.job_id} is {job.status}"


def _left(options: Namespace, job_id: str) -> str:
    return f"{job_id} goes on without us; follow it with: {options.program} --job {job_id}"


def _estimate_line(job: Job, estimate: Estimate | None) -> str:
    line = f"{job.total:,} documents"
    if job.duplicate or job.known:
        line += f" ({job.duplicate:,} the same as others, {job.known:,} known from before)"
    if estimate is None:
        return line
    saved = 1 - estimate.amount_pico / max(estimate.interactive_amount_pico, 1)
    line += (
        f": {'at most' if estimate.is_at_most else 'about'}"
        f" {estimate.prompt_tokens:,} + {estimate.completion_tokens:,} tokens,"
        f" {short_amount(estimate.amount)} {job.currency}"
        f" ({saved:.0%} below the interactive price)"
    )
    if estimate.duration_s is not None:
        line += f", {duration(estimate.duration_s)}"
    return line


def _total_line(job: Job) -> str:
    tokens = job.prompt_tokens + job.completion_tokens
    return (
        f"{job.completed:,} of {job.total:,} documents summarised, {job.failed:,} failed;"
        f" {tokens:,} tokens ({job.cached_tokens:,} from the cache), {job.amount} {job.currency}"
    )
