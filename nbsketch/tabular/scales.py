"""Length scales and penalties of the members."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nbsketch._jit.tuning import FAMILIES
from nbsketch.gram import CompiledForm
from nbsketch.gram.dense import upper_triangle
from nbsketch.kernels import LEARNABLE, StationaryKernel
from nbsketch.rows.transform import InputScaler
from nbsketch.tabular.leaves import solve_leaf
from nbsketch.tuning.blocks import learn
from nbsketch.tuning.descent import Budget
from nbsketch.tuning.rows import Rows, Training
from nbsketch.tuning.screening import Selection
from nbsketch.tuning.search import isotropic_start
from nbsketch.tuning.trees import grow
from nbsketch.tuning.tuner import ScaleSearch

SMOOTH = "matern-3/2"
ROUGH = "laplacian"
SMOOTHER = "matern-5/2"
# Up to this many rows there is a single leaf and no base.
ALONE = 1500
# Landmarks for comparing one length scale with many, and features.
_LANDMARKS = 200
# Minimum number of rows for learning length scales.
_LEAST_ROWS = 30
# Logarithms of the factors from the inverse length scales of the smooth kernel to the
# starting points of the rough kernel and of the smoother one.
_NARROW = -1.0
_WIDE = -0.25
# Minimum starting penalty of the search for the rough kernel.
_LEAST_TAU = 1e-4
# Number of rows of the leaf that chooses penalties.
_PENALTY_ROWS = 800
# Number of such leaves for estimating how the error decreases with their size.
_TRIAL_LEAVES = 4
# Large tables have more rows: their search is repeated, and leaves choose the best. A
# single search was unstable: errors of 0.325 to 0.464 for steps of 300,000 rows with
# noise 0.3, now 0.326 to 0.331 (four draws).
LARGE = 65_536
_SMOOTH_SEARCHES = 2
_ROUGH_SEARCHES = 3
# Number of rows of its first searches, with more distant neighbors than all rows.
_SAMPLE = 16_384
# Number of leaves that compare searches and choose penalties there.
_LEAVES = 16
# Bounds of tau.
_TAU_LIMITS = 1e-8, 1e2
# A path ends after a step that lowers the error by less than this share.
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
        Penalty, the start of the search for the penalty of the leaves.
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


class BlockSearch(ScaleSearch):
    """A search on small blocks of rows instead of landmarks."""

    few_columns = 0

    def _may_miss(self, rows: Rows, n_selected: int) -> bool:
        # All rows are used: the choice between few and many columns has no separate
        # rows.
        return False

    def _learned(
        self, rows: Rows, point: NDArray, warm: NDArray | None = None
    ) -> NDArray:
        return learn(preprocessed(rows), rows.family, point, self.rng, self.budget)


def preprocessed(rows: Rows) -> Training:
    """Return all rows, preprocessed, with their standardized targets."""
    return Training(rows.scaler.transform(rows.X), rows.Y, rows.weights, rows.labels)


def learn_scales(
    rows: Rows, rng: np.random.Generator, budget: Budget
) -> tuple[InputScaler, Training, list[Scales]]:
    """Return the preprocessing, preprocessed rows, and kernels with their penalties.

    Length scales of the smooth family are searched, with feature selection if there are
    many; the search for the rough family starts from them (shared length scales: 1.04
    times the error). Up to `ALONE` rows a smoother family uses those of the smooth
    family up to a factor.
    """
    if len(rows.kept) < _LEAST_ROWS:
        rows = rows.without_ranks()
        rough = replace(rows, family=FAMILIES[ROUGH])
        points = [isotropic_start(part, rng) for part in (rows, rough)]
    else:
        scaler, point = _searched(rows, rng, budget)
        rows = replace(rows, scaler=scaler)
        points = [point]
    data = preprocessed(rows)
    is_large = len(data.Y) > LARGE and not budget.is_spent
    if is_large:
        finer = learn(data, FAMILIES[SMOOTH], points[0], rng, budget)
        points = [min(points[0], finer, key=partial(_leaf_error, data, SMOOTH))]
    smooth = Scales.at(SMOOTH, points[0])
    sample = penalty_leaves(data, smooth.inverse, _LEAVES if is_large else 1, rng)
    smooth = best_penalty(data, smooth, sample)
    if len(points) == 1:
        points.append(_rough_point(data, smooth, is_large, rng, budget))
    scales = [smooth, best_penalty(data, Scales.at(ROUGH, points[1]), sample)]
    if len(rows.kept) <= ALONE:
        wide = smooth.inverse * np.exp(_WIDE)
        scales.append(best_penalty(data, Scales(SMOOTHER, wide, smooth.tau), sample))
    return rows.scaler, data, scales


def _rough_point(
    data: Training,
    smooth: Scales,
    is_large: bool,
    rng: np.random.Generator,
    budget: Budget,
) -> NDArray:
    """Return the point of the rough kernel, searched from the scales of the smooth."""
    log_tau = np.log(max(smooth.tau, _LEAST_TAU))
    start = np.append(np.log(smooth.inverse) + _NARROW, log_tau)
    search = partial(learn, data, FAMILIES[ROUGH], start, rng, budget)
    count = _ROUGH_SEARCHES if is_large else 1
    return _best_of(search, count, budget, partial(_leaf_error, data, ROUGH))


def _best_of(
    search: Callable[[], Any], count: int, budget: Budget, error: Callable[[Any], float]
) -> Any:
    """Return the best of some searches, fewer if the budget is spent, at least one."""
    others = (search() for _ in range(1, count) if not budget.is_spent)
    found = [search(), *others]
    return found[0] if len(found) == 1 else min(found, key=error)


def _leaf_error(data: Training, family: str, point: NDArray) -> float:
    """Return the leave-one-out error on some leaves."""
    scales = Scales.at(family, point)
    # Random numbers that are not part of the fit.
    leaves = _drawn_leaves(data, scales, _LEAVES, np.random.default_rng(0))
    return left_out_error(data, scales, leaves)(scales.tau)


def _drawn_leaves(
    data: Training, scales: Scales, count: int, rng: np.random.Generator
) -> list[NDArray]:
    """Return the rows of at most `count` leaves of a tree."""
    tree = grow(data.rows, scales.inverse, _PENALTY_ROWS, rng)
    return list(map(tree.leaf, rng.permutation(tree.n_leaves)[:count]))


def _searched(rows: Rows, rng: np.random.Generator, budget: Budget) -> Selection:
    """Return preprocessing and point of the smooth kernel.

    For a large table, the better of two searches on a part of the rows.
    """
    if len(rows.Y) <= LARGE:
        return _search(rows, rng, budget)

    def error(candidate: Selection) -> float:
        data = preprocessed(replace(part, scaler=candidate.scaler))
        return _leaf_error(data, SMOOTH, candidate.point)

    part = rows.part(np.sort(rng.permutation(len(rows.Y))[:_SAMPLE]))
    search = partial(_search, part, rng, budget)
    return _best_of(search, _SMOOTH_SEARCHES, budget, error)


def _search(rows: Rows, rng: np.random.Generator, budget: Budget) -> Selection:
    """Return preprocessing and point of the smooth kernel."""
    pool, errors, best = BlockSearch("both", _LANDMARKS, rng, budget).search(rows)
    if rows.is_noisy and best is pool["isotropic"]:
        # Ranks double the columns and thus the correction in a comparison: equal length
        # scales were chosen where they were worse (10 of 25 fits, 0.98 of the error
        # without). For classes, whose scales are not learned by evidence, the
        # correction is right (0.85).
        best = pool[min(pool, key=errors.__getitem__)]
    return best


def left_out_error(
    data: Training, scales: Scales, leaves: Iterable[NDArray]
) -> Callable[[float], float]:
    """Return the leave-one-out error of a member on some leaves, for a penalty.

    `leaves` are the rows of each leaf; kernel matrices are computed once. The error is
    the weighted mean square of the residuals, infinite if a matrix is singular.
    """
    parts = [data.take(index) for index in leaves]
    matrices = [upper_triangle(scales.form, part.rows) for part in parts]

    def error(tau: float) -> float:
        total = 0.0
        count = 0.0
        for K, part in zip(matrices, parts, strict=True):
            try:
                residual = solve_leaf(K, part, tau, len(K)).residual
            except np.linalg.LinAlgError:
                return np.inf
            squares = np.square(residual).sum(axis=1)
            w = np.isfinite(squares) * part.weights
            total += w @ np.nan_to_num(squares)
            count += w.sum()
        return total / count if count else np.inf

    return error


def ratio_of_halves(data: Training, scales: Scales, rng: np.random.Generator) -> float:
    """Return the ratio of the leave-one-out errors of leaves and of their halves.

    It estimates how much the error decreases if leaves have twice the rows. One leaf
    has a standard deviation of 0.01 to 0.04, four leaves half of it.
    """
    leaves = _drawn_leaves(data, scales, _TRIAL_LEAVES, rng)
    halves = list[NDArray]()
    for leaf in leaves:
        parts = grow(data.rows[leaf], scales.inverse, -(-len(leaf) // 2), rng)
        halves += [leaf[half] for half in parts.leaves()]
    whole, divided = (
        left_out_error(data, scales, part)(scales.tau) for part in (leaves, halves)
    )
    return float(np.sqrt(whole / divided)) if 0 < divided < np.inf else 1.0


def penalty_leaves(
    data: Training, inverse: NDArray, count: int, rng: np.random.Generator
) -> list[NDArray]:
    """Return the rows of leaves, drawn with replacement, to choose a penalty on."""
    tree = grow(data.rows, inverse, _PENALTY_ROWS, rng)
    return list(map(tree.leaf, rng.integers(tree.n_leaves, size=count)))


def best_penalty(data: Training, scales: Scales, leaves: Iterable[NDArray]) -> Scales:
    """Return the scales with the penalty of the lowest `left_out_error`.

    Penalties change by factors of the square root of 10, starting from the penalty of
    the scales, in the first direction in which the error decreases, while it does.
    """
    error = left_out_error(data, scales, leaves)
    tau = float(np.clip(scales.tau, *_TAU_LIMITS))
    first = error(tau), tau
    best = first
    for factor in (10**0.5, 10**-0.5):
        last = np.inf
        while best[0] < last * (1 - _GAIN):
            last, tau = best
            tau = float(np.clip(tau * factor, *_TAU_LIMITS))
            best = min(best, (error(tau), tau))
        if best is not first:
            break
    return scales._replace(tau=best[1])
