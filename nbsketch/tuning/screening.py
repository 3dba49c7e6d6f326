"""Selection of the features that matter among many, before length scales are learned.

Gradients of a fit on hundreds of features are noise: a search for length scales needs a
start that knows which features matter. In stages, the features with significant
`evidence` on the residuals are added, a small ridge is fitted to the added features
alone, and its leave-one-out residuals are tested in the next stage; until no feature is
significant or the leave-one-out error does not fall. Main effects and interactions of
order two are found, and effects of any order that change the variance given one
feature; a parity of three binary features is not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from nbsketch.tuning.bases import rank_basis
from nbsketch.tuning.blocked import criterion_of
from nbsketch.tuning.descent import Budget
from nbsketch.tuning.evidence import Evidence, evidence
from nbsketch.tuning.inputs import InputScaler
from nbsketch.tuning.rows import Rows
from nbsketch.tuning.search import NEAR, SHORT, isotropic_start, learn_briefly, settle

# Most rows of the tests, and of their number times the number of features.
_ROWS, _LEAST_ROWS, _CELLS = 3000, 300, 16_000_000
# Functions of each feature.
_FUNCTIONS = 6
# Evidence that is significant: 2 % for all tests of a kind together.
_SIGNIFICANT = -np.log(0.02)
_STAGES = 8
# Features added in one stage: at most as many as before, or this number.
_FEW = 8
# Features more correlated than this are not added in the same stage.
_ALIKE = 0.5
# Largest share of the rows, and number, of features.
_SHARE, _MOST = 10, 150
# Landmarks of the residuals of a stage.
_LANDMARKS = 200


@dataclass(frozen=True)
class Selection:
    """Selected features and a point from which to learn their length scales."""

    scaler: InputScaler
    point: NDArray  # log inverse length scales of its columns, log tau

    @property
    def features(self) -> NDArray:
        """Ascending indices of the selected features."""
        return np.unique(self.scaler.features)

    def rescaled(self, scaler: InputScaler) -> Selection:
        """Return the selection for another scaler of the same features.

        A feature that gains or loses a column keeps its relevance, the sum of the
        squared inverse length scales of its columns.
        """
        n = self.scaler.n_features
        squares = np.bincount(self.scaler.features, np.exp(2 * self.point[:-1]), n)
        parts = np.bincount(scaler.features, minlength=n)
        known = parts == np.bincount(self.scaler.features, minlength=n)
        shared = np.log(squares[scaler.features] / parts[scaler.features]) / 2
        values = _carry(self, scaler, shared, known[scaler.features])
        return Selection(scaler, np.append(values, self.point[-1]))


def screen(
    rows: Rows, family: int, rng: np.random.Generator, budget: Callable[[int], Budget]
) -> Selection | None:
    """Return the selected features; None if no feature is significant.

    Parameters
    ----------
    rows : Rows
        Rows, with a scaler of all features.
    family : int
        Code of the kernel family.
    rng : Generator
        Source of the draws of rows.
    budget : callable
        ``budget(iterations)`` returns the budget of one stage.
    """
    drawn = rows.draw(rng, _n_tested(rows))
    basis = rank_basis(rows.X[drawn].astype(np.float64), _FUNCTIONS)
    weights = None if rows.weights is None else rows.weights[drawn]
    most = max(min(len(rows.kept) // _SHARE, _MOST), _FEW)
    found, residuals, least = None, rows.Y[drawn], np.inf
    for _ in range(_STAGES):
        known: list[int] = [] if found is None else found.features.tolist()
        tested = evidence(basis, residuals, weights)
        new = _significant(tested, basis[0], known)[: most - len(known)]
        if not new:
            break
        proposed = _fitted(rows, found, known + new, family, rng, budget)
        sample = replace(rows, scaler=proposed.scaler).take(drawn, _LANDMARKS)
        value, point = settle(sample, family, proposed.point, NEAR)
        # Akaike's correction for the noise that each new length scale fits.
        if value + 2 * len(new) / len(drawn) >= least:
            break
        found, least = Selection(proposed.scaler, point), value
        residuals = criterion_of(sample, family).residuals(point)
    return found


def _n_tested(rows: Rows) -> int:
    return int(np.clip(_CELLS // rows.X.shape[1], _LEAST_ROWS, _ROWS))


def _significant(tested: Evidence, first: NDArray, known: list[int]) -> list[int]:
    """Return the features to add, in order of their evidence.

    The partner of an interaction is added with it. Of features that are alike, by the
    correlation of their first functions (q, m), the best is added.
    """
    new: list[int] = []
    most, m = max(_FEW, len(known)), first.shape[1]
    for k in np.argsort(-tested.best, kind="stable"):
        if tested.best[k] < _SIGNIFICANT or len(new) >= most:
            break
        is_pair = tested.pair[k] > tested.single[k]
        group = [int(k), int(tested.partner[k])] if is_pair else [int(k)]
        group = [j for j in group if j not in known and j not in new]
        alike = np.abs(first[group] @ first[new].T) / m
        if alike.max(initial=0) <= _ALIKE:
            new += group
    return new


def _fitted(
    rows: Rows,
    before: Selection | None,
    features: list[int],
    family: int,
    rng: np.random.Generator,
    budget: Callable[[int], Budget],
) -> Selection:
    """Return features with length scales from a short search on them alone.

    It starts from one length scale for all if at most half of the features are known,
    else from the length scales before; new ones start at a large relevance.
    """
    scaler = rows.scaler.select(features)
    few = replace(rows, scaler=scaler)
    if before is None or 2 * len(before.features) <= len(features):
        point = isotropic_start(few, family, rng)
    else:
        columns = before.point[:-1]
        upper = np.sort(columns)[-max(len(before.point) // 4, 1)]
        new = np.full(len(scaler.features), upper)
        point = np.append(_carry(before, scaler, new), before.point[-1])
    point = learn_briefly(few, point, rng, budget(SHORT.iterations), family)
    return Selection(scaler, point)


def _carry(
    before: Selection, scaler: InputScaler, values: NDArray, kept: NDArray | None = None
) -> NDArray:
    """Return values for the columns of a scaler, replaced where they were known."""
    known = dict(zip(_columns(before.scaler), before.point[:-1], strict=True))
    columns = _columns(scaler)
    kept = np.ones(len(columns), dtype=bool) if kept is None else kept
    return np.array(
        [
            known.get(column, value) if keep else value
            for column, value, keep in zip(columns, values, kept, strict=True)
        ]
    )


def _columns(scaler: InputScaler) -> list[tuple[int, bool]]:
    """Return the feature of each column, and whether the column holds ranks."""
    plain = [(int(k), False) for k in scaler.plain]
    return plain + [(int(k), True) for k in scaler.ranked]
