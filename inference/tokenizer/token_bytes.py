"""The bytes each token stands for, so that a stream of ids can be turned into text incrementally.

A token may hold half of a character, so ids map to bytes and never to strings. Built once per
engine process from the bundle; imports no torch. The detokenizer and stop-string matching call it.
"""

from tokenizers import Tokenizer

from inference.tokenizer.bundle import TOKENIZER_FILE, Bundle


class TokenBytes:
    """Byte strings by token id, for a byte-level BPE vocabulary."""

    def __init__(self, bundle: Bundle) -> None:
        tokenizer = Tokenizer.from_file(str(bundle.folder / TOKENIZER_FILE))
        byte_of = byte_of_character()
        special_ids = {
            token_id
            for token_id, token in tokenizer.get_added_tokens_decoder().items()
            if token.special
        }
        self._bytes = [b""] * bundle.vocab_size
        for token, token_id in tokenizer.get_vocab(with_added_tokens=True).items():
            if token_id not in special_ids:
                self._bytes[token_id] = bytes(byte_of[character] for character in token)

    def of(self, token_id: int) -> bytes:
        """The bytes of one token, b"" for a control token; IndexError outside the vocabulary."""
        if token_id < 0:
            raise IndexError(f"token id {token_id} is negative")
        return self._bytes[token_id]


def byte_of_character() -> dict[str, int]:
    """The inverse of the alphabet in which byte-level BPE vocabularies are spelled.

    Printable bytes of Latin-1 stand for themselves; the other 68 are numbered from U+0100 on.
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    alphabet = {chr(byte): byte for byte in printable}
    others = [byte for byte in range(256) if byte not in set(printable)]
    return alphabet | {chr(0x100 + index): byte for index, byte in enumerate(others)}
