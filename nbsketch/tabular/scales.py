"""Length scales of the members: global searches, and rounds within single leaves."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nbsketch._jit.tuning import FAMILIES
from nbsketch.gram import CompiledForm
from nbsketch.gram.dense import upper_triangle
from nbsketch.kernels import LEARNABLE, StationaryKernel
from nbsketch.rows.transform import InputScaler
from nbsketch.tabular.leaves import pooled_error
from nbsketch.tabular.problem import Training
from nbsketch.tuning.descent import Budget
from nbsketch.tuning.rows import Rows
from nbsketch.tuning.search import Descents, isotropic_start, spread_start
from nbsketch.tuning.tuner import ScaleSearch

SMOOTH = "matern-3/2"
ROUGH = "laplacian"
SMOOTHER = "matern-5/2"
# A single leaf of all rows, without a base, up to this many rows.
ALONE = 1500
# Size for which the global search is meant: without a last round.
_SEARCH_SIZE = 200
# Length scales cannot be learned from fewer rows.
_LEAST_ROWS = 30
# The first tau within a leaf.
_TAU = 0.02
# Rows that choose the width of shared length scales, the logarithms tried for each
# family, and penalties.
_SHARED_ROWS = 700
_SHARED_WIDTHS = {ROUGH: (-1.6, -1.0, -0.5, 0.0), SMOOTHER: (-1.0, -0.5, 0.0, 0.5)}
_SHARED_TAUS = (0.001, 0.01, 0.1)
# The limits of tau.
_TAU_LIMITS = 1e-8, 1e2
# A step of a ladder that lowers the error by less than this share is the last.
_GAIN = 1e-4


def kernel_of(family: str, scales: NDArray) -> StationaryKernel:
    """Return the kernel with inverse length scales."""
    return replace(LEARNABLE[family], bandwidth=tuple((1 / scales).tolist()))


def form_of(family: str, scales: NDArray) -> CompiledForm:
    """Return the compiled form of a kernel with inverse length scales."""
    form = replace(LEARNABLE[family], bandwidth=1.0).compiled_form(len(scales))
    return replace(form, scale=form.scale * scales)


class Scales(NamedTuple):
    """A kernel family, inverse length scales, and the penalty learned with them.

    Attributes
    ----------
    family : str
        Key of `nbsketch.kernels.LEARNABLE`.
    inverse : ndarray of shape (p,)
        Inverse length scales of the columns.
    tau : float
        Penalty, from which that of the leaves is searched.
    """

    family: str
    inverse: NDArray
    tau: float

    @classmethod
    def at(cls, family: str, point: NDArray) -> Scales:
        """Return the scales at a point of a search."""
        return cls(family, np.exp(point[:-1]), float(np.exp(point[-1])))

    @property
    def form(self) -> CompiledForm:
        """The compiled form of the kernel."""
        return form_of(self.family, self.inverse)


def learn_scales(
    rows: Rows, rng: np.random.Generator, budget: Budget
) -> tuple[InputScaler, list[Scales]]:
    """Return the preprocessing, and the scales of the members.

    Those of the smooth family are searched, with the selection of features among many.
    The rough one (what it gains: see `Member`) takes the same up to a factor or, up to
    `ALONE` rows, those of a search of its own if they are better, as with gross errors
    in the features. Up to so many rows a smoother family takes those of the smooth one,
    up to a factor (0.97 of the error, where there is hardly any noise 0.89).
    """
    if len(rows.kept) < _LEAST_ROWS:
        return _isotropic(rows, rng)
    search = ScaleSearch(FAMILIES[SMOOTH], "both", _SEARCH_SIZE, rng, budget)
    pool = search.candidates(rows)
    errors, best = search.choose(rows, pool)
    if rows.is_noisy and best is pool["isotropic"]:
        # Ranks double the columns, and with them the correction of a comparison: one
        # length scale for all won where it was worse (10 of 25 fits, .98 of the error
        # without). For classes, whose scales have no evidence, it is right (.85).
        best = pool[min(pool, key=lambda name: errors[name])]
    rows = replace(rows, scaler=best.scaler)
    smooth = Scales.at(SMOOTH, best.point)
    if len(rows.kept) > ALONE:
        return rows.scaler, [smooth, _shared(rows, ROUGH, smooth, rng)]
    searched = _searched(rows, ROUGH, rng, budget)
    others = [(ROUGH, searched), (SMOOTHER, None)]
    shared = [_shared(rows, family, smooth, rng, own) for family, own in others]
    return rows.scaler, [smooth, *shared]


def _isotropic(
    rows: Rows, rng: np.random.Generator
) -> tuple[InputScaler, list[Scales]]:
    plain = rows.without_ranks()
    points = [(f, isotropic_start(plain, FAMILIES[f], rng)) for f in (SMOOTH, ROUGH)]
    return plain.scaler, [Scales.at(f, point) for f, point in points]


def _searched(
    rows: Rows, family: str, rng: np.random.Generator, budget: Budget
) -> Scales:
    """Return the scales of a search from the best one for all columns of `rows`."""
    code = FAMILIES[family]
    isotropic = isotropic_start(rows.without_ranks(), code, rng)
    start = spread_start(isotropic, len(rows.scaler.center), code)
    return Scales.at(family, Descents(rows, code, rng, budget).learn(start))


def _shared(
    rows: Rows,
    family: str,
    smooth: Scales,
    rng: np.random.Generator,
    own: Scales | None = None,
) -> Scales:
    """Return a family with the scales of the smooth one up to a factor, or its own.

    They and the penalty have the least exact left-out error on a sample.
    """
    data = Training.of(rows, rows.draw(rng, _SHARED_ROWS))
    every = [np.arange(len(data.Y))]
    tried = list[tuple[float, Scales]]()
    candidates = [smooth.inverse * np.exp(width) for width in _SHARED_WIDTHS[family]]
    candidates += [] if own is None else [own.inverse]
    for inverse in candidates:
        scales = Scales(family, inverse, _TAU)
        error = left_out_error(data, scales, every)
        tried += [(error(tau), scales._replace(tau=tau)) for tau in _SHARED_TAUS]
    return min(tried, key=lambda pair: pair[0])[1]


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
    for index in leaves:
        sample = rows.keep(np.sort(index), np.inf)
        point = Descents(sample, code, rng, budget).polish(point)
    return Scales.at(scales.family, point)


def left_out_error(
    data: Training, scales: Scales, leaves: Iterable[NDArray]
) -> Callable[[float], float]:
    """Return the left-out error of a member, pooled over some leaves, of a penalty.

    `leaves` are the rows of each; kernel matrices are computed once.
    """
    taken = [data.take(index) for index in leaves]
    pairs = [(upper_triangle(scales.form, part.rows), part) for part in taken]
    return partial(pooled_error, pairs)


def best_penalty(
    data: Training, scales: Scales, leaves: Iterable[NDArray], near: float | None = None
) -> tuple[float, Scales]:
    """Return the least error of `left_out_error`, and the scales with its penalty.

    A ladder in factors of the square root of 10 is walked to the better side while the
    error falls, from the penalty `near` or, by default, from that of the scales.
    """
    error, (low, high) = left_out_error(data, scales, leaves), _TAU_LIMITS
    tau = float(np.clip(near or scales.tau, low, high))
    best = (error(tau), tau)
    sides = [tau * 10**-0.5, tau * 10**0.5]
    value, tau = min((error(t), t) for t in np.clip(sides, low, high).tolist())
    factor = tau / best[1]
    while value < best[0] * (1 - _GAIN) and low <= tau * factor <= high:
        best = (value, tau)
        tau = tau * factor
        value = error(tau)
    least, tau = min(best, (value, tau))
    return least, scales._replace(tau=tau)
