"""Fit of the tabular model: gross errors, length scales, base, members, stack."""

from dataclasses import replace
from itertools import compress
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nbsketch._machine.blas import one_thread
from nbsketch._report.progress import report, seconds_left
from nbsketch.fitting.sketched import report_search
from nbsketch.losses import (
    EpsilonInsensitiveLoss,
    LogLinkLoss,
    Loss,
    PinballLoss,
    SquareLoss,
)
from nbsketch.rows.transform import fit_scaler
from nbsketch.solvers.left_out import OrderEffect
from nbsketch.tabular.machine import Machine, Member, stack_weights
from nbsketch.tabular.members import fit_on_tree
from nbsketch.tabular.ridge import VALIDATION, Ridge, table_order
from nbsketch.tabular.scales import ALONE, Scales, learn_scales, ratio_of_halves
from nbsketch.tabular.suspects import Suspects, gross_errors
from nbsketch.tabular.working import (
    WorkingLoss,
    reweighted,
    stacked,
    start,
    working_loss,
)
from nbsketch.tuning.descent import Budget
from nbsketch.tuning.rows import Rows, Training

# Maximum rows of a leaf, and of a leaf if the error still decreases with the rows.
TREE_ROWS = 1600
LARGER_ROWS = 4000
# Leaves are larger if doubling the rows reaches this ratio of leave-one-out errors:
# 0.80 to 0.97 of the log loss on letters, blobs and churn (4000 rows), at 1.1 to 1.5
# times the time; noisy tables have ratios of 0.98 to 1 and keep small leaves.
_FALL = 0.97
# Approximate seconds per row in a larger leaf, for a time limit.
_LARGER_SECONDS = 1e-3
# Number of landmarks of the base.
_LANDMARKS = 300
# Members on leaves are dropped if the leave-one-out error increases by at most this
# share: 0.36 of the time of predictions, 0.998 of the error (52 fits of 21 held-out
# tables, 0.972 to 1.011). Not for classes (log loss up to 1.039), and not for a single
# leaf of few rows, which predicts fast (1.006 of the error).
_SPARED = 5e-4
# With fewer rows, gross errors cannot be detected.
_LEAST_ROWS = 50
# Maximum iterations of all searches together; rounds usually end earlier.
_ITERATIONS = 10**6
# Share of the time limit for searches.
_SEARCHED = 0.5
SQUARE: Loss = SquareLoss()
# Extreme targets with less total weight, in mean rows, do not set the limits.
_LEAST_WEIGHT = 1e-6


class LeftOutRows(NamedTuple):
    """Leave-one-out residuals of a model.

    Attributes
    ----------
    drawn : ndarray of int of shape (m,)
        Training rows of the residuals.
    residual : ndarray of shape (m, d)
        Residuals, in units of the targets or of their link.
    kept : ndarray of int
        Rows without gross errors.
    order : OrderEffect or None
        Errors of leaving blocks of rows out. None: the fit left blocks out.
    work : WorkingLoss
        The loss at the targets of `drawn`, in their unit, with their sample weights.
    suspects : Suspects
        Rows that look like gross errors.
    unit : float
        Unit of the targets of `work`: see `unit_of`.
    """

    drawn: NDArray
    residual: NDArray
    kept: NDArray
    order: OrderEffect | None
    work: WorkingLoss
    suspects: Suspects
    unit: float


def fit_machine(
    data: Training,
    rng: np.random.Generator,
    *,
    robust: bool = False,
    loss: Loss | None = SQUARE,
) -> tuple[Machine, LeftOutRows]:
    """Fit encoded rows (n, q) and targets (n, d).

    Weights have mean one; labels are blocks of rows that are left out together.
    `robust`: exclude rows with gross errors in the targets. `loss`: None is the Huber
    loss with a threshold estimated from the data; other losses than the square loss are
    fitted by working responses. The result does not depend on the number of threads:
    leaves are solved in parallel, and BLAS has one thread.
    """
    with one_thread():
        scaler = fit_scaler(data.rows, "both", rng, weights=data.weights)
        unit = unit_of(loss, data)
        Y = data.Y if loss is None else loss.link(data.Y / unit)
        every = np.arange(len(Y))
        rows = Rows(data.rows, Y, data.weights, scaler, every, labels=data.labels)
        suspects = Suspects(every[:0])
        if robust and len(Y) >= _LEAST_ROWS:
            suspects = gross_errors(rows, loss, rng)
        kept = every if suspects.reason else np.delete(every, suspects.rows)
        if len(kept) < len(every):
            rows = rows.part(kept)
            rows = replace(rows, weights=rows.weights / rows.weights.mean())
        if isinstance(loss, PinballLoss):  # uses the error distribution around medians
            loss = EpsilonInsensitiveLoss(0.0)
        budget = Budget(_ITERATIONS, _SEARCHED * seconds_left(), report_search)
        log_unit = np.log(unit)
        machine, used, residual, order, work = _fit(rows, loss, rng, budget, log_unit)
    return machine, LeftOutRows(kept[used], residual, kept, order, work, suspects, unit)


def unit_of(loss: Loss | None, data: Training) -> float:
    """Return the mean of the targets for a loss of means, to keep their digits."""
    if not isinstance(loss, LogLinkLoss):
        return 1.0
    loss.link(data.Y)  # names targets out of range
    return float(np.average(data.Y, axis=0, weights=data.weights)[0])


def _fit(
    rows: Rows,
    loss: Loss | None,
    rng: np.random.Generator,
    budget: Budget,
    log_unit: float,
) -> tuple[Machine, NDArray, NDArray, OrderEffect | None, WorkingLoss]:
    """Fit targets, for other losses than the square loss by working responses.

    Return the machine, whose predictions are moved by `log_unit`, and, at some rows,
    leave-one-out residuals, the effect of the order and the loss.
    """
    targets = rows.Y
    if loss != SQUARE:
        rows = replace(rows, Y=start(rows, loss))
    rows, center, spread = rows.standardized()
    spread = np.where(np.isfinite(spread), spread, 1.0)
    scaler, data, scales = learn_scales(rows, rng, budget)
    used = _affordable(data, scales, rng)
    data = data.take(used)
    ends = least(targets, rows.weights), -least(-targets, rows.weights)
    work = working_loss(loss, targets[used], data.weights, ends)
    if loss != SQUARE:
        units = center, spread
        work, data, scales = reweighted(data, work, scales, TREE_ROWS, units, rng)
    members, residuals, index = _members(data, scales, rng)
    work = work.take(index)
    if loss == SQUARE:
        tolerance = _SPARED if rows.is_noisy and len(used) > ALONE else 0.0
        stack = stack_weights(residuals, work.weights, tolerance)
        residual = spread * np.einsum("k,kmd->md", stack, residuals)
    else:
        stack, residual = stacked(work, center + spread * (data.Y[index] - residuals))
    in_stack = stack > 0
    in_stack[0] = True  # it provides the length scales of the model
    machine = Machine(
        scaler=scaler,
        low=rows.X.min(axis=0),
        high=rows.X.max(axis=0),
        center=center + log_unit,
        spread=spread,
        y_low=work.low + log_unit,
        y_high=work.high + log_unit,
        rows=data.rows,
        members=tuple(compress(members, in_stack)),
        weights=stack[in_stack],
    )
    order = None if data.labels is not None else table_order(machine.scales, data)
    return machine, used[index], residual, order, work


def least(Y: NDArray, weights: NDArray) -> NDArray:
    """Return the smallest value of each column, without extremes of tiny weight.

    `weights` have mean one.
    """
    order = np.argsort(Y, axis=0)
    first = (np.cumsum(weights[order], axis=0) >= _LEAST_WEIGHT).argmax(axis=0)
    return np.take_along_axis(Y, order, axis=0)[first, np.arange(Y.shape[1])]


def _affordable(
    data: Training, scales: list[Scales], rng: np.random.Generator
) -> NDArray:
    """Return the rows for base and leaves that fit the remaining time.

    Their number is estimated from the time of one leaf. Without a time limit it is all
    rows; at least the rows of one leaf.
    """
    n = len(data.Y)
    if not np.isfinite(seconds_left()) or n <= TREE_ROWS:
        return np.arange(n)
    trial = np.random.default_rng(0)  # not part of the fit
    sample = data.take(trial.permutation(n)[:TREE_ROWS])
    before = seconds_left()
    fit_on_tree(sample, scales[-1], TREE_ROWS, trial, False)
    left = seconds_left()
    seconds = max(before - left, 1e-9) * (len(scales) + 1)
    count = int(np.clip(TREE_ROWS * left / seconds, TREE_ROWS, n))
    return np.arange(n) if count == n else np.sort(rng.permutation(n)[:count])


def _members(
    data: Training, scales: list[Scales], rng: np.random.Generator
) -> tuple[list[Member], NDArray, NDArray]:
    """Fit the members; return them with leave-one-out residuals and their rows.

    Up to `ALONE` rows there is a single leaf; otherwise members on leaves are fitted in
    addition to a base. If there are enough rows, those of the residuals are no
    landmarks: the base is not smooth at landmarks, where leaves have larger errors than
    at new rows.
    """
    n = len(data.Y)
    index = np.arange(n)
    members = list[Member]()
    residuals = list[NDArray]()
    has_base = n > ALONE
    if has_base:
        drawn = rng.permutation(n)
        others = drawn[_LANDMARKS:] if n >= 2 * _LANDMARKS else drawn
        landmarks = np.sort(drawn[:_LANDMARKS])
        index = np.sort(others[:VALIDATION])
        base, residual = Ridge(scales[0].inverse, data, landmarks, index).fit()
        members.append(base)
        residuals.append(residual)
    left_out = np.isin(np.arange(n), index)
    for kernel in scales:
        largest = _leaf_rows(data, kernel)
        leaves, residual = fit_on_tree(data, kernel, largest, rng, left_out)
        members.append(leaves)
        residuals.append(residual[index])
        if has_base:
            report("leaves", iteration=len(members) - 1, total=len(scales))
    return members, np.stack(residuals), index


def _leaf_rows(data: Training, scales: Scales) -> int:
    """Return the maximum number of rows of a leaf."""
    n = len(data.Y)
    if n <= TREE_ROWS or seconds_left() < _LARGER_SECONDS * n:
        return TREE_ROWS
    trial = np.random.default_rng(0)  # not part of the fit
    return LARGER_ROWS if ratio_of_halves(data, scales, trial) < _FALL else TREE_ROWS
