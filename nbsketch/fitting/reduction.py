"""The penalty of a large problem, from a smaller one with the same kernel.

A path of penalties for several levels or classes costs many times the last fit. The
smaller problem has the leading principal components of the features, on some of the
rows. Fewer features and rows need a stronger penalty: how much stronger is what ridge
regression, with a penalty in closed form, finds on both.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nbsketch.fitting.alpha import AlphaPath, held_out, ridge_errors
from nbsketch.solvers.design import ArrayDesign, Design
from nbsketch.solvers.ridge import RidgePath, ridge_path

# Share of the features, and the largest numbers of features and of rows, of the smaller
# problem.
_FEATURES, _MOST_FEATURES, _ROWS = 1 / 3, 200, 8000
# Rows times squared features of the smaller problem that has all features.
_ROWS_WORK = 2.5e9
# Tails of the targets that are cut off for ridge regression, if the loss is robust.
_TAILS = 0.01
# The least ratio of the two penalties.
_LEAST_RATIO = 1e-2


def sampled_alpha(objective: Any, design: Design, rng: np.random.Generator) -> float:
    """Return the penalty on some of the rows, corrected by ridge regression.

    All features are kept, and so many rows that n r^2 is at most 2.5e9, at least 8000.
    """
    most = max(_ROWS, int(_ROWS_WORK / design.shape[1] ** 2))
    return _smaller_alpha(objective, design, rng, design.shape[1], most)


def reduced_alpha(objective: Any, design: Design, rng: np.random.Generator) -> float:
    """Return the penalty of a smaller problem, corrected by ridge regression.

    The minima of the paths are interpolated: the grid is coarse beside the correction,
    which is the ratio of the penalties of least leave-one-out error on all and
    on the smaller features, between 0.01 and 1. With folds all rows are kept.
    """
    return _smaller_alpha(objective, design, rng, _count(design.shape[1]), _ROWS)


def _smaller_alpha(
    objective: Any,
    design: Design,
    rng: np.random.Generator,
    n_features: int,
    most_rows: int,
) -> float:
    whole = _ridge(objective, design)
    leading = whole.vectors[:, -n_features:]
    part, rows = objective, np.arange(design.shape[0])
    if objective.folds is None and len(rows) > most_rows:
        rows = np.sort(rng.choice(rows, most_rows, replace=False))
        part = objective.take(rows)
    smaller = ArrayDesign(design.gather(rows).mv(leading))
    found = _errors(objective, whole, design, rng).interpolated
    ridge = _errors(part, _ridge(part, smaller), smaller, rng).interpolated
    ratio = min(1.0, max(_LEAST_RATIO, found / ridge))
    guess = ridge * part.slope_ratio()
    return ratio * held_out(part, smaller, None, rng, guess).interpolated


def _count(rank: int) -> int:
    return max(1, min(_MOST_FEATURES, round(_FEATURES * rank)))


def _ridge(objective: Any, design: Design) -> RidgePath:
    known = {"sample_weight": objective.weights}
    Y, intercept = without_tails(objective), objective.fit_intercept
    return ridge_path(design, Y, fit_intercept=intercept, **known)


def _errors(
    objective: Any, path: RidgePath, design: Design, rng: np.random.Generator
) -> AlphaPath:
    cut = replace(objective, targets=without_tails(objective))
    return ridge_errors(cut, path, design, None, rng)


def without_tails(objective: Any) -> NDArray:
    """Return the targets, without outliers if the loss is robust to them."""
    Y = objective.targets
    if not objective.is_robust:
        return Y
    return np.clip(Y, *np.quantile(Y, [_TAILS, 1 - _TAILS], axis=0))
