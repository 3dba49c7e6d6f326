"""The result of a solver, its certificate and progress, and the state of a start."""

from collections.abc import Callable
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

# Iteration, objective, gap and seconds; returns true to stop.
Callback = Callable[[int, float, float, float], Any]


class Progress:
    """Time of a search, and its callback, which may stop it.

    Attributes
    ----------
    callback : callable or None
        Called by `report` until it returns true.
    stopped : bool
        Whether it has returned true.
    """

    def __init__(self, callback: Callback | None = None) -> None:
        self.callback = callback
        self.stopped = False
        self._began = perf_counter()

    @property
    def seconds(self) -> float:
        """Time since the start."""
        return perf_counter() - self._began

    def report(self, step: int, objective: Any, gap: Any) -> None:
        """Call back with numbers of the best point so far."""
        if self.callback is not None and not self.stopped:
            self.stopped = bool(
                self.callback(step, float(objective), float(gap), self.seconds)
            )


class State(NamedTuple):
    """A warm start for the next problem.

    `coef` alone saves little time; the dual point, the smoothing and the Gram matrix
    save more. A state belongs to one design: before using it with other rows, even of
    equal number (another fold), drop `gram` and `inside` with
    ``state._replace(gram=None, inside=None)``. Solvers cannot detect this mistake.

    Attributes
    ----------
    coef, intercept, dual
        As in `Solution`.
    sigma : float or None
        Width of the smoothing. Drop it before solving for another penalty.
    gram : ndarray or None
        Weighted Gram matrices of the rows in `inside`, with the intercept last, one for
        each term of a row; a mean over all rows if `inside` is None.
    inside : ndarray of bool or None
        Rows strictly between kinks, for each term.
    """

    coef: NDArray
    intercept: Any
    dual: NDArray | None = None
    sigma: float | None = None
    gram: NDArray | None = None
    inside: NDArray | None = None


class Certificate(NamedTuple):
    """A primal and a dual point, and the bound that they imply.

    Gaps are bounds by weak duality, computed without cancellation: for any w, b and any
    a within its bounds with ``sum_i s_i a_i = 0`` (with intercept),

        P(w, b) - D(a) = sum_i s_i [psi_i(r_i) + psi_i*(a_i) - a_i r_i] / n
                         + |alpha w - Z^T (s a) / n|^2 / (2 alpha),

    a sum of nonnegative terms, each exactly 0 for a row beyond a kink. The difference
    of both objectives would lose all digits to a few large outliers. With several
    outputs, products of residuals and dual points are inner products, and Z^T (s a) is
    multiplied by the factor of the output matrix.

    Attributes
    ----------
    coef : ndarray
        Coefficients.
    intercept : float or ndarray of shape (d,)
        Intercept.
    dual : ndarray
        Dual point.
    objective : float
        Objective at (coef, intercept).
    gap : float
        Upper bound on the distance of `objective` from the minimum.
    scale : float
        Reference for the gap: the objective, with outlying losses truncated.
    noise : float
        Increase of the gap by rounding of kernel values.
    """

    coef: NDArray
    intercept: Any
    dual: Any
    objective: float
    gap: float
    scale: float
    noise: float = 0.0

    @property
    def relative_gap(self) -> float:
        """The gap plus its noise, divided by the scale; 0 if both are 0."""
        total = self.gap + self.noise
        if total == 0:
            return 0.0
        return total / self.scale if self.scale > 0 else np.inf


class Solution(NamedTuple):
    """The result of a solver.

    Attributes
    ----------
    coef : ndarray of shape (r,) or (r, d)
        Coefficients w of the features.
    intercept : float or ndarray of shape (d,)
        Intercept b; 0 without intercept.
    dual : ndarray of shape (n,) or (n, d) or None
        Dual point a. At the optimum ``w = Z^T (s a) / (alpha n)``.
    objective : float
        Value of the primal objective at (coef, intercept).
    gap : float
        Certified bound on the distance of the objective from the minimum, by weak
        duality between (coef, intercept) and `dual`. Infinite if unknown.
    relative_gap : float
        `gap` divided by the scale of the objective, compared with `tol`.
    n_iter : int
        Newton steps, or iterations of other methods.
    seconds : float
        Wall time.
    converged : bool
        Whether ``relative_gap <= tol``.
    state : State or None
        For a warm start.
    """

    coef: NDArray
    intercept: Any
    dual: NDArray | None
    objective: float
    gap: float
    relative_gap: float
    n_iter: int
    seconds: float
    converged: bool
    state: State | None = None

    def shortfall(self, tol: float) -> str:
        """Return the text of a warning for a solution that has not converged."""
        # The objective itself is a relative distance of 1 from a minimum of 0.
        is_known = self.relative_gap <= 1
        distance = f"at most {self.relative_gap:.1e}" if is_known else "unknown"
        return (
            f"the solver stopped after {self.n_iter} iterations before reaching tol="
            f"{tol:g}; the relative distance from the optimum is {distance}. Raise "
            "max_iter or tol, or alpha if it is tiny"
        )
