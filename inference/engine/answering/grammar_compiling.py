"""From the source of a grammar to a matcher at its beginning, whatever the vocabulary.

Used by the engine over its model's vocabulary, and by the trial of a grammar over the bytes, in a
process of its own. It has no bound on time or memory: nothing may come here untried that somebody
else waits for. Torch-free and light to import.
"""

import json

from llguidance import LLMatcher, LLParserLimits, LLTokenizer

from inference.contracts import Grammar, GrammarKind
from inference.engine.answering.grammar import GrammarInvalid

LEXER_STATES_MAX = 20_000
"""Per answer, at 1 to 2 kB each; the library's own limit would allow half a gigabyte. Its limits on
the work per token (some 15 ms) and on the size of a grammar stand as they are."""
MESSAGE_CHARS_MAX = 300
WHITESPACE = r"[ \n]{0,8}"
"""Between the parts of JSON: enough for an indented layout, and an end to a model that would go on
with white space for ever."""


def compiled(tokenizer: LLTokenizer, grammar: Grammar) -> LLMatcher:
    """A matcher that has computed its first mask. Raises GrammarInvalid."""
    if grammar.kind is GrammarKind.REGEX:
        source = LLMatcher.grammar_from_regex(grammar.source)
    else:
        schema = grammar.source or json.dumps({"type": "object"})
        try:
            source = LLMatcher.grammar_from_json_schema(
                schema, overrides={"whitespace_pattern": WHITESPACE}
            )
        except ValueError as error:
            raise GrammarInvalid(shortened(str(error))) from error
    limits = LLParserLimits(max_lexer_states=LEXER_STATES_MAX)
    matcher = LLMatcher(tokenizer, source, log_level=0, limits=limits)
    if matcher.is_error():
        raise GrammarInvalid(shortened(matcher.get_error()))
    matcher.compute_bitmask()
    if matcher.is_error():
        # The rest of the message is the state of the parser.
        reason = matcher.get_error().partition("\n")[0]
        raise GrammarInvalid(shortened(f"the grammar allows no beginning: {reason}"))
    return matcher


def shortened(message: str) -> str:
    """What the library says, on one line of bounded length."""
    return " ".join(message.split())[:MESSAGE_CHARS_MAX]
