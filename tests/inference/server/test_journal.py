"""The finish journal: what was synced survives, what was acknowledged does not come back."""

import logging
import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inference.contracts import Finish, FinishReason, TokenCounts
from inference.server import journal as journal_module
from inference.server.journal import Journal, JournalError

COUNTS = TokenCounts(prompt=10, cached=0, completion=3)


def finish(request_id: str, reason: FinishReason = FinishReason.STOP) -> Finish:
    return Finish(request_id, reason, COUNTS, COUNTS, error_message="tail é")


def write(folder: Path, recorded: list[Finish], acknowledged: list[str]) -> Path:
    journal = Journal(folder)
    journal.record(recorded)
    journal.acknowledge(acknowledged)
    journal.close()
    return folder / "finishes.journal"


class Kept(logging.Handler):
    """Keeps what is logged."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


@contextmanager
def captured_log() -> Iterator[list[logging.LogRecord]]:
    """What the journal logs meanwhile; `caplog` is one for all examples of a property."""
    kept = Kept()
    journal_module.logger.addHandler(kept)
    try:
        yield kept.records
    finally:
        journal_module.logger.removeHandler(kept)


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


@pytest.mark.parametrize("kept_bytes", [1, 7, 8, 9, 40])
def test_a_torn_last_write_is_set_aside_and_the_rest_survives(
    tmp_path: Path, kept_bytes: int, caplog: pytest.LogCaptureFixture
) -> None:
    path = write(tmp_path, [finish("a")], [])
    whole = path.read_bytes()
    path.write_bytes(whole + whole[:kept_bytes])

    journal = Journal(tmp_path)
    journal.record([finish("b")])
    journal.close()

    reopened = Journal(tmp_path)
    assert set(reopened.unacknowledged) == {"a", "b"}
    assert (tmp_path / "finishes.torn.1").read_bytes() == whole[:kept_bytes]
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert f"bytes={kept_bytes} " in caplog.text
    reopened.close()


def test_a_tail_of_zeros_is_set_aside(tmp_path: Path) -> None:
    path = write(tmp_path, [finish("a")], [])
    path.write_bytes(path.read_bytes() + bytes(4096))

    journal = Journal(tmp_path)

    assert set(journal.unacknowledged) == {"a"}
    assert (tmp_path / "finishes.torn.1").read_bytes() == bytes(4096)
    journal.close()


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_a_flipped_bit_costs_its_own_record_only_and_is_an_error(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("journal")
    path = write(folder, [finish("a"), finish("b"), finish("c")], [])
    content = bytearray(path.read_bytes())
    size = len(content) // 3
    at = data.draw(st.integers(size, 2 * size - 1))
    content[at] ^= 1 << data.draw(st.integers(0, 7))
    path.write_bytes(content)

    with captured_log() as log:
        journal = Journal(folder)
        journal.record([finish("d")])
        journal.close()

    assert [record.levelname for record in log] == ["ERROR"]
    assert f"bytes={size} places=1 " in log[0].getMessage()
    assert (folder / "finishes.torn.1").read_bytes() == bytes(content[size : 2 * size])
    reopened = Journal(folder)
    assert set(reopened.unacknowledged) == {"a", "c", "d"}
    reopened.close()


def test_a_flipped_bit_in_the_last_record_is_an_error_too(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = write(tmp_path, [finish("a"), finish("b")], [])
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)

    journal = Journal(tmp_path)

    assert set(journal.unacknowledged) == {"a"}
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    journal.close()


def test_what_was_set_aside_before_is_kept_up_to_a_number_of_files(tmp_path: Path) -> None:
    path = write(tmp_path, [finish("a")], [])
    for length in range(1, journal_module.ASIDE_FILES_MAX + 3):
        path.write_bytes(path.read_bytes() + b"x" * length)
        Journal(tmp_path).close()

    kept = sorted(len(aside.read_bytes()) for aside in tmp_path.glob("finishes.torn.*"))

    assert kept == list(range(3, journal_module.ASIDE_FILES_MAX + 3))


def test_a_record_of_another_version_is_never_dropped(tmp_path: Path) -> None:
    path = write(tmp_path, [], [])
    body = msgspec.msgpack.encode({"type": "from the future", "finishes": []})
    path.write_bytes(struct.pack(">II", len(body), zlib.crc32(body)) + body)

    with pytest.raises(JournalError, match="another version at byte 0"):
        Journal(tmp_path)


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
