"""Biases, penalties, bans and grammar masks on logits on GPU, in place, only where they apply.

Called by the runner's sampler on CUDA before it draws or takes log probabilities.
"""

import torch
import triton
import triton.language as tl

from kernels.token_sampling import WORD_TOKENS, TokenEdits, TokenMasks, check_adjustments

EDIT_SPAN = 256
MASK_WORDS = 64


@triton.jit(do_not_specialize=("entries",))  # type: ignore[untyped-decorator]  # Triton ships no types
def edit_kernel(  # type: ignore[no-untyped-def]  # types are those of each launch
    logits, rows, token_ids, biases, repetitions, penalties, entries, row_stride, span: tl.constexpr
):
    """Applies `span` of the edits, each of another logit."""
    entry = tl.program_id(0) * span + tl.arange(0, span)
    inside = entry < entries
    row = tl.load(rows + entry, mask=inside, other=0).to(tl.int64)
    places = logits + row * row_stride + tl.load(token_ids + entry, mask=inside, other=0)
    logit = tl.load(places, mask=inside, other=0.0) + tl.load(
        biases + entry, mask=inside, other=0.0
    )
    repetition = tl.load(repetitions + entry, mask=inside, other=1.0)
    logit = tl.where(logit > 0.0, logit / repetition, logit * repetition)
    logit -= tl.load(penalties + entry, mask=inside, other=0.0)
    tl.store(places, logit, mask=inside)


@triton.jit  # type: ignore[untyped-decorator]  # Triton ships no types
def mask_kernel(  # type: ignore[no-untyped-def]  # types are those of each launch
    logits,
    rows,
    words,
    vocabulary,
    row_words,
    row_stride,
    span_words: tl.constexpr,
    word_tokens: tl.constexpr,
):
    """Bans what `span_words` words of one mask do not allow; writes only those logits."""
    mask = tl.program_id(0)
    word = tl.program_id(1) * span_words + tl.arange(0, span_words)
    bits = tl.load(words + mask.to(tl.int64) * row_words + word, mask=word < row_words, other=-1)
    lane = tl.arange(0, word_tokens)
    token = word[:, None] * word_tokens + lane[None]
    banned = ((bits[:, None] >> lane[None]) & 1) == 0
    places = logits + tl.load(rows + mask).to(tl.int64) * row_stride + token
    tl.store(places, float("-inf"), mask=banned & (token < vocabulary))


def adjust_logits_triton(
    logits: torch.Tensor, edits: TokenEdits | None, masks: TokenMasks | None
) -> None:
    """Applies the edits, then the masks, to logits float32 [rows, vocabulary] in place.

    Log probabilities are those of what is left. Raises ValueError for what does not fit.
    """
    check_adjustments(logits, edits, masks)
    vocabulary = logits.shape[1]
    if edits is not None and edits.rows.shape[0]:
        entries = edits.rows.shape[0]
        edit_kernel[(triton.cdiv(entries, EDIT_SPAN),)](
            logits,
            edits.rows,
            edits.token_ids,
            edits.biases,
            edits.repetitions,
            edits.penalties,
            entries,
            logits.stride(0),
            span=EDIT_SPAN,
        )
    if masks is not None and masks.rows.shape[0]:
        count, row_words = masks.words.shape
        mask_kernel[(count, triton.cdiv(row_words, MASK_WORDS))](
            logits,
            masks.rows,
            masks.words.contiguous(),
            vocabulary,
            row_words,
            logits.stride(0),
            span_words=MASK_WORDS,
            word_tokens=WORD_TOKENS,
        )
