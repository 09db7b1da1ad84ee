"""Grammars by llguidance: JSON schemas and regular expressions as masks over the vocabulary.

Compiles once per grammar and copies the beginning for each sequence. A source that does not compile
raises for its own request; a grammar that turns out too complex on the way fails the step that asks
for its mask, and with it nobody but its own request. Torch-free; made by the server, which lets in
only what passed a trial, and used by the engine.
"""

import threading
from collections import OrderedDict
from collections.abc import Sequence

from llguidance import LLMatcher, LLTokenizer

from inference.contracts import Grammar
from inference.engine.answering.grammar import GrammarMatcher, GrammarTooComplex
from inference.engine.answering.grammar_compiling import compiled, shortened
from inference.tokenizer.bundle import TOKENIZER_FILE, Bundle

GRAMMARS_KEPT_MAX = 64
"""Compiled grammars kept for the next request that brings the same."""


class LlguidanceGrammars:
    """`Grammars` over the vocabulary of one bundle. Building it takes about 0.6 s.

    Any thread may ask for a matcher; a matcher belongs to one thread.
    """

    def __init__(self, bundle: Bundle) -> None:
        self._tokenizer = LLTokenizer(
            (bundle.folder / TOKENIZER_FILE).read_text(encoding="utf-8"),
            n_vocab=bundle.vocab_size,
            eos_token=list(bundle.stop_ids),
        )
        self._end_ids = frozenset(bundle.stop_ids)
        self._beginnings: OrderedDict[Grammar, LLMatcher] = OrderedDict()
        self._beginnings_lock = threading.Lock()

    def matcher(self, grammar: Grammar) -> GrammarMatcher:
        """A matcher at the beginning of an answer. Raises GrammarInvalid."""
        with self._beginnings_lock:
            beginning = self._beginnings.get(grammar)
        # Outside the lock: who finds a grammar compiled never waits for one that is not.
        if beginning is None:
            beginning = compiled(self._tokenizer, grammar)
        with self._beginnings_lock:
            self._beginnings[grammar] = beginning
            self._beginnings.move_to_end(grammar)
            if len(self._beginnings) > GRAMMARS_KEPT_MAX:
                self._beginnings.popitem(last=False)
        return _Matcher(beginning.deep_copy(), self._end_ids)


class _Matcher:
    """One answer's position."""

    def __init__(self, matcher: LLMatcher, end_ids: frozenset[int]) -> None:
        self._matcher = matcher
        self._end_ids = end_ids

    def masks(self, drafts: Sequence[int]) -> list[bytes]:
        masks = [self._matcher.compute_bitmask()]
        for token_id in drafts:
            self._matcher.consume_token(token_id)
            masks.append(self._matcher.compute_bitmask())
        if drafts:
            self._matcher.rollback(len(drafts))
        if self._matcher.is_error():
            raise GrammarTooComplex(shortened(self._matcher.get_error()))
        return masks

    def allowed_prefix(self, drafts: Sequence[int]) -> int:
        before_end = 0
        while before_end < len(drafts) and drafts[before_end] not in self._end_ids:
            before_end += 1
        return self._matcher.validate_tokens(list(drafts[:before_end]))

    def advance(self, token_id: int) -> None:
        # A token that is not taken leaves an error behind, which the next `masks` raises.
        self._matcher.consume_token(token_id)
