r"""Criteria of length scales, with their gradients: left-out errors and evidence.

`LeaveOneOut` is the leave-one-out error of a small ridge. On m rows with l landmarks
among them, B = k(X, L) and C = k(L, L),

.. math:: \min_{b, \beta} \sum_i w_i \|y_i - b - B_i \beta\|^2
          + \tau\, \mathrm{tr}(\beta^T C \beta)

has residuals r and leverages h, and without row i its residual is
:math:`r_i / (1 - h_i)`. The criterion is the logarithm of the weighted mean of the
squared norm of these.

A share of minus twice the logarithm of the evidence per row, of targets of covariance
proportional to F F^T + tau I for the whitened rows F, may take part: it varies less.

`ExactCriterion` is the evidence of few rows, all of which are landmarks. With weights
w, the targets are modeled as Gaussian of covariance
:math:`\sigma^2 \Sigma`, :math:`\Sigma = K + \tau\, \mathrm{diag}(1 / w)`. With
:math:`A = \Sigma^{-1}`, the criterion is

.. math:: \frac{1}{M} (\log\det\Sigma + (M - m) \log\tau)
          + \log \frac{1}{M} \mathrm{tr}(Y^T A Y):

minus twice the logarithm of the evidence per row, at the best sigma and up to constants
(Rasmussen and Williams, Gaussian Processes for Machine Learning, 2006, section 5.4.1),
of rows that count :math:`w_i` times, scaled to a sum of
:math:`M = (\sum w)^2 / \sum w^2`. It is m for equal weights, and rows of hardly any
weight do not count.
Beside it stands the left-out error (section 5.4.2), the logarithm of the weighted mean
of the squares of :math:`(A Y)_i / A_{ii}`. Minimized on few rows it varies more with
the rows than the evidence does: .044 against .027 on a smooth function of ten columns.

Kernels are functions of the squared Euclidean distance of scaled rows or, for the
product Laplacian, of the sum of their absolute differences: `Euclidean` and `Manhattan`
have what the criterion needs of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from nbsketch._jit.threads import run_slices
from nbsketch._jit.tuning import (
    LAPLACIAN,
    TILE,
    kernel_and_slope,
    laplacian,
    signed_sums,
    weighted_distances,
)
from nbsketch._machine.blas import eigh, factor, invert_factor, symmetric_product
from nbsketch.solvers.left_out import effective_number

# Rough seconds of one term of a sum of absolute differences on one thread.
_SECONDS = 4e-10
# Added to the diagonals of C, times sqrt(l), and of K: above rounding errors, without
# effect.
_JITTER = 1e-8
# What is added to an indefinite matrix is raised by this factor until it is definite.
_RAISED = 30.0
# Columns this many times their spread away from zero are moved there.
_FAR = 1e3
# Rows of less weight have this one, relative to the mean: its inverse is a number in
# single precision.
_LEAST_WEIGHT = 1e-30
# Residuals are not divided by less than this: one minus a leverage is rounded.
_LEAST_FREEDOM = 1e-10
_TINY = np.finfo(np.float64).tiny
# Whether F and T are in single precision, by level. It serves from this number of terms
# on: for T if tau and the value are at least so large, and for F too if the diagonal of
# the Cholesky factor of C, and tau times its least element, are. Values then have
# errors below 1e-4, slopes relative ones below 1e-3, with which searches for nearly
# noise-free targets would stop early.
_SINGLE = (True, True), (False, True), (False, False)
_LEAST_TERMS = 3e6
_LEAST_TAU = 1e-4
_LEAST_VALUE = -6.0
_LEAST_PIVOT = 1e-3
_LEAST_PRODUCT = 3e-5
# From this tau on, covariances are inverted in single precision: 30 % less time, and
# values with errors below 2e-5.
_LEAST_EXACT_TAU = 0.02


class Sample(NamedTuple):
    """Rows, targets and landmarks of a criterion.

    Attributes
    ----------
    X : ndarray of shape (m, q)
        Rows, centered near zero.
    Y : ndarray of shape (m, d)
        Targets, each of about unit variance.
    weights : ndarray of shape (m,), optional
        Non-negative weights of mean one.
    landmarks : ndarray of shape (l,)
        Indices of the rows that are the landmarks.
    cut : float
        Threshold of Huber's function, by which larger residuals count linearly.
    log_tau : float, optional
        Logarithm of tau, if it is given.
    blocks : ndarray of int of shape (m,), optional
        Block of each row. The rows of a block are left out together; those of block -1
        are never left out. None: each row is left out by itself.
    """

    X: NDArray
    Y: NDArray
    weights: NDArray | None
    landmarks: NDArray
    cut: float = np.inf
    log_tau: float | None = None
    blocks: NDArray | None = None


class Fit(NamedTuple):
    """A fitted ridge. Scaled rows are centered and multiplied by sqrt(w)."""

    F: NDArray  # whitened rows, (m, l); they may be overwritten by `_gradient`
    inner: NDArray  # F^T F + tau I, (l, l)
    root: NDArray  # R, lower triangular: (B^T B + tau C)^-1 = R^T R, (l, l)
    T: NDArray  # B R^T, (m, l)
    scores: NDArray  # T^T Y, (l, d)
    coef: NDArray  # beta, (l, d)
    residual: NDArray  # scaled, (m, d)
    freedom: NDArray  # 1 - h, (m, 1)
    base: NDArray  # L^-1 for the Cholesky factor L of C, (l, l)


class Slope(NamedTuple):
    """Derivatives of the criterion in the residuals and in the map from Y to fits."""

    g: NDArray  # in the residuals, (m, d)
    q: NDArray  # in the diagonal of the map, (m, 1); zero if `product` is given
    product: NDArray | None = None  # that in the blocks of the map times T, (m, l)


class LeaveOneOut:
    """The criterion as a function of the point (log inverse scales, log tau).

    Parameters
    ----------
    sample : Sample
        Rows, targets, weights and landmarks.
    family : int
        One of the codes of `nbsketch._jit.tuning.FAMILIES`.
    share : float, default=1.0
        Share of the left-out error in the criterion; the rest is evidence.

    Attributes
    ----------
    error : float
        Left-out error at the last point.

    Notes
    -----
    With (B^T B + tau C)^-1 = R^T R, T = B R^T, the scores s = T^T y, g and q the
    derivatives in r and h, v = T^T g and N = T^T diag(q) T: the derivative in B is
    (2 diag(q) T - T (2 N - v s^T) - g s^T - r v^T) R, that in C is
    tau R^T (v s^T - N) R, that in tau is tr(R^T (v s^T - N) R C), and that in the
    scale a_k follows from both through the distances: in two thin products if these are
    Euclidean, in one pass over absolute differences for the product Laplacian. Where
    blocks are left out, diag(q) is a block-diagonal matrix. The determinant of the
    evidence adds 2 e T R and e (tau R^T R - C^-1), for e = (1 - share) / M and the
    effective number of rows M.
    """

    def __init__(self, sample: Sample, family: int, share: float = 1.0) -> None:
        self._share = share
        self.error = np.inf
        m, _ = sample.X.shape
        size = len(sample.landmarks)
        self._distance = distance_of(family)
        self._size = size
        self._origin = origin_of(sample.X)
        rows = sample.X - self._origin
        self._X = np.vstack([rows, rows[sample.landmarks]])
        weights = np.ones(m) if sample.weights is None else sample.weights
        self._weights = weights
        self._roots = np.sqrt(weights)
        self._effective = effective_number(weights)
        self._is_weighted = sample.weights is not None
        self._cuts = np.where(weights > 0, self._roots * min(sample.cut, 1e300), 1.0)
        self._target = self._roots[:, None] * (sample.Y - weights @ sample.Y / m)
        # Buffers shared by all evaluations.
        self._K, self._slopes = np.empty((2, m + size, size))
        self._F, self._T, self._D = np.empty((3, m, size))
        self._single = np.empty((3, m, size), dtype=np.float32)
        # A line search is misled by values whose precision changes: it never falls.
        self.level = 0 if m * size**2 >= _LEAST_TERMS else 2

    def __call__(self, point: NDArray) -> tuple[float, NDArray]:
        """Return the criterion and its gradient."""
        fit = self._fit(point)
        left_out = self._left_out(fit)
        squares, shrink = self._squares(left_out)
        total = max(float((shrink * (2 - shrink) * squares).sum()), _TINY)
        value = self.error = float(np.log(total / self._count))
        if self.level == 1 and value < _LEAST_VALUE:
            self.level = 2
            return self(point)
        factor = 2 * self._share / total * shrink
        slope = self._slope(fit, factor, left_out, squares)
        if self._share < 1:
            evidence, by_residual = self._evidence(fit, float(point[-1]))
            value = self._share * value + (1 - self._share) * evidence
            slope = slope._replace(g=slope.g + (1 - self._share) * by_residual)
        return value, self._gradient(point, fit, slope)

    def _evidence(self, fit: Fit, log_tau: float) -> tuple[float, NDArray]:
        """Return minus twice the log evidence per row, and its slope in residuals."""
        roots = fit.base.diagonal(), fit.root.diagonal()
        log_determinant = 2 * float(np.log(roots[0] / roots[1]).sum())
        log_determinant -= self._size * log_tau
        total = max(float((self._target * fit.residual).sum()), _TINY)
        number = self._effective
        value = log_determinant / number + float(np.log(total / number))
        return value, self._target / total

    def path(self, log_inverse: NDArray, log_taus: NDArray) -> NDArray:
        """Return the criterion for several tau, by one eigendecomposition."""
        self._whiten(log_inverse)
        errors = np.empty(len(log_taus))
        for i, left_out in enumerate(self._left_out_path(np.exp(log_taus))):
            square, shrunk = self._squares(left_out)
            total = float((shrunk * (2 - shrunk) * square).sum())
            errors[i] = max(total / self._count, _TINY)
        return np.log(errors)

    def sensitivity(self, point: NDArray) -> NDArray:
        """Return the root mean square of the derivative of f in each feature, (q,)."""
        coef = self._fit(point).coef
        inverse = np.exp(point[:-1])
        m = len(self._T)
        L = self._X[len(self._T) :]
        total = np.zeros(len(inverse))
        for beta in coef.T:
            V = self._slopes[:m] * beta
            steps = self._distance.gradients(V, self._X[:m], L, inverse)
            total += self._weights @ np.square(steps)
        return np.sqrt(total / m)

    def residuals(self, point: NDArray) -> NDArray:
        """Return the left-out residuals, (m, d); zero for rows of weight zero."""
        fit = self._fit(point)
        roots = np.where(self._roots > 0, self._roots, np.inf)
        return self._left_out(fit) / roots[:, None]

    def predictor(self, point: NDArray) -> Callable[[NDArray], NDArray]:
        """Return the fitted function of rows, without the mean of the targets."""
        coef = self._fit(point).coef
        L = self._X[len(self._T) :]
        inverse = np.exp(point[:-1])
        means = self._weights @ self._K[: len(self._T)] / len(self._T)

        def predict(X: NDArray) -> NDArray:
            values = np.empty((len(X), len(L)))
            rows = (X - self._origin) * inverse
            self._distance.fill(rows, L * inverse, values, np.empty_like(values))
            return (values - means) @ coef

        return predict

    @property
    def _count(self) -> float:
        """Number of rows that are left out, times their mean weight."""
        return len(self._T)

    def _left_out(self, fit: Fit) -> NDArray:
        """Return the scaled residual of each row in a fit without it, (m, d)."""
        return fit.residual / fit.freedom

    def _left_out_path(self, taus: NDArray) -> Iterator[NDArray]:
        """Yield these residuals for each tau, from the whitened rows."""
        values, vectors = eigh(self._F.T @ self._F)
        Q = np.matmul(self._F, vectors, out=self._T)
        cross = Q.T @ self._target
        shrinks = 1 / (np.maximum(values, 0) + taus[:, None])
        leverages = np.square(Q) @ shrinks.T + (self._weights / len(Q))[:, None]
        fits = Q @ (shrinks.T[:, :, None] * cross[:, None]).reshape(len(values), -1)
        fits = fits.reshape(len(Q), len(taus), -1)
        for k, leverage in enumerate(leverages.T):
            freedom = np.maximum(1 - leverage, _LEAST_FREEDOM)
            yield (self._target - fits[:, k]) / freedom[:, None]

    def _slope(
        self, fit: Fit, factor: NDArray, left_out: NDArray, squares: NDArray
    ) -> Slope:
        """Return derivatives; that in the left-out residuals is factor * left_out."""
        return Slope(factor * left_out / fit.freedom, factor * squares / fit.freedom)

    def _kernel(self, log_inverse: NDArray) -> NDArray:
        """Return k of the rows, and below them the landmarks, with the landmarks."""
        rows = self._X * np.exp(log_inverse)
        m = len(self._T)
        self._distance.fill(rows, rows[m:], self._K, self._slopes)
        self._K[m:][np.diag_indices(self._size)] += _JITTER * np.sqrt(self._size)
        return self._K

    def _center(self, B: NDArray, out: NDArray) -> None:
        """Fill `out` with B, centered and scaled."""
        means = self._weights @ B / len(B)
        np.subtract(B, means, out=out, casting="same_kind")
        if self._is_weighted:
            out *= self._roots.astype(out.dtype)[:, None]

    def _whiten(self, log_inverse: NDArray) -> None:
        """Fill F with B L^-T."""
        B, C = np.split(self._kernel(log_inverse), [len(self._T)])
        self._center(B, self._F)
        _multiply(self._F, _inverse_root(C), transposed=True)

    def _fit(self, point: NDArray) -> Fit:
        # B^T B + tau C may have condition 1e16: it is factored in the basis of C.
        B, C = np.split(self._kernel(point[:-1]), [len(self._T)])
        base = _inverse_root(C)
        tau = np.exp(point[-1])
        F, T = self._buffers(base, tau)
        self._center(B, F)
        _multiply(F, base, transposed=True)
        inner = (F.T @ F).astype(np.float64)
        inner[np.diag_indices(self._size)] += tau
        half = _inverse_root(inner)
        T[:] = F
        _multiply(T, half, transposed=True)
        leverage = np.einsum("ij,ij->i", T, T) + self._weights / len(B)
        root = scipy.linalg.blas.dtrmm(1.0, half, base, lower=1)
        scores = T.T @ self._target.astype(T.dtype)
        residual = self._target - T @ scores
        freedom = np.maximum(1 - leverage, _LEAST_FREEDOM)[:, None]
        coef = root.T @ scores
        return Fit(F, inner, root, T, scores, coef, residual, freedom, base)

    def _buffers(self, root: NDArray, tau: float) -> tuple[NDArray, NDArray]:
        """Return buffers of shape (m, l) for F and T, in their precision."""
        self.level = max(self.level, self._least_level(root, tau))
        F, T = _SINGLE[self.level]
        return (self._single[0] if F else self._F, self._single[1] if T else self._T)

    def _least_level(self, root: NDArray, tau: float) -> int:
        """Return the level of precision that one evaluation needs."""
        pivot = 1 / root.diagonal().max()
        if pivot >= _LEAST_PIVOT and pivot * tau >= _LEAST_PRODUCT:
            return 0
        return 1 if tau >= _LEAST_TAU else 2

    def _squares(self, left_out: NDArray) -> tuple[NDArray, NDArray]:
        """Return squared norms of rows, and what Huber's slope is of the square's."""
        squares = np.square(left_out).sum(axis=1, keepdims=True)
        cuts = self._cuts[:, None]
        return squares, cuts / np.maximum(np.sqrt(squares), cuts)

    def _gradient(self, point: NDArray, fit: Fit, slope: Slope) -> NDArray:
        m = len(self._T)
        T = fit.T
        tau = np.exp(point[-1])
        N, D = self._by_map(T, slope)
        v = T.T @ slope.g.astype(T.dtype)
        outer = (v @ fit.scores.T).astype(np.float64)
        e = (1 - self._share) / self._effective
        N[np.diag_indices(self._size)] -= e
        _subtract(D, T, 2 * N - outer)
        self._subtract_thin(D, slope.g, fit, v)
        by_rows = fit.F
        by_rows[:] = D
        _multiply(by_rows, fit.root)
        by_landmarks = _congruent((outer + outer.T) / 2 - N, fit.root)
        if e > 0:
            by_landmarks -= e / tau * fit.base.T @ fit.base
        by_tau = float((by_landmarks * self._K[m:]).sum())
        # The derivatives in B and in C, times the slopes.
        W = self._K
        np.multiply(self._slopes[m:], tau * by_landmarks, out=W[m:])
        np.multiply(self._slopes[:m], by_rows, out=W[:m])
        if self._is_weighted:
            W[:m] *= self._roots[:, None]
        by_scales = self._distance.by_scales(
            W, self._X, self._X[m:], np.exp(point[:-1])
        )
        return np.append(by_scales, tau * by_tau)

    def _by_map(self, T: NDArray, slope: Slope) -> tuple[NDArray, NDArray]:
        """Return N, in double precision, and 2 diag(q) T."""
        D = self._single[2] if T.dtype == np.float32 else self._D
        if slope.product is not None:
            N = T.T @ slope.product
            return (N + N.T) / 2, np.multiply(2, slope.product, out=D)
        roots = np.sqrt(slope.q).astype(T.dtype)
        np.multiply(roots, T, out=D)
        N = (D.T @ D).astype(np.float64)
        return N, np.multiply(2 * roots, D, out=D)

    def _subtract_thin(self, D: NDArray, g: NDArray, fit: Fit, v: NDArray) -> None:
        """Subtract g s^T + r v^T from D, and then the weighted mean of its rows."""
        left = np.hstack([g, fit.residual, self._roots[:, None]])
        right = np.hstack([fit.scores, v, np.zeros((len(v), 1))]).T
        total = self._roots.astype(D.dtype) @ D - (self._roots @ left) @ right
        right[-1] = total / len(D)
        _subtract(D, left, right)


def _multiply(A: NDArray, root: NDArray, *, transposed: bool = False) -> None:
    """Multiply A, in C order, by a lower triangular factor or its transpose."""
    (trmm,) = scipy.linalg.get_blas_funcs(("trmm",), (A,))
    root = root.astype(A.dtype, copy=False)
    trmm(1.0, root, A.T, lower=1, trans_a=not transposed, overwrite_b=1)


def _subtract(A: NDArray, left: NDArray, right: NDArray) -> None:
    """Subtract left @ right from A; all are in C order."""
    (gemm,) = scipy.linalg.get_blas_funcs(("gemm",), (A,))
    left, right = (np.ascontiguousarray(part, dtype=A.dtype) for part in (left, right))
    gemm(-1.0, right.T, left.T, 1.0, A.T, overwrite_c=1)


def _congruent(matrix: NDArray, root: NDArray) -> NDArray:
    """Return R^T M R for a symmetric matrix and a lower triangular one."""
    trmm = scipy.linalg.blas.dtrmm
    right = trmm(1.0, root, matrix.T, side=1, lower=1)
    return trmm(1.0, root, right, lower=1, trans_a=1, overwrite_b=1)


def origin_of(X: NDArray) -> NDArray:
    """Return what is subtracted from rows whose distances are differences of squares.

    Beside an outlier the others of a column nearly coincide, far from zero for their
    spread: it is their median there, and 0 in other columns.
    """
    middle = np.median(X, axis=0)
    spread = np.median(np.abs(X - middle), axis=0)
    return np.where((spread > 0) & (np.abs(middle) > _FAR * spread), middle, 0.0)


def _inverse_root(matrix: NDArray) -> NDArray:
    """Return L^-1, in Fortran order, for the Cholesky factor L of a matrix.

    Beside rows that are very far away, rounding of the distances of others can make it
    indefinite: then so much is added to the diagonal that the factor exists.
    """
    added = _JITTER * float(matrix.diagonal().max())
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

    An evaluation takes time m^3 + m^2 q and memory 5 m^2.

    Parameters
    ----------
    sample : Sample
        Rows, targets and positive weights. Landmarks, threshold and blocks are not
        used.
    family : int
        One of the codes of `nbsketch._jit.tuning.FAMILIES`.

    Attributes
    ----------
    error : float
        Left-out error at the last point.
    """

    def __init__(self, sample: Sample, family: int) -> None:
        m = len(sample.X)
        weights = np.ones(m) if sample.weights is None else sample.weights
        self._X = np.ascontiguousarray(sample.X - origin_of(sample.X))
        self._distance = distance_of(family)
        self._weights = weights / weights.mean()
        self._noise = 1 / np.maximum(self._weights, _LEAST_WEIGHT)
        self._effective = effective_number(weights)
        target = sample.Y - weights @ sample.Y / weights.sum()
        self._target = np.asfortranarray(target)
        self._K, self._slopes = np.empty((2, m, m))
        # Whether in single precision, 0, or in double, 1: see `LeaveOneOut`.
        self.level = 0
        self.error = np.inf

    def __call__(self, point: NDArray) -> tuple[float, NDArray]:
        """Return the criterion and its gradient."""
        tau = np.exp(point[-1])
        A, log_determinant, dual = self._solve(point)
        M = self._effective
        total = max(float((self._target * dual).sum()), _TINY)
        # Half of the derivative in the covariance, times M: its lower triangle.
        W = A.T.astype(np.float64, copy=False)
        W -= dual @ (dual.T * (M / total))
        rest = 1 - len(A) / M
        by_tau = tau * float(self._noise @ W.diagonal()) / M + rest
        W *= self._slopes
        X = self._X
        inverse = np.exp(point[:-1])
        by_scales = self._distance.by_scales(np.triu(W, 1), X, X, inverse)
        value = log_determinant / M + rest * float(point[-1])
        value += float(np.log(total / M))
        return value, np.append(by_scales * (2 / M), by_tau)

    def left_out(self, point: NDArray) -> float:
        """Return the left-out error at a point; infinity where rounding spoils it."""
        try:
            self._solve(point)
        except np.linalg.LinAlgError:
            return np.inf
        return self.error

    def _solve(self, point: NDArray) -> tuple[NDArray, float, NDArray]:
        """Return A, whose lower triangle counts, log det of its inverse, and A Y."""
        rows = self._X * np.exp(point[:-1])
        self._distance.fill(rows, rows, self._K, self._slopes)
        tau = float(np.exp(point[-1]))
        self._K[np.diag_indices(len(rows))] += tau * self._noise + _JITTER
        self.level = max(self.level, int(tau < _LEAST_EXACT_TAU))
        # Symmetric: the transpose is in Fortran order.
        root = self._K.T.astype(np.float64 if self.level else np.float32, copy=False)
        factor(root)
        log_determinant = 2 * float(np.log(root.diagonal()).sum(dtype=np.float64))
        invert_factor(root)
        (lauum,) = scipy.linalg.get_lapack_funcs(("lauum",), (root,))
        A, _ = lauum(root, lower=1, overwrite_c=1)
        dual = symmetric_product(A, self._target.astype(A.dtype)).astype(np.float64)
        squares = np.square(dual / A.diagonal()[:, None]).sum(axis=1)
        mean = float(self._weights @ squares) / len(A)
        self.error = float(np.log(max(mean, _TINY)))
        return A, log_determinant, dual


class Euclidean:
    """Families of the squared Euclidean distance; slopes are derivatives in it."""

    metric = "euclidean"
    # Distances grow with this power of the number of columns.
    power = 0.5

    def __init__(self, family: int) -> None:
        self._family = family

    def fill(self, rows: NDArray, L: NDArray, values: NDArray, slopes: NDArray) -> None:
        """Fill kernel values and slopes of scaled rows (m, q), landmarks (l, q)."""
        norms = [np.einsum("ij,ij->i", part, part) for part in (rows, L)]
        np.matmul(rows, L.T, out=values)
        scratch = slopes.view(np.int64), np.empty(len(L))
        kernel_and_slope(self._family, *norms, values, slopes, *scratch)

    def by_scales(
        self, W: NDArray, X: NDArray, L: NDArray, inverse: NDArray
    ) -> NDArray:
        """Return the sum of W_ij times the derivatives of the distances in eta, (q,).

        `X` and `L` are not scaled; `inverse` are the inverse length scales e^eta.
        """
        rows = W @ np.ones(len(L))
        columns = np.ones(len(X)) @ W
        total = rows @ np.square(X) + columns @ np.square(L)
        total -= 2 * ((W.T @ X) * L).sum(axis=0)
        return 2 * np.square(inverse) * total

    def gradients(
        self, V: NDArray, X: NDArray, L: NDArray, inverse: NDArray
    ) -> NDArray:
        """Return the gradients (m, q) in the rows, for V = slopes times dual weights.

        The derivatives of the distances in x_k, times V, summed over the landmarks.
        """
        return 2 * np.square(inverse) * (V.sum(axis=1)[:, None] * X - V @ L)


class Manhattan:
    """The product Laplacian kernel, of the sum of absolute differences."""

    metric = "cityblock"
    power = 1.0

    def fill(self, rows: NDArray, L: NDArray, values: NDArray, slopes: NDArray) -> None:
        """Fill kernel values and slopes: see `Euclidean.fill`."""
        args = rows, np.ascontiguousarray(L.T), values, slopes, slopes.view(np.int64)
        seconds = _SECONDS * TILE * L.shape[0] * (L.shape[1] + 10)
        run_slices(laplacian, _tiles(rows), seconds, *args)

    def by_scales(
        self, W: NDArray, X: NDArray, L: NDArray, inverse: NDArray
    ) -> NDArray:
        """Return the sum of W_ij times derivatives: see `Euclidean.by_scales`."""
        out = np.empty((_tiles(X), X.shape[1]))
        args = X, np.ascontiguousarray(L.T), W, out
        seconds = _SECONDS * TILE * L.size
        run_slices(weighted_distances, _tiles(X), seconds, *args)
        return inverse * out.sum(axis=0)

    def gradients(
        self, V: NDArray, X: NDArray, L: NDArray, inverse: NDArray
    ) -> NDArray:
        """Return the gradients in the rows: see `Euclidean.gradients`."""
        out = np.empty(X.shape)
        signed_sums(X, np.ascontiguousarray(L.T), V, out)
        return inverse * out


def distance_of(family: int) -> Euclidean | Manhattan:
    """Return what the criterion needs of a family."""
    return Manhattan() if family == LAPLACIAN else Euclidean(family)


def _tiles(rows: NDArray) -> int:
    """Return the number of tiles of rows."""
    return -(-len(rows) // TILE)
