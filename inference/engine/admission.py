"""Why an engine would refuse a request at its door: a code and a message.

What is refused here was never queued, so nothing is computed and nothing may be charged. Used by
the engine.
"""

from inference.contracts import GenerationRequest, ModelLimits, RefusalCode
from inference.engine.answering.grammar import GrammarInvalid, Grammars, new_matcher

Refusal = tuple[RefusalCode, str]


def refusal_of(
    request: GenerationRequest, limits: ModelLimits, grammars: Grammars | None
) -> Refusal | None:
    """None for a request that this model can compute alone."""
    vocab_size = limits.vocab_size
    output_tokens = 0 if request.sampling is None else request.sampling.max_tokens
    for prompt_ids in request.prompts:
        if not prompt_ids:
            return RefusalCode.INVALID_REQUEST, "the prompt is empty"
        if not 0 <= min(prompt_ids) <= max(prompt_ids) < vocab_size:
            return RefusalCode.INVALID_REQUEST, f"a prompt id is outside 0 .. {vocab_size - 1}"
        if len(prompt_ids) + output_tokens > limits.request_tokens_max():
            return RefusalCode.CONTEXT_LENGTH_EXCEEDED, (
                f"{len(prompt_ids)} prompt tokens and up to {output_tokens} more "
                f"are over {limits.request_tokens_max()}"
            )
    if request.sampling is None:
        return None
    named = {
        "stop token": request.sampling.stop_token_ids,
        "logit bias": [token_id for token_id, _ in request.sampling.logit_bias],
    }
    for name, token_ids in named.items():
        if any(not 0 <= token_id < vocab_size for token_id in token_ids):
            return RefusalCode.INVALID_REQUEST, f"a {name} id is outside 0 .. {vocab_size - 1}"
    try:
        # Compiled here, and found again by each of its sequences.
        new_matcher(request.sampling.grammar, grammars)
    except GrammarInvalid as error:
        return RefusalCode.INVALID_GRAMMAR, str(error)
    return None
