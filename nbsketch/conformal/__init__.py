"""Conformal prediction: intervals and sets with guaranteed coverage."""

from abc import ABC, abstractmethod
from dataclasses import field
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, MetaEstimatorMixin, is_classifier
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import KFold, ShuffleSplit
from sklearn.utils import Tags, _safe_indexing, check_array, get_tags, indexable
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from nbsketch._machine.memory import slices
from nbsketch._quantiles import (
    between_levels,
    conformal_quantile,
    moved_outwards,
    uncrossed,
)
from nbsketch._report.validation import (
    as_labels,
    as_numbers,
    check_choice,
    check_length,
    check_level,
    declares_parameters,
    explaining,
    fault,
    keeping_fitted,
    masked_fault,
    warn,
)
from nbsketch.conformal._left_out import (
    Models,
    Refits,
    columns_of,
    jackknife,
    quantiles_of,
)
from nbsketch.conformal._rows import DistinctRows, Marks, fit_on
from nbsketch.estimators._base import ClassifierScore, LogProbabilities, RegressorScore
from nbsketch.rows.inputs import check_alike, check_in_memory, labels_of_rows
from nbsketch.rows.splits import merges_copies

__all__ = ["ConformalClassifier", "ConformalRegressor"]

# Share of the samples used for calibration if `cv` is None.
_SHARE = 0.25
# Number of random folds of "cv+".
_FOLDS = 5
# Methods based on models that leave samples out.
_LEAVING_OUT = "jackknife+", "cv+"
# Step size of adaptive conformal inference.
_STEP = 0.02
# Probabilities that differ by less are considered equal.
_ROUNDING = 1e-12
# Number of held-out predictions ranked at a time.
_BLOCK = 1 << 22


@declares_parameters
class Calibrated(MetaEstimatorMixin, BaseEstimator, ABC):
    """Base of the conformal estimators.

    Fitted attributes: `estimator_`; `values_` and `targets_`, predictions and targets
    of the m calibration samples; their `weights_` and `groups_`, or None; and `shift_`,
    the change of the coverage by `update`.
    """

    estimator: Any = field(kw_only=False)
    coverage: float = 0.9
    cv: Any = None
    random_state: Any = None
    method: str = ""
    _methods: ClassVar[tuple[str, ...]] = ()

    def __sklearn_tags__(self) -> Tags:
        """Return the capabilities of the wrapped estimator."""
        tags = super().__sklearn_tags__()
        if hasattr(self.estimator, "__sklearn_tags__"):
            inner = get_tags(self.estimator)
            tags.input_tags = inner.input_tags
            tags.target_tags = inner.target_tags
        return tags

    @abstractmethod
    def _training_targets(self, y: Any) -> NDArray:
        """Return the targets of `fit`, one entry per sample."""

    @abstractmethod
    def _values(self, X: Any) -> NDArray:
        """Return the predictions of the fitted estimator, one entry per sample."""

    @abstractmethod
    def _checked_targets(self, y: Any) -> NDArray:
        """Return the targets, one entry per sample."""

    @abstractmethod
    def _scores(self, values: NDArray, targets: NDArray, coverage: float) -> NDArray:
        """Return the nonconformity scores of values and targets, (n,)."""

    def fit(
        self,
        X: Any,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        groups: ArrayLike | None = None,
    ) -> Self:
        """Fit the estimator and calibrate.

        Parameters
        ----------
        X : array or data frame of shape (n, q)
            Samples, in a form accepted by the estimator.
        y : array of shape (n,) or (n, d)
            Targets.
        sample_weight : array of shape (n,) or None, default=None
            Sample weights, used in the fit and in the calibration: the likelihood ratio
            of new samples, if their distribution differs. None: equal weights.
        groups : array of shape (n,) or None, default=None
            Group of each sample: for `predict_interval` with `groups`, for splitters
            that use groups, and for an estimator with its own `cv` and `groups`.
        """
        with keeping_fitted(self):
            for name, value in {"X": X, "y": y, "sample_weight": sample_weight}.items():
                check_in_memory(name, value, "a conformal fit")
            check_choice("method", self.method, self._methods)
            self._nominal(None)
            of_classes = isinstance(self, ClassifierScore)
            inner = self.estimator
            is_object = hasattr(inner, "fit") and not isinstance(inner, type)
            if not is_object or is_classifier(inner) != of_classes:
                kind = "classifier" if of_classes else "regressor"
                raise TypeError(f"`estimator` must be a {kind}, got {inner!r}")
            if y is None:
                raise ValueError(
                    "fit requires y to be passed, but the target y is None"
                )
            (X,) = indexable(X)
            check_alike(X, y=y, sample_weight=sample_weight)
            targets = self._training_targets(y)
            if not len(targets):
                raise ValueError("`y` must not be empty, got 0 samples")
            self.shift_ = 0.0
            marks = Marks.of(sample_weight, groups, len(targets))
            try:
                self._fit(X, targets, marks)
            except ValueError as error:
                # Missing values are named by rows of X, not of a subset.
                message = masked_fault("X", X)
                message = message or fault("X", X, may_be_text=True)
                if message and str(error).startswith("Input X contains"):
                    raise ValueError(message) from error
                raise
        return self

    @property
    def n_features_in_(self) -> int:
        """Number of features seen by the fitted estimator."""
        check_is_fitted(self)
        return self.estimator_.n_features_in_

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
        r"""Adapt the coverage to new samples, in the order of time.

        Adaptive conformal inference changes the coverage after each sample by

        .. math:: c \leftarrow c + 0.02\, (1\{\text{not covered}\} - (1 - c_0)),

        for the nominal coverage :math:`c_0`, and the sample replaces the oldest
        calibration sample (of its group, with `groups`). While c is positive, the share
        of covered samples among T samples differs from :math:`c_0` by at most 51 / T,
        for any distribution and drift. The estimator is not refitted.

        Parameters
        ----------
        X : array or data frame of shape (n, q)
            New samples, the oldest first.
        y : array of shape (n,) or (n, d)
            Their targets.
        sample_weight : array of shape (n,) or None, default=None
            Weights on the scale of those in `fit`. None: the mean of the calibration
            weights.
        groups : array of shape (n,) or None, default=None
            Groups, if `fit` had groups.

        References
        ----------
        I. Gibbs and E. Candes, "Adaptive Conformal Inference Under Distribution
        Shift", NeurIPS 2021.
        """
        if self.method in _LEAVING_OUT:
            raise ValueError(
                "`method` must be 'split' or 'cqr' for `update`, because these samples "
                f"are not exchangeable, got {self.method!r}"
            )
        check_is_fitted(self)
        values = self._values(X)
        targets = self._checked_targets(y)
        check_length("y", targets, len(values))
        if self.groups_ is not None and groups is None:
            raise ValueError("`groups` must be passed, as in `fit`, got None")
        marks = self._of_new_rows(sample_weight, groups, len(values))
        nominal = self._nominal(None)
        for k in range(len(values)):
            row = slice(k, k + 1)
            limit = self._thresholds(nominal, 1, marks.at(row))
            missed = self._scores(values[row], targets[row], nominal) > limit
            self.shift_ += _STEP * (float(missed[0]) - (1 - nominal))
            self._replace_oldest(values[row], targets[row], *marks.at(row))
        return self

    def _replace_oldest(
        self, value: NDArray, target: NDArray, weight: Any, label: Any
    ) -> None:
        place = np.arange(len(self.values_))
        if label is not None:
            place = np.flatnonzero(self.groups_ == label)
        new = [(self.values_, value), (self.targets_, target)]
        if self.weights_ is not None:
            mean = self.weights_.mean(keepdims=True)
            new.append((self.weights_, mean if weight is None else weight))
        for stored, entry in new:
            stored[place] = np.concatenate([stored[place[1:]], entry])

    def _fit(self, X: Any, y: NDArray, marks: Marks) -> None:
        """Fit the estimator to some samples and calibrate on the others."""
        distinct = DistinctRows.of(X, y, marks.weights)
        fitted, held = self._split(X, y, marks.groups, distinct)
        held = np.sort(held)  # the oldest first, for `update`
        self._set_estimator(fit_on(self.estimator, X, y, marks, fitted))
        self.targets_ = self._checked_targets(y[held])
        self.values_ = self._values(_safe_indexing(X, held))
        self.weights_, self.groups_ = self._calibrating(marks, distinct).at(held)

    def _set_estimator(self, estimator: Any) -> None:
        self.estimator_ = estimator

    def _split(
        self, X: Any, y: NDArray, groups: Any, distinct: DistinctRows
    ) -> tuple[NDArray, NDArray]:
        """Return the samples to fit and to calibrate on."""
        if isinstance(self.estimator, FrozenEstimator):
            return np.arange(0), distinct.rows
        if self.cv is None:
            splitter = ShuffleSplit(1, test_size=_SHARE, random_state=self._seed())
            return distinct.split(splitter, y)[0]
        return distinct.folds(self.cv, X, y, groups, is_classifier(self))[-1]

    def _calibrating(self, marks: Marks, distinct: DistinctRows) -> Marks:
        """Return the weights and groups of calibration samples."""
        if isinstance(self.estimator, FrozenEstimator) or merges_copies(self.cv):
            return marks._replace(weights=distinct.weights)
        return marks

    def _seed(self) -> Any:
        state = self.random_state
        generator = isinstance(state, np.random.Generator)
        return int(state.integers(2**31)) if generator else state

    def _thresholds(self, nominal: float, n: int, marks: Marks) -> NDArray:
        """Return the conformal threshold for each of n new samples, (n,)."""
        scores = self._scores(self.values_, self.targets_, nominal)
        return self._ranked(scores, self._adapted(nominal), n, marks)

    def _nominal(self, coverage: float | None) -> float:
        coverage = self.coverage if coverage is None else coverage
        return check_level("coverage", coverage)

    def _adapted(self, coverage: float) -> float:
        """Return the coverage to calibrate for, as changed by `update`."""
        return float(np.clip(coverage + self.shift_, 0.0, 1.0))

    def _ranked(
        self, scores: NDArray, coverage: float, n: int, marks: Marks
    ) -> NDArray:
        """Return a conformal quantile of scores, (m,) or (n, m), per new sample."""
        out = np.empty(n)
        old = Marks(self.weights_, self.groups_)
        groups = np.zeros(n)  # one group, which includes the calibration samples
        of_old = np.zeros(len(self.values_))
        if marks.groups is not None:
            groups = marks.groups
            of_old = self.groups_
        for label in np.unique(groups):
            rows = np.flatnonzero(groups == label)
            same = np.flatnonzero(of_old == label)
            ranked = scores[same] if scores.ndim == 1 else scores[np.ix_(rows, same)]
            out[rows] = conformal_quantile(
                ranked, coverage, old.at(same).weights, marks.at(rows).weights
            )
        return out

    def _of_new_rows(self, sample_weight: Any, groups: Any, n: int) -> Marks:
        """Return weights and groups of n new samples, in the form used by `fit`."""
        for name, given, fitted in (
            ("sample_weight", sample_weight, self.weights_),
            ("groups", groups, self.groups_),
        ):
            if given is not None and fitted is None:
                raise ValueError(f"`{name}` must be None, as in `fit`, got an array")
        marks = Marks.of(sample_weight, groups, n)
        if marks.groups is not None:
            unknown = set(marks.groups.tolist()) - set(self.groups_.ravel().tolist())
            if unknown:
                raise ValueError(
                    "`groups` must be groups of calibration samples, got "
                    f"{unknown.pop()!r}: fit with samples of this group, or pass no "
                    "`groups`"
                )
        return marks


@declares_parameters
class ConformalClassifier(ClassifierScore, LogProbabilities, Calibrated):
    r"""Prediction sets that contain the label with a given probability.

    Parameters
    ----------
    estimator : classifier
        Any classifier with `predict_proba`. If it is frozen
        (`sklearn.frozen.FrozenEstimator`), all samples of `fit` are used for
        calibration; it must not have been trained on them.
    method : {"lac", "aps"}, default="lac"
        "lac": the classes whose probability is above a common threshold, which gives
        the smallest sets on average. "aps": the most probable classes until their
        probabilities add up to a threshold; never empty, and larger for ambiguous
        samples.
    coverage : float in (0, 1), default=0.9
        Probability that a set contains the label.
    cv : int, splitter, iterable of (train, test) or None, default=None
        The test samples of the last split are used for calibration. An integer: that
        many contiguous blocks, stratified by class as in scikit-learn. None: a random
        quarter.
    random_state : None, int or Generator, default=None
        Pass an int for a reproducible split. The estimator has its own parameter.

    Attributes
    ----------
    estimator_ : classifier
        The fitted classifier.
    classes_ : ndarray of shape (c,)
        Sorted labels of `fit` and of the classifier, in the order of the columns of
        sets.
    values_, targets_ : ndarray of shape (m, c) and (m,)
        Probabilities and class indices of the calibration samples.
    weights_, groups_, shift_
        As in `ConformalRegressor`.

    References
    ----------
    M. Sadinle, J. Lei and L. Wasserman, "Least Ambiguous Set-Valued Classifiers with
    Bounded Error Levels", JASA 2019. Y. Romano, M. Sesia and E. J. Candes,
    "Classification with Valid and Adaptive Coverage", NeurIPS 2020; here without
    randomization, which can only enlarge the sets.

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
    _methods: ClassVar = "lac", "aps"

    def _training_targets(self, y: Any) -> NDArray:
        with explaining({"y": y}, labels=True):
            labels = labels_of_rows("y", y)
            check_classification_targets(labels)
        self.classes_ = np.unique(labels)
        return labels

    def _set_estimator(self, estimator: Any) -> None:
        super()._set_estimator(estimator)
        labels = [*self.classes_.tolist(), *np.asarray(estimator.classes_).tolist()]
        as_labels("y", np.array(labels, dtype=object))  # as in training
        self.classes_ = np.union1d(self.classes_, estimator.classes_)

    def _split(
        self, X: Any, y: NDArray, groups: Any, distinct: DistinctRows
    ) -> tuple[NDArray, NDArray]:
        fitted, held = super()._split(X, y, groups, distinct)
        lost = np.setdiff1d(y[held], y[fitted])
        if len(lost) and not isinstance(self.estimator, FrozenEstimator):
            warn(
                f"class {lost[0]!s} has calibration samples but no training sample, so "
                "its probability is 0: pass cv=StratifiedKFold(), or shuffle the data"
            )
        return fitted, held

    def predict_proba(self, X: Any) -> NDArray:
        """Return the class probabilities of the fitted estimator, (n, c)."""
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
        """Return sets that contain the label with a given probability, (n, c) of bool.

        Parameters are those of `ConformalRegressor.predict_interval`.
        """
        check_is_fitted(self)
        nominal = self._nominal(coverage)
        values = self._values(X)
        marks = self._of_new_rows(sample_weight, groups, len(values))
        limits = self._thresholds(nominal, len(values), marks)
        return self._all_scores(values) <= limits[:, None] + _ROUNDING

    def _values(self, X: Any) -> NDArray:
        """Return probabilities, 0 for classes unknown to the estimator."""
        if not hasattr(self.estimator_, "predict_proba"):
            raise TypeError(
                f"`estimator` must have predict_proba, got {self.estimator!r}: pass "
                "one with loss='logistic', or scikit-learn's CalibratedClassifierCV"
            )
        fitted = np.asarray(self.estimator_.predict_proba(X), dtype=float)
        out = np.zeros((len(fitted), len(self.classes_)))
        out[:, np.searchsorted(self.classes_, self.estimator_.classes_)] = fitted
        return out

    def _checked_targets(self, y: Any) -> NDArray:
        labels = labels_of_rows("y", y)
        unknown = set(labels.tolist()) - set(self.classes_.tolist())
        if unknown:
            raise ValueError(f"`y` must hold labels of `fit`, got {unknown.pop()!r}")
        return np.searchsorted(self.classes_, labels)

    def _scores(self, values: NDArray, targets: NDArray, coverage: float) -> NDArray:
        return self._all_scores(values)[np.arange(len(values)), targets]

    def _all_scores(self, values: NDArray) -> NDArray:
        """Return the nonconformity score of each class, (n, c)."""
        if self.method == "lac":
            return 1 - values
        order = np.argsort(-values, axis=1, kind="stable")
        ranked = np.take_along_axis(values, order, axis=1)
        before = np.cumsum(ranked, axis=1) - ranked
        out = np.empty_like(values)
        np.put_along_axis(out, order, before, axis=1)
        return out


@declares_parameters
class ConformalRegressor(RegressorScore, Calibrated):
    r"""Prediction intervals with guaranteed coverage for any regressor.

    Parameters
    ----------
    estimator : regressor
        Any regressor of the scikit-learn API. For "cqr": a model of quantiles of one
        output, such as `JointQuantileRegressor` and other estimators whose `predict`
        returns the levels `quantiles` (also in a pipeline or search), or
        `TabularKernelRegressor`. For "jackknife+": a `SketchedKernelRegressor` with the
        square loss. If it is frozen (`sklearn.frozen.FrozenEstimator`), all samples of
        `fit` are used for calibration; it must not have been trained on them.
    method : {"split", "jackknife+", "cv+", "cqr"}, default="split"
        "split": predictions plus or minus a quantile of the absolute residuals of
        held-out samples. "cqr": the same around fitted quantiles, for errors whose size
        depends on x. "cv+": residuals and predictions of the models of k folds, which
        uses all samples at the cost of k + 1 fits. "jackknife+": the same for the n
        leave-one-out models, in closed form, with length scales, penalty and landmarks
        of one fit to all samples.
    coverage : float in (0, 1), default=0.9
        Probability that an interval contains the target.
    cv : int, splitter, iterable of (train, test) or None, default=None
        "split", "cqr": the test samples of the last split are used for calibration;
        None: a random quarter. "cv+": the folds; None: five random folds. An integer:
        that many contiguous blocks, the last of which calibrates. Ignored by
        "jackknife+".
    random_state : None, int or Generator, default=None
        Pass an int for reproducible splits. The estimator has its own parameter.

    Attributes
    ----------
    estimator_ : regressor
        The fitted regressor, used by `predict`.
    models_ : Refits, Jackknife or None
        For "cv+" and "jackknife+": the models fitted without a fold or a sample.
    values_, targets_ : ndarray of shape (m, d)
        Targets of the calibration samples, and predictions (or quantiles, of shape (m,
        levels)) by models not fitted to them.
    weights_, groups_ : ndarray of shape (m,) or None
        Weights and groups of the calibration samples.
    scale_ : ndarray of shape (d,)
        Unit of the errors of each output: their mean absolute value on the calibration
        samples, 1 for a single output.
    shift_ : float
        Change of the coverage by `update`.

    Notes
    -----
    For exchangeable samples, an interval contains the target with at least the stated
    probability c for "split" and "cqr", and at least 2 c - 1 for "jackknife+" and "cv+"
    (for the latter minus a term of order k / n). In practice the coverage is about c.
    The guarantee of "jackknife+" ignores that length scales and penalty are chosen with
    the left-out sample. Several outputs are covered jointly: the whole vector is in its
    box with that probability, up to the choice of `scale_` on the calibration samples.

    References
    ----------
    J. Lei et al., "Distribution-Free Predictive Inference for Regression", JASA 2018.
    R. F. Barber, E. J. Candes, A. Ramdas and R. J. Tibshirani, "Predictive Inference
    with the Jackknife+", Annals of Statistics 2021. Y. Romano, E. Patterson and
    E. J. Candes, "Conformalized Quantile Regression", NeurIPS 2019. V. Vovk et al.,
    "Mondrian Confidence Machine", 2003 (groups).

    Examples
    --------
    >>> import numpy as np
    >>> from nbsketch import SketchedKernelRegressor
    >>> from nbsketch.conformal import ConformalRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-3, 3, size=(400, 1))
    >>> y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=400)
    >>> regressor = SketchedKernelRegressor(size=30, random_state=0)
    >>> model = ConformalRegressor(regressor, method="jackknife+").fit(X, y)
    >>> model.predict_interval([[0.0]], coverage=0.8).round(1).tolist()
    [[-0.1, 0.1]]
    """

    method: str = "split"
    _methods: ClassVar = "split", "cqr", *_LEAVING_OUT

    def _training_targets(self, y: Any) -> NDArray:
        targets = as_numbers(y)
        with explaining({"y": y}):
            return check_array(targets, ensure_2d=False, dtype=float, input_name="y")

    def _fit(self, X: Any, y: NDArray, marks: Marks) -> None:
        self.models_: Models | None = None
        if self.method in _LEAVING_OUT:
            self._leave_out(X, y, marks)
        else:
            super()._fit(X, y, marks)
        self._outside(self.values_, self.targets_, self.coverage)  # checks outputs
        self.scale_ = self._unit()

    def _leave_out(self, X: Any, y: NDArray, marks: Marks) -> None:
        """Fit to all samples, and without each fold or sample."""
        self.estimator_ = fit_on(self.estimator, X, y, marks, np.arange(len(y)))
        distinct = DistinctRows.of(X, y, marks.weights)
        if self.method == "jackknife+":
            marks = marks._replace(weights=distinct.weights).at(distinct.rows)
            X = _safe_indexing(X, distinct.rows)
            y = y[distinct.rows]
            self.models_ = jackknife(self.estimator_, X, y, marks.weights)
        else:
            shuffled = KFold(_FOLDS, shuffle=True, random_state=self._seed())
            if self.cv is None:
                folds = distinct.split(shuffled, y)
            else:
                folds = distinct.folds(self.cv, X, y, marks.groups)
            fits = [fit_on(self.estimator, X, y, marks, train) for train, _ in folds]
            self.models_ = Refits(fits, [test for _, test in folds])
            marks = self._calibrating(marks, distinct)
        rows = self.models_.rows
        self.targets_ = self._checked_targets(y[rows])
        self.values_ = self.models_.left_out(X)
        self.weights_, self.groups_ = marks.at(rows)

    def _unit(self) -> NDArray:
        """Return the unit of the errors of each output."""
        if self.targets_.shape[1] == 1:
            return np.ones(1)
        size = np.abs(self.targets_ - self.values_).mean(axis=0)
        return np.where(size > 0, size, 1.0)

    def _values(self, X: Any) -> NDArray:
        """Return predictions (n, d), or quantiles (n, levels) in ascending order."""
        if self.method != "cqr":
            return columns_of(self.estimator_, X)
        levels, predict = quantiles_of(self.estimator_)
        values = predict(X)
        if values.shape[1:] != levels.shape:
            raise TypeError(
                "`estimator` must predict quantiles of one output for method='cqr', "
                "such as JointQuantileRegressor and TabularKernelRegressor, got "
                f"{self.estimator!r}"
            )
        return np.sort(values, axis=1)

    def _checked_targets(self, y: Any) -> NDArray:
        targets = self._training_targets(y)
        return targets.reshape(len(targets), -1)

    def _ends(self, values: NDArray, coverage: float) -> NDArray:
        """Return the ends of intervals before calibration, (n, d, 2)."""
        if self.method != "cqr":
            return np.repeat(values[:, :, None], 2, axis=2)
        levels, _ = quantiles_of(self.estimator_)
        tails = (1 - coverage) / 2, (1 + coverage) / 2
        return between_levels(levels, values, tails)[:, None]

    def _outside(self, values: NDArray, targets: NDArray, coverage: float) -> NDArray:
        """Return the distance of targets beyond each end, (n, d, 2)."""
        ends = self._ends(values, coverage)
        if ends.shape[:2] != targets.shape:
            raise ValueError(
                f"`y` must have {ends.shape[1]} outputs, as many as `estimator` "
                f"predicts, got {targets.shape[1]}: if it predicts quantiles of one "
                "output, pass method='cqr'"
            )
        return (targets[:, :, None] - ends) * [-1.0, 1.0]

    def _scores(self, values: NDArray, targets: NDArray, coverage: float) -> NDArray:
        outside = self._outside(values, targets, coverage)
        return (outside / self.scale_[:, None]).max(axis=(1, 2))

    def predict_interval(
        self,
        X: Any,
        coverage: float | None = None,
        groups: ArrayLike | None = None,
        *,
        sample_weight: ArrayLike | None = None,
        symmetric: bool = True,
    ) -> NDArray:
        """Return intervals that contain the targets with a given probability.

        Parameters
        ----------
        X : array or data frame of shape (n, q)
            Samples.
        coverage : float in (0, 1) or None, default=None
            Probability of coverage. "cqr" corrects the fitted quantiles nearest to the
            levels (1 - coverage) / 2 and (1 + coverage) / 2. None: `coverage` of the
            constructor.
        groups : array of shape (n,) or None, default=None
            Group of each sample: only calibration samples of the same group are used,
            so that each group has this coverage. None: all calibration samples are
            used.
        sample_weight : array of shape (n,) or None, default=None
            Weights on the scale of those in `fit`. None: the mean calibration weight.
        symmetric : bool, default=True
            Whether both ends move by the same distance. False: each end is missed with
            probability (1 - coverage) / 2, for skewed errors; one output, "split" or
            "cqr" only.

        Returns
        -------
        ndarray of shape (n, 2) or (n, d, 2)
            Lower and upper ends; infinite if there are too few calibration samples.
        """
        check_is_fitted(self)
        nominal = self._nominal(coverage)
        values = self._values(X)
        n = len(values)
        d = len(self.scale_)
        marks = self._of_new_rows(sample_weight, groups, n)
        if not symmetric and (d > 1 or self.models_ is not None):
            raise ValueError(
                "`symmetric` must be True for several outputs and for methods "
                "'jackknife+' and 'cv+', got False"
            )
        if self.models_ is not None:
            ends = self._around(self.models_, X, n, nominal, marks)
        elif symmetric:
            limits = self._thresholds(nominal, n, marks)
            move = limits[:, None, None] * self.scale_[:, None] * [-1.0, 1.0]
            ends = self._ends(values, nominal) + move
        else:
            outside = self._outside(self.values_, self.targets_, nominal)[:, 0]
            level = (1 + self._adapted(nominal)) / 2
            sides = [self._ranked(side, level, n, marks) for side in outside.T]
            limits = np.stack(sides, -1)
            ends = self._ends(values, nominal) + limits[:, None] * [-1.0, 1.0]
        ends = moved_outwards(uncrossed(ends), values)
        return ends[:, 0] if d == 1 else ends

    def _around(
        self, models: Models, X: Any, n: int, coverage: float, marks: Marks
    ) -> NDArray:
        """Return the ends from the predictions of all leave-out models, (n, d, 2)."""
        m, d = self.targets_.shape
        margin = self._scores(self.values_, self.targets_, coverage)
        out = np.empty((n, d, 2))
        for part in slices(n, max(1, _BLOCK // (m * d))):
            left_out = models.predict(_safe_indexing(X, part))
            rows = len(left_out)
            new = marks.at(part)
            for j, unit in enumerate(self.scale_):
                for k, sign in enumerate([-1.0, 1.0]):
                    ranked = sign * left_out[:, :, j] + unit * margin
                    out[part, j, k] = sign * self._ranked(ranked, coverage, rows, new)
        return out
