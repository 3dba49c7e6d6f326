"""Objectives by loss and outputs.

Scalar losses, losses of vectors, quantile levels of one target, and least squares: in
closed form, for one penalty or all of them, or by a spectral filter.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from nbsketch._report.validation import listed, varying_features, warn
from nbsketch.fitting.objective import FeatureSolution, Objective
from nbsketch.fitting.penalty import (
    AlphaPath,
    LeftOutErrors,
    far_means,
    means_and_squares,
)
from nbsketch.fitting.plan import SolveOptions, joint_size, least_squares_size
from nbsketch.losses import (
    LogLinkLoss,
    Loss,
    PinballLoss,
    PoissonLoss,
    SquareLoss,
    as_loss,
)
from nbsketch.outputs import IdentityOutput, as_output
from nbsketch.rows.outliers import NORMAL, clipped, medians
from nbsketch.solvers._linear.conjugate_gradients import RotatedOutputs
from nbsketch.solvers.design import Design
from nbsketch.solvers.dual import dual_path, joint_dual_path
from nbsketch.solvers.exact import certified_exact
from nbsketch.solvers.filters import Filter, LandweberFilter, RidgeFilter
from nbsketch.solvers.left_out import (
    fold_errors,
    generalized_cross_validation,
    held_out_error,
    leave_one_out,
    order_effect,
)
from nbsketch.solvers.newton import solve_joint_pinball, solve_scalar
from nbsketch.solvers.radial import solve_radial
from nbsketch.solvers.row_loss import has_row_loss
from nbsketch.solvers.solution import Solution
from nbsketch.solvers.spectrum import decompose, ridge_path, units_of

# Maximum of features times levels, and times classes if there are more than two, for
# which a path of penalties takes only a few seconds.
_SMALL_JOINT = 400
_SMALL_CLASSES = 1000
# More classes than this hardly change the choice of their common penalty.
_MOST_CLASSES = 4
# Share of the loss of a constant below which labels are separated: weaker penalties
# hardly move the boundary.
_SEPARATED = 1e-3
# Share of the loss at twice epsilon below which samples are within the tube: weaker
# penalties hardly move the function there, and take thousands of steps.
_WITHIN = 1e-2
# Minimum mean of rates without an intercept: smaller ones lose digits next to 1/2.
_LEAST_RATE = 1e-6
# Outputs with a smaller share of the largest deviation add less than 1e-6 to squares of
# norms, the default tolerance.
_LEAST_SHARE = 1e-3
# Sizes of targets, relative to their robust spread, whose losses hide those of others.
_LOST = 100 * float(np.finfo(np.float64).eps)
# Smaller means have lost digits themselves.
_TINY = float(np.finfo(np.float64).tiny)


@dataclass(frozen=True)
class ScalarObjective(Objective):
    """One output, or one-vs-rest classes: each is one column of targets.

    Targets of a loss of means are relative to `unit`, so that they keep all digits in
    any unit. Penalties, intercepts and losses are in the user's units.
    """

    loss: Loss
    unit: float = 1.0

    @property
    def _shift(self) -> float:
        """Shift of the intercepts by the unit."""
        return float(np.log(self.unit))

    @property
    def loss_scale(self) -> float:
        """Factor of the losses in the user's units."""
        return self.unit ** (2.0 - getattr(self.loss, "power", 2.0))

    def relative(self) -> Self:
        """Return the objective for targets in units of `unit`."""
        return replace(self, unit=1.0)

    @property
    def loss_kind(self) -> str | None:
        """Kind of the loss if it is linear-quadratic or logistic."""
        if not has_row_loss(self.loss):
            return None
        return "smooth" if self.loss.is_smooth else "kinked"

    @property
    def is_robust(self) -> bool:
        """Whether the loss is robust to outliers; labels have none."""
        return not (self.loss.is_classification or isinstance(self.loss, LogLinkLoss))

    def has_solution(self, rows: NDArray) -> bool:
        """Return whether the rows have events: the logarithm of rates is finite."""
        if not (self.fit_intercept and isinstance(self.loss, LogLinkLoss)):
            return True
        return bool(self.loss.targets(self.targets[rows]).any())

    def fitted_loss(self) -> float:
        """Return the objective of separated labels, or within a tube."""
        if self.loss.is_classification:
            return _SEPARATED * self.constant_loss()
        return _tube_loss(self.loss)

    def cheaper(self) -> Self:
        """Return the objective of the four largest classes."""
        order = np.argsort(-np.count_nonzero(self.targets > 0, axis=0), kind="stable")
        return replace(self, targets=self.targets[:, np.sort(order[:_MOST_CLASSES])])

    def is_expensive(self, rank: int) -> bool:
        """Return whether a path of penalties on this many features is slow."""
        classes = self.targets.shape[1]
        return classes > 2 and rank * classes > _SMALL_CLASSES

    @property
    def _parts(self) -> tuple[NDArray, ...]:
        return tuple(self.targets.T)

    @property
    def _stochastic(self) -> dict[str, Any]:
        return {"loss": self.loss}

    def dual_path(
        self, K: Any, alphas: Iterable[float], **options: Any
    ) -> Iterator[Solution]:
        """Yield the solution on all rows of a kernel matrix for each penalty."""
        options = self._options(options)
        center = self._center()
        relative = (alpha / self.loss_scale for alpha in alphas)
        targets = self.targets - center
        for solution in dual_path(K, targets, self.loss, relative, **options):
            moved = solution._replace(intercept=solution.intercept + center)
            yield self._in_units(moved)

    def _solve(self, design: Design, y: NDArray, alpha: float, **options: Any) -> Any:
        solution = solve_scalar(
            design, y, self.loss, alpha / self.loss_scale, **options
        )
        return self._in_units(solution)

    def _in_units(self, solution: Solution) -> Solution:
        """Return a solution for relative targets in units; its state stays relative."""
        return solution._replace(
            intercept=solution.intercept + self._shift,
            objective=solution.objective * self.loss_scale,
            gap=solution.gap * self.loss_scale,
        )

    def constant_loss(self) -> float:
        """Return the mean loss of the median; of 0 for labels."""
        if self.loss.is_classification:
            return self.mean_loss(np.zeros_like(self.targets))
        return super().constant_loss()

    def losses(self, fitted: NDArray) -> NDArray:
        """Return the loss of each row, summed over the columns."""
        losses = self.loss.of_rows(self.targets, fitted - self._shift)
        return self.loss_scale * losses.sum(axis=1)

    def slope_ratio(self) -> float:
        """Return the mean slope of the loss over the mean residual; 1 for labels.

        For a loss of means it is the mean curvature.
        """
        loss = self.loss
        if loss.is_classification:
            return 1.0
        if isinstance(loss, LogLinkLoss):
            curvatures = loss.targets(self.targets) ** (2 - loss.power)
            return self.loss_scale * _weighted_mean(curvatures, self.weights) or 1.0
        residual = self._centered()
        slopes = np.abs(loss.derivative(residual))
        return _ratio(slopes, np.abs(residual), self.weights)


@dataclass(frozen=True)
class RadialObjective(Objective):
    """Several outputs: a loss of the Euclidean norm of the residual."""

    loss: Loss
    factor: NDArray  # T with T^T T = M

    @property
    def begins_near_ridge(self) -> bool:
        """Within a tube, the first of weak penalties takes hundreds of steps."""
        return _tube_loss(self.loss) == 0

    def fitted_loss(self) -> float:
        """Return the objective within a tube."""
        return _tube_loss(self.loss)

    @property
    def _parts(self) -> tuple[NDArray, ...]:
        return (self.targets,)

    @property
    def _stochastic(self) -> dict[str, Any]:
        return {"loss": self.loss, "T": self.factor}

    def _solve(self, design: Design, y: NDArray, alpha: float, **options: Any) -> Any:
        return solve_radial(design, y, self.loss, self.factor, alpha, **options)

    def _couple(self, coef: NDArray) -> NDArray:
        return coef @ self.factor

    def losses(self, fitted: NDArray) -> NDArray:
        """Return the loss of each row."""
        return self.loss.norm_value(self.targets - fitted)

    def slope_ratio(self) -> float:
        """Return the mean slope of the loss over the mean residual."""
        norms = np.linalg.norm(self._centered(), axis=1)
        return _ratio(np.abs(self.loss.derivative(norms)), norms, self.weights)


def _tube_loss(loss: Loss) -> float:
    """Return the objective within the tube of an insensitive loss; 0: no tube."""
    elq = loss.elq
    return 0.0 if elq is None else _WITHIN * float(elq.value(2 * elq.eps))


@dataclass(frozen=True)
class JointQuantileObjective(Objective):
    """Several quantile levels of one target, coupled by an output matrix."""

    quantiles: tuple[float, ...]
    factor: NDArray  # T with T^T T = M
    # Whether the quantiles of each row are constrained to ascend.
    non_crossing: bool = False

    def default_size(self) -> int:
        """Return the default size of a sketch."""
        return joint_size(len(self.targets), self.n_levels)

    @property
    def n_levels(self) -> int:
        """Number of levels."""
        return len(self.quantiles)

    @property
    def loss_kind(self) -> str | None:
        """Kind "joint", if only the output matrix couples the levels."""
        return None if self.non_crossing else "joint"

    def central(self) -> tuple[Objective, float]:
        """Return the objective of the level nearest to the median, and the ratio.

        A function that all levels share then has the same penalty in both problems.
        """
        level = min(self.quantiles, key=lambda level: abs(level - 0.5))
        shared = self.factor.sum(axis=1)
        return ScalarObjective(
            self.targets,
            self.weights,
            self.fit_intercept,
            PinballLoss(level),
            folds=self.folds,
        ), float(shared @ shared) / self.n_levels

    def dual_path(
        self, K: Any, alphas: Iterable[float], **options: Any
    ) -> Iterator[Solution]:
        """Yield the solution on all rows of a kernel matrix for each penalty."""
        options = self._options(options)
        center = self._center()[0]
        targets = self.targets[:, 0] - center
        for solution in joint_dual_path(
            K, targets, self.quantiles, self.factor, alphas, **options
        ):
            yield solution._replace(intercept=solution.intercept + center)

    def cheaper(self) -> Self:
        """Return the objective without constraints."""
        return replace(self, non_crossing=False)

    def is_expensive(self, rank: int) -> bool:
        """Return whether a path of penalties on this many features is slow."""
        return rank * len(self.factor) > _SMALL_JOINT

    @property
    def _parts(self) -> tuple[NDArray, ...]:
        return (self.targets[:, 0],)

    @property
    def _stochastic(self) -> dict[str, Any]:
        return {"loss": PinballLoss(), "T": self.factor, "quantiles": self.quantiles}

    def _solve(self, design: Design, y: NDArray, alpha: float, **options: Any) -> Any:
        return solve_joint_pinball(
            design,
            y,
            self.quantiles,
            self.factor,
            alpha,
            non_crossing=self.non_crossing,
            **options,
        )

    def _couple(self, coef: NDArray) -> NDArray:
        return coef @ self.factor

    def losses(self, fitted: NDArray) -> NDArray:
        """Return the pinball loss of each row, summed over the levels."""
        levels = np.array(self.quantiles)
        residual = self.targets - fitted
        return np.maximum(levels * residual, (levels - 1) * residual).sum(axis=1)

    def slope_ratio(self) -> float:
        """Return the mean slope of the loss over the mean residual."""
        residual = self._centered()
        return _ratio(np.full(residual.shape, 0.5), np.abs(residual), self.weights)


@dataclass(frozen=True)
class LeastSquaresObjective(RadialObjective):
    """Least squares for one or several outputs: one decomposition, all penalties."""

    keep_features: ClassVar[bool | None] = None
    is_closed_form = True
    loss_kind: ClassVar[str | None] = "square"
    is_robust = False  # outliers dominate the square loss

    def default_size(self) -> int:
        """Return the default size of a sketch."""
        return least_squares_size(len(self.targets))

    @property
    def _has_units(self) -> bool:
        """Whether several outputs are independent, each in units of its own."""
        d = self.factor.shape[1]
        return d > 1 and np.array_equal(self.factor.T @ self.factor, np.eye(d))

    def relative(self) -> Self:
        """Return the objective for independent outputs in units of their own.

        They share a penalty, whose choice does not depend on the user's units.
        """
        if not self._has_units:
            return self
        means, squares = means_and_squares(self, self.targets)
        return replace(self, targets=self.targets / units_of(squares, means))

    def _relative(self, spectrum: Any) -> Any:
        """Return the spectrum of the targets of `relative`."""
        return spectrum.in_units() if self._has_units else spectrum

    def fit(
        self,
        design: Design,
        alpha: float | None,
        rng: np.random.Generator,
        validation: tuple[Design, NDArray] | None = None,
    ) -> FeatureSolution:
        """Solve for one penalty; None chooses the best of a path.

        It has the lowest error on left-out rows, or on `validation` (features and
        targets). If leave-one-out has chosen it, the choice is compared with leaving
        blocks out.
        """
        center = far_means(self, self.targets)
        if center.any():  # then the targets are near zero
            if validation is not None:
                validation = validation[0], validation[1] - center
            moved = replace(self, targets=self.targets - center)
            solution = moved.fit(design, alpha, rng, validation)
            return solution._replace(intercept=solution.intercept + center)
        spectrum, filter = self._decompose(design)
        alpha = self._given(filter, alpha)
        if alpha is not None:
            return self._solution(spectrum, filter, float(alpha), design)
        alphas = spectrum.alphas(filter)
        relative = self._relative(spectrum)
        if validation is None:
            left_out = LeftOutErrors(self, design, rng)
            errors = self._errors(relative, filter, left_out, alphas)
        else:
            errors = held_out_error(relative, filter, *validation, alphas)
        tried = AlphaPath(alphas, errors)
        steps = np.array([filter.n_iter(a) for a in tried.alphas])
        path = {"alpha": tried.alphas, "n_iter": steps, "error": tried.errors}
        solution = self._solution(spectrum, filter, tried.best, design)
        solution = solution._replace(path=path)
        if validation is not None or self.folds is not None:
            return solution
        return solution._replace(
            order=order_effect(
                relative, filter, design, self.targets, solution.alpha, self.weights
            )
        )

    def errors_left_out(
        self, design: Design, alpha: float | None, rng: np.random.Generator
    ) -> AlphaPath:
        """Return held-out errors for one penalty or a path (None)."""
        moved = replace(self, targets=self.targets - far_means(self, self.targets))
        spectrum, filter = moved._decompose(design)
        spectrum = self._relative(spectrum)
        left_out = LeftOutErrors(moved, design, rng)
        alpha = self._given(filter, alpha)
        alphas = spectrum.alphas(filter) if alpha is None else np.array([alpha])
        return AlphaPath(alphas, moved._errors(spectrum, filter, left_out, alphas))

    def path(
        self, design: Design, alphas: Iterable[float], options: SolveOptions
    ) -> Iterator[FeatureSolution]:
        """Yield the solution for each penalty."""
        spectrum, filter = self._decompose(design)
        for alpha in alphas:
            yield self._solution(spectrum, filter, float(alpha), design)

    def _decompose(self, design: Design) -> tuple[Any, Filter]:
        return ridge_path(design, self.targets, **self.problem()), RidgeFilter()

    def _given(self, filter: Filter, alpha: float | None) -> float | None:
        """Return the penalty if it is given."""
        return alpha

    def _errors(
        self, spectrum: Any, filter: Filter, left_out: LeftOutErrors, alphas: NDArray
    ) -> NDArray:
        """Return the held-out error of each penalty."""
        return left_out.by_ridge(spectrum, alphas)

    def _solution(
        self, path: Any, filter: Filter, alpha: float, design: Design
    ) -> FeatureSolution:
        B, b = path.solve(alpha)
        objective, gap = path.certificate(design, self.targets, self.weights, alpha)
        gap = gap / objective if objective > 0 else 0.0
        return FeatureSolution(B, b, alpha, objective, gap)

    def solve_gram(self, K: NDArray, alpha: float) -> FeatureSolution:
        """Solve without a sketch, for the Gram matrix of the samples."""
        A, b, objective, gap = certified_exact(K, self.rotated(), alpha)
        return FeatureSolution(A, b, alpha, objective, gap)

    def losses(self, fitted: NDArray) -> NDArray:
        """Return half the squared norm of the residual of each row."""
        return np.square(self.targets - fitted).sum(axis=1) / 2

    def errors(self, fitted: NDArray) -> NDArray:
        """Return the mean squared error of each output."""
        squares = np.square(self.targets - fitted)
        return np.average(squares, axis=0, weights=self.weights)

    def rotated(self) -> RotatedOutputs:
        """Return the targets in the form of systems of columns."""
        return RotatedOutputs(self.targets, **self.problem())

    def problem(self) -> dict[str, Any]:
        """Return the output matrix, weights and intercept in the form of solvers."""
        return {"output": self.factor.T @ self.factor, **self._weighting}


def regression_objective(
    Y: NDArray,
    weights: NDArray | None,
    fit_intercept: bool,
    loss: Any,
    output: Any = None,
) -> ScalarObjective | RadialObjective:
    """Return the objective for targets (n, d), a loss and an output matrix."""
    loss = as_loss(loss)
    output = as_output(output)
    if loss.is_classification:
        raise ValueError(
            f"`loss` must be a loss of residuals, got {loss!r}: use "
            "SketchedKernelClassifier for margin losses"
        )
    factor = output.factor(Y.shape[1])
    if isinstance(loss, SquareLoss):
        return LeastSquaresObjective(Y, weights, fit_intercept, loss, factor)
    loss = loss_at(loss, Y, weights)
    _warn_of_hidden(Y if weights is None else Y[weights > 0])
    if Y.shape[1] == 1 and isinstance(output, IdentityOutput):
        loss.link(Y)  # names targets out of range, in their own unit
        unit = _unit(Y, weights, fit_intercept, loss)
        return ScalarObjective(loss.link(Y / unit), weights, fit_intercept, loss, unit)
    if not loss.is_radial and Y.shape[1] == 1:
        raise ValueError(
            f"`output` must be None for one target and {loss!r}, got {output!r}"
        )
    if not loss.is_radial:
        raise ValueError(
            f"`y` must have one column for {loss!r}, got {Y.shape[1]}: "
            "it is not a loss of the norm of a residual"
        )
    _warn_of_small_outputs(Y, loss)
    return RadialObjective(Y, weights, fit_intercept, loss, factor)


def _warn_of_small_outputs(Y: NDArray, loss: Loss) -> None:
    """Warn of outputs without influence on the norms of residuals."""
    spread = clipped(Y, 0.0).std(axis=0)  # without gross errors
    small = np.flatnonzero(varying_features(Y) & (spread < _LEAST_SHARE * spread.max()))
    if len(small):
        columns = listed("column", small)
        warn(
            f"{columns} of `y` varied less than {_LEAST_SHARE:g} times as much as the "
            f"largest, so the norms of residuals in {loss!r} hardly depend on it and "
            "predictions may be wrong: standardize the columns of `y`"
        )


def loss_at(loss: Any, Y: NDArray, weights: NDArray | None) -> Loss:
    """Return a loss, its thresholds in units of the robust spread of targets (n, d).

    If more than half of the targets are equal, their mean distance is the unit.
    """
    sizes = np.linalg.norm(Y - medians(Y, weights), axis=1)
    spread = NORMAL * medians(sizes[:, None], weights)[0]
    return as_loss(loss).at(float(spread or np.average(sizes, weights=weights) or 1.0))


def _warn_of_hidden(Y: NDArray) -> None:
    """Warn if the losses of some targets leave no digits for those of the others."""
    sizes = np.linalg.norm(Y - medians(Y), axis=1)
    spread = medians(sizes[:, None])[0]
    far = np.count_nonzero(_LOST * sizes > spread)
    if spread > 0 and far:
        warn(
            f"{far} of {len(Y)} targets are so far from the others that their losses "
            "leave no digits for those of the others: remove or correct them"
        )


def _unit(
    Y: NDArray, weights: NDArray | None, fit_intercept: bool, loss: Loss
) -> float:
    """Return the unit of targets: their mean, for a loss of means with an intercept."""
    if not isinstance(loss, LogLinkLoss):
        return 1.0
    mean = _weighted_mean(Y, weights)
    if fit_intercept:
        return mean if _TINY < mean < np.inf else 1.0
    if isinstance(loss, PoissonLoss) and 0 < mean < _LEAST_RATE:
        raise ValueError(
            f"`y` must have a mean of at least {_LEAST_RATE} for {loss!r} without an "
            f"intercept, got {mean:.1e}: fit an intercept, or pass rates of a larger "
            "unit of exposure"
        )
    return 1.0


@dataclass(frozen=True)
class SpectralObjective(LeastSquaresObjective):
    """Least squares regularized by a spectral filter."""

    is_certified = False
    loss_kind = None  # filters need a sketch

    filter: Filter
    criterion: str
    n_steps: int | None = None

    def _given(self, filter: Filter, alpha: float | None) -> float | None:
        """Return the parameter if it is given, directly or as a number of steps."""
        if isinstance(filter, LandweberFilter) and self.n_steps is not None:
            return filter.alpha(self.n_steps)
        return alpha

    def _errors(
        self, spectrum: Any, filter: Filter, left_out: LeftOutErrors, alphas: NDArray
    ) -> NDArray:
        """Return the error of each parameter on the folds, or its criterion."""
        args = spectrum, filter, left_out.design, self.targets, alphas
        if self.folds is not None:
            return fold_errors(*args, self.folds, self.weights)
        if self.criterion == "gcv":
            return generalized_cross_validation(spectrum, filter, alphas, self.weights)
        return leave_one_out(*args, self.weights)

    def _solution(
        self, spectrum: Any, filter: Filter, alpha: float, design: Design
    ) -> FeatureSolution:
        B, b = spectrum.coefficients(filter, alpha)
        objective = float(spectrum.mean_squares(filter, alpha)[0]) / 2
        return FeatureSolution(B, b, alpha, objective, 0.0, filter.n_iter(alpha))

    def _decompose(self, design: Design) -> tuple[Any, Filter]:
        spectrum = decompose(design, self.targets, **self.problem())
        return spectrum, self.filter.resolve(spectrum.top)


def _ratio(slopes: NDArray, residuals: NDArray, weights: NDArray | None) -> float:
    slope = _weighted_mean(slopes, weights)
    size = _weighted_mean(residuals, weights)
    return slope / size if size > 0 and slope > 0 else 1.0


def _weighted_mean(values: NDArray, weights: NDArray | None) -> float:
    """Return the mean over weighted rows and all columns."""
    if weights is None:
        return float(values.mean())
    return float(
        np.average(values.reshape(len(values), -1).mean(axis=1), weights=weights)
    )
