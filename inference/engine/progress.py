"""What one step's output does to one sequence: tokens accepted, text shown, and whether it ends.

Drafted tokens are checked by drawing at every one of their positions with the noise that position
always has: a draft that equals its draw is what would have been drawn without it, so speculation
never changes an answer, greedy or sampled. Touches the sequence alone; used by the engine.
"""

import struct
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from inference.contracts import FinishReason, TokenLogprob
from inference.engine.sequence import SequenceState
from inference.engine.step import Drawn


@dataclass(frozen=True, slots=True)
class Progress:
    """What an answer gained. `reason` is set when it ends; `accepted` counts right drafts."""

    token_ids: tuple[int, ...]
    text: str
    logprobs: tuple[TokenLogprob, ...]
    reason: FinishReason | None
    accepted: int


def take_drawn(state: SequenceState, drawn: Sequence[Drawn], end_ids: Collection[int]) -> Progress:
    """Appends the draws that count to the answer, up to its end. `drawn` has one more entry than
    the drafts that were checked; `end_ids` are the model's end-of-sequence tokens."""
    drafts, counting = state.drafts, _verified(state.drafts, drawn)
    accepted = min(len(counting) - 1, len(drafts))
    state.drafts = []
    answer = state.answer
    assert answer is not None
    text: list[str] = []
    logprobs: list[TokenLogprob] = []
    token_ids: list[int] = []
    reason: FinishReason | None = None
    for draw in counting:
        token_ids.append(draw.token_id)
        state.token_ids.append(draw.token_id)
        if _is_stop_token(state, draw.token_id, end_ids):
            # A stop token ends the output and is no part of its text, even where it has bytes.
            reason = FinishReason.STOP
            break
        shown = answer.push(draw)
        text.append(shown.text)
        logprobs += shown.logprobs
        reason = _reason_to_end(state)
        if reason is not None:
            break
        if state.matcher is not None:
            state.matcher.advance(draw.token_id)
    if reason is not None:
        tail = answer.end()
        text.append(tail.text)
        logprobs += tail.logprobs
        reason = FinishReason.STOP if answer.stopped else reason
    return Progress(tuple(token_ids), "".join(text), tuple(logprobs), reason, accepted)


def take_pooled(state: SequenceState, pooled: Sequence[float]) -> None:
    """Adds the hidden states of a step to the sum; a sequence that starts over starts at zero."""
    if state.computed == 0:
        state.pooled = [0.0] * len(pooled)
    state.pooled = [sum_ + more for sum_, more in zip(state.pooled, pooled, strict=True)]


def embedding_bytes(state: SequenceState) -> bytes:
    """The mean of the prompt's hidden states, at length 1, as little-endian float32."""
    length = sum(value * value for value in state.pooled) ** 0.5
    scale = 1.0 / length if length > 0.0 else 0.0
    return struct.pack(f"<{len(state.pooled)}f", *(value * scale for value in state.pooled))


def _verified(drafts: Sequence[int], drawn: Sequence[Drawn]) -> Sequence[Drawn]:
    """The draws that count: up to the first that differs from its draft, that one included."""
    for index, draft in enumerate(drafts):
        if drawn[index].token_id != draft:
            return drawn[: index + 1]
    return drawn


def _is_stop_token(state: SequenceState, token_id: int, end_ids: Collection[int]) -> bool:
    sampling = state.request.sampling
    assert sampling is not None
    # A constrained answer that is complete has nothing else to draw.
    goes_on = sampling.ignore_eos and state.matcher is None
    return token_id in sampling.stop_token_ids or (token_id in end_ids and not goes_on)


def _reason_to_end(state: SequenceState) -> FinishReason | None:
    sampling, answer = state.request.sampling, state.answer
    assert sampling is not None
    assert answer is not None
    if answer.stopped:
        return FinishReason.STOP
    return FinishReason.LENGTH if state.completion >= sampling.max_tokens else None
