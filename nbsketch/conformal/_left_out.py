r"""Prediction intervals of any regressor, by models that leave a fold or a row out.

Ridge regression on features z with an intercept, :math:`\tilde z = (1, z)` and
:math:`A = \sum_i w_i \tilde z_i \tilde z_i^\top + n \alpha\, (0 \oplus I)`, leaves a
row i out by

.. math:: f_{-i}(x) = f(x) - \tilde z(x)^\top A^{-1} \tilde z_i\, w_i e_i, \qquad
          e_i = \frac{y_i - f(x_i)}{1 - w_i \tilde z_i^\top A^{-1} \tilde z_i} .
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray
from sklearn.utils import _safe_indexing

from nbsketch._expansion import PivotedCholesky
from nbsketch._sketch_map import SketchMap
from nbsketch.estimators import SketchedKernelRegressor
from nbsketch.estimators.posterior import check_ridge
from nbsketch.rows.inputs import checked_rows, model_dtype
from nbsketch.rows.transform import transform_rows

# Least of one minus a leverage, which is rounded.
_LEAST_FREEDOM = 1e-12


@dataclass(frozen=True)
class Refits:
    """Models that were fitted without a fold each, and the rows of the folds."""

    estimators: Sequence[Any]
    tests: Sequence[NDArray]

    @property
    def rows(self) -> NDArray:
        """The rows of all folds, one after another."""
        return np.concatenate(self.tests)

    def left_out(self, X: Any) -> NDArray:
        """Return the predictions of each fold by the model without it, (m, d)."""
        pairs = zip(self.estimators, self.tests, strict=True)
        return np.concatenate(
            [columns_of(e, _safe_indexing(X, test)) for e, test in pairs]
        )

    def predict(self, X: Any) -> NDArray:
        """Return the predictions by the model without each row, (n, m, d)."""
        values = np.stack([columns_of(e, X) for e in self.estimators], axis=1)
        return values.repeat([len(test) for test in self.tests], axis=1)


@dataclass(frozen=True)
class Jackknife:
    r"""Models without one row each, of kernel ridge regression on a sketch.

    Attributes
    ----------
    features : callable
        The map from rows to the features of the model of all rows, with a constant.
    coef : ndarray of shape (r + 1, d)
        Intercept and coefficients of all rows.
    changes : ndarray of shape (r + 1, n)
        :math:`A^{-1} w_i \tilde z_i` of each row.
    errors : ndarray of shape (n, d)
        Left-out residuals :math:`e_i`.
    """

    features: Callable[[Any], NDArray]
    coef: NDArray
    changes: NDArray
    errors: NDArray
    targets: NDArray

    @property
    def rows(self) -> NDArray:
        """All rows of training."""
        return np.arange(len(self.errors))

    def left_out(self, X: Any) -> NDArray:
        """Return the predictions of the training rows, each left out, (n, d)."""
        return self.targets - self.errors

    def predict(self, X: Any) -> NDArray:
        """Return the predictions by the model without each row, (n, m, d)."""
        Z = self.features(X)
        changed = (Z @ self.changes)[:, :, None] * self.errors
        return (Z @ self.coef)[:, None, :] - changed


# Models that have each not met some of the calibration rows: `rows` (m,). `left_out`
# returns predictions of these rows of training, (m, d), and `predict` what the model
# without each of them predicts of new rows, (n, m, d).
Models = Refits | Jackknife


def jackknife(model: Any, X: Any, y: NDArray, weights: NDArray | None) -> Jackknife:
    """Return the models without one row each, in closed form."""
    use = "method='jackknife+' (method='cv+' is for any regressor)"
    if not isinstance(model, SketchedKernelRegressor):
        raise TypeError(
            f"`estimator` must be a SketchedKernelRegressor for {use}, got {model!r}"
        )
    check_ridge(model, use)
    sketch_map = SketchMap(model.kernel_, model.landmarks_, model.sketch_.weights)
    inner = sketch_map(model.landmarks_) @ model.sketch_.weights.T
    whitening = PivotedCholesky.of(np.asarray(inner))
    features = partial(_features, model, sketch_map, whitening)
    Z, n = features(X), len(y)
    w = np.ones(n) if weights is None else weights / weights.mean()
    targets = y.reshape(n, -1)
    penalty = np.full(Z.shape[1], n * model.alpha_)
    penalty[0] = float(not model.fit_intercept)  # its column is zero then
    A = (Z.T * w) @ Z
    A[np.diag_indices_from(A)] += penalty
    changes = scipy.linalg.solve(A, Z.T * w, assume_a="pos")
    coef = changes @ targets
    leverage = np.einsum("ir,ri->i", Z, changes)
    errors = (targets - Z @ coef) / np.maximum(1 - leverage, _LEAST_FREEDOM)[:, None]
    return Jackknife(features, coef, changes, errors, targets)


def _features(
    model: Any, sketch_map: SketchMap, whitening: PivotedCholesky, X: Any
) -> NDArray:
    """Return a constant and the features of rows, (n, r + 1)."""
    rows = checked_rows(model, X, dtype=model_dtype(model.landmarks_))
    transformed = transform_rows(rows, model.scaler_, model.kernel_)
    Z = whitening.apply(sketch_map(transformed))
    return np.column_stack([np.full(len(Z), float(model.fit_intercept)), Z])


def columns_of(estimator: Any, X: Any) -> NDArray:
    """Return predictions as floats, (n, d)."""
    values = np.asarray(estimator.predict(X), dtype=float)
    return values.reshape(len(values), -1)
