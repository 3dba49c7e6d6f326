r"""The posterior of kernel ridge regression as a Gaussian process on a sketch.

With features z of the sketch, :math:`\tilde z = (1, z)`, :math:`\lambda = n \alpha` and
:math:`A = \sum_i w_i \tilde z_i \tilde z_i^\top + \lambda\, (0 \oplus I)`, the variance
of f(x) + b is

.. math:: \frac{\sigma^2}{\lambda} \bigl(k(x, x) - |z(x)|^2\bigr)
          + \sigma^2\, \tilde z(x)^\top A^{-1} \tilde z(x) .

The first term is what the landmarks do not see; without a sketch the sum is the
variance of the exact process, whose prior variance is :math:`\sigma^2 / \lambda`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from nbsketch._rows import checked_rows, is_pairwise, model_dtype
from nbsketch._sketch_map import SketchMap
from nbsketch._whitening import project, projection
from nbsketch.distributed.collections import is_dask
from nbsketch.fitting.inputs import transform_rows
from nbsketch.fitting.weights import TrainingRows
from nbsketch.losses import SquareLoss
from nbsketch.sketches import LandmarkSketch
from nbsketch.solvers._linear.cholesky import raised_cholesky

# Largest number of features, whose matrix is factorized.
_MOST_FEATURES = 5000
# Share of the trace that is added to a matrix without a factor.
_JITTER = 1e-15
# Rows whose features are in memory at a time.
_BLOCK_ROWS = 1 << 12


def fit_posterior(model: Any, rows: TrainingRows) -> dict[str, Any]:
    """Return the parts of the posterior of a model fitted to these rows.

    They are the projection to features, the upper Cholesky factor of A, lambda, and the
    noise variance of each output: the weighted sum of squared residuals over n minus
    the effective degrees of freedom.
    """
    expected, given = model.sketch_.shape[1], len(rows.y)
    if expected != given and not isinstance(model.sketch, LandmarkSketch):
        raise ValueError(
            f"`X` must hold the {expected} rows of `fit` of positive weight, got "
            f"{given}: pass the same data"
        )
    sketch_map = SketchMap(model.kernel_, model.landmarks_, model.sketch_.weights)
    inner = sketch_map(sketch_map.landmarks) @ sketch_map.weights.T
    P, n, w = projection(np.asarray(inner)), len(rows.y), rows.relative_weights
    w, Y = np.ones(n) if w is None else w, rows.y.reshape(n, -1)
    A, squares, shift = np.zeros((P.shape[1] + 1,) * 2), 0.0, float(n * model.alpha_)
    for part, block, Z, _ in _blocks(model, P, rows.X):
        A += (Z.T * w[part]) @ Z
        residuals = Y[part] - model._values(block).reshape(len(Z), -1)
        squares = squares + w[part] @ np.square(residuals)
    penalty = np.full(len(A), shift)
    penalty[0] = float(not model.fit_intercept)  # its row is zero then
    A[np.diag_indices_from(A)] += penalty
    factor = np.triu(raised_cholesky(A, 0.0, _JITTER * float(np.trace(A)))[0])
    inverse = scipy.linalg.solve_triangular(factor, np.eye(len(A)))
    freedom = len(A) - float(penalty @ np.square(inverse).sum(axis=1))
    noise = squares / max(n - freedom, 1.0)
    return {"projection": P, "factor": factor, "shift": shift, "noise": noise}


def posterior_std(model: Any, X: Any) -> NDArray:
    """Return the standard deviation of f + b at rows, (n,) or (n, d)."""
    check_has_posterior(model)
    parts, values = model.posterior_, []
    rows = checked_rows(model, X, dtype=model_dtype(model.landmarks_))
    for *_, Z, unseen in _blocks(model, parts["projection"], rows):
        solved = scipy.linalg.solve_triangular(parts["factor"], Z.T, trans="T")
        values.append(unseen / parts["shift"] + np.square(solved).sum(axis=0))
    std = np.sqrt(np.concatenate(values)[:, None] * parts["noise"])
    return std[:, 0] if model.coef_.ndim == 1 else std


def _blocks(
    model: Any, projection: NDArray, rows: Any
) -> Iterator[tuple[slice, Any, NDArray, NDArray]]:
    """Yield places, rows, features and k(x, x) - |z(x)|^2 of each block."""
    sketch_map = SketchMap(model.kernel_, model.landmarks_, model.sketch_.weights)
    for start in range(0, rows.shape[0], _BLOCK_ROWS):
        part = slice(start, min(start + _BLOCK_ROWS, rows.shape[0]))
        block = rows[part]
        inputs = transform_rows(block, model.scaler_, model.kernel_)
        Z = project(sketch_map(inputs), projection)
        unseen = np.maximum(model.kernel_.diag(inputs) - np.square(Z).sum(axis=1), 0.0)
        constant = np.full(len(Z), float(model.fit_intercept))
        yield part, block, np.column_stack([constant, Z]), unseen


def check_posterior(model: Any, X: Any) -> None:
    """Refuse models and rows without a posterior."""
    check_is_fitted(model)
    if is_dask(X):
        raise TypeError(
            "`X` must be in memory for a posterior, got a Dask collection: pass "
            "X.compute()"
        )
    check_ridge(model, "a posterior (conformal intervals are for any model)")


def check_ridge(model: Any, use: str) -> None:
    """Refuse a fitted model that is no ridge regression on rows."""
    if model.loss not in ("square", SquareLoss()) or model.output is not None:
        raise ValueError(
            f"`loss` must be the square loss, without an output matrix, for {use}, got "
            f"{model!r}"
        )
    if is_pairwise(model.kernel):
        raise ValueError(
            f"`kernel` must be one of rows for {use}, got kernel values: pass the rows "
            "and a kernel of them"
        )
    if model.size_ > _MOST_FEATURES:
        raise ValueError(
            f"`size` must be at most {_MOST_FEATURES} for {use}, got {model.size_}: "
            "fit a sketch"
        )


def check_has_posterior(model: Any) -> None:
    """Raise an error if there is no posterior yet."""
    check_is_fitted(model)
    if not hasattr(model, "posterior_"):
        raise NotFittedError(
            "`return_std` needs the posterior, which is not kept by `fit`: call "
            "fit_posterior(X, y) with the training rows first"
        )
