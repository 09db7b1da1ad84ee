"""What bulk jobs need from the house, as a port that `headrace.wiring` fills in at start-up.

This is what makes "the same pipeline, at lower priority" true: batch_jobs imports neither the
gateway nor billing, it hands chat requests to whatever stands behind the port.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol
from uuid import UUID


@dataclass(frozen=True, slots=True)
class BatchCompletion:
    """One chat completion request to run at batch priority and batch price.

    `request_id` is chosen by the caller and stored before the call: it is the id of the hold, and
    each attempt has its own. `body` is an OpenAI chat completion request.
    """

    request_id: UUID
    organization_id: UUID
    project_id: UUID
    key_id: UUID
    body: dict[str, Any]  # JSON of a foreign shape, validated by the gateway's dialect


@dataclass(frozen=True, slots=True)
class BatchAnswer:
    """A complete answer (stop or length) to one BatchCompletion, not yet charged."""

    request_id: UUID
    text: str
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int


@dataclass(frozen=True, slots=True)
class BatchCompletionResult:
    """What came of one BatchCompletion, settled; `error_code` None means its answer was stored.

    `retryable` marks failures of ours that say nothing about the request: the line goes back to
    the queue. `deferred` marks those that never reached an engine (it is away or full, or the
    balance is taken up by open holds): they do not count as an attempt.
    """

    request_id: UUID
    charge_pico: int
    error_code: str | None = None
    error_message: str | None = None
    retryable: bool = False
    deferred: bool = False


class CompletionPort(Protocol):
    """Runs chat completions through the gateway's one pipeline."""

    def complete(
        self,
        completions: Sequence[BatchCompletion],
        on_answer: Callable[[BatchAnswer], bool],
        on_result: Callable[[BatchCompletionResult], None],
    ) -> None:
        """Runs all, concurrently, and blocks until every one has ended.

        A complete answer goes to `on_answer` before it is settled. True means that it is stored
        for the tenant: only then is the request charged, by the engine's counts. False (or an
        exception) means that the attempt was superseded. That, and any end without an answer,
        settles with a charge of zero: nothing was handed over. `on_result` follows each settle, at
        most once a request; where the settle has to wait, it is not called and `charge_of` tells
        later. Both run on the calling thread.
        """
        ...

    def charge_of(self, organization_id: UUID, request_id: UUID) -> int | None:
        """What a request was charged, in pico-units; None while its hold is still open."""
        ...

    def knows_model(self, organization_id: UUID, project_id: UUID, model: str) -> bool:
        """Whether this project can buy what it calls by this name at batch price now."""
        ...


_completion_port: CompletionPort | None = None


def provide_completion_port(port: CompletionPort) -> None:
    """Called once, by the wiring."""
    global _completion_port  # noqa: PLW0603 - the one slot the wiring fills
    _completion_port = port


def completion_port() -> CompletionPort:
    """The port; raises RuntimeError before the wiring ran."""
    if _completion_port is None:
        raise RuntimeError("no completion port: headrace.wiring has not run")
    return _completion_port
