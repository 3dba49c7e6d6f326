"""Detect columns lost to rounding in a kernel matrix, next to larger columns."""

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.base import is_classifier

from nbsketch._expansion import RANK_TOL
from nbsketch._machine.blas import eigh
from nbsketch._report.validation import listed, varying_features, warn
from nbsketch.kernels import (
    Kernel,
    PolynomialKernel,
    PrecomputedKernel,
    SobolevKernel,
    TanimotoKernel,
)
from nbsketch.losses import LogLinkLoss

# Maximum number of rows (evenly spaced) and columns of the checked kernel matrix.
_ROWS = 256
_MOST_COLUMNS = 1000
# A column is small if its deviation is below this share of the largest magnitude, and
# lost if more than this share of its variance is in no eigenvector.
_SHARE = 0.1
# Eigenvalues below this share of the largest are cut on other rows, or by penalties.
_CUT = 1e3 * RANK_TOL
# A correlation that is not by chance: its square exceeds this number over the rows.
_SIGNIFICANT = 25.0
# Kernels whose columns have one unit, or none.
_UNITLESS = PrecomputedKernel, SobolevKernel, TanimotoKernel


def warn_of_lost_columns(model: Any, rows: Any) -> None:
    """Warn if the kernel of a model has lost columns of the training data.

    Transformed data have columns of one scale, or learned scales.
    """
    is_table = getattr(rows, "ndim", 0) == 2 and rows.shape[1] <= _MOST_COLUMNS
    is_raw = model.scaler_ is None and model.length_scales_ is None
    if not (is_table and is_raw) or isinstance(model.kernel_, _UNITLESS):
        return
    what = "the kernel hardly depends on {} of `X`: next to columns of a larger scale"
    _warn_of(model, lost_columns(model.kernel_, rows), what)


def _warn_of(model: Any, lost: NDArray, what: str) -> None:
    """Warn of lost columns, if any; `what` says of what and next to what."""
    if lost.size:
        columns = listed("column", lost, getattr(model, "feature_names_in_", None))
        warn(
            f"{what.format(columns)} they are near rounding and dropped. "
            'Standardize the columns, with preprocessing="standard" or StandardScaler'
        )


def lost_columns(kernel: Kernel, rows: Any) -> NDArray:
    """Return the columns that no eigenvector of a kernel matrix represents.

    They deviate less than others and are not functions of its leading eigenvectors.

    Examples
    --------
    >>> import numpy as np
    >>> from nbsketch import PolynomialKernel
    >>> from nbsketch.fitting.lost_columns import lost_columns
    >>> X = np.random.default_rng(0).normal(size=(50, 3)) * [1.0, 1e6, 1.0]
    >>> lost_columns(PolynomialKernel(degree=2), X).tolist()
    [0, 2]
    """
    X = np.unique(_dense(rows[_evenly_spaced(rows)]), axis=0)
    variances = X.var(axis=0)
    largest = np.square(X).mean(axis=0).max()
    small = varying_features(X) & (variances < _SHARE**2 * largest)
    return _lost(kernel, X, X, small)


def warn_of_lost_squares(model: Any, rows: Any, objective: Any) -> None:
    """Warn if residuals of a fit depend on squares that its kernel has lost.

    A polynomial kernel loses squares of columns that are far from zero.
    """
    kernel = model.kernel_
    is_polynomial = isinstance(kernel, PolynomialKernel) and kernel.degree > 1
    if model.scaler_ is not None or not is_polynomial or rows.shape[1] > _MOST_COLUMNS:
        return
    index = np.unique(_evenly_spaced(rows))
    X = _dense(rows[index])
    Y = objective.targets[index]
    values = model._values_of_inputs(X).reshape(len(X), -1)
    loss = getattr(objective, "loss", None)
    if is_classifier(model):
        values = np.clip(values, -1.0, 1.0)
    elif isinstance(loss, LogLinkLoss):
        Y, values = (y / y.mean() for y in (loss.targets(Y), np.exp(values)))
    what = (
        "the kernel has lost squares of {} of `X`, on which the residuals depend: "
        "next to larger values"
    )
    _warn_of(model, lost_squares(kernel, X, Y - values, Y), what)


def lost_squares(kernel: Kernel, X: NDArray, residuals: NDArray, Y: NDArray) -> NDArray:
    """Return columns whose lost squares would explain a tenth of the targets."""
    squares = np.square(X - X.mean(axis=0))
    squares -= squares.mean(axis=0)
    norms = np.linalg.norm(squares, axis=0)
    scaled = squares / np.where(varying_features(X) & (norms > 0), norms, np.inf)
    explained = np.square(scaled.T @ (residuals - residuals.mean(axis=0)))
    least = max(_SHARE, _SIGNIFICANT / len(X)) * len(X) * Y.var(axis=0)
    return _lost(kernel, X, squares, (explained > least).any(axis=1))


def _dense(X: Any) -> NDArray:
    return (X.toarray() if sp.issparse(X) else X).astype(np.float64)


def _evenly_spaced(rows: Any) -> NDArray:
    return np.linspace(0, rows.shape[0] - 1, _ROWS).astype(np.intp)


def _lost(kernel: Kernel, X: NDArray, values: NDArray, doubtful: NDArray) -> NDArray:
    """Return the doubtful columns of values in no leading eigenvector of the kernel."""
    if doubtful.any():
        eigenvalues, vectors = eigh(kernel(X))
        kept = vectors[:, eigenvalues > _CUT * eigenvalues[-1]]
        basis = np.linalg.qr(np.column_stack([np.ones(len(X)), kept]))[0]
        outside = values - basis @ (basis.T @ values)
        doubtful &= outside.var(axis=0) > _SHARE * values.var(axis=0)
    return np.flatnonzero(doubtful)
