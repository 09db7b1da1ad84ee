"""Log probabilities in OpenAI's two shapes. Pure.

Tokens are shown as `TokenTexts` spells them, never guessed; what cannot be drawn has -9999.0, since
JSON knows no infinity.
"""

from collections.abc import Sequence
from typing import Any

from inference.contracts import TokenLogprob
from inference.tokenizer.token_texts import TokenTexts

LOGPROB_MIN = -9999.0


def chat_logprobs(entries: Sequence[TokenLogprob], texts: TokenTexts) -> dict[str, Any]:
    """The shape of chat completions: one object a token."""
    content = [
        {
            **_chat_token(entry.token_id, entry.logprob, texts),
            "top_logprobs": [_chat_token(*alternative, texts) for alternative in entry.top],
        }
        for entry in entries
    ]
    return {"content": content, "refusal": None}


def _chat_token(token_id: int, logprob: float, texts: TokenTexts) -> dict[str, Any]:
    token = texts.of(token_id)
    return {
        "token": token.text,
        "logprob": max(logprob, LOGPROB_MIN),
        "bytes": None if token.data is None else list(token.data),
    }


class LegacyLogprobs:
    """The shape of plain completions: parallel lists. One object for each choice of an answer,
    since `text_offset` goes on from chunk to chunk."""

    def __init__(self, texts: TokenTexts, alternatives: int) -> None:
        self._texts = texts
        self._alternatives = alternatives
        self._characters = 0

    def of(self, entries: Sequence[TokenLogprob]) -> dict[str, Any]:
        """The next tokens of this choice."""
        tokens, offsets = [], []
        for entry in entries:
            token = self._texts.of(entry.token_id)
            tokens.append(token.text)
            offsets.append(self._characters)
            # Every character of UTF-8 has one byte that is no continuation.
            self._characters += sum(byte & 0xC0 != 0x80 for byte in token.data or b"")
        return {
            "tokens": tokens,
            "token_logprobs": [max(entry.logprob, LOGPROB_MIN) for entry in entries],
            "top_logprobs": [self._top(entry) for entry in entries] if self._alternatives else None,
            "text_offset": offsets,
        }

    def _top(self, entry: TokenLogprob) -> dict[str, float]:
        """The most probable, and the drawn token where it is not among them."""
        alternatives = dict(entry.top) | {entry.token_id: entry.logprob}
        return {
            self._texts.of(token_id).text: max(logprob, LOGPROB_MIN)
            for token_id, logprob in alternatives.items()
        }
