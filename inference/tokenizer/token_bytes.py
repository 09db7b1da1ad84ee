"""The bytes each token stands for, so that a stream of ids can be turned into text incrementally.

A token may hold half of a character, so ids map to bytes and never to strings. Built once per
engine process from the bundle; imports no torch. The detokenizer and stop-string matching call it.
"""

import re

from tokenizers import Tokenizer

from inference.tokenizer.bundle import TOKENIZER_FILE, Bundle, BundleInvalid

BYTE_PIECE = re.compile("<0x([0-9A-F]{2})>")
SPACE_PIECE = "\u2581"
"""How SentencePiece spells a space."""


class TokenBytes:
    """Byte strings by token id."""

    def __init__(self, bundle: Bundle) -> None:
        """Raises BundleInvalid for a vocabulary that is not spelled in a known way."""
        tokenizer = Tokenizer.from_file(str(bundle.folder / TOKENIZER_FILE))
        spelling = Spelling(tokenizer)
        special_ids = {
            token_id
            for token_id, token in tokenizer.get_added_tokens_decoder().items()
            if token.special
        }
        self._bytes = [b""] * bundle.vocab_size
        for token, token_id in tokenizer.get_vocab(with_added_tokens=True).items():
            if token_id not in special_ids:
                self._bytes[token_id] = spelling.bytes_of(token_id, token)

    def of(self, token_id: int) -> bytes:
        """The bytes of one token, b"" for a control token; IndexError outside the vocabulary."""
        if token_id < 0:
            raise IndexError(f"token id {token_id} is negative")
        return self._bytes[token_id]


class Spelling:
    """How one vocabulary spells bytes: in the alphabet of byte-level BPE, or as SentencePiece does
    (`▁` for a space, `<0x0A>` for a byte). Tokens that were added later stand for themselves."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._added = frozenset(tokenizer.get_added_tokens_decoder())
        self._in_pieces: bool = tokenizer.model.byte_fallback

    def bytes_of(self, token_id: int, spelled: str) -> bytes:
        """The bytes of one token. Raises BundleInvalid for a spelling of another kind."""
        if token_id in self._added:
            return spelled.encode()
        if self._in_pieces:
            byte = BYTE_PIECE.fullmatch(spelled)
            return bytes.fromhex(byte[1]) if byte else spelled.replace(SPACE_PIECE, " ").encode()
        try:
            return bytes(_BYTE_OF[character] for character in spelled)
        except KeyError as error:
            raise BundleInvalid(f"token {spelled!r} is not spelled in bytes") from error


def _byte_of_character() -> dict[str, int]:
    """The inverse of the alphabet in which byte-level BPE vocabularies are spelled.

    Printable bytes of Latin-1 stand for themselves; the other 68 are numbered from U+0100 on.
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    alphabet = {chr(byte): byte for byte in printable}
    others = [byte for byte in range(256) if byte not in set(printable)]
    return alphabet | {chr(0x100 + index): byte for index, byte in enumerate(others)}


_BYTE_OF = _byte_of_character()
