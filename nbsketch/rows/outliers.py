"""Gross errors: targets with residuals far beyond the scale of the others.

`suspect_targets` is the rule for reported and excluded targets: the leave-one-out
residual of a robust regression is beyond a gap, and a fit to all rows has not learned
it. `inliers` trims up to 5 % when a robust loss learns length scales and penalty.
"""

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any, NamedTuple, Self

import numpy as np
import scipy.special
from numpy.typing import NDArray

from nbsketch._expansion import projection
from nbsketch._machine.blas import eigh
from nbsketch.kernels import weighted_median

# Factor from a median absolute deviation to a standard deviation.
NORMAL = 1.4826
# Maximum share of excluded rows.
MOST = 0.05
# Residuals below this share of the spread of the targets may be rounding,
_ROUNDING = 1e-6
# unless they are below this share of the scale of the targets: a model explains the
# targets, and a few values such as 1e9 cause the large spread.
_EXPLAINED = 0.9
# Without noise, residuals are below this share of the scale of the targets.
_HARDLY_ANY = 1e-2
# Rows and landmarks of the robust regression that detects gross errors of any share.
_LEAST_ROWS = 50
_MOST_ROWS = 1000
_LANDMARKS = 100
# Number of rows whose features are computed at a time.
_BLOCK = 1 << 14
# Its penalties, for features with a mean square of one.
_TAUS = np.logspace(-5, 3, 9)[:, None, None]
# Residuals (in deviations) are cut to this limit; beyond twice the limit they decrease,
# and beyond four times the limit they are zero.
_CUT = 1.5
# Iterations stop when the scale of the residuals changes by a smaller share.
_PASSES = 12
_STEADY = 0.02
# Minimum and maximum of the local size of residuals, in deviations.
_SIZES = 0.05, 30.0
# A gap: residuals beyond a limit, with hardly any between a share of the limit and the
# limit, fewer than expected for tails that decrease with a power of the size. The power
# is estimated from the sizes just below; -1.3 is used if they are few or decrease more
# slowly.
_LIMITS = 6.0 * np.sqrt(2) ** np.arange(24)
_RATIOS = np.sqrt(2) ** np.arange(2, 19)
_LOWEST = 3
_POWER = 1.3
_CHANCE = 1e-3
_IN_GAP = 0.4
# A larger share beyond the gap is a population (such as amounts next to zeros): a
# larger share of targets at one end.
_MOST_BEYOND = 0.36
_MOST_EQUAL = 0.2
# For a population, a fit to all rows learns a share of the squares that exceeds the
# share of its rows: predictable populations have 0.17 to 0.68, errors at most 0.06.
_LEARNED = 0.1


class OutlierWarning(UserWarning):
    """Warning: some targets look like gross errors.

    `fit` of a `TabularKernelRegressor` warns if it excluded samples (`outliers_`), and
    if targets look like gross errors but are used (`suspects_`), because they are more
    than 5 % or the other targets cannot be predicted. `fit` of a
    `SketchedKernelRegressor` with the square loss uses all of them (`suspects_`).

    Examples
    --------
    >>> import warnings
    >>> import numpy as np
    >>> from nbsketch import OutlierWarning, TabularKernelRegressor
    >>> X = np.linspace(0, 1, 100)[:, None]
    >>> y = np.sin(6 * X[:, 0]) + 0.1 * np.random.default_rng(0).normal(size=100)
    >>> y[70] = 1e3
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always", OutlierWarning)
    ...     model = TabularKernelRegressor(random_state=0).fit(X, y)
    >>> caught[0].category.__name__, model.outliers_.tolist()
    ('OutlierWarning', [70])
    """


def outlier_warning(count: int, n: int, reason: str) -> OutlierWarning:
    """Return the warning for `count` gross errors, excluded or used for a reason."""
    text = f"{count} of {n} targets look like gross errors"
    if not reason:
        return OutlierWarning(
            f"{text} and are excluded (`outliers_`): they do not affect predictions, "
            "expected errors and intervals"
        )
    return OutlierWarning(
        f"{text} (`suspects_`); {reason}, so all are used: correct the wrong ones, "
        "or pass a robust loss, as SketchedKernelRegressor(loss='pinball')"
    )


def inliers(
    residuals: NDArray,
    targets: NDArray,
    limit: float,
    counted: NDArray | None = None,
    weights: NDArray | None = None,
) -> NDArray:
    """Return a mask of the rows within `limit` deviations, at least 95 % of all.

    Rows beyond a gap do not count: they are out, whatever their share. The deviation is
    computed from the rows in the mask `counted`. None: all rows. The residuals of the
    others may be far smaller, so each part has its own gap.
    """
    sizes = deviations(residuals, targets, counted, weights)
    near = np.ones(len(sizes), dtype=bool)
    counted = near if counted is None else counted
    for part in (counted, ~counted):
        if part.any():
            near[part] = within_gap(sizes[part])
    is_equal = weights is None or np.ptp(weights) == 0
    method: Any = "linear" if is_equal else "inverted_cdf"
    w = None if weights is None or is_equal else weights[near]
    most = np.quantile(sizes[near], 1 - MOST, weights=w, method=method)
    return near & (sizes <= max(limit, float(most)))


def clipped(targets: NDArray, share: float) -> NDArray:
    """Return targets (n, d) within those that are not beyond a gap, and a share less.

    Outputs of which more than half are equal are unchanged.
    """
    sizes = np.abs(targets - medians(targets))
    scale = medians(sizes)
    near = within_gap((sizes / np.where(scale > 0, scale, np.inf)).max(axis=1))
    ends = np.quantile(targets[near], [share, 1 - share], axis=0)
    return np.where(scale > 0, np.clip(targets, *ends), targets)


def within_gap(sizes: NDArray) -> NDArray:
    """Return a mask of the sizes that are not beyond a gap; if they are few, of all."""
    near = ~_beyond_gap(sizes)
    return near | (near.mean() < 1 - _MOST_BEYOND)


def deviations(
    residuals: NDArray,
    targets: NDArray,
    counted: NDArray | None = None,
    weights: NDArray | None = None,
) -> NDArray:
    """Return sizes (n,) of residuals (n, d) in robust standard deviations.

    The maximum over the outputs; zero for an output without a noise scale.
    """
    used = slice(None) if counted is None else counted
    w = None if weights is None else weights[used]
    scale = noise_scale(residuals[used], targets[used], w)
    return np.abs(residuals / scale).max(axis=1)


def noise_scale(
    residuals: NDArray, targets: NDArray, weights: NDArray | None = None
) -> NDArray:
    """Return the robust standard deviations (d,) of residuals (n, d) of targets (n, d).

    Infinite for an output without a noise scale: more than half of its targets or
    residuals are equal (claims, counts), or the residuals are rounding.
    """
    if not len(residuals):
        return np.full(residuals.shape[1], np.inf)
    sigma, bulk = robust_scales(residuals, targets, weights)
    varied = medians(np.abs(residuals - medians(residuals, weights)), weights)
    is_noise = sigma > _ROUNDING * targets.std(axis=0)
    is_noise |= are_explained(sigma, bulk)
    return np.where((varied > _ROUNDING * sigma) & (bulk > 0) & is_noise, sigma, np.inf)


def are_explained(sigma: NDArray, bulk: NDArray) -> NDArray:
    """Return whether a model predicts the middle of the targets, given scales (d,).

    Predictions that are exact up to rounding do not count.
    """
    return (sigma > _ROUNDING * bulk) & (sigma < _EXPLAINED * bulk)


def robust_scales(
    residuals: NDArray, targets: NDArray, weights: NDArray | None
) -> tuple[NDArray, NDArray]:
    """Return robust standard deviations of residuals and of targets."""
    sigma = NORMAL * medians(np.abs(residuals), weights)
    return sigma, NORMAL * medians(np.abs(targets - medians(targets, weights)), weights)


def medians(values: NDArray, weights: NDArray | None = None) -> NDArray:
    """Return the medians of columns whose rows are repeated by their weights."""
    if weights is None or np.ptp(weights) == 0:
        return np.median(values, axis=0)
    return np.array([weighted_median(column, weights) for column in values.T])


def suspect_targets(
    kernel: Callable[[Any, Any], NDArray],
    rows: Any,
    Y: NDArray,
    left_out: Callable[[], NDArray] | None = None,
    weights: NDArray | None = None,
) -> tuple[NDArray, NDArray]:
    """Return the rows whose targets look like gross errors, of any share.

    A row is suspect if its leave-one-out residual in a robust regression is beyond a
    gap, in units of the local size of residuals, and no fit to all rows has learned it.

    Parameters
    ----------
    kernel : callable
        Kernel of two arrays of rows.
    rows : array of shape (n, p)
        Rows in random order: the first are the landmarks of the regression, which is
        fitted to at most 1000 rows.
    Y : ndarray of shape (n, d)
        Targets.
    left_out : callable or None, default=None
        Returns the leave-one-out residuals (n, d) of the fit to all rows. None: least
        squares on the features of the regression.
    weights : ndarray of shape (n,) or None, default=None
        Weights of the residuals in their scale.

    Returns
    -------
    suspects : ndarray of bool of shape (n,)
        Mask of the suspect rows.
    residuals : ndarray of shape (n, d)
        Leave-one-out residuals of the robust regression.
    """
    ridge = RobustPath.of(kernel, rows, len(Y))
    residuals = robust_residuals(ridge, Y)
    sizes = np.abs(residuals) / noise_scale(residuals, Y, weights)
    if not (sizes > _LIMITS[0]).any():
        return np.zeros(len(Y), dtype=bool), residuals
    logs = np.log(np.clip(sizes, *_SIZES))
    local = logs - robust_residuals(ridge, logs)
    sizes /= np.exp(np.maximum(local - medians(local, weights), 0.0))
    beyond = np.stack([_beyond_gap(column) for column in sizes.T], axis=1)
    if beyond.any():
        plain = ridge.residuals(Y) if left_out is None else left_out()
        columns = zip(beyond.T, residuals.T, plain.T, Y.T, strict=True)
        beyond[:, [_is_population(*column) for column in columns]] = False
    return np.any(beyond, axis=1), residuals


def is_noise_free(residuals: NDArray, targets: NDArray) -> bool:
    """Return whether held-out residuals (n, d) are tiny relative to targets (n, d).

    Their sizes then depend on the distances between rows, not on noise.
    """
    sigma, bulk = robust_scales(residuals, targets, None)
    return bool((sigma <= _HARDLY_ANY * bulk).any())


def far_outside(targets: NDArray, suspects: NDArray) -> NDArray:
    """Return a mask of the targets beyond three times the range of unsuspected ones."""
    low = targets[~suspects].min(axis=0)
    high = targets[~suspects].max(axis=0)
    return (np.abs(targets - (low + high) / 2) > 1.5 * (high - low)).any(axis=1)


def drawn_rows(weights: NDArray) -> NDArray:
    """Return rows for detecting gross errors, drawn in proportion to weights (n,).

    They are in random order, at most 1000, without repetition; none for small data.
    """
    order = np.random.default_rng(0).permutation(len(weights))  # not part of the fit
    total = np.cumsum(weights[order])
    count = min(len(order), _MOST_ROWS)
    places = np.searchsorted(total, total[-1] * (np.arange(count) + 0.5) / count)
    rows = order[np.unique(places)]
    return rows if len(rows) >= _LEAST_ROWS else rows[:0]


class RobustPath(NamedTuple):
    """Ridge regressions on features of the first rows, one per penalty.

    Attributes
    ----------
    Q : ndarray of shape (m, r)
        Centered features of these rows, in the eigenbasis of their covariance.
    gains : ndarray of shape (penalties, r, 1)
        Inverses of the eigenvalues plus the penalties.
    left : ndarray of shape (penalties, m, 1)
        One minus the leverages of these rows.
    further : callable
        Yields the features of the other rows, in blocks.
    """

    Q: NDArray
    gains: NDArray
    left: NDArray
    further: Callable[[], Iterator[NDArray]]

    @classmethod
    def of(cls, kernel: Callable[[Any, Any], NDArray], rows: Any, n: int) -> Self:
        """Return the path for n rows, whose first rows are the landmarks."""
        landmarks = rows[: min(_LANDMARKS, max(n // 6, 1))]
        count = min(n, _MOST_ROWS)
        basis = projection(kernel(landmarks, landmarks))
        F = kernel(rows[:count], landmarks) @ basis
        center = F.mean(axis=0)
        F -= center
        scale = np.sqrt(count / max(np.square(F).sum(), 1e-300))
        squares, vectors = eigh(F.T @ F * scale**2)
        vectors *= scale

        def further() -> Iterator[NDArray]:
            for start in range(count, n, _BLOCK):
                values = kernel(rows[start : start + _BLOCK], landmarks)
                yield (values @ basis - center) @ vectors

        gains = 1 / (np.maximum(squares, 0)[:, None] + _TAUS)
        Q = F @ vectors
        left = np.maximum(1 - 1 / count - np.square(Q) @ gains, 1e-6)
        return cls(Q, gains, left, further)

    def fit(
        self, targets: NDArray, scale: Any = 1.0
    ) -> tuple[NDArray, NDArray, NDArray]:
        """Return mean, coefficients and leave-one-out errors of the best penalty."""
        mean = targets.mean(axis=0)
        centered = targets - mean
        coefs = self.gains * (self.Q.T @ centered)
        errors = [  # one penalty at a time stays in the cache
            (centered - self.Q @ coef) / left
            for coef, left in zip(coefs, self.left, strict=True)
        ]
        best = np.argmin([np.square(e / scale).sum() for e in errors])
        return mean, coefs[best], errors[best]

    def residuals(self, Y: NDArray) -> NDArray:
        """Return residuals (n, d) of least squares, held-out for the first rows."""
        return self.beside(Y, *self.fit(Y[: len(self.Q)]))

    def beside(self, Y: NDArray, mean: Any, coef: NDArray, first: NDArray) -> NDArray:
        """Return residuals (n, d) of all rows, given those of the first rows."""
        fitted = [Y[: len(first)] - first, *(mean + Q @ coef for Q in self.further())]
        return Y - np.vstack(fitted)


def robust_residuals(ridge: RobustPath, targets: NDArray) -> NDArray:
    """Return leave-one-out residuals (n, d), with median zero, of a robust ridge.

    Each fit is to the previous fit plus its trimmed residuals (Huber's pseudo-values).
    """
    Y = targets[: len(ridge.Q)]
    mean = np.median(Y, axis=0)
    coef = np.zeros((ridge.Q.shape[1], Y.shape[1]))
    residuals = Y - mean
    least = np.maximum(1e-100 * np.abs(Y).max(axis=0), 1e-150)
    for end in (np.inf, 4 * _CUT):
        before = 0.0
        for _ in range(_PASSES):
            scale = np.maximum(NORMAL * medians(np.abs(residuals)), least)
            if (np.abs(scale - before) <= _STEADY * scale).all():
                break
            before = scale
            fitted = mean + ridge.Q @ coef
            cut = fitted + scale * _pull((Y - fitted) / scale, end)
            mean, coef, errors = ridge.fit(cut, scale)
            residuals = Y - cut + errors
            residuals -= medians(residuals)
    every = ridge.beside(targets, mean, coef, residuals)
    return every - medians(every)


def _pull(sizes: NDArray, end: float) -> NDArray:
    """Return residuals, in deviations, cut to a limit; zero beyond `end`."""
    share = np.clip((end - np.abs(sizes)) / (2 * _CUT), 0, 1)
    return np.clip(sizes, -_CUT, _CUT) * share


def _beyond_gap(sizes: NDArray) -> NDArray:
    """Return a mask of the sizes beyond a gap."""
    scale = max(NORMAL * float(np.median(sizes)), 1e-300)
    return sizes > scale * _limit(sizes / scale)


def _is_population(
    beyond: NDArray, residuals: NDArray, plain: NDArray, targets: NDArray
) -> bool:
    """Return whether the targets beyond a gap may be a population."""
    share = beyond.mean()
    values, counts = np.unique(targets[~beyond], return_counts=True)
    ends = np.isin(values, [targets.min(), targets.max()])
    return bool(
        share > _MOST_BEYOND
        or counts[ends].max(initial=0) > _MOST_EQUAL * len(targets)
        or is_learned(beyond, residuals, plain)
    )


def is_learned(beyond: NDArray, residuals: NDArray, plain: NDArray) -> bool:
    """Return whether a fit to all rows has learned the rows beyond a limit.

    `residuals` are of a robust fit, `plain` of the fit to all rows, both left out.
    """
    learned = residuals - plain
    learned -= np.median(learned[~beyond], axis=0)
    return _skill(residuals[beyond], learned[beyond]) > _LEARNED + beyond.mean()


def _skill(residuals: NDArray, learned: NDArray) -> float:
    """Return the share of the squares of residuals that a fit has learned.

    It is a lower bound, by one standard error of the sum of products if gross errors
    have random signs.
    """
    total = float(np.square(residuals).sum())
    left = residuals - learned
    explained = total - float(np.square(left).sum())
    return (explained - 2 * float(np.linalg.norm(left * learned))) / max(total, 1e-300)


def _limit(sizes: NDArray) -> float:
    """Return twice the lower limit of the least probable gap; infinity without one."""
    least = _CHANCE
    found = np.inf
    ascending = np.sort(sizes)
    for limit, ratio in product(_LIMITS[ascending[-1] > _LIMITS], _RATIOS):
        low = limit / ratio
        beyond = len(sizes) - np.searchsorted(ascending, limit, "right")
        between = len(sizes) - np.searchsorted(ascending, low, "right") - beyond
        if low >= _LOWEST and between <= _IN_GAP * beyond:
            share = ratio ** -_power(ascending, low)
            chance = scipy.special.bdtrc(beyond - 1, beyond + between, share)
            if chance < least:
                least = chance
                found = _RATIOS[0] * low
    return found


def _power(ascending: NDArray, end: float) -> float:
    """Return the power of the tail of sizes up to `end`, minus its standard error.

    Hill's estimate from the sizes beyond half of `_LOWEST`, censored at the end.
    """
    tail = ascending[np.searchsorted(ascending, _LOWEST / 2, "right") :]
    count = np.searchsorted(tail, end, "right")
    total = np.log(np.minimum(tail, end) / (_LOWEST / 2)).sum()
    return max(_POWER, float((count - np.sqrt(count)) / max(total, 1e-300)))
