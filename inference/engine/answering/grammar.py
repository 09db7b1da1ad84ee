"""What the engine needs of constrained answers: a matcher per sequence, made from a grammar.

The interface only, torch-free; `llguidance_grammars` implements it. A grammar that cannot be
compiled is its own request's refusal and nobody else's problem.
"""

from collections.abc import Sequence
from typing import Protocol

from inference.contracts import Grammar


class GrammarInvalid(Exception):
    """The grammar cannot be used; the message is fit for the caller."""


class GrammarTooComplex(Exception):
    """The matcher gave up within an answer, which cannot go on; the message is for the caller."""


class GrammarMatcher(Protocol):
    """Where one answer stands in its grammar."""

    def masks(self, drafts: Sequence[int]) -> list[bytes]:
        """What may follow now, and after each of `drafts` (all of them allowed): one bit per
        vocabulary entry in little-endian 32-bit words. Changes nothing. Raises
        GrammarTooComplex."""
        ...

    def allowed_prefix(self, drafts: Sequence[int]) -> int:
        """How many of `drafts`, from the first on, the grammar allows. Changes nothing."""
        ...

    def advance(self, token_id: int) -> None:
        """Takes a drawn token, which must have been allowed."""
        ...


class Grammars(Protocol):
    """Compiles grammars for one vocabulary."""

    def matcher(self, grammar: Grammar) -> GrammarMatcher:
        """A matcher at its beginning. Raises GrammarInvalid."""
        ...


def new_matcher(grammar: Grammar | None, grammars: Grammars | None) -> GrammarMatcher | None:
    """The matcher of a new answer, None for a free one. Raises GrammarInvalid."""
    if grammar is None:
        return None
    if grammars is None:
        raise GrammarInvalid("this engine takes no grammars")
    return grammars.matcher(grammar)
