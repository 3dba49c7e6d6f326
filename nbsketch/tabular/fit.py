"""The fit of a machine: outliers, length scales, base and members, stack."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nbsketch._blas import one_thread
from nbsketch.solvers.order import OrderEffect
from nbsketch.tabular.additions import with_ridge
from nbsketch.tabular.efforts import ALONE, Effort
from nbsketch.tabular.limit import TimeLimit
from nbsketch.tabular.local import fit_alone, fit_on_base
from nbsketch.tabular.machine import Machine
from nbsketch.tabular.members import Training
from nbsketch.tabular.order import table_order
from nbsketch.tabular.outliers import inliers
from nbsketch.tabular.problem import Problem
from nbsketch.tabular.scales import SMOOTH, learn_scales
from nbsketch.tabular.stack import stack_weights
from nbsketch.tuning import fit_scaler
from nbsketch.tuning.inputs import CONSTANT
from nbsketch.tuning.rows import Rows, prepare

# Fewer rows have no gross errors that could be told.
_LEAST_ROWS = 50
# Predictions leave the range of the targets by at most this share of it.
_MARGIN = 0.1


class LeftOut(NamedTuple):
    """Left-out residuals of a machine.

    Attributes
    ----------
    drawn : ndarray of int of shape (m,)
        Training rows they belong to.
    members : ndarray of shape (k, m, d)
        Residuals of the members, of the base, if there is one, and of the global ridge,
        if it has a weight.
    residual : ndarray of shape (m, d)
        Residuals of the stack, in units of the targets.
    kept : ndarray of int
        Rows without gross errors.
    order : OrderEffect or None
        Errors of leaving blocks of rows out. None: blocks were left out in the fit.
    """

    drawn: NDArray
    members: NDArray
    residual: NDArray
    kept: NDArray
    order: OrderEffect | None


def fit_machine(
    X: NDArray,
    Y: NDArray,
    weights: NDArray | None,
    labels: NDArray | None,
    effort: Effort,
    rng: np.random.Generator,
    budget: TimeLimit,
    *,
    robust: bool = False,
) -> tuple[Machine, LeftOut]:
    """Fit rows X (n, q) and targets Y (n, d).

    `weights` have mean one, `labels` are blocks of rows that are left out together.
    `robust`: rows with gross errors in the targets are not used. The result does not
    depend on the number of threads: leaves are solved side by side, and BLAS has one
    thread.
    """
    with one_thread():
        kept = np.arange(len(X))
        rows = prepare(X, Y, weights, fit_scaler(X, "both", rng), kept, labels=labels)
        if robust and len(X) >= _LEAST_ROWS:
            kept = inliers(rows, SMOOTH, rng)
        if len(kept) < len(X):
            X, Y = X[kept], Y[kept]
            weights = None if weights is None else weights[kept] / weights[kept].mean()
            labels = None if labels is None else labels[kept]
            every, scaler = np.arange(len(X)), rows.scaler
            rows = prepare(X, Y, weights, scaler, every, labels=labels)
        machine, left_out = _fit(rows, effort, rng, budget, Y)
    return machine, left_out._replace(drawn=kept[left_out.drawn], kept=kept)


def _fit(
    rows: Rows,
    effort: Effort,
    rng: np.random.Generator,
    budget: TimeLimit,
    Y: NDArray,
) -> tuple[Machine, LeftOut]:
    scaler, scales = learn_scales(rows, rng, budget)
    center, spread = _moments(Y, rows.weights)
    Z, targets = scaler.transform(rows.X), (Y - center) / spread
    data = Training(Z, targets, rows.weights, rows.labels)
    problem = Problem(replace(rows, scaler=scaler), data, effort, rng, budget)
    fit = fit_alone if len(Y) <= ALONE else fit_on_base
    base, members, residuals, index = fit(problem, scales)
    start = None if base is None else (base, residuals[-1])
    stack = stack_weights(
        residuals, None if data.weights is None else data.weights[index]
    )
    ridge = None
    found = with_ridge(problem, scales[0], start, residuals, stack, index)
    if found is not None:
        residuals, stack, ridge = found
    machine = Machine(
        scaler,
        rows.X.min(axis=0),
        rows.X.max(axis=0),
        center,
        spread,
        *_limits(Y),
        data.rows,
        base,
        scales[0].inverse,
        tuple(members),
        stack[: len(members)],
        ridge,
    )
    left_out = np.einsum("k,kmd->md", stack, residuals)
    order = None if data.labels is not None else table_order(scales[0].form, data)
    return machine, LeftOut(index, residuals, left_out * spread, rows.kept, order)


def _limits(Y: NDArray) -> tuple[NDArray, NDArray]:
    """Return the limits of predictions, (d,): the range of the targets, widened."""
    low, high = Y.min(axis=0), Y.max(axis=0)
    return low - _MARGIN * (high - low), high + _MARGIN * (high - low)


def _moments(Y: NDArray, weights: NDArray | None) -> tuple[NDArray, NDArray]:
    """Return means and standard deviations of the targets; one for constants."""
    center = np.average(Y, axis=0, weights=weights)
    spread = np.sqrt(np.average(np.square(Y - center), axis=0, weights=weights))
    varies = spread > CONSTANT * np.abs(center)
    return center, np.where(varies, spread, 1.0)
