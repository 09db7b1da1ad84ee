"""The block pool under arbitrary sequences of use, against a plain model of who owns what."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from inference.engine.scheduling.block_pool import BlockPool

BLOCKS = 6
DIGESTS = [bytes([n]) for n in range(8)]


class PoolUse(RuleBasedStateMachine):
    """Sequences that take, share, publish and release blocks in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = BlockPool(BLOCKS)
        self.sequences: list[list[int]] = []

    @rule(count=st.integers(0, BLOCKS))
    def allocate(self, count: int) -> None:
        if count <= self.pool.available:
            self.sequences.append(self.pool.allocate(count))

    @rule(digests=st.lists(st.sampled_from(DIGESTS), unique=True, max_size=4))
    def share_found(self, digests: list[bytes]) -> None:
        found = self.pool.match(digests)
        self.pool.share(found)
        self.sequences.append(found)

    @precondition(lambda self: any(self.sequences))
    @rule(data=st.data(), digest=st.sampled_from(DIGESTS))
    def publish(self, data: st.DataObject, digest: bytes) -> None:
        sequence = data.draw(st.sampled_from([s for s in self.sequences if s]))
        self.pool.publish(data.draw(st.sampled_from(sequence)), digest)

    @precondition(lambda self: self.sequences)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        index = data.draw(st.integers(0, len(self.sequences) - 1))
        self.pool.release(self.sequences.pop(index))

    @invariant()
    def owners_are_exactly_the_sequences(self) -> None:
        self.pool.check()
        held = [block for sequence in self.sequences for block in sequence]
        assert [self.pool.owners(block) for block in range(BLOCKS)] == [
            held.count(block) for block in range(BLOCKS)
        ]
        assert self.pool.used == len(set(held))
        assert self.pool.available == BLOCKS - self.pool.used


PoolUse.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestPoolUse = PoolUse.TestCase


def test_a_released_block_stays_findable_until_it_is_reused() -> None:
    pool = BlockPool(2)
    first = pool.allocate(1)
    pool.publish(first[0], b"first")
    pool.release(first)

    assert pool.match([b"first"]) == first

    pool.allocate(2)

    assert pool.match([b"first"]) == []


def test_blank_blocks_are_taken_before_cached_ones() -> None:
    pool = BlockPool(3)
    kept = pool.allocate(1)
    pool.publish(kept[0], b"kept")
    pool.release(kept)

    pool.allocate(2)

    assert pool.match([b"kept"]) == kept


def test_the_longest_unused_prefix_goes_first_and_from_its_far_end() -> None:
    pool = BlockPool(4)
    old, new = pool.allocate(2), pool.allocate(2)
    for blocks, names in ((old, (b"o1", b"o2")), (new, (b"n1", b"n2"))):
        for block, name in zip(blocks, names, strict=True):
            pool.publish(block, name)
        pool.release(blocks)

    pool.allocate(1)

    assert pool.match([b"o1", b"o2"]) == old[:1]
    assert pool.match([b"n1", b"n2"]) == new


def test_a_shared_block_is_freed_only_by_its_last_owner() -> None:
    pool = BlockPool(1)
    blocks = pool.allocate(1)
    pool.publish(blocks[0], b"shared")
    pool.share(pool.match([b"shared"]))
    pool.release(blocks)

    assert pool.used == 1

    pool.release(blocks)

    assert (pool.used, pool.cached) == (0, 1)


def test_the_first_block_of_equal_content_stays_the_findable_one() -> None:
    pool = BlockPool(2)
    first, second = pool.allocate(1), pool.allocate(1)
    pool.publish(first[0], b"same")
    pool.publish(second[0], b"same")
    pool.release(second)

    assert pool.match([b"same"]) == first
    assert (pool.used, pool.cached, pool.available) == (1, 0, 1)


def test_releasing_twice_is_caught() -> None:
    pool = BlockPool(1)
    blocks = pool.allocate(1)
    pool.release(blocks)

    with pytest.raises(AssertionError, match="released twice"):
        pool.release(blocks)
