"""A limit of time: steps beyond the fast recipe are skipped when it is over."""

from __future__ import annotations

import math
import time

from nbsketch._progress import is_asked, is_stopped, is_watched, report, seconds_left
from nbsketch.tabular.efforts import EFFORTS, Effort
from nbsketch.tuning.descent import Budget

# Iterations of all searches together: rounds end them before.
_ITERATIONS = 10**6


class TimeLimit(Budget):
    """The searches of a fit, and the steps that the time allows beyond "fast".

    Attributes
    ----------
    skipped : int
        Number of trees, global ridges and partners that were skipped.
    """

    def __init__(self) -> None:
        watched = _report if is_watched() else None
        super().__init__(_ITERATIONS, math.inf, watched)
        self.skipped = 0

    def share_end(self, count: int) -> float:
        """Return when the first of `count` equal shares of the time left ends."""
        return time.perf_counter() + seconds_left() / count

    def is_over(self, end: float = math.inf) -> bool:
        """Return whether a callback has stopped the fit, or the time is over."""
        return is_stopped() or seconds_left() <= 0 or time.perf_counter() >= end

    def affordable(self, effort: Effort) -> Effort:
        """Return the effort, or the least one if the time is over."""
        return EFFORTS["fast"] if self.is_over() else effort


def _report(iteration: int, error: float) -> bool:
    """Report an iteration; return whether a callback has asked to stop."""
    report("length-scales", iteration=iteration, objective=error)
    return is_asked()
