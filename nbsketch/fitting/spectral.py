"""The square loss regularized by any spectral filter."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from nbsketch._blas import eigh
from nbsketch.fitting.alpha import AlphaPath, filter_path
from nbsketch.fitting.least_squares import LeastSquaresObjective
from nbsketch.fitting.objective import FeatureSolution
from nbsketch.fitting.settings import SolveOptions
from nbsketch.solvers.design import ArrayDesign, Design
from nbsketch.solvers.filters import Filter, LandweberFilter
from nbsketch.solvers.spectrum import Spectrum, decompose

# Eigenvalues of a Gram matrix below this share of the largest are rounding.
_NOTHING = 1e-12


@dataclass(frozen=True)
class SpectralObjective(LeastSquaresObjective):
    """Least squares regularized by a spectral filter."""

    solves_gram: ClassVar[bool] = False

    filter: Filter
    criterion: str
    n_steps: int | None = None

    def fit(
        self,
        design: Design,
        alpha: float | None,
        rng: np.random.Generator,
        validation: tuple[Design, NDArray] | None = None,
    ) -> FeatureSolution:
        """Solve for one parameter; None is the best of a path.

        `validation` are features and targets on which it is chosen, in place of the
        criterion.
        """
        spectrum, filter = self._decompose(design)
        alpha = self._given(filter, alpha)
        if alpha is not None:
            return _solution(spectrum, filter, float(alpha))
        tried = filter_path(self, spectrum, filter, design, None, validation)
        steps = np.array([filter.n_iter(a) for a in tried.alphas])
        path = {"alpha": tried.alphas, "n_iter": steps, "error": tried.errors}
        solution = _solution(spectrum, filter, tried.best)._replace(path=path)
        if validation is not None:
            return solution
        return self._with_order(solution, spectrum, filter, design)

    def errors_left_out(
        self, design: Design, alpha: float | None, rng: np.random.Generator
    ) -> AlphaPath:
        """Return the errors of the criterion, for one parameter or a path (None)."""
        spectrum, filter = self._decompose(design)
        alpha = self._given(filter, alpha)
        return filter_path(self, spectrum, filter, design, alpha)

    def path(
        self, design: Design, alphas: Iterable[float], options: SolveOptions
    ) -> Iterator[FeatureSolution]:
        """Yield the solution for each parameter."""
        spectrum, filter = self._decompose(design)
        for alpha in alphas:
            yield _solution(spectrum, filter, float(alpha))

    def solve_gram(self, K: NDArray, alpha: float) -> FeatureSolution:
        """Solve without a sketch, for the Gram matrix of the rows."""
        values, vectors = eigh(K)
        kept = values > _NOTHING * values[-1]
        roots, vectors = np.sqrt(values[kept]), vectors[:, kept]
        spectrum, filter = self._decompose(ArrayDesign._trusted(vectors * roots))
        solution = _solution(spectrum, filter, alpha)
        return solution._replace(coef=(vectors / roots) @ solution.coef)

    def _given(self, filter: Filter, alpha: float | None) -> float | None:
        """Return the parameter if it is given, by itself or as a number of steps."""
        if isinstance(filter, LandweberFilter) and self.n_steps is not None:
            return filter.alpha(self.n_steps)
        return alpha

    def _decompose(self, design: Design) -> tuple[Spectrum, Filter]:
        spectrum = decompose(design, self.targets, **self.problem())
        return spectrum, self.filter.resolve(spectrum.top)


def _solution(spectrum: Spectrum, filter: Filter, alpha: float) -> FeatureSolution:
    B, b = spectrum.coefficients(filter, alpha)
    objective = float(spectrum.mean_squares(filter, alpha)[0]) / 2
    steps = filter.n_iter(alpha)
    return FeatureSolution(B, b, alpha, objective, 0.0, n_iter=steps, shortfall=None)
