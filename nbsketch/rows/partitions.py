"""Rows of X in the partitions of a Dask array."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nbsketch.rows.tasks import (
    Partitions,
    blocks_of,
    check_steady,
    computed,
    fits_workers,
    kept,
    task,
)


class BlockRows(ABC):
    """Rows that are in memory block by block."""

    ndim = 2
    shape: tuple[int, int]

    def __len__(self) -> int:
        return self.shape[0]

    @abstractmethod
    def each(self, function: Callable, *args: Any) -> list[Any]:
        """Return the results of ``function(block, *args)``."""

    def min(self, axis: int | None = None) -> Any:
        """Return the smallest value; with axis 0, of each column."""
        return np.min(self.each(np.min, axis), axis=axis)

    def max(self, axis: int | None = None) -> Any:
        """Return the largest value; with axis 0, of each column."""
        return np.max(self.each(np.max, axis), axis=axis)


class PartitionedRows(BlockRows):
    """A matrix whose rows stay in the partitions of a Dask array.

    It has the shape and the dtype of an array. Indexing with an array of row numbers
    gathers these rows as an ndarray; `map` and `select` leave rows on the workers.

    Parameters
    ----------
    partitions : Partitions
        The rows.
    n_columns : int
        Number of columns.
    dtype : dtype
        Dtype of the values.
    """

    def __init__(self, partitions: Partitions, n_columns: int, dtype: Any) -> None:
        self.partitions = partitions
        self.shape = (len(partitions), n_columns)
        self.dtype = np.dtype(dtype)

    @classmethod
    def of(cls, array: Any) -> PartitionedRows:
        """Return the rows of a Dask array of known shape."""
        blocks = blocks_of(array)
        sizes = np.array(array.chunks[0])
        filled = [block for block, size in zip(blocks, sizes, strict=True) if size]
        starts = np.cumsum([0, *sizes[sizes > 0]])
        return cls(Partitions(filled, starts), array.shape[1], array.dtype)

    def __getitem__(self, rows: NDArray) -> NDArray:
        """Return the rows of an index array, in its order."""
        order = np.argsort(rows, kind="stable")
        out = np.empty((len(rows), self.shape[1]), self.dtype)
        if len(rows):
            out[order] = np.concatenate(self.partitions.gather(np.asarray(rows)[order]))
        return out

    def collect(self) -> NDArray:
        """Return all rows."""
        return self[np.arange(len(self))]

    def map(
        self, function: Callable[[NDArray], NDArray], n_columns: int
    ) -> PartitionedRows:
        """Return the rows computed by a function of each block."""
        return PartitionedRows(self.partitions.map(function), n_columns, self.dtype)

    def checked(
        self,
        check: Callable[[NDArray, int, int], NDArray],
        dtype: Any,
        others: Sequence[list[Any]],
    ) -> tuple[PartitionedRows, list[list[NDArray]]]:
        """Run ``check(block, first row, rows)`` on all blocks; return their results.

        It returns the rows in a dtype. They are stored if the workers have the memory.
        `others` are tasks of the same rows, which are evaluated in the same
        computation.
        """
        starts = self.partitions.starts
        blocks = [
            task(check, block, int(i), int(j - i))
            for block, (i, j) in zip(
                self.partitions.blocks, pairwise(starts), strict=True
            )
        ]
        rows = PartitionedRows(Partitions(blocks, starts), self.shape[1], dtype)
        tasks = [blocks, *others]
        if fits_workers(rows.nbytes):
            tasks = _regrouped(kept([t for group in tasks for t in group]), tasks)
            rows.partitions.blocks = tasks[0]
        ends = [task(len, block) for block in tasks[0]]  # raises errors of checks
        groups = [ends, *tasks[1:]]
        results = _regrouped(computed([t for group in groups for t in group]), groups)
        check_steady(tasks, [blocks, *others])
        return rows, results[1:]

    @property
    def nbytes(self) -> int:
        """Memory of all rows in bytes."""
        return self.shape[0] * self.shape[1] * self.dtype.itemsize

    def select(self, rows: NDArray) -> PartitionedRows:
        """Return ascending rows without gathering them."""
        return PartitionedRows(self.partitions.select(rows), self.shape[1], self.dtype)

    def each(self, function: Callable, *args: Any) -> list[Any]:
        """Return the results of ``function(block, *args)``, computed on the workers."""
        return self.partitions.each(function, *args)


def _regrouped(values: list[Any], groups: Sequence[list[Any]]) -> list[list[Any]]:
    """Return values in lists with the lengths of the groups."""
    following = iter(values)
    return [[next(following) for _ in group] for group in groups]
