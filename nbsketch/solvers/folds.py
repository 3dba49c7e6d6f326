r"""Cross-validation errors for a path of penalties, from one read of all features.

The moments of the rows that are left out of a fold are subtracted from those of all
rows, so that a fold costs an eigendecomposition and the products with its own rows. The
penalty stays :math:`n \alpha` for the n rows of the whole fit, as in leave-one-out.

Whether the order of the rows contradicts leave-one-out.

Where neighboring rows nearly repeat each other, leaving contiguous blocks of rows out
gives far larger errors than leaving out random blocks of the same rows. For independent
rows both errors have the same law, whatever the targets, the noise and the model.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nbsketch._machine.blas import eigh
from nbsketch.solvers.design import Design
from nbsketch.solvers.filters import Filter
from nbsketch.solvers.smoother import block_squares, held_out_error
from nbsketch.solvers.spectrum import Spectrum, block_moments

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


# Least share of the weight that a fold keeps, against rounding.
_LEAST_KEPT = 1e-10


class Fold(NamedTuple):
    """One split of the rows.

    Attributes
    ----------
    test : ndarray of int
        Ascending indices of the rows on which the error is measured.
    removed : ndarray of int
        Ascending indices of the rows on which the model is not fitted: those of `test`
        and, if the training set is smaller, others.
    """

    test: NDArray
    removed: NDArray

    @property
    def is_block(self) -> bool:
        """Whether the model is fitted on all other rows."""
        return len(self.test) == len(self.removed)

    def kept(self, n: int) -> NDArray:
        """Return the ascending indices of the rows, of n, that are fitted."""
        return np.delete(np.arange(n), self.removed)


def fold_errors(
    spectrum: Spectrum,
    filter: Filter,
    design: Design,
    Y: NDArray,
    alphas: NDArray,
    folds: Sequence[Fold],
    sample_weight: NDArray | None = None,
) -> NDArray:
    """Return the mean squared error on the test rows of all folds for each parameter.

    Parameters
    ----------
    spectrum : Spectrum
        Of all rows, from `decompose` with the same weights.
    filter : Filter
        Spectral filter.
    design : Design of shape (n, r)
        Features; landmarks and sketch are the same in each fold.
    Y : ndarray of shape (n, d)
        Targets.
    alphas : ndarray of shape (p,)
        Parameters of the filter, in the normalization of the fit to all rows.
    folds : sequence of Fold
        Splits of the rows.
    sample_weight : ndarray of shape (n,), default=None
        Non-negative weights of mean one. None: equal weights.

    Returns
    -------
    errors : ndarray of shape (p,)
        Weighted means of the squared norms of the residuals.

    Examples
    --------
    >>> from nbsketch.solvers import ArrayDesign, Fold, RidgeFilter, decompose
    >>> Z, Y = ArrayDesign([[0.0], [1.0], [2.0]]), np.array([[1.0], [3.0], [5.0]])
    >>> last = Fold(test=np.array([2]), removed=np.array([2]))
    >>> spectrum, alphas = decompose(Z, Y), np.array([1e-9, 1.0])
    >>> fold_errors(spectrum, RidgeFilter(), Z, Y, alphas, [last]).round(4).tolist()
    [0.0, 6.6122]
    """
    weights = np.ones(len(Y)) if sample_weight is None else sample_weight
    total, mass = np.zeros(len(alphas)), 0.0
    for test, removed in folds:
        kept = without_rows(
            spectrum, design.gather(removed), Y[removed], weights[removed]
        )
        weight = weights[test].sum()
        total += weight * held_out_error(
            kept, filter, design.gather(test), Y[test], alphas, weights[test]
        )
        mass += weight
    return total / mass


def without_rows(
    spectrum: Spectrum, design: Design, Y: NDArray, weights: NDArray
) -> Spectrum:
    """Return the spectrum of all other rows, normalized by the number of all rows.

    `design`, `Y` and `weights` are those of the rows to remove.
    """
    n = spectrum.n_samples
    Y = Y @ spectrum.rotation - spectrum.y_mean
    basis = spectrum.z_mean, spectrum.vectors
    lost = design.total(block_moments, *basis, rows=[Y, weights])
    gram = n * np.diag(spectrum.values) - lost[0]
    cross = n * spectrum.cross - lost[1]
    z_sum, y_sum = -lost[2], -weights @ Y
    square = n * spectrum.y_square - float(weights @ np.square(Y).sum(axis=1))
    if not spectrum.fit_intercept:
        z_mean, y_mean = np.zeros_like(z_sum), np.zeros_like(y_sum)
    else:
        kept = max(n - float(weights.sum()), _LEAST_KEPT * n)
        z_mean, y_mean = z_sum / kept, y_sum / kept
        gram -= kept * np.outer(z_mean, z_mean)
        cross -= kept * np.outer(z_mean, y_mean)
        square -= kept * float(y_mean @ y_mean)
    values, vectors = eigh(gram / n)
    return spectrum._replace(
        values=np.maximum(values, 0.0),
        vectors=spectrum.vectors @ vectors,
        cross=vectors.T @ cross / n,
        z_mean=spectrum.z_mean + spectrum.vectors @ z_mean,
        y_mean=spectrum.y_mean + y_mean,
        y_square=max(square / n, 0.0),
    )
