"""Sets of classes with guaranteed coverage, for any classifier."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils import column_or_1d
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from nbsketch._validation import check_choice, declares_parameters, keeping_fitted
from nbsketch.conformal._calibrated import Calibrated, of_rows

_METHODS = ("lac", "aps")
# Probabilities that differ by rounding are equal.
_ROUNDING = 1e-12


@declares_parameters
class ConformalClassifier(ClassifierMixin, Calibrated):
    r"""Sets of classes that hold the label with a given probability.

    Parameters
    ----------
    estimator : classifier
        Any classifier with `predict_proba`. If it is frozen
        (`sklearn.frozen.FrozenEstimator`), all rows of `fit` calibrate, which it must
        not have been trained on.
    method : {"lac", "aps"}, default="lac"
        "lac": the classes whose probability is above one threshold, the smallest sets
        on average. "aps": the most probable classes until their probabilities add up
        to a threshold, larger for rows that are hard, never empty.
    coverage : float in (0, 1), default=0.9
        Probability that a set holds the label.
    cv : int, splitter, iterable of (train, test) or None, default=None
        The test rows of the last split calibrate. An integer: that many contiguous
        blocks, stratified by class as in scikit-learn. None: a random quarter.
    random_state : None, int or Generator, default=None
        Pass an int for a reproducible split. The estimator has its own.

    Attributes
    ----------
    estimator_ : classifier
        The fitted classifier.
    classes_ : ndarray of shape (c,)
        Labels, in the order of the columns of sets.
    values_, targets_ : ndarray of shape (m, c) and (m,)
        Probabilities of the calibration rows and the numbers of their classes.
    weights_, groups_, shift_
        As in `ConformalRegressor`.

    References
    ----------
    M. Sadinle, J. Lei and L. Wasserman, "Least Ambiguous Set-Valued Classifiers with
    Bounded Error Levels", JASA 2019. Y. Romano, M. Sesia and E. J. Candes,
    "Classification with Valid and Adaptive Coverage", NeurIPS 2020; here without
    randomization, so that sets are at most larger.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from nbsketch import SketchedKernelClassifier
    >>> from nbsketch.conformal import ConformalClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> classifier = SketchedKernelClassifier(loss="logistic", random_state=0)
    >>> model = ConformalClassifier(classifier, random_state=0).fit(X, y)
    >>> model.predict_set(X[[0, 100]]).tolist()
    [[True, False, False], [False, False, True]]
    """

    method: str = "lac"

    def fit(
        self,
        X: Any,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        groups: ArrayLike | None = None,
    ) -> Self:
        """Fit the estimator and calibrate; parameters as in `ConformalRegressor`."""
        with keeping_fitted(self):
            check_choice("method", self.method, _METHODS)
            self._nominal(None)
            labels = column_or_1d(y, dtype=None)
            check_classification_targets(labels)
            self.classes_, self.shift_ = np.unique(labels), 0.0
            self._calibrate(X, labels, *of_rows(sample_weight, groups, len(labels)))
        return self

    def predict_proba(self, X: Any) -> NDArray:
        """Return the probabilities of the classes, (n, c), of the fitted estimator."""
        check_is_fitted(self)
        return self._values(X)

    def predict_set(
        self,
        X: Any,
        coverage: float | None = None,
        groups: ArrayLike | None = None,
        *,
        sample_weight: ArrayLike | None = None,
    ) -> NDArray:
        """Return sets that hold the label with a given probability, (n, c) of bool.

        Parameters are those of `ConformalRegressor.predict_interval`.
        """
        check_is_fitted(self)
        nominal, values = self._nominal(coverage), self._values(X)
        n = len(values)
        weights, labels = self._of_new_rows(sample_weight, groups, n)
        limits = self._thresholds(nominal, n, labels, weights)
        return self._all_scores(values) <= limits[:, None] + _ROUNDING

    def _values(self, X: Any) -> NDArray:
        """Return probabilities, 0 for classes that the estimator has not met."""
        fitted = np.asarray(self.estimator_.predict_proba(X), dtype=float)
        out = np.zeros((len(fitted), len(self.classes_)))
        out[:, np.searchsorted(self.classes_, self.estimator_.classes_)] = fitted
        return out

    def _checked_targets(self, y: Any) -> NDArray:
        labels = column_or_1d(y, dtype=None)
        unknown = set(labels.tolist()) - set(self.classes_.tolist())
        if unknown:
            raise ValueError(f"`y` must hold labels of `fit`, got {unknown.pop()!r}")
        return np.searchsorted(self.classes_, labels)

    def _scores(self, values: NDArray, targets: NDArray, coverage: float) -> NDArray:
        return self._all_scores(values)[np.arange(len(values)), targets]

    def _all_scores(self, values: NDArray) -> NDArray:
        """Return how badly each class fits, (n, c)."""
        if self.method == "lac":
            return 1 - values
        order = np.argsort(-values, axis=1, kind="stable")
        ranked = np.take_along_axis(values, order, axis=1)
        before = np.cumsum(ranked, axis=1) - ranked
        out = np.empty_like(values)
        np.put_along_axis(out, order, before, axis=1)
        return out
