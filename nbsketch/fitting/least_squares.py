"""The square loss: closed forms for every alpha, and alpha by leave-one-out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from nbsketch.fitting.objectives import FeatureSolution, RadialObjective, SolveOptions
from nbsketch.solvers.design import Design
from nbsketch.solvers.exact import solve_exact
from nbsketch.solvers.ridge import RidgePath, leave_one_out, ridge_path

# Up to so many rows, a sketch of which nothing is said has all the rows there are.
_EXACT_ROWS = 1500
# Leave-one-out errors of more rows tell alpha no better, and cost as much as the fit.
_MOST_VALIDATION_ROWS = 5000


@dataclass(frozen=True)
class LeastSquaresObjective(RadialObjective):
    """Least squares, for one output or several: one decomposition, every alpha."""

    keep_features: ClassVar[None] = None
    _size_work: ClassVar[float] = 5e10

    def default_size(self) -> int:
        """Return as many rows as there are, while that costs little: else some."""
        n = len(self.targets)
        return n if n <= _EXACT_ROWS else super().default_size()

    @property
    def _largest_size(self) -> int:
        return 1000

    @property
    def is_robust(self) -> bool:
        """No."""
        return False

    def fit(
        self,
        design: Design,
        alpha: float | None,
        control: SolveOptions,
        rng: np.random.Generator,
    ) -> FeatureSolution:
        """Solve for one alpha; None is the one of least leave-one-out error."""
        path = ridge_path(design, self.targets, **self._problem())
        if alpha is None:
            alphas, errors = self._left_out(path, design, rng)
            alpha = alphas[np.argmin(errors)]
        return _answer(path, float(alpha))

    def score(
        self, design: Design, alpha: float | None, rng: np.random.Generator
    ) -> float:
        """Return the leave-one-out error, for one alpha or the best of a path."""
        path = ridge_path(design, self.targets, **self._problem())
        alphas = None if alpha is None else np.array([alpha])
        return float(self._left_out(path, design, rng, alphas)[1].min())

    def _left_out(
        self,
        path: RidgePath,
        design: Design,
        rng: np.random.Generator,
        alphas: NDArray | None = None,
    ) -> tuple[NDArray, NDArray]:
        """Return penalties and their leave-one-out errors."""
        if alphas is None:
            alphas = path.default_alphas()[::-1]  # of equals, the strongest
        known = self.targets, alphas, self.weights, self._validation_rows(rng)
        return alphas, leave_one_out(path, design, *known)

    def _validation_rows(self, rng: np.random.Generator) -> NDArray | None:
        """Return the rows whose leave-one-out errors are looked at; None for all."""
        weights, n = self.weights, len(self.targets)
        rows = np.arange(n) if weights is None else np.flatnonzero(weights)
        if len(rows) <= _MOST_VALIDATION_ROWS:
            return None
        return np.sort(rng.choice(rows, _MOST_VALIDATION_ROWS, replace=False))

    def path(
        self, design: Design, alphas: Iterable[float], control: SolveOptions
    ) -> Iterator[FeatureSolution]:
        """Yield the solution for each alpha."""
        path = ridge_path(design, self.targets, **self._problem())
        for alpha in alphas:
            yield _answer(path, float(alpha))

    def fit_gram(self, K: NDArray, alpha: float) -> FeatureSolution:
        """Solve without a sketch, for the Gram matrix of the rows."""
        A, b, objective = solve_exact(K, self.targets, alpha, **self._problem())
        return FeatureSolution(A, b, alpha, objective, 0.0, n_iter=1, shortfall=None)

    def losses(self, fitted: NDArray) -> NDArray:
        """Return half the squared norm of the residual of each row."""
        return np.square(self.targets - fitted).sum(axis=1) / 2

    def errors(self, fitted: NDArray) -> NDArray:
        """Return the mean squared error of each output."""
        squares = np.square(self.targets - fitted)
        return np.average(squares, axis=0, weights=self.weights)

    def _problem(self) -> dict[str, Any]:
        return {
            "output": self.factor.T @ self.factor,
            "sample_weight": self.weights,
            "fit_intercept": self.fit_intercept,
        }


def _answer(path: RidgePath, alpha: float) -> FeatureSolution:
    B, b = path.solve(alpha)
    objective = path.objective(alpha)
    gap = path.gap(alpha) / objective if objective > 0 else 0.0
    return FeatureSolution(B, b, alpha, objective, gap, n_iter=1, shortfall=None)
