"""How single tokens are shown to a caller who asks for their log probabilities.

A token may be half a character or a control token, so its text is never guessed: bytes that are no
text of their own are written as escapes. Called by the web's dialects; imports no torch, and looks
tokens up in the prompt encoder's tokenizer, since a table of all of them would take 26 MB.
"""

from dataclasses import dataclass

from tokenizers import Tokenizer

from inference.tokenizer.token_bytes import Spelling


@dataclass(frozen=True, slots=True)
class TokenText:
    """One token: `text` to show, `data` the bytes it adds to an answer (None: control token)."""

    text: str
    data: bytes | None


class TokenTexts:
    """Texts by token id. Thread-safe."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._spelling = Spelling(tokenizer)
        self._control = {
            token_id: token.content
            for token_id, token in tokenizer.get_added_tokens_decoder().items()
            if token.special
        }

    def of(self, token_id: int) -> TokenText:
        r"""What to show for a token: its text, a control token's name, `\xf0\x9f` for bytes that
        are not a whole character, `token_id:N` for a place that the vocabulary leaves empty."""
        name = self._control.get(token_id)
        if name is not None:
            return TokenText(name, None)
        spelled = self._tokenizer.id_to_token(token_id)
        if spelled is None:
            return TokenText(f"token_id:{token_id}", None)
        data = self._spelling.bytes_of(token_id, spelled)
        try:
            return TokenText(data.decode(), data)
        except UnicodeDecodeError:
            return TokenText("".join(f"\\x{byte:02x}" for byte in data), data)
