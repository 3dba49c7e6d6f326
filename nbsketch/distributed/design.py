"""Features whose row blocks stay with the partitions of a Dask array."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nbsketch.distributed.memory import fits
from nbsketch.distributed.partitions import Partitions
from nbsketch.distributed.tasks import computed, task, tree_sum
from nbsketch.solvers.design import ArrayDesign, Design

# Features of chosen rows up to this size are brought here.
_LOCAL_BYTES = 64 << 20


class PartitionedDesign(Design):
    """Features Z (n x r) in partitions; products with them are computed there.

    Gram matrices and sums are added in a tree; ``Z W`` and the n numbers in ``Z^T A``
    cross the network, the features only where few rows are gathered.

    Parameters
    ----------
    partitions : Partitions
        Blocks of Z.
    n_columns : int
        Number r of features.
    dtype : dtype
        float32 or float64.
    """

    def __init__(self, partitions: Partitions, n_columns: int, dtype: Any) -> None:
        self.dtype = np.dtype(dtype)
        self.shape = (len(partitions), n_columns)
        size = self.dtype.itemsize * self.shape[0] * n_columns
        self._partitions = partitions.kept() if fits(size) else partitions

    def blocks(self) -> Iterator[tuple[int, int, NDArray]]:
        """Yield (start, stop, Z[start:stop]), brought here one by one."""
        known = self._partitions
        for k, block in enumerate(known.blocks):
            yield int(known.starts[k]), int(known.starts[k + 1]), computed([block])[0]

    def mv(self, W: ArrayLike) -> NDArray:
        """Return ``Z W`` for W of shape (r,) or (r, d)."""
        W = np.ascontiguousarray(W, dtype=float)
        return np.concatenate(self._partitions.each(partial(_mv, W=W)))

    def rmv(self, A: ArrayLike, rows: NDArray | None = None) -> NDArray:
        """Return ``Z[rows]^T A`` for A with one row per row of Z chosen."""
        A = np.ascontiguousarray(A, dtype=float)
        if rows is None:
            return self._partitions.total(_rmv, A)[0]
        found = self._sum(rows, lambda c: task(_rmv_of, c.block, c.local, A[c.place]))
        return np.zeros(self.shape[1:] + A.shape[1:]) if found is None else found

    def gram(
        self,
        rows: NDArray | None = None,
        weights: NDArray | None = None,
        *,
        exact: bool = True,
    ) -> NDArray:
        """Return ``Z[rows]^T diag(weights) Z[rows]``: see `Design.gram`."""
        if rows is None:
            return self._partitions.total(partial(_gram, exact=exact), weights)[0]

        def part(c: Any) -> Any:
            some = None if weights is None else weights[c.place]
            return task(_gram_of, c.block, c.local, some, exact)

        found = self._sum(rows, part)
        return np.zeros((self.shape[1],) * 2) if found is None else found

    def gather(self, rows: NDArray) -> Design:
        """Return the features of the given rows, in memory if they are small."""
        self._check_rows(rows)
        if len(rows) * self.shape[1] * self.dtype.itemsize > _LOCAL_BYTES:
            return PartitionedDesign(
                self._partitions.select(rows), self.shape[1], self.dtype
            )
        parts = self._partitions.gather(rows)
        empty = np.empty((0, self.shape[1]), self.dtype)
        return ArrayDesign._trusted(np.concatenate([empty, *parts]))

    def collect(self) -> NDArray:
        """Return all features as one array."""
        return np.concatenate(computed(self._partitions.blocks))

    def total(self, function: Callable[..., tuple], *rows: Any) -> tuple:
        """Return the sums of the tuples ``function(block, *parts)`` over all blocks."""
        return self._partitions.total(function, *rows)

    def _sum(self, rows: NDArray, part: Callable[[Any], Any]) -> NDArray | None:
        """Return the sum over the partitions of chosen rows, None without rows."""
        self._check_rows(rows)
        tasks = [part(chosen) for chosen in self._partitions.choose(rows)]
        return computed([tree_sum(tasks)])[0][0] if tasks else None


def _mv(Z: NDArray, W: NDArray) -> NDArray:
    return ArrayDesign._trusted(Z).mv(W)


def _rmv(Z: NDArray, A: NDArray) -> tuple[NDArray]:
    return (ArrayDesign._trusted(Z).rmv(A),)


def _rmv_of(Z: NDArray, rows: NDArray, A: NDArray) -> tuple[NDArray]:
    return (ArrayDesign._trusted(Z).rmv(A, rows),)


def _gram(Z: NDArray, weights: NDArray | None, exact: bool) -> tuple[NDArray]:
    return (ArrayDesign._trusted(Z).gram(None, weights, exact=exact),)


def _gram_of(
    Z: NDArray, rows: NDArray, weights: NDArray | None, exact: bool
) -> tuple[NDArray]:
    return (ArrayDesign._trusted(Z).gram(rows, weights, exact=exact),)
