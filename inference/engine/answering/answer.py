"""The text side of one answer: what may be shown of it now, and whether a stop string ended it.

Joins detokenizer, stop strings and log probabilities, so that all three agree on what has been
shown: a token's log probability appears with the text of the token, never before it. One per
sequence, used by the engine.
"""

from collections import deque
from dataclasses import dataclass

from inference.contracts import SamplingParams, TokenLogprob
from inference.engine.answering.detokenizer import Detokenizer, TokenTexts
from inference.engine.answering.stop_strings import StopStrings
from inference.engine.step import Drawn


@dataclass(frozen=True, slots=True)
class Shown:
    """What became certain: text, the log probabilities of the tokens whose text is complete."""

    text: str = ""
    logprobs: tuple[TokenLogprob, ...] = ()


class Answer:
    """Grows by `push`, ends by `end`."""

    def __init__(self, texts: TokenTexts, sampling: SamplingParams) -> None:
        self.stopped = False
        """Whether a stop string has ended it; nothing may be pushed any more."""
        self._detokenizer = Detokenizer(texts)
        self._stop_strings = StopStrings(sampling.stop)
        self._min_tokens = sampling.min_tokens
        self._tokens = 0
        self._made_chars = 0
        self._shown_chars = 0
        self._held: deque[tuple[int, TokenLogprob]] = deque()

    def push(self, drawn: Drawn) -> Shown:
        """Takes the next token of the text (a stop token is none)."""
        self._tokens += 1
        piece = self._detokenizer.push(drawn.token_id)
        self._made_chars += len(piece)
        if drawn.logprob is not None:
            # A part of a character is shown when the character is.
            ends_at = self._made_chars + self._detokenizer.within_character
            self._held.append((ends_at, drawn.logprob))
        # What the first `min_tokens` tokens say is never part of a stop string.
        return self._show(piece, may_stop=self._tokens > self._min_tokens)

    def end(self) -> Shown:
        """The tail, when no token follows; a stop string completed only now sets `stopped`."""
        if self.stopped:
            return Shown()
        piece = self._detokenizer.flush()
        self._made_chars += len(piece)
        shown = self._show(piece, may_stop=True)
        if self.stopped:
            return shown
        tail = self._stop_strings.flush()
        self._shown_chars += len(tail)
        return Shown(shown.text + tail, shown.logprobs + self._released())

    def _show(self, piece: str, *, may_stop: bool) -> Shown:
        text = piece
        if may_stop:
            text, self.stopped = self._stop_strings.push(piece)
        self._shown_chars += len(text)
        return Shown(text, self._released())

    def _released(self) -> tuple[TokenLogprob, ...]:
        """Those whose text has been shown to its end."""
        released = []
        while self._held and self._held[0][0] <= self._shown_chars:
            released.append(self._held.popleft()[1])
        return tuple(released)
