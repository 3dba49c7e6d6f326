"""Metrics for quantiles, multi-output regression, label sets and ranked outputs."""

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from nbsketch._report.validation import (
    as_csr,
    check_integer,
    check_length,
    check_level,
    check_matrix,
    check_unmasked,
)

__all__ = [
    "arrmse",
    "crossing_loss",
    "crps",
    "example_f1",
    "pinball_loss",
    "rrmse",
    "top_k_accuracy",
]


def pinball_loss(
    y_true: ArrayLike,
    y_pred: ArrayLike,
    quantiles: float | ArrayLike,
    sample_weight: ArrayLike | None = None,
) -> float:
    """Return the pinball loss of predicted quantiles, summed over the levels.

    With residuals ``r_ij = y_i - q_ij`` and weights that sum to 1::

        sum_i w_i sum_j max(tau_j r_ij, (tau_j - 1) r_ij)

    Parameters
    ----------
    y_true : array-like of shape (n,)
        True values.
    y_pred : array-like of shape (n, d) or (n,)
        Predicted quantiles, one column per level; 1-dimensional for a single level.
    quantiles : float or array-like of shape (d,)
        Levels in (0, 1), in the order of the columns of `y_pred`.
    sample_weight : array-like of shape (n,) or None, default=None
        Nonnegative weights, not all zero; scaled to sum to 1. None: equal weights.

    Returns
    -------
    float
        Mean over the samples of the sum over the levels (not the mean over the levels).

    Raises
    ------
    TypeError, ValueError
        If an argument is not numeric, not finite or has an incompatible shape.

    See Also
    --------
    sklearn.metrics.mean_pinball_loss : The same loss for a single level.

    Examples
    --------
    >>> from nbsketch.metrics import pinball_loss
    >>> pinball_loss([1.0, 2.0], [[0.0, 1.0], [2.0, 4.0]], quantiles=[0.25, 0.75])
    0.375
    >>> pinball_loss([1.0, 2.0], [0.0, 4.0], quantiles=0.5)
    0.75
    """
    levels = np.atleast_1d(np.asarray(quantiles))
    levels, target, q = _predicted_quantiles(levels, y_true, y_pred)
    residual = target[:, None] - q
    losses = np.maximum(levels * residual, (levels - 1) * residual).sum(axis=1)
    return float(_weights(sample_weight, len(target)) @ losses)


def crps(
    y_true: ArrayLike,
    y_pred: ArrayLike,
    quantiles: ArrayLike,
    sample_weight: ArrayLike | None = None,
) -> float:
    """Return the continuous ranked probability score of predicted quantiles.

    With weights that sum to 1 and distribution functions F_i that are linear between
    the quantiles of sample i, 0 below the first and 1 above the last quantile::

        sum_i w_i int (F_i(z) - 1{z >= y_i})^2 dz

    Parameters
    ----------
    y_true : array-like of shape (n,)
        True values.
    y_pred : array-like of shape (n, d)
        Predicted quantiles, ascending in each row.
    quantiles : array-like of shape (d,)
        Levels in (0, 1), ascending.
    sample_weight : array-like of shape (n,) or None, default=None
        Nonnegative weights, not all zero; scaled to sum to 1. None: equal weights.

    Returns
    -------
    float
        Mean score, in the units of y. For a single predicted value, the score is the
        absolute error.

    Raises
    ------
    TypeError, ValueError
        If an argument is not numeric, not finite, not ascending or has an incompatible
        shape.

    References
    ----------
    T. Gneiting and A. E. Raftery, "Strictly Proper Scoring Rules, Prediction, and
    Estimation", JASA 2007, Section 4.2.

    Examples
    --------
    >>> from nbsketch.metrics import crps
    >>> crps([1.0], [[3.0]], [0.5])
    2.0
    >>> crps([0.0, 4.0], [[0.0, 1.0], [2.0, 3.0]], [0.2, 0.8])
    0.78
    """
    levels, target, q = _predicted_quantiles(quantiles, y_true, y_pred)
    for name, values in (("quantiles", levels), ("y_pred", q)):
        if (np.diff(values) < 0).any():
            raise ValueError(f"`{name}` must ascend, got descending values")
    y = target[:, None]
    outside = np.maximum(q[:, 0] - target, 0) + np.maximum(target - q[:, -1], 0)
    inside = _squares(q[:, :-1], q[:, 1:], levels[:-1], levels[1:], y)
    return float(_weights(sample_weight, len(target)) @ (outside + inside.sum(axis=1)))


def _squares(
    low: NDArray, high: NDArray, first: NDArray, last: NDArray, y: NDArray
) -> NDArray:
    """Integrate ``(F - 1{z >= y})^2`` over segments where F goes first -> last."""
    width = high - low
    cut = np.clip(y, low, high)
    share = np.divide(cut - low, width, out=np.zeros_like(width), where=width > 0)
    middle = first + share * (last - first)
    below = first * first + first * middle + middle * middle
    a = 1 - middle
    b = 1 - last
    return ((cut - low) * below + (high - cut) * (a * a + a * b + b * b)) / 3


def crossing_loss(y_pred: ArrayLike) -> float:
    """Return the crossing loss of predicted quantiles; 0 if no quantiles cross.

    With columns in ascending order of the levels::

        (1/n) sum_i sum_j max(q_ij - q_i(j+1), 0)

    Parameters
    ----------
    y_pred : array-like of shape (n, d)
        Predicted quantiles, one column per level, levels ascending.

    Returns
    -------
    float
        Mean over the samples of the summed excess of each quantile over the next one.

    Raises
    ------
    TypeError, ValueError
        If `y_pred` is not a finite numeric matrix.

    Notes
    -----
    Defined by Sangnier, Fercoq and d'Alche-Buc (2016), Joint quantile regression in
    vector-valued RKHSs. Only adjacent levels are compared.

    Examples
    --------
    >>> from nbsketch.metrics import crossing_loss
    >>> crossing_loss([[1.0, 2.0, 3.0], [1.0, 3.0, 2.5]])
    0.25
    """
    q = check_matrix("y_pred", y_pred).astype(np.float64)
    return float(np.maximum(q[:, :-1] - q[:, 1:], 0.0).sum(axis=1).mean())


def rrmse(Y_true: ArrayLike, Y_pred: ArrayLike, Y_train_mean: ArrayLike) -> NDArray:
    """Return the relative root mean squared error of each target.

    The error is relative to the prediction by the mean of the training targets::

        sqrt(sum_i (y_ij - f_ij)^2 / sum_i (y_ij - m_j)^2)

    Parameters
    ----------
    Y_true : array-like of shape (n, d) or (n,)
        True targets of the test samples; 1-dimensional for a single target.
    Y_pred : array-like of the same shape as `Y_true`
        Predicted targets.
    Y_train_mean : float or array-like of shape (d,)
        Mean of each target over the training samples, ``Y_train.mean(axis=0)``.

    Returns
    -------
    ndarray of shape (d,)
        0 for a perfect prediction, 1 if the error equals that of the training mean.

    Raises
    ------
    TypeError, ValueError
        If an argument is not numeric, not finite or has an incompatible shape, or if a
        target equals its training mean for all samples.

    Notes
    -----
    Defined by Spyromitros-Xioufis, Tsoumakas, Groves and Vlahavas (2016), Multi-target
    regression via input space expansion.

    Examples
    --------
    >>> from nbsketch.metrics import rrmse
    >>> rrmse([[1.0, 0.0], [3.0, 4.0]], [[1.0, 1.0], [2.0, 3.0]], [2.0, 2.0])
    array([0.70710678, 0.5       ])
    """
    truth = _columns("Y_true", Y_true)
    prediction = _columns("Y_pred", Y_pred, shape=truth.shape)
    mean = _vector("Y_train_mean", np.atleast_1d(np.asarray(Y_train_mean)))
    check_length("Y_train_mean", mean, truth.shape[1])
    baseline = ((truth - mean) ** 2).sum(axis=0)
    if not baseline.all():
        raise ValueError(
            f"`Y_true` must differ from `Y_train_mean` in some row of each column, got "
            f"equal values in column {int(np.argmin(baseline))}"
        )
    return np.sqrt(((truth - prediction) ** 2).sum(axis=0) / baseline)


def arrmse(Y_true: ArrayLike, Y_pred: ArrayLike, Y_train_mean: ArrayLike) -> float:
    """Return the mean over the targets of the relative root mean squared error.

    Parameters
    ----------
    Y_true : array-like of shape (n, d) or (n,)
        True targets of the test samples; 1-dimensional for a single target.
    Y_pred : array-like of the same shape as `Y_true`
        Predicted targets.
    Y_train_mean : float or array-like of shape (d,)
        Mean of each target over the training samples, ``Y_train.mean(axis=0)``.

    Returns
    -------
    float
        Mean of `rrmse` over the targets.

    Raises
    ------
    TypeError, ValueError
        See `rrmse`.

    Examples
    --------
    >>> from nbsketch.metrics import arrmse
    >>> arrmse([[0.0, 0.0], [4.0, 4.0]], [[1.0, 0.0], [3.0, 4.0]], [2.0, 2.0])
    0.25
    """
    return float(rrmse(Y_true, Y_pred, Y_train_mean).mean())


def example_f1(Y_true: Any, Y_pred: Any) -> float:
    """Return the F1 score of predicted label sets, averaged over the samples.

    With T_i and P_i the sets of true and predicted labels of sample i::

        (1/n) sum_i 2 |T_i and P_i| / (|T_i| + |P_i|)

    A sample without true and predicted labels scores 1.

    Parameters
    ----------
    Y_true : array-like or SciPy sparse matrix of shape (n, d)
        True labels, 0 or 1.
    Y_pred : array-like or SciPy sparse matrix of shape (n, d)
        Predicted labels, 0 or 1.

    Returns
    -------
    float
        Score in [0, 1]; 1 for a perfect prediction.

    Raises
    ------
    ValueError
        If an argument is not a binary matrix with two columns or more, or if the shapes
        differ.

    Notes
    -----
    This is ``sklearn.metrics.f1_score(..., average="samples", zero_division=1)``. With
    scikit-learn's default, a sample without true and predicted labels scores 0.

    Examples
    --------
    >>> from nbsketch.metrics import example_f1
    >>> example_f1([[1, 1, 0], [0, 0, 0]], [[1, 0, 1], [0, 0, 0]])
    0.75
    """
    from sklearn.metrics import f1_score

    # scikit-learn takes stored zeros for labels: the maximum has none.
    Y_true, Y_pred = (
        as_csr(Y, "Y").maximum(Y) if sp.issparse(Y) else Y for Y in (Y_true, Y_pred)
    )
    return float(f1_score(Y_true, Y_pred, average="samples", zero_division=1))


def top_k_accuracy(
    true_index: ArrayLike, top_index: ArrayLike, k: int | None = None
) -> float:
    """Return the fraction of samples whose true candidate is among the k best.

    Parameters
    ----------
    true_index : array-like of int of shape (n,)
        Index of the true output of each sample among its candidates; -1 if it is not a
        candidate, which counts as a miss.
    top_index : array-like of int of shape (n, K)
        Indices of the best candidates, best first, as in
        `nbsketch.structured.TopK`.
    k : int or None, default=None
        Number of best candidates to consider, at most K. None: all K.

    Returns
    -------
    float
        Accuracy in [0, 1].

    Raises
    ------
    TypeError, ValueError
        If an argument does not contain integers, or if the shapes are incompatible.

    Examples
    --------
    >>> from nbsketch.metrics import top_k_accuracy
    >>> top_k_accuracy([0, 2], [[0, 1], [1, 2]]), top_k_accuracy([0, 2], [[0], [1]])
    (1.0, 0.5)
    """
    truth = np.asarray(true_index)
    best = np.asarray(top_index)
    if truth.dtype.kind not in "iu" or best.dtype.kind not in "iu":
        raise TypeError(
            "`true_index` and `top_index` must hold integers, got dtypes "
            f"{truth.dtype} and {best.dtype}"
        )
    if truth.ndim != 1 or best.ndim != 2 or len(truth) != len(best) or not best.size:
        raise ValueError(
            "`true_index` and `top_index` must have shapes (n,) and (n, K), got "
            f"{truth.shape} and {best.shape}"
        )
    if k is not None:
        best = best[:, : check_integer("k", k, high=best.shape[1])]
    return float(((best == truth[:, None]).any(axis=1) & (truth >= 0)).mean())


def _predicted_quantiles(
    quantiles: Any, y_true: Any, y_pred: Any
) -> tuple[NDArray, NDArray, NDArray]:
    """Return levels (d,), targets (n,) and predicted quantiles (n, d)."""
    levels = _vector("quantiles", quantiles)
    for level in levels:
        check_level("quantiles", level)
    target = _vector("y_true", y_true)
    return levels, target, _columns("y_pred", y_pred, (len(target), len(levels)))


def _vector(name: str, value: Any) -> NDArray:
    """Return `value` as a nonempty finite float64 vector."""
    check_unmasked(name, value)
    array = np.asarray(value)
    if array.ndim != 1:
        raise ValueError(f"`{name}` must be 1-dimensional, got shape {array.shape}")
    return check_matrix(name, array[:, None])[:, 0].astype(np.float64)


def _columns(name: str, value: Any, shape: tuple[int, int] | None = None) -> NDArray:
    """Return `value` as a finite float64 matrix; a 1-d array becomes one column."""
    check_unmasked(name, value)
    array = np.asarray(value)
    array = array[:, None] if array.ndim == 1 else array
    if shape is not None and array.shape != shape:
        raise ValueError(f"`{name}` must have shape {shape}, got {array.shape}")
    return check_matrix(name, array).astype(np.float64)


def _weights(sample_weight: ArrayLike | None, n_samples: int) -> NDArray:
    """Return weights scaled to sum to 1."""
    if sample_weight is None:
        return np.full(n_samples, 1 / n_samples)
    weights = _vector("sample_weight", sample_weight)
    check_length("sample_weight", weights, n_samples)
    if weights.min() < 0 or weights.max() == 0:
        raise ValueError("`sample_weight` must be nonnegative and not all zero")
    return weights / weights.sum()
