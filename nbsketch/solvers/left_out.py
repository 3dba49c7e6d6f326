r"""Errors of linear smoothers: leave-one-out, blocks, folds, GCV, held-out rows.

Fits of a spectral filter are linear in the targets, :math:`\hat Y = H Y`, with :math:`H
= Q \operatorname{diag}(u\, G_a(u))\, Q^T` on centered data, for every parameter of a
path at once.

The moments of the left-out rows of a fold are subtracted from those of all rows, so
that a fold costs an eigendecomposition and the products with its own rows. The penalty
stays :math:`n \alpha` for the n rows of the full fit, as in leave-one-out.

If neighboring rows are nearly repeated, leaving out contiguous blocks gives far larger
errors than leaving out random blocks of the same rows. For independent rows both errors
have the same distribution, for any targets, noise and model.
"""

from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nbsketch._machine.blas import eigh, graded_eigh
from nbsketch._machine.memory import batches, slices
from nbsketch._report.validation import row_weights
from nbsketch.solvers.design import ArrayDesign, Design
from nbsketch.solvers.filters import Filter, RidgeFilter
from nbsketch.solvers.spectrum import (
    CovarianceSpectrum,
    RidgePath,
    block_moments,
    chunks,
)

# Columns of predictions for several parameters computed at a time.
_COLUMNS = 64
# Minimum divisor of residuals: one minus a leverage is rounded.
_LEAST_FREEDOM = 1e-14
# Pivots of a Cholesky factor above which a system is solved without eigenvalues.
_REGULAR = 1e-3
# Rounding error of a mean squared residual, relative to that of the targets.
_LEAST_ERROR = 1e-13
# Rows of blocks read at a time.
_ROWS = 1024
# Number of blocks, maximum rows of a block, number of contiguous blocks with the
# largest errors that are ignored (gross outliers, ends of a grid), and number of random
# partitions.
_BLOCKS = 20
_MOST_ROWS = 100
_TRIMMED = 2
_PARTITIONS = 3
# Ratio of errors above which leave-one-out is contradicted, and minimum relevant error,
# in standard deviations of the targets.
_WORSE = 1.5
_LEAST_EFFECT = 0.1
# Work of an eigendecomposition of order r, in multiples of r^3.
_EIGH = 9
# Minimum share of the weight that a fold keeps, against rounding.
_LEAST_KEPT = 1e-10


def leave_one_out(
    spectrum: CovarianceSpectrum,
    filter: Filter,
    design: Design,
    Y: NDArray,
    alphas: NDArray,
    sample_weight: NDArray | None = None,
    rows: NDArray | None = None,
) -> NDArray:
    r"""Return the mean squared leave-one-out error for each parameter.

    .. math:: \frac1n \sum_i w_i \Bigl\| \frac{y_i - \hat y_i}{1 - H_{ii}} \Bigr\|^2 ,

    or its mean over `rows` (ascending), for the fit to all rows. The features are read
    once more. Landmarks and sketch are fixed. For ridge regression this is the error of
    n refits. For other filters it is the error of the smoother in which the target of
    the row is replaced by its prediction; a refit without the row would have another
    covariance.

    Examples
    --------
    >>> from nbsketch.solvers import ArrayDesign, RidgeFilter, decompose
    >>> Z, Y = ArrayDesign([[0.0], [1.0], [2.0]]), np.array([[1.0], [3.0], [5.0]])
    >>> spectrum, alphas = decompose(Z, Y), np.array([1e-9, 1.0])
    >>> leave_one_out(spectrum, RidgeFilter(), Z, Y, alphas).round(4).tolist()
    [0.0, 4.4082]
    """
    weights = row_weights(sample_weight, Y)
    if rows is not None:
        design = design.gather(rows)
        Y = Y[rows]
        weights = weights[rows]
    return _mean_squares(spectrum, filter, design, Y, alphas, weights, left_out=True)


def _mean_squares(
    spectrum: CovarianceSpectrum,
    filter: Filter,
    design: Design,
    Y: NDArray,
    alphas: NDArray,
    weights: NDArray,
    *,
    left_out: bool,
) -> NDArray:
    """Return the weighted mean over rows, with or without leave-one-out."""
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
    spectrum: CovarianceSpectrum,
    gains: NDArray,
    place: NDArray,
    left_out: bool,
) -> tuple[NDArray]:
    """Return the sums of squared residuals over a block of rows."""
    total = np.zeros(gains.shape[1])
    groups = list(slices(len(total), max(1, _COLUMNS // Y.shape[1])))
    for part, Z in chunks(ArrayDesign._trusted(block)):
        Q = (Z - spectrum.z_mean) @ spectrum.vectors
        squares = np.square(Q) if left_out else Q
        rounding = np.finfo(float).eps * Q.shape[1]  # of a leverage, a sum over these
        for group in groups:
            fitted = _times(Q, gains[:, group, place] * spectrum.cross[:, None, :])
            residual = Y[part, None, :] - fitted
            if left_out:
                leverage = _times(squares, gains[:, group]) + spectrum.fit_intercept
                leverage *= weights[part, None, None] / spectrum.n_samples
                freedom = 1 - leverage - rounding
                if freedom.shape[2] > 1:
                    freedom = freedom[:, :, place]
                residual /= np.maximum(freedom, _LEAST_FREEDOM)
                # Without other rows, the prediction is the mean.
                np.copyto(residual, Y[part, None, :], where=freedom < _LEAST_FREEDOM)
            total[group] += weights[part] @ np.square(residual).sum(axis=2)
    return (total,)


def leave_blocks_out(
    spectrum: CovarianceSpectrum,
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

    with rows scaled by :math:`\sqrt{w_i}`. As for `leave_one_out`, it is the error of
    refits for ridge regression. A block of b rows costs p eigendecompositions of order
    b: see `fold_errors` for large blocks.

    Examples
    --------
    >>> from nbsketch.solvers import ArrayDesign, RidgeFilter, decompose
    >>> Z, Y = ArrayDesign([[0.0], [1.0], [2.0]]), np.array([[1.0], [3.0], [5.0]])
    >>> spectrum, alphas = decompose(Z, Y), np.array([1e-9, 1.0])
    >>> last = [np.array([2])]
    >>> leave_blocks_out(spectrum, RidgeFilter(), Z, Y, alphas, last).round(4).tolist()
    [0.0, 6.6122]
    """
    weights = row_weights(sample_weight, Y)
    Y = Y @ spectrum.rotation - spectrum.y_mean
    gains, place = spectrum.gains(filter, alphas)
    total = np.zeros(len(alphas))
    mass = 0.0
    for several in batches(map(len, blocks), _ROWS):
        batch = blocks[several]
        rows = np.sort(np.concatenate(batch))
        Z = design.gather(rows).collect().astype(np.float64, copy=False)
        Q = (Z - spectrum.z_mean) @ spectrum.vectors
        for block in batch:
            part = Q[np.searchsorted(rows, block)], Y[block], weights[block]
            single = (values[None] for values in part)
            total += block_squares(spectrum, gains, place, *single)[0]
            mass += weights[block].sum()
    return total / mass


def block_squares(
    spectrum: CovarianceSpectrum,
    gains: NDArray,
    place: NDArray,
    Q: NDArray,
    Y: NDArray,
    weights: NDArray,
) -> NDArray:
    """Return weighted squared errors (k, p) of leaving each of k blocks out.

    They are for p parameters. `gains` and `place` are from the spectrum; Q (k, b, r)
    and Y (k, b, d) are the features and the targets of the blocks, centered and
    rotated.
    """
    count, size, r = Q.shape
    total = np.zeros((count, gains.shape[1]))
    roots = np.sqrt(weights)[:, :, None]
    Q = Q * roots
    factors = gains[:, :, place] * spectrum.cross[:, None, :]
    fitted = _times(Q.reshape(count * size, r), factors).reshape(
        count, size, *factors.shape[1:]
    )
    residual = (roots * Y)[:, :, None] - fitted
    constant = spectrum.fit_intercept * roots @ roots.swapaxes(1, 2)
    for j in range(gains.shape[2]):
        H = (Q[:, None] * gains[:, :, j].T[:, None]) @ Q[:, None].swapaxes(2, 3)
        H = (H + constant[:, None]) / spectrum.n_samples
        total += _left_out_squares(H, residual[..., place == j].swapaxes(1, 2))
    return total


def _left_out_squares(H: NDArray, residual: NDArray) -> NDArray:
    """Return ``|(I - H)^-1 r|^2`` for H (k, p, b, b) and r (k, p, b, d)."""
    residual_map = np.eye(H.shape[2]) - H
    with suppress(np.linalg.LinAlgError):
        roots = np.linalg.cholesky(residual_map)
        if np.diagonal(roots, axis1=2, axis2=3).min() > _REGULAR:
            return np.square(np.linalg.solve(residual_map, residual)).sum(axis=(2, 3))
    values, vectors = np.linalg.eigh(residual_map)
    freedom = np.maximum(values, _LEAST_FREEDOM)[..., None]
    return np.square((vectors.swapaxes(2, 3) @ residual) / freedom).sum(axis=(2, 3))


def effective_number(weights: NDArray) -> float:
    """Return the effective number of rows, (sum w)^2 / sum w^2."""
    relative = weights / weights.max()
    return float(relative.sum() ** 2 / np.square(relative).sum())


def generalized_cross_validation(
    spectrum: CovarianceSpectrum,
    filter: Filter,
    alphas: NDArray,
    sample_weight: NDArray | None = None,
) -> NDArray:
    r"""Return the generalized cross-validation error for each parameter.

    .. math:: \frac{\frac1n \sum_i w_i \|y_i - \hat y_i\|^2}
              {\bigl(1 - \operatorname{Tr}(H) / n\bigr)^2}

    from the spectrum alone, without reading rows. Tr(H) is the mean over the outputs,
    and n the effective number of rows, :math:`(\sum w)^2 / \sum w^2`: rows of tiny
    weight add no degrees of freedom.

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
    # A lower bound, so that among interpolating solutions the strongest filter is best.
    floor = _LEAST_ERROR * spectrum.y_square.sum()
    error = spectrum.mean_squares(filter, alphas) + floor
    n = spectrum.n_samples if sample_weight is None else effective_number(sample_weight)
    freedom = 1 - spectrum.trace(filter, alphas) / n
    return error / np.square(np.maximum(freedom, _LEAST_FREEDOM))


def held_out_error(
    spectrum: CovarianceSpectrum,
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
    weights = row_weights(sample_weight, Y)
    return _mean_squares(spectrum, filter, design, Y, alphas, weights, left_out=False)


def _times(Q: NDArray, factors: NDArray) -> NDArray:
    """Return the product of (rows, r) with (r, p, d), of shape (rows, p, d)."""
    r, count, d = factors.shape
    return (Q @ factors.reshape(r, count * d)).reshape(len(Q), count, d)


class OrderEffect(NamedTuple):
    """Root mean squared errors of leaving blocks of rows out.

    Attributes
    ----------
    contiguous : float
        With blocks of contiguous rows, without the two largest errors.
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
        return self.contiguous > max(_WORSE * self.random, _LEAST_EFFECT * self.spread)


def order_effect(
    spectrum: CovarianceSpectrum,
    filter: Filter,
    design: Design,
    Y: NDArray,
    alpha: float,
    sample_weight: NDArray | None = None,
) -> OrderEffect:
    """Compare errors of contiguous and of random blocks of at most 2000 rows.

    Parameters are as in `leave_blocks_out`, for a single parameter `alpha` of the
    filter.

    Examples
    --------
    >>> from nbsketch.solvers import ArrayDesign, RidgeFilter, decompose
    >>> rng = np.random.default_rng(0)
    >>> Z = ArrayDesign(np.repeat(rng.normal(size=(20, 15)), 5, axis=0))
    >>> Y = np.repeat(rng.normal(size=(20, 1)), 5, axis=0)
    >>> order_effect(decompose(Z, Y), RidgeFilter(), Z, Y, 1e-3).is_contradicted
    True
    """
    weights = row_weights(sample_weight, Y)
    blocks = contiguous_blocks(np.flatnonzero(weights > 0))
    rows = blocks.ravel()
    Q = (design.gather(rows).collect() - spectrum.z_mean) @ spectrum.vectors
    Y = Y[rows] @ spectrum.rotation - spectrum.y_mean
    weights = weights[rows]
    gains = spectrum.gains(filter, np.array([alpha]))

    def errors(order: NDArray) -> NDArray:
        order = order.reshape(blocks.shape)
        squares = block_squares(spectrum, *gains, Q[order], Y[order], weights[order])
        return squares[:, 0] / weights[order].sum(axis=1)

    rng = np.random.default_rng(0)  # not part of the fit
    others = [errors(rng.permutation(len(rows))) for _ in range(_PARTITIONS)]
    ordered = np.sort(errors(np.arange(len(rows))))
    return OrderEffect(
        contiguous=float(np.sqrt(ordered[: max(1, len(ordered) - _TRIMMED)].mean())),
        random=float(np.sqrt(max(other.mean() for other in others))),
        spread=float(np.sqrt(spectrum.y_square.sum())),
    )


def contiguous_blocks(rows: NDArray) -> NDArray:
    """Return at most 20 blocks (k, b) of up to 100 neighboring rows, evenly spaced."""
    count = min(_BLOCKS, max(1, len(rows) // 2))
    size = min(_MOST_ROWS, len(rows) // count)
    return np.stack([part[:size] for part in np.array_split(rows, count)])


class Fold(NamedTuple):
    """One split of the rows.

    Attributes
    ----------
    test : ndarray of int
        Ascending indices of the rows on which the error is measured.
    removed : ndarray of int
        Ascending indices of the rows excluded from the fit: those of `test` and, if the
        training set is smaller, others.
    """

    test: NDArray
    removed: NDArray

    @property
    def is_block(self) -> bool:
        """Whether the model is fitted to all other rows."""
        return len(self.test) == len(self.removed)

    def kept(self, n: int) -> NDArray:
        """Return the ascending indices of the fitted rows, out of n."""
        return np.delete(np.arange(n), self.removed)


Folds = tuple[Fold, ...]


def fold_errors(
    spectrum: CovarianceSpectrum,
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
    spectrum : CovarianceSpectrum
        Spectrum of all rows, from `decompose` with the same weights.
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
        Nonnegative weights of mean one. None: equal weights.

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
    weights = row_weights(sample_weight, Y)
    total = np.zeros(len(alphas))
    mass = 0.0
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


def cross_validation(
    path: RidgePath,
    design: Design,
    Y: NDArray,
    alphas: NDArray,
    folds: Sequence[Fold],
    sample_weight: NDArray | None = None,
) -> NDArray:
    """Return the mean squared error on the test rows of all folds for each alpha.

    It is the error of refits with the penalty n alpha of all n rows: in closed form for
    small blocks, else by `fold_errors`.

    Examples
    --------
    >>> from nbsketch.solvers import ArrayDesign, Fold, ridge_path
    >>> Z, Y = ArrayDesign([[0.0], [1.0], [2.0]]), np.array([[1.0], [3.0], [5.0]])
    >>> last = Fold(test=np.array([2]), removed=np.array([2]))
    >>> alphas = np.array([1e-9, 1.0])
    >>> cross_validation(ridge_path(Z, Y), Z, Y, alphas, [last]).round(4).tolist()
    [0.0, 6.6122]
    """
    args = path, RidgeFilter(), design, Y, alphas
    b = max(len(fold.test) for fold in folds)
    r = len(path.values)
    by_blocks = len(alphas) * b * b * (2 * r + _EIGH * b)
    if all(fold.is_block for fold in folds) and by_blocks < _EIGH * r**3:
        return leave_blocks_out(*args, [fold.test for fold in folds], sample_weight)
    return fold_errors(*args, folds, sample_weight)


def without_rows(
    spectrum: CovarianceSpectrum, design: Design, Y: NDArray, weights: NDArray
) -> CovarianceSpectrum:
    """Return the spectrum of the remaining rows, normalized by the number of all rows.

    `design`, `Y` and `weights` belong to the rows to remove.
    """
    n = spectrum.n_samples
    Y = Y @ spectrum.rotation - spectrum.y_mean
    lost = design.total(
        block_moments, spectrum.z_mean, spectrum.vectors, rows=[Y, weights]
    )
    gram = n * np.diag(spectrum.values) - lost[0]
    cross = n * spectrum.cross - lost[1]
    z_sum = -lost[2]
    y_sum = -weights @ Y
    square = n * spectrum.y_square - weights @ np.square(Y)
    if not spectrum.fit_intercept:
        z_mean = np.zeros_like(z_sum)
        y_mean = np.zeros_like(y_sum)
    else:
        kept = max(n - float(weights.sum()), _LEAST_KEPT * n)
        z_mean = z_sum / kept
        y_mean = y_sum / kept
        gram -= kept * np.outer(z_mean, z_mean)
        cross -= kept * np.outer(z_mean, y_mean)
        square -= kept * np.square(y_mean)
    decomposition = graded_eigh if spectrum.least < 1 else eigh
    values, vectors = decomposition(gram / n)
    return spectrum._replace(
        values=np.maximum(values, 0.0),
        vectors=spectrum.vectors @ vectors,
        cross=vectors.T @ cross / n,
        z_mean=spectrum.z_mean + spectrum.vectors @ z_mean,
        y_mean=spectrum.y_mean + y_mean,
        y_square=np.maximum(square / n, 0.0),
    )
