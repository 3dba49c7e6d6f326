"""Gross errors in the targets of a table."""

from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nbsketch.gram import evaluate
from nbsketch.losses import LogLinkLoss, Loss, SquareLoss
from nbsketch.rows.outliers import (
    MOST,
    NORMAL,
    are_explained,
    drawn_rows,
    medians,
    robust_scales,
    suspect_targets,
)
from nbsketch.tabular.leaves import fit_leaf
from nbsketch.tabular.scales import SMOOTH, Scales, form_of
from nbsketch.tuning.rows import Rows, Training
from nbsketch.tuning.search import isotropic_start

# Robust standard deviations beyond which targets are clipped for learning a length
# scale: with 30 clean targets look like errors, with 100 sentinel values are missed.
_CLIP = 60.0
_TOO_MANY = f"at most {100 * MOST:g} % are excluded"
# Number of rows of a robust regression.
_ROWS = 1000


class Suspects(NamedTuple):
    """Rows whose targets look like gross errors.

    Attributes
    ----------
    rows : ndarray of int of shape (k,)
        Their indices, ascending.
    reason : str
        Why they are used nevertheless; empty if they are excluded.
    """

    rows: NDArray
    reason: str = ""


def gross_errors(rows: Rows, loss: Loss | None, rng: np.random.Generator) -> Suspects:
    """Return the rows that look like gross errors, before a fit.

    At most 5 % of all are excluded; for a robust loss any share.
    """
    if loss == SquareLoss():
        return few_gross_errors(rows, rng)
    if loss is None or is_robust(loss):
        return gross_errors_of_any_share(rows)
    return Suspects(rows.kept[:0])


def is_robust(loss: Loss) -> bool:
    """Return whether a loss is even with bounded slope, so robust to gross errors."""
    if isinstance(loss, LogLinkLoss) or not np.isfinite(loss.lipschitz):
        return False
    low, high = loss.value([-1.0, 1.0])
    return bool(low == high)


def few_gross_errors(rows: Rows, rng: np.random.Generator) -> Suspects:
    """Return the rows that look like gross errors, to exclude them up to 5 % of all.

    The rule is that of `nbsketch.rows.outliers`, with a single length scale.
    """
    every = np.arange(len(rows.Y))
    drawn = drawn_rows(rows.weights)
    if not len(drawn):
        return Suspects(drawn)
    order = np.concatenate([drawn, np.setdiff1d(every, drawn)])
    part, Y = _standardized(rows)
    kernel = partial(evaluate, Scales.at(SMOOTH, isotropic_start(part, rng)).form)
    Y = Y[order]
    weights = rows.weights[order]
    X = rows.transform(order)
    is_suspect, residuals = suspect_targets(kernel, X, Y, weights=weights)
    reason = ""
    if np.average(is_suspect, weights=weights) > MOST:
        reason = _TOO_MANY
    elif not are_explained(*robust_scales(residuals, Y, weights)).any():
        reason = "the other targets cannot be predicted"
    return Suspects(np.sort(order[is_suspect]), reason)


def gross_errors_of_any_share(rows: Rows) -> Suspects:
    """Return the rows that look like gross errors, of any share, to exclude them.

    See `nbsketch.rows.outliers.suspect_targets`, applied to 1000 random rows at a time.
    """
    scales = isotropic(rows)
    suspects = [rows.kept[:0]]
    kernel = partial(evaluate, scales.form)
    for drawn in parts(rows):
        data = Training(rows.transform(drawn), rows.Y[drawn], np.ones(len(drawn)))
        left_out = partial(_left_out, scales, data)
        is_suspect, _ = suspect_targets(kernel, data.rows, data.Y, left_out)
        suspects.append(drawn[is_suspect])
    return Suspects(np.sort(np.concatenate(suspects)))


def errors_beside(
    scales: NDArray, rows: NDArray, Y: NDArray, residual: NDArray, weights: NDArray
) -> Suspects:
    """Return the rows that look like gross errors after a fit to all rows.

    `residual` (m, d) are the leave-one-out residuals of targets Y at preprocessed rows,
    of which 1000 are checked; `scales` (p,) are inverse length scales.
    """
    left_out = np.isfinite(residual).all(axis=1)
    drawn = drawn_rows(left_out * weights)
    kernel = partial(evaluate, form_of(SMOOTH, scales))
    if not len(drawn):
        return Suspects(drawn)
    left_out = partial(residual.__getitem__, drawn)
    is_suspect, _ = suspect_targets(kernel, rows[drawn], Y[drawn], left_out)
    reason = _TOO_MANY
    if is_suspect.mean() <= MOST:
        reason = "they stand out only with the learned length scales"
    return Suspects(np.sort(drawn[is_suspect]), reason)


def _left_out(scales: Scales, data: Training) -> NDArray:
    """Return the leave-one-out residuals of an exact fit to all targets."""
    return fit_leaf(scales.form, data, scales.tau).residual


def isotropic(rows: Rows) -> Scales:
    """Return one length scale for all columns, learned from trimmed targets."""
    # Random numbers that are not part of the fit.
    return Scales.at(SMOOTH, isotropic_start(rows.clipped(), np.random.default_rng(0)))


def parts(rows: Rows) -> list[NDArray]:
    """Return random parts of about 1000 rows, each in random order."""
    order = np.random.default_rng(0).permutation(rows.kept)
    return np.array_split(order, -(-len(order) // _ROWS))


def _standardized(rows: Rows) -> tuple[Rows, NDArray]:
    """Return the rows with clipped targets, and all targets.

    Both are standardized by the clipped targets. At most 5 % are clipped, those beyond
    60 robust standard deviations, which would dominate the scale.
    """
    weights = rows.weights
    center = medians(rows.Y, weights)
    away = np.abs(rows.Y - center)
    most = np.maximum(NORMAL * medians(away, weights), np.finfo(float).tiny) * _CLIP
    is_few = np.average(away > most, axis=0, weights=weights) <= MOST
    most = np.where(is_few, most, np.inf)
    clipped = np.clip(rows.Y, center - most, center + most)
    standardized, mean, spread = replace(rows, Y=clipped).standardized()
    return standardized, (rows.Y - mean) / spread
