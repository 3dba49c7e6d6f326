r"""Gaussian process posterior of kernel ridge regression on a sketch.

With features z of the sketch, :math:`\tilde z = (1, z)`, :math:`\lambda = n \alpha` and
:math:`A = \sum_i w_i \tilde z_i \tilde z_i^\top + \lambda\, (0 \oplus I)`, the variance
of f(x) + b is

.. math:: \frac{\sigma^2}{\lambda} \bigl(k(x, x) - |z(x)|^2\bigr)
          + \sigma^2\, \tilde z(x)^\top A^{-1} \tilde z(x) .

The first term is the prior variance not captured by the landmarks. Without a sketch the
sum is the variance of the exact process, with prior variance :math:`\sigma^2 /
\lambda`.

Two estimates of :math:`\sigma^2` agree if the kernel is correct: the maximum of the
marginal likelihood, :math:`(\sum_i w_i r_i^2 + \lambda \|f\|^2) / (n - 1)`, and the sum
of squared residuals over n minus the effective degrees of freedom, which is near zero
for noise-free targets. The larger one is used.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.linalg import cho_solve, lapack, solve_triangular
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from nbsketch._expansion import project, projection
from nbsketch._machine.memory import slices
from nbsketch._report.validation import row_weights
from nbsketch._sketch_map import SketchMap
from nbsketch.losses import SquareLoss, fitted_loss
from nbsketch.rows.inputs import TrainingRows, is_pairwise, new_rows
from nbsketch.rows.transform import transform_rows
from nbsketch.sketches import LandmarkSketch
from nbsketch.solvers._linear.cholesky import raised_cholesky
from nbsketch.solvers.scratch import rows_per_block

# Maximum number of features of a matrix that is factorized.
MOST_FEATURES = 5000
# Share of the trace added to a matrix that is numerically indefinite.
_JITTER = 1e-15
# Arrays per block that are in memory at a time, each the size of the block's features.
_ARRAYS = 4
# Relative difference of the objective above which the data are not those of `fit`.
_OTHER_ROWS = 0.01
USE = "a posterior (conformal intervals are for any model)"


def fit_posterior(model: Any, rows: TrainingRows) -> dict[str, Any]:
    """Return the components of the posterior of a model fitted to these data.

    The projection to features, the upper Cholesky factor of A, lambda, and the noise
    variance of each output.
    """
    expected = model.sketch_.shape[1]
    given = len(rows.y)
    if expected != given and not isinstance(model.sketch, LandmarkSketch):
        raise ValueError(
            f"`X` must hold the {expected} samples of positive weight passed to `fit`, "
            f"got {given}: pass the same data"
        )
    return _parts(model, rows.X, rows.y.reshape(given, -1), rows.relative_weights)


def _parts(model: Any, X: Any, Y: NDArray, w: NDArray | None) -> dict[str, Any]:
    """Return the components from samples, targets and relative weights.

    The samples may be the landmarks, which are preprocessed.
    """
    n = len(Y)
    shift = float(n * model.alpha_)
    values = model._values_of_inputs(X) if X is model.landmarks_ else model._values(X)
    squares = np.square(Y - values.reshape(n, -1))
    residuals = squares.sum(axis=0) if w is None else w @ squares
    coef = model.coef_.reshape(len(model.coef_), -1)
    norms = (coef * (_map_of(model).inner() @ coef)).sum(axis=0)
    total = residuals + shift * np.maximum(norms, 0.0)
    _check_objective(model, Y, float(total.sum()) / (2 * n))
    P, factor, _ = penalized_products(model, X, Y, w)
    by_residuals = residuals / max(n - _freedom(model, factor, shift), 1.0)
    by_likelihood = total / max(n - int(model.fit_intercept), 1)
    noise = np.maximum(by_residuals, by_likelihood)
    parts = {"projection": P, "factor": factor, "shift": shift, "noise": noise}
    return parts | {"scores": None}


def group_scores(
    model: Any, parts: dict[str, Any], rows: TrainingRows, groups: NDArray, n: int
) -> NDArray:
    """Return factors R of the covariance of Z^T W e, R^T R, (d, c, r + 1).

    The errors e depend on each other in groups: the covariance is the sum over groups
    of outer products of their sums of w_i r_i z_i, times the usual correction for the
    number of groups and degrees of freedom. The rows are as given, copies not merged;
    n: those of the fit.
    """
    n_given = len(rows.y)
    names, labels = np.unique(groups, return_inverse=True)
    n_groups = len(names)
    if n_groups < 2:
        raise ValueError(f"`groups` must have at least two groups, got {names}")
    w = row_weights(rows.weights, rows.y)
    residuals = (rows.y - model._values(rows.X)).reshape(n_given, -1)
    errors = (n / w.sum()) * residuals.T * w
    factor = parts["factor"]
    sums = np.zeros((len(errors), n_groups, len(factor)))
    for part, Z, _ in _blocks(model, parts["projection"], rows.X):
        places = labels[part], np.arange(len(Z))
        for total, error in zip(sums, errors[:, part], strict=True):
            total += sp.csr_array((error, places), (n_groups, len(Z))) @ Z
    left = max(n_given - _freedom(model, factor, parts["shift"]), 1.0)
    correction = n_groups / (n_groups - 1) * (n_given - 1) / left
    return np.asarray(np.linalg.qr(np.sqrt(correction) * sums, mode="r"))


def _freedom(model: Any, factor: NDArray, shift: float) -> float:
    """Return the effective degrees of freedom from the upper Cholesky factor of A."""
    penalty = np.full(len(factor), shift)
    penalty[0] = float(not model.fit_intercept)
    inverse = lapack.dtrtri(factor)[0]
    return len(factor) - float(penalty @ np.einsum("ij,ij->i", inverse, inverse))


def _check_objective(model: Any, Y: NDArray, objective: float) -> None:
    """Raise an error if the data do not reproduce the objective of the fit."""
    rounding = np.finfo(float).eps * float(np.abs(Y).max() * Y.std())
    if abs(objective - model.objective_) > _OTHER_ROWS * model.objective_ + rounding:
        raise ValueError(
            "`X`, `y` and `sample_weight` must be the data of `fit`, with objective "
            f"{model.objective_:.3g}, got data with objective {objective:.3g}: pass "
            "the same data in the same order"
        )


def penalized_products(
    model: Any, X: Any, Y: NDArray, weights: NDArray | None
) -> tuple[NDArray, NDArray, NDArray]:
    """Return the projection to features, the upper Cholesky factor of A and Z^T W Y."""
    P = feature_projection(model)
    w = row_weights(weights, Y)
    A = np.zeros((P.shape[1] + 1,) * 2)
    c = np.zeros((P.shape[1] + 1, Y.shape[1]))
    for part, Z, _ in _blocks(model, P, X):
        A += (weighted := Z.T * w[part]) @ Z
        c += weighted @ Y[part]
    penalty = np.full(len(A), float(len(Y) * model.alpha_))
    penalty[0] = float(not model.fit_intercept)  # its row is zero then
    A[np.diag_indices_from(A)] += penalty
    return P, np.triu(raised_cholesky(A, 0.0, _JITTER * float(np.trace(A)))[0]), c


def feature_projection(model: Any) -> NDArray:
    """Return the matrix that maps sketched kernel values to features, (s, r)."""
    return projection(_map_of(model).inner())


def _map_of(model: Any) -> SketchMap:
    """Return the map x -> S k_x of a fitted model."""
    return SketchMap(model.kernel_, model.landmarks_, model.sketch_.weights)


def features_of(model: Any, projection: NDArray, rows: Any) -> NDArray:
    """Return the constant and the features of samples, (n, r + 1)."""
    return np.concatenate([Z for _, Z, _ in _blocks(model, projection, rows)])


def ensure_posterior(model: Any) -> None:
    """Compute the posterior, if there is none, from a model of all samples."""
    check_is_fitted(model)
    if hasattr(model, "posterior_"):
        return
    check_ridge(model, USE)
    data = getattr(model, "_training", None)
    if data is None:
        raise NotFittedError(
            "`return_std` needs the posterior, but the model does not contain the "
            "training data: call fit_posterior(X, y) with them first"
        )
    model.posterior_ = _parts(model, model.landmarks_, data["targets"], data["weights"])


def posterior_std(model: Any, X: Any) -> NDArray:
    """Return the standard deviation of f + b at samples, (n,) or (n, d)."""
    parts = model.posterior_
    values = []
    for _, Z, unseen in _blocks(model, parts["projection"], new_rows(model, X)):
        solved = solve_triangular(parts["factor"], Z.T, trans="T")
        values.append(unseen / parts["shift"] + np.square(solved).sum(axis=0))
    std = np.sqrt(np.concatenate(values)[:, None] * parts["noise"])
    return std[:, 0] if model.coef_.ndim == 1 else std


def std_of_sum(model: Any, X: Any, weights: NDArray) -> NDArray:
    """Return the standard deviation of the sum of weights times f, (d,).

    It is that of the posterior, or with the scores of groups the standard error.
    """
    parts = model.posterior_
    blocks = _blocks(model, parts["projection"], X)
    mean = sum(weights[part] @ Z for part, Z, _ in blocks)
    if parts["scores"] is not None:
        half = cho_solve((parts["factor"], False), mean)
        return np.linalg.norm(parts["scores"] @ half, axis=1)
    inputs = transform_rows(X, model.scaler_, model.kernel_)
    row = sp.csr_array(weights[None])
    prior = float(weights @ SketchMap(model.kernel_, inputs, row)(inputs)[0])
    unseen = max(prior - float(np.square(mean[1:]).sum()), 0.0)
    solved = solve_triangular(parts["factor"], mean, trans="T")
    variance = unseen / parts["shift"] + float(np.square(solved).sum())
    return np.sqrt(variance * parts["noise"])


def _blocks(
    model: Any, projection: NDArray, rows: Any
) -> Iterator[tuple[slice, NDArray, NDArray]]:
    """Yield positions, features and k(x, x) - |z(x)|^2 of each block.

    The samples may be the landmarks, which are preprocessed.
    """
    sketch_map = _map_of(model)
    step = rows_per_block(_ARRAYS * len(projection), projection.dtype)
    for part in slices(rows.shape[0], step):
        inputs = rows[part]
        if rows is not model.landmarks_:
            inputs = transform_rows(inputs, model.scaler_, model.kernel_)
        Z = project(sketch_map(inputs), projection)
        unseen = np.maximum(model.kernel_.diag(inputs) - np.square(Z).sum(axis=1), 0.0)
        constant = np.full(len(Z), float(model.fit_intercept))
        yield part, np.column_stack([constant, Z]), unseen


def check_ridge(model: Any, use: str) -> None:
    """Check that the fitted model is a ridge regression on samples."""
    if fitted_loss(model) != SquareLoss() or model.output is not None:
        raise ValueError(
            f"`loss` must be the square loss, without an output matrix, for {use}, got "
            f"{model!r}"
        )
    if model.monotonic_cst is not None:
        raise ValueError(
            f"`monotonic_cst` must be None for {use}, got {model.monotonic_cst!r}"
        )
    if is_pairwise(model.kernel):
        raise ValueError(
            f"`kernel` must be computed from samples for {use}, got precomputed kernel "
            "values: pass the samples and a kernel of them"
        )
    if model.size_ > MOST_FEATURES:
        raise ValueError(
            f"`size` must be at most {MOST_FEATURES} for {use}, got {model.size_}: "
            "pass a smaller `size`"
        )
