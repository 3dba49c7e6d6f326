"""The square loss by any spectral filter, its parameter chosen along a path."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nbsketch._blas import eigh
from nbsketch.fitting.least_squares import LeastSquaresObjective
from nbsketch.fitting.objectives import FeatureSolution, SolveOptions
from nbsketch.solvers.design import ArrayDesign, Design
from nbsketch.solvers.filters import Filter, LandweberFilter
from nbsketch.solvers.smoother import (
    generalized_cross_validation,
    held_out_error,
    leave_one_out,
)
from nbsketch.solvers.spectrum import Spectrum, decompose

CRITERIA = ("gcv", "leave-one-out")
# Eigenvalues of a Gram matrix below this share of the largest are rounding.
_NOTHING = 1e-12


@dataclass(frozen=True)
class SpectralObjective(LeastSquaresObjective):
    """Least squares regularized by a spectral filter."""

    filter: Filter
    criterion: str
    n_steps: int | None = None
    validation: tuple[Any, NDArray] | None = None  # other rows and their targets

    def fit(
        self,
        design: Design,
        alpha: float | None,
        control: SolveOptions,
        rng: np.random.Generator,
    ) -> FeatureSolution:
        """Solve for one alpha; None is the best of a path."""
        return self.search(design, alpha)[0]

    def score(
        self, design: Design, alpha: float | None, rng: np.random.Generator
    ) -> float:
        """Return the error of the criterion, for one alpha or the best of a path."""
        spectrum, filter = self._decompose(design)
        alpha = self._given(filter, alpha)
        alphas = filter.alphas(spectrum.top) if alpha is None else np.array([alpha])
        return float(self._errors(spectrum, filter, alphas, design, None).min())

    def search(
        self, design: Design, alpha: float | None, others: Design | None = None
    ) -> tuple[FeatureSolution, dict[str, NDArray] | None]:
        """Return the solution, and the path on which its parameter was chosen.

        `others` are the features of the validation rows, if there are any.
        """
        spectrum, filter = self._decompose(design)
        alpha = self._given(filter, alpha)
        if alpha is not None:
            return _answer(spectrum, filter, float(alpha)), None
        alphas = filter.alphas(spectrum.top)
        errors = self._errors(spectrum, filter, alphas, design, others)
        best = np.argmin(errors)  # alphas descend: the strongest of equals
        steps = np.array([filter.n_iter(a) for a in alphas])
        path = {"alpha": alphas, "n_iter": steps, "error": errors}
        return _answer(spectrum, filter, float(alphas[best])), path

    def path(
        self, design: Design, alphas: Iterable[float], control: SolveOptions
    ) -> Iterator[FeatureSolution]:
        """Yield the solution for each alpha."""
        spectrum, filter = self._decompose(design)
        for alpha in alphas:
            yield _answer(spectrum, filter, float(alpha))

    def fit_gram(self, K: NDArray, alpha: float) -> FeatureSolution:
        """Solve without a sketch, for the Gram matrix of the rows."""
        values, vectors = eigh(K)
        kept = values > _NOTHING * values[-1]
        roots, vectors = np.sqrt(values[kept]), vectors[:, kept]
        answer, _ = self.search(ArrayDesign._trusted(vectors * roots), alpha)
        return answer._replace(coef=(vectors / roots) @ answer.coef)

    def _given(self, filter: Filter, alpha: float | None) -> float | None:
        """Return the parameter that is given, in one of its spellings, if any is."""
        if isinstance(filter, LandweberFilter) and self.n_steps is not None:
            return filter.alpha(self.n_steps)
        return alpha

    def _decompose(self, design: Design) -> tuple[Spectrum, Filter]:
        spectrum = decompose(design, self.targets, **self._problem())
        return spectrum, self.filter.resolve(spectrum.top)

    def _errors(
        self,
        spectrum: Spectrum,
        filter: Filter,
        alphas: NDArray,
        design: Design,
        others: Design | None,
    ) -> NDArray:
        if others is not None and self.validation is not None:
            return held_out_error(spectrum, filter, others, self.validation[1], alphas)
        if self.criterion == "gcv":
            return generalized_cross_validation(spectrum, filter, alphas)
        return leave_one_out(
            spectrum, filter, design, self.targets, alphas, self.weights
        )


def _answer(spectrum: Spectrum, filter: Filter, alpha: float) -> FeatureSolution:
    B, b = spectrum.coefficients(filter, alpha)
    objective = float(spectrum.mean_squares(filter, alpha)[0]) / 2
    steps = filter.n_iter(alpha)
    return FeatureSolution(B, b, alpha, objective, 0.0, n_iter=steps, shortfall=None)
