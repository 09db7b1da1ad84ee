"""What a bundle is made of, whichever format of model it is read from.

The readers of GGUF files and Hugging Face folders fill in the parts, `build` writes them. What both
decide alike stands here: which control tokens end an answer, and what a chat template may name.
"""

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from tokenizers import Tokenizer

END_TOKENS = ("<|endoftext|>", "<|end_of_text|>", "<|eot_id|>", "<|eom_id|>", "<|im_end|>")
"""End a document or a turn in training, so they end an answer too, whatever `eos` is."""

NO_TEMPLATE = "{{ raise_exception('this model has no chat template: use completions') }}"


@dataclass(frozen=True, slots=True)
class BundleParts:
    """See `Bundle` for the meaning of the ids; `template` is ready to be rendered."""

    tokenizer: Tokenizer
    template: str
    context_tokens_max: int
    vocab_size: int
    bos_id: int | None
    stop_ids: tuple[int, ...]


def control_ids(tokenizer: Tokenizer) -> dict[str, int]:
    """Control tokens by their text."""
    return {
        token.content: token_id
        for token_id, token in tokenizer.get_added_tokens_decoder().items()
        if token.special
    }


def stop_ids(tokenizer: Tokenizer, named: Collection[int]) -> tuple[int, ...]:
    """The ids a model names as its ends, and those of END_TOKENS that it has."""
    control = control_ids(tokenizer)
    known = {control[token] for token in END_TOKENS if token in control}
    return tuple(sorted(known | set(named)))


def ready_template(template: str | None, tokens: Mapping[str, str | None]) -> str:
    """The template with the tokens it names (`bos_token`, ...) bound to their text.

    They are written into the template so that whoever renders it needs nothing but messages. A
    model without a template gets one that refuses every conversation.
    """
    if template is None:
        return NO_TEMPLATE
    bound = [
        # Jinja reads the escapes of a JSON string as JSON does; it drops the newline after a block.
        f"{{% set {name} = {json.dumps(text)} %}}\n"
        for name, text in tokens.items()
        if text is not None and re.search(rf"\b{name}\b", template)
    ]
    return "".join(bound) + template
