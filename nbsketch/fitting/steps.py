"""The steps of a fit.

1. `sketch_rows`: transform the rows, learn length scales, and draw a sketch.
2. `select_method`: choose the method, the only place that decides; `summary` reads it.
3. `Method.choose_alpha`: choose the penalty, and the width if chosen jointly.
4. `Method.solve`: solve for this penalty; `Method.path` solves for several.

`sketched_method` does the first two, including growth of a sketch, ``size="auto"``, and
the time limit: all rows are used if passes over them fit the limit, else a sketch.
`fold_errors` returns the errors of a path of penalties over the folds of a
cross-validation.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from nbsketch._machine.blas import one_thread
from nbsketch._report.progress import report, seconds_left
from nbsketch._report.validation import random_generator
from nbsketch.fitting import plan as sizes
from nbsketch.fitting.methods import (
    TICK,
    ClosedForm,
    DefaultLandmarks,
    Dual,
    ExactRidge,
    Method,
    Newton,
    Nystrom,
    Passes,
    Stochastic,
    closed_seconds,
    exact_seconds,
    has_seconds,
    seconds_of,
)
from nbsketch.fitting.objective import Problem
from nbsketch.fitting.sketched import SketchedData, sketch_rows
from nbsketch.gram.columns import kept_share
from nbsketch.kernels import StationaryKernel
from nbsketch.rows.partitions import PartitionedRows
from nbsketch.solvers.left_out import Fold

# Closed forms of fewer rows are so fast that a limit does not change them.
_FEW_ROWS = 500
# Dual: up to this many rows, using the features of all rows is as fast,
_LEAST_ROWS = 500
# but not for kinks (0.56 of the time, 0.994 of the error: 8 sets of 200 to 350 rows).
_LEAST_KINKS = 100
# For quantile levels, unless the penalty is given: it is chosen on few of the features,
# and all rows nearly interpolate with it. Features take .2 to .6 of the time.
_LEAST_LEVELS = 10
# The first size of a sketch that grows, its minimum, the maximum, and maximum bytes of
# kernel values.
START = 100
_LEAST = 10
_LARGEST = 3200
_BYTES = 1e9
# Time of the first step, in evaluations of its kernel values; its share of the limit.
_STEP = 5.0
_FIRST_SHARE = 0.5
# Share of the time for growth; the solution takes less than the last step.
_SHARE = 0.7
# Maximum factor of time for a doubling, and the minimum relative growth of a step.
_DOUBLE = 4.0
_WORTH = 0.2


def sketched_method(problem: Problem) -> Method:
    """Return the method of a fit on sketched rows.

    The sketch grows if its size is chosen by a rule or by the remaining time.
    """
    is_limited = _is_limited(problem)
    size = problem.rows.shape[0] if is_limited else default_size(problem)
    data = sketch_rows(problem, size)
    if is_limited:
        return _method_within_time(problem, data)
    method = select_method(problem, data)
    rule = method.plan.growth
    # A larger sketch of columns has no additional features.
    if rule is None or method.sample or method.data.sketch_map.is_columns:
        return method
    return _grown(method, rule)


def default_size(problem: Problem) -> int:
    """Return n for the exact method, or the default size of a sketch.

    For Dask arrays there is no search for a size: if the time does not suffice for the
    features of all outputs, the size is halved until it does.
    """
    objective = problem.objective
    n, outputs = objective.targets.shape
    kind = objective.loss_kind
    if kind is None or not _may_be_exact(problem):
        size = objective.default_size()
    elif kind == "joint":
        size = sizes.levels_size(n, objective.n_levels)
    else:
        shape = *problem.rows.shape, outputs
        size = sizes.default_size(kind, *shape, is_robust=objective.is_robust)
    if isinstance(problem.rows, PartitionedRows):
        while size > START and not has_seconds(closed_seconds, n * outputs, size):
            size //= 2
    return size


def _may_be_exact(problem: Problem) -> bool:
    """Return whether the exact method is possible, apart from its time.

    It is possible for stationary kernels of dense rows: other kernels have low rank or
    slow evaluation. With folds a sketch is used, because all folds choose the penalty.
    """
    plan = problem.plan
    objective = problem.objective
    if plan.stochastic or not plan.is_free or objective.loss_kind is None:
        return False
    dense = not sp.issparse(problem.rows) and objective.folds is None
    return dense and isinstance(plan.given_kernel, StationaryKernel)


def select_method(problem: Problem, data: SketchedData) -> Method:
    """Return the method that solves a sketched problem."""
    return _kind(problem, data)(problem, data)


def _kind(problem: Problem, data: SketchedData) -> type[Method]:
    if problem.plan.stochastic is not None:
        return Stochastic
    if not problem.objective.is_closed_form:
        return _kind_of_losses(problem, data)
    if problem.objective.loss_kind is None:
        return ClosedForm
    if not data.sketch.is_identity:
        return Nystrom if _is_large_sketch(problem, data) else ClosedForm
    few_rows = not sizes.is_solved_by_passes(data.sketch.shape[1])
    return ClosedForm if few_rows and problem.plan.alpha is None else ExactRidge


def _kind_of_losses(problem: Problem, data: SketchedData) -> type[Method]:
    """Return the method for losses without a closed form."""
    objective = problem.objective
    kind = objective.loss_kind
    if kind is None:
        return Newton
    # For labels and counts, landmarks are less accurate than a good penalty on all
    # rows; kinks of several classes have no passes.
    is_settled = kind == "smooth" and problem.plan.alpha is not None
    if (objective.is_robust or is_settled) and _is_large_sketch(problem, data):
        return Passes
    in_memory = not isinstance(data.rows, PartitionedRows)
    least = _LEAST_ROWS
    if objective.folds is None:  # else all of them choose the penalty
        levels = _LEAST_LEVELS if problem.plan.alpha is None else least
        least = {"kinked": _LEAST_KINKS, "joint": levels}.get(kind, least)
    if data.sketch.shape[1] <= least or not in_memory:
        return Newton
    if data.sketch.is_identity:
        return Dual
    has_few = sizes.has_few_outputs(objective.targets.shape[1])
    is_default = kind != "joint" and has_few and _may_be_exact(problem)
    return DefaultLandmarks if is_default else Newton


def _is_large_sketch(problem: Problem, data: SketchedData) -> bool:
    """Return whether a large sketch is solved by passes over it.

    Its penalty is given, or chosen on a sample; with folds, by the closed form.
    """
    size, n = data.sketch.shape
    searched = problem.plan.alpha is None
    fixed = problem.plan.growth is None and data.size_path is None
    if not fixed or size == n or data.sketch_map.is_columns:
        return False
    if searched and problem.objective.folds is not None:
        return False
    if size > _FEW_ROWS and not has_seconds(closed_seconds, n, size):
        return True
    objective = problem.objective
    if objective.loss_kind == "joint":
        is_many = sizes.are_many_levels(n, objective.n_levels)
        return is_many and size > objective.default_size()
    landmarks = len(data.sketch.columns)
    kept = kept_share(n, size)
    return sizes.is_large(size, n, landmarks, searched=searched, kept=kept)


def _grown(method: Method, rule: sizes.AutoSize) -> Method:
    """Double the sketch by a rule; return the method on that with the lowest loss."""
    began = time.perf_counter()
    alpha = method.plan.alpha
    step = data = method.data
    # The same rows are held out for each size.
    seed = int(data.rng.integers(2**32))
    path: dict[str, list] = {"size": [], "loss": [], "seconds": []}
    with method.threads():
        while True:
            features = step.design(keep=True)
            rng = random_generator(seed)
            held_out = method.objective.errors_left_out(features[1], alpha, rng)
            loss = float(held_out.errors.min())
            if not path["loss"] or loss < min(path["loss"]):
                best = held_out.best
                data = step._replace(features=features)
            path["size"].append(step.sketch.shape[0])
            path["loss"].append(loss)
            path["seconds"].append(time.perf_counter() - began)
            stop = report("size", iteration=len(path["size"]), objective=loss)
            rows = 0 if stop else rule.rows_to_add(path, step.rows.shape[0])
            if rows == 0:
                break
            step = step.larger(rows)
    arrays = {name: np.array(values) for name, values in path.items()}
    data = data._replace(size_path=arrays)
    return replace(method, data=data, path_alpha=best)


def _is_limited(problem: Problem) -> bool:
    """Return whether the remaining time determines the method.

    Small data have their default; Dask arrays are not searched twice.
    """
    plan = problem.plan
    n = problem.rows.shape[0]
    closed = problem.objective.loss_kind == "square" and plan.alpha is None
    many = sizes.is_solved_by_passes(n) or (closed and n > _FEW_ROWS)
    free = many and plan.is_free and plan.stochastic is None
    in_memory = not isinstance(problem.rows, PartitionedRows)
    return bool(free and in_memory and np.isfinite(seconds_left()))


def _method_within_time(problem: Problem, data: SketchedData) -> Method:
    """Return the exact method with its penalty if the time suffices for both.

    Otherwise return the method on the largest sketch that fits the time.
    """
    if data.sketch_map.is_columns or _has_time(problem, data):
        chosen = select_method(problem, data).choose_alpha()
        if chosen.has_time():
            return chosen
    first = select_method(problem, first_sketch(data, seconds_left()))
    return _grown(first, growth(problem.rows.shape[0], seconds_left())).choose_alpha()


def first_sketch(data: SketchedData, seconds: float) -> SketchedData:
    """Return the rows with the small sketch from which growth starts."""
    size = data.rows.shape[0]
    if size > START:
        per_size = _STEP * _seconds_per_landmark(data)
        size = int(np.clip(_FIRST_SHARE * seconds / per_size, _LEAST, START))
    return data.subsampled(size)


def _seconds_per_landmark(data: SketchedData) -> float:
    """Return the time of the kernel values of all rows with one landmark."""
    sketch_map = data.subsampled(_LEAST).sketch_map
    sketch_map(data.rows)  # compiles or loads the code
    return seconds_of(lambda: sketch_map(data.rows)) / _LEAST


@dataclass(frozen=True)
class LimitedSize(sizes.AutoSize):
    """Rule that doubles a sketch, with a smaller last step to use the time limit."""

    def _affordable_rows(self, size: int, path: dict[str, list]) -> int:
        """Return the number of rows to add, at most a doubling, within the time.

        The time of a doubling is a multiple of the time of the last one: the mean of
        four and the ratio of the last two (one, if there is only one), because
        overheads make small sizes cheaper.
        """
        steps = np.maximum(np.diff([0.0, *path["seconds"]]), TICK)
        left = float(self.seconds or np.inf) - path["seconds"][-1]
        last = steps[-1]
        factor = 1.0
        if len(steps) > 1:
            doublings = np.log2(path["size"][-1] / path["size"][-2])
            factor = (last / steps[-2]) ** (1 / doublings)
        ratio = float(np.clip((factor + _DOUBLE) / 2, 2.0, _DOUBLE))
        if left <= last:
            return 0
        growth = min(2.0, 2.0 ** (np.log(left / last) / np.log(ratio))) - 1
        return int(growth * size) if growth >= _WORTH else 0


def growth(n: int, seconds: float) -> LimitedSize:
    """Return the growth rule for n rows, which reserves time for the solution."""
    largest = max(START, min(_LARGEST, int(_BYTES / (8 * n))))
    limit = max(_SHARE * seconds, 1e-9)
    return LimitedSize(start=START, max_size=largest, seconds=limit, tol=0.0)


def _has_time(problem: Problem, data: SketchedData) -> bool:
    """Return whether the time suffices for the exact method, including its choices."""
    if not (_may_be_exact(problem) and problem.objective.loss_kind == "square"):
        return False
    n = problem.rows.shape[0]
    if not sizes.is_solved_by_passes(n):
        return has_seconds(closed_seconds, n, n)
    with one_thread():
        seconds = exact_seconds(data, problem.objective.targets.shape[1])
    return sum(seconds) <= seconds_left()


def fold_errors(method: Method, folds: Sequence[Fold], alphas: NDArray) -> NDArray:
    """Return the mean held-out errors (a, d) of penalties over the folds."""
    method = method.choose_width()
    data = method.data
    objective = method.objective
    weights = objective.weights
    if data.sketch.is_identity and objective.loss_kind == "square":
        method = ExactRidge(method.problem, data)
    else:
        method = replace(method, data=data._replace(features=data.design(keep=True)))
    total: Any = 0.0
    mass = 0.0
    for fold in folds:
        validation = objective.take(fold.test)
        with method.threads():
            errors = [validation.errors(v) for v in method.left_out(alphas, fold)]
        share = len(fold.test) if weights is None else weights[fold.test].sum()
        mass += share
        total += share * np.array(errors)
    return total / mass


class FitPlan(NamedTuple):
    """Settings that a fit will use.

    Attributes
    ----------
    method : str
        Name of the method, as in the table of `nbsketch.fitting.methods`.
    description : str
        Description of the method.
    size : int
        Number of rows of the sketch, or of all samples without a sketch.
    n_rows : int
        Number of distinct samples of positive weight.
    penalty : str
        How the penalty is chosen, or "given".
    """

    method: str
    description: str
    size: int
    n_rows: int
    penalty: str


def plan_fit(problem: Problem) -> FitPlan:
    """Return the plan of a fit of this problem without a time limit."""
    plan = problem.plan
    # Learned length scales are irrelevant for the choice of the method.
    plan = replace(plan, kernel=plan.given_kernel, bandwidth=None)
    problem = problem._replace(plan=plan)
    method = select_method(problem, sketch_rows(problem, default_size(problem)))
    kind = type(method)
    description = str(kind.__doc__).partition(".")[0]
    rule = _rule_of_penalty(method)
    return FitPlan(kind.__name__, description, *method.data.sketch.shape, rule)


def _rule_of_penalty(method: Method) -> str:
    if method.plan.alpha is not None:
        return "given"
    if method.sample is not None:
        return "validation on a sample of the rows"
    if method.objective.folds is not None:
        return "the folds of `cv`"
    closed = isinstance(method, ClosedForm)
    return "leave-one-out" if closed else "validation on held-out rows"
