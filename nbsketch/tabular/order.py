"""Whether the order of the rows of a table contradicts leave-one-out."""

from __future__ import annotations

import numpy as np

from nbsketch._whitening import projection
from nbsketch.gram import CompiledForm, evaluate
from nbsketch.solvers.design import ArrayDesign
from nbsketch.solvers.filters import RidgeFilter
from nbsketch.solvers.order import OrderEffect, contiguous_blocks, order_effect
from nbsketch.solvers.ridge import leave_one_out, ridge_path
from nbsketch.tabular.members import Training

# Landmarks of the ridge regression that predicts the blocks.
_LANDMARKS = 300


def table_order(form: CompiledForm, data: Training) -> OrderEffect:
    """Compare errors of contiguous and of random blocks of at most 2000 rows.

    They are predicted by a ridge regression on 300 landmarks, fitted to these rows with
    the penalty of least leave-one-out error. Independent rows have the same law in any
    order, so the form may have been learned from them.

    Parameters
    ----------
    form : CompiledForm
        Kernel with its length scales.
    data : Training
        Rows, targets and weights.
    """
    index = np.concatenate(contiguous_blocks(np.arange(len(data.Y))))
    rows, Y, weights, _ = data.take(index)
    if weights is not None:
        weights = weights / weights.mean()
    rng = np.random.default_rng(0)  # no part of the fit
    drawn = rng.choice(len(rows), min(_LANDMARKS, len(rows)), replace=False)
    landmarks = rows[np.sort(drawn)]
    P = projection(evaluate(form, landmarks, landmarks).astype(np.float64))
    design = ArrayDesign(evaluate(form, rows, landmarks) @ P)
    path = ridge_path(design, Y, sample_weight=weights)
    alphas = path.default_alphas()
    errors = leave_one_out(path, design, Y, alphas, weights)
    alpha = float(alphas[np.argmin(errors)])
    return order_effect(path, RidgeFilter(), design, Y, alpha, weights)
