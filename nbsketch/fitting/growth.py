"""Growth of a sketch while it improves the model: ``size="auto"`` and time limits.

Default method with and without a time limit: all rows if passes over them fit the
limit, else a sketch.

Times are measured, so with a time limit the model depends on the computer.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from nbsketch._machine.memory import fits
from nbsketch._report.progress import report, seconds_left
from nbsketch._sketch_map import SketchMap, sketched_design, stored_design
from nbsketch.fitting.choice import LARGEST_FIT
from nbsketch.fitting.plan import AutoSize, kept_pairs
from nbsketch.fitting.sketched import SketchedData
from nbsketch.gram import SymmetricGram
from nbsketch.kernels import Kernel
from nbsketch.rows.partitions import PartitionedRows
from nbsketch.rows.transform import KEEP_BYTES
from nbsketch.sketches import Sketch
from nbsketch.solvers.design import Design

# Number of rows to measure the time of a kernel value, and number of repetitions.
_PROBE = 1000
_REPEATS = 3
# Time of a solution, in evaluations of all pairs, with and without stored values.
_KEPT = 12.0
_ANEW = 22.0
# Time to choose penalty and width, in evaluations of the pairs of the sample.
_CHOICES = 150.0
# The first size, its minimum, the maximum, and maximum bytes of kernel values.
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
# Rows of a product that measures the time of a multiplication.
_PRODUCT = 400
# Multiplications of a closed form with s features of n rows, over s^2 (n + s), and of a
# solution by Cholesky factors, over n^3 (n up to 10,000, s up to 1500, one thread).
_CLOSED = 7.0
_FACTORS = 1.3
# Shortest time of a step that can be measured.
_TICK = 1e-9


class _Step(NamedTuple):
    sketch: Sketch
    sketch_map: SketchMap
    # S k(X, X)^T, (s, n); None for Dask arrays and above the memory limit
    product: NDArray | None

    @classmethod
    def of(cls, sketch: Sketch, kernel: Kernel, X: Any) -> Self:
        """Return the first step, or a step that reuses nothing."""
        sketch_map = SketchMap.of(kernel, X, sketch)
        is_kept = _is_kept(sketch, X) and not isinstance(X, PartitionedRows)
        return cls(sketch, sketch_map, sketch_map(X) if is_kept else None)

    def design(self, X: Any) -> tuple[NDArray, Design]:
        """Return the projection and the features of the rows."""
        if self.product is None:
            return sketched_design(self.sketch_map, X, keep=True)
        columns = self.sketch.columns
        weights = self.sketch_map.weights
        return stored_design(self.product, weights, columns)


def _is_kept(sketch: Sketch, X: Any) -> bool:
    """Return whether the product of a sketch, and its features, fit into memory."""
    n_bytes = 8.0 * X.shape[0] * sketch.shape[0]
    return fits(n_bytes, copies=2, modest=KEEP_BYTES)


def grow(
    rule: AutoSize, data: SketchedData, score: Callable[[Design], float]
) -> tuple[SketchedData, int]:
    """Double the sketch by a rule; return the one with the lowest loss, and its index.

    `score` returns the held-out loss for given features.
    """
    began = time.perf_counter()
    X = data.rows
    step = _Step.of(data.sketch, data.kernel, X)
    path: dict[str, list] = {"size": [], "loss": [], "seconds": []}
    best = None
    while True:
        features = step.design(X)
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
            return best._replace(size_path=arrays), int(np.argmin(arrays["loss"]))
        step = _larger(step, rows, X)


def _larger(step: _Step, rows: int, X: Any) -> _Step:
    """Return the larger sketch and its product, computed only for the new rows.

    Sketches whose rows depend on their size are redrawn.
    """
    sketch = step.sketch
    kernel = step.sketch_map.kernel
    size = step.sketch.shape[0]
    if not sketch.can_grow:
        origin = sketch.origin
        if origin is None:
            raise TypeError(f"`size` must be an integer for a {type(sketch).__name__}")
        recipe = replace(origin.recipe, size=origin.recipe.size + rows)
        drawn = recipe.draw(X.shape[0], origin.seed, X=X, kernel=kernel)
        return _Step.of(drawn, kernel, X)
    larger = sketch.extend(rows)
    if step.product is None or not _is_kept(larger, X):
        return _Step.of(larger, kernel, X)
    fresh = SketchMap.of(kernel, X, larger.tail(size))(X)
    old = step.product * np.asarray(np.sqrt(size / (size + rows)), step.product.dtype)
    return _Step(larger, SketchMap.of(kernel, X, larger), np.vstack([old, fresh]))


def has_seconds(expected: Callable[..., float], *shape: int) -> bool:
    """Return whether the expected time is available."""
    left = seconds_left()
    return not np.isfinite(left) or expected(*shape) <= left


def exact_seconds(data: SketchedData, n_outputs: int) -> tuple[float, float]:
    """Return the approximate time of the exact method: choices and solution."""
    n = data.rows.shape[0]
    pair = _seconds_per_pair(data, n_outputs)
    solution = (_KEPT if kept_pairs(n) else _ANEW) * n**2
    return pair * _CHOICES * min(n, LARGEST_FIT) ** 2, pair * solution


def closed_seconds(n: int, size: int) -> float:
    """Return the approximate time of a closed form on the features of a sketch."""
    return _CLOSED * size**2 * (n + size) * _seconds_per_multiplication()


def dense_seconds(n: int) -> float:
    """Return the approximate time of Cholesky factors of the full Gram matrix."""
    return _FACTORS * n**3 * _seconds_per_multiplication()


def _seconds_per_multiplication() -> float:
    A = np.ones((_PRODUCT, _PRODUCT))
    least = min(_seconds_of(lambda: A @ A) for _ in range(_REPEATS))
    return least / (2.0 * _PRODUCT**3)


def _seconds_of(call: Callable[[], object], count: int = 1) -> float:
    """Return the time of some calls, at least a tick of the clock."""
    began = time.perf_counter()
    for _ in range(count):
        call()
    return max(time.perf_counter() - began, _TICK)


def _seconds_per_pair(data: SketchedData, n_outputs: int) -> float:
    """Return the time of one kernel value: evaluated and multiplied."""
    rows = data.rows[:_PROBE]
    K = SymmetricGram(data.kernel, rows, memory=0)
    columns = rows[:, :1].repeat(n_outputs, axis=1)
    K @ columns  # compiles or loads the code
    spent = _seconds_of(lambda: K @ columns, _REPEATS)
    return spent / _REPEATS / len(rows) ** 2


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
    return _seconds_of(lambda: sketch_map(data.rows)) / _LEAST


@dataclass(frozen=True)
class LimitedSize(AutoSize):
    """Rule that doubles a sketch, with a smaller last step to use the time limit."""

    def _affordable_rows(self, size: int, path: dict[str, list]) -> int:
        """Return the number of rows to add, at most a doubling, within the time.

        The time of a doubling is a multiple of the time of the last one: the mean of
        four and the ratio of the last two (one, if there is only one), because
        overheads make small sizes cheaper.
        """
        steps = np.maximum(np.diff([0.0, *path["seconds"]]), _TICK)
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
