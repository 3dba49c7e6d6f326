r"""Sketched least squares in the coefficients of the sketch, column by column.

.. math:: H_j g_j = \frac1n Z^\top W J y_j, \qquad H_j = \frac1n Z^\top W J Z
          + \alpha_j (C + \delta I)

with Z = K S^T, C = S K S^T and J the weighted centering of rows, or I. For coefficients
g with residual r the objective exceeds its minimum by r^T H^{-1} r / 2, and this is
bounded through

- H >= alpha (C + delta I), and
- H >= c P with P = C J' C / n + alpha (C + delta I), J' the projection along S 1, and
  c = min(1, w / |S|^2), with w the smallest weight of a row that S combines. It follows
  from S^T J' S <= |S|^2 J on these rows. For sub-samples |S|^2 is n / s, and for other
  sketches with E[S^T S] = I a small multiple of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nbsketch.solvers._conjugate.falkon import FalkonPreconditioner
from nbsketch.solvers._conjugate.search import ColumnGaps
from nbsketch.solvers._linear.conjugate_gradients import ConjugateGradients
from nbsketch.solvers._linear.operator import ColumnOperator

# Share of the mean diagonal of C added to it: what the penalty of the problem is.
NUGGET = 1e-6
# Steps, and accuracy, of the inverse in the final certificate.
_STEPS, _SHARE = 60, 0.05


class Bound(NamedTuple):
    """A quadratic form in whose inverse residuals are measured, over a factor."""

    apply: Callable[[NDArray], NDArray]
    precondition: Callable[[NDArray], NDArray]
    least: float  # lower bound of its eigenvalues
    factor: float


class SketchedSystem:
    """The system of d columns, one penalty for each."""

    passes: ClassVar[int] = 1  # for the targets
    slack: ClassVar[float] = 8.0

    def __init__(
        self,
        columns: ColumnOperator,
        Y: NDArray,
        alphas: NDArray,
        weights: NDArray | None,
        fit_intercept: bool,
    ) -> None:
        self.columns, self.alphas, self.weights = columns, alphas, weights
        self.n, self.s = columns.shape
        self.shape = (self.s, Y.shape[1])
        self.fit_intercept = fit_intercept
        self.core = columns.core()
        self.delta = NUGGET * float(np.trace(self.core)) / self.s
        rows = np.ones(self.n) if weights is None else weights
        self.mean = rows @ Y / self.n * fit_intercept
        centered = Y - self.mean
        sides = np.column_stack([rows[:, None] * centered, rows]) / self.n
        products = columns.adjoint(sides)
        self.right, self.offset = products[:, :-1], products[:, -1]
        self.start = rows @ np.square(centered) / (2 * self.n)
        self.share = _share(columns, weights)
        self._unit = _unit(columns.total()) * fit_intercept
        self.factors = FalkonPreconditioner(
            self.core,
            self.n,
            self.delta,
            self._unit if self._unit.any() else None,
        )

    def project(self, G: NDArray) -> NDArray:
        """Return G: all coefficients are admissible."""
        return G

    def product(self, V: NDArray, columns: NDArray) -> NDArray:
        """Return H V for some columns."""
        out = self.columns.normal(V, self.weights) / self.n
        if self.fit_intercept:
            out -= np.outer(self.offset, self.offset @ V)
        return out + self.alphas[columns] * (self.core @ V + self.delta * V)

    def precondition(self, R: NDArray, columns: NDArray) -> NDArray:
        """Return P^{-1} R for some columns, about."""
        return self.factors.solve(R, self.alphas[columns])

    def curved(self, D: NDArray, product: NDArray, columns: NDArray) -> NDArray:
        """Return H D, the product itself."""
        return product

    def residual(self, G: NDArray, product: NDArray, columns: NDArray) -> NDArray:
        """Return the residuals of some columns, given H G."""
        return self.right[:, columns] - product

    def intercept(self, G: NDArray, product: NDArray) -> NDArray:
        """Return the best b."""
        return (self.mean - self.offset @ G) * self.fit_intercept

    def estimate(
        self, G: NDArray, product: NDArray, steps: ConjugateGradients
    ) -> ColumnGaps:
        """Return the objectives and gaps by the factors, whose rounding is trusted.

        Only gaps of the columns of `steps` are computed; those of others are 0.
        """
        live, R = steps.columns, steps.R
        gaps = np.zeros(self.shape[1])
        gaps[live] = np.square(self.factors.half(R)).sum(axis=0)
        gaps[live] /= 2 * self.alphas[live]
        if self.share:
            by_sketch = (R * steps.Z).sum(axis=0) / (2 * self.share)
            gaps[live] = np.minimum(gaps[live], by_sketch)
        return ColumnGaps(self._objective(G, product), gaps, np.zeros_like(gaps))

    def certify(self, G: NDArray, product: NDArray, tol: float) -> ColumnGaps:
        """Return the objectives and bounds of the gaps in which no factor is trusted.

        They are as tight as it takes to be below `tol` times the objective.
        """
        objective, gaps = self._objective(G, product), np.empty(self.shape[1])
        for c, (alpha, tolerance) in enumerate(
            zip(self.alphas, tol * objective, strict=True)
        ):
            r = self.right[:, c : c + 1] - product[:, c : c + 1]
            gaps[c] = self._form(self._by_sketch(float(alpha)), r, tolerance)
            if gaps[c] > tolerance:
                general = self._form(self._general(float(alpha)), r, tolerance)
                gaps[c] = min(gaps[c], general)
        return ColumnGaps(objective, gaps, np.zeros_like(gaps))

    def _objective(self, G: NDArray, product: NDArray) -> NDArray:
        return self.start - ((2 * self.right - product) * G).sum(axis=0) / 2

    def _form(self, bound: Bound, r: NDArray, tolerance: float) -> float:
        if not bound.factor:
            return np.inf
        scale = 2 * bound.factor
        return _inverse_form(bound, r, scale * tolerance) / scale

    def _general(self, alpha: float) -> Bound:
        def apply(V: NDArray) -> NDArray:
            return self.core @ V + self.delta * V

        def precondition(R: NDArray) -> NDArray:
            return self.factors.core_solve(R)

        return Bound(apply, precondition, self.delta, alpha)

    def _by_sketch(self, alpha: float) -> Bound:
        def apply(V: NDArray) -> NDArray:
            product = self.core @ V
            rows = product - np.outer(self._unit, self._unit @ product)
            return self.core @ rows / self.n + alpha * (product + self.delta * V)

        def precondition(R: NDArray) -> NDArray:
            return self.factors.solve(R, np.array([alpha]))

        return Bound(apply, precondition, alpha * self.delta, self.share)


def _share(columns: ColumnOperator, weights: NDArray | None) -> float:
    """Return c, the share of P that the normal matrix certainly has."""
    least = 1.0 if weights is None else float(weights[columns.active].min())
    return min(1.0, least / columns.squared_norm())


def _unit(direction: NDArray) -> NDArray:
    size = float(np.linalg.norm(direction))
    return direction / size if size > 0 else direction


def _inverse_form(bound: Bound, r: NDArray, tolerance: float) -> float:
    """Return an upper bound of r^T M^{-1} r: close to it, or at most `tolerance`.

    For any z with residual q = r - M z it is 2 r^T z - z^T M z + q^T M^{-1} q, whose
    last term is at most |q|^2 over the least eigenvalue of M.
    """
    z = bound.precondition(r)
    residual = r - bound.apply(z)
    steps = ConjugateGradients(residual, lambda R, _: bound.precondition(R))
    for _ in range(_STEPS):
        value = float((z * (r + steps.R)).sum())  # 2 r^T z - z^T M z
        remainder = float((steps.R * steps.R).sum()) / bound.least
        if remainder <= _SHARE * value or value + remainder <= tolerance:
            break
        steps.turn()
        z = z + steps.step(bound.apply(steps.D)) * steps.D
    return value + remainder
