r"""Prediction intervals of any regressor, by models that leave a fold or a row out.

Ridge regression on features z with an intercept, :math:`\tilde z = (1, z)` and
:math:`A = \sum_i w_i \tilde z_i \tilde z_i^\top + n \alpha\, (0 \oplus I)`, leaves a
row i out by

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

# Least of one minus a leverage, which is rounded.
_LEAST_FREEDOM = 1e-12
# Levels of models with quantiles of any level; between these they are interpolated.
_LEVELS = np.array([0.005, *np.arange(1, 40) / 40, 0.995])


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
    model : SketchedKernelRegressor
        The model of all rows.
    projection : ndarray of shape (s, r)
        What takes its sketched kernel values to features.
    coef : ndarray of shape (r + 1, d)
        Intercept and coefficients of all rows.
    changes : ndarray of shape (r + 1, n)
        :math:`A^{-1} w_i \tilde z_i` of each row.
    errors : ndarray of shape (n, d)
        Left-out residuals :math:`e_i`.
    """

    model: SketchedKernelRegressor
    projection: NDArray
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
        rows = new_rows(self.model, X)
        Z = posterior.features_of(self.model, self.projection, rows)
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
    """Return the levels of an estimator's quantiles, and the function that has them.

    The levels may be those of the last step of a pipeline, or of what a search fits.
    Without quantiles there are no levels, and the function has predictions.
    """
    inner = estimator
    while inner is not None and not hasattr(inner, "quantiles"):
        is_steps = isinstance(inner, Pipeline)
        inner = inner[-1] if is_steps else getattr(inner, "best_estimator_", None)
    if inner is None and hasattr(estimator, "predict_quantiles"):
        return _LEVELS, partial(estimator.predict_quantiles, levels=_LEVELS)
    levels = np.array(getattr(inner, "quantiles", ()), dtype=float)
    return levels, partial(columns_of, estimator)
