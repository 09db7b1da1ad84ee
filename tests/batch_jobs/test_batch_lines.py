"""What a line says, and how many tokens an input is taken to hold."""

import json
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from batch_jobs.batches.estimate import SAMPLES_MAX, TEXT_CHARS_MAX, TokenEstimate
from batch_jobs.batches.lines import LineChecker, LineInvalid, body_of, leading_text, prompt_of

CHAT = "/v1/chat/completions"
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)
FIELDS = st.sampled_from(["custom_id", "method", "url", "body", "model", "messages", "stream"])


def words(texts: Sequence[str]) -> list[int]:
    """Tokens, where a word is one."""
    return [len(text.split()) for text in texts]


@settings(suppress_health_check=[HealthCheck.too_slow])  # the first draw of JSON takes a second
@given(
    st.binary(max_size=200) | st.dictionaries(FIELDS, JSON).map(lambda o: json.dumps(o).encode())
)
def test_no_line_breaks_the_reading_of_the_others(line: bytes) -> None:
    checked = None
    with suppress(LineInvalid):
        checked = LineChecker(CHAT, lambda model: True).check(line)

    assert checked is None or body_of(line) == checked.body


@given(st.dictionaries(st.sampled_from(["messages", "prompt", "input"]), JSON))
def test_a_body_of_any_shape_has_a_beginning_and_a_size(body: dict[str, Any]) -> None:
    assert isinstance(leading_text(body), str)
    text, ids = prompt_of(body)
    assert isinstance(text, str)
    assert ids >= 0


def test_a_request_begins_with_its_first_message() -> None:
    parts = [{"type": "text", "text": "first"}, {"type": "text", "text": "second"}]

    assert leading_text({"messages": [{"content": "one"}, {"content": "two"}]}) == "one"
    assert leading_text({"messages": [{"content": parts}]}) == "first"
    assert leading_text({"prompt": ["a", "b"]}) == "a"
    assert leading_text({"input": [[1, 2], [3]]}) == "[1, 2]"
    assert leading_text({}) == ""


def test_a_prompt_is_all_of_its_messages() -> None:
    body = {"messages": [{"role": "user", "content": [{"text": "b c"}]}, {"content": "a"}]}

    assert sorted(prompt_of(body)[0].split()) == ["a", "b", "c"]
    assert prompt_of({"prompt": [[1, 2], [3]]}) == ("", 3)


@given(st.integers(1, 1000))
def test_lines_that_are_alike_are_counted_exactly(lines: int) -> None:
    estimate = TokenEstimate()
    for _ in range(lines):
        estimate.add({"prompt": "three words here"}, 100)

    asked: list[int] = []

    def count(texts: Sequence[str]) -> list[int]:
        asked.append(len(texts))
        return words(texts)

    assert estimate.tokens(count) == 3 * lines
    assert asked[0] <= SAMPLES_MAX


def test_of_a_long_text_only_the_beginning_is_counted() -> None:
    estimate = TokenEstimate()
    estimate.add({"prompt": "a " * TEXT_CHARS_MAX}, 100)

    assert estimate.tokens(words) == TEXT_CHARS_MAX


def test_an_input_without_lines_has_no_tokens() -> None:
    assert TokenEstimate().tokens(words) == 0
