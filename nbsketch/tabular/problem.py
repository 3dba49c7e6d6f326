"""What the parts of a machine are fitted to, and how their errors are measured."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nbsketch.tabular.efforts import Effort
from nbsketch.tabular.limit import TimeLimit
from nbsketch.tabular.members import Training
from nbsketch.tuning.rows import Rows


class Problem(NamedTuple):
    """Standardized data of a fit, and how much to spend on it."""

    rows: Rows
    data: Training
    effort: Effort
    rng: np.random.Generator
    budget: TimeLimit


def weighted_error(residual: NDArray, weights: NDArray | None) -> float:
    """Return the root mean square of residuals (m, d); rows with NaN do not count."""
    squares = np.square(residual).mean(axis=1)
    some = np.isfinite(squares)
    if not some.any():
        return np.inf
    known = None if weights is None else weights[some]
    return float(np.sqrt(np.average(squares[some], weights=known)))
