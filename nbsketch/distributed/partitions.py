"""Blocks of rows, each the result of a task: what rows and features have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from nbsketch.distributed.tasks import computed, kept, literal, task, tree_sum

# Bytes of an argument that is sent with every task.
_SMALL = 1 << 16


class Chosen(NamedTuple):
    """Some rows of one partition."""

    block: Any  # task
    local: NDArray  # their indices within it
    place: slice  # among all rows that were chosen


class Partitions:
    """Consecutive blocks of the rows of a matrix.

    Parameters
    ----------
    blocks : sequence of tasks
        Each has an array of rows as its result.
    starts : ndarray of shape (p + 1,)
        First row of each block, and the number of rows.
    """

    def __init__(self, blocks: Sequence[Any], starts: NDArray) -> None:
        self.blocks, self.starts = list(blocks), np.asarray(starts)

    def __len__(self) -> int:
        return int(self.starts[-1])

    def map(self, function: Callable[[Any], Any]) -> Partitions:
        """Return the results of a function of each block, not computed yet."""
        return Partitions(self.tasks(_call, (function,), ()), self.starts)

    def each(self, function: Callable, *args: Any, rows: Sequence = ()) -> list[Any]:
        """Return the results of ``function(block, *parts, *args)``.

        `rows` have one entry for each row, or are None; `parts` are those of the block.
        """
        return computed(self.tasks(function, args, rows))

    def total(self, function: Callable, *args: Any, rows: Sequence = ()) -> tuple:
        """Return the sums of tuples ``function(block, *parts, *args)``, by a tree."""
        return computed([tree_sum(self.tasks(function, args, rows))])[0]

    def tasks(self, function: Callable, args: tuple, rows: Sequence) -> list[Any]:
        """Return a task for each block: see `each`."""
        shared = [a if _is_small(a) else literal(a) for a in args]
        bounds = pairwise(self.starts)
        parts = [[None if a is None else a[i:j] for a in rows] for i, j in bounds]
        return [
            task(function, block, *part, *shared)
            for block, part in zip(self.blocks, parts, strict=True)
        ]

    def choose(self, rows: NDArray) -> Iterator[Chosen]:
        """Yield ascending rows by partition, without partitions that have none."""
        ends = np.searchsorted(rows, self.starts)
        for k, (first, last) in enumerate(pairwise(ends)):
            if first < last:
                local = rows[first:last] - self.starts[k]
                yield Chosen(self.blocks[k], local, slice(int(first), int(last)))

    def select(self, rows: NDArray) -> Partitions:
        """Return ascending rows where they are, not computed yet."""
        chosen = list(self.choose(rows))
        blocks = [task(_take, c.block, c.local) for c in chosen]
        return Partitions(blocks, np.cumsum([0, *(len(c.local) for c in chosen)]))

    def gather(self, rows: NDArray) -> list[NDArray]:
        """Return ascending rows, brought here, by partition."""
        return computed(self.select(rows).blocks)

    def kept(self) -> Self:
        """Return the same partitions, computed and kept on the workers."""
        return type(self)(kept(self.blocks), self.starts)


def _call(block: Any, function: Callable) -> Any:
    return function(block)


def _is_small(value: Any) -> bool:
    """Return whether a value is sent with every task, not by itself to each worker."""
    return getattr(value, "nbytes", 0 if np.isscalar(value) else _SMALL + 1) <= _SMALL


def _take(block: NDArray, local: NDArray) -> NDArray:
    return block[local]
