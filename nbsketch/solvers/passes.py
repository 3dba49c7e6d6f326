r"""Losses on many landmarks, by passes over the columns of their kernel matrix.

.. math:: \min_{g, b} \frac1n \sum_i w_i\, \ell\bigl((K S^\top g)_i + b,\, y_i\bigr)
          + \frac{\alpha}{2} g^\top (S K S^\top + \delta I) g

With :math:`T^\top T = S K S^\top + \delta I` this is the problem with features :math:`Z
= K S^\top T^{-1}`, which are never computed: their products are products with :math:`K
S^\top` and triangular systems. Steps are those of limited-memory BFGS, two products
each: rows cross kinks at every step, so that accurate Newton directions gain little.
The initial inverse Hessian uses the mean curvature instead of one per row, and the
sketch instead of all rows: :math:`Z^\top Z \approx T T^\top`, as for sketched least
squares. A new one costs :math:`s^3 / 3`. Losses with kinks are smoothed around the dual
point, with decreasing width.

J. Nocedal, "Updating quasi-Newton matrices with limited storage", 1980.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from nbsketch.gram.columns import ColumnBlocks, SketchedOperator
from nbsketch.solvers._linear.cholesky import (
    raised_cholesky,
    solve_positive_upper,
    solve_upper,
)
from nbsketch.solvers._linear.conjugate_gradients import Inverse
from nbsketch.solvers._linear.systems import as_rounded, largest_value, nugget
from nbsketch.solvers._newton.smooth import SmoothSearch
from nbsketch.solvers.design import Design
from nbsketch.solvers.solution import Certificate, State

# Number of terms for the effect of the nugget, and minimum decay of later terms.
_TERMS = 8
_LEAST_DECAY = 1e-2
# Minimum mean curvature that determines an intercept.
_LEAST_MASS = 1e-12
# First sigma relative to the spread of targets: their residuals are within the bounds.
_WIDE = 4.0
# Least squares steps before a loss is smoothed: the second uses the spread of the
# first.
_RIDGES = 2
# Steps whose change of the gradient determines a direction.
_MEMORY = 10
# Ratio of mean curvatures above which a preconditioner is recomputed. Below, it is
# scaled: the penalty is then wrong, which costs fewer steps than a factorization.
_STALE = 100.0


class WhitenedColumns(Design):
    """Features ``K S^T T^{-1}`` of a subset of rows, as an operator.

    Parameters
    ----------
    columns : SketchedOperator or ColumnBlocks of shape (n, s)
        K S^T.
    upper : ndarray of shape (s, s)
        T in the upper triangle; the lower one is not used.
    """

    def __init__(
        self, columns: SketchedOperator | ColumnBlocks, upper: NDArray
    ) -> None:
        self.columns = columns
        self.upper = upper
        self.shape = columns.shape
        self.dtype = columns.dtype

    def of_columns(self, W: NDArray) -> NDArray:
        """Return T^{-1} W, coefficients of the columns, for W of shape (s, d)."""
        return solve_upper(self.upper, np.asfortranarray(W))

    def gather(self, rows: NDArray) -> WhitenedColumns:
        """Return the features of the given rows."""
        return WhitenedColumns(self.columns.take(rows), self.upper)

    def _products(self, W: NDArray) -> NDArray:
        return self.columns.times(self.of_columns(W))

    def _sums(self, A: NDArray, rows: NDArray | None) -> NDArray:
        sides = np.zeros((self.shape[0], A.shape[1]))
        sides[slice(None) if rows is None else rows] = A
        sums = self.columns.adjoint(sides)
        return solve_upper(self.upper, np.asfortranarray(sums), 1)


class LandmarkDesign(WhitenedColumns):
    """Whitened columns of all rows, with their scatter estimated by the sketch.

    Parameters
    ----------
    columns : SketchedOperator of shape (n, s)
        K S^T.
    alpha : float
        The smallest penalty, which determines `nugget`.
    tol : float, default=0
        Relative gap, for the square loss; values are in float32 if it allows that.

    Attributes
    ----------
    nugget : float
        delta, which keeps the penalty definite for identical landmarks.
    """

    columns: SketchedOperator

    def __init__(
        self, columns: SketchedOperator, alpha: float, tol: float = 0.0
    ) -> None:
        core = columns.core()
        n, s = columns.shape
        delta = nugget(n * alpha, float(np.trace(core)) / s)
        upper, self.nugget = raised_cholesky(core.T, delta)
        largest = largest_value(core, n)
        super().__init__(as_rounded(columns, upper, largest, alpha, tol), upper)

    @cached_property
    def scatter(self) -> tuple[NDArray, NDArray]:
        """Upper triangle of about ``Z^T Z / n``, and the root of the centering term."""
        square, _ = scipy.linalg.lapack.dlauum(self.upper)
        root = scipy.linalg.blas.dtrmv(self.upper, self.columns.unit())
        n = self.shape[0]
        return square / n, root / n**0.5

    def lost_to_nugget(self, W: NDArray) -> float:
        """Return the approximate decrease of ``|W|^2`` without the nugget.

        For the dual point of W it is ``delta g^T (C + delta I) C^{-1} g``, C = S K S^T,
        for the coefficients g: a series of ``delta^k g^T (C + delta I)^{1 - k} g`` with
        increasing ratios. Its tail is replaced by a geometric series.
        """
        root = self.nugget**0.5
        terms: list[float] = []
        V = W
        for k in range(_TERMS):
            V = root * solve_upper(self.upper, np.asfortranarray(V), k % 2)
            terms.append(float(np.square(V).sum()))
        ratio = terms[-1] / terms[-2] if terms[-2] > 0 else 0.0
        return sum(terms) + terms[-1] * ratio / max(1.0 - ratio, _LEAST_DECAY)


Pairs = Sequence[tuple[NDArray, NDArray, float]]


def bfgs_product(pairs: Pairs, gradient: NDArray, initial: Inverse) -> NDArray:
    """Return the product of a gradient with a BFGS inverse Hessian.

    `pairs` are steps, the changes of the gradient, and their products; `initial` is the
    product with the initial inverse Hessian.
    """
    q = gradient
    shares = []
    for step, change, curvature in reversed(pairs):
        shares.append(float(step @ q) / curvature)
        q = q - shares[-1] * change
    out = initial(q)
    for step, change, curvature in pairs:
        out += (shares.pop() - float(change @ out) / curvature) * step
    return out


class InverseHessian:
    """Products with an inverse Hessian by limited-memory BFGS.

    Parameters
    ----------
    initial : callable
        Product with the initial inverse Hessian.
    memory : int, default=10
        Number of steps whose change of the gradient is used.
    """

    def __init__(self, initial: Inverse, memory: int = _MEMORY) -> None:
        self._initial = initial
        self._memory = memory
        self.forget()

    def forget(self) -> None:
        """Continue with another function."""
        self._last: tuple[NDArray, NDArray] | None = None
        self._pairs: deque[tuple[NDArray, NDArray, float]] = deque(maxlen=self._memory)

    def product(
        self, point: NDArray, gradient: NDArray, scale: float | None = None
    ) -> NDArray:
        """Return the product with the gradient at a point, which is remembered.

        `scale` multiplies the initial inverse Hessian; None: that of the last change.
        """
        if self._last is not None:
            step = point - self._last[0]
            change = gradient - self._last[1]
            if (curvature := float(step @ change)) > 0:
                self._pairs.append((step, change, curvature))
        self._last = point, gradient
        if scale is None:
            scale = self._last_scale()
        return bfgs_product(self._pairs, gradient, lambda q: scale * self._initial(q))

    def _last_scale(self) -> float:
        """Return the scale of the initial matrix that suits the last change."""
        if not self._pairs:
            return 1.0
        _, change, curvature = self._pairs[-1]
        return curvature / float(change @ self._initial(change))


class PassesSearch(SmoothSearch):
    """Search for sums of m losses per row by limited-memory BFGS.

    The initial inverse Hessian replaces the curvatures of each term by their mean, so
    that a rotation of the outputs makes it block-diagonal.

    Attributes
    ----------
    memory : InverseHessian
        Approximate inverse Hessian.
    level : ndarray of shape (m,)
        Mean curvatures of the initial one.
    is_flat : bool
        Whether all rows have the largest curvature, as in a least squares step: far
        from the minimum few rows have curvature.
    """

    samples = False
    most_steps = 200
    patience = 12
    inexact = 10.0
    level: Any = 0.0
    memory: InverseHessian

    def _begin(self, state: State) -> Certificate:
        self.is_flat = not self.coef.any()
        return super()._begin(state)

    def _smooth(self, state: State) -> None:
        """Choose the first sigma: the spread of the residuals of least squares."""
        for _ in range(0 if self.coef.any() else _RIDGES):
            self.is_flat = True
            self.sigma = _WIDE * self.problem.spread(self.res)
            self._evaluate()
            self.best = self._point_certificate()
            direction = self._direction()
            self.slope = float(self.rho @ direction)
            self._advance(direction)
            self.memory.forget()
        super()._smooth(state)

    def _advance(self, direction: NDArray) -> bool:
        self.is_flat = False
        return super()._advance(direction)

    def _point(self) -> tuple[NDArray, Any, NDArray, float]:
        p = self.problem
        a, curvature, *sums = super()._point()
        if p.losses.has_kinks:
            curvature = np.ones_like(a) if self.is_flat else curvature
            curvature = curvature / (p.losses.gam + self.sigma)
        return a, curvature, *sums

    def _direction(self) -> NDArray:
        p = self.problem
        scale = self._scale()
        step = -self.memory.product(p.flat(self.coef, self.intercept), self.rho, scale)
        self.move = p.predict(*p.split(step))
        return step

    def _scale(self) -> float | None:
        """Return the factor of the initial inverse Hessian; None: of the last change.

        A stale one is recomputed.
        """
        mass = self._mass
        if (self.level > mass * _STALE).any() or (mass > self.level * _STALE).any():
            self.memory = InverseHessian(self._preconditioner())
        return float((self.level / mass).mean())

    def _next_round(self, settled: bool) -> None:
        super()._next_round(settled)
        if self.sigma > 0:
            self.memory.forget()

    @property
    def _rates(self) -> NDArray:
        """Weights times curvatures of each term, over n, of shape (n, m)."""
        return self.problem.curved(self.curvature, np.ones(1)).T / self.problem.n

    @property
    def _mass(self) -> NDArray:
        return np.maximum(self._rates.sum(axis=0), _LEAST_MASS)

    def _preconditioner(self) -> Inverse:
        """Return the inverse for the mean curvatures, in blocks by rotated outputs."""
        p = self.problem
        assert isinstance(p.design, LandmarkDesign)
        matrix, root = p.design.scatter
        if p.fit_intercept:
            matrix = matrix - np.outer(root, root).T  # in the order of columns
        self.level = mass = self._mass
        mean = p.design.rmv(self._rates) / mass
        scales, rotation = np.linalg.eigh((p.T * self.level) @ p.T.T)
        factors = [raised_cholesky(scale * matrix, p.alpha)[0] for scale in scales]

        def solve(flat: NDArray) -> NDArray:
            W, b = p.split(flat)
            W = (W - (mean * b) @ p.T.T) @ rotation
            columns = zip(factors, W.T, strict=True)
            W = np.column_stack([solve_positive_upper(*pair) for pair in columns])
            W = W @ rotation.T
            return p.flat(W, b / mass - (mean * (W @ p.T)).sum(axis=0))

        return solve
