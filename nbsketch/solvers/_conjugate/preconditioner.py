r"""Low-rank preconditioner of a kernel matrix plus a multiple of inverse weights.

.. math:: P = F F^\top + \theta W^{-1}, \qquad P^{-1} = \frac1\theta W^{1/2}
          \bigl(I - \tilde F (\tilde F^\top \tilde F + \theta I)^{-1} \tilde F^\top
          \bigr) W^{1/2}, \qquad \tilde F = W^{1/2} F

by Woodbury's identity. Rounding leaves about eps |r| where the shift over the largest
eigenvalue times |r| should be left, so that theta is at least 2 eps tr(F F^T): a larger
one than the shift hardly matters as long as the residual K - F F^T is larger still.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
import scipy.linalg
from numpy.typing import DTypeLike, NDArray

from nbsketch.solvers._conjugate.blocks import BlockPreconditioner
from nbsketch.solvers._conjugate.cholesky import partial_cholesky
from nbsketch.solvers._conjugate.operator import SymmetricOperator
from nbsketch.solvers._linear.cholesky import (
    raised_cholesky,
    solve_positive_upper,
    solve_upper,
)

# Default rank: 8 sqrt(n) between these. Larger ones cost more than the steps they save.
_RANK, _LEAST_RANK, _MOST_RANK = 8.0, 300, 2000
# Factors are float64 where the shift is below this share of the trace.
_SMALL_SHIFT = 2.4e-7
# Diagonal blocks pay where the shift is below this share of the mean diagonal.
_LOCAL_SHIFT = 1e-4
# Share of the trace by which theta exceeds rounding.
_ROUNDINGS = 2


class Preconditioner(Protocol):
    """What conjugate gradients ask of a preconditioner."""

    @property
    def rank(self) -> int:
        """Number of columns of F."""

    def solve(self, R: NDArray, shifts: NDArray) -> NDArray:
        """Return P^{-1} R for R of shape (n, d), one shift for each column."""


class LowRankPreconditioner:
    """P^{-1} from a factor F^T of shape (m, n), for several shifts at once.

    Parameters
    ----------
    factor : ndarray of shape (m, n)
        F^T, in float32 or float64, the type of all that follows. Scaled in place.
    weights : ndarray of shape (n,), optional
        W, at least 0. The identity by default.
    """

    def __init__(self, factor: NDArray, weights: NDArray | None = None) -> None:
        self._root = None
        if weights is not None:
            self._root = np.sqrt(weights)
            factor *= self._root.astype(factor.dtype)
        self._factor = factor
        self._gram = np.empty((0, 0), factor.dtype)
        if len(factor):
            syrk = scipy.linalg.blas.get_blas_funcs("syrk", (factor,))
            self._gram = syrk(1.0, factor.T, trans=1, lower=0)
        self._cholesky: dict[float, tuple[NDArray, float]] = {}

    @property
    def rank(self) -> int:
        """Number of columns of F."""
        return len(self._factor)

    def solve(self, R: NDArray, shifts: NDArray) -> NDArray:
        """Return P^{-1} R for R of shape (n, d), one shift for each column."""
        R = R if self._root is None else R * self._root[:, None]
        size = np.abs(R).max(axis=0)
        size[size == 0] = 1.0
        V = (R / size).astype(self._factor.dtype, order="F")
        G = self._factor @ V
        thetas = np.empty(len(shifts))
        for c, shift in enumerate(shifts):
            upper, thetas[c] = self._factorized(float(shift))
            if self.rank:
                G[:, c] = solve_positive_upper(upper, G[:, c])
        V -= self._factor.T @ G
        out = V * (size / thetas)
        return out if self._root is None else out * self._root[:, None]

    def diag(self, shift: float) -> NDArray:
        """Return the diagonal of P^{-1}, of shape (n,), in float64."""
        upper, theta = self._factorized(shift)
        out = np.ones(self._factor.shape[1])
        if self.rank:
            half = solve_upper(upper, self._factor, 1)
            out -= np.einsum("ij,ij->j", half, half, dtype=np.float64)
        return out / theta if self._root is None else out * self._root**2 / theta

    def _factorized(self, shift: float) -> tuple[NDArray, float]:
        """Return the Cholesky factor of F^T F + theta I, and theta."""
        if not self.rank:
            return self._gram, shift
        if shift not in self._cholesky:
            rounding = float(np.finfo(self._gram.dtype).eps)
            theta = max(shift, _ROUNDINGS * rounding * float(np.trace(self._gram)))
            self._cholesky[shift] = raised_cholesky(self._gram, theta)
        return self._cholesky[shift]


def build_preconditioner(
    K: SymmetricOperator,
    shift: float,
    rng: np.random.Generator,
    *,
    rank: int | None = None,
    weights: NDArray | None = None,
    dtype: DTypeLike | None = None,
    local: bool | None = None,
) -> Preconditioner:
    r"""Return a preconditioner of K plus n alpha times inverse weights.

    .. math:: P = F F^\top + \theta W^{-1} \approx K + n \alpha W^{-1}

    with F from block randomly pivoted Cholesky, or with the diagonal blocks of
    :math:`K - F F^\top + n \alpha W^{-1}` that belong to near rows in place of the
    last term. `nbsketch.solvers.solve_conjugate` takes it for any penalty that is not
    much smaller.

    Parameters
    ----------
    K : SymmetricGram of shape (n, n)
        Kernel matrix, of which `rank` rows are evaluated.
    shift : float
        Smallest n alpha that it is for. With an output matrix, n alpha over its largest
        eigenvalue.
    rng : Generator
        Draws the pivots.
    rank : int, optional
        Number of columns of F: 8 sqrt(n) between 300 and 2000 by default, at most n,
        and fewer if the rest of K is negligible. Building takes n rank^2 operations.
    weights : ndarray of shape (n,), optional
        Non-negative weights W of mean one.
    dtype : {float32, float64}, optional
        Type of F. By default float64 if the shift is below 2.4e-7 tr(K), which float32
        cannot represent beside the largest eigenvalues.
    local : bool, optional
        Whether to add diagonal blocks, of at most 500 rows and in float64. They cut
        the passes to a third where the penalty is small, and take as long to build as
        F. By default, if neither `rank` nor `dtype` is given, where the shift is below
        1e-4 of the mean diagonal of K.

    Returns
    -------
    Preconditioner
        With ``solve(R, shifts)`` for columns R and one shift for each.

    Examples
    --------
    >>> import numpy as np
    >>> from nbsketch import GaussianKernel
    >>> from nbsketch.gram import SymmetricGram
    >>> K = SymmetricGram(GaussianKernel(1.0), np.linspace(0, 6, 500)[:, None])
    >>> pre = build_preconditioner(K, 500 * 1e-4, np.random.default_rng(0))
    >>> pre.rank < 500
    True
    """
    n, trace = K.shape[0], float(K.diag().sum())
    if local is None:
        small = n * shift < _LOCAL_SHIFT * trace
        local = small and rank is None and dtype is None
    if rank is None:
        rank = int(np.clip(_RANK * n**0.5, _LEAST_RANK, _MOST_RANK))
    if dtype is None:
        dtype = np.float64 if local or shift < _SMALL_SHIFT * trace else np.float32
    F, _ = partial_cholesky(K, min(rank, n), rng, dtype=dtype, enough=shift / 4)
    if local:
        return BlockPreconditioner(K, F, rng, weights)
    return LowRankPreconditioner(F, weights)
