r"""Whether the order of the rows contradicts leave-one-out.

Where neighboring rows nearly repeat each other, leaving contiguous blocks of rows out
gives far larger errors than leaving out random blocks of the same rows. For independent
rows both errors have the same law, whatever the targets, the noise and the model.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nbsketch.solvers.design import Design
from nbsketch.solvers.filters import Filter
from nbsketch.solvers.smoother import block_squares
from nbsketch.solvers.spectrum import Spectrum

# Blocks, most rows of a block, contiguous blocks of largest error that do not count
# (gross outliers, ends of a grid), and random partitions of the same rows.
_BLOCKS, _MOST_ROWS, _TRIMMED, _PARTITIONS = 20, 100, 2, 3
# Ratio of errors from which leave-one-out is contradicted, and the least error that
# matters, in standard deviations of the targets.
_WORSE, _LEAST_ERROR = 1.5, 0.1


class OrderEffect(NamedTuple):
    """Root mean squared errors of leaving blocks of rows out.

    Attributes
    ----------
    contiguous : float
        With blocks of contiguous rows, without the two of largest error.
    random : float
        With random blocks of the same rows, the largest of three partitions.
    spread : float
        Root mean square of the centered targets.
    """

    contiguous: float
    random: float
    spread: float

    @property
    def is_contradicted(self) -> bool:
        """Whether contiguous blocks contradict leave-one-out.

        Their error is 1.5 times that of random blocks, and a tenth of the spread.
        """
        return self.contiguous > max(_WORSE * self.random, _LEAST_ERROR * self.spread)


def order_effect(
    spectrum: Spectrum,
    filter: Filter,
    design: Design,
    Y: NDArray,
    alpha: float,
    sample_weight: NDArray | None = None,
) -> OrderEffect:
    """Compare errors of contiguous and of random blocks of at most 2000 rows.

    Parameters are those of `nbsketch.solvers.smoother.leave_blocks_out`, for a single
    parameter `alpha` of the filter.

    Examples
    --------
    >>> from nbsketch.solvers import ArrayDesign, RidgeFilter, decompose
    >>> rng = np.random.default_rng(0)
    >>> Z = ArrayDesign(np.repeat(rng.normal(size=(20, 15)), 5, axis=0))
    >>> Y = np.repeat(rng.normal(size=(20, 1)), 5, axis=0)
    >>> order_effect(decompose(Z, Y), RidgeFilter(), Z, Y, 1e-3).is_contradicted
    True
    """
    weights = np.ones(len(Y)) if sample_weight is None else sample_weight
    blocks = contiguous_blocks(np.flatnonzero(weights > 0))
    rows = np.concatenate(blocks)
    Q = (design.gather(rows).collect() - spectrum.z_mean) @ spectrum.vectors
    Y, weights = Y[rows] @ spectrum.rotation - spectrum.y_mean, weights[rows]
    gains = spectrum.gains(filter, np.array([alpha]))
    starts = np.cumsum([len(block) for block in blocks])[:-1]

    def errors(order: NDArray) -> NDArray:
        parts = [(Q[b], Y[b], weights[b]) for b in np.split(order, starts)]
        squares = [block_squares(spectrum, *gains, *part)[0] for part in parts]
        return np.array(squares) / [part[2].sum() for part in parts]

    rng = np.random.default_rng(0)  # no part of the fit
    others = [errors(rng.permutation(len(rows))) for _ in range(_PARTITIONS)]
    ordered = np.sort(errors(np.arange(len(rows))))
    kept = ordered[: max(1, len(ordered) - _TRIMMED)]
    return OrderEffect(
        contiguous=float(np.sqrt(kept.mean())),
        random=float(np.sqrt(max(other.mean() for other in others))),
        spread=float(np.sqrt(spectrum.y_square)),
    )


def contiguous_blocks(rows: NDArray) -> list[NDArray]:
    """Return at most 20 blocks of at most 100 neighboring rows, evenly spaced."""
    parts = np.array_split(rows, min(_BLOCKS, max(1, len(rows) // 2)))
    return [part[:_MOST_ROWS] for part in parts]
