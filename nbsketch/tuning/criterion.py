r"""Criteria of length scales, with gradients: leave-one-out errors and evidence.

`LandmarkCriterion` is the leave-one-out error of a small ridge regression. On m rows
with l landmarks among them, B = k(X, L) and C = k(L, L),

.. math:: \min_{b, \beta} \sum_i w_i \|y_i - b - B_i \beta\|^2
          + \tau\, \mathrm{tr}(\beta^T C \beta)

has residuals r and leverages h, and its leave-one-out residuals are :math:`r_i / (1 -
h_i)`. The criterion is the logarithm of the weighted mean of their squared norms.

`ExactCriterion` is the evidence of few rows, all of which are landmarks. With weights
w, the targets are modeled as Gaussian with covariance :math:`\sigma^2 \Sigma`,
:math:`\Sigma = K + \tau\, \mathrm{diag}(1 / w)`. With :math:`A = \Sigma^{-1}`, the
criterion is

.. math:: \frac{1}{M} (\log\det\Sigma + (M - m) \log\tau)
          + \log \frac{1}{M} \mathrm{tr}(Y^T A Y):

minus twice the log evidence per row, at the best sigma and up to constants (Rasmussen
and Williams, Gaussian Processes for Machine Learning, 2006, section 5.4.1), for rows
that count :math:`w_i` times, scaled to a sum of :math:`M = (\sum w)^2 / \sum w^2`. M
equals m for equal weights, and rows of tiny weight do not count. The leave-one-out
error (section 5.4.2) is also available: the logarithm of the weighted mean of the
squares of :math:`(A Y)_i / A_{ii}`. Minimized on few rows, it varies more between
samples than the evidence: 0.044 against 0.027 on a smooth function of ten columns.

Kernels are functions of the squared Euclidean distance of scaled rows or, for the
product Laplacian, of the sum of absolute differences: `Euclidean` and `Manhattan`
provide the operations of the criterion.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from nbsketch._jit.threads import run_slices
from nbsketch._jit.tuning import (
    LAPLACIAN,
    PROFILES,
    TILE,
    distances,
    kernel_and_slope,
    signed_sums,
    weighted_distances,
)
from nbsketch._machine.blas import factor, invert_factor, symmetric_product
from nbsketch.solvers.left_out import effective_number
from nbsketch.tuning.rows import Training

# Approximate seconds of one term of a sum of absolute differences on one thread.
_SECONDS = 4e-10
# Added to the diagonals of C, times sqrt(l), and of K: above rounding errors, without
# effect.
_JITTER = 1e-8
# The diagonal added to an indefinite matrix grows by this factor until it is definite.
_RAISED = 30.0
# Columns this many times their spread away from zero are centered.
_FAR = 1e3
# Minimum weight relative to the mean, whose inverse is finite in single precision.
_LEAST_WEIGHT = 1e-30
# Minimum share of the weight outside of a block, against rounding.
_LEAST_REST = 1e-10
# Minimum divisor of residuals: one minus a leverage is rounded.
_LEAST_FREEDOM = 1e-10
_TINY = np.finfo(np.float64).tiny
# From this tau on, covariances are inverted in single precision: 30 % less time, and
# values with errors below 2e-5.
_LEAST_EXACT_TAU = 0.02


class LandmarkCriterion:
    r"""Errors of left-out rows, and the fitted function, at a point.

    Points are (log inverse scales, log tau). One eigendecomposition of the whitened
    rows F = B L^-T, with the Cholesky factor L of C, is used for all tau.

    If neighboring rows are nearly repeated (time series, repeated measurements),
    leave-one-out residuals favor interpolation, so blocks of rows are left out
    together. The residuals of block B are

    .. math:: e_B = y_B - F_B (F^T F - F_B^T F_B + \tau I)^{-1} (F^T y - F_B^T y_B),

    a refit from the Gram matrix of all rows minus that of the block, without
    cancellation. Means are over the left-out rows.

    Parameters
    ----------
    data : Training
        Rows near zero, targets of about unit variance, weights, and blocks that are
        left out together; rows of block -1 are never left out.
    size : int
        Number of landmarks: the first rows.
    family : int
        Kernel family: a code in `nbsketch._jit.tuning.FAMILIES`.
    cut : float, default=inf
        Threshold of the Huber loss, beyond which it is linear.
    log_tau : float, default=None
        Logarithm of tau, if it is given.

    Attributes
    ----------
    data : Training
        The rows, with weights of mean one.
    """

    def __init__(
        self,
        data: Training,
        size: int,
        family: int,
        cut: float = np.inf,
        log_tau: float | None = None,
    ) -> None:
        m = len(data.rows)
        weights = data.weights / data.weights.mean()
        self.data = data._replace(weights=weights)
        self.log_tau = log_tau
        self._distance = distance_of(family)
        self._origin = origin_of(data.rows)
        rows = data.rows - self._origin
        self._X = np.vstack([rows, rows[:size]])
        self._weights = weights
        self._roots = np.sqrt(weights)
        self._cuts = np.where(weights > 0, self._roots * min(cut, 1e300), 1.0)
        self._target = self._roots[:, None] * (data.Y - weights @ data.Y / m)
        # Number of left-out rows times their mean weight.
        self._count = float(m)
        self._blocks = None
        if data.labels is not None:
            self._blocks = blocks_of(data.labels)
            self._count = float(sum(weights[rows].sum() for rows in self._blocks))
        # Buffers shared by all evaluations.
        self._K, self._slopes = np.empty((2, m + size, size))
        self._F = np.empty((m, size))

    def path(self, log_inverse: NDArray, log_taus: NDArray) -> NDArray:
        """Return the criterion for several tau, by one eigendecomposition."""
        self._whiten(log_inverse)
        squares = np.square(self._left_out(np.exp(log_taus))).sum(axis=2)
        shrink = self._cuts / np.maximum(np.sqrt(squares), self._cuts)
        totals = (shrink * (2 - shrink) * squares).sum(axis=1)
        return np.log(np.maximum(totals / self._count, _TINY))

    def sensitivity(self, point: NDArray) -> NDArray:
        """Return the root mean square of the derivative of f in each feature, (q,)."""
        coef = self._coef(point)
        inverse = np.exp(point[:-1])
        m = len(self._F)
        X, L = np.split(self._X, [m])
        total = np.zeros(len(inverse))
        for beta in coef.T:
            steps = self._distance.gradients(self._slopes[:m] * beta, X, L, inverse)
            total += self._weights @ np.square(steps)
        return np.sqrt(total / m)

    def residuals(self, point: NDArray) -> NDArray:
        """Return the leave-one-out residuals, (m, d); zero for rows of weight zero."""
        self._whiten(point[:-1])
        roots = np.where(self._roots > 0, self._roots, np.inf)
        (left_out,) = self._left_out(np.exp(point[-1:]))
        return left_out / roots[:, None]

    def predictor(self, point: NDArray) -> Callable[[NDArray], NDArray]:
        """Return the fitted function, without the mean of the targets."""
        coef = self._coef(point)
        m = len(self._F)
        L = self._X[m:]
        inverse = np.exp(point[:-1])
        means = self._weights @ self._K[:m] / m

        def predict(X: NDArray) -> NDArray:
            values = np.empty((len(X), len(L)))
            rows = (X - self._origin) * inverse
            self._distance.fill(rows, L * inverse, values, np.empty_like(values))
            return (values - means) @ coef

        return predict

    def _left_out(self, taus: NDArray) -> NDArray:
        """Return the scaled residuals of left-out rows for each tau, (taus, m, d)."""
        gram = self._F.T @ self._F
        target = self._target
        if self._blocks is not None:
            cross = self._F.T @ target
            out = np.zeros((len(taus), *target.shape))
            for rows in self._blocks:
                out[:, rows] = self._block_path(rows, gram, cross, taus)
            return out
        values, vectors = np.linalg.eigh(gram)
        Q = self._F @ vectors
        gains = 1 / (np.maximum(values, 0)[:, None] + taus)
        constant = (self._weights / len(Q))[:, None]
        return left_out_residuals(Q, target, gains, Q.T @ target, constant)

    def _block_path(
        self, rows: NDArray, gram: NDArray, cross: NDArray, taus: NDArray
    ) -> NDArray:
        """Return the residuals of a block for each tau, by one eigendecomposition."""
        F = self._F[rows]
        y = self._target[rows]
        roots = self._roots[rows, None]
        m = len(self._F)
        others = max(m - self._weights[rows].sum(), _LEAST_REST * m)
        F_mean = -(roots.T @ F) / others
        y_mean = -(roots.T @ y) / others
        values, vectors = np.linalg.eigh(gram - F.T @ F - others * F_mean.T @ F_mean)
        projected = vectors.T @ (cross - F.T @ y - others * F_mean.T @ y_mean)
        Q = (F - roots * F_mean) @ vectors
        target = y - roots * y_mean
        shrink = 1 / (np.maximum(values, 0) + taus[:, None])
        return np.stack([target - Q @ (s[:, None] * projected) for s in shrink])

    def _coef(self, point: NDArray) -> NDArray:
        """Return beta, (l, d)."""
        base = self._whiten(point[:-1])
        inner = self._F.T @ self._F
        inner[np.diag_indices(len(inner))] += np.exp(point[-1])
        half = _inverse_root(inner)
        return base.T @ (half.T @ (half @ (self._F.T @ self._target)))

    def _whiten(self, log_inverse: NDArray) -> NDArray:
        """Compute F, and kernel values and slopes with the landmarks; return L^-1."""
        rows = self._X * np.exp(log_inverse)
        m = len(self._F)
        self._distance.fill(rows, rows[m:], self._K, self._slopes)
        B, C = np.split(self._K, [m])
        C[np.diag_indices(len(C))] += _JITTER * np.sqrt(len(C))
        np.subtract(B, self._weights @ B / m, out=self._F)
        self._F *= self._roots[:, None]
        base = _inverse_root(C)
        trmm = scipy.linalg.get_blas_funcs("trmm", (self._F,))
        trmm(1.0, base, self._F.T, lower=1, overwrite_b=1)
        return base


def left_out_residuals(
    Q: NDArray, target: NDArray, gains: NDArray, cross: NDArray, constant: NDArray
) -> NDArray:
    """Return the leave-one-out residuals (p, m, d) of p ridge regressions.

    Features Q (m, r) have a diagonal covariance; `gains` (r, p) are the inverses of its
    eigenvalues plus the penalties, `cross` (r, d) the covariance with the targets, and
    `constant` (m, 1) the leverages of an intercept.
    """
    fits = Q @ (gains[:, :, None] * cross[:, None]).reshape(len(gains), -1)
    fits = fits.reshape(len(Q), -1, target.shape[1])
    freedom = np.maximum(1 - np.square(Q) @ gains - constant, _LEAST_FREEDOM)
    residuals = (target[:, None] - fits) / freedom[:, :, None]
    return np.ascontiguousarray(residuals.swapaxes(0, 1))


def blocks_of(labels: NDArray) -> list[NDArray]:
    """Return the rows of each block that is left out, given the block of each row."""
    return [np.flatnonzero(labels == k) for k in np.unique(labels[labels >= 0])]


def origin_of(X: NDArray) -> NDArray:
    """Return the offset of rows whose distances are differences of squares.

    Next to an outlier, the other values of a column nearly coincide, far from zero
    relative to their spread: the offset is their median in such columns, and 0 in
    others.
    """
    middle = np.median(X, axis=0)
    spread = np.median(np.abs(X - middle), axis=0)
    return np.where((spread > 0) & (np.abs(middle) > _FAR * spread), middle, 0.0)


def _inverse_root(matrix: NDArray) -> NDArray:
    """Return L^-1, in Fortran order, for the Cholesky factor L of a matrix.

    Rows at very large distances can make it indefinite by rounding: the diagonal is
    then increased until the factor exists.
    """
    added = _JITTER * matrix.diagonal().max()
    while True:
        root = np.array(matrix.T, order="F")  # symmetric: a copy in memory order
        try:
            factor(root)
        except np.linalg.LinAlgError:
            if not added < np.inf:
                raise
            added *= _RAISED
            matrix = matrix + added * np.eye(len(matrix))
            continue
        invert_factor(root)
        return np.triu(root.T).T


class ExactCriterion:
    """The criterion as a function of the point (log inverse scales, log tau).

    An evaluation takes m^3 + m^2 q operations and memory for 5 m^2 numbers.

    Parameters
    ----------
    data : Training
        Rows, targets and positive weights; blocks are ignored.
    family : int
        Kernel family: a code in `nbsketch._jit.tuning.FAMILIES`.

    Attributes
    ----------
    error : float
        Leave-one-out error at the last point.
    """

    def __init__(self, data: Training, family: int) -> None:
        m = len(data.rows)
        weights = data.weights / data.weights.mean()
        self._X = np.ascontiguousarray(data.rows - origin_of(data.rows))
        self._distance = distance_of(family)
        self._weights = weights / weights.mean()
        self._noise = 1 / np.maximum(self._weights, _LEAST_WEIGHT)
        self._effective = effective_number(weights)
        self._target = np.asfortranarray(data.Y - weights @ data.Y / weights.sum())
        self._K, self._slopes = np.empty((2, m, m))
        # Precision: 0 single, 1 double. It never decreases, because a change would
        # mislead the line search.
        self.level = 0
        self.error = np.inf

    def __call__(self, point: NDArray) -> tuple[float, NDArray]:
        """Return the criterion and its gradient."""
        tau = np.exp(point[-1])
        A, log_determinant, dual = self._solve(point)
        M = self._effective
        total = max((self._target * dual).sum(), _TINY)
        # Half of the derivative in the covariance, times M: its lower triangle.
        W = A.T.astype(np.float64, copy=False)
        W -= dual @ (dual.T * (M / total))
        excess = 1 - len(A) / M
        by_tau = tau * (self._noise @ W.diagonal()) / M + excess
        W *= self._slopes
        by_scales = self._distance.by_scales(np.triu(W, 1), self._X, np.exp(point[:-1]))
        value = log_determinant / M + excess * point[-1] + np.log(total / M)
        return value, np.append(by_scales * (2 / M), by_tau)

    def left_out(self, point: NDArray) -> float:
        """Return the leave-one-out error at a point; infinity if rounding dominates."""
        try:
            self._solve(point)
        except np.linalg.LinAlgError:
            return np.inf
        return self.error

    def _solve(self, point: NDArray) -> tuple[NDArray, float, NDArray]:
        """Return A (lower triangle), log det of its inverse, and A Y."""
        rows = self._X * np.exp(point[:-1])
        self._distance.fill(rows, rows, self._K, self._slopes)
        tau = np.exp(point[-1])
        self._K[np.diag_indices(len(rows))] += tau * self._noise + _JITTER
        self.level = max(self.level, int(tau < _LEAST_EXACT_TAU))
        # Symmetric: the transpose is in Fortran order.
        root = self._K.T.astype(np.float64 if self.level else np.float32, copy=False)
        factor(root)
        log_determinant = 2 * np.log(root.diagonal()).sum(dtype=np.float64)
        invert_factor(root)
        lauum = scipy.linalg.get_lapack_funcs("lauum", (root,))
        A, _ = lauum(root, lower=1, overwrite_c=1)
        dual = symmetric_product(A, self._target.astype(A.dtype)).astype(np.float64)
        squares = np.square(dual / A.diagonal()[:, None]).sum(axis=1)
        self.error = np.log(max(self._weights @ squares / len(A), _TINY))
        return A, log_determinant, dual


def fill_by_differences(
    family: int,
    rows: NDArray,
    columns: NDArray,
    values: NDArray,
    slopes: NDArray,
    height: int,
    triangle: bool,
    first: int,
    last: int,
) -> None:
    """Compute kernel values and slopes of tiles: see `_jit.tuning.distances`."""
    is_l1 = family == LAPLACIAN
    distances(is_l1, rows, columns, values, height, triangle, first, last)
    parts = [part[first * height : last * height] for part in (values, slopes)]
    norms = [np.zeros(size) for size in parts[0].shape]
    kernel_and_slope(PROFILES[family], *norms, *parts, triangle)


class Euclidean:
    """Families of the squared Euclidean distance, with slopes as derivatives in it."""

    metric = "euclidean"
    # Distances grow with this power of the number of columns.
    power = 0.5

    def __init__(self, family: int) -> None:
        self._family = family

    def fill(self, rows: NDArray, L: NDArray, values: NDArray, slopes: NDArray) -> None:
        """Compute kernel values and slopes of scaled rows (m, q), landmarks (l, q)."""
        norms = [np.einsum("ij,ij->i", part, part) for part in (rows, L)]
        np.matmul(rows, L.T, out=values)
        kernel_and_slope(PROFILES[self._family], *norms, values, slopes, False)

    def by_scales(self, W: NDArray, X: NDArray, inverse: NDArray) -> NDArray:
        """Return the sum of W_ij times the derivatives of the distances in eta, (q,).

        They are those between the rows of `X`, which are not scaled; `inverse` are the
        inverse length scales e^eta.
        """
        ones = np.ones(len(X))
        squares = np.square(X)
        total = (W @ ones) @ squares + (ones @ W) @ squares
        total -= 2 * ((W.T @ X) * X).sum(axis=0)
        return 2 * np.square(inverse) * total

    def gradients(
        self, V: NDArray, X: NDArray, L: NDArray, inverse: NDArray
    ) -> NDArray:
        """Return the gradients (m, q) in the rows, for V = slopes times dual weights.

        The derivatives of the distances in x_k, times V, summed over the landmarks.
        """
        return 2 * np.square(inverse) * (V.sum(axis=1)[:, None] * X - V @ L)


class Manhattan:
    """The product Laplacian kernel: a function of the sum of absolute differences."""

    metric = "cityblock"
    power = 1.0

    def fill(self, rows: NDArray, L: NDArray, values: NDArray, slopes: NDArray) -> None:
        """Compute kernel values and slopes: see `Euclidean.fill`."""
        args = rows, np.ascontiguousarray(L.T)[None], values, slopes, TILE, False
        seconds = _SECONDS * TILE * L.shape[0] * (L.shape[1] + 10)
        run_slices(fill_by_differences, _tiles(rows), seconds, LAPLACIAN, *args)

    def by_scales(self, W: NDArray, X: NDArray, inverse: NDArray) -> NDArray:
        """Return the sum of W_ij times derivatives: see `Euclidean.by_scales`."""
        out = np.zeros((_tiles(X), X.shape[1]))
        args = True, X, np.ascontiguousarray(X.T)[None], W, out, TILE, False
        run_slices(weighted_distances, len(out), _SECONDS * TILE * X.size, *args)
        return inverse * out.sum(axis=0)

    def gradients(
        self, V: NDArray, X: NDArray, L: NDArray, inverse: NDArray
    ) -> NDArray:
        """Return the gradients in the rows: see `Euclidean.gradients`."""
        out = np.empty(X.shape)
        signed_sums(X, np.ascontiguousarray(L.T), V, out)
        return inverse * out


def distance_of(family: int) -> Euclidean | Manhattan:
    """Return the operations of the criterion for a family."""
    return Manhattan() if family == LAPLACIAN else Euclidean(family)


def _tiles(rows: NDArray) -> int:
    """Return the number of tiles of rows."""
    return -(-len(rows) // TILE)
