"""The machine for a limited time: all rows if passes over them fit, else a sketch.

What fits is measured on this machine: the model then depends on it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from nbsketch._sketch_map import SketchMap
from nbsketch.fitting.choice import LARGEST_FIT
from nbsketch.fitting.sizes import AutoSize, kept_pairs
from nbsketch.fitting.sketched import SketchedData
from nbsketch.gram import SymmetricGram
from nbsketch.sketches import SubsamplingSketch

# Rows whose kernel values are evaluated to measure the time of a pair, and how often.
_PROBE, _REPEATS = 1000, 3
# Time of a solution, in evaluations of all pairs: with values that are kept, and not.
_KEPT, _ANEW = 12.0, 22.0
# Time of the choice of penalty and width, in evaluations of the pairs of its sample.
_CHOICES = 150.0
# The first size, its least value, the largest, and bytes that kernel values may take.
_START, _LEAST, _LARGEST, _BYTES = 100, 10, 3200, 1e9
# Time of the first step, in evaluations of its kernel values; its share of the time.
_STEP, _FIRST_SHARE = 5.0, 0.5
# Share of the time for growth; the solution takes less than the last step.
_SHARE = 0.7
# Time of twice the size, at most, and the least relative growth that is worth a step.
_DOUBLE, _WORTH = 4.0, 0.2
# Shortest time of a step that is told from none.
_TICK = 1e-9


def exact_seconds(data: SketchedData, n_outputs: int) -> tuple[float, float]:
    """Return about how long the exact machine takes: its choice and its solution."""
    n, pair = data.inputs.rows.shape[0], _seconds_per_pair(data, n_outputs)
    solution = (_KEPT if kept_pairs(n) else _ANEW) * n**2
    return pair * _CHOICES * min(n, LARGEST_FIT) ** 2, pair * solution


def _seconds_per_pair(data: SketchedData, n_outputs: int) -> float:
    """Return the time of an ordered pair of rows, evaluated and multiplied."""
    rows = data.inputs.rows[:_PROBE]
    K = SymmetricGram(data.sketch_map.kernel, rows, memory=0)
    columns = rows[:, :1].repeat(n_outputs, axis=1)
    K @ columns  # loads the compiled code
    began = time.perf_counter()
    for _ in range(_REPEATS):
        K @ columns
    spent = max(time.perf_counter() - began, _TICK)
    return spent / _REPEATS / len(rows) ** 2


def first_sketch(data: SketchedData, seconds: float) -> SketchedData:
    """Return the rows with the small sketch that grows while there is time."""
    n = data.inputs.rows.shape[0]
    if n > _START:
        per_size = _STEP * _seconds_per_landmark(data)
        size = int(np.clip(_FIRST_SHARE * seconds / per_size, _LEAST, _START))
    return _sketched(data, size if n > _START else n)


def _seconds_per_landmark(data: SketchedData) -> float:
    """Return the time of the kernel values of all rows with one landmark."""
    sketch_map, rows = _sketched(data, _LEAST).sketch_map, data.inputs.rows
    sketch_map(rows)  # loads the compiled code
    began = time.perf_counter()
    sketch_map(rows)
    return max(time.perf_counter() - began, _TICK) / _LEAST


def _sketched(data: SketchedData, size: int) -> SketchedData:
    """Return the rows with a sub-sample of them as the sketch."""
    rows, kernel = data.inputs.rows, data.sketch_map.kernel
    sketch = SubsamplingSketch(size).draw(rows.shape[0], data.rng)
    sketch_map = SketchMap.of(kernel, rows, sketch)
    return data._replace(sketch=sketch, sketch_map=sketch_map)


@dataclass(frozen=True)
class LimitedSize(AutoSize):
    """Rule by which a sketch doubles, and takes a smaller last step to use the time."""

    def _affordable_rows(self, size: int, path: dict[str, list]) -> int:
        """Return the number of rows, at most those of a doubling, for which time is.

        The time of a doubling is a multiple of that of the last one: the mean of four
        and what the last two suggest (one, if there is only one), because overheads
        make small sizes cheaper.
        """
        steps = np.maximum(np.diff([0.0, *path["seconds"]]), _TICK)
        left, last = float(self.seconds or np.inf) - path["seconds"][-1], steps[-1]
        found = 1.0
        if len(steps) > 1:
            doublings = np.log2(path["size"][-1] / path["size"][-2])
            found = (last / steps[-2]) ** (1 / doublings)
        ratio = float(np.clip((found + _DOUBLE) / 2, 2.0, _DOUBLE))
        if left <= last:
            return 0
        growth = min(2.0, 2.0 ** (np.log(left / last) / np.log(ratio))) - 1
        return int(growth * size) if growth >= _WORTH else 0


def growth(n: int, seconds: float) -> LimitedSize:
    """Return the rule by which a sketch of n rows grows, with time for the solution."""
    largest = max(_START, min(_LARGEST, int(_BYTES / (8 * n))))
    limit = max(_SHARE * seconds, 1e-9)
    return LimitedSize(start=_START, max_size=largest, seconds=limit, tol=0.0)
