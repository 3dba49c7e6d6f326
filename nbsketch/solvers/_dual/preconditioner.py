r"""Low-rank preconditioner of K plus a multiple of inverse weights that change.

.. math:: P = F F^\top + \theta W^{-1}

on the rows of positive weight. Its Gram matrix :math:`F^\top W F` is updated by the
rows whose weights have changed, as long as these are few.
"""

from __future__ import annotations

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from nbsketch.solvers._conjugate.cholesky import partial_cholesky
from nbsketch.solvers._conjugate.operator import PartialOperator
from nbsketch.solvers._linear.cholesky import raised_cholesky, solve_positive_upper

# Default rank: 8 sqrt(n) between these, half of it for losses with kinks.
_RANK, _RANKS = 8.0, (300, 2000)
# Factors are float64 where the shift is below this share of the trace.
_SMALL_SHIFT = 2.4e-7
# Least theta, in units of rounding of the trace.
_ROUNDINGS = 4


class ActivePreconditioner:
    """Products with the inverse of P, for vectors that are zero off the rows of W.

    Parameters
    ----------
    factor : ndarray of shape (m, n)
        F^T, as `partial_cholesky` returns it.
    """

    def __init__(self, factor: NDArray) -> None:
        self.factor = factor
        rank, n = self._shape
        self._weights = np.zeros(n)
        self._gram = np.zeros((rank, rank), factor.dtype, order="F")
        self._root, self._theta = self._weights, 1.0
        self._upper = self._gram

    @property
    def _shape(self) -> tuple[int, int]:
        """The rank and the number of rows."""
        return self.factor.shape[0], self.factor.shape[1]

    def _times(self, v: NDArray) -> NDArray:
        """Return F^T v."""
        return self.factor @ v

    def _back(self, g: NDArray) -> NDArray:
        """Return F g."""
        return g @ self.factor

    def set(self, weights: NDArray, shift: float) -> None:
        """Prepare for weights (n,), zero for rows that do not count, and a shift."""
        changed = np.flatnonzero(weights != self._weights)
        if len(changed) > np.count_nonzero(weights) / 2:
            self._gram[:] = 0
            self._weights = np.zeros(len(weights))
            changed = np.flatnonzero(weights)
        difference = weights[changed] - self._weights[changed]
        for sign in (-1.0, 1.0):
            some = sign * difference > 0
            self._add(changed[some], np.sqrt(sign * difference[some]), sign)
        self._weights, self._root = weights, np.sqrt(weights)
        self._factorize(shift)

    def _add(self, rows: NDArray, root: NDArray, sign: float) -> None:
        if not len(rows) or not len(self.factor):
            return
        part = self.factor[:, rows]
        part *= root.astype(part.dtype)
        syrk = scipy.linalg.blas.get_blas_funcs("syrk", (part,))
        self._gram = syrk(
            sign, part.T, beta=1.0, c=self._gram, trans=1, lower=0, overwrite_c=1
        )

    def _factorize(self, shift: float) -> None:
        trace = max(float(np.trace(self._gram)), 0.0)
        rounding = float(np.finfo(self._gram.dtype).eps)
        self._theta = max(shift, _ROUNDINGS * rounding * trace)
        if len(self.factor):
            self._upper, self._theta = raised_cholesky(self._gram, self._theta)

    def solve(self, r: NDArray) -> NDArray:
        """Return P^{-1} r of shape (n,)."""
        r = self._root * r
        size = float(np.abs(r).max(initial=0))
        if size == 0 or not len(self.factor):
            return self._root * r / self._theta
        root = self._root.astype(self.factor.dtype)
        v = (r / size).astype(self.factor.dtype)
        g = solve_positive_upper(self._upper, self._times(root * v))
        v -= root * self._back(g)
        return self._root * v * (size / self._theta)

    def restricted(self, rows: NDArray) -> ActivePreconditioner:
        """Return the preconditioner of some rows alone, with the same weights."""
        part = self._part(rows)
        part._gram, part._upper, part._theta = self._gram, self._upper, self._theta
        part._weights, part._root = self._weights[rows], self._root[rows]
        return part

    def _part(self, rows: NDArray) -> ActivePreconditioner:
        return ActivePreconditioner(self.factor[:, rows])


def low_rank_factor(
    K: PartialOperator,
    shift: float,
    rng: np.random.Generator,
    smooth: bool,
    outputs: int = 1,
) -> NDArray:
    """Return F^T for a shift; float64 where float32 cannot represent the shift.

    Losses with kinks are smoothed, which makes their shifts larger, and have few rows
    between kinks at the end: half the rank serves them. Coupled outputs multiply the
    rank of the preconditioner, which stays below the largest.
    """
    n = K.shape[0]
    small = shift < _SMALL_SHIFT * float(K.diag().sum())
    rank = int(np.clip((_RANK if smooth else _RANK / 2) * n**0.5, *_RANKS))
    rank = min(rank, _RANKS[1] // outputs)
    dtype = np.float64 if small else np.float32
    return partial_cholesky(K, min(rank, n), rng, dtype=dtype, enough=shift / 4)[0]
