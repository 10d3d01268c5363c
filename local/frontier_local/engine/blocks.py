"""The KV cache as blocks: allocation, sharing of equal prefixes, eviction of the least recently used.

Pure. A block is free, or held by one or more sequences. A free block keeps its content until it is handed out again, so
that a later sequence with the same prefix can take it up.
"""

from collections import OrderedDict
from collections.abc import Iterable, Sequence


class BlockPool:
    """All blocks of one replica.

    Args:
        blocks: How many there are, at least 1.
    """

    def __init__(self, blocks: int) -> None:
        self._holders = [0] * blocks
        self._hash_of: list[int | None] = [None] * blocks
        self._block_of: dict[int, int] = {}
        self._free: OrderedDict[int, None] = OrderedDict.fromkeys(range(blocks))

    @property
    def free(self) -> int:
        """Blocks that no sequence holds."""
        return len(self._free)

    @property
    def usage(self) -> float:
        """Share of the blocks that are held, 0 to 1."""
        return 1 - len(self._free) / len(self._holders)

    def match(self, hashes: Iterable[int]) -> list[int]:
        """Return the blocks of the longest cached prefix of these block hashes."""
        found = []
        for content in hashes:
            block = self._block_of.get(content)
            if block is None:
                break
            found.append(block)
        return found

    def can_hold(self, shared: Sequence[int], new: int) -> bool:
        """Return whether `new` blocks are free when the shared ones are held too."""
        return len(self._free) - sum(self._holders[block] == 0 for block in shared) >= new

    def hold(self, shared: Iterable[int]) -> None:
        """Add one holder to each of these blocks."""
        for block in shared:
            if self._holders[block] == 0:
                del self._free[block]
            self._holders[block] += 1

    def allocate(self, number: int) -> list[int]:
        """Take this many free blocks, least recently used first; their content is forgotten.

        Raises:
            IndexError: If fewer are free.
        """
        if number > len(self._free):
            raise IndexError(f"{number} blocks were asked for, {len(self._free)} are free")
        taken = []
        for _ in range(number):
            block, _ = self._free.popitem(last=False)
            content = self._hash_of[block]
            if content is not None:
                del self._block_of[content]
                self._hash_of[block] = None
            self._holders[block] = 1
            taken.append(block)
        return taken

    def remember(self, block: int, content: int) -> None:
        """Note what a held, full block contains; of equal blocks the first stays the one to share."""
        if content not in self._block_of and self._hash_of[block] is None:
            self._block_of[content] = block
            self._hash_of[block] = content

    def release(self, blocks: Sequence[int]) -> None:
        """Remove one holder from each block; tails are freed first, so that prefixes live longest."""
        for block in reversed(blocks):
            self._holders[block] -= 1
            if self._holders[block] == 0:
                self._free[block] = None
