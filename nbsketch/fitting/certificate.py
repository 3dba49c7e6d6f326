"""Certificates of fitted models: of the model as it predicts, not of its features."""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from nbsketch._expansion import cut_of
from nbsketch._report.progress import USABLE_GAP, is_asked, is_stopped
from nbsketch.fitting.choice import take_rows
from nbsketch.fitting.objective import FeatureSolution
from nbsketch.fitting.sketched import SketchedData
from nbsketch.kernels import StationaryKernel
from nbsketch.rows.partitions import PartitionedRows
from nbsketch.rows.splits import dependent_rows
from nbsketch.solvers.design import Design

# Share of `tol` below which what the cut costs is bounded without a pass over the rows,
# rows of a block of that pass, and the ratio of the cut to an eigenvalue below it.
_FINE = 0.1
_BLOCK_ROWS = 4096
_NEAR_CUT = 4.0
# Units in the last place of the largest target to which a fit is exact.
_LAST_UNITS = 2.0
# Rows on which predictions are compared with those of the features.
_MEASURED_ROWS = 200
# Rows on which the size of kernel values is taken.
_FEW_ROWS = 20


class FittedCertificate(NamedTuple):
    """What rounding, and directions without features, add to the gap of a solution.

    Attributes
    ----------
    data : SketchedData
        Rows and sketch.
    objective : Objective
        What has been minimized.
    tol : float
        Largest gap without a warning.
    is_chosen : bool
        Whether the fit has chosen the penalty. What rounding adds is no warning then,
        since it fits targets without noise better than a larger penalty.
    """

    data: SketchedData
    objective: Any
    tol: float
    is_chosen: bool

    def of_features(
        self, solution: FeatureSolution, projection: NDArray, design: Design
    ) -> FeatureSolution:
        """Return a solution in terms of the sketched kernel functions, certified."""
        expanded = solution.expanded(projection, design.origin)
        if not self.objective.is_certified or not np.isfinite(solution.gap):
            return expanded
        lost = self._lost(solution, expanded, design)
        cut = cut_of(projection) * (not self.data.sketch_map.is_columns)
        if cut > 0:
            lost += self._lost_to_cut(solution, cut, projection, design)
        return self._raised(expanded, lost)

    def _lost_to_cut(
        self, solution: FeatureSolution, cut: float, projection: NDArray, design: Design
    ) -> float:
        """Return what directions without features would lower the objective by.

        It is relative: with the dual point a, s a^T K' s a / (2 n^2 alpha) for the part
        K' of the kernel matrix that has no features, which is at most the cut.
        Landmarks of one's own are drawn from no rows.
        """
        rows = self.data.inputs.rows
        dual = self._dual(solution, design)
        if dual is None or not solution.objective > 0:
            return 0.0
        n = rows.shape[0]
        shift = n * solution.alpha
        cut *= n / self.data.sketch.shape[1]
        half = float(np.square(dual).sum()) / (2 * n * solution.objective)
        most = min(1.0, half * cut / (cut + shift))
        if most <= _FINE * self.tol or isinstance(rows, PartitionedRows):
            return most
        directions = projection / np.linalg.norm(projection, axis=0)
        product = sum(
            self.data.sketch_map(rows[k : k + _BLOCK_ROWS]) @ dual[k : k + _BLOCK_ROWS]
            for k in range(0, n, _BLOCK_ROWS)
        )
        product -= directions @ (directions.T @ product)
        near = _NEAR_CUT * float(np.square(product).sum()) / cut
        return min(most, near / (2 * n * shift * solution.objective))

    def _dual(self, solution: FeatureSolution, design: Design) -> NDArray | None:
        """Return the weighted dual point of a solution, (n, d), if it is in memory."""
        objective = self.objective
        duals: list[Any] = [getattr(s, "dual", None) for s in solution.states]
        if objective.is_closed_form:
            fitted = design.mv(solution.coef) + solution.intercept
            duals = list((objective.targets - fitted).T)
        if not duals or not all(isinstance(dual, np.ndarray) for dual in duals):
            return None
        w = 1.0 if objective.weights is None else objective.weights[:, None]
        return np.column_stack(duals) * w * objective.loss_scale

    def of_rows(self, solution: FeatureSolution) -> FeatureSolution:
        """Return a solution on rows, whose predictions are rounded to their last digit.

        That moves rows at a kink.
        """
        if solution.objective <= 0 or not self._has_numbers:
            return solution
        lost = self._loss_of_units(0.5) / solution.objective
        return self._raised(solution, lost)

    def _loss_of_units(self, units: float) -> float:
        """Return the mean loss of so many units in the last place of the targets."""
        objective = self.objective
        unit = np.spacing(np.abs(objective.targets).max(initial=0))
        return objective.mean_loss(objective.targets + units * unit)

    def _raised(self, solution: FeatureSolution, lost: float) -> FeatureSolution:
        """Return a solution with what rounding adds to its gap.

        A fit to the last digits of the targets has none.
        """
        least = 0.0
        if self._has_numbers:
            least = self._loss_of_units(_LAST_UNITS)
        if solution.objective <= least:
            return solution._replace(gap=0.0, shortfall=None)
        gap = max(solution.gap, lost)  # within a factor of two of their sum
        if not gap > self.tol:
            return solution._replace(gap=gap, shortfall=None)
        if self.is_chosen:
            return solution._replace(gap=gap)
        text = (
            f"rounding limits the accuracy of the solution to a relative distance of "
            f"{gap:.1e} from the optimum, above tol={self.tol:g}: raise alpha or tol"
        )
        return solution._replace(gap=gap, shortfall=solution.shortfall or text)

    @property
    def _has_numbers(self) -> bool:
        """Whether targets are those of residuals, not labels or rates."""
        return self.objective.is_robust or self.objective.is_closed_form

    def _lost(
        self, solution: FeatureSolution, expanded: FeatureSolution, design: Design
    ) -> float:
        """Return what rounding adds to the objective of the model as it predicts.

        It is relative, and measured on some rows.
        """
        rows = self.data.inputs.rows
        objective = self.objective
        if isinstance(rows, PartitionedRows) or not solution.objective > 0:
            return 0.0
        some = np.arange(0, rows.shape[0], -(-rows.shape[0] // _MEASURED_ROWS))
        part = objective.take(some)
        b = solution.intercept
        before = part.mean_loss(design.gather(some).mv(solution.coef) + b)
        fitted = self.data.sketch_map.times(rows[some], expanded.coef)
        fitted += expanded.intercept
        unit = np.spacing(np.abs(fitted).max(initial=0)) / 2
        after = [part.mean_loss(fitted + sign * unit) for sign in (-1, 1)]
        return max(abs(loss - before) for loss in after) / solution.objective


def values_scale(data: SketchedData) -> float:
    """Return the mean k(x, x) over some rows; 1 if it is zero."""
    rows = data.inputs.rows
    kernel = data.sketch_map.kernel
    if isinstance(kernel, StationaryKernel):
        return 1.0
    sample = take_rows(kernel, rows, np.arange(min(_FEW_ROWS, rows.shape[0])))
    return float(np.mean(kernel.diag(sample))) or 1.0


def warn_of(solution: FeatureSolution) -> None:
    """Warn of a solution less accurate than asked for, and of dependent rows."""
    text = solution.shortfall
    if text and is_stopped():
        name = "callback" if is_asked() else "max_seconds"
        text = (
            f"`{name}` has stopped the solver after {solution.n_iter} iterations; "
            f"the relative distance from the optimum is at most {solution.gap:.1e}"
        )
        if solution.gap > USABLE_GAP and not is_asked():
            text += ". Raise `max_seconds` or `alpha`, or pass a smaller `size`"
    if text:  # in the line that calls `fit`
        warnings.warn(text, ConvergenceWarning, stacklevel=4)
    if solution.order is not None and solution.order.is_contradicted:
        warnings.warn(dependent_rows(solution.order), stacklevel=4)
