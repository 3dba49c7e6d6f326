r"""Minimization by BFGS with bounds and bounded steps.

Points are the logarithms eta of inverse length scales, and log tau. Each criterion of n
rows has a weak penalty toward equal length scales,

.. math:: \frac{\kappa}{n} \Big( \sum_k \log(1 + (\eta_k - \bar\eta)^2)
          + 3 \log(1 + (\log \tau - \log 0.01)^2) \Big);

whose slow growth allows very large length scales for irrelevant features. The last term
decides if the evidence is nearly constant: as all length scales grow and tau decreases,
the kernel tends to that of a smoothing spline.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from nbsketch.solvers.passes import bfgs_product

# Maximum change of a logarithm in a step. A step of 3.9 once moved a relevant column to
# where its derivative vanishes, permanently: an error of 2.49 instead of 0.007.
LONGEST = 3.0
# Stop after two consecutive steps with a smaller gain: at 1e-3, irrelevant columns are
# kept and the error is a fifth larger.
_FLAT = 2e-4
_ENOUGH = 1e-4  # share of the linear decrease
_TRIALS = 6  # of the length of a step
# Curvature below this cosine of change and slope is rounding.
_LEAST_COSINE = 1e-10
_TINY = np.finfo(np.float64).tiny
# kappa: a length scale e times as large as the others costs 7 / n in the criterion.
PULL = 10.0
# Factor for tau, and the reference tau. A smaller one makes problems harder to solve
# (Adam on a smooth function: 1.4 times the error of the closed form, not 4.6) and the
# errors on five sets up to 9 % larger (on one set 5 % smaller).
TAU_PULL = 3.0
_USUAL_TAU = 0.01
# Bounds of the logarithms of inverse length scales and of tau.
LEAST_INVERSE = -9.0
LIMITS = LEAST_INVERSE, 6.0
TAU_LIMITS = -21.0, 14.0


class Criterion(Protocol):
    """A function of a point that returns its value and gradient.

    Attributes
    ----------
    error : float
        Logarithm of the leave-one-out error at the last point.
    level : int
        Level of precision: values of different levels are not compared.
    """

    error: float
    level: int

    def __call__(self, point: NDArray) -> tuple[float, NDArray]:
        """Return the value and the gradient."""


class Budget:
    """Remaining iterations and seconds."""

    def __init__(
        self,
        iterations: int,
        seconds: float,
        callback: Callable[[int, float], Any] | None = None,
    ) -> None:
        self.iterations = iterations
        self._all = iterations
        self._callback = callback
        self._end = time.monotonic() + seconds

    def share(self, iterations: int) -> Budget:
        """Return a separate budget, at most as large, with the same end time."""
        return Budget(min(iterations, self.iterations), self._end - time.monotonic())

    @property
    def is_spent(self) -> bool:
        """Whether the iterations or the time are used up."""
        return self.iterations <= 0 or time.monotonic() >= self._end

    def spend(self, log_error: float) -> None:
        """Count one iteration, with the log squared error after it."""
        self.iterations -= 1
        if self._callback is not None and self._callback(
            self._all - self.iterations, float(np.exp(log_error / 2))
        ):
            self.iterations = 0


class Curvature:
    """A BFGS inverse Hessian, stored as updates: memory grows with their number."""

    def __init__(self) -> None:
        self._pairs: list[tuple[NDArray, NDArray, float]] = []
        self._scale = 0.0

    def solve(self, gradient: NDArray) -> NDArray:
        """Return the product with a gradient; before any update, a unit vector."""
        return bfgs_product(
            self._pairs,
            gradient,
            lambda q: q * (self._scale or 1 / max(np.linalg.norm(q), _TINY)),
        )

    def update(self, s: NDArray, d: NDArray) -> None:
        """Add an update: a change of the point, and of the gradient."""
        product = s @ d
        if product > _LEAST_COSINE * np.linalg.norm(s) * np.linalg.norm(d):
            self._scale = self._scale or product / (d @ d)
            self._pairs.append((s, d, product))


class Descent:
    """A descent from a start, to be run for a number of iterations.

    Parameters
    ----------
    criterion : Criterion
        Function to minimize.
    start : ndarray of shape (k,)
        Starting point, clipped to the bounds.
    n : float
        Number of rows of the criterion, which divides the penalty.
    tau_limits : tuple of float, optional
        Bounds of the last coordinate. Default: those of log tau.
    curvature : Curvature, optional
        Curvature of a previous descent, to continue with.

    Attributes
    ----------
    point, value, gradient : ndarray, float, ndarray
        The best point, and the penalized criterion there; the start if it is not
        finite.
    """

    def __init__(
        self,
        criterion: Criterion,
        start: NDArray,
        n: float,
        tau_limits: tuple[float, float] = TAU_LIMITS,
        curvature: Curvature | None = None,
    ) -> None:
        self._criterion = criterion
        self._n = n
        ends = zip(LIMITS, tau_limits, strict=True)
        self._limits = [np.append(np.full(len(start) - 1, a), b) for a, b in ends]
        self.curvature = curvature or Curvature()
        self.point = np.clip(start, *self._limits)
        self.value, self.gradient = self._evaluate(self.point)

    def run(self, iterations: int, budget: Budget) -> None:
        """Descend until the criterion is flat or the iterations are used up."""
        small = 0
        for _ in range(iterations):
            if budget.is_spent or small == 2 or not np.isfinite(self.value):
                break
            before = self.value
            if not self._advance():
                break
            small = small + 1 if before - self.value < _FLAT else 0
            budget.spend(self._criterion.error)

    def _evaluate(self, point: NDArray) -> tuple[float, NDArray]:
        try:
            value, gradient = self._criterion(point)
        except np.linalg.LinAlgError:
            return np.inf, np.zeros_like(point)
        value, gradient = penalized(self._n, point, value, gradient)
        is_finite = np.isfinite(value) and np.isfinite(gradient).all()
        return (value, gradient) if is_finite else (np.inf, np.zeros_like(point))

    def _step(self) -> NDArray:
        """Return a bounded step that keeps coordinates within their bounds."""
        low, high = self._limits
        at_low = (self.point <= low) & (self.gradient > 0)
        free = ~(at_low | (self.point >= high) & (self.gradient < 0))
        slope = free * self.gradient
        step = -(free * self.curvature.solve(slope))
        step = step if slope @ step < 0 else -slope
        return step * min(1.0, LONGEST / max(np.abs(step).max(), _TINY))

    def _advance(self) -> bool:
        """Move to a point of lower value; return whether one was found."""
        step = self._step()
        length = 1.0
        for _ in range(_TRIALS):
            point = np.clip(self.point + length * step, *self._limits)
            level = self._criterion.level
            value, gradient = self._evaluate(point)
            if self._criterion.level > level:
                self.value, self.gradient = self._evaluate(self.point)
            change = point - self.point
            if value <= self.value + _ENOUGH * (self.gradient @ change):
                self.curvature.update(change, gradient - self.gradient)
                self.point = point
                self.value = value
                self.gradient = gradient
                return bool(change.any())
            slope = length * (self.gradient @ step)
            curvature = 2 * max(value - self.value - slope, _TINY)
            length *= np.clip(-slope / curvature, 0.1, 0.5)
        return False


def penalized(
    n: float, point: NDArray, value: float, gradient: NDArray
) -> tuple[float, NDArray]:
    """Add the penalty toward equal length scales and the reference tau."""
    weight = PULL / n
    away = point[:-1] - point[:-1].mean()
    value += weight * np.log1p(np.square(away)).sum()
    slope = 2 * weight * away / (1 + np.square(away))
    gradient[:-1] += slope - slope.mean()
    away = point[-1] - np.log(_USUAL_TAU)
    by_tau = TAU_PULL * PULL / n
    value += by_tau * np.log1p(np.square(away))
    gradient[-1] += 2 * by_tau * away / (1 + np.square(away))
    return value, gradient
