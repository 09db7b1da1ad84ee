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

    `request_id` is chosen by the caller and stored before the call: it is the id of the hold, so
    running the same line twice cannot charge twice. `body` is an OpenAI chat completion request.
    """

    request_id: UUID
    organization_id: UUID
    project_id: UUID
    key_id: UUID
    body: dict[str, Any]  # JSON of a foreign shape, validated by the gateway's dialect


@dataclass(frozen=True, slots=True)
class BatchCompletionResult:
    """What came of one BatchCompletion; `error_code` None means success.

    `retryable` marks failures of ours (engine away, overloaded, rate limited) that say nothing
    about the request: the line goes back to the queue.
    """

    request_id: UUID
    text: str
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    charge_pico: int
    error_code: str | None = None
    error_message: str | None = None
    retryable: bool = False


class CompletionPort(Protocol):
    """Runs chat completions through the gateway's one pipeline."""

    def complete(
        self,
        completions: Sequence[BatchCompletion],
        on_result: Callable[[BatchCompletionResult], None],
    ) -> None:
        """Runs all, concurrently, and calls `on_result` once for each as it ends.

        Blocks until every one has ended. `on_result` is called on the calling thread.
        """
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
