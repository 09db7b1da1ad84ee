"""The finish journal: what was synced survives, what was acknowledged does not come back."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inference.contracts import Finish, FinishReason, TokenCounts
from inference.server import journal as journal_module
from inference.server.journal import Journal, JournalError

COUNTS = TokenCounts(prompt=10, cached=0, completion=3)


def finish(request_id: str, reason: FinishReason = FinishReason.STOP) -> Finish:
    return Finish(request_id, reason, "tail é", COUNTS, COUNTS)


def write(folder: Path, recorded: list[Finish], acknowledged: list[str]) -> Path:
    journal = Journal(folder)
    journal.record(recorded)
    journal.acknowledge(acknowledged)
    journal.close()
    return folder / "finishes.journal"


def test_unacknowledged_finishes_come_back_as_they_were(tmp_path: Path) -> None:
    write(tmp_path, [finish("a"), finish("b"), finish("c")], ["b"])

    journal = Journal(tmp_path)

    assert journal.unacknowledged == {"a": finish("a"), "c": finish("c")}
    journal.close()


def test_a_later_record_of_a_request_replaces_the_earlier_one(tmp_path: Path) -> None:
    write(tmp_path, [finish("a"), finish("a", FinishReason.PEER_LOST)], [])

    journal = Journal(tmp_path)

    assert journal.unacknowledged == {"a": finish("a", FinishReason.PEER_LOST)}
    journal.close()


def test_acknowledging_the_unknown_or_twice_changes_nothing(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.record([finish("a")])

    assert journal.acknowledge(["x", "a", "a"]) == ["a"]
    assert journal.acknowledge(["a"]) == []
    journal.close()


@pytest.mark.parametrize("kept_bytes", [1, 7, 9, 40])
def test_a_torn_last_write_is_set_aside_and_the_rest_survives(
    tmp_path: Path, kept_bytes: int
) -> None:
    path = write(tmp_path, [finish("a")], [])
    whole = path.read_bytes()
    path.write_bytes(whole + whole[:kept_bytes])

    journal = Journal(tmp_path)
    journal.record([finish("b")])
    journal.close()

    reopened = Journal(tmp_path)
    assert set(reopened.unacknowledged) == {"a", "b"}
    assert (tmp_path / "finishes.torn").read_bytes() == whole[:kept_bytes]
    reopened.close()


def test_a_flipped_bit_is_noticed(tmp_path: Path) -> None:
    path = write(tmp_path, [finish("a")], [])
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)

    journal = Journal(tmp_path)

    assert journal.unacknowledged == {}
    assert (tmp_path / "finishes.torn").read_bytes() == bytes(content)
    journal.close()


def test_two_engines_cannot_share_a_journal(tmp_path: Path) -> None:
    journal = Journal(tmp_path)

    with pytest.raises(JournalError, match="belongs to a running engine"):
        Journal(tmp_path)
    journal.close()


def test_a_folder_that_cannot_be_made_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(JournalError, match="cannot open the journal"):
        Journal(tmp_path / "file" / "journal")


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from("abcdef"), st.booleans()).map(
            lambda pair: (f"{pair[0]}", pair[1])
        ),
        max_size=60,
    )
)
def test_compaction_keeps_exactly_the_unacknowledged(
    tmp_path_factory: pytest.TempPathFactory, uses: list[tuple[str, bool]]
) -> None:
    folder = tmp_path_factory.mktemp("journal")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(journal_module, "COMPACT_BYTES_MIN", 200)
        journal = Journal(folder)
        expected: dict[str, Finish] = {}
        for request_id, is_finish in uses:
            if is_finish:
                journal.record([finish(request_id)])
                expected[request_id] = finish(request_id)
            else:
                journal.acknowledge([request_id])
                expected.pop(request_id, None)
            journal.compact_if_due()
        journal.close()

    reopened = Journal(folder)
    assert reopened.unacknowledged == expected
    reopened.close()


def test_the_file_does_not_grow_with_what_is_settled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_module, "COMPACT_BYTES_MIN", 1000)
    journal = Journal(tmp_path)
    for number in range(300):
        journal.record([finish(f"r{number}")])
        journal.acknowledge([f"r{number}"])
        journal.compact_if_due()

    size = (tmp_path / "finishes.journal").stat().st_size

    assert size < 1500
    journal.close()
