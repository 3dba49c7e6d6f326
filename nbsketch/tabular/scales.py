"""Length scales of the members: global searches, and rounds within single leaves."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nbsketch._blas import one_thread
from nbsketch._jit.tuning import FAMILIES
from nbsketch.gram import evaluate
from nbsketch.tabular.efforts import ALONE, LEAF_ROWS, Effort
from nbsketch.tabular.leaves import error_path, matrix_error, pooled_error
from nbsketch.tabular.limit import TimeLimit
from nbsketch.tabular.members import Training, form_of
from nbsketch.tabular.partition import Partition
from nbsketch.tuning import InputScaler
from nbsketch.tuning.rows import Rows
from nbsketch.tuning.search import (
    ROUNDS,
    Budget,
    Round,
    isotropic_start,
    learn,
    spread_start,
)
from nbsketch.tuning.tuner import Search

SMOOTH, ROUGH = "matern-3/2", "laplacian"
# With more rows, a search less: each takes longer and varies less.
_FEW = 600
# Length scales cannot be learned from fewer rows.
_LEAST_ROWS = 30
# A round within a leaf.
_WITHIN = Round(LEAF_ROWS, 300, 5)
_TAU = 0.02
# Rows that choose the width of shared length scales, and the logarithms tried.
_SHARED_ROWS = 700
_SHARED_WIDTHS = (-1.6, -1.0, -0.5, 0.0)
_SHARED_TAUS = (0.01, 0.1)
# Logarithms of the widths of a member, and the limits of tau.
_WIDTHS = (-0.4, 0.4)
_TAUS = np.logspace(-8, 2, 31)
_START = 1e-2
# A step of a ladder that lowers the error by less than this share is the last.
_GAIN = 1e-4


class Scales(NamedTuple):
    """A kernel family and the inverse length scales (p,) of the columns."""

    family: str
    inverse: NDArray


def learn_scales(
    rows: Rows, effort: Effort, rng: np.random.Generator, budget: TimeLimit
) -> tuple[InputScaler, list[Scales]]:
    """Return the preprocessing, and the scales of the members.

    The smooth family is searched first, with the selection of features among many; the
    others use its columns.
    """
    with one_thread():
        if len(rows.kept) < _LEAST_ROWS:
            return _isotropic(rows, rng)
        size = budget.affordable(effort).search_size
        search = Search(FAMILIES[SMOOTH], "both", size, rng, budget)
        _, found = search.choose(rows, *search.candidates(rows))
        rows = replace(rows, scaler=found.scaler)
        members = [Scales(SMOOTH, np.exp(found.point[:-1]))]
        if len(rows.kept) <= ALONE:
            members += _searched_again(rows, effort, rng, budget)
        elif budget.affordable(effort).is_shared:
            budget.skipped += not effort.is_shared
            members.append(Scales(ROUGH, _shared(rows, members[0].inverse, rng)))
        else:
            start = _start(rows, ROUGH, rng)
            members.append(_searched(rows, ROUGH, start, rng, budget))
    return found.scaler, members


def _isotropic(
    rows: Rows, rng: np.random.Generator
) -> tuple[InputScaler, list[Scales]]:
    plain = rows.scaler.without_ranks()
    rows = replace(rows, scaler=plain)
    points = [(f, isotropic_start(rows, FAMILIES[f], rng)) for f in (SMOOTH, ROUGH)]
    return plain, [Scales(f, np.exp(point[:-1])) for f, point in points]


def _searched_again(
    rows: Rows, effort: Effort, rng: np.random.Generator, budget: TimeLimit
) -> list[Scales]:
    """Return the scales of further searches, all but the first of the smooth family."""
    count = effort.searches - (len(rows.kept) > _FEW)
    starts = {f: _start(rows, f, rng) for f in (ROUGH, SMOOTH)}
    families = ([ROUGH, SMOOTH] * max(count, 1))[:-1]
    found = list[Scales]()
    for family in families:
        if found and budget.is_over():
            break
        found.append(_searched(rows, family, starts[family], rng, budget))
    budget.skipped += len(families) - len(found)
    return found


def _start(rows: Rows, family: str, rng: np.random.Generator) -> NDArray:
    """Return the best point with one length scale for all columns of `rows`."""
    code, scaler = FAMILIES[family], rows.scaler
    plain = scaler.without_ranks() if scaler.plain.size else scaler
    isotropic = isotropic_start(replace(rows, scaler=plain), code, rng)
    return spread_start(isotropic, len(scaler.center), code)


def _searched(
    rows: Rows,
    family: str,
    start: NDArray,
    rng: np.random.Generator,
    budget: Budget,
) -> Scales:
    """Return the scales of a search with fresh samples on the columns of `rows`."""
    point = learn(rows, start, ROUNDS, rng, budget, FAMILIES[family])
    return Scales(family, np.exp(point[:-1]))


def _shared(rows: Rows, inverse: NDArray, rng: np.random.Generator) -> NDArray:
    """Return the scales for the rough family, up to a factor those of the smooth one.

    The factor has the least exact left-out error on a sample.
    """
    drawn = rows.draw(rng, _SHARED_ROWS)
    data = _training(rows, rows.transform(drawn), drawn)
    leaves = [data.take(np.arange(len(drawn)))]

    def error(width: float) -> float:
        form = form_of(ROUGH, inverse * np.exp(width))
        return min(pooled_error(form, leaves, tau) for tau in _SHARED_TAUS)

    return inverse * np.exp(min(_SHARED_WIDTHS, key=error))


def _training(rows: Rows, Z: NDArray, index: NDArray) -> Training:
    weights = None if rows.weights is None else rows.weights[index]
    labels = None if rows.labels is None else rows.labels[index]
    return Training(Z, rows.Y[index], weights, labels)


def learn_within(
    rows: Rows,
    scales: Scales,
    leaves: Iterable[NDArray],
    rng: np.random.Generator,
    budget: Budget,
) -> Scales:
    """Return the scales after a round of the search in each of some leaves."""
    point = np.append(np.log(scales.inverse), np.log(_TAU))
    code = FAMILIES[scales.family]
    with one_thread():
        for index in leaves:
            some = rows.keep(np.sort(index), np.inf)
            point = learn(some, point, [_WITHIN], rng, budget, code)
    return scales._replace(inverse=np.exp(point[:-1]))


class Fitted(NamedTuple):
    """Left-out error, penalty and inverse length scales of a member."""

    error: float
    tau: float
    inverse: NDArray


class SampleError:
    """Left-out error of a member, pooled over some leaves, as a function of tau.

    Kernel matrices and errors are computed once.

    Parameters
    ----------
    data : Training
        Rows and targets.
    scales : Scales
        Kernel and inverse length scales.
    leaves : list of ndarray of int
        Rows of each leaf.
    """

    def __init__(self, data: Training, scales: Scales, leaves: list[NDArray]) -> None:
        self._form, self._inverse = form_of(*scales), scales.inverse
        self._taken = [data.take(index) for index in leaves]
        self._known: dict[float, float] = {}

    @cached_property
    def _matrices(self) -> list[NDArray]:
        return [evaluate(self._form, taken[0], taken[0]) for taken in self._taken]

    def __call__(self, tau: float) -> float:
        """Return the error for a penalty."""
        if tau not in self._known:
            with one_thread():
                pairs = zip(self._matrices, self._taken, strict=True)
                self._known[tau] = matrix_error(pairs, tau)
        return self._known[tau]

    def best_penalty(self, near: float | None = None) -> Fitted:
        """Return the penalty of least error; see the function of this name."""
        if len(self._taken) == 1 and self._taken[0][3] is None:
            rows, Y, weights, _ = self._taken[0]
            with one_thread():
                errors = error_path(self._form, rows, Y, _TAUS, weights)
            best = int(np.argmin(errors))
            return Fitted(float(errors[best]), float(_TAUS[best]), self._inverse)
        start = _START if near is None else near
        found = self(start), start
        if near is None:
            found = _descend(self, found, 10.0)
        found = _descend(self, found, 10**0.5)
        return Fitted(*found, self._inverse)


def best_penalty(data: Training, scales: Scales, leaves: list[NDArray]) -> Fitted:
    """Return the penalty of least left-out error, pooled over some leaves.

    A single leaf without blocks has its error for all penalties by one
    eigendecomposition; otherwise a ladder is walked, in factors of 10, then of 3, or of
    3 alone from a penalty that is near the best.
    """
    return SampleError(data, scales, leaves).best_penalty()


def best_width(
    data: Training, scales: Scales, leaves: list[NDArray], found: Fitted
) -> Fitted:
    """Return a fit with scales multiplied by the best common factor."""
    for width in _WIDTHS:
        wider = scales._replace(inverse=scales.inverse * np.exp(width))
        error = SampleError(data, wider, leaves)
        if error(found.tau) < found.error * (1 - _GAIN):
            return error.best_penalty(found.tau)
    return found


def _descend(
    error: Callable[[float], float], best: tuple[float, float], step: float
) -> tuple[float, float]:
    """Walk down a ladder of penalties, first down then up, while the error falls."""
    start = best[1]
    for factor in (1 / step, step):
        tau = start
        while _TAUS[0] < tau * factor < _TAUS[-1]:
            tau *= factor
            value = error(tau)
            if not value < best[0] * (1 - _GAIN):
                break
            best = value, tau
        if best[1] != start:
            break
    return best


def sampled_leaves(
    partition: Partition, count: int, rng: np.random.Generator
) -> list[NDArray]:
    """Return the rows of some leaves, drawn at random."""
    drawn = rng.permutation(partition.n_leaves)[:count]
    return [partition.leaf(int(i)) for i in drawn]
