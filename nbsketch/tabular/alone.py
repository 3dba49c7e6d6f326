"""Few rows: members are exact on all of them, without a base."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nbsketch.tabular.members import Member, fit_tree, form_of
from nbsketch.tabular.partition import whole
from nbsketch.tabular.problem import Problem
from nbsketch.tabular.scales import SampleError, Scales, best_width

# Rows of the single leaf that choose its penalty: tau is a ratio of variances, which
# does not depend on the number of rows.
_PENALTY_ROWS = 700


def fit_alone(
    problem: Problem, scales: list[Scales]
) -> tuple[None, list[Member], NDArray, NDArray]:
    """Fit each member on all rows; return no base, members and left-out residuals."""
    n, data = len(problem.data.Y), problem.data
    members, residuals = [], []
    some = np.arange(n)
    if n > _PENALTY_ROWS:
        some = np.sort(problem.rng.choice(n, _PENALTY_ROWS, replace=False))
    for start in scales:
        found = SampleError(data, start, [some]).best_penalty()
        found = best_width(data, start, [some], found)
        form = form_of(start.family, found.inverse)
        tree, residual = fit_tree(form, data, whole(n), found.tau, left_out=True)
        members.append(Member(start.family, found.inverse, found.tau, (tree,)))
        residuals.append(np.asarray(residual))
    return None, members, np.stack(residuals), np.arange(n)
