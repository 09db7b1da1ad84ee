"""The KV blocks of one engine: who uses which, and which finished prefixes can be found again.

Pure bookkeeping over block numbers: it never touches KV memory and knows neither requests nor
policy. Called by the scheduler alone, from the compute thread.

A block is in one of three states, and `check` holds the sum:

    blank    no owner, no content worth finding
    cached   no owner, content findable by digest; the longest unused is reused first
    used     one owner or several (a shared prefix); findable too once it is full and computed
"""

from collections import OrderedDict
from collections.abc import Iterable, Sequence


class BlockPool:
    """Reference-counted blocks 0 .. block_count - 1 with an O(1) least-recently-used free list."""

    def __init__(self, block_count: int) -> None:
        if block_count < 1:
            raise ValueError("a block pool needs at least one block")
        self.block_count = block_count
        self._owners = [0] * block_count
        self._digest_of: list[bytes | None] = [None] * block_count
        self._block_of: dict[bytes, int] = {}
        self._blank = list(range(block_count - 1, -1, -1))
        self._cached: OrderedDict[int, None] = OrderedDict()

    @property
    def available(self) -> int:
        """Blocks that `allocate` could hand out now, cached ones included."""
        return len(self._blank) + len(self._cached)

    @property
    def cached(self) -> int:
        """Blocks without an owner whose content can still be found."""
        return len(self._cached)

    @property
    def used(self) -> int:
        """Blocks with at least one owner."""
        return self.block_count - self.available

    def owners(self, block: int) -> int:
        """How many sequences hold this block."""
        return self._owners[block]

    def match(self, digests: Sequence[bytes]) -> list[int]:
        """The blocks that hold the longest known prefix of `digests`, in order; takes nothing."""
        blocks: list[int] = []
        for digest in digests:
            block = self._block_of.get(digest)
            if block is None:
                break
            blocks.append(block)
        return blocks

    def share(self, blocks: Iterable[int]) -> None:
        """Adds one owner to each of these found blocks."""
        for block in blocks:
            assert self._digest_of[block] is not None, f"block {block} is not findable"
            if self._owners[block] == 0:
                del self._cached[block]
            self._owners[block] += 1

    def allocate(self, count: int) -> list[int]:
        """`count` blocks with one owner each and no content; blank ones before cached ones."""
        assert count <= self.available, f"{count} blocks wanted, {self.available} available"
        blocks = []
        for _ in range(count):
            if self._blank:
                block = self._blank.pop()
            else:
                block, _ = self._cached.popitem(last=False)
                self._forget(block)
            self._owners[block] = 1
            blocks.append(block)
        return blocks

    def publish(self, block: int, digest: bytes) -> None:
        """Makes a used, full and computed block findable.

        Where another block already holds the same content, that one stays the findable one.
        """
        assert self._owners[block] > 0, f"block {block} has no owner"
        if self._digest_of[block] is None and digest not in self._block_of:
            self._digest_of[block] = digest
            self._block_of[digest] = block

    def release(self, blocks: Sequence[int]) -> None:
        """Takes one owner from each block of a sequence, given in sequence order.

        The last block is put down first, so that a prefix is reused from its far end inwards: a
        block whose predecessor is gone could not be found any more.
        """
        for block in reversed(blocks):
            assert self._owners[block] > 0, f"block {block} released twice"
            self._owners[block] -= 1
            if self._owners[block]:
                continue
            if self._digest_of[block] is None:
                self._blank.append(block)
            else:
                self._cached[block] = None

    def check(self) -> None:
        """Asserts free + cached + used = total, and that digests and owners agree."""
        owned = {block for block, owners in enumerate(self._owners) if owners > 0}
        assert all(owners >= 0 for owners in self._owners)
        assert len(self._blank) + len(self._cached) + len(owned) == self.block_count
        assert owned.isdisjoint(self._blank) and owned.isdisjoint(self._cached)
        assert set(self._blank).isdisjoint(self._cached)
        assert all(self._digest_of[block] is None for block in self._blank)
        assert all(self._digest_of[block] is not None for block in self._cached)
        findable = {
            digest: block for block, digest in enumerate(self._digest_of) if digest is not None
        }
        assert findable == self._block_of

    def _forget(self, block: int) -> None:
        digest = self._digest_of[block]
        assert digest is not None
        del self._block_of[digest]
        self._digest_of[block] = None
