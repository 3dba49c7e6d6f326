"""Scores of predictions: of arrays, and of Dask collections where their rows are."""

from __future__ import annotations

from typing import Any

from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.metrics import accuracy_score, r2_score

from nbsketch.distributed.checks import check_alike, predicted
from nbsketch.distributed.collections import is_dask


class RegressorScore(RegressorMixin):
    """Mixin of regressors whose data may be Dask collections."""

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the coefficient of determination of the predictions.

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
        check_alike(X, y=y, sample_weight=sample_weight)
        if not is_dask(X):
            return super().score(X, y, sample_weight)
        y, found, weights = predicted(self, X, y, sample_weight)
        return r2_score(y, found, sample_weight=weights)


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
        check_alike(X, y=y, sample_weight=sample_weight)
        if not is_dask(X):
            return super().score(X, y, sample_weight)
        y, found, weights = predicted(self, X, y, sample_weight)
        return accuracy_score(y, found, sample_weight=weights)
