r"""The problem of a loss that is given by code, and its certificate.

The conjugate of such a loss is unknown, but not at a subgradient: if a is one at u,
then :math:`\psi^*(a) = a u - \psi(u)`, and its Fenchel-Young term at another residual r
is the Bregman divergence

.. math:: \psi(r) + \psi^*(a) - a r = \psi(r) - \psi(u) - a (r - u) \ge 0.

A free intercept requires a dual point with ``sum_i s_i a_i = 0``. It is a convex
combination of two points with sums of opposite signs; the conjugate is convex, so the
same combination of their divergences bounds the term from above.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nbsketch.losses import Loss
from nbsketch.solvers._certified.problem import Certificate, Problem, certificate
from nbsketch.solvers._certified.search import Report

# Trial shifts to find sums of opposite signs, and to bring these together.
_EXPANSIONS, _REFINEMENTS = 100, 100
_ROUNDING = 2.0**-50  # of losses and targets, charged to the gap


class Pair(NamedTuple):
    """Residuals u and subgradients a of the loss there, for a shift of the residuals.

    `total` is the weighted sum of a; it falls as the shift grows.
    """

    shift: float
    u: NDArray
    a: NDArray
    total: float


@dataclass(frozen=True, kw_only=True)
class GenericProblem(Problem):
    """Minimize ``sum_i s_i psi_i(y_i - z_i w - b) / n + (alpha / 2) |w|^2``.

    psi_i is the loss of the residual or, for a classification loss, that of the margin
    ``y f = 1 - y r``.
    """

    row_arrays: ClassVar[tuple[str, ...]] = ("y", "weights")

    y: NDArray
    loss: Loss

    @property
    def shapes(self) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        """Shapes of the coefficients, the intercept and the dual point."""
        return (self.rank,), (), self.y.shape

    def residual(self, coef: NDArray, intercept: float) -> NDArray:
        """Return ``y - Z w - b``."""
        return self.y - self.design.mv(coef) - intercept

    def sizes(self, res: NDArray) -> NDArray:
        """Return the absolute residuals of the rows of positive weight."""
        return np.abs(res[self.weights > 0])

    def best_constant(self) -> float:
        """Return the median of the targets, 0 for labels."""
        labels = self.loss.is_classification
        return 0.0 if labels else float(self.target_quantile(self.y, 0.5))

    def values(self, res: NDArray) -> NDArray:
        """Return the losses."""
        return self.loss.value(self._argument(res))

    def slopes(self, res: NDArray) -> NDArray:
        """Return the derivatives of the losses with respect to the residuals."""
        slopes = self.loss.derivative(self._argument(res))
        return -self.y * slopes if self.loss.is_classification else slopes

    def prox(self, res: NDArray, step: float) -> NDArray:
        """Return ``argmin_u step psi(u) + (u - res)^2 / 2``."""
        u = self.loss.prox(self._argument(res), step)
        return self.y * (1.0 - u) if self.loss.is_classification else u

    def _argument(self, res: NDArray) -> NDArray:
        return 1.0 - self.y * res if self.loss.is_classification else res

    def pair(
        self, shift: float, at: Callable[[float], tuple[NDArray, NDArray]]
    ) -> Pair:
        """Return the pair that `at` gives for a shift."""
        u, a = at(shift)
        return Pair(shift, u, a, float(self.weights @ a))

    def balanced_pairs(
        self,
        at: Callable[[float], tuple[NDArray, NDArray]],
        start: float,
        step: float,
        allowed: float,
    ) -> tuple[Pair, Pair] | None:
        """Return pairs with a total of at least and of at most 0, close together.

        Parameters
        ----------
        at : callable
            Returns u and a for a shift; the total must fall as the shift grows.
        start, step : float
            First shift, and the first distance from it.
        allowed : float
            What the certificate may lose: an upper bound on the divergences.

        Returns
        -------
        tuple of two Pair, or None
            None if no such pairs are found: the intercept may have no optimum.
        """
        high = low = self.pair(start, at)
        for _ in range(_EXPANSIONS):
            if high.total >= 0 >= low.total:
                break
            if low.total > 0:
                high, low = low, self.pair(low.shift + step, at)
            else:
                high, low = self.pair(high.shift - step, at), high
            step *= 2.0
        else:
            return None
        for trial in range(_REFINEMENTS):
            width, drop = low.shift - high.shift, high.total - low.total
            if width * drop <= allowed * self.n:
                break
            part = high.total / drop if trial % 2 else 0.5
            middle = high.shift + min(max(part, 0.01), 0.99) * width
            if not high.shift < middle < low.shift:
                break
            pair = self.pair(middle, at)
            high, low = (pair, low) if pair.total >= 0 else (high, pair)
        return high, low

    def certify(
        self, w: NDArray, b: float, res: NDArray, pairs: tuple[Pair, ...]
    ) -> Certificate:
        """Return the certificate of (w, b) and the balanced combination of `pairs`."""
        losses, young, a = self.values(res), 0.0, np.zeros_like(res)
        for share, pair in zip(_shares(pairs), pairs, strict=True):
            divergence = losses - self.values(pair.u) - pair.a * (res - pair.u)
            young += share * float(self.weights @ np.maximum(divergence, 0.0))
            a += share * pair.a
        noise = np.abs(losses) + np.abs(self.y * a)
        young += _ROUNDING * float(self.weights @ noise)
        rho = self.alpha * w - self.design.rmv(self.weights * a) / self.n
        young += abs(b * float(self.weights @ a))
        return certificate(self, w, b, a.copy(), rho, losses, young)


def _shares(pairs: tuple[Pair, ...]) -> tuple[float, ...]:
    """Return the shares with which the totals of two pairs cancel."""
    if len(pairs) == 1:
        return (1.0,)
    high, low = pairs
    drop = high.total - low.total
    first = -low.total / drop if drop > 0 else 0.5
    return first, 1.0 - first


def check_subgradients(
    u: NDArray, a: NDArray, problem: GenericProblem, by: str
) -> None:
    """Raise an error if some a_i is not a subgradient of the loss at u_i.

    It is compared with the other residuals: ``psi(v) >= psi(u) + a (v - u)``. That the
    loss is convex, and that its derivative or prox belongs to its value, is what a
    certificate rests on.
    """
    values = problem.values(u)
    for shift in range(1, min(len(u), 9)):
        if problem.loss.is_classification:  # compare rows of the same class
            same = np.roll(problem.y, shift) == problem.y
        else:
            same = np.ones(len(u), dtype=bool)
        v, loss = np.roll(u, shift), np.roll(values, shift)
        below = values + a * (v - u) - loss
        size = np.abs(values) + np.abs(loss) + np.abs(a * (v - u))
        if not (below <= 1e-6 * size + 1e-12)[same].all():
            raise ValueError(
                f"`loss` must be convex with a `{by}` that belongs to its `value`, got "
                f"{problem.loss!r}, whose subgradient inequality fails"
            )


class GenericSearch:
    """A search until a certificate is good enough.

    Attributes
    ----------
    mean, values, vectors : ndarray
        Weighted mean of the features (zero without an intercept), and the
        eigendecomposition of ``Z^T S Z / n``, centered with an intercept.
    mass : float
        Sum of the weights.
    best : Certificate
        The best one so far; a subclass sets the first.
    steps : int
        Iterations.
    """

    best: Certificate

    def __init__(
        self, problem: GenericProblem, tol: float, max_iter: int, report: Report | None
    ) -> None:
        self.problem, self.tol, self.max_iter = problem, tol, max_iter
        self.report, self.steps, self.stopped = report, 0, False
        gram = problem.design.gram(weights=problem.weights) / problem.n
        self.mass, self.mean = problem.weights.sum(), np.zeros(problem.rank)
        if problem.fit_intercept:
            self.mean = problem.design.rmv(problem.weights) / self.mass
            gram -= self.mass / problem.n * np.outer(self.mean, self.mean)
        values, self.vectors = np.linalg.eigh(gram)
        self.values = np.maximum(values, 0.0)

    @property
    def target(self) -> float:
        """The gap at which to stop."""
        return self.tol * self.best.scale

    def keep(self, certificate: Certificate) -> None:
        """Keep a certificate if it is the best, and report the best one."""
        if certificate.gap < self.best.gap:
            self.best = certificate
        self.call_back()

    def call_back(self) -> None:
        """Report the best certificate."""
        if self.report is not None:
            self.stopped |= bool(self.report(self.steps, self.best))

    @property
    def is_done(self) -> bool:
        """Whether the best certificate is good enough, or the report asks to stop."""
        return self.best.gap <= self.target or (self.stopped and self.steps > 0)
