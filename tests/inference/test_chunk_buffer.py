"""Merging chunks by choice: nothing is lost, counts say exactly what was taken."""

from collections import defaultdict

from hypothesis import given
from hypothesis import strategies as st

from inference.chunk_buffer import CHUNK_TOKENS_MAX, ChunkBuffer
from inference.contracts import Chunk, FinishReason, TokenCounts, TokenLogprob


def a_chunk(choice: int, completion: int, text: str, reason: FinishReason | None = None) -> Chunk:
    logprob = TokenLogprob(completion, -1.0)
    return Chunk(
        "r", text, (completion,), TokenCounts(5, 0, completion), choice, (logprob,), reason
    )


@given(st.lists(st.tuples(st.integers(0, 3), st.booleans())))
def test_every_choice_keeps_its_text_and_counts_grow_by_what_is_taken(
    steps: list[tuple[int, bool]],
) -> None:
    buffer = ChunkBuffer("r")
    expected: dict[int, str] = defaultdict(str)
    texts: dict[int, str] = defaultdict(str)
    taken_tokens = 0
    for number, (choice, take_one) in enumerate([*steps, (0, False)], start=1):
        text = chr(0x4E00 + number)
        expected[choice] += text
        buffer.add(a_chunk(choice, number, text))
        while (take_one or number > len(steps)) and (chunk := buffer.take()) is not None:
            taken_tokens += len(chunk.token_ids)
            texts[chunk.choice] += chunk.text

            assert chunk.counts == TokenCounts(5, 0, taken_tokens)
            assert [entry.token_id for entry in chunk.logprobs] == list(chunk.token_ids)
            if take_one:
                break

    assert texts == expected
    assert not buffer


def long_answers(tokens: int) -> ChunkBuffer:
    buffer = ChunkBuffer("r")
    for number in range(1, tokens + 1):
        reason = FinishReason.LENGTH if number > tokens - 2 else None
        buffer.add(a_chunk(number % 2, number, str(number % 10), reason))
    return buffer


def test_what_gained_too_much_for_a_chunk_is_taken_in_several() -> None:
    tokens = CHUNK_TOKENS_MAX * 2 + 1000
    chunks = list(iter(long_answers(tokens).take, None))

    assert [(chunk.choice, len(chunk.token_ids)) for chunk in chunks] == [
        (1, CHUNK_TOKENS_MAX),
        (0, CHUNK_TOKENS_MAX),
        (1, 500),
        (0, 500),
    ]
    assert [bool(chunk.finish_reason) for chunk in chunks] == [False, False, True, True]
    assert chunks[2].counts.completion == tokens - 500
    for choice in (0, 1):
        text = "".join(chunk.text for chunk in chunks if chunk.choice == choice)
        assert text == "".join(str(n % 10) for n in range(1, tokens + 1) if n % 2 == choice)


def test_all_at_once_is_one_chunk_for_each_choice() -> None:
    tokens = CHUNK_TOKENS_MAX * 4
    buffer = long_answers(tokens)
    first, second = buffer.take_all()

    assert (first.choice, second.choice, bool(buffer)) == (1, 0, False)
    assert len(first.token_ids) == len(first.logprobs) == len(first.text) == tokens // 2
    assert (first.finish_reason, first.counts.completion) == (FinishReason.LENGTH, tokens // 2)
    assert second.counts.completion == tokens


def test_the_end_of_a_choice_and_an_embedding_are_kept() -> None:
    buffer = ChunkBuffer("r")
    buffer.add(a_chunk(1, 1, "a"))
    buffer.add(a_chunk(1, 2, "b", FinishReason.LENGTH))
    buffer.add(Chunk("r", "", (), TokenCounts(5, 0, 2), choice=0, embedding=b"1234"))

    assert bool(buffer)
    ended, embedded, nothing = buffer.take(), buffer.take(), buffer.take()
    assert ended is not None
    assert (ended.choice, ended.text, ended.finish_reason) == (1, "ab", FinishReason.LENGTH)
    assert embedded is not None
    assert (embedded.choice, embedded.embedding, embedded.finish_reason) == (0, b"1234", None)
    assert nothing is None
