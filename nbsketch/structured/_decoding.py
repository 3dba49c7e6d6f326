"""Decoding: the best candidates of points of the output space, tile by tile."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nbsketch._jit.decoding import insert_best
from nbsketch._jit.threads import run_slices
from nbsketch.gram import evaluate
from nbsketch.kernels import LinearKernel

# Rows and candidates of one tile of scores, and rows that a thread takes at a time.
_ROWS, _CANDIDATES = 512, 2048
_WIDTH = 16
_SECONDS_PER_SCORE = 1e-9


@dataclass(frozen=True, eq=False)
class Candidates:
    """Encoded outputs to choose from."""

    features: NDArray  # z(y), (c, r)
    penalty: NDArray  # half of k(y, y), (c,)

    def __len__(self) -> int:
        return len(self.penalty)

    def take(self, rows: slice | NDArray) -> Candidates:
        """Return the candidates of some rows."""
        return Candidates(self.features[rows], self.penalty[rows])


class TopK(NamedTuple):
    """The best candidates of each row, best first.

    Attributes
    ----------
    indices : ndarray of shape (n, k)
        Their indices among the candidates; of equal scores the lower index comes first.
        -1 beyond the end of a set of fewer than k candidates.
    scores : ndarray of shape (n, k)
        Their scores; minus infinity beyond the end of a set.
    """

    indices: NDArray[np.int64]
    scores: NDArray[np.float64]

    @classmethod
    def empty(cls, n: int, k: int) -> TopK:
        """Return arrays without any candidate."""
        return cls(np.full((n, k), -1), np.full((n, k), -np.inf))

    def rows(self, part: slice) -> TopK:
        """Return a view of some rows."""
        return TopK(self.indices[part], self.scores[part])


def scores(h: NDArray, candidates: Candidates) -> NDArray:
    """Return <h, z(y)> - k(y, y) / 2, of shape (n, c)."""
    return _products(h, candidates.features) - candidates.penalty


def keep_best(h: NDArray, candidates: Candidates, best: TopK) -> None:
    """Put the best candidates of each row of `h` into `best`.

    Scores are computed tile by tile. Each score is a sum in a fixed order, independent
    of the tile, so that equal candidates tie exactly.
    """
    for start in range(0, len(h), _ROWS):
        part = slice(start, start + _ROWS)
        for first in range(0, len(candidates), _CANDIDATES):
            some = candidates.take(slice(first, first + _CANDIDATES))
            _keep_tile(h[part], some, first, best.rows(part))


def _keep_tile(h: NDArray, some: Candidates, first: int, best: TopK) -> None:
    products = _products(h, some.features)
    args = (products, some.penalty, first, best.scores, best.indices, _WIDTH)
    seconds = _WIDTH * len(some) * _SECONDS_PER_SCORE
    n_tiles = -(-len(h) // _WIDTH)
    run_slices(insert_best, n_tiles, seconds, *args)


def _products(h: NDArray, features: NDArray) -> NDArray:
    """Return h @ features.T by compiled code: the same bits at any thread count."""
    return evaluate(LinearKernel().compiled_form(h.shape[1]), h, features)
