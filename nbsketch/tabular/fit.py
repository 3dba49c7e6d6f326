"""The fit of a machine: gross errors, length scales, base and members, stack."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nbsketch._machine.blas import one_thread
from nbsketch._report.progress import is_asked, is_watched, report, seconds_left
from nbsketch.losses import (
    EpsilonInsensitiveLoss,
    LogLinkLoss,
    Loss,
    PinballLoss,
    SquareLoss,
)
from nbsketch.rows.transform import fit_scaler
from nbsketch.solvers.left_out import OrderEffect
from nbsketch.tabular.machine import Machine, stack_weights
from nbsketch.tabular.members import fit_on_tree
from nbsketch.tabular.noise import Suspects, gross_errors
from nbsketch.tabular.problem import Member
from nbsketch.tabular.ridge import VALIDATION, Ridge, table_order
from nbsketch.tabular.scales import (
    ALONE,
    Scales,
    learn_scales,
    preprocessed,
    ratio_of_halves,
)
from nbsketch.tabular.working import (
    WorkingLoss,
    gross_errors_of_any_share,
    is_robust,
    reweighted,
    stacked,
    start,
    working_loss,
)
from nbsketch.tuning.descent import Budget
from nbsketch.tuning.rows import Rows, Training, at_rows, moments_of

# The largest leaf of a tree, and of one whose error still falls with the rows.
TREE_ROWS = 1600
LARGER_ROWS = 4000
# Leaves are larger if this ratio of left-out errors is reached by twice the rows: 0.80
# to 0.97 of the log loss on letters, blobs and churn (4000 rows), at 1.1 to 1.5 times
# the time; noisy tables have ratios of 0.98 to 1 and keep small leaves.
_FALL = 0.97
# Rough seconds of a row in a larger leaf, for a limited time.
_LARGER_SECONDS = 1e-3
# Landmarks of the base.
_LANDMARKS = 300
# Members on leaves are left out if the left-out error rises by at most this share: .36
# of the time of predictions, .998 of the error (52 fits of 21 tables that nothing was
# chosen on, .972 to 1.011). Not for classes (log loss up to 1.039), and not where a
# single leaf of few rows predicts fast (1.006 of the error).
_SPARED = 5e-4
# Fewer rows have no gross errors that could be told.
_LEAST_ROWS = 50
# Iterations of all searches together: rounds end them before.
_ITERATIONS = 10**6
# Share of a limited time that searches may take.
_SEARCHED = 0.5
SQUARE: Loss = SquareLoss()
# Extreme targets of less weight together, in mean rows, do not set these limits.
_LEAST_WEIGHT = 1e-6


class LeftOutRows(NamedTuple):
    """Left-out residuals of a machine.

    Attributes
    ----------
    drawn : ndarray of int of shape (m,)
        Training rows they belong to.
    residual : ndarray of shape (m, d)
        Residuals, in units of the targets, or of their link.
    weights : ndarray of shape (m,) or None
        Weights of these rows.
    kept : ndarray of int
        Rows without gross errors.
    order : OrderEffect or None
        Errors of leaving blocks of rows out. None: blocks were left out in the fit.
    work : WorkingLoss
        The loss at the targets of `drawn`, in their unit.
    suspects : Suspects
        Rows that look like gross errors.
    unit : float
        Unit of the targets of `work`: see `unit_of`.
    """

    drawn: NDArray
    residual: NDArray
    weights: NDArray | None
    kept: NDArray
    order: OrderEffect | None
    work: WorkingLoss
    suspects: Suspects = Suspects(np.empty(0, dtype=np.intp))
    unit: float = 1.0

    @property
    def scores(self) -> NDArray:
        """Left-out scores, (m, d)."""
        return self.work.targets - self.residual + np.log(self.unit)


def fit_machine(
    data: Training,
    rng: np.random.Generator,
    *,
    robust: bool = False,
    loss: Loss | None = SQUARE,
) -> tuple[Machine, LeftOutRows]:
    """Fit encoded rows (n, q) and targets (n, d).

    Weights have mean one, labels are blocks of rows that are left out together.
    `robust`: rows with gross errors in the targets are not used. `loss`: None is
    Huber's loss, with the threshold that the data say. The result does not depend on
    the number of threads: leaves are solved side by side, and BLAS has one thread.
    """
    with one_thread():
        every = kept = np.arange(len(data.Y))
        suspects = Suspects(every[:0])
        scaler = fit_scaler(data.rows, "both", rng, weights=data.weights)
        unit = unit_of(loss, data)
        if loss is not None:
            data = data._replace(Y=loss.link(data.Y / unit))
        if robust and len(kept) >= _LEAST_ROWS:
            rows = replace(data.tuned_rows(scaler), Y=data.Y)
            suspects = _gross_errors(rows, loss, rng)
        if len(suspects.rows) and not suspects.reason:
            kept = np.delete(every, suspects.rows)
            data = data.take(kept)
            if data.weights is not None:
                data = data._replace(weights=data.weights / data.weights.mean())
        targets = data.Y
        if isinstance(loss, PinballLoss):  # the law of errors around medians
            loss = EpsilonInsensitiveLoss(0.0)
        if loss != SQUARE:
            rows = replace(data.tuned_rows(scaler), Y=targets)
            data = data._replace(Y=start(rows, loss))
        seconds = _SEARCHED * seconds_left()
        budget = Budget(_ITERATIONS, seconds, _report if is_watched() else None)
        machine, left_out = _fit(
            data.tuned_rows(scaler), data.Y, targets, loss, rng, budget
        )
    drawn = kept[left_out.drawn]
    left_out = left_out._replace(drawn=drawn, kept=kept, suspects=suspects, unit=unit)
    return machine.shifted(np.log(unit)), left_out


def unit_of(loss: Loss | None, data: Training) -> float:
    """Return the mean of the targets of a loss of means, which keeps their digits."""
    if not isinstance(loss, LogLinkLoss):
        return 1.0
    loss.link(data.Y)  # names targets that are out of range
    return float(np.average(data.Y, axis=0, weights=data.weights)[0])


def _gross_errors(rows: Rows, loss: Loss | None, rng: np.random.Generator) -> Suspects:
    """Return the rows that look like gross errors: of a robust loss any share."""
    if loss == SQUARE:
        return gross_errors(rows, rng)
    if loss is None or is_robust(loss):
        return gross_errors_of_any_share(rows)
    return Suspects(rows.kept[:0])


def _fit(
    rows: Rows,
    Y: NDArray,
    targets: NDArray,
    loss: Loss | None,
    rng: np.random.Generator,
    budget: Budget,
) -> tuple[Machine, LeftOutRows]:
    """Fit responses Y, and from these `targets` if the loss is not the square loss."""
    scaler, scales = learn_scales(rows, rng, budget)
    center, spread = moments_of(Y, rows.weights)
    spread = np.where(np.isfinite(spread), spread, 1.0)
    data = preprocessed(replace(rows, scaler=scaler))
    used = _affordable(data, scales, rng)
    data = data.take(used)
    is_alone = len(used) <= ALONE
    weights = data.weights
    ends = np.stack(limits(targets, rows.weights))
    work = working_loss(loss, targets[used], weights, ends)
    if loss != SQUARE:
        largest = len(used) if is_alone else TREE_ROWS
        units = center, spread
        work, data, scales = reweighted(data, work, scales, largest, units, rng)
    fit = _alone if is_alone else _on_base
    members, residuals, index = fit(data, scales, rng)
    work = work.take(index)
    weights = at_rows(weights, index)
    if loss == SQUARE:
        tolerance = _SPARED if rows.is_noisy and not is_alone else 0.0
        stack = stack_weights(np.stack(residuals), weights, tolerance)
    else:
        scores = center + spread * (data.Y[index] - np.stack(residuals))
        stack = stacked(work, scores)
    kept = stack > 0
    kept[0] = True  # its length scales are those of the machine
    machine = Machine(
        scaler=scaler,
        low=rows.X.min(axis=0),
        high=rows.X.max(axis=0),
        center=center,
        spread=spread,
        y_low=work.low,
        y_high=work.high,
        rows=data.rows,
        members=tuple(members[k] for k in np.flatnonzero(kept)),
        weights=stack[kept],
    )
    residual = machine.spread * np.einsum("k,kmd->md", stack, residuals)
    if loss != SQUARE:
        fitted = np.einsum("k,kmd->md", stack, scores)
        residual = work.targets - machine.clipped(fitted)
    order = None if data.labels is not None else table_order(machine.scales, data)
    return machine, LeftOutRows(used[index], residual, weights, rows.kept, order, work)


def limits(Y: NDArray, weights: NDArray | None) -> tuple[NDArray, NDArray]:
    """Return least and largest targets, without extremes of hardly any weight.

    `weights` have mean one.
    """
    if weights is None:
        return Y.min(axis=0), Y.max(axis=0)
    return _least(Y, weights), -_least(-Y, weights)


def _least(Y: NDArray, weights: NDArray) -> NDArray:
    """Return the least of each column, without extremes of hardly any weight."""
    order = np.argsort(Y, axis=0)
    first = (np.cumsum(weights[order], axis=0) >= _LEAST_WEIGHT).argmax(axis=0)
    return np.take_along_axis(Y, order, axis=0)[first, np.arange(Y.shape[1])]


def _affordable(
    data: Training, scales: list[Scales], rng: np.random.Generator
) -> NDArray:
    """Return the rows that base and leaves can be fitted to in the time left.

    The time of a leaf tells how many. They are all without a limit of time, and at
    least those of one leaf.
    """
    n = len(data.Y)
    if not np.isfinite(seconds_left()) or n <= TREE_ROWS:
        return np.arange(n)
    trial = np.random.default_rng(0)  # no part of the fit
    sample = data.take(trial.permutation(n)[:TREE_ROWS])
    before = seconds_left()
    fit_on_tree(sample, scales[-1], TREE_ROWS, trial, False)
    left = seconds_left()
    seconds = max(before - left, 1e-9) * (len(scales) + 1)
    count = int(np.clip(TREE_ROWS * left / seconds, TREE_ROWS, n))
    return np.arange(n) if count == n else np.sort(rng.permutation(n)[:count])


Parts = tuple[list[Member], list[NDArray], NDArray]


def _alone(data: Training, scales: list[Scales], rng: np.random.Generator) -> Parts:
    """Fit each member to all rows; return members, left-out residuals, their rows."""
    every = np.arange(len(data.Y))
    fits = [fit_on_tree(data, kernel, len(every), rng) for kernel in scales]
    return [member for member, _ in fits], [residual for _, residual in fits], every


def _on_base(data: Training, scales: list[Scales], rng: np.random.Generator) -> Parts:
    """Fit the base, and members to leaves beside it; see `_alone`."""
    landmarks, index = _landmarks(len(data.Y), rng)
    at = data.rows[landmarks]
    options = data.weights, at, rng, data.labels, index
    base, residual = Ridge(scales[0].inverse, data.rows, *options).fit(data.Y)
    members = list[Member]([base])
    residuals = [residual]
    left_out = np.zeros(len(data.Y), dtype=bool)
    left_out[index] = True
    for kernel in scales:
        largest = _leaf_rows(data, kernel)
        member, residual = fit_on_tree(data, kernel, largest, rng, left_out)
        members.append(member)
        residuals.append(residual[index])
        report("leaves", iteration=len(members) - 1, total=len(scales))
    return members, residuals, index


def _leaf_rows(data: Training, scales: Scales) -> int:
    """Return the largest number of rows of a leaf."""
    n = len(data.Y)
    if n <= TREE_ROWS or seconds_left() < _LARGER_SECONDS * n:
        return TREE_ROWS
    trial = np.random.default_rng(0)  # no part of the fit
    return LARGER_ROWS if ratio_of_halves(data, scales, trial) < _FALL else TREE_ROWS


def _landmarks(n: int, rng: np.random.Generator) -> tuple[NDArray, NDArray]:
    """Return landmarks, and rows whose residuals are left out, both ascending.

    The latter are others, if there are as many: the base is not smooth at landmarks,
    where leaves err more than at new rows.
    """
    drawn = rng.permutation(n)
    others = drawn[_LANDMARKS:] if n >= 2 * _LANDMARKS else drawn
    return np.sort(drawn[:_LANDMARKS]), np.sort(others[:VALIDATION])


def _report(iteration: int, error: float) -> bool:
    """Report an iteration; return whether a callback has asked to stop."""
    report("length-scales", iteration=iteration, objective=error)
    return is_asked()
