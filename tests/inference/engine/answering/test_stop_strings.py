"""Stop strings: nothing of one is ever shown, and nothing else is held back."""

from hypothesis import given
from hypothesis import strategies as st

from inference.engine.answering.stop_strings import StopStrings

letters = st.text(alphabet="ab", max_size=40)
stops = st.lists(st.text(alphabet="ab", min_size=1, max_size=5), max_size=3)


def run(pieces: list[str], stop: list[str]) -> tuple[list[str], bool]:
    matcher = StopStrings(stop)
    shown = []
    for piece in pieces:
        text, stopped = matcher.push(piece)
        shown.append(text)
        if stopped:
            return shown, True
    return [*shown, matcher.flush()], False


def cut(text: str, stop: list[str]) -> tuple[str, bool]:
    """The definition, character by character: the first complete stop ends the text before it."""
    for end in range(1, len(text) + 1):
        for start in range(end):
            if text[start:end] in stop:
                return text[:start], True
    return text, False


@given(letters, stops, st.data())
def test_the_text_is_cut_at_the_first_stop_however_it_is_split(
    text: str, stop: list[str], data: st.DataObject
) -> None:
    cuts = sorted(data.draw(st.sets(st.integers(0, len(text)), max_size=10)))
    pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]

    shown, stopped = run(pieces, stop)

    assert ("".join(shown), stopped) == cut(text, stop)


@given(letters, stops)
def test_only_what_may_still_become_a_stop_is_held_back(text: str, stop: list[str]) -> None:
    matcher = StopStrings(stop)
    shown = ""
    for index, character in enumerate(text):
        piece, stopped = matcher.push(character)
        shown += piece
        if stopped:
            return
        held = text[len(shown) : index + 1]

        assert held == "" or any(s.startswith(held) and s != held for s in stop)


def test_a_stop_across_tokens_leaks_no_prefix() -> None:
    shown, stopped = run(["The universi", "ty", " of", " No", "where"], ["ty of No"])

    assert (shown, stopped) == (["The universi", "", "", ""], True)


def test_a_long_stop_does_not_delay_other_text() -> None:
    shown, _ = run(["Hello ", "world"], ["x" * 20])

    assert shown == ["Hello ", "world", ""]


def test_a_prefix_that_turns_out_harmless_is_shown() -> None:
    shown, stopped = run(["a\n", "\nb"], ["\n\n\n"])

    assert (shown, stopped) == (["a", "\n\nb", ""], False)
