"""One search by conjugate gradients, for kernel least squares on rows or on sketches.

A system has columns of coefficients X with their own penalties. What a search asks of
it is `System`: residuals, products, a preconditioner, and two certificates, an estimate
after each step and a bound from true residuals.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from nbsketch._validation import check_integer, check_positive, check_real
from nbsketch.solvers._linear.conjugate_gradients import (
    ConjugateGradients,
    RotatedOutputs,
)
from nbsketch.solvers.solution import Solution, State

# Called with passes, objective, gap and seconds after each pass; true to stop.
Callback = Callable[[int, float, float, float], Any]

# Coefficients with a larger relative gap are worse than none: early iterates of dual
# coefficients overshoot by orders of magnitude.
LARGEST_GAP = 0.1
# Most restarts from true residuals: a guard, two to four are usual near rounding.
_ROUNDS = 8


class NotConvergedError(RuntimeError):
    """No coefficients were found whose objective is near the minimum."""


class ColumnGaps(NamedTuple):
    """Objective and gap of each column of coefficients."""

    objective: NDArray  # (d,)
    gap: NDArray  # (d,), from the residual
    noise: NDArray  # (d,), what rounding of the kernel values adds to the gap

    @property
    def relative_gap(self) -> NDArray:
        """Return the gap with noise over the objective, 0 where both are."""
        total = self.gap + self.noise
        with np.errstate(divide="ignore"):
            return np.divide(total, self.objective, out=total * 0, where=total > 0)


class System(Protocol):
    """Linear equations of d columns of coefficients X, of shape `shape`."""

    shape: tuple[int, int]
    weights: NDArray | None
    fit_intercept: bool

    @property
    def passes(self) -> int:
        """Passes over the kernel values that the right sides have taken."""

    @property
    def slack(self) -> float:
        """Factor by which a search goes on where a bound exceeds the estimate."""

    def project(self, X: NDArray) -> NDArray:
        """Return admissible coefficients near X."""

    def product(self, X: NDArray, columns: NDArray) -> NDArray:
        """Return the product of some columns with the matrix, one pass."""

    def curved(self, D: NDArray, product: NDArray, columns: NDArray) -> NDArray:
        """Return the change of the residuals along D, given its product."""

    def residual(self, X: NDArray, product: NDArray, columns: NDArray) -> NDArray:
        """Return the residuals of some columns."""

    def precondition(self, R: NDArray, columns: NDArray) -> NDArray:
        """Return the preconditioned residuals of some columns."""

    def estimate(
        self, X: NDArray, product: NDArray, steps: ConjugateGradients
    ) -> ColumnGaps:
        """Return the objectives and estimates of the gaps, after a step."""

    def certify(self, X: NDArray, product: NDArray, tol: float) -> ColumnGaps:
        """Return the objectives and bounds of the gaps, for true products."""

    def intercept(self, X: NDArray, product: NDArray) -> NDArray:
        """Return the best intercepts."""


class Limits(NamedTuple):
    """When to stop: relative gap, passes over the kernel values, and seconds."""

    tol: float
    passes: int
    seconds: float

    @classmethod
    def checked(cls, tol: float, max_passes: int, max_seconds: float) -> Limits:
        """Return the limits of a public solver, by the names of its arguments."""
        return cls(
            check_positive("tol", tol),
            check_integer("max_passes", max_passes, low=3),
            check_real("max_seconds", max_seconds, low=0),
        )


class ConjugateSearch:
    """Conjugate gradients until every column is certified, or the budget is spent.

    Attributes
    ----------
    X, product : ndarray of shape (p, d)
        Coefficients, and their product with the matrix.
    certificate : ColumnGaps
        From a true residual once `run` has ended.
    n_passes : int
        Passes over the kernel values.
    stopped : bool
        Whether the callback has ended the search.
    """

    def __init__(
        self,
        system: System,
        start: NDArray | None,
        limits: Limits,
        callback: Callback | None = None,
    ) -> None:
        self.system, self._limits, self._callback = system, limits, callback
        self._began, self.stopped = perf_counter(), False
        self.n_passes = system.passes
        d = system.shape[1]
        self._tol, self._stuck = np.full(d, limits.tol), np.zeros(d, dtype=bool)
        self.X, self.product = np.zeros(system.shape), np.zeros(system.shape)
        if start is not None:
            self.X = np.array(system.project(start))
            self.product = self._multiply(self.X, np.arange(d))

    def run(self) -> ColumnGaps:
        """Search, and return the certificate of X."""
        columns, before = np.arange(len(self._tol)), np.full(len(self._tol), np.inf)
        for _ in range(_ROUNDS):
            if moved := self._descend():
                self.product = self._multiply(self.X, columns)
            tol = self._limits.tol
            self.certificate = self.system.certify(self.X, self.product, tol)
            if moved:  # rounding ends the search where a restart gains nothing
                self._stuck |= ~(self.certificate.gap < before / 2)
            late = self._late(tol)
            if not late.any() or not self._has_time():
                break
            before = self.certificate.gap
            self._tol[late] /= self.system.slack
        return self.certificate

    def solution(self, rotated: RotatedOutputs, columns: Any = slice(None)) -> Solution:
        """Return some columns of coefficients as a solution."""
        gaps, system = self.certificate, self.system
        coef, intercept, unused = rotated.restore(
            self.X[:, columns], system.intercept(self.X, self.product)[columns],
            system.weights, system.fit_intercept,
        )  # fmt: skip
        worst = float(gaps.relative_gap[columns].max(initial=0))
        return Solution(
            coef=coef,
            intercept=intercept,
            dual=None,
            objective=float(gaps.objective[columns].sum()) + unused,
            gap=float((gaps.gap + gaps.noise)[columns].sum()),
            relative_gap=worst,
            n_iter=self.n_passes,
            seconds=perf_counter() - self._began,
            converged=worst <= self._limits.tol,
            state=State(coef, intercept),
        )

    def checked_solution(self, rotated: RotatedOutputs) -> Solution:
        """Run, and return the solution; raise if it is none and nobody stopped."""
        self.run()
        if not self.stopped:
            self.check_gap()
        return self.solution(rotated)

    def check_gap(self) -> None:
        """Raise an error if the largest relative gap is above 0.1."""
        worst = float(self.certificate.relative_gap.max(initial=0))
        if not worst <= LARGEST_GAP:
            raise NotConvergedError(
                f"the relative duality gap is {worst:.1e} after {self.n_passes} "
                f"passes, above {LARGEST_GAP}: no usable coefficients. Raise "
                "max_passes, max_seconds or alpha, or use float64 kernel values"
            )

    def _late(self, tol: Any) -> NDArray:
        """Return the columns that have not converged and can get better."""
        gaps = self.certificate
        coarse = gaps.gap < gaps.noise / 16
        return (gaps.relative_gap > tol) & ~coarse & ~self._stuck

    def _has_time(self) -> bool:
        # One pass is kept for the residual at the end.
        used = perf_counter() - self._began
        per_pass = used / max(1, self.n_passes)
        in_time = used + 2 * per_pass <= self._limits.seconds
        spent = self.stopped or self.n_passes + 2 > self._limits.passes
        return in_time and not spent

    def _multiply(self, V: NDArray, columns: NDArray) -> NDArray:
        self.n_passes += 1
        return self.system.product(V, columns)

    def _descend(self) -> bool:
        """Run conjugate gradients until every column stops; return if any moved."""
        live, before = np.flatnonzero(~self._stuck), self.n_passes
        R = self.system.residual(self.X[:, live], self.product[:, live], live)
        steps = ConjugateGradients(R, self.system.precondition, live)
        while True:
            self.certificate = self.system.estimate(self.X, self.product, steps)
            self._report()
            late = self._late(self._tol)[steps.columns]
            if not late.any() or not self._has_time():
                return self.n_passes > before
            steps.keep(late)
            steps.turn()
            self._step(steps)

    def _step(self, steps: ConjugateGradients) -> None:
        columns, D = steps.columns, steps.D
        product = self._multiply(D, columns)
        lengths = steps.step(self.system.curved(D, product, columns))
        self._stuck[columns[lengths == 0]] = True
        self.X[:, columns] += lengths * D
        self.product[:, columns] += lengths * product

    def _report(self) -> None:
        if self._callback is None or not self.n_passes:
            return
        gaps, seconds = self.certificate, perf_counter() - self._began
        sums = float(gaps.objective.sum()), float((gaps.gap + gaps.noise).sum())
        self.stopped |= bool(self._callback(self.n_passes, *sums, seconds))
