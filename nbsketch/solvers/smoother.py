r"""Errors of linear smoothers: leave-one-out, leave-block-out, GCV, held-out rows.

What a spectral filter fits is linear in the targets, :math:`\hat Y = H Y`, with
:math:`H = Q \operatorname{diag}(u\, G_a(u))\, Q^T` on centered data, for every
parameter of a path at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from nbsketch.solvers.design import ArrayDesign, Design
from nbsketch.solvers.filters import Filter
from nbsketch.solvers.spectrum import Spectrum, chunks

# Columns of predictions for several parameters that are computed at a time.
_COLUMNS = 64
# Residuals are not divided by less than this: one minus a leverage is rounded.
_LEAST_FREEDOM = 1e-14
# Pivots of a Cholesky factor above which a system is solved without eigenvalues.
_REGULAR = 1e-3
# Rounding error of a mean squared residual, relative to that of the targets.
_LEAST_ERROR = 1e-13
# Rows of blocks that are read at a time.
_ROWS = 1024


def leave_one_out(
    spectrum: Spectrum,
    filter: Filter,
    design: Design,
    Y: NDArray,
    alphas: NDArray,
    sample_weight: NDArray | None = None,
    rows: NDArray | None = None,
) -> NDArray:
    r"""Return the mean squared leave-one-out error for each parameter.

    .. math:: \frac1n \sum_i w_i \Bigl\| \frac{y_i - \hat y_i}{1 - H_{ii}} \Bigr\|^2 ,

    or its mean over `rows` only (ascending), of the fit to all rows. The features are
    read once more. Landmarks and sketch are kept fixed: only the row's part in the fit
    is left out. For ridge regression this is the error of n refits. For other filters
    it is the error of the smoother in which the target of the row is replaced by its
    prediction; a refit without the row would have another covariance.

    Examples
    --------
    >>> from nbsketch.solvers import ArrayDesign, RidgeFilter, decompose
    >>> Z, Y = ArrayDesign([[0.0], [1.0], [2.0]]), np.array([[1.0], [3.0], [5.0]])
    >>> spectrum, alphas = decompose(Z, Y), np.array([1e-9, 1.0])
    >>> leave_one_out(spectrum, RidgeFilter(), Z, Y, alphas).round(4).tolist()
    [0.0, 4.4082]
    """
    weights = np.ones(len(Y)) if sample_weight is None else sample_weight
    if rows is not None:
        design, Y, weights = design.gather(rows), Y[rows], weights[rows]
    return _mean_squares(spectrum, filter, design, Y, alphas, weights, left_out=True)


def _mean_squares(
    spectrum: Spectrum,
    filter: Filter,
    design: Design,
    Y: NDArray,
    alphas: NDArray,
    weights: NDArray,
    *,
    left_out: bool,
) -> NDArray:
    """Return the weighted mean over rows, each of them left out of the fit or not."""
    Y = Y @ spectrum.rotation - spectrum.y_mean
    gains, place = spectrum.gains(filter, alphas)
    (total,) = design.total(
        _sum_squares, spectrum, gains, place, left_out, rows=[Y, weights]
    )
    return total / weights.sum()


def _sum_squares(
    block: NDArray,
    Y: NDArray,
    weights: NDArray,
    spectrum: Spectrum,
    gains: NDArray,
    place: NDArray,
    left_out: bool,
) -> tuple[NDArray]:
    """Return the sums of squared residuals over a block of rows."""
    total = np.zeros(gains.shape[1])
    for part, Z in chunks(ArrayDesign._trusted(block)):
        Q = (Z - spectrum.z_mean) @ spectrum.vectors
        squares = np.square(Q) if left_out else Q
        for group in _groups(len(total), Y.shape[1]):
            fitted = _times(Q, gains[:, group, place] * spectrum.cross[:, None, :])
            residual = Y[part, None, :] - fitted
            if left_out:
                leverage = _times(squares, gains[:, group]) + spectrum.fit_intercept
                leverage *= weights[part, None, None] / spectrum.n_samples
                freedom = np.maximum(1 - leverage, _LEAST_FREEDOM)
                residual /= freedom if freedom.shape[2] == 1 else freedom[:, :, place]
            total[group] += weights[part] @ np.square(residual).sum(axis=2)
    return (total,)


def leave_blocks_out(
    spectrum: Spectrum,
    filter: Filter,
    design: Design,
    Y: NDArray,
    alphas: NDArray,
    blocks: Sequence[NDArray],
    sample_weight: NDArray | None = None,
) -> NDArray:
    r"""Return the mean squared error of leaving out blocks of rows, for each parameter.

    .. math:: \frac{1}{\sum_B \sum_{i \in B} w_i}
              \sum_B \bigl\| (I - H_{BB})^{-1} r_B \bigr\|^2

    with rows scaled by :math:`\sqrt{w_i}`. As in `leave_one_out` it is the error of
    refits for ridge regression. The cost of a block of b rows is that of p
    eigendecompositions of order b: see `nbsketch.solvers.folds` for large blocks.

    Examples
    --------
    >>> from nbsketch.solvers import ArrayDesign, RidgeFilter, decompose
    >>> Z, Y = ArrayDesign([[0.0], [1.0], [2.0]]), np.array([[1.0], [3.0], [5.0]])
    >>> spectrum, alphas = decompose(Z, Y), np.array([1e-9, 1.0])
    >>> last = [np.array([2])]
    >>> leave_blocks_out(spectrum, RidgeFilter(), Z, Y, alphas, last).round(4).tolist()
    [0.0, 6.6122]
    """
    weights = np.ones(len(Y)) if sample_weight is None else sample_weight
    Y = Y @ spectrum.rotation - spectrum.y_mean
    gains, place = spectrum.gains(filter, alphas)
    total, mass = np.zeros(len(alphas)), 0.0
    for batch in _batches(blocks):
        rows = np.sort(np.concatenate(batch))
        Z = design.gather(rows).collect().astype(np.float64, copy=False)
        Q = (Z - spectrum.z_mean) @ spectrum.vectors
        for block in batch:
            part = Q[np.searchsorted(rows, block)], Y[block], weights[block]
            total += block_squares(spectrum, gains, place, *part)
            mass += weights[block].sum()
    return total / mass


def block_squares(
    spectrum: Spectrum,
    gains: NDArray,
    place: NDArray,
    Q: NDArray,
    Y: NDArray,
    weights: NDArray,
) -> NDArray:
    """Return the weighted squared error of leaving a block out, for p parameters.

    `gains` and `place` are those of the spectrum; Q and Y are the features and the
    targets of the block, centered and rotated.
    """
    total, roots = np.zeros(gains.shape[1]), np.sqrt(weights[:, None])
    Q = Q * roots
    fitted = _times(Q, gains[:, :, place] * spectrum.cross[:, None, :])
    residual = roots[:, None] * Y[:, None, :] - fitted
    constant = spectrum.fit_intercept * roots @ roots.T / spectrum.n_samples
    for j in range(gains.shape[2]):
        H = (Q * gains[:, :, j].T[:, None, :]) @ Q.T / spectrum.n_samples
        chosen = residual[:, :, place == j].transpose(1, 0, 2)
        total += _left_out_squares(H + constant, chosen)
    return total


def _batches(blocks: Sequence[NDArray]) -> Iterator[list[NDArray]]:
    """Yield lists of blocks that have together about as many rows as are read."""
    batch: list[NDArray] = []
    for block in blocks:
        batch.append(block)
        if sum(map(len, batch)) >= _ROWS:
            yield batch
            batch = []
    if batch:
        yield batch


def _left_out_squares(H: NDArray, residual: NDArray) -> NDArray:
    """Return ``|(I - H)^-1 r|^2`` for H of shape (p, b, b) and r of shape (p, b, d)."""
    residual_map = np.eye(H.shape[1]) - H
    if _is_regular(residual_map):
        return np.square(np.linalg.solve(residual_map, residual)).sum(axis=(1, 2))
    values, vectors = np.linalg.eigh(residual_map)
    freedom = np.maximum(values, _LEAST_FREEDOM)[:, :, None]
    return np.square((vectors.transpose(0, 2, 1) @ residual) / freedom).sum(axis=(1, 2))


def _is_regular(matrices: NDArray) -> bool:
    """Return whether symmetric matrices are far from singular, by their pivots."""
    try:
        roots = np.linalg.cholesky(matrices)
    except np.linalg.LinAlgError:
        return False
    return bool(np.diagonal(roots, axis1=1, axis2=2).min() > _REGULAR)


def generalized_cross_validation(
    spectrum: Spectrum, filter: Filter, alphas: NDArray
) -> NDArray:
    r"""Return the generalized cross-validation error for each parameter.

    .. math:: \frac{\frac1n \sum_i w_i \|y_i - \hat y_i\|^2}
              {\bigl(1 - \operatorname{Tr}(H) / n\bigr)^2}

    from the spectrum alone: no row is read. Tr(H) is the mean over the outputs.

    References
    ----------
    P. Craven and G. Wahba, "Smoothing Noisy Data with Spline Functions", Numerische
    Mathematik 1979. G. H. Golub, M. Heath and G. Wahba, "Generalized Cross-Validation
    as a Method for Choosing a Good Ridge Parameter", Technometrics 1979.

    Examples
    --------
    >>> from nbsketch.solvers import ArrayDesign, RidgeFilter, decompose
    >>> Z, Y = ArrayDesign([[0.0], [1.0], [2.0]]), np.array([[1.0], [3.0], [5.0]])
    >>> alphas = np.array([1e-9, 1.0])
    >>> error = generalized_cross_validation(decompose(Z, Y), RidgeFilter(), alphas)
    >>> error.round(4).tolist()
    [0.0, 3.375]
    """
    # A floor, so that among interpolating solutions the strongest filter is the best.
    floor = _LEAST_ERROR * spectrum.y_square
    error = spectrum.mean_squares(filter, alphas) + floor
    freedom = 1 - spectrum.trace(filter, alphas) / spectrum.n_samples
    return error / np.square(np.maximum(freedom, _LEAST_FREEDOM))


def held_out_error(
    spectrum: Spectrum,
    filter: Filter,
    design: Design,
    Y: NDArray,
    alphas: NDArray,
    sample_weight: NDArray | None = None,
) -> NDArray:
    """Return the weighted mean squared error on other rows for each parameter.

    Examples
    --------
    >>> from nbsketch.solvers import ArrayDesign, RidgeFilter, decompose
    >>> Z, Y = ArrayDesign([[0.0], [1.0], [2.0]]), np.array([[1.0], [3.0], [5.0]])
    >>> other, alphas = ArrayDesign([[3.0]]), np.array([1e-9, 1.0])
    >>> spectrum, target = decompose(Z, Y), np.array([[7.0]])
    >>> errors = held_out_error(spectrum, RidgeFilter(), other, target, alphas)
    >>> errors.round(4).tolist()
    [0.0, 5.76]
    """
    weights = np.ones(len(Y)) if sample_weight is None else sample_weight
    return _mean_squares(spectrum, filter, design, Y, alphas, weights, left_out=False)


def _groups(count: int, n_outputs: int) -> Iterator[slice]:
    """Yield slices of the parameters for which predictions are computed at a time."""
    group = max(1, _COLUMNS // n_outputs)
    for first in range(0, count, group):
        yield slice(first, first + group)


def _times(Q: NDArray, factors: NDArray) -> NDArray:
    """Return the product of (rows, r) with (r, p, d), of shape (rows, p, d)."""
    r, count, d = factors.shape
    return (Q @ factors.reshape(r, count * d)).reshape(len(Q), count, d)
