r"""Losses by weighted least squares: working responses and working weights.

At scores f, a loss of residuals r = y - f is replaced by :math:`h r^2 / 2` with
:math:`h = \psi'(r) / r`, and a loss of a mean :math:`\mu = e^f` by the square of
:math:`f + (y - \mu) / \mu` minus the score, with :math:`h = \mu^{2 - p}` for the power
p of the variance (McCullagh and Nelder, Generalized Linear Models, 1989). Scores are
leave-one-out scores, so the weight of a row does not depend on how closely it was
fitted.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nbsketch._report.progress import is_stopped
from nbsketch.gram import evaluate
from nbsketch.losses import HuberLoss, LogLinkLoss, Loss
from nbsketch.rows.outliers import (
    NORMAL,
    RobustPath,
    medians,
    noise_scale,
    robust_residuals,
)
from nbsketch.tabular.machine import stack_weights
from nbsketch.tabular.members import fit_on_tree
from nbsketch.tabular.scales import Scales, best_penalty, penalty_leaves
from nbsketch.tabular.suspects import isotropic, parts
from nbsketch.tuning.rows import Rows, Training
from nbsketch.tuning.tuner import have_neighbors

# Huber threshold in robust standard deviations: 95 % of the efficiency of the square
# loss for Gaussian errors (Huber, Robust Statistics, 1981).
_EFFICIENT = 1.345
# Lower bound of residuals in weights, as a share of their median size.
_LEAST = 0.1
# Minimum working weight relative to the largest.
_LEAST_WEIGHT = 1e-6
# Maximum refits of a member; they end when the loss decreases by a smaller share.
_PASSES = 6
_STEADY = 2e-3
# Passes for the weights of the stack, which need no refit.
_STACKED = 5
# Minimum number of rows that tell which of them have neighbors.
_LEAST_ROWS = 30
# Length scales are learned on residuals cut at this many robust deviations.
_WINSORIZED = 3.0
# Predictions exceed the range of the targets by at most this share of it.
MARGIN = 0.1


class WorkingLoss(NamedTuple):
    """A loss at the targets of a fit.

    Attributes
    ----------
    loss : Loss or None
        The loss. None: Huber, with a threshold from the errors of the first fit.
    targets : ndarray of shape (n, d)
        Targets on the scale of the scores.
    weights : ndarray of shape (n,)
        Sample weights.
    low, high : ndarray of shape (d,)
        Bounds of the scores.
    """

    loss: Loss | None
    targets: NDArray
    weights: NDArray
    low: NDArray
    high: NDArray

    def take(self, index: NDArray) -> WorkingLoss:
        """Return the loss at some rows."""
        return self._replace(targets=self.targets[index], weights=self.weights[index])

    def scaled(self, scores: NDArray) -> WorkingLoss:
        """Return the loss with a threshold, if it has none."""
        if self.loss is not None:
            return self
        sizes = np.linalg.norm(self.targets - scores, axis=1)
        least = np.finfo(float).tiny + 1e-12 * np.abs(self.targets).max()
        scale = NORMAL * float(medians(sizes[:, None], self.weights)[0])
        return self._replace(loss=HuberLoss(_EFFICIENT * max(scale, least)))

    def mean(self, scores: NDArray) -> float:
        """Return the mean loss of scores (n, d)."""
        losses = losses_of(self.loss, self.targets, scores)
        return np.average(losses, weights=self.weights)

    def at(self, scores: NDArray) -> tuple[NDArray, NDArray]:
        """Return the working responses (n, d) and weights (n,) at scores (n, d).

        The weights include the sample weights.
        """
        if isinstance(self.loss, LogLinkLoss):
            mean = np.exp(scores)
            response = scores + self.loss.targets(self.targets) / mean - 1
            h = mean[:, 0] ** (2 - self.loss.power)
        else:
            response = self.targets
            h = self._slopes(self.targets - scores)
        most = np.nanmax(h)
        h = np.maximum(h / most, _LEAST_WEIGHT) if most > 0 else np.ones(len(h))
        return response, self.weights * h

    def _slopes(self, residual: NDArray) -> NDArray:
        """Return slopes over residuals; for several outputs, of the norms."""
        r = residual[:, 0]
        if residual.shape[1] > 1:
            r = np.linalg.norm(residual, axis=1)
        floor = np.finfo(float).eps * np.abs(self.targets).max() + np.finfo(float).tiny
        least = max(_LEAST * np.nanmedian(np.abs(r)), floor)
        r = np.where(r < 0, -1.0, 1.0) * np.maximum(np.abs(r), least)
        return self.loss.derivative(r) / r  # type: ignore[union-attr]


def losses_of(loss: Loss | None, targets: NDArray, scores: NDArray) -> NDArray:
    """Return the loss of each row; for several outputs, of norms."""
    if targets.shape[1] > 1:
        return loss.norm_value(targets - scores)  # type: ignore[union-attr]
    return loss.of_rows(targets, scores)[:, 0]  # type: ignore[union-attr]


def working_loss(
    loss: Loss | None, targets: NDArray, weights: NDArray, ends: tuple[NDArray, NDArray]
) -> WorkingLoss:
    """Return the loss at targets (n, d), with bounds `ends` (d,).

    Means of counts may be zero: the smallest is that of one count in all rows.
    """
    low, high = ends
    margin = MARGIN * (high - low)
    low = low - margin
    if isinstance(loss, LogLinkLoss):
        mean = np.average(loss.targets(targets), axis=0, weights=weights)
        low = np.minimum(low, np.log(mean / len(targets)))
    return WorkingLoss(loss, targets, weights, low, high + margin)


def start(rows: Rows, loss: Loss | None) -> NDArray:
    """Return the responses (n, d) for learning length scales.

    `rows` have targets on the scale of the scores. Residuals of a robust regression are
    cut at three deviations, except for rows without neighbors (rare flags), which it
    cannot predict; the logarithm of a count has half the mean added.
    """
    if isinstance(loss, LogLinkLoss):
        y = loss.targets(rows.Y)
        shift = np.average(y, axis=0, weights=rows.weights) / 2
        return np.log(y + shift * (loss.power < 2))
    out = np.empty_like(rows.Y)
    form = isotropic(rows).form
    for drawn in parts(rows):
        Y = rows.Y[drawn]
        path = RobustPath.of(partial(evaluate, form), rows.transform(drawn), len(Y))
        residual = robust_residuals(path, Y)
        most = _WINSORIZED * noise_scale(residual, Y)
        out[drawn] = Y + np.clip(residual, -most, most) - residual
    cut = (out != rows.Y)[rows.kept].any(axis=1)
    if cut.any() and len(cut) >= _LEAST_ROWS:
        alone = rows.kept[cut][~have_neighbors(rows, cut, np.random.default_rng(0))]
        out[alone] = rows.Y[alone]
    return out


def reweighted(
    data: Training,
    work: WorkingLoss,
    scales: list[Scales],
    largest: int,
    units: tuple[NDArray, NDArray],
    rng: np.random.Generator,
) -> tuple[WorkingLoss, Training, list[Scales]]:
    """Refit the first member to working responses until its loss is stable.

    Parameters
    ----------
    data : Training
        Rows with standardized responses of the first fit.
    work : WorkingLoss
        The loss at the targets.
    scales : list of Scales
        Kernels of the members.
    largest : int
        Maximum rows of a leaf.
    units : tuple of ndarray of shape (d,)
        Center and spread of standardized responses.
    rng : Generator
        Random state.

    Returns
    -------
    work : WorkingLoss
        The loss, with its threshold.
    data : Training
        Rows with standardized working responses and weights.
    scales : list of Scales
        Kernels with the penalties for these weights.
    """
    center, spread = units
    seed = int(rng.integers(2**31))
    sample = penalty_leaves(data, scales[0].inverse, 1, rng)
    first = scales[0]
    before = np.inf
    part = data
    for k in range(_PASSES):
        same_tree = np.random.default_rng(seed)
        member, residual = fit_on_tree(part, first, largest, same_tree)
        fitted = part.Y - residual
        is_kept = np.isnan(fitted)  # in blocks that are never left out
        if is_kept.any():
            fitted = np.where(is_kept, member.predict(part.rows, part.rows), fitted)
        scores = np.clip(
            _leveled(center + spread * fitted, work, k), work.low, work.high
        )
        work = work.scaled(scores)
        response, weights = work.at(scores)
        Y = (response - center) / spread
        part = data._replace(Y=Y, weights=weights / weights.mean())
        loss = work.mean(scores)
        if loss > (1 - _STEADY) * before or is_stopped():
            break
        before = loss
        if k == 0:
            first = best_penalty(part, first, sample)
    others = [best_penalty(part, kernel, sample) for kernel in scales[1:]]
    return work, part, [first, *others]


def _leveled(scores: NDArray, work: WorkingLoss, k: int) -> NDArray:
    """Return the scores of the first fit, shifted to the mean target for means."""
    if k or not isinstance(work.loss, LogLinkLoss):
        return scores
    y = work.loss.targets(work.targets)
    mean, fitted = (
        np.average(v, axis=0, weights=work.weights) for v in (y, np.exp(scores))
    )
    return scores + np.log(mean / fitted)


def stacked(work: WorkingLoss, scores: NDArray) -> tuple[NDArray, NDArray]:
    """Return weights (k,) of models, and leave-one-out residuals (m, d) of their sum.

    `scores` (k, m, d) are leave-one-out scores. The weights minimize weighted squares,
    with weights recomputed at their own scores.
    """
    clipped = np.clip(scores, work.low, work.high)
    weights = np.full(len(scores), 1 / len(scores))
    for _ in range(_STACKED):
        response, h = work.at(np.einsum("k,kmd->md", weights, clipped))
        unit = np.nanstd(response) or 1.0
        weights = stack_weights((response - clipped) / unit, h)
    fitted = np.einsum("k,kmd->md", weights, scores)
    return weights, work.targets - np.clip(fitted, work.low, work.high)
