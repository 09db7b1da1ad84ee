"""Whether a document fits the model's context, how it is cut if not, and what each part may cost.

Counts tokens only where bytes do not settle it: a text has at most as many tokens as bytes. Called
by ingestion, with the port's counting.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

from batch_jobs.ports import ModelTerms, PipelinePort
from batch_jobs.summaries.asking import instruction_of
from batch_jobs.summaries.options import SummaryOptions
from batch_jobs.summaries.sources.documents import DocumentUnreadable
from batch_jobs.summaries.splitting import MERGE_SLACK_TOKENS, MergeImpossible, plan_tree, split

TEMPLATE_TOKENS_MAX = 128
"""What a chat template may put around a request, a system message of the model's included."""
LIKELY_LONG_BYTES_PER_TOKEN = 6
"""A text with more bytes than this a token of the budget is cut without being counted first: that
counts it, too, and makes one piece of it if it fits after all."""


@dataclass(frozen=True, slots=True)
class Part:
    """A stretch of a document's UTF-8 text that is one request, and its most tokens."""

    size_bytes: int
    tokens_max: int


@dataclass(frozen=True, slots=True)
class Fitted:
    """How a document is computed: in one request, or its `parts` and then `levels` of merges."""

    parts: tuple[Part, ...]
    levels: tuple[tuple[int, ...], ...] = ()
    """See `splitting.plan_tree`."""


class Fitter:
    """The room that a job's options leave in its model's context, and what filling it costs."""

    def __init__(
        self, options: SummaryOptions, terms: ModelTerms, port: PipelinePort, parts_max: int
    ) -> None:
        asked = [instruction_of(options, merging=merging) for merging in (False, True)]
        self.instruction_tokens, merging_tokens = port.count_tokens(asked)
        self._overhead_tokens = max(self.instruction_tokens, merging_tokens) + TEMPLATE_TOKENS_MAX
        self.summary_tokens_max = options.tokens_max
        self.budget_tokens = (
            terms.context_tokens_max - self.summary_tokens_max - self._overhead_tokens
        )
        self._terms = terms
        self._count_tokens = port.count_tokens
        self._parts_max = parts_max

    def fit(self, texts: Sequence[str]) -> list[Fitted | DocumentUnreadable]:
        """How to compute each text, or why it cannot be."""
        sizes = [len(text) if text.isascii() else len(text.encode()) for text in texts]
        budget = self.budget_tokens
        unsure = [
            index
            for index, size in enumerate(sizes)
            if budget < size <= LIKELY_LONG_BYTES_PER_TOKEN * budget
        ]
        counts = dict(
            zip(unsure, self._count_tokens([texts[index] for index in unsure]), strict=True)
        )
        fitted: list[Fitted | DocumentUnreadable] = []
        for index, (text, size) in enumerate(zip(texts, sizes, strict=True)):
            tokens_max = counts.get(index, size)
            if tokens_max <= budget:
                fitted.append(Fitted((Part(size, tokens_max),)))
            else:
                fitted.append(self._cut(text))
        return fitted

    def bound_pico(self, tokens_max: int) -> int:
        """The most that a request over so many tokens can be charged."""
        return (
            (tokens_max + self._overhead_tokens) * self._terms.input_micros_per_mtok
            + self.summary_tokens_max * self._terms.output_micros_per_mtok
        )

    def merge_tokens_max(self, children: int) -> int:
        """The most tokens that so many summaries have together."""
        return children * (self.summary_tokens_max + MERGE_SLACK_TOKENS)

    def _cut(self, text: str) -> Fitted | DocumentUnreadable:
        if self.budget_tokens < 1:
            return _too_long("the instruction and the summary take the model's whole context")
        pieces = list(
            islice(split(text, self.budget_tokens, self._count_tokens), self._parts_max + 1)
        )
        if len(pieces) > self._parts_max:
            return _too_long(f"it would be cut into more than {self._parts_max} parts")
        try:
            levels = plan_tree(len(pieces), self.summary_tokens_max, self.budget_tokens)
        except MergeImpossible as error:
            return _too_long(str(error))
        parts = tuple(
            Part(len(text[piece.start : piece.end].encode()), piece.tokens) for piece in pieces
        )
        return Fitted(parts, tuple(tuple(level) for level in levels))


def _too_long(message: str) -> DocumentUnreadable:
    return DocumentUnreadable("document_too_long", message)
