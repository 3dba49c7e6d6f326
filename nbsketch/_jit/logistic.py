"""Compiled kernels of the logistic loss log(1 + exp(-y f))."""

from math import exp
from typing import Any

from nbsketch._jit.compiler import REORDER, compiled


@compiled(fastmath=REORDER, inline="always")
def _error_probability(m: float) -> float:
    """Return 1 / (1 + exp(m)) without overflow."""
    tail = exp(-abs(m))
    return (tail if m > 0.0 else 1.0) / (1.0 + tail)


@compiled(fastmath=REORDER)
def logistic_point(res: Any, y: Any, a: Any, curvature: Any) -> None:
    """Fill the dual point a = y p and the curvature p (1 - p) at residuals y - f."""
    for i in range(res.shape[0]):
        m = y[i] * (y[i] - res[i])
        a[i] = y[i] * _error_probability(m)
        tail = exp(-abs(m))
        curvature[i] = tail / ((1.0 + tail) * (1.0 + tail))


@compiled(fastmath=REORDER)
def logistic_slope(
    t: float, res: Any, move: Any, y: Any, weights: Any
) -> tuple[float, float]:
    """Return two derivatives of the weighted loss sum at residuals ``res - t move``."""
    first, second = 0.0, 0.0
    for i in range(res.shape[0]):
        f = y[i] - res[i] + t * move[i]
        tail = exp(-abs(f))
        inverse = 1.0 / (1.0 + tail)
        error = (tail if y[i] * f > 0.0 else 1.0) * inverse
        push = weights[i] * move[i]
        first -= push * y[i] * error
        second += push * move[i] * tail * inverse * inverse
    return first, second
