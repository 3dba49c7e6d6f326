"""Scores of predictions: of arrays, and of Dask collections where their rows are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.metrics import accuracy_score, r2_score

from nbsketch.distributed.checks import check_alike, predicted
from nbsketch.distributed.collections import is_dask


class RegressorScore(RegressorMixin):
    """Mixin of regressors whose data may be Dask collections."""

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the coefficient of determination of the predictions.

        For a Poisson or gamma loss it is that of the deviance, D^2.

        Predictions and targets of Dask collections are brought to this process.

        Parameters
        ----------
        X : array of shape (n, q)
            Rows.
        y : array of shape (n,) or (n, d)
            Targets.
        sample_weight : array of shape (n,) or None, default=None
            Non-negative weights. None: equal weights.
        """
        return _score(self, self._metric, X, y, sample_weight)

    @property
    def _metric(self) -> Callable[..., float]:
        return r2_score


class ClassifierScore(ClassifierMixin):
    """Mixin of classifiers whose data may be Dask collections."""

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the share of rows whose label is predicted.

        Predictions and labels of Dask collections are brought to this process.

        Parameters
        ----------
        X : array of shape (n, q)
            Rows.
        y : array of shape (n,)
            Labels.
        sample_weight : array of shape (n,) or None, default=None
            Non-negative weights. None: equal weights.
        """
        return _score(self, accuracy_score, X, y, sample_weight)


def _score(model: Any, metric: Callable, X: Any, y: Any, weights: Any) -> float:
    """Return a metric of the predictions of arrays, or of Dask collections."""
    check_alike(X, y=y, sample_weight=weights)
    if not is_dask(X):
        return metric(y, model.predict(X), sample_weight=weights)
    y, found, weights = predicted(model, X, y, weights)
    return metric(y, found, sample_weight=weights)
