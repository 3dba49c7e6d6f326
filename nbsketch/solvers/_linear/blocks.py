r"""Low-rank preconditioner with diagonal blocks of near rows, for small shifts.

.. math:: P = F F^\top + D, \qquad D = \operatorname{blockdiag}_b \bigl(
          (K - F F^\top)_{bb} + \lambda W^{-1}_{bb}\bigr)

F describes what all rows share, the blocks what near rows share beyond it. With
:math:`U^\top U = W^{1/2} D W^{1/2}` and :math:`G = F^\top W^{1/2} U^{-1}`, Woodbury's
identity gives

.. math:: P^{-1} = W^{1/2} U^{-1} \bigl(I - G^\top (I + G G^\top)^{-1} G\bigr)
          U^{-\top} W^{1/2} .
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nbsketch.solvers._linear.cholesky import raised_cholesky, solve_upper
from nbsketch.solvers._linear.operator import SymmetricOperator

# Most rows of a block, and steps of the power method for a direction to split along.
_ROWS, _STEPS = 500, 3
# A block without a Cholesky factor gets this share of the shift more, then four times.
_MORE = 0.25


class BlockPreconditioner:
    """P^{-1} from a factor F^T of shape (m, n), for several shifts at once.

    Parameters
    ----------
    K : SymmetricOperator of shape (n, n)
        Kernel matrix, of which diagonal blocks are evaluated.
    factor : ndarray of shape (m, n)
        F^T in float64. Scaled in place.
    rng : Generator
        For the partition of the rows.
    weights : ndarray of shape (n,), optional
        W, at least 0. The identity by default.
    """

    def __init__(
        self,
        K: SymmetricOperator,
        factor: NDArray,
        rng: np.random.Generator,
        weights: NDArray | None = None,
    ) -> None:
        self._parts = list(_partition(factor, rng))
        self._root = None if weights is None else np.sqrt(weights)
        self.factor = factor
        if self._root is not None:
            factor *= self._root
        self._residuals = [self._residual(K, index) for index in self._parts]
        self._shifted: dict[float, _Shifted] = {}

    @property
    def rank(self) -> int:
        """Number of columns of F."""
        return len(self.factor)

    def solve(self, R: NDArray, shifts: NDArray) -> NDArray:
        """Return P^{-1} R for R of shape (n, d), one shift for each column."""
        R = R if self._root is None else R * self._root[:, None]
        out = np.empty_like(R)
        for c, shift in enumerate(shifts):
            out[:, c] = self._solve(R[:, c], self._with_shift(float(shift)))
        return out if self._root is None else out * self._root[:, None]

    def _solve(self, r: NDArray, shifted: _Shifted) -> NDArray:
        half = np.empty_like(r)
        for index, upper in zip(self._parts, shifted.uppers, strict=True):
            half[index] = solve_upper(upper, r[index], 1)
        g = solve_upper(shifted.inner, shifted.whitened @ half, 1)
        half -= shifted.whitened.T @ solve_upper(shifted.inner, g)
        for index, upper in zip(self._parts, shifted.uppers, strict=True):
            half[index] = solve_upper(upper, half[index])
        return half

    def _residual(self, K: SymmetricOperator, index: NDArray) -> NDArray:
        """Return a diagonal block of W^{1/2} (K - F F^T) W^{1/2}."""
        block = K.block(index)
        if self._root is not None:
            block *= np.outer(self._root[index], self._root[index])
        part = self.factor[:, index]
        return block - part.T @ part

    def _with_shift(self, shift: float) -> _Shifted:
        if shift not in self._shifted:
            more = _MORE * shift
            uppers = [
                raised_cholesky(block, shift, more)[0] for block in self._residuals
            ]
            G = np.empty_like(self.factor)
            for index, upper in zip(self._parts, uppers, strict=True):
                G[:, index] = solve_upper(upper, self.factor[:, index].T, 1).T
            inner, _ = raised_cholesky(G @ G.T, 1.0)
            self._shifted[shift] = _Shifted(uppers, G, inner)
        return self._shifted[shift]


class _Shifted(NamedTuple):
    """What belongs to one shift."""

    uppers: list[NDArray]  # U, by blocks
    whitened: NDArray  # G
    inner: NDArray  # factor of I + G G^T


def _partition(factor: NDArray, rng: np.random.Generator) -> Iterator[NDArray]:
    """Yield blocks of near rows: halves along their direction of largest spread.

    Rows are near if their columns of F^T, coordinates of their features, are.
    """
    waiting = [np.arange(factor.shape[1])]
    while waiting:
        index = waiting.pop()
        if len(index) <= _ROWS:
            yield index
            continue
        part, spread = factor[:, index], rng.standard_normal(len(index))
        for _ in range(_STEPS):
            spread = part.T @ (part @ (spread - spread.mean()))
            spread /= np.abs(spread).max() or 1.0
        order = np.argsort(spread - spread.mean(), kind="stable")
        half = len(index) // 2
        waiting += [np.sort(index[order[:half]]), np.sort(index[order[half:]])]
