"""The problem of a fit: checked rows, the objective on their features, settings."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

from numpy.typing import NDArray

from nbsketch.fitting.objective import Objective
from nbsketch.fitting.settings import Plan
from nbsketch.fitting.weights import TrainingRows


class Problem(NamedTuple):
    """What a fit solves.

    Attributes
    ----------
    rows : ndarray or csr_array of shape (n, q)
        Checked training rows.
    objective : Objective
        The objective on their features.
    plan : Plan
        How rows are sketched and the objective is minimized.
    single_output : bool
        Whether the fitted attributes have no axis of outputs.
    held_out : TrainingRows or None
        Rows that are not fitted: they calibrate intervals.
    kept : ndarray of shape (n,) or None
        Indices of the rows among those given. None: all of them.
    """

    rows: Any
    objective: Objective
    plan: Plan
    single_output: bool
    held_out: TrainingRows | None = None
    kept: NDArray | None = None

    def with_bandwidth(self, bandwidth: float) -> Problem:
        """Return the problem with another bandwidth."""
        return self._replace(plan=replace(self.plan, bandwidth=bandwidth))
