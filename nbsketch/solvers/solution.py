"""What every solver returns, and the state from which the next one can start."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


class State(NamedTuple):
    """Where a solver stopped: pass it on to start the next problem from there.

    Starting from `coef` alone is hardly better than from nothing; the dual point, the
    smoothing and the Gram matrix of the rows in `inside` are what saves the time.

    A state belongs to one design: drop `gram` and `inside` before using it with other
    rows, be they as many, as in another fold (``state._replace(gram=None,
    inside=None)``). Solvers cannot see the difference.
    """

    coef: NDArray
    intercept: Any
    dual: NDArray | None = None
    sigma: float | None = None
    gram: NDArray | None = None  # of the rows in `inside`, weighted, intercept last;
    inside: NDArray | None = None  # None: a mean over whatever rows gave it


class Solution(NamedTuple):
    """The result of a solver.

    Attributes
    ----------
    coef : ndarray of shape (r,) or (r, d)
        Coefficients w of the features.
    intercept : float or ndarray of shape (d,)
        The constant b; 0 without one.
    dual : ndarray of shape (n,) or (n, d) or None
        Dual point a. At the optimum ``w = Z^T (s a) / (alpha n)``.
    objective : float
        Value of the primal objective at (coef, intercept).
    gap : float
        Certified: the objective is at most this much above the minimum, by weak duality
        between (coef, intercept) and `dual`. Infinite if nothing is known.
    relative_gap : float
        `gap` over the scale of the objective; this is what `tol` limits.
    n_iter : int
        Newton steps, or the iterations of other methods.
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
        known = "unknown" if np.isinf(self.gap) else f"at most {self.relative_gap:.1e}"
        return (
            f"the solver stopped after {self.n_iter} iterations before reaching tol="
            f"{tol:g}; the relative distance from the optimum is {known}. Raise "
            "max_iter or tol, or alpha if it is tiny"
        )
