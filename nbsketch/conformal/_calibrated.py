"""What conformal estimators share: rows kept out, their scores, thresholds, drift."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import field
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, MetaEstimatorMixin, clone
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import ShuffleSplit, check_cv
from sklearn.utils import _safe_indexing, column_or_1d
from sklearn.utils.validation import check_is_fitted, has_fit_parameter

from nbsketch._quantiles import conformal_quantile
from nbsketch._validation import check_level, declares_parameters
from nbsketch.fitting.training import check_weights

# Share of the rows that calibrate if `cv` is None.
_SHARE = 0.25
# Step of adaptive conformal inference.
_STEP = 0.02


@declares_parameters
class Calibrated(MetaEstimatorMixin, BaseEstimator, ABC):
    """Base of the conformal estimators.

    Fitted attributes: `estimator_`; `values_` and `targets_` of the m calibration rows,
    what the estimator predicts of them and their targets; `weights_` and `groups_` of
    these rows or None; and `shift_`, what `update` has added to the coverage.
    """

    estimator: Any = field(kw_only=False)
    coverage: float = 0.9
    cv: Any = None
    random_state: Any = None

    @abstractmethod
    def _values(self, X: Any) -> NDArray:
        """Return what the fitted estimator predicts of n rows, one entry a row."""

    @abstractmethod
    def _checked_targets(self, y: Any) -> NDArray:
        """Return the targets of n rows, one entry a row."""

    @abstractmethod
    def _scores(self, values: NDArray, targets: NDArray, coverage: float) -> NDArray:
        """Return how badly each value fits its target, (n,)."""

    def predict(self, X: Any) -> NDArray:
        """Return the predictions of the fitted estimator."""
        check_is_fitted(self)
        return self.estimator_.predict(X)

    def update(
        self,
        X: Any,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        groups: ArrayLike | None = None,
    ) -> Self:
        r"""Adapt the coverage to rows that came later, in the order of time.

        Adaptive conformal inference: after each row the coverage moves by

        .. math:: c \leftarrow c + 0.02\, (1\{\text{row not covered}\} - (1 - c_0)),

        for the nominal coverage :math:`c_0`, and the row takes the place of the oldest
        calibration row (of its group, with `groups`). While c is positive, the share of
        covered rows among T rows differs from :math:`c_0` by at most 51 / T, whatever
        their law and its drift. The estimator is not fitted again.

        Parameters
        ----------
        X : array or data frame of shape (n, q)
            New rows, the oldest first.
        y : array of shape (n,) or (n, d)
            Their targets.
        sample_weight : array of shape (n,) or None, default=None
            Their weights, on the scale of those in `fit`. None: the mean of the
            calibration rows.
        groups : array of shape (n,) or None, default=None
            Their groups, if `fit` had groups.

        References
        ----------
        I. Gibbs and E. Candes, "Adaptive Conformal Inference Under Distribution
        Shift", NeurIPS 2021.
        """
        check_is_fitted(self)
        values, targets = self._values(X), self._checked_targets(y)
        n = len(values)
        check_length("y", targets, n)
        if self.groups_ is not None and groups is None:
            raise ValueError("`groups` must be given, as in `fit`, got None")
        weights, labels = self._of_new_rows(sample_weight, groups, n)
        for k in range(n):
            row = slice(k, k + 1)
            weight = None if weights is None else weights[row]
            label = None if labels is None else labels[row]
            limit = self._thresholds(self.coverage, 1, label, weight)
            missed = self._scores(values[row], targets[row], self.coverage) > limit
            self.shift_ += _STEP * (float(missed[0]) - (1 - self.coverage))
            self._replace_oldest(values[row], targets[row], weight, label)
        return self

    def _replace_oldest(
        self, value: NDArray, target: NDArray, weight: Any, label: Any
    ) -> None:
        all_rows = np.arange(len(self.values_))
        place = all_rows if label is None else np.flatnonzero(self.groups_ == label)
        new = [(self.values_, value), (self.targets_, target)]
        if self.weights_ is not None:
            mean = self.weights_.mean(keepdims=True)
            new.append((self.weights_, mean if weight is None else weight))
        for stored, entry in new:
            stored[place] = np.concatenate([stored[place[1:]], entry])

    def _calibrate(self, X: Any, y: NDArray, weights: Any, groups: Any) -> None:
        """Fit the estimator on some rows; the others calibrate."""
        fitted, held = self._split(X, y, groups)
        self.estimator_ = fit_on(self.estimator, X, y, weights, groups, fitted)
        self.targets_ = self._checked_targets(y[held])
        self.values_ = self._values(_safe_indexing(X, held))
        self._keep(held, weights, groups)

    def _keep(self, rows: NDArray, weights: NDArray | None, groups: Any) -> None:
        self.weights_ = None if weights is None else weights[rows]
        self.groups_: Any = None if groups is None else groups[rows]

    def _split(self, X: Any, y: NDArray, groups: Any) -> tuple[NDArray, NDArray]:
        """Return the rows to fit and those that calibrate."""
        if isinstance(self.estimator, FrozenEstimator):
            return np.arange(0), np.arange(len(y))
        if self.cv is None:
            splitter = ShuffleSplit(1, test_size=_SHARE, random_state=self._seed())
            return next(splitter.split(y))
        return splits(self.cv, X, y, groups)[-1]

    def _seed(self) -> Any:
        state = self.random_state
        generator = isinstance(state, np.random.Generator)
        return int(state.integers(2**31)) if generator else state

    def _thresholds(
        self, coverage: float | None, n: int, groups: Any, weights: NDArray | None
    ) -> NDArray:
        """Return the score that each of n new rows passes at most so often, (n,)."""
        nominal = self._nominal(coverage)
        scores = self._scores(self.values_, self.targets_, nominal)
        return self._ranked(scores, self._adapted(nominal), n, groups, weights)

    def _nominal(self, coverage: float | None) -> float:
        given = self.coverage if coverage is None else coverage
        return check_level("coverage", given)

    def _adapted(self, coverage: float) -> float:
        """Return the coverage to calibrate for: moved by `update`."""
        return float(np.clip(coverage + self.shift_, 0.0, 1.0))

    def _ranked(
        self,
        scores: NDArray,
        coverage: float,
        n: int,
        groups: NDArray | None,
        weights: NDArray | None,
    ) -> NDArray:
        """Return a conformal quantile of scores, (m,) or (n, m), for each new row."""
        out = np.empty(n)
        for rows, same in self._pairs(groups, n):
            ranked = scores[same] if scores.ndim == 1 else scores[np.ix_(rows, same)]
            old = None if self.weights_ is None else self.weights_[same]
            new = None if weights is None else weights[rows]
            out[rows] = conformal_quantile(ranked, coverage, old, new)
        return out

    def _pairs(
        self, groups: NDArray | None, n: int
    ) -> Iterator[tuple[NDArray, NDArray]]:
        """Yield the new rows of each group and its calibration rows."""
        if groups is None:
            yield np.arange(n), np.arange(len(self.values_))
            return
        for label in np.unique(groups):
            yield np.flatnonzero(groups == label), np.flatnonzero(self.groups_ == label)

    def _of_new_rows(
        self, sample_weight: Any, groups: Any, n: int
    ) -> tuple[NDArray | None, NDArray | None]:
        """Return weights and groups of n new rows, each as `fit` had them."""
        for name, given in (("sample_weight", sample_weight), ("groups", groups)):
            fitted = self.weights_ if name == "sample_weight" else self.groups_
            if given is not None and fitted is None:
                raise ValueError(f"`{name}` must be None, as in `fit`, got an array")
        weights, labels = of_rows(sample_weight, groups, n)
        if labels is not None and self.groups_ is not None:
            unknown = set(labels.tolist()) - set(self.groups_.ravel().tolist())
            if unknown:
                raise ValueError(
                    "`groups` must be groups of calibration rows, got "
                    f"{unknown.pop()!r}: fit with rows of this group, or leave "
                    "`groups` out"
                )
        return weights, labels


def splits(cv: Any, X: Any, y: NDArray, groups: Any) -> list[tuple[NDArray, NDArray]]:
    """Return the (train, test) rows of a splitter; groups, if it takes them."""
    with warnings.catch_warnings():
        ignored = "The groups parameter is ignored"
        warnings.filterwarnings("ignore", message=ignored, category=UserWarning)
        return list(check_cv(cv).split(X, y, groups))


def of_rows(
    sample_weight: Any, groups: Any, n: int
) -> tuple[NDArray | None, NDArray | None]:
    """Return checked weights and groups of n rows."""
    labels = None if groups is None else column_or_1d(groups, dtype=None)
    if labels is not None:
        check_length("groups", labels, n)
    return check_weights(sample_weight, np.empty((n, 0))), labels


def check_length(name: str, values: NDArray, n: int) -> None:
    """Raise an error if there are not n values."""
    if len(values) != n:
        raise ValueError(f"`{name}` must have {n} entries, got {len(values)}")


def fit_on(
    estimator: Any,
    X: Any,
    y: NDArray,
    weights: NDArray | None,
    groups: NDArray | None,
    rows: NDArray,
) -> Any:
    """Return a clone of the estimator, fitted on some rows; itself if it is frozen."""
    if isinstance(estimator, FrozenEstimator):
        return estimator
    options = {}
    if weights is not None:
        if not has_fit_parameter(estimator, "sample_weight"):
            raise TypeError(
                "`sample_weight` must be None for an estimator whose fit does not take "
                f"it, got {estimator!r}"
            )
        options["sample_weight"] = weights[rows]
    takes_groups = has_fit_parameter(estimator, "groups")
    if groups is not None and takes_groups and estimator.cv is not None:
        options["groups"] = groups[rows]
    return clone(estimator).fit(_safe_indexing(X, rows), y[rows], **options)
