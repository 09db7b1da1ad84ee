"""A summarisation job as the API tells it: made, steered and read. No HTTP but through `Api`.

Called by `main` and `following`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from headrace.command_line.api import Api
from headrace.command_line.ending import CommandStopped

PATH = "/api/v1/summaries"
ENDED = frozenset({"completed", "failed", "expired", "cancelled"})
IDLE = frozenset({"ready", "paused"})
"""Goes on when somebody says so."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a job will take, said before it starts; `amount` is a decimal of the currency.

    `is_at_most` where nothing is known yet of how long such summaries get.
    """

    prompt_tokens: int
    completion_tokens: int
    is_at_most: bool
    amount: str
    amount_pico: int
    interactive_amount_pico: int
    duration_s: float | None


@dataclass(frozen=True, slots=True)
class Job:
    """What the command shows of a job."""

    job_id: str
    status: str
    pause_reason: str
    model: str
    name: str
    created_at: str
    total: int
    completed: int
    failed: int
    duplicate: int
    known: int
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    amount: str
    currency: str
    budget: str | None
    documents_per_s: float
    tokens_per_s: float
    remaining_s: float | None
    results_shards: int
    estimate: Estimate | None
    errors: tuple[str, ...]

    @property
    def ended(self) -> int:
        """Documents that are through, whatever became of them."""
        return self.completed + self.failed


def create(api: Api, body: Mapping[str, Any]) -> Job:
    """Makes a job, once, however often the request has to be repeated."""
    return _read(api.post(PATH, body, idempotency_key=f"headrace-{uuid4().hex}"))


def get(api: Api, job_id: str, patience_s: float) -> Job:
    """The job as it is now."""
    return _read(api.get(f"{PATH}/{_checked(job_id)}", patience_s=patience_s))


def act(api: Api, job_id: str, verb: str) -> Job:
    """The job after `start`, `preview`, `pause`, `resume`, `cancel` or `retry`."""
    return _read(api.post(f"{PATH}/{_checked(job_id)}/{verb}"))


def change(api: Api, job_id: str, changes: Mapping[str, Any]) -> Job:
    """The job with another budget or deadline."""
    return _read(api.patch(f"{PATH}/{_checked(job_id)}", changes))


def latest(api: Api, limit: int) -> list[Job]:
    """The project's last jobs, newest first."""
    return [_read(value) for value in api.get(PATH, limit=limit)["data"]]


def _checked(job_id: str) -> str:
    if not job_id.replace("_", "").isalnum():
        raise CommandStopped(f"{job_id!r} is no job's id")
    return job_id


def _read(value: Any) -> Job:  # JSON
    try:
        documents, tokens, progress = value["documents"], value["tokens"], value["progress"]
        return Job(
            job_id=value["id"],
            status=value["status"],
            pause_reason=value["pause_reason"] or "",
            model=value["model"],
            name=value["metadata"].get("name", ""),
            created_at=value["created_at"],
            total=documents["total"],
            completed=documents["completed"],
            failed=documents["failed"],
            duplicate=documents["duplicate"],
            known=documents["known"],
            prompt_tokens=tokens["prompt"],
            cached_tokens=tokens["cached"],
            completion_tokens=tokens["completion"],
            amount=value["charge"]["amount"],
            currency=value["currency"],
            budget=value["budget"],
            documents_per_s=progress["documents_per_s"],
            tokens_per_s=progress["tokens_per_s"],
            remaining_s=progress["remaining_s"],
            results_shards=value["results_shards"],
            estimate=_estimate(value["estimate"]),
            errors=tuple(_error(error) for error in value["errors"]),
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise CommandStopped(f"the API's job is of another version than this ({error})") from error


def _estimate(value: Any) -> Estimate | None:
    if not value:
        return None
    return Estimate(
        prompt_tokens=value["prompt_tokens"],
        completion_tokens=value["completion_tokens"],
        is_at_most=value["completion_basis"] == "at_most",
        amount=value["amount"],
        amount_pico=int(value["amount_pico"]),
        interactive_amount_pico=int(value["interactive_amount_pico"]),
        duration_s=value["duration_s"],
    )


def _error(value: Mapping[str, Any]) -> str:
    line = f"line {value['line']}: " if value.get("line") else ""
    return f"{line}{value['message']}"
