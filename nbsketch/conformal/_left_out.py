r"""Prediction intervals from models that leave out a fold or a sample.

Ridge regression on features z with an intercept, :math:`\tilde z = (1, z)` and :math:`A
= \sum_i w_i \tilde z_i \tilde z_i^\top + n \alpha\, (0 \oplus I)`, without sample i is

.. math:: f_{-i}(x) = f(x) - \tilde z(x)^\top A^{-1} \tilde z_i\, w_i e_i, \qquad
          e_i = \frac{y_i - f(x_i)}{1 - w_i \tilde z_i^\top A^{-1} \tilde z_i} .
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray
from sklearn.pipeline import Pipeline
from sklearn.utils import _safe_indexing

from nbsketch.estimators import SketchedKernelRegressor, posterior
from nbsketch.rows.inputs import new_rows

# Lower bound of one minus a leverage, against rounding.
_LEAST_FREEDOM = 1e-12
# Levels for models with quantiles of any level; other levels are interpolated.
_LEVELS = np.array([0.005, *np.arange(1, 40) / 40, 0.995])


@dataclass(frozen=True)
class Refits:
    """Models fitted without one fold each, and the samples of the folds."""

    estimators: Sequence[Any]
    tests: Sequence[NDArray]

    @property
    def rows(self) -> NDArray:
        """The samples of all folds, concatenated."""
        return np.concatenate(self.tests)

    def left_out(self, X: Any) -> NDArray:
        """Return the predictions of each fold by the model without it, (m, d)."""
        pairs = zip(self.estimators, self.tests, strict=True)
        return np.concatenate(
            [columns_of(e, _safe_indexing(X, test)) for e, test in pairs]
        )

    def predict(self, X: Any) -> NDArray:
        """Return the predictions by the model without each sample, (n, m, d)."""
        values = np.stack([columns_of(e, X) for e in self.estimators], axis=1)
        return values.repeat([len(test) for test in self.tests], axis=1)


@dataclass(frozen=True)
class Jackknife:
    r"""Leave-one-out models of kernel ridge regression on a sketch.

    Attributes
    ----------
    model : SketchedKernelRegressor
        The model fitted to all samples.
    projection : ndarray of shape (s, r)
        Map from sketched kernel values to features.
    coef : ndarray of shape (r + 1, d)
        Intercept and coefficients of the model fitted to all samples.
    changes : ndarray of shape (r + 1, n)
        :math:`A^{-1} w_i \tilde z_i` of each sample.
    errors : ndarray of shape (n, d)
        Leave-one-out residuals :math:`e_i`.
    """

    model: SketchedKernelRegressor
    projection: NDArray
    coef: NDArray
    changes: NDArray
    errors: NDArray
    targets: NDArray

    @property
    def rows(self) -> NDArray:
        """All training samples."""
        return np.arange(len(self.errors))

    def left_out(self, X: Any) -> NDArray:
        """Return the leave-one-out predictions of the training samples, (n, d)."""
        return self.targets - self.errors

    def predict(self, X: Any) -> NDArray:
        """Return the predictions by the model without each sample, (n, m, d)."""
        Z = posterior.features_of(self.model, self.projection, new_rows(self.model, X))
        changed = (Z @ self.changes)[:, :, None] * self.errors
        return (Z @ self.coef)[:, None, :] - changed


# Models that each leave out some of the calibration samples `rows` (m,). `left_out`
# returns the held-out predictions of these training samples, (m, d), and `predict` the
# predictions of new samples by the model without each of them, (n, m, d).
Models = Refits | Jackknife


def jackknife(model: Any, X: Any, y: NDArray, weights: NDArray | None) -> Jackknife:
    """Return the leave-one-out models in closed form."""
    use = "method='jackknife+' (method='cv+' is for any regressor)"
    if not isinstance(model, SketchedKernelRegressor):
        raise TypeError(
            f"`estimator` must be a SketchedKernelRegressor for {use}, got {model!r}"
        )
    posterior.check_ridge(model, use)
    rows = new_rows(model, X)
    targets = y.reshape(len(y), -1)
    w = np.ones(len(y)) if weights is None else weights / weights.mean()
    P, U, products = posterior.penalized_products(model, rows, targets, w)
    Z = posterior.features_of(model, P, rows)
    changes = scipy.linalg.cho_solve((U, False), Z.T * w)
    coef = scipy.linalg.cho_solve((U, False), products)
    leverage = np.einsum("ir,ri->i", Z, changes)
    errors = (targets - Z @ coef) / np.maximum(1 - leverage, _LEAST_FREEDOM)[:, None]
    return Jackknife(model, P, coef, changes, errors, targets)


def columns_of(estimator: Any, X: Any) -> NDArray:
    """Return predictions as floats, (n, d)."""
    values = np.asarray(estimator.predict(X), dtype=float)
    return values.reshape(len(values), -1)


def quantiles_of(estimator: Any) -> tuple[NDArray, Callable[[Any], NDArray]]:
    """Return the quantile levels of an estimator, and the function that predicts them.

    The levels may belong to the last step of a pipeline or to the estimator of a
    search. Without quantiles the levels are None, and the function returns predictions.
    """
    inner = estimator
    while inner is not None and not hasattr(inner, "quantiles"):
        is_steps = isinstance(inner, Pipeline)
        inner = inner[-1] if is_steps else getattr(inner, "best_estimator_", None)
    if inner is None and hasattr(estimator, "predict_quantiles"):
        return _LEVELS, partial(estimator.predict_quantiles, levels=_LEVELS)
    levels = np.array(getattr(inner, "quantiles", ()), dtype=float)
    return levels, partial(columns_of, estimator)
