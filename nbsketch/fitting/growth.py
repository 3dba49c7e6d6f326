"""Choosing the size of a sketch by letting it grow."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nbsketch._validation import check_integer, check_positive, check_real
from nbsketch.features import SketchMap, stored_design
from nbsketch.sketches import Sketch
from nbsketch.solvers.design import Design


@dataclass(frozen=True)
class AutoSize:
    """How to choose the number of rows s of a sketch: ``size="auto"``.

    s doubles until the loss on rows left out improves by less than `tol` of it, or a
    budget would be passed; the s of least loss is kept. What was drawn and computed for
    the smaller sketch is used for the larger one, so the whole path costs little more
    than its last fit; CountSketch and sparse JL sketches are drawn anew.

    Parameters
    ----------
    start : int, default=50
        First number of rows of a sketch given by name, at most the number of rows of X.
        A recipe given as an object starts from its own size.
    max_size : int
        Largest number of rows; the number of rows of X if that is smaller.
    seconds : float, optional
        Budget of time: no sketch is tried that is expected to end after it, at four
        times the time of the one before. A model then depends on the machine.
    tol : float
        Least relative improvement of the loss for which s goes on doubling.

    Examples
    --------
    >>> import numpy as np
    >>> from nbsketch import AutoSize, SketchedKernelRegressor
    >>> X = np.random.default_rng(0).uniform(-3, 3, size=(1000, 1))
    >>> y = np.sin(X[:, 0]) + 0.1 * np.random.default_rng(1).normal(size=1000)
    >>> rule = AutoSize(start=5, max_size=100)
    >>> model = SketchedKernelRegressor(size=rule, bandwidth=1.0, random_state=0)
    >>> sizes = model.fit(X, y).size_path_["size"].tolist()
    >>> sizes[:2], model.sketch_.shape[0] in sizes
    ([5, 10], True)
    """

    start: int = 50
    max_size: int = 3200
    seconds: float | None = None
    tol: float = 0.01

    def __post_init__(self) -> None:
        start = check_integer("start", self.start)
        check_integer("max_size", self.max_size, low=start)
        if self.seconds is not None:
            check_positive("seconds", self.seconds)
        check_real("tol", self.tol, low=0, high=1, high_open=True)


def as_auto_size(size: Any) -> AutoSize | None:
    """Return the rule by which to choose a size, or None if it is given."""
    if isinstance(size, str):
        if size != "auto":
            raise ValueError(f"`size` must be an integer or 'auto', got {size!r}")
        return AutoSize()
    return size if isinstance(size, AutoSize) else None


class Grown(NamedTuple):
    """A sketch of the size that was chosen, its features, and the path to it."""

    sketch: Sketch
    sketch_map: SketchMap
    projection: NDArray
    design: Design
    path: dict[str, NDArray]  # "size", "loss", "seconds" of each size


class _Step(NamedTuple):
    sketch: Sketch
    sketch_map: SketchMap
    product: NDArray  # S k(X, X)^T, (s, n)


def grow(
    rule: AutoSize,
    sketch: Sketch,
    sketch_map: SketchMap,
    X: Any,
    score: Callable[[Design], float],
) -> Grown:
    """Let a sketch of the rows of X grow by a rule, from a first one.

    `score` returns the loss that features have on rows left out.
    """
    began = time.perf_counter()
    step = _Step(sketch, sketch_map, sketch_map(X))
    path: dict[str, list] = {"size": [], "loss": [], "seconds": []}
    best = None
    while True:
        grown = _features(step)
        path["size"].append(step.sketch.shape[0])
        path["loss"].append(score(grown[1]))
        path["seconds"].append(time.perf_counter() - began)
        if best is None or path["loss"][-1] < min(path["loss"][:-1]):
            best = (step.sketch, step.sketch_map, *grown)
        rows = _rows_to_add(rule, path, X.shape[0])
        if rows == 0:
            arrays = {name: np.array(values) for name, values in path.items()}
            return Grown(*best, path=arrays)
        step = _add(step, rows, X)


def _features(step: _Step) -> tuple[NDArray, Design]:
    return stored_design(step.product, step.sketch_map.weights, step.sketch.columns)


def _rows_to_add(rule: AutoSize, path: dict[str, list], n: int) -> int:
    """Return how many rows come next, 0 for an end."""
    size, loss, seconds = path["size"][-1], path["loss"], path["seconds"]
    if len(loss) > 1 and loss[-1] > (1 - rule.tol) * loss[-2]:
        return 0
    if rule.seconds is not None:
        last = seconds[-1] - (seconds[-2] if len(seconds) > 1 else 0.0)
        if seconds[-1] + 4 * last > rule.seconds:
            return 0
    return max(0, min(size, min(rule.max_size, n) - size))


def _add(step: _Step, rows: int, X: Any) -> _Step:
    """Return the larger sketch and its product, computed for the new rows only."""
    size, kernel = step.sketch.shape[0], step.sketch_map.kernel
    if not step.sketch.can_grow:
        return _drawn_anew(step, rows, X)
    sketch = step.sketch.extend(rows)
    fresh = SketchMap.of(kernel, X, sketch.tail(size))(X)
    old = step.product * np.asarray(np.sqrt(size / (size + rows)), step.product.dtype)
    return _Step(sketch, SketchMap.of(kernel, X, sketch), np.vstack([old, fresh]))


def _drawn_anew(step: _Step, rows: int, X: Any) -> _Step:
    origin = step.sketch.origin
    if origin is None:
        raise TypeError(f"`size` must be an integer for a {type(step.sketch).__name__}")
    recipe = replace(origin.recipe, size=origin.recipe.size + rows)
    kernel = step.sketch_map.kernel
    sketch = recipe.draw(X.shape[0], origin.seed, X=X, kernel=kernel)
    sketch_map = SketchMap.of(kernel, X, sketch)
    return _Step(sketch, sketch_map, sketch_map(X))
