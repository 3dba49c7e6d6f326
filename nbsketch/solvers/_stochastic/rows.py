"""Random rows for the stochastic gradient method."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nbsketch._jit.sgm import draw_rows


@dataclass(frozen=True)
class RowStream:
    """Independent random rows: row number t is the same however they are asked for.

    Attributes
    ----------
    seed : uint64
        Seed of the stream.
    n_rows : int
        The rows are 0, ..., n_rows - 1, all equally likely,
    cumulative, guide : ndarray
        or as likely as the increases of `cumulative`, which the search for a row starts
        at `guide`; empty for equally likely ones.
    """

    seed: np.uint64
    n_rows: int
    cumulative: NDArray
    guide: NDArray

    @classmethod
    def of(cls, rng: np.random.Generator, weights: NDArray | None, n: int) -> RowStream:
        """Return a new stream of n rows, as likely as their weights are large."""
        seed = rng.integers(2**64, dtype=np.uint64)
        if weights is None:
            return cls(seed, n, np.empty(0), np.empty(0, dtype=np.int64))
        cumulative = np.cumsum(weights, dtype=float)
        # Rows without weight at the end must not be found when rounding meets the sum.
        cumulative = cumulative[: np.searchsorted(cumulative, cumulative[-1]) + 1]
        levels = cumulative[-1] * (np.arange(n) / n)
        guide = np.searchsorted(cumulative, levels, side="right")
        return cls(seed, n, cumulative, np.minimum(guide, len(cumulative) - 1))

    def take(self, first: int, count: int) -> NDArray[np.int64]:
        """Return the rows number ``first, ..., first + count - 1``."""
        out = np.empty(count, dtype=np.int64)
        draw_rows(self.seed, first, self.n_rows, self.cumulative, self.guide, out)
        return out


def squared_norms(Z: NDArray) -> NDArray[np.float64]:
    """Return the squared norm of each row."""
    return np.einsum("ij,ij->i", Z, Z).astype(float)
