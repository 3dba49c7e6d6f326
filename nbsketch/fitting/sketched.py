"""Sketched rows, the second step of a fit: transform, learn length scales, draw.

Features and structured prediction have no loss of their own: their length scales are
learned by ridge regression on given targets.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from nbsketch._expansion import projection, spanning_rows
from nbsketch._report.progress import report, seconds_left
from nbsketch._report.validation import random_generator
from nbsketch._sketch_map import (
    SketchMap,
    draw,
    resolve,
    sketched_design,
    spans_columns,
)
from nbsketch.fitting.objective import Objective, Problem
from nbsketch.fitting.plan import Plan, is_auto
from nbsketch.kernels import LEARNABLE_NAMES, Kernel, PrecomputedKernel
from nbsketch.rows.copies import merged_weights
from nbsketch.rows.partitions import PartitionedRows
from nbsketch.rows.transform import (
    PREPROCESSINGS,
    InputScaler,
    fit_scaler,
    transform_rows,
    transformed,
)
from nbsketch.sketches import (
    DataSketch,
    IdentitySketch,
    LandmarkSketch,
    Sketch,
    SketchRecipe,
    SubsamplingSketch,
)
from nbsketch.solvers.design import Design
from nbsketch.solvers.left_out import Folds
from nbsketch.tuning.descent import Budget
from nbsketch.tuning.tuner import BEST_FAMILY, ITERATIONS, ScaleSearch

# Kernels by name with learnable length scales, and their families.
_FAMILIES = LEARNABLE_NAMES | {"auto": BEST_FAMILY}
# Share of the time of a limited fit for learning length scales.
_LEARNING = 0.4
# Length scales cannot be estimated from fewer samples.
LEAST_ROWS = 30
# Dask arrays with at most this many rows are gathered: one process is faster.
_FEW_ROWS = 1000
# Rows of a large sketch that are probed, the number of them that must span the others,
# and rows among which those are sought that do for the sketch.
_PROBED = 1250
_INDEPENDENT = 1000
_SOUGHT = 4000


class TuningTarget(NamedTuple):
    """The problem for which length scales are learned.

    Attributes
    ----------
    targets : ndarray of shape (n, d)
        Targets.
    weights : ndarray of shape (n,) or None
        Non-negative weights.
    robust : bool
        Whether the loss is robust to outliers.
    alpha : float or None
        Given penalty, in units of the square loss. None: not given.
    folds : tuple of Fold or None
        Rows left out together. None: single rows.
    is_distinct : bool
        Whether duplicates of rows have been merged.
    """

    targets: NDArray
    weights: NDArray | None = None
    robust: bool = False
    alpha: float | None = None
    folds: Folds | None = None
    is_distinct: bool = False

    @classmethod
    def of(cls, objective: Objective, alpha: float | None, is_distinct: bool) -> Self:
        """Return the problem of an objective with a penalty, if given."""
        return cls(
            objective.targets,
            objective.weights,
            objective.is_robust,
            None if alpha is None else alpha / objective.slope_ratio(),
            objective.folds,
            is_distinct,
        )


class Inputs(NamedTuple):
    """Transformed samples and their kernel.

    Attributes
    ----------
    rows : ndarray or csr_array of shape (n, p)
        The samples X, transformed if there is a scaler.
    kernel : Kernel
        Kernel; its bandwidth may be estimated from the samples.
    scaler : InputScaler or None
        Transformation of the samples. None: unchanged.
    length_scales : ndarray of shape (q,) or None
        Learned length scales, in standard deviations of the features; infinite for
        constant and dropped features.
    alpha : float or None
        Penalty learned with the length scales, in units of the square loss.
    """

    rows: Any
    kernel: Kernel
    scaler: InputScaler | None = None
    length_scales: NDArray | None = None
    alpha: float | None = None


def is_learnable(kernel: Any, X: Any) -> bool:
    """Return whether length scales can be learned: dense X and a named kernel."""
    is_dense = getattr(X, "ndim", 0) == 2 and not sp.issparse(X)
    return isinstance(kernel, str) and kernel in _FAMILIES and is_dense


def check_learnable(kernel: Any, X: Any) -> None:
    """Raise an error if there are no length scales to learn."""
    if not is_learnable(kernel, X):
        kind = "sparse X" if sp.issparse(X) else "X"
        raise ValueError(
            "`bandwidth` can be 'auto' for dense X and a kernel named one of "
            f"{list(_FAMILIES)}, got kernel={kernel!r} and {kind} of type "
            f"{type(X).__name__}"
        )


def held_rows(X: Any, recipe: SketchRecipe | None = None) -> Any:
    """Return the rows of a Dask array in memory if the fit needs all of them.

    This holds for fits of few rows, and if all rows are landmarks.
    """
    if not isinstance(X, PartitionedRows):
        return X
    if isinstance(recipe, DataSketch):
        raise ValueError(
            f"`sketch` must not be {type(recipe).__name__} for a Dask collection, "
            "because it compares all rows: pass 'subsampling', or X.compute()"
        )
    is_held = len(X) <= _FEW_ROWS or isinstance(recipe, IdentitySketch)
    return X.collect() if is_held else X


def prepare_inputs(
    X: Any, plan: Plan, target: TuningTarget | None, size: int, rng: np.random.Generator
) -> Inputs:
    """Return the transformed training samples and their kernel.

    Length scales are learned for a target if the bandwidth is "auto", or None if
    possible. Otherwise samples are transformed only if a preprocessing is named. `size`
    is the size of the sketch to be drawn.
    """
    columns = plan.preprocessing
    is_free = plan.bandwidth is None or is_auto(plan.bandwidth)
    is_learned = is_free and is_learnable(plan.kernel, X) and X.shape[0] >= LEAST_ROWS
    if target is not None and is_learned:
        # Length scales replace standardization: None means features without ranks.
        columns = "both" if columns == "auto" else columns or "standard"
        return learn_inputs(X, target, plan.kernel, size, rng, columns)
    scaler = None
    if columns in PREPROCESSINGS:
        weights = None if target is None else target.weights
        scaler = fit_scaler(X, columns, rng, weights=weights)
    return Inputs(transformed(X, scaler), plan.given_kernel, scaler)


def learn_inputs(
    X: Any,
    target: TuningTarget,
    kernel: str,
    size: int,
    rng: np.random.Generator,
    preprocessing: str = "standard",
) -> Inputs:
    """Learn length scales for targets of at least 30 samples."""
    weights = target.weights
    if not target.is_distinct and not isinstance(X, PartitionedRows):
        weights = merged_weights(X, target.targets, weights)
    budget = Budget(ITERATIONS, _LEARNING * seconds_left(), report_search)
    search = ScaleSearch(preprocessing, size, rng, budget)
    tuned = search.learn(
        X,
        target.targets,
        weights,
        target.folds,
        _FAMILIES[kernel],
        target.alpha,
        target.robust,
    )
    rows = transformed(X, tuned.scaler)
    return Inputs(rows, tuned.kernel, tuned.scaler, tuned.length_scales, tuned.alpha)


def report_search(iteration: int, error: float) -> bool:
    """Report an iteration of a search for length scales; return whether to stop."""
    return report("length-scales", iteration=iteration, objective=error)


class SketchedData(NamedTuple):
    """Transformed training samples, their sketch, and a random stream."""

    inputs: Inputs
    sketch: Sketch
    sketch_map: SketchMap
    rng: np.random.Generator
    # Projection and features, if already computed.
    features: tuple[NDArray, Design] | None = None
    size_path: dict[str, NDArray] | None = None
    # Indices of the training samples among those given; None for all of them.
    kept: NDArray | None = None
    # The projection to features from S K S^T.
    whiten: Callable[[NDArray], NDArray] = projection

    @property
    def rows(self) -> Any:
        """The transformed samples."""
        return self.inputs.rows

    @property
    def kernel(self) -> Kernel:
        """The kernel, with a bandwidth."""
        return self.sketch_map.kernel

    @property
    def expansion(self) -> SketchMap:
        """The map for samples other than the training samples."""
        return self.sketch_map.original(self.kept)

    def transform(self, rows: Any, name: str) -> Any:
        """Return other samples transformed for the kernel; errors call them `name`."""
        return transform_rows(rows, self.inputs.scaler, self.kernel, name)

    def design(self, keep: bool | None = None) -> tuple[NDArray, Design]:
        """Return the projection and the features of the training samples.

        Features are stored if `keep` is true; None stores them if they are small.
        """
        if self.features is not None:
            return self.features
        whiten = self.whiten
        return sketched_design(self.sketch_map, self.rows, keep=keep, whiten=whiten)

    def subsampled(self, size: int) -> Self:
        """Return the samples with a random subset as the sketch."""
        sketch = SubsamplingSketch(size).draw(self.rows.shape[0], self.rng)
        return self._sketched(sketch)

    def larger(self, rows: int) -> Self:
        """Return the data with more rows of the sketch.

        A sketch is drawn anew if its rows depend on its size.
        """
        sketch = self.sketch
        origin = sketch.origin
        if sketch.can_grow:
            return self._sketched(sketch.extend(rows))
        if origin is None:
            raise TypeError(f"`size` must be an integer for a {type(sketch).__name__}")
        recipe = replace(origin.recipe, size=origin.recipe.size + rows)
        X = self.rows
        return self._sketched(
            recipe.draw(X.shape[0], origin.seed, X=X, kernel=self.kernel)
        )

    def _sketched(self, sketch: Sketch) -> Self:
        """Return the data with another sketch."""
        sketch_map = SketchMap.of(self.kernel, self.rows, sketch)
        return self._replace(sketch=sketch, sketch_map=sketch_map, features=None)

    def spanning(self, most: int) -> Self:
        """Return the samples with few rows of a large sub-sample that span the others.

        Smooth kernels of few features have few, and the same functions; `most` are the
        first pivots. The samples are unchanged if more are needed.
        """
        size = self.sketch.shape[0]
        if size <= _PROBED or self.kernel.is_pairwise:
            return self
        for count, limit in ((_PROBED, _INDEPENDENT), (min(size, _SOUGHT), most)):
            rows = self._spanning_rows(count, limit)
            if not len(rows):
                return self
        data = self._sketched(self.sketch.part(rows))  # in order of pivots
        return data._replace(whiten=partial(projection, tol=0.0))

    def _spanning_rows(self, count: int, most: int) -> NDArray:
        """Return rows that span `count` rows, each of which is a landmark."""
        rows = np.arange(count) * self.sketch.shape[0] // count
        landmarks = self.sketch_map.landmarks[self.sketch.weights.indices[rows]]
        # Rounding of float32 values would hide what the rows do not span.
        return rows[spanning_rows(self.kernel(landmarks.astype(float)), most)]


def draw_map(
    inputs: Inputs,
    recipe: SketchRecipe,
    rngs: Sequence[np.random.Generator],
    weights: NDArray | None = None,
) -> tuple[Sketch, SketchMap]:
    """Return a sketch of transformed samples and its map.

    Landmarks given by the user are transformed like the samples; their sketch is the
    identity. If a linear kernel has no more columns than the sketch has rows, the
    features are the columns themselves.
    """
    X = inputs.rows
    # Separate streams, so that a given bandwidth does not change the sketch.
    kernel = resolve(X, inputs.kernel, rngs[0], weights)
    if not isinstance(recipe, LandmarkSketch):
        sketch = draw(X, kernel, recipe, rngs[1])
        if spans_columns(kernel, X, sketch):
            return SketchMap.of_columns(kernel, X)
        return sketch, SketchMap.of(kernel, X, sketch)
    scaler = inputs.scaler
    n_features = scaler.n_features if scaler else X.shape[1]
    if isinstance(kernel, PrecomputedKernel):
        raise ValueError(
            "`sketch` must choose training samples for a precomputed kernel, got "
            f"{recipe!r}: pass the samples and a kernel of them"
        )
    points = recipe.points_for(X, n_features)
    landmarks = transform_rows(points, scaler, kernel, "points")
    sketch = Sketch(sp.eye_array(recipe.size, format="csr"))
    return sketch, SketchMap(kernel, landmarks, sketch.weights)


def sketch_rows(
    problem: Problem, default_size: int, *, is_stream: bool = False
) -> SketchedData:
    """Transform the rows, learn length scales if requested, and draw a sketch.

    Its size is the given one, else `default_size`. Duplicates of rows have been merged,
    except in a stream.
    """
    plan = problem.plan
    X = problem.rows
    n = X.shape[0]
    if is_auto(plan.bandwidth):
        check_learnable(plan.kernel, X)
    no_columns = sp.issparse(X) or isinstance(plan.given_kernel, PrecomputedKernel)
    if plan.preprocessing in PREPROCESSINGS and no_columns:
        raise ValueError(
            "`preprocessing` must be None or 'auto' for sparse X and for "
            f"kernel={plan.kernel!r}, got {plan.preprocessing!r}"
        )
    recipe = plan.recipe(n, default_size)
    # The order of the random streams determines the results of a random_state.
    *rngs, fit_rng, tuning_rng = random_generator(plan.random_state).spawn(4)
    X = held_rows(X, recipe)
    target = TuningTarget.of(problem.objective, plan.alpha, not is_stream)
    inputs = prepare_inputs(X, plan, target, getattr(recipe, "size", n), tuning_rng)
    sketch, sketch_map = draw_map(inputs, recipe, rngs, target.weights)
    return SketchedData(inputs, sketch, sketch_map, fit_rng, kept=problem.kept)
