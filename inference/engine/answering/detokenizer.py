"""Turns the token ids of one request into text as they come.

Bytes of an unfinished UTF-8 character wait for the rest; only bytes that can no longer become a
character turn into U+FFFD, so the pieces joined always equal the whole decoded at once. One
instance per request, used by the engine.
"""

import codecs
from typing import Protocol


class TokenTexts(Protocol):
    """The bytes of each token; `inference.tokenizer.token_bytes.TokenBytes` is the real one."""

    def of(self, token_id: int) -> bytes:
        """The token's bytes, b"" for special tokens."""
        ...


_Utf8Decoder = codecs.getincrementaldecoder("utf-8")


class Detokenizer:
    """Incremental decoding of one output."""

    def __init__(self, texts: TokenTexts) -> None:
        self._texts = texts
        self._decoder = _Utf8Decoder(errors="replace")

    @property
    def within_character(self) -> bool:
        """Whether the last token left a character unfinished."""
        return bool(self._decoder.getstate()[0])

    def push(self, token_id: int) -> str:
        """The text that became certain with this token; maybe empty."""
        return self._decoder.decode(self._texts.of(token_id))

    def flush(self) -> str:
        """The end of the output: what was waiting for more bytes, as U+FFFD, or nothing."""
        return self._decoder.decode(b"", final=True)
