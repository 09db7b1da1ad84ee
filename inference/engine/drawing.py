"""What the engine asks of the runner: a share of a step with what to draw after it.

Also checks that the runner answered what it was asked. Pure; used by the engine.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from inference.engine.scheduling.scheduler import Share
from inference.engine.sequence import SequenceState
from inference.engine.step import PENDING, SampleSpec, SequenceStep, StepOutput


def sequence_step(share: Share, end_ids: Collection[int]) -> SequenceStep:
    """The runner's order for one share. `end_ids` as in `sample_specs`."""
    state = share.state
    known = state.token_ids[state.computed : state.computed + share.tokens - share.drafts]
    return SequenceStep(
        sequence_id=state.sequence_id,
        token_ids=known + state.drafts if share.drafts else known,
        start=state.computed,
        block_table=state.blocks,
        samples=sample_specs(state, share.drafts, end_ids) if share.draws else (),
        pool=state.answer is None,
    )


def without_drafts(share: Share) -> Share:
    """The same share with nothing guessed: a wrong guess may be what cannot be computed, such as a
    place where grammar and bans leave nothing to draw."""
    share.state.drafts = []
    return replace(share, tokens=share.tokens - share.drafts, drafts=0)


def check_outputs(shares: Sequence[Share], outputs: Sequence[StepOutput], vocab_size: int) -> None:
    """Raises ValueError unless the outputs are what the shares asked for."""
    if len(outputs) != len(shares):
        raise ValueError(f"{len(outputs)} outputs for {len(shares)} sequence steps")
    for share, output in zip(shares, outputs, strict=True):
        if len(output.drawn) != (share.drafts + 1 if share.draws else 0):
            raise ValueError(f"{len(output.drawn)} tokens drawn for {share.drafts} drafts")
        if any(not 0 <= drawn.token_id < vocab_size for drawn in output.drawn):
            raise ValueError("a drawn token is outside the vocabulary")


def step_ahead(share: Share, end_ids: Collection[int]) -> SequenceStep:
    """The order for the step after `share`, whose token is not known yet."""
    state = share.state
    return SequenceStep(
        sequence_id=state.sequence_id,
        token_ids=(PENDING,),
        start=len(state.token_ids),
        block_table=state.blocks,
        samples=sample_specs(state, 0, end_ids, ahead=1),
    )


def needs_its_tokens(state: SequenceState) -> bool:
    """Whether what a sequence may draw next depends on the tokens it has drawn."""
    sampling = state.request.sampling
    assert sampling is not None
    return (
        state.matcher is not None
        or sampling.presence_penalty != 0.0
        or sampling.frequency_penalty != 0.0
        or sampling.repetition_penalty != 1.0
    )


def sample_specs(
    state: SequenceState,
    drafts: int,
    end_ids: Collection[int],
    *,
    ahead: int = 0,
    constrained: bool = True,
) -> tuple[SampleSpec, ...]:
    """One spec for what follows the known tokens, and one after each of the first `drafts` drafts.

    `end_ids` are the model's end-of-sequence tokens, which nothing may draw before `min_tokens`
    (but where the grammar allows nothing else); `ahead` counts tokens that are drawn but not known
    yet. Guesses are drawn without being `constrained`: a grammar's masks are too dear for them.
    Raises GrammarTooComplex.
    """
    sampling = state.request.sampling
    assert sampling is not None
    counts_output = sampling.presence_penalty != 0.0 or sampling.frequency_penalty != 0.0
    counts_prompt = sampling.repetition_penalty != 1.0
    counts = counts_output or counts_prompt
    output = state.token_ids[len(state.prompt_ids) :] if counts else []
    masks = [b""] * (drafts + 1)
    if state.matcher is not None and constrained:
        masks = state.matcher.masks(state.drafts[:drafts])
    specs = []
    for checked, mask in enumerate(masks):
        position = state.completion + ahead + checked
        must_go_on = position < sampling.min_tokens
        banned_ids = (*end_ids, *sampling.stop_token_ids) if must_go_on else ()
        specs.append(
            SampleSpec(
                temperature=sampling.temperature,
                top_p=sampling.top_p,
                top_k=sampling.top_k,
                min_p=sampling.min_p,
                seed=sampling.seed,
                choice=state.choice,
                position=position,
                presence_penalty=sampling.presence_penalty,
                frequency_penalty=sampling.frequency_penalty,
                repetition_penalty=sampling.repetition_penalty,
                prompt_ids=state.prompt_ids if counts_prompt else (),
                output_ids=output + state.drafts[:checked] if counts else (),
                logit_bias=sampling.logit_bias,
                banned_ids=() if mask else banned_ids,
                allowed=_without(mask, banned_ids) if mask and banned_ids else mask,
                logprobs=sampling.logprobs,
            )
        )
    return tuple(specs)


def _without(allowed: bytes, banned_ids: Iterable[int]) -> bytes:
    """The mask less the banned, unless nothing is left: a complete answer ends, be it too short."""
    mask = bytearray(allowed)
    for token_id in banned_ids:
        mask[token_id // 8] &= ~(1 << token_id % 8)
    return bytes(mask) if any(mask) else allowed
