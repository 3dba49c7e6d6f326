"""Certificates of fitted models, for predictions with all rounding errors."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from nbsketch._expansion import cut_projection, is_cut
from nbsketch._report.progress import USABLE_GAP, is_asked, is_stopped
from nbsketch._report.validation import row_weights, warn
from nbsketch._sketch_map import features_design
from nbsketch.fitting.choice import take_rows
from nbsketch.fitting.objective import FeatureSolution
from nbsketch.fitting.sketched import SketchedData
from nbsketch.kernels import StationaryKernel
from nbsketch.rows.splits import dependent_rows
from nbsketch.solvers.design import Design
from nbsketch.solvers.passes import LandmarkDesign

# Relative gap of a fit with a chosen penalty below which no stronger one is tried.
LARGEST_GAP = 0.25
# Units in the last place of the largest target within which a fit is exact.
_LAST_UNITS = 2.0
# Mean error of a rounded value, in units of its dtype.
_MEAN_ERROR = 0.2
# Number of samples for comparing predictions with those from the features.
_MEASURED_ROWS = 200
# Number of samples for estimating the size of kernel values.
_FEW_ROWS = 20


@dataclass(frozen=True)
class FittedCertificate:
    """Effects of rounding and of directions without features on the gap.

    Attributes
    ----------
    data : SketchedData
        Samples and sketch.
    objective : Objective
        The minimized objective.
    tol : float
        Largest gap without a warning.
    is_chosen : bool
        Whether the fit chose the penalty. Rounding then causes no warning, because the
        chosen penalty fits noise-free targets better than a larger one. Neither does a
        usable gap below `tol` relative to the loss of a constant.
    """

    data: SketchedData
    objective: Any
    tol: float
    is_chosen: bool

    def of_features(
        self, solution: FeatureSolution, projection: NDArray, design: Design
    ) -> FeatureSolution:
        """Return a certified solution in terms of the sketched kernel functions."""
        expanded = solution.expanded(projection, design.origin)
        if not self.objective.is_certified or not np.isfinite(solution.gap):
            return expanded
        values = self._values(expanded)
        lost = self._lost(expanded, values)
        cut = 0.0
        if solution.objective > 0:
            lost += self._lost_to_features(solution, values, design)
            if is_cut(projection) and self._scale:
                cut = self._lost_to_cut(solution, projection, design)
        return self._raised(expanded, lost, cut)

    def _lost_to_cut(
        self, solution: FeatureSolution, projection: NDArray, design: Design
    ) -> float:
        """Return the decrease of the objective that directions without features allow.

        The value is relative: with the dual point a, s a^T K' s a / (2 n^2 alpha) for
        the part K' of the kernel matrix without features. All samples count: a single
        one far from the landmarks may have most of K'.
        """
        dual = self._dual(solution, design.mv(solution.coef) + solution.intercept)
        dual = dual @ getattr(self.objective, "factor", np.eye(dual.shape[1])).T
        unit = 2 * len(dual) ** 2 * solution.alpha * solution.objective
        cut = design.cut
        if cut is None:
            rows, sketch_map = self.data.rows, self.data.sketch_map
            whitened = cut_projection(projection, sketch_map.inner(rows))
            cut = features_design(sketch_map, whitened, rows)
        return min(1.0, float(np.square(cut.rmv(dual)).sum()) / unit)

    def _dual(
        self, solution: FeatureSolution, fitted: NDArray, rows: Any = slice(None)
    ) -> NDArray:
        """Return the weighted dual point of samples, (n, d); 0 if X is not in memory.

        The multiplier of a gap between two outputs belongs to both.
        """
        duals: list[Any] = [getattr(s, "dual", None) for s in solution.states]
        dual = np.zeros_like(fitted)
        if self.objective.is_closed_form:
            dual = self.objective.targets[rows] - fitted
        elif duals and all(isinstance(dual, np.ndarray) for dual in duals):
            terms = np.column_stack(duals)[rows]
            d = fitted.shape[1]
            dual = terms[:, :d] + np.diff(terms[:, d:], prepend=0, append=0)
        return dual * self._weights[rows, None] * self.objective.loss_scale

    @property
    def _weights(self) -> NDArray:
        """The sample weights."""
        return row_weights(self.objective.weights, self.objective.targets)

    @property
    def _subset(self) -> NDArray:
        """Indices of the samples on which rounding is measured."""
        n = self.data.rows.shape[0]
        return np.arange(0, n, -(-n // _MEASURED_ROWS))

    @property
    def _scale(self) -> float:
        """Size of rounded kernel values; 0 if the features are columns."""
        return 0.0 if self.data.sketch_map.is_columns else values_scale(self.data)

    def of_columns(
        self, solution: FeatureSolution, design: LandmarkDesign
    ) -> FeatureSolution:
        """Return a certified solution in terms of whitened columns.

        The minimum without the nugget is lower by half of the nugget's effect.
        """
        coef = design.of_columns(solution.coef)
        expanded = solution._replace(coef=coef, rank=len(coef))
        if not solution.objective > 0:
            return self._raised(expanded, 0.0)
        values = self._values(expanded)
        lost = self._lost(expanded, values)
        lost += self._lost_to_features(solution, values, design)
        own = np.column_stack([state.coef for state in solution.states if state])
        nugget = solution.alpha / 2 * design.lost_to_nugget(own)
        return self._raised(expanded, lost + nugget / solution.objective)

    def of_rows(self, solution: FeatureSolution) -> FeatureSolution:
        """Return a solution on all samples, certified for its predictions."""
        return self._raised(solution, self._lost(solution, self._values(solution)))

    def _raised(
        self, solution: FeatureSolution, lost: float, cut: float = 0.0
    ) -> FeatureSolution:
        """Return a solution whose gap includes rounding and the cut of the sketch.

        A fit that is exact to the last digits of the targets has no gap. The effect of
        the cut varies with the sketch as much as the draw does, so only large effects
        cause a warning.
        """
        objective = self.objective
        least = 0.0
        if objective.is_robust or objective.is_closed_form:  # no labels, no rates
            unit = np.spacing(np.abs(objective.targets).max(initial=0))
            least = objective.mean_loss(objective.targets + _LAST_UNITS * unit)
        if solution.objective * max(1.0, lost + cut) <= least:
            return solution._replace(gap=0.0, shortfall=None)
        gap = self._together(solution.gap, lost)
        both = self._together(gap, cut)
        dear = self.tol if self.data.sketch.is_identity else USABLE_GAP
        text = solution.shortfall if gap > self.tol else None
        if text and self.is_chosen and self._is_negligible(gap, solution.objective):
            text = None
        if not self.is_chosen and (gap > self.tol or cut > dear):
            text = text or (
                f"rounding limits the accuracy of the solution to a relative distance "
                f"of {both:.1e} from the optimum: raise alpha or tol, or pass another "
                "sketch or a smaller bandwidth"
            )
        return solution._replace(gap=both, shortfall=text)

    def _is_negligible(self, gap: float, objective: float) -> bool:
        """Return whether a gap is usable, and small relative to a constant's loss."""
        constant = self.objective.constant_loss()
        return gap <= LARGEST_GAP and gap * objective <= self.tol * constant

    def _together(self, gap: float, added: float) -> float:
        """Return the sum of gaps, or `tol` if both are below it, so that none warns."""
        return float(max(gap, added, min(gap + added, self.tol)))

    def _lost(self, solution: FeatureSolution, values: NDArray) -> float:
        """Return the relative increase of the objective by rounding of predictions.

        Errors arise in the sum and in its terms. They are independent: along the
        residuals they grow like the square root of the number of samples, near kinks of
        the loss like their number.
        """
        if not solution.objective > 0:
            return 0.0
        s, n = self.data.sketch.shape
        unit = 2 * np.finfo(float).eps * self._scale * (n / s) ** 0.5
        before = values - solution.intercept
        largest = np.maximum(np.abs(values), np.abs(before)).max(axis=0, initial=0)
        size = np.spacing(largest)
        size += unit * np.linalg.norm(solution.coef, axis=0)
        errors = size * np.random.default_rng(0).choice([-1.0, 1.0], size=values.shape)
        w = self._weights[self._subset]
        part = self.objective.take(self._subset)
        loss, raised, lowered = (part.losses(values + k * errors) for k in (0, 1, -1))
        # A norm of SciPy, because squares of losses may overflow.
        along = scipy.linalg.norm(w * (raised - lowered)) / 2
        along /= (len(w) * len(self._weights)) ** 0.5
        beside = max(0.0, (w * (raised + lowered - 2 * loss)).mean())
        return float(along + beside) / solution.objective

    def _lost_to_features(
        self, solution: FeatureSolution, values: NDArray, design: Design
    ) -> float:
        """Return the relative increase of the gap by rounding of the features.

        Predictions differ from the fitted values while the dual point is unchanged: the
        sum of the loss, of its conjugate at the dual point and of their product grows,
        and the features times the dual point deviate from the coefficients.
        """
        subset = self._subset
        part = self.objective.take(subset)
        fitted = design.gather(subset).mv(solution.coef) + solution.intercept
        dual = self._dual(solution, fitted, subset)
        added = self._weights[subset] * (part.losses(values) - part.losses(fitted))
        added += (dual * (values - fitted)).sum(axis=1)
        unit = self._scale * (_MEAN_ERROR * np.finfo(design.dtype).eps) ** 2
        unit /= len(self._weights) * solution.alpha
        square = unit * float(np.square(dual).sum(axis=1).mean())
        return (abs(float(added.mean())) + square) / solution.objective

    def _values(self, solution: FeatureSolution) -> NDArray:
        """Return predictions at a subset of samples."""
        rows = self.data.rows[self._subset]
        return self.data.sketch_map.times(rows, solution.coef) + solution.intercept


def values_scale(data: SketchedData) -> float:
    """Return the mean k(x, x) over a subset of samples; 1 if it is zero."""
    kernel = data.kernel
    if isinstance(kernel, StationaryKernel):
        return 1.0
    sample = take_rows(kernel, data.rows, np.arange(min(_FEW_ROWS, data.rows.shape[0])))
    return float(np.mean(kernel.diag(sample))) or 1.0


def warn_of(solution: FeatureSolution) -> None:
    """Warn of a solution less accurate than requested, and of dependent samples."""
    text = solution.shortfall
    if text and is_stopped():
        name = "callback" if is_asked() else "max_seconds"
        text = (
            f"`{name}` has stopped the solver after {solution.n_iter} iterations; "
            f"the relative distance from the optimum is at most {solution.gap:.1e}"
        )
        if solution.gap > USABLE_GAP and not is_asked():
            text += ". Raise `max_seconds` or `alpha`, or pass a smaller `size`"
    if text:
        warn(text, ConvergenceWarning)
    if solution.order is not None and solution.order.is_contradicted:
        warn(dependent_rows(solution.order))
