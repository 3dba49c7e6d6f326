"""The square loss in closed form, for one penalty or all of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from nbsketch._blas import eigh
from nbsketch.fitting.alpha import AlphaPath, LeftOut, filter_path
from nbsketch.fitting.objective import FeatureSolution
from nbsketch.fitting.objectives import RadialObjective, ScalarObjective
from nbsketch.fitting.settings import SolveOptions
from nbsketch.fitting.sizes import least_squares_size
from nbsketch.losses import SquareLoss, as_loss
from nbsketch.outputs import IdentityOutput, as_output
from nbsketch.solvers.conjugate import relative_gap
from nbsketch.solvers.design import ArrayDesign, Design
from nbsketch.solvers.exact import solve_exact
from nbsketch.solvers.filters import Filter, LandweberFilter, RidgeFilter
from nbsketch.solvers.folds import order_effect
from nbsketch.solvers.ridge import RidgePath, ridge_path
from nbsketch.solvers.spectrum import Spectrum, decompose

# Eigenvalues of a Gram matrix below this share of the largest are rounding.
_NOTHING = 1e-12


@dataclass(frozen=True)
class LeastSquaresObjective(RadialObjective):
    """Least squares, for one output or several: one decomposition, every penalty."""

    keep_features: ClassVar[bool | None] = None
    is_closed_form: ClassVar[bool] = True
    solves_gram: ClassVar[bool] = True

    def default_size(self) -> int:
        """Return the default size of a sketch."""
        return least_squares_size(len(self.targets))

    @property
    def loss_kind(self) -> str | None:
        """Kind of the loss in the rule for all rows."""
        return "square"

    @property
    def is_robust(self) -> bool:
        """False: outliers dominate the square loss."""
        return False

    def fit(
        self,
        design: Design,
        alpha: float | None,
        rng: np.random.Generator,
        validation: tuple[Design, NDArray] | None = None,
    ) -> FeatureSolution:
        """Solve for one penalty; None is the one of least error on rows left out."""
        path = ridge_path(design, self.targets, **self.problem())
        if alpha is not None:
            return _solution(path, float(alpha))
        solution = _solution(path, LeftOut(self, design, rng).ridge(path).best)
        return self._with_order(solution, path, RidgeFilter(), design)

    def _with_order(
        self,
        solution: FeatureSolution,
        spectrum: Spectrum,
        filter: Filter,
        design: Design,
    ) -> FeatureSolution:
        """Say of a choice by single rows what blocks of rows say of it."""
        if self.folds is not None:
            return solution
        args = design, self.targets, solution.alpha, self.weights
        return solution._replace(order=order_effect(spectrum, filter, *args))

    def errors_left_out(
        self, design: Design, alpha: float | None, rng: np.random.Generator
    ) -> AlphaPath:
        """Return errors on rows left out, for one penalty or a path (None)."""
        path = ridge_path(design, self.targets, **self.problem())
        return LeftOut(self, design, rng).ridge(path, alpha)

    def path(
        self, design: Design, alphas: Iterable[float], options: SolveOptions
    ) -> Iterator[FeatureSolution]:
        """Yield the solution for each penalty."""
        path = ridge_path(design, self.targets, **self.problem())
        for alpha in alphas:
            yield _solution(path, float(alpha))

    def solve_gram(self, K: NDArray, alpha: float) -> FeatureSolution:
        """Solve without a sketch, for the Gram matrix of the rows."""
        A, b, objective = solve_exact(K, self.targets, alpha, **self.problem())
        gap = relative_gap(K, self.targets, A, alpha, **self.problem())
        return FeatureSolution(A, b, alpha, objective, gap, n_iter=1, shortfall=None)

    def losses(self, fitted: NDArray) -> NDArray:
        """Return half the squared norm of the residual of each row."""
        return np.square(self.targets - fitted).sum(axis=1) / 2

    def errors(self, fitted: NDArray) -> NDArray:
        """Return the mean squared error of each output."""
        squares = np.square(self.targets - fitted)
        return np.average(squares, axis=0, weights=self.weights)

    def problem(self) -> dict[str, Any]:
        """Return the output matrix, weights and intercept, as solvers take them."""
        return {"output": self.factor.T @ self.factor, **self._weighting}


def _solution(path: RidgePath, alpha: float) -> FeatureSolution:
    B, b = path.solve(alpha)
    objective = path.objective(alpha)
    gap = path.gap(alpha) / objective if objective > 0 else 0.0
    return FeatureSolution(B, b, alpha, objective, gap, n_iter=1, shortfall=None)


def regression_objective(
    Y: NDArray,
    weights: NDArray | None,
    fit_intercept: bool,
    loss: Any,
    output: Any = None,
) -> ScalarObjective | RadialObjective:
    """Return the objective for targets (n, d), a loss and an output matrix."""
    loss, output = as_loss(loss), as_output(output)
    if loss.is_classification:
        raise ValueError(
            f"`loss` must be a loss of residuals, got {loss!r}: use "
            "SketchedKernelClassifier for losses of margins"
        )
    factor = output.factor(Y.shape[1])
    if isinstance(loss, SquareLoss):
        return LeastSquaresObjective(Y, weights, fit_intercept, loss, factor)
    if Y.shape[1] == 1 and isinstance(output, IdentityOutput):
        return ScalarObjective(loss.link(Y), weights, fit_intercept, loss)
    if not loss.is_radial and Y.shape[1] == 1:
        raise ValueError(
            f"`output` must be None for one target and {loss!r}, got {output!r}"
        )
    if not loss.is_radial:
        raise ValueError(
            f"`y` must have one column for {loss!r}, got {Y.shape[1]}: "
            "it is not a loss of the norm of a residual"
        )
    return RadialObjective(Y, weights, fit_intercept, loss, factor)


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
            return _filtered_solution(spectrum, filter, float(alpha))
        tried = filter_path(self, spectrum, filter, design, None, validation)
        steps = np.array([filter.n_iter(a) for a in tried.alphas])
        path = {"alpha": tried.alphas, "n_iter": steps, "error": tried.errors}
        solution = _filtered_solution(spectrum, filter, tried.best)._replace(path=path)
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
            yield _filtered_solution(spectrum, filter, float(alpha))

    def solve_gram(self, K: NDArray, alpha: float) -> FeatureSolution:
        """Solve without a sketch, for the Gram matrix of the rows."""
        values, vectors = eigh(K)
        kept = values > _NOTHING * values[-1]
        roots, vectors = np.sqrt(values[kept]), vectors[:, kept]
        spectrum, filter = self._decompose(ArrayDesign._trusted(vectors * roots))
        solution = _filtered_solution(spectrum, filter, alpha)
        return solution._replace(coef=(vectors / roots) @ solution.coef)

    def _given(self, filter: Filter, alpha: float | None) -> float | None:
        """Return the parameter if it is given, by itself or as a number of steps."""
        if isinstance(filter, LandweberFilter) and self.n_steps is not None:
            return filter.alpha(self.n_steps)
        return alpha

    def _decompose(self, design: Design) -> tuple[Spectrum, Filter]:
        spectrum = decompose(design, self.targets, **self.problem())
        return spectrum, self.filter.resolve(spectrum.top)


def _filtered_solution(
    spectrum: Spectrum, filter: Filter, alpha: float
) -> FeatureSolution:
    B, b = spectrum.coefficients(filter, alpha)
    objective = float(spectrum.mean_squares(filter, alpha)[0]) / 2
    steps = filter.n_iter(alpha)
    return FeatureSolution(B, b, alpha, objective, 0.0, n_iter=steps, shortfall=None)
