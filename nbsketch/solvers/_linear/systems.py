r"""Kernel least squares as a linear system in the dual coefficients, column by column.

.. math:: (K + \lambda_j W^{-1}) a_j + b_j 1 = y_j, \qquad 1^\top a_j = 0,
          \qquad \lambda_j = n \alpha / \mu_j

for the eigenvalues :math:`\mu_j > 0` of the output matrix. With :math:`r = y - K a -
\lambda W^{-1} a - b`, the duality gap of a and of the dual point :math:`\lambda a` is
:math:`\sum_i w_i r_i^2 / 2n`, for any a.

Preconditioner of sketched least squares from two Cholesky factors of size s:

.. math:: P = \frac1n C J C + \alpha C, \qquad C = S K S^\top, \qquad
          J = I - u u^\top, \quad u = S 1 / |S 1|

is the normal matrix with the sketch of all rows instead of all rows, because S^T S is
the identity on average (J is I without an intercept). Rudi, Carratino and Rosasco,
"FALKON: an optimal large scale kernel method", 2017, Section 3, use it for subsampling.
The factors of C commute, and u is a rank-one correction,

.. math:: P^{-1} = n\, (C + n \alpha)^{-1} C^{-1}
          + \frac{w w^\top}{\alpha\, u^\top w}, \qquad w = (C + n \alpha)^{-1} u,

so that no product of triangular factors is needed. Coefficients are not whitened: the
factors only precondition, and the solution is that of the operator. They are float64:
in float32 the required diagonal of C exceeds that of the problem, so that keggdirected
took 155 passes instead of 16, and no data set took less time.

For many rows a sample is more accurate: P = G + alpha C with its scatter G, which is
whitened by a factor of C before it is factorized.

Sketched least squares in the coefficients of the sketch, column by column:

.. math:: H_j g_j = \frac1n Z^\top W J y_j, \qquad H_j = \frac1n Z^\top W J Z
          + \alpha_j (C + \delta I)

with Z = K S^T, C = S K S^T and J the weighted centering of rows, or I. For coefficients
g with residual r the objective exceeds its minimum by r^T H^{-1} r / 2. This is bounded
using

- H >= alpha (C + delta I), and
- H >= c P with c = m / n for the scatter of m rows about their own mean, or with
  P = C J' C / n + alpha (C + delta I), J' the projection along S 1, and
  c = min(1, w / |S|^2), with w the smallest weight of a row that S combines. It follows
  from S^T J' S <= |S|^2 J on these rows. For sub-samples |S|^2 is n / s, and for other
  sketches with E[S^T S] = I a small multiple of it.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from nbsketch.gram.columns import ColumnBlocks, SketchedOperator
from nbsketch.solvers._linear.cholesky import (
    Preconditioner,
    raised_cholesky,
    scaled_columns,
    solve_positive_upper,
    solve_upper,
)
from nbsketch.solvers._linear.conjugate_gradients import (
    ColumnGaps,
    ConjugateGradients,
    KernelOperator,
    RotatedOutputs,
    centered,
)

# Rows for measuring rounding, and a safety factor.
_SAMPLED_ERRORS = 64
_SAFETY = 1.5
# Units of rounding, times sqrt(s), added to the diagonal of C at least.
_JITTER = 4
# Maximum and minimum share of the mean diagonal of C that is added to it. The maximum
# limits the penalty of the problem, the minimum keeps double precision factors
# accurate.
NUGGET = 1e-6
_LEAST_NUGGET = 1e-12
# Maximum nugget relative to n alpha: about 20 times this share of the loss is lost.
_NUGGET_COST = 5e-6
# Maximum effect of the nugget, relative to its share of n alpha: more is due to
# rounding of single precision values.
_MOST_COST = 100.0
# Rounding of rows, in bandwidths, moves values by about this many times that of values.
_ROUNDED_ROWS = 10.0
# Share of `tol` that rounding of the quadratic form may take.
_DIGITS = 1e-2
# Rows of the sample of a preconditioner: at most this many per row of the sketch,
# within a work m s^2 of a few passes. n = 160,000: s = 1000 takes 11 passes instead of
# 78 (0.27 of the time), s = 2500 takes 15 instead of 56 (0.59).
_SAMPLED = 8
_SAMPLED_WORK = 150
# With fewer rows than this, the sketch is used as the sample: 1.1 rows per row of the
# sketch take two to three times its passes, 2.4 rows take as many.
_LEAST_SAMPLED = 3
# Steps and accuracy of the inverse in the final certificate.
_STEPS = 60
_SHARE = 0.05


def sampled_rows(weights: NDArray, most: int) -> NDArray:
    """Return some rows of positive weight, ascending."""
    rows = np.flatnonzero(weights > 0)
    count = min(len(rows), most)
    return np.sort(np.random.default_rng(0).choice(rows, count, replace=False))


class ColumnSystem(ABC):
    """Systems H_j x_j = right_j, one per rotated output and penalty.

    Parameters
    ----------
    outputs : RotatedOutputs
        Targets.
    alphas : sequence of float or ndarray of shape (a,)
        Penalties. All outputs of the first are before those of the second.

    Attributes
    ----------
    shape : tuple of int
        Shape of the solution.
    right : ndarray of the same shape
        Right-hand sides.
    """

    shape: tuple[int, int]
    right: NDArray
    passes = 0  # before the search
    slack = 1.0  # estimates are bounds, except for rounding

    def __init__(
        self, outputs: RotatedOutputs, alphas: Sequence[float] | NDArray
    ) -> None:
        self.outputs = outputs
        self.fit_intercept = outputs.fit_intercept
        self.alphas = (np.reshape(alphas, (-1, 1)) / outputs.values).ravel()
        Y = np.tile(outputs.targets, len(alphas))
        self.n = len(Y)
        self.weights = outputs.weights
        self.mean, self.Y = centered(Y, self.weights, self.fit_intercept)

    def means(self, V: NDArray) -> NDArray:
        """Return the weighted means of columns."""
        return self.weights @ V / self.n

    def project(self, V: NDArray) -> NDArray:
        """Return the projection of V on the admissible coefficients."""
        return V

    @abstractmethod
    def product(self, V: NDArray, columns: NDArray | slice) -> NDArray:
        """Return H V for some columns, not projected."""

    @abstractmethod
    def precondition(self, R: NDArray, columns: NDArray) -> NDArray:
        """Return P^{-1} R, projected, for some columns."""

    @abstractmethod
    def intercept(self, X: NDArray, product: NDArray) -> NDArray:
        """Return the best b, given H X."""

    @abstractmethod
    def certify(self, X: NDArray, product: NDArray, tol: float = 0.0) -> ColumnGaps:
        """Return the objectives and bounds of the gaps, given H X.

        They are as tight as needed for a gap below `tol` times the objective.
        """

    @abstractmethod
    def estimate(
        self, X: NDArray, product: NDArray, steps: ConjugateGradients
    ) -> ColumnGaps:
        """Return objectives and gaps during a search, given H X."""


class KernelSystem(ColumnSystem):
    """The system in the dual coefficients, with shared K and weights.

    Parameters
    ----------
    K : KernelOperator of shape (n, n)
        Kernel matrix.
    outputs, alphas
        As in `ColumnSystem`. Rows of weight zero have no coefficient.
    preconditioner : Preconditioner, optional
        Required for a search.
    """

    def __init__(
        self,
        K: KernelOperator,
        outputs: RotatedOutputs,
        alphas: Sequence[float] | NDArray,
        preconditioner: Preconditioner | None = None,
    ) -> None:
        super().__init__(outputs, alphas)
        self.K = K
        self.preconditioner = preconditioner
        self.shifts = self.n * self.alphas
        self.shape = self.Y.shape
        self.right = self.Y
        self._kept = (self.weights > 0)[:, None]
        self._sampled = sampled_rows(self.weights, _SAMPLED_ERRORS)
        weights = self.weights[:, None]
        self._inverse = np.divide(
            1, weights, out=np.zeros_like(weights), where=self._kept
        )

    def project(self, V: NDArray) -> NDArray:
        """Return V without the mean, if there is an intercept, and dropped rows."""
        V = V * self._kept
        if not self.fit_intercept:
            return V
        return V - self._kept * (V.sum(axis=0) / self._kept.sum())

    def product(self, A: NDArray, columns: NDArray | slice) -> NDArray:
        """Return (K + lambda W^{-1}) A for some columns."""
        return self.K @ A + self._shifted(A, columns)

    def precondition(self, R: NDArray, columns: NDArray) -> NDArray:
        """Return P^{-1} R, projected, for some columns."""
        assert self.preconditioner is not None
        return self.project(self.preconditioner.solve(R, self.shifts[columns]))

    def intercept(self, A: NDArray, product: NDArray) -> NDArray:
        """Return the best b, given H A."""
        free = self.Y - (product - self._shifted(A))
        return self.mean + self.means(free) * self.fit_intercept

    def estimate(
        self, X: NDArray, product: NDArray, steps: ConjugateGradients
    ) -> ColumnGaps:
        """Return objectives and gaps during a search, given H X."""
        noise = self._rounding(self.K.dtype) * np.linalg.norm(X, axis=0)
        return self._gaps(X, product, noise)

    def certify(self, A: NDArray, product: NDArray, tol: float = 0.0) -> ColumnGaps:
        """Return the certificate of coefficients, given H A."""
        noise = self._rounding(np.float64) * np.linalg.norm(A, axis=0)
        if self.K.dtype != np.float64:
            values = (product - self._shifted(A))[self._sampled]
            errors = values - self.K.exact(self._sampled, A)
            square = self.weights[self._sampled] @ np.square(errors)
            noise += _SAFETY * np.sqrt(square * (self.n / len(errors)))
        return self._gaps(A, product, noise)

    def _gaps(self, A: NDArray, product: NDArray, noise: NDArray) -> ColumnGaps:
        """Return the certificate for an error of K A of the given norms."""
        shifted = self._shifted(A)
        values = product - shifted
        free = self.Y - values
        errors = free - self.means(free) * self.fit_intercept
        penalty = self.shifts * (A * values).sum(axis=0)
        objective = self.weights @ np.square(errors) + penalty
        square = self.weights @ np.square(errors - shifted)
        more = (np.sqrt(square) + noise) ** 2 - square
        twice = 2 * self.n
        return ColumnGaps(objective / twice, square / twice, more / twice)

    def _shifted(self, A: NDArray, columns: NDArray | slice = slice(None)) -> NDArray:
        """Return lambda W^{-1} A for some columns."""
        return A * self.shifts[columns] * self._inverse

    def _rounding(self, dtype: Any) -> float:
        """Return the norm of K A - exact for A of norm 1, from independent errors."""
        size = float(np.finfo(dtype).eps) * float(np.abs(self.K.diag()).max())
        return size * float(self.weights.max() * self.n) ** 0.5


class SketchPreconditioner(ABC):
    """P^{-1} for P = G + alpha C and several penalties, with a scatter G of rows of Z.

    Parameters
    ----------
    core : ndarray of shape (s, s)
        C = S K S^T.
    nugget : float
        Minimum number added to the diagonal of C.
    share : float
        c, the share of P that the normal matrix has at least.
    """

    def __init__(self, core: NDArray, nugget: float, share: float) -> None:
        self._core = core
        self.share = share
        rounding = _JITTER * np.finfo(core.dtype).eps * len(core) ** -0.5
        self._jitter = max(nugget, rounding * float(np.trace(core)))
        self.upper = raised_cholesky(core.T, self._jitter)[0]  # C is symmetric

    @abstractmethod
    def scatter(self, V: NDArray) -> NDArray:
        """Return G V."""

    @abstractmethod
    def solve(self, R: NDArray, alphas: NDArray) -> NDArray:
        """Return P^{-1} R for R of shape (s, d), with one penalty per column."""

    def half(self, R: NDArray) -> NDArray:
        """Return T^{-T} R for T^T T = C, whose squared norms are r^T C^{-1} r."""
        size, V = scaled_columns(R)
        return solve_upper(self.upper, V, 1) * size

    def core_solve(self, R: NDArray) -> NDArray:
        """Return C^{-1} R."""
        size, V = scaled_columns(R)
        return solve_positive_upper(self.upper, V) * size


class FalkonPreconditioner(SketchPreconditioner):
    """P^{-1} with the sketch of all rows instead of all rows, G = C J C / n.

    Parameters
    ----------
    core, nugget, share
        As in `SketchPreconditioner`.
    n : int
        Number of rows.
    unit : ndarray of shape (s,)
        u, zero without an intercept.
    """

    def __init__(
        self, core: NDArray, n: int, nugget: float, unit: NDArray, share: float = 0.0
    ) -> None:
        super().__init__(core, nugget, share)
        self._n = n
        self._unit = unit
        self._penalized: dict[float, tuple[NDArray, NDArray]] = {}

    def scatter(self, V: NDArray) -> NDArray:
        """Return C J C V / n."""
        product = self._core @ V
        product -= np.outer(self._unit, self._unit @ product)
        return self._core @ product / self._n

    def solve(self, R: NDArray, alphas: NDArray) -> NDArray:
        """Return P^{-1} R for R of shape (s, d), with one penalty per column."""
        size, V = scaled_columns(R)
        Z = solve_positive_upper(self.upper, V)
        for c, alpha in enumerate(alphas.tolist()):
            upper, correction = self._penalized_by(alpha)
            Z[:, c] = self._n * solve_positive_upper(upper, Z[:, c])
            Z[:, c] += correction * (correction @ V[:, c])
        return Z * size

    def _penalized_by(self, alpha: float) -> tuple[NDArray, NDArray]:
        """Return the factor of C + n alpha, and w over the root of alpha u^T w."""
        if alpha not in self._penalized:
            upper, _ = raised_cholesky(self._core.T, self._jitter + self._n * alpha)
            solved = solve_positive_upper(upper, self._unit)
            weight = alpha * float(self._unit @ solved) or 1.0
            self._penalized[alpha] = upper, solved / weight**0.5
        return self._penalized[alpha]


class SamplePreconditioner(SketchPreconditioner):
    """P^{-1} with the scatter of a sample of the rows of Z.

    If there are fewer landmarks than degrees of freedom, this many rows are a poor
    estimate of Z^T Z; m rows give a condition number of about ((1 + sqrt(s / m)) / (1 -
    sqrt(s / m)))^2, for any penalty.

    Parameters
    ----------
    core, nugget, share
        As in `SketchPreconditioner`; the share is m / n. The scatter about the sample's
        mean is the smallest.
    rows : ColumnBlocks of shape (m, s)
        The sample.
    weights : ndarray of shape (m,)
        Positive weights of its rows.
    centered : bool
        Whether an intercept is fitted.
    """

    def __init__(
        self,
        core: NDArray,
        nugget: float,
        rows: ColumnBlocks,
        weights: NDArray,
        share: float,
        centered: bool,
    ) -> None:
        super().__init__(core, nugget, share)
        self._rows = rows
        self._weights = weights
        self._total = float(weights.sum()) if centered else np.inf
        self._offset, self._matrix = self._whitened()
        self._penalized: dict[float, NDArray] = {}

    def scatter(self, V: NDArray) -> NDArray:
        """Return G V."""
        product = self._rows.normal(V, self._weights)
        product -= np.outer(self._offset, self._offset @ V / self._total)
        return product / len(self._weights)

    def solve(self, R: NDArray, alphas: NDArray) -> NDArray:
        """Return P^{-1} R for R of shape (s, d), with one penalty per column."""
        size, V = scaled_columns(R)
        V = solve_upper(self.upper, V, 1)
        for c, alpha in enumerate(alphas.tolist()):
            if alpha not in self._penalized:
                self._penalized[alpha] = raised_cholesky(self._matrix, alpha)[0]
            V[:, c] = solve_positive_upper(self._penalized[alpha], V[:, c])
        return solve_upper(self.upper, V) * size

    def _whitened(self) -> tuple[NDArray, NDArray]:
        """Return the sum of the rows, and T^{-T} G T^{-1} above the diagonal."""
        offset = np.zeros(len(self._core))
        start = 0
        matrix = np.zeros(self._core.shape, order="F")
        for block in self._rows.blocks():
            weights = self._weights[start : start + len(block)]
            half = np.asfortranarray(block.T * np.sqrt(weights))
            half = solve_upper(self.upper, half, 1)
            matrix = scipy.linalg.blas.dsyrk(1.0, half, 1.0, matrix, overwrite_c=True)
            offset += weights @ block
            start += len(block)
        mean = solve_upper(self.upper, offset, 1)
        matrix -= np.outer(mean, mean / self._total)
        return offset, matrix / len(self._weights)


def nugget(shift: float, mean: float) -> float:
    """Return delta for n alpha and the mean diagonal of C."""
    return float(np.clip(_NUGGET_COST * shift, _LEAST_NUGGET * mean, NUGGET * mean))


def least_penalty(size: int) -> float:
    """Return the minimum alpha of s landmarks, limited by the cost of the nugget.

    It is for k(x, x) = 1.
    """
    return _LEAST_NUGGET / (_NUGGET_COST * size)


def rounded(dtype: Any) -> float:
    """Return an upper bound of the root mean square of relative rounding errors."""
    return float(np.finfo(dtype).eps) / 12**0.5


def as_rounded(
    columns: SketchedOperator, upper: NDArray, largest: float, alpha: float, tol: float
) -> SketchedOperator:
    """Return K S^T, with values in float32 if their rounding is negligible.

    Errors of Z^T e are independent, one per row of the sketch: they add their form with
    (alpha T^T T)^{-1}, of the size of its trace, to the gap. T is in the upper triangle
    of `upper`; `largest` is about the largest k(x, x).
    """
    s = len(upper)
    signs = np.random.default_rng(0).choice([-1.0, 1.0], s)
    form = float(np.square(solve_upper(upper, signs, 1)).sum()) / (s * alpha)
    size = _ROUNDED_ROWS * rounded(np.float32) * largest
    return columns.rounded() if size**2 * form <= tol / 4 else columns


def largest_value(core: NDArray, n: int) -> float:
    """Return approximately the largest k(x, x), for n rows and E[S^T S] = I."""
    return float(np.diagonal(core).max(initial=0)) * len(core) / n


class Bound(NamedTuple):
    """A quadratic form whose inverse measures residuals, divided by a factor."""

    apply: Callable[[NDArray], NDArray]
    precondition: Callable[[NDArray], NDArray]
    least: float  # lower bound of its eigenvalues
    factor: float


class SketchedSystem(ColumnSystem):
    """The system in the coefficients of a sketch."""

    passes = 1  # for the targets
    slack = 8.0

    def __init__(
        self,
        columns: SketchedOperator,
        outputs: RotatedOutputs,
        alphas: Sequence[float] | NDArray,
        tol: float,
    ) -> None:
        super().__init__(outputs, alphas)
        self.s = columns.shape[1]
        self.shape = self.s, self.Y.shape[1]
        self.core = columns.core()
        mean = float(np.trace(self.core)) / self.s
        alpha = float(self.alphas.min(initial=np.inf))
        self.delta = nugget(self.n * alpha, mean)
        self._sampled = sampled_rows(self.weights, _SAMPLED_ERRORS)
        self._largest = largest_value(self.core, self.n)
        rows = self.weights
        self.factors = self._preconditioner(columns, rows)
        self.columns = as_rounded(
            columns, self.factors.upper, self._largest, alpha, tol
        )
        sides = np.column_stack([rows[:, None] * self.Y, rows]) / self.n
        products = self.columns.adjoint(sides)
        self.right = products[:, :-1]
        self.offset = products[:, -1]
        self.start = rows @ np.square(self.Y) / (2 * self.n)

    def _preconditioner(
        self, columns: SketchedOperator, weights: NDArray
    ) -> SketchPreconditioner:
        most = min(_SAMPLED * self.s, int(_SAMPLED_WORK * self.n / self.s))
        drawn = sampled_rows(weights, most)
        if len(drawn) < _LEAST_SAMPLED * self.s:
            unit = columns.unit() * float(self.fit_intercept)
            least = float(weights[columns.active].min())
            share = min(1.0, least / columns.squared_norm())
            return FalkonPreconditioner(self.core, self.n, self.delta, unit, share)
        # The sample only affects the number of passes.
        return SamplePreconditioner(
            self.core, self.delta, columns.take(drawn), weights[drawn],
            len(drawn) / self.n, self.fit_intercept,
        )  # fmt: skip

    def product(self, V: NDArray, columns: NDArray | slice) -> NDArray:
        """Return H V for some columns."""
        out = self.columns.normal(V, self.weights) / self.n
        if self.fit_intercept:
            out -= np.outer(self.offset, self.offset @ V)
        return out + self.alphas[columns] * self._penalty(V)

    def _penalty(self, V: NDArray) -> NDArray:
        """Return (C + delta) V."""
        return self.core @ V + self.delta * V

    def precondition(self, R: NDArray, columns: NDArray) -> NDArray:
        """Return approximately P^{-1} R for some columns."""
        return self.factors.solve(R, self.alphas[columns])

    def intercept(self, G: NDArray, product: NDArray) -> NDArray:
        """Return the best b."""
        return (self.mean - self.offset @ G) * self.fit_intercept

    def estimate(
        self, G: NDArray, product: NDArray, steps: ConjugateGradients
    ) -> ColumnGaps:
        """Return the objectives and gaps from the factors, trusting their rounding.

        Only gaps of the columns of `steps` are computed; the others are 0.
        """
        live = steps.columns
        R = steps.R
        gaps = np.zeros(self.shape[1])
        gaps[live] = np.square(self.factors.half(R)).sum(axis=0)
        gaps[live] /= 2 * self.alphas[live]
        if self.factors.share:
            by_rows = (R * steps.Z).sum(axis=0) / (2 * self.factors.share)
            gaps[live] = np.minimum(gaps[live], by_rows)
        return ColumnGaps(self._objective(G, product), gaps, np.zeros_like(gaps))

    def certify(self, G: NDArray, product: NDArray, tol: float = 0.0) -> ColumnGaps:
        """Return the objectives and bounds of the gaps without trusting factors.

        They are as tight as needed for a gap below `tol` times the objective.
        """
        objective, gradient = self._assessed(G, product, tol)
        # The nugget is that of the minimizer.
        best = G + self.precondition(gradient, np.arange(self.shape[1]))
        gaps = np.full(self.shape[1], np.inf)
        nuggets = self._nuggets(best)
        rounding = self._rounding(G, objective)
        for c, (alpha, tolerance) in enumerate(
            zip(self.alphas.tolist(), tol * objective, strict=True)
        ):
            general = Bound(self._penalty, self.factors.core_solve, self.delta, alpha)
            for bound in (self._by_rows(alpha), general):
                if bound.factor and gaps[c] > tolerance:
                    scale = 2 * bound.factor
                    r = gradient[:, c : c + 1]
                    form = sum(_inverse_form(bound, r, scale * tolerance))
                    gaps[c] = min(gaps[c], form / scale)
            if nuggets[c] > _DIGITS * tolerance:
                most = np.inf
                if self.columns.dtype == np.float32:
                    most = _MOST_COST * self.delta / (self.n * alpha) * objective[c]
                nuggets[c] += min(self._lost_to_nugget(best[:, c : c + 1], alpha), most)
        # Without the nugget, the minimum is lower by about its penalty.
        return ColumnGaps(objective, gaps, rounding + 2 * nuggets)

    def _lost_to_nugget(self, g: NDArray, alpha: float) -> float:
        """Return the effect of eigenvalues of C below delta.

        It is alpha delta^2 g^T C^{-1} g / 2. C has the minimum nugget here. The form is
        bounded from below, in a few steps.
        """
        least = _LEAST_NUGGET * float(np.trace(self.core)) / self.s
        solve = self.factors.core_solve
        bound = Bound(lambda V: self.core @ V + least * V, solve, least, 1.0)
        return alpha * self.delta**2 * _inverse_form(bound, g, 0.0)[0] / 2

    def _assessed(
        self, G: NDArray, product: NDArray, tol: float
    ) -> tuple[NDArray, NDArray]:
        """Return the objectives, without the nugget, and the negative gradients.

        They are computed from the residuals if the quadratic form loses digits.
        """
        objective = self._objective(G, product)
        terms = self.start + np.abs(self.right * G).sum(axis=0)
        terms += np.abs(product * G).sum(axis=0)
        lost = np.finfo(np.float64).eps * terms > _DIGITS * tol * objective
        if lost.any():
            return self._residuals(G)
        return objective - self._nuggets(G), self.right - product

    def _residuals(self, G: NDArray) -> tuple[NDArray, NDArray]:
        """Return the same from the residuals, by two passes."""
        fitted = self.columns.times(G)
        errors = self.Y - fitted + self.means(fitted) * self.fit_intercept
        weighted = self.weights[:, None] * errors
        penalty = self.core @ G
        loss = (weighted * errors).sum(axis=0) / (2 * self.n)
        objective = loss + self.alphas * (G * penalty).sum(axis=0) / 2
        slopes = self.columns.adjoint(weighted) / self.n
        return objective, slopes - self.alphas * (penalty + self.delta * G)

    def _nuggets(self, G: NDArray) -> NDArray:
        """Return the penalties due to the nugget."""
        return self.alphas * self.delta * np.square(G).sum(axis=0) / 2

    def _rounding(self, G: NDArray, objective: NDArray) -> NDArray:
        """Return the increase of the gap by rounding of Z.

        The effect on Z G is measured on some rows; the errors of Z^T and the residuals
        are independent, and their form with H^{-1} has the size of its trace.
        """
        rows = self._sampled
        errors = self.columns.take(rows).times(G) - self.columns.exact(rows, G)
        share = self.n / len(rows)
        square = share * (self.weights[rows] @ np.square(errors)) * _SAFETY**2
        loss = 2 * self.n * np.maximum(objective, 0)
        fitted = (square + 2 * np.sqrt(square * loss / len(rows))) / (2 * self.n)
        signs = np.random.default_rng(0).choice([-1.0, 1.0], size=G.shape)
        solved = self.precondition(signs, np.arange(G.shape[1]))
        # The squared norm of errors of Z^T e / n, one per row of the sketch.
        size = rounded(self.columns.dtype) * self._largest
        lost = size**2 / self.s * (signs * solved).sum(axis=0)
        return fitted + np.minimum(lost, 1.0) * objective

    def _objective(self, G: NDArray, product: NDArray) -> NDArray:
        return self.start - ((2 * self.right - product) * G).sum(axis=0) / 2

    def _by_rows(self, alpha: float) -> Bound:
        factors = self.factors
        return Bound(
            lambda V: factors.scatter(V) + alpha * self._penalty(V),
            lambda R: factors.solve(R, np.array([alpha])),
            alpha * self.delta,
            factors.share,
        )


def _inverse_form(bound: Bound, r: NDArray, tolerance: float) -> tuple[float, float]:
    """Return a lower bound of r^T M^{-1} r, and its distance to an upper bound.

    The distance is small, or at most `tolerance`. For any z with residual q = r - M z
    the form is 2 r^T z - z^T M z + q^T M^{-1} q, whose last term is at most |q|^2
    divided by the smallest eigenvalue of M.
    """
    z = bound.precondition(r)
    steps = ConjugateGradients(r - bound.apply(z), lambda R, _: bound.precondition(R))
    for _ in range(_STEPS):
        value = float((z * (r + steps.R)).sum())  # 2 r^T z - z^T M z
        remainder = float((steps.R * steps.R).sum()) / bound.least
        if remainder <= _SHARE * value or value + remainder <= tolerance:
            break
        steps.turn()
        z = z + steps.step(bound.apply(steps.D)) * steps.D
    return value, remainder
