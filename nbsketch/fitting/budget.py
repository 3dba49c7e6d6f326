"""The machine for a limited time: all rows if passes over them fit, else a sketch.

What fits is measured on this machine: the model then depends on it.
"""

from __future__ import annotations

import time

from nbsketch.features import SketchMap
from nbsketch.fitting.choice import LARGEST_FIT
from nbsketch.fitting.sizes import AutoSize, kept_pairs
from nbsketch.fitting.sketched import SketchedData
from nbsketch.gram import SymmetricGram
from nbsketch.sketches import SubsamplingSketch

# Rows whose kernel values are evaluated to measure the time of a pair, and how often.
_PROBE, _REPEATS = 1000, 3
# Time of a solution, in evaluations of all pairs: with values that are kept, and not.
_KEPT, _ANEW = 20.0, 35.0
# Time of the choice of penalty and width, in evaluations of the pairs of its sample.
_CHOICES = 150.0
# The first size, the largest, and bytes that sketched kernel values may take.
_START, _LARGEST, _BYTES = 100, 3200, 1e9
# Share of the time for growth; the solution takes less than the last step.
_SHARE = 0.7


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
    return (time.perf_counter() - began) / _REPEATS / len(rows) ** 2


def first_sketch(data: SketchedData) -> SketchedData:
    """Return the rows with the small sketch that grows while there is time."""
    rows, kernel = data.inputs.rows, data.sketch_map.kernel
    recipe = SubsamplingSketch(min(_START, rows.shape[0]))
    sketch = recipe.draw(rows.shape[0], data.rng)
    sketch_map = SketchMap.of(kernel, rows, sketch)
    return data._replace(sketch=sketch, sketch_map=sketch_map)


def growth(n: int, seconds: float) -> AutoSize:
    """Return the rule by which a sketch of n rows grows, with time for the solution."""
    largest = max(_START, min(_LARGEST, int(_BYTES / (8 * n))))
    limit = max(_SHARE * seconds, 1e-9)
    return AutoSize(start=_START, max_size=largest, seconds=limit, tol=0.0)
