"""Log probabilities appear with the text they belong to, and never before it."""

from hypothesis import given
from hypothesis import strategies as st

from inference.contracts import SamplingParams, TokenLogprob
from inference.engine.answering.answer import Answer
from inference.engine.step import Drawn
from tests.inference.engine.stub_runner import ByteTokens


def pushed(text: bytes, *stop: str) -> tuple[list[str], list[list[int]], Answer]:
    answer = Answer(ByteTokens(), SamplingParams(max_tokens=99, stop=stop, logprobs=0))
    texts: list[str] = []
    tokens: list[list[int]] = []
    for byte in text:
        shown = answer.push(Drawn(byte, TokenLogprob(byte, -1.0)))
        texts.append(shown.text)
        tokens.append([logprob.token_id for logprob in shown.logprobs])
        if answer.stopped:
            return texts, tokens, answer
    shown = answer.end()
    return [*texts, shown.text], [*tokens, [held.token_id for held in shown.logprobs]], answer


def test_what_is_held_back_for_a_stop_holds_its_logprobs_back() -> None:
    texts, tokens, _ = pushed(b"abcd!", "cde")

    assert texts == ["a", "b", "", "", "cd!", ""]
    assert tokens == [[ord("a")], [ord("b")], [], [], [ord(c) for c in "cd!"], []]


def test_nothing_of_a_stop_string_is_shown_not_even_its_logprobs() -> None:
    texts, tokens, answer = pushed(b"ty of No", " of ")

    assert answer.stopped
    assert "".join(texts) == "ty"
    assert [token for step in tokens for token in step] == [ord("t"), ord("y")]


@given(st.text("ab\ncé漢", max_size=20), st.sampled_from(["\n", "ab", "abc", "漢a"]))
def test_every_token_of_shown_text_comes_with_its_logprob(text: str, stop: str) -> None:
    texts, tokens, _ = pushed(text.encode(), stop)

    shown = "".join(texts)
    assert shown == text.partition(stop)[0]
    assert bytes(token for step in tokens for token in step) == shown.encode()
