"""Growth of a sketch until a larger one is not worth its cost: ``size="auto"``."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nbsketch._memory import fits
from nbsketch._progress import report
from nbsketch._sketch_map import KEEP_BYTES, SketchMap, sketched_design, stored_design
from nbsketch.distributed.rows import PartitionedRows
from nbsketch.fitting.sizes import AutoSize
from nbsketch.fitting.sketched import SketchedData
from nbsketch.kernels import Kernel
from nbsketch.sketches import Sketch
from nbsketch.solvers.design import Design


class _Step(NamedTuple):
    sketch: Sketch
    sketch_map: SketchMap
    # S k(X, X)^T, (s, n); None for rows of a Dask array and beyond the memory limit
    product: NDArray | None

    @classmethod
    def of(cls, sketch: Sketch, kernel: Kernel, X: Any) -> _Step:
        """Return the first step, or one that reuses nothing."""
        sketch_map = SketchMap.of(kernel, X, sketch)
        n_bytes = 8.0 * X.shape[0] * sketch.shape[0]
        # The product and the features have the same size.
        is_kept = fits(n_bytes, copies=2, modest=KEEP_BYTES)
        is_kept = is_kept and not isinstance(X, PartitionedRows)
        return cls(sketch, sketch_map, sketch_map(X) if is_kept else None)

    def features(self, X: Any) -> tuple[NDArray, Design]:
        """Return the projection and the features of the rows."""
        if self.product is None:
            return sketched_design(self.sketch_map, X, keep=True)
        columns, weights = self.sketch.columns, self.sketch_map.weights
        return stored_design(self.product, weights, columns)


def grow(
    rule: AutoSize, data: SketchedData, score: Callable[[Design], float]
) -> SketchedData:
    """Double the sketch by a rule; return the one of least loss, and its features.

    `score` returns the held-out loss of given features.
    """
    began, X = time.perf_counter(), data.inputs.rows
    step = _Step.of(data.sketch, data.sketch_map.kernel, X)
    path: dict[str, list] = {"size": [], "loss": [], "seconds": []}
    best = None
    while True:
        features = step.features(X)
        path["size"].append(step.sketch.shape[0])
        path["loss"].append(score(features[1]))
        path["seconds"].append(time.perf_counter() - began)
        stop = report("size", iteration=len(path["size"]), objective=path["loss"][-1])
        if best is None or path["loss"][-1] < min(path["loss"][:-1]):
            best = data._replace(
                sketch=step.sketch, sketch_map=step.sketch_map, features=features
            )
        rows = 0 if stop else rule.rows_to_add(path, X.shape[0])
        if rows == 0:
            arrays = {name: np.array(values) for name, values in path.items()}
            return best._replace(size_path=arrays)
        step = _add(step, rows, X)


def _add(step: _Step, rows: int, X: Any) -> _Step:
    """Return the larger sketch and its product, computed for the new rows only."""
    size, kernel = step.sketch.shape[0], step.sketch_map.kernel
    if not step.sketch.can_grow:
        return _drawn_anew(step, rows, X)
    sketch = step.sketch.extend(rows)
    if step.product is None:
        return _Step.of(sketch, kernel, X)
    fresh = SketchMap.of(kernel, X, sketch.tail(size))(X)
    old = step.product * np.asarray(np.sqrt(size / (size + rows)), step.product.dtype)
    sketch_map = SketchMap.of(kernel, X, sketch)
    return _Step(sketch, sketch_map, np.vstack([old, fresh]))


def _drawn_anew(step: _Step, rows: int, X: Any) -> _Step:
    origin = step.sketch.origin
    if origin is None:
        raise TypeError(f"`size` must be an integer for a {type(step.sketch).__name__}")
    recipe = replace(origin.recipe, size=origin.recipe.size + rows)
    kernel = step.sketch_map.kernel
    sketch = recipe.draw(X.shape[0], origin.seed, X=X, kernel=kernel)
    return _Step.of(sketch, kernel, X)
