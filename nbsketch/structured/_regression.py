r"""Ridge regression from a sketched input space to the features of outputs.

With :math:`Z = K S^T U`, :math:`U U^T = (S K S^T)^+`, and the features T (n, t) of the
outputs, the coefficients of :math:`h(x) = H^T S k_x` are

.. math:: H = U (Z^T Z + n \alpha I)^{-1} Z^T T;

without a sketch :math:`H = (K + n \alpha I)^{-1} T`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg
import scipy.sparse as sp
from numpy.typing import NDArray

from nbsketch._whitening import RANK_TOL
from nbsketch.features import KEEP_BYTES, SketchMap
from nbsketch.structured._stages import Stages

# Memory of one block of rows of a sketched product.
_BLOCK_BYTES = 64 << 20
_FEWEST_ROWS = 256


class Whitening(NamedTuple):
    r"""A factor of a pseudo-inverse: U with :math:`U U^T = C^+`, never formed.

    C = S K S^T is factorized by Cholesky with pivots, which stops where what is left of
    the diagonal is rounding: a tenth of the cost of an eigendecomposition.
    """

    factor: NDArray  # lower triangular, (r, r)
    chosen: NDArray  # the r rows of the sketch that span the others, (r,)

    @classmethod
    def of(cls, core: NDArray, tol: float) -> Whitening:
        """Return the whitening of a positive semi-definite matrix; `core` is lost."""
        top = core.diagonal().max(initial=0.0)
        factor, pivots, rank, _ = scipy.linalg.lapack.dpstrf(
            core.T, tol=tol * top, lower=1, overwrite_a=1
        )
        if top <= 0 or rank == 0:
            raise ValueError(
                "a kernel must not be zero on all rows that its sketch draws, got "
                f"values up to {top:g}"
            )
        factor = np.asfortranarray(np.tril(factor[:rank, :rank]))
        return cls(factor, pivots[:rank].astype(np.int64) - 1)

    def apply(self, block: NDArray) -> NDArray:
        """Return U^T B, of shape (r, n), for B of shape (s, n)."""
        chosen = block[self.chosen].astype(np.float64, copy=False)
        return scipy.linalg.solve_triangular(
            self.factor, chosen, lower=True, check_finite=False
        )

    def lift(self, W: NDArray, size: int) -> NDArray:
        """Return U W, of shape (s, t), for W of shape (r, t)."""
        out = np.zeros((size, W.shape[1]))
        out[self.chosen] = scipy.linalg.solve_triangular(
            self.factor, W, lower=True, trans="T", check_finite=False
        )
        return out


def whitening_of(landmarks: NDArray, weights: Any) -> Whitening:
    """Return the whitening of S K S^T from the values S k_x of the landmarks x."""
    core = np.ascontiguousarray(weights @ landmarks.T, dtype=np.float64)
    return Whitening.of(core, RANK_TOL[landmarks.itemsize])


class SketchedRows:
    """S k_x of the training rows x, kept while that is small."""

    def __init__(self, sketch_map: SketchMap, X: Any) -> None:
        self._map, self._X = sketch_map, X
        self.shape = sketch_map.weights.shape[0], X.shape[0]
        small = X.dtype.itemsize * np.prod(self.shape) <= KEEP_BYTES
        self._kept = sketch_map(X) if small else None

    def __getitem__(self, rows: slice | NDArray) -> NDArray:
        """Return S k_x of some rows, of shape (s, number of rows)."""
        return self._map(self._X[rows]) if self._kept is None else self._kept[:, rows]


def fit_gram(K: NDArray, targets: Any, alpha: float) -> NDArray:
    """Return H (n, t) without a sketch; `K` is lost."""
    n = len(K)
    dense = targets.toarray(order="F") if sp.issparse(targets) else targets
    return _solve(K.T, dense, n * alpha, alpha)


def fit_sketched(
    sketch_map: SketchMap,
    X: Any,
    columns: NDArray,
    targets: Callable[[slice], Any],
    alpha: float,
    stages: Stages,
) -> tuple[NDArray, int]:
    """Return H (s, t) and the rank r of the sketched kernel.

    Parameters
    ----------
    sketch_map : SketchMap
        The map x -> S k_x.
    X : rows, n of them
        Training inputs.
    columns : ndarray
        Which of them are the landmarks.
    targets : callable
        Gives the features of the outputs of some rows, dense or sparse.
    alpha : float
        Positive penalty.
    stages : Stages
        Told how far it is.
    """
    with stages.stage("inputs: kernel"):
        rows = SketchedRows(sketch_map, X)
    with stages.stage("inputs: factor"):
        whitening = whitening_of(rows[columns], sketch_map.weights)
    G, C = _moments(rows, whitening, targets, stages)
    with stages.stage("inputs: solve"):
        W = _solve(G, C, X.shape[0] * alpha, alpha)
        return whitening.lift(W, rows.shape[0]), len(whitening.chosen)


def _moments(
    rows: SketchedRows,
    whitening: Whitening,
    targets: Callable[[slice], Any],
    stages: Stages,
) -> tuple[NDArray, NDArray]:
    """Return the lower half of Z^T Z, and Z^T T, block by block."""
    size, n = rows.shape
    step = max(_FEWEST_ROWS, _BLOCK_BYTES // (8 * size))
    G: NDArray = np.zeros((len(whitening.chosen),) * 2, order="F")
    C: Any = 0.0
    with stages.stage("inputs: features", n) as show:
        for start in range(0, n, step):
            some = slice(start, min(start + step, n))
            Z = whitening.apply(rows[some])
            G = scipy.linalg.blas.dsyrk(1.0, Z, beta=1.0, c=G, lower=1, overwrite_c=1)
            C = C + Z @ targets(some)
            show(some.stop)
    return G, C


def _solve(G: NDArray, C: NDArray, ridge: float, alpha: float) -> NDArray:
    """Return (G + ridge I)^-1 C from the lower half of G; both are lost."""
    diagonal = np.arange(len(G))
    G[diagonal, diagonal] += ridge
    try:
        factor = scipy.linalg.cho_factor(
            G, lower=True, overwrite_a=True, check_finite=False
        )
    except np.linalg.LinAlgError as error:
        raise ValueError(
            "`alpha` must be larger for this kernel, whose Gram matrix plus n alpha is "
            f"not numerically positive definite: got {alpha:g}"
        ) from error
    return scipy.linalg.cho_solve(factor, C, overwrite_b=True, check_finite=False)
