"""Exact line search on a convex function of one variable."""

from collections.abc import Callable

_TRIALS = 60
_EXACT = 0.1  # of the derivative at 0: what may be left of it


Derivatives = Callable[[float], tuple[float, float]]


def convex_step(
    derivatives: Derivatives,
    start: float,
    n: float = 1.0,
    slope: float = 0.0,
    bend: float = 0.0,
) -> float:
    """Return a step t > 0 with a derivative of at most a tenth of that at 0.

    The function is a sum over n, plus the quadratic ``slope t + bend t^2 / 2``.

    Newton's method from t = 1, kept inside a bracket of the minimizer that regula falsi
    and bisection shrink. 0 if no trial step is any better than staying.

    Parameters
    ----------
    derivatives : callable
        The first and second derivative of the sum at a step.
    start : float
        First derivative of the function at 0. Negative.
    n, slope, bend : float
        Divisor of the sum, and the quadratic.
    """
    low, high, t = 0.0, None, 1.0
    low_value, high_value = start, 0.0
    best, best_value = 0.0, -start
    for trial in range(_TRIALS):
        first, second = derivatives(t)
        value, curvature = first / n + slope + bend * t, second / n + bend
        if abs(value) < best_value:
            best, best_value = t, abs(value)
            if best_value <= -_EXACT * start:
                break
        if value > 0:
            high, high_value = t, value
        else:
            low, low_value = t, value
        newton = t - value / curvature if curvature > 0 else 10.0 * t
        if high is None:  # go on outward, but not without limit
            t = min(max(newton, 1.5 * t), 10.0 * t)
        elif high - low <= 1e-14 * high:
            return low or high
        elif low < newton < high and trial % 3 < 2:
            t = newton
        elif trial % 3 == 0:
            t = low + (high - low) * low_value / (low_value - high_value)
        else:
            t = 0.5 * (low + high)
    return best
