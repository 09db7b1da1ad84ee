"""Grammars by llguidance: JSON schemas and regular expressions as masks over the vocabulary.

Compiles once per grammar and copies the beginning for each sequence. A source that does not compile
or is too large raises for its own request; a grammar that turns out too complex on the way fails
the step that asks for its mask, and with it nobody but its own request. Torch-free; made by the
server, used by the engine.
"""

import json
from collections import OrderedDict
from collections.abc import Sequence

from llguidance import LLMatcher, LLParserLimits, LLTokenizer

from inference.contracts import Grammar, GrammarKind
from inference.engine.answering.grammar import GrammarInvalid, GrammarMatcher
from inference.tokenizer.bundle import TOKENIZER_FILE, Bundle

GRAMMARS_KEPT_MAX = 64
"""Compiled grammars kept for the next request that brings the same."""
LEXER_STATES_MAX = 20_000
"""Per answer, at 1 to 2 kB each; the library's own limit would allow half a gigabyte. Its limits on
the work per token (some 15 ms) and on the size of a grammar stand as they are."""
MESSAGE_CHARS_MAX = 300
WHITESPACE = r"[ \n]{0,8}"
"""Between the parts of JSON: enough for an indented layout, and an end to a model that would go on
with white space for ever."""


class GrammarTooComplex(Exception):
    """The matcher gave up within an answer; that answer cannot go on."""


class LlguidanceGrammars:
    """`Grammars` over the vocabulary of one bundle. Building it takes about 0.6 s."""

    def __init__(self, bundle: Bundle) -> None:
        self._tokenizer = LLTokenizer(
            (bundle.folder / TOKENIZER_FILE).read_text(encoding="utf-8"),
            n_vocab=bundle.vocab_size,
            eos_token=list(bundle.stop_ids),
        )
        self._end_ids = frozenset(bundle.stop_ids)
        self._beginnings: OrderedDict[Grammar, LLMatcher] = OrderedDict()

    def matcher(self, grammar: Grammar) -> GrammarMatcher:
        """A matcher at the beginning of an answer. Raises GrammarInvalid."""
        beginning = self._beginnings.get(grammar)
        if beginning is None:
            beginning = self._compiled(grammar)
            self._beginnings[grammar] = beginning
            if len(self._beginnings) > GRAMMARS_KEPT_MAX:
                self._beginnings.popitem(last=False)
        self._beginnings.move_to_end(grammar)
        return _Matcher(beginning.deep_copy(), self._end_ids)

    def _compiled(self, grammar: Grammar) -> LLMatcher:
        if grammar.kind is GrammarKind.REGEX:
            source = LLMatcher.grammar_from_regex(grammar.source)
        else:
            schema = grammar.source or json.dumps({"type": "object"})
            try:
                source = LLMatcher.grammar_from_json_schema(
                    schema, overrides={"whitespace_pattern": WHITESPACE}
                )
            except ValueError as error:
                raise GrammarInvalid(_shortened(str(error))) from error
        limits = LLParserLimits(max_lexer_states=LEXER_STATES_MAX)
        matcher = LLMatcher(self._tokenizer, source, log_level=0, limits=limits)
        if matcher.is_error():
            raise GrammarInvalid(_shortened(matcher.get_error()))
        return matcher


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
            raise GrammarTooComplex(_shortened(self._matcher.get_error()))
        return masks

    def allowed_prefix(self, drafts: Sequence[int]) -> int:
        before_end = 0
        while before_end < len(drafts) and drafts[before_end] not in self._end_ids:
            before_end += 1
        return self._matcher.validate_tokens(list(drafts[:before_end]))

    def advance(self, token_id: int) -> None:
        # A token that is not taken leaves an error behind, which the next `masks` raises.
        self._matcher.consume_token(token_id)


def _shortened(message: str) -> str:
    return " ".join(message.split())[:MESSAGE_CHARS_MAX]
