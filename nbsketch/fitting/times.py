"""Expected times of methods, measured on a few rows, for fits with a time limit.

With a time limit, the model therefore depends on the computer.
"""

import time
from collections.abc import Callable

import numpy as np

from nbsketch._report.progress import seconds_left
from nbsketch.fitting.choice import LARGEST_FIT
from nbsketch.fitting.plan import kept_pairs
from nbsketch.fitting.sketched import SketchedData
from nbsketch.gram import SymmetricGram

# Number of rows to measure the time of a kernel value, and number of repetitions.
_PROBE = 1000
_REPEATS = 3
# Time of a solution, in evaluations of all pairs, with and without stored values.
_KEPT = 12.0
_ANEW = 22.0
# Time to choose penalty and width, in evaluations of the pairs of the sample.
_CHOICES = 150.0
# Rows of a product that measures the time of a multiplication.
_PRODUCT = 400
# Multiplications of a closed form with s features of n rows, over s^2 (n + s), and of a
# solution by Cholesky factors, over n^3 (n up to 10,000, s up to 1500, one thread).
_CLOSED = 7.0
_FACTORS = 1.3
# Shortest time that can be measured.
TICK = 1e-9


def has_seconds(expected: Callable[..., float], *shape: int) -> bool:
    """Return whether the expected time is available."""
    left = seconds_left()
    return not np.isfinite(left) or expected(*shape) <= left


def exact_seconds(data: SketchedData, n_outputs: int) -> tuple[float, float]:
    """Return the approximate time of the exact method: choices and solution."""
    n = data.rows.shape[0]
    rows = data.rows[:_PROBE]
    K = SymmetricGram(data.kernel, rows, memory=0)
    columns = rows[:, :1].repeat(n_outputs, axis=1)
    K @ columns  # compiles or loads the code
    spent = seconds_of(lambda: K @ columns, _REPEATS)
    pair = spent / _REPEATS / len(rows) ** 2
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
    least = min(seconds_of(lambda: A @ A) for _ in range(_REPEATS))
    return least / (2.0 * _PRODUCT**3)


def seconds_of(call: Callable[[], object], count: int = 1) -> float:
    """Return the time of some calls, at least a tick of the clock."""
    began = time.perf_counter()
    for _ in range(count):
        call()
    return max(time.perf_counter() - began, TICK)
