"""Blocks of lines in the order of their keys; one that comes, changes or goes costs no sorting of the others."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class SortedBlocks(Generic[T]):
    """Blocks by number. Keys are compared as they are, equal ones by the number of the block."""

    def __init__(self, blocks: Iterable[tuple[int, Any, Sequence[T]]] = ()) -> None:
        found = sorted(((key, number, block) for number, key, block in blocks), key=lambda each: each[:2])
        self._order = [(key, number) for key, number, _ in found]
        self._blocks = [block for _, _, block in found]
        self._keys = {number: key for key, number in self._order}

    def __len__(self) -> int:
        return len(self._blocks)

    def __contains__(self, number: int) -> bool:
        return number in self._keys

    def put(self, number: int, key: Any, block: Sequence[T]) -> None:
        """Set a block."""
        if number in self._keys and self._keys[number] == key:
            self._blocks[bisect_left(self._order, (key, number))] = block
            return
        self.drop(number)
        place = bisect_left(self._order, (key, number))
        self._order.insert(place, (key, number))
        self._blocks.insert(place, block)
        self._keys[number] = key

    def drop(self, number: int) -> None:
        """Take a block out, where there is one."""
        if number in self._keys:
            place = bisect_left(self._order, (self._keys.pop(number), number))
            del self._order[place], self._blocks[place]

    def list_lines(self, reverse: bool = False) -> list[T]:
        """The lines of all blocks; in reverse the blocks come the other way round, their lines do not."""
        return [*chain.from_iterable(reversed(self._blocks) if reverse else self._blocks)]
