"""Checks of targets, and of what may be returned."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

# Coefficients with a larger relative gap are worse than none: early iterates of dual
# coefficients overshoot by orders of magnitude.
LARGEST_GAP = 0.1


class NotConvergedError(RuntimeError):
    """No coefficients were found whose objective is near the minimum."""


def check_gap(relative_gap: NDArray, passes: int) -> float:
    """Return the largest relative gap, or raise an error if it is above 0.1."""
    worst = float(relative_gap.max(initial=0))
    if not worst <= LARGEST_GAP:
        raise NotConvergedError(
            f"the relative duality gap is {worst:.1e} after {passes} passes, above "
            f"{LARGEST_GAP}: no usable coefficients. Raise max_passes, max_seconds or "
            "alpha, or use float64 kernel values"
        )
    return worst


def check_targets(Y: ArrayLike, n: int) -> NDArray:
    """Return targets of shape (n, d) in float64."""
    Y = np.asarray(Y, dtype=np.float64)
    if len(Y) != n:
        raise ValueError(f"`Y` must have as many rows as K, {n}, got {len(Y)}")
    return Y.reshape(n, -1)
