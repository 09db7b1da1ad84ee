"""Incremental decoding of text that tokens cut anywhere."""

from hypothesis import given
from hypothesis import strategies as st

from inference.engine.answering.detokenizer import Detokenizer
from tests.inference.engine.stub_runner import ByteTokens

HARD_TEXT = "😀👍🏽漢字é"


class Pieces:
    """Token t is the t-th of these byte strings."""

    def __init__(self, pieces: list[bytes]) -> None:
        self.pieces = pieces

    def of(self, token_id: int) -> bytes:
        return self.pieces[token_id]


def decode(pieces: list[bytes]) -> list[str]:
    detokenizer = Detokenizer(Pieces(pieces))
    return [*(detokenizer.push(t) for t in range(len(pieces))), detokenizer.flush()]


@given(st.lists(st.binary(max_size=5), max_size=30))
def test_pieces_joined_equal_the_whole_decoded_at_once(pieces: list[bytes]) -> None:
    assert "".join(decode(pieces)) == b"".join(pieces).decode("utf-8", errors="replace")


@given(st.text(), st.integers(1, 4))
def test_valid_text_never_shows_a_replacement_character(text: str, size: int) -> None:
    data = text.encode("utf-8", errors="ignore")
    expected = data.decode()

    pieces = decode([data[start : start + size] for start in range(0, len(data), size)])

    assert "".join(pieces) == expected
    assert sum(piece.count("\ufffd") for piece in pieces) == expected.count("\ufffd")


def test_a_character_appears_whole_with_its_last_byte() -> None:
    detokenizer = Detokenizer(ByteTokens())

    shown = [detokenizer.push(byte) for byte in HARD_TEXT.encode()]

    assert [text for text in shown if text] == list(HARD_TEXT)
    assert detokenizer.flush() == ""


def test_an_unfinished_character_is_replaced_at_the_end_only() -> None:
    detokenizer = Detokenizer(ByteTokens())

    shown = [detokenizer.push(byte) for byte in "é漢".encode()[:-1]]

    assert "".join(shown) == "é"
    assert detokenizer.flush() == "\ufffd"
