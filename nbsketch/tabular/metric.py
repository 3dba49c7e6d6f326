r"""The global member of the stack: ridge on many landmarks or all rows, with a metric.

The metric is the mean outer product of gradients of the fitted function,

.. math:: M = \frac{1}{m} \sum_i \sum_k \nabla f_k(x_i) \nabla f_k(x_i)^T,
          \qquad x \mapsto M^{1/2} x,

which describes smooth functions of rotated columns (Radhakrishnan et al., Science
2024). It starts from the learned length scales, and replaces them only if the left-out
error falls by a margin: it may mix useless columns into all others.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nbsketch._memory import fits
from nbsketch.gram import CompiledForm
from nbsketch.tabular.base import Base, Ridge
from nbsketch.tabular.members import Training, fit_tree, form_of
from nbsketch.tabular.partition import whole
from nbsketch.tabular.scales import SampleError, Scales

# Landmarks of the member; all rows, up to so many.
_LANDMARKS, EXACT_ROWS = 1000, 4000
# Rows that choose the penalty of all rows.
_PENALTY_ROWS = 1000
# More landmarks are worth their time if twice as many have this ratio of errors.
_FALL = 0.95
# Rows and landmarks of the search for the metric.
_ROWS, _FEW = 2500, 500
# Rows and landmarks of the comparison that precedes it, and the width it tries.
_QUICK_ROWS, _QUICK_FEW, _QUICK_WIDTH = 1000, 200, -0.4
# With more columns there is no search.
_MOST_COLUMNS = 200
_ROUNDS = 2
# A metric is accepted from this ratio of root mean squared left-out errors.
_MARGIN = 0.95
# Eigenvalues of M are at least this share of the largest.
_FLOOR = 1e-8
# Kernel matrix, factor and inverse of all rows, in double precision.
_COPIES = 3
# The search for the penalty of all rows starts here.
_TAU = 1e-3
# Logarithms of the widths of a metric that are tried.
_WIDTHS = (-0.8, -0.4, 0.0)


class Global(NamedTuple):
    """A fitted ridge on landmarks of mapped rows.

    Attributes
    ----------
    map : ndarray of shape (p, p)
        Map of the preprocessed columns, which holds the length scales.
    base : Base
        The ridge; its landmarks are mapped.
    weight : float
        Weight in the stack.
    """

    map: NDArray
    base: Base
    weight: float

    @classmethod
    def of(cls, parts: tuple[Any, ...]) -> Global:
        """Return the ridge with these parts, plain tuples if it was loaded."""
        matrix, base, weight = parts
        return cls(matrix, Base(*base), weight)

    def predict(self, family: str, rows: NDArray) -> NDArray:
        """Return the values at preprocessed rows (n, p), of shape (n, d)."""
        form = _unscaled(family, len(self.map))
        return self.base.predict(form, rows @ self.map)

    def slopes(self) -> NDArray:
        """Return the norm of the map of each column, (p,)."""
        return np.linalg.norm(self.map, axis=1)

    @property
    def is_rotated(self) -> bool:
        """Whether the map mixes columns."""
        return bool(np.count_nonzero(self.map - np.diag(self.map.diagonal())))


def fit_global(
    family: str,
    data: Training,
    inverse: NDArray,
    validation: NDArray,
    rng: np.random.Generator,
    *,
    only_rotated: bool,
    searches: bool = True,
) -> tuple[Global, NDArray] | None:
    """Fit the ridge with inverse length scales (p,), times a metric if it helps.

    It has 1000 landmarks, or all rows up to 4000. `family` is "matern-3/2", whose
    gradients the search for the metric uses.
    `only_rotated`: without a metric, return None. `searches`: search for a metric.

    Returns
    -------
    member : Global
        The fitted ridge, of weight 1.
    residual : ndarray of shape (m, d)
        Left-out residuals of the validation rows.
    """
    scales, found = form_of(family, inverse).scale, None
    if searches and len(scales) <= _MOST_COLUMNS:
        found = find_metric(family, _sampled(data, scales, _ROWS, rng), rng)
    if found is None and only_rotated:
        return None
    matrix = np.diag(scales) if found is None else scales[:, None] * found
    mapped = data._replace(rows=data.rows @ matrix)
    if _takes_all(len(data.Y)):
        base, residual = _fit_exact(family, mapped, validation, rng)
    else:
        form, known = _unscaled(family, len(scales)), data.labels
        options = data.weights, _LANDMARKS, rng, known, validation
        base, residual = Ridge(form, mapped.rows, *options).fit(data.Y)
    return Global(matrix, base, 1.0), residual


def _takes_all(n: int) -> bool:
    """Return whether n rows are more than the landmarks, and few enough to use all."""
    return _LANDMARKS < n <= EXACT_ROWS and fits(8 * n**2, copies=_COPIES)


def _fit_exact(
    family: str, data: Training, validation: NDArray, rng: np.random.Generator
) -> tuple[Base, NDArray]:
    """Fit the ridge on all rows, in units of their length scales; see `fit_global`."""
    n, p = data.rows.shape
    ones = np.ones(p)
    unit = data._replace(rows=data.rows / form_of(family, ones).scale)
    some = np.sort(rng.choice(n, min(_PENALTY_ROWS, n), replace=False))
    scales = Scales(family, ones, _TAU)
    tau = SampleError(unit, scales, [some]).best_penalty().tau
    wanted = np.zeros(n, dtype=bool)
    wanted[validation] = True
    tree, residual = fit_tree(scales.form, unit, whole(n), tau, left_out=wanted)
    base = Base(data.rows, tree.coef, tree.intercept[0])
    return base, np.asarray(residual)[validation]


def lacks_landmarks(
    form: CompiledForm,
    data: Training,
    base: Base,
    residual: NDArray,
    validation: NDArray,
    rng: np.random.Generator,
) -> bool:
    """Return whether the left-out error of a base falls with the number of landmarks.

    That is: by 5 % or more from a half of them to all, whose left-out residuals (m, d)
    of the validation rows are given. On noisy targets it hardly falls.
    """
    known = data.labels
    options = data.weights, base.landmarks[::2], rng, known, validation
    half = Ridge(form, data.rows, *options).fit(data.Y)[1]
    return bool(np.nanmean(residual**2) < _FALL**2 * np.nanmean(half**2))


def metric_ratio(
    family: str, data: Training, inverse: NDArray, rng: np.random.Generator
) -> float:
    """Return the ratio of left-out errors with a metric to those without one.

    They are those of a single step on a small sample: a hint whether the search pays.
    Infinite if there are too many columns.
    """
    scales = form_of(family, inverse).scale
    if len(scales) > _MOST_COLUMNS:
        return np.inf
    some = _sampled(data, scales, _QUICK_ROWS, rng)
    fit = _RidgeOfMap(family, some, _QUICK_FEW, rng)
    error, base = fit(np.eye(len(scales)))
    step = np.exp(_QUICK_WIDTH) * metric_step(some.rows, base)
    return fit(step)[0] / error if error > 0 else np.inf


def _sampled(
    data: Training, scales: NDArray, count: int, rng: np.random.Generator
) -> Training:
    """Return some rows, in units of their length scales."""
    n = len(data.Y)
    some = Training(*data.take(np.sort(rng.choice(n, min(count, n), replace=False))))
    return some._replace(rows=some.rows * scales)


class _RidgeOfMap:
    """Left-out error of ridge regression on few landmarks of mapped rows."""

    def __init__(
        self, family: str, data: Training, landmarks: int, rng: np.random.Generator
    ) -> None:
        n, p = data.rows.shape
        self._data, self._rng, self._form = data, rng, _unscaled(family, p)
        self._drawn = np.sort(rng.choice(n, min(landmarks, n), replace=False))

    def __call__(self, matrix: NDArray) -> tuple[float, Base]:
        """Return the error and the fit for a map (p, p)."""
        data, rows = self._data, self._data.rows @ matrix
        options = data.weights, rows[self._drawn], self._rng, data.labels
        base, residual = Ridge(self._form, rows, *options).fit(data.Y)
        return float(np.sqrt(np.nanmean(np.square(residual)))), base


def find_metric(
    family: str, data: Training, rng: np.random.Generator
) -> NDArray | None:
    """Return the map (p, p) of rows in units of the length scales; None: no gain."""
    fit = _RidgeOfMap(family, data, _FEW, rng)
    matrix = np.eye(data.rows.shape[1])
    start, base = fit(matrix)
    best, found = _MARGIN * start, None
    for _ in range(_ROUNDS):
        turned = matrix @ metric_step(data.rows @ matrix, base)
        tried = [(np.exp(width) * turned) for width in _WIDTHS]
        fits = [fit(matrix) for matrix in tried]
        k = int(np.argmin([error for error, _ in fits]))
        matrix, (error, base) = tried[k], fits[k]
        if error >= best:
            break
        best, found = error, matrix
    return found


def metric_step(rows: NDArray, base: Base) -> NDArray:
    """Return the square root of the mean outer product of gradients, (p, p).

    It keeps the total variance of the rows. `base` has Matern's kernel 3/2 in compiled
    form, (1 + r log 2) 2^-r, whose gradient is proportional to 2^-r times x - z.
    """
    distances = np.square(rows).sum(axis=1)[:, None] - 2 * rows @ base.landmarks.T
    distances += np.square(base.landmarks).sum(axis=1)
    slopes = -np.exp2(-np.sqrt(np.maximum(distances, 0)))
    M = np.zeros((rows.shape[1], rows.shape[1]))
    for beta in base.coef.T:
        V = slopes * beta
        gradients = V.sum(axis=1)[:, None] * rows - V @ base.landmarks
        M += gradients.T @ gradients
    values, vectors = np.linalg.eigh(M)
    root = np.sqrt(np.maximum(values, _FLOOR * values[-1]))
    step = (vectors * root) @ vectors.T
    total = (rows @ step).var(axis=0).sum()
    return step * np.sqrt(rows.var(axis=0).sum() / total) if total > 0 else step


def _unscaled(family: str, columns: int) -> CompiledForm:
    """Return the form of a kernel for rows in units of their length scales."""
    return replace(form_of(family, np.ones(columns)), scale=np.ones(columns))
