"""Growth of a sketch until a larger one is not worth its cost: ``size="auto"``."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nbsketch._progress import report
from nbsketch.features import SketchMap, stored_design
from nbsketch.fitting.sizes import AutoSize
from nbsketch.fitting.sketched import SketchedData
from nbsketch.sketches import Sketch
from nbsketch.solvers.design import Design


class _Step(NamedTuple):
    sketch: Sketch
    sketch_map: SketchMap
    product: NDArray  # S k(X, X)^T, (s, n)


def grow(
    rule: AutoSize, data: SketchedData, score: Callable[[Design], float]
) -> SketchedData:
    """Double the sketch by a rule; return the one of least loss, and its features.

    `score` returns the held-out loss of given features.
    """
    began, X = time.perf_counter(), data.inputs.rows
    step = _Step(data.sketch, data.sketch_map, data.sketch_map(X))
    path: dict[str, list] = {"size": [], "loss": [], "seconds": []}
    best = None
    while True:
        features = _features(step)
        path["size"].append(step.sketch.shape[0])
        path["loss"].append(score(features[1]))
        path["seconds"].append(time.perf_counter() - began)
        stop = report("size", iteration=len(path["size"]), objective=path["loss"][-1])
        if best is None or path["loss"][-1] < min(path["loss"][:-1]):
            best = data._replace(
                sketch=step.sketch, sketch_map=step.sketch_map, features=features
            )
        rows = 0 if stop else _rows_to_add(rule, path, X.shape[0])
        if rows == 0:
            arrays = {name: np.array(values) for name, values in path.items()}
            return best._replace(size_path=arrays)
        step = _add(step, rows, X)


def _features(step: _Step) -> tuple[NDArray, Design]:
    return stored_design(step.product, step.sketch_map.weights, step.sketch.columns)


def _rows_to_add(rule: AutoSize, path: dict[str, list], n: int) -> int:
    """Return the number of rows to add, 0 to stop."""
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
