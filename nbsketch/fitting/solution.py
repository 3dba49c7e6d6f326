"""The solution of an objective, as coefficients of features or of landmarks."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nbsketch.solvers.folds import OrderEffect
from nbsketch.solvers.solution import Solution, State


class FeatureSolution(NamedTuple):
    """A solution: f(x) = coef^T z(x) + intercept.

    Expanded, f(x) = coef^T S k_x + intercept.
    """

    coef: NDArray  # (r, d)
    intercept: NDArray  # (d,)
    alpha: float
    objective: float
    gap: float  # relative
    n_iter: int
    shortfall: str | None  # a warning, if the accuracy was not reached
    states: tuple[State | None, ...] = ()
    rank: int = 0  # number of features
    path: dict[str, NDArray] | None = None  # on which a filter's alpha was chosen
    order: OrderEffect | None = None  # if single rows have chosen alpha

    @classmethod
    def of_rows(cls, found: Solution, alpha: float, tol: float) -> FeatureSolution:
        """Return the solution with one coefficient for each row or landmark."""
        return cls(
            found.coef,
            np.atleast_1d(found.intercept),
            alpha,
            found.objective,
            found.relative_gap,
            n_iter=max(1, found.n_iter),
            shortfall=None if found.converged else found.shortfall(tol),
            rank=len(found.coef),
        )

    def as_start(self) -> FeatureSolution:
        """Return the solution as the start for another penalty."""
        states = (s._replace(sigma=None) if s else None for s in self.states)
        return self._replace(states=tuple(states))
