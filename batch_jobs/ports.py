"""What bulk jobs need from the house, as a port that `headrace.wiring` fills in at start-up.

This is what makes "the same pipeline, at lower priority" true: batch_jobs imports neither the
gateway nor billing, it hands chat requests to whatever stands behind the port.
"""

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, ParamSpec, Protocol, TypeVar
from uuid import UUID

Params = ParamSpec("Params")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class BulkRequest:
    """One request to run at batch priority and batch price.

    `request_id` is chosen by the caller and stored before the call: it is the id of the hold, and
    each attempt has its own. `endpoint` is the path of one of the OpenAI routes that can be run in
    bulk, `body` a request of it. One that might be charged more than `bound_pico` is refused.
    """

    request_id: UUID
    organization_id: UUID
    project_id: UUID
    key_id: UUID
    endpoint: str
    body: Any  # JSON of a foreign shape, validated by the gateway's dialect
    bound_pico: int | None = None


@dataclass(frozen=True, slots=True)
class BulkAnswer:
    """A complete answer, not yet charged: `body` as the route would send it, and its first text."""

    request_id: UUID
    body: bytes
    text: str
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int


@dataclass(frozen=True, slots=True)
class BulkOutcome:
    """What came of one BulkRequest, settled; `error_code` None means that its answer was stored.

    `status_code` is what the route would have answered, and 0 where there is no answer at all.
    `retryable` marks failures of ours that say nothing about the request. `deferred` marks those
    that never reached an engine and are no attempt; `job_wide` (with it) those that all requests of
    this job would meet now: no engine, an empty balance, a key that was revoked. With `resets_in_s`
    it is a quota of the tenant's own that is used up until then; with `bound_pico` the request may
    be charged so much, which is more than it was bound to.
    """

    request_id: UUID
    charge_pico: int
    status_code: int = 200
    error_code: str | None = None
    error_message: str | None = None
    retryable: bool = False
    deferred: bool = False
    job_wide: bool = False
    resets_in_s: float | None = None
    bound_pico: int | None = None


@dataclass(frozen=True, slots=True)
class EngineLoad:
    """How busy the engines are now. `kv_used_share` is 0..1; cached blocks that can be had again
    do not count."""

    connected: bool
    running: int
    waiting: int
    kv_used_share: float
    interactive_live: bool = False
    """Whether anybody who waits for an answer is being served or queued."""
    interactive_waiting: int = 0
    """How many of those are queued."""


@dataclass(frozen=True, slots=True)
class ModelTerms:
    """What a project gets when it asks for a model at batch price, and what it would pay else."""

    public_id: str
    context_tokens_max: int
    output_tokens_max: int
    currency: str
    input_micros_per_mtok: int
    cached_input_micros_per_mtok: int
    output_micros_per_mtok: int
    interactive_input_micros_per_mtok: int
    interactive_cached_input_micros_per_mtok: int
    interactive_output_micros_per_mtok: int


class PipelinePort(Protocol):
    """The gateway's one pipeline, for bulk work: everything runs on its event loop."""

    def run(self, work: Coroutine[Any, Any, Result]) -> "Future[Result]":
        """Starts `work` on the gateway's loop, from any thread."""
        ...

    async def in_database(
        self, call: Callable[Params, Result], *args: Params.args, **kwargs: Params.kwargs
    ) -> Result:
        """Runs `call` on a database thread of the gateway's."""
        ...

    async def complete(
        self, request: BulkRequest, on_answer: Callable[[BulkAnswer], Awaitable[bool]]
    ) -> BulkOutcome | None:
        """Runs one request to its end, on the gateway's loop.

        A complete answer goes to `on_answer` before it is settled. True means that it is stored for
        the tenant: only then is the request charged, by the engine's counts. False (or an
        exception) means that the attempt was superseded. That, and any end without an answer,
        settles with a charge of zero: nothing was handed over. None where the settle has to wait:
        `charge_of` tells later. Cancelling the call aborts the request, settled as superseded.
        """
        ...

    async def load(self) -> EngineLoad:
        """How busy the engines are."""
        ...

    def charge_of(self, organization_id: UUID, request_id: UUID) -> int | None:
        """What a request was charged, in pico-units; None while its hold is still open."""
        ...

    def terms(self, organization_id: UUID, project_id: UUID, model: str) -> ModelTerms | None:
        """What a project gets by this name at batch price now; None when it cannot buy it."""
        ...

    def refusal(self, endpoint: str, body: Any) -> str | None:  # JSON of a foreign shape
        """Why the endpoint's dialect would refuse this body, None if it would not. Pure."""
        ...

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Tokens of each text by the served model's vocabulary, without the chat template."""
        ...


_pipeline_port: PipelinePort | None = None


def provide_pipeline_port(port: PipelinePort) -> None:
    """Called once, by the wiring."""
    global _pipeline_port  # noqa: PLW0603 - the one slot the wiring fills
    _pipeline_port = port


def pipeline_port() -> PipelinePort:
    """The port; raises RuntimeError before the wiring ran."""
    if _pipeline_port is None:
        raise RuntimeError("no pipeline port: headrace.wiring has not run")
    return _pipeline_port
