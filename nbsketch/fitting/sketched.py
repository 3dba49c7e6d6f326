"""Sketched rows, the second step of a fit: transform, learn length scales, draw.

Features and structured prediction have no loss of their own: their length scales are
learned by ridge regression on given targets.
"""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from nbsketch._report.progress import is_watched, report, seconds_left
from nbsketch._report.validation import (
    as_labels,
    as_numbers,
    check_unmasked,
    not_finite,
)
from nbsketch._sketch_map import (
    SketchMap,
    draw,
    resolve,
    sketched_design,
    spans_columns,
)
from nbsketch.fitting.plan import Plan, is_auto
from nbsketch.kernels import LEARNABLE_NAMES, Kernel, PrecomputedKernel
from nbsketch.rows.transform import (
    PREPROCESSINGS,
    InputScaler,
    fit_scaler,
    transform_rows,
    transformed,
)
from nbsketch.sketches import LandmarkSketch, Sketch, SketchRecipe, SubsamplingSketch
from nbsketch.solvers.design import Design
from nbsketch.solvers.left_out import Folds
from nbsketch.tuning import tune

# Kernels by name with learnable length scales, and the argument of `tune`.
_FAMILIES = LEARNABLE_NAMES | {"auto": "auto"}
# Share of the time of a limited fit for learning length scales.
_LEARNING = 0.4
# Length scales cannot be estimated from fewer samples.
LEAST_ROWS = 30
# Integers with at most this many values are class labels.
_MOST_CLASSES = 20
# Number of features whose length scales are listed.
_SHORTEST = 5


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
    """

    targets: NDArray
    weights: NDArray | None = None
    robust: bool = False
    alpha: float | None = None
    folds: Folds | None = None


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

    @classmethod
    def of(cls, X: Any, kernel: Kernel, scaler: InputScaler | None, *args: Any) -> Self:
        """Return the inputs for samples X, transformed if there is a scaler."""
        return cls(transformed(X, scaler) if scaler else X, kernel, scaler, *args)


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


def check_inputs(X: Any, plan: Plan) -> None:
    """Check that the samples X can be transformed as planned."""
    if is_auto(plan.bandwidth):
        check_learnable(plan.kernel, X)
    no_columns = sp.issparse(X) or isinstance(plan.given_kernel, PrecomputedKernel)
    if plan.preprocessing in PREPROCESSINGS and no_columns:
        raise ValueError(
            "`preprocessing` must be None or 'auto' for sparse X and for "
            f"kernel={plan.kernel!r}, got {plan.preprocessing!r}"
        )


def prepare_inputs(
    X: Any, plan: Plan, target: TuningTarget, size: int, rng: np.random.Generator
) -> Inputs:
    """Return the transformed training samples and their kernel.

    Length scales are learned if the bandwidth is "auto", or None if possible. Otherwise
    samples are transformed only if a preprocessing is named. `size` is the size of the
    sketch to be drawn.
    """
    columns = plan.preprocessing
    is_learned = plan.bandwidth is None or is_auto(plan.bandwidth)
    if is_learned and is_learnable(plan.kernel, X) and X.shape[0] >= LEAST_ROWS:
        # Length scales replace standardization: None means features without ranks.
        return learn_inputs(X, target, plan.kernel, size, rng, columns or "standard")
    scaler = None
    if columns in PREPROCESSINGS:
        scaler = fit_scaler(X, columns, rng, weights=target.weights)
    return Inputs.of(X, plan.given_kernel, scaler)


def learn_inputs(
    X: Any,
    target: TuningTarget,
    kernel: str,
    size: int,
    rng: np.random.Generator,
    preprocessing: str = "standard",
) -> Inputs:
    """Learn length scales for targets of at least 30 samples."""
    tuned = tune(
        X,
        target.targets,
        family=_FAMILIES[kernel],
        preprocessing=preprocessing,
        size=size,
        sample_weight=target.weights,
        alpha=target.alpha,
        robust=target.robust,
        cv=target.folds,
        rng=rng,
        max_seconds=_LEARNING * seconds_left(),
        callback=_report if is_watched() else None,
    )
    scales = tuned.length_scales
    return Inputs.of(X, tuned.kernel, tuned.scaler, scales, tuned.alpha)


def _report(iteration: int, error: float) -> bool:
    return report("length-scales", iteration=iteration, objective=error)


def as_targets(y: Any, n: int) -> NDArray:
    """Return targets (n, d) of ridge regression for numbers or labels.

    Strings, booleans and integers with at most 20 values are class labels, with one
    indicator per class.
    """
    if y is None:
        raise ValueError(
            "`y` must be passed for bandwidth='auto', got None: pass targets, or "
            "bandwidth='median'"
        )
    check_unmasked("y", y)
    values = np.asarray(y)
    if values.dtype.kind == "O":
        values = _of_one_type(as_labels("y", y))
    if values.ndim not in (1, 2) or len(values) != n:
        raise ValueError(f"`y` must have shape ({n},) or ({n}, d), got {values.shape}")
    classes = np.unique(values) if values.dtype.kind in "OUSbiu" else np.empty(0)
    is_label = values.dtype.kind not in "iu" or len(classes) <= _MOST_CLASSES
    if values.ndim == 1 and len(classes) and is_label:
        return (values[:, None] == classes).astype(float)
    targets = values.reshape(n, -1).astype(float)
    if not np.isfinite(targets).all():
        raise ValueError(not_finite("y", targets.reshape(values.shape)))
    return targets


def _of_one_type(objects: NDArray) -> NDArray:
    """Return strings, or numbers in their common dtype."""
    values = np.asarray(objects.tolist())
    return np.asarray(as_numbers("y", values)) if values.dtype.kind == "O" else values


def summary_lines(model: Any, entries: Iterable[tuple[str, str]]) -> str:
    """Return a summary of a fitted model: kernel, length scales and other entries."""
    widths = np.ravel(getattr(model.kernel_, "bandwidth", ()))
    shown = f", bandwidth {widths[0]:.4g}" if len(widths) == 1 else ""
    lines = [("kernel", type(model.kernel_).__name__ + shown)]
    if model.length_scales_ is not None:
        lines.append(("length-scales", shortest_scales(model)))
    return summary_text(model, [*lines, *entries])


def summary_text(model: Any, entries: Iterable[tuple[str, str]]) -> str:
    """Return the name of a fitted model and its entries, one line each."""
    return "\n".join([type(model).__name__, *(f"  {a:<14}{b}" for a, b in entries)])


def shortest_scales(model: Any) -> str:
    """Return the shortest length scales with the names of their features."""
    scales = model.length_scales_
    names = getattr(model, "feature_names_in_", [f"x{k}" for k in range(len(scales))])
    order = np.argsort(scales, kind="stable")[:_SHORTEST]
    listed = [f"{names[k]} {scales[k]:.3g}" for k in order if np.isfinite(scales[k])]
    unlisted = np.isfinite(scales).sum() - len(listed)
    return ", ".join(listed) + (f"; {unlisted} longer" if unlisted else "")


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
        return sketched_design(self.sketch_map, self.rows, keep=keep)

    def subsampled(self, size: int) -> Self:
        """Return the samples with a random subset as the sketch."""
        sketch = SubsamplingSketch(size).draw(self.rows.shape[0], self.rng)
        sketch_map = SketchMap.of(self.kernel, self.rows, sketch)
        return self._replace(sketch=sketch, sketch_map=sketch_map, features=None)


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
    # Separate streams, so that a given bandwidth does not change the sketch.
    kernel = resolve(inputs.rows, inputs.kernel, rngs[0], weights)
    if not isinstance(recipe, LandmarkSketch):
        sketch = draw(inputs.rows, kernel, recipe, rngs[1])
        if spans_columns(kernel, inputs.rows, sketch):
            return SketchMap.of_columns(kernel, inputs.rows)
        return sketch, SketchMap.of(kernel, inputs.rows, sketch)
    scaler = inputs.scaler
    n_features = scaler.n_features if scaler else inputs.rows.shape[1]
    if isinstance(kernel, PrecomputedKernel):
        raise ValueError(
            "`sketch` must choose training samples for a precomputed kernel, got "
            f"{recipe!r}: pass the samples and a kernel of them"
        )
    points = recipe.points_for(inputs.rows, n_features)
    landmarks = transform_rows(points, scaler, kernel, "points")
    sketch = Sketch(sp.eye_array(recipe.size, format="csr"))
    return sketch, SketchMap(kernel, landmarks, sketch.weights)
