r"""Prediction intervals of any regressor, by models that leave a fold or a row out.

Ridge regression on features z with an intercept, :math:`\tilde z = (1, z)` and
:math:`A = \sum_i w_i \tilde z_i \tilde z_i^\top + n \alpha\, (0 \oplus I)`, leaves a
row i out by

.. math:: f_{-i}(x) = f(x) - \tilde z(x)^\top A^{-1} \tilde z_i\, w_i e_i, \qquad
          e_i = \frac{y_i - f(x_i)}{1 - w_i \tilde z_i^\top A^{-1} \tilde z_i} .
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import scipy.linalg
from numpy.typing import ArrayLike, NDArray
from sklearn.base import RegressorMixin
from sklearn.model_selection import KFold
from sklearn.utils import _safe_indexing, check_array
from sklearn.utils.validation import check_is_fitted

from nbsketch._expansion import PivotedCholesky
from nbsketch._quantiles import between_levels
from nbsketch._rows import checked_rows, model_dtype
from nbsketch._sketch_map import SketchMap
from nbsketch._validation import check_choice, declares_parameters, keeping_fitted
from nbsketch.conformal._calibrated import Calibrated, fit_on, of_rows, splits
from nbsketch.estimators import SketchedKernelRegressor
from nbsketch.estimators.posterior import check_ridge
from nbsketch.fitting.training import transform_rows

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
            [_columns(e, _safe_indexing(X, test)) for e, test in pairs]
        )

    def predict(self, X: Any) -> NDArray:
        """Return the predictions by the model without each row, (n, m, d)."""
        values = np.stack([_columns(e, X) for e in self.estimators], axis=1)
        return values.repeat([len(test) for test in self.tests], axis=1)


@dataclass(frozen=True)
class Jackknife:
    r"""Models without one row each, of kernel ridge regression on a sketch.

    Attributes
    ----------
    estimator : SketchedKernelRegressor
        The model of all rows.
    sketch_map, whitening
        The map to features z.
    coef : ndarray of shape (r + 1, d)
        Intercept and coefficients of all rows.
    changes : ndarray of shape (r + 1, n)
        :math:`A^{-1} w_i \tilde z_i` of each row.
    errors : ndarray of shape (n, d)
        Left-out residuals :math:`e_i`.
    """

    estimator: Any
    sketch_map: SketchMap
    whitening: PivotedCholesky
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
        Z = _features(self.estimator, self.sketch_map, self.whitening, X)
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
    Z, n = _features(model, sketch_map, whitening, X), len(y)
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
    return Jackknife(model, sketch_map, whitening, coef, changes, errors, targets)


def _features(
    model: Any, sketch_map: SketchMap, whitening: PivotedCholesky, X: Any
) -> NDArray:
    """Return a constant and the features of rows, (n, r + 1)."""
    rows = checked_rows(model, X, dtype=model_dtype(model.landmarks_))
    transformed = transform_rows(rows, model.scaler_, model.kernel_)
    Z = whitening.apply(sketch_map(transformed))
    return np.column_stack([np.full(len(Z), float(model.fit_intercept)), Z])


def _columns(estimator: Any, X: Any) -> NDArray:
    values = np.asarray(estimator.predict(X), dtype=float)
    return values.reshape(len(values), -1)


_METHODS = ("split", "jackknife+", "cv+", "cqr")
# Random folds of "cv+" if `cv` is None.
_FOLDS = 5
# Left-out predictions that are ranked at a time.
_BLOCK = 1 << 22


@declares_parameters
class ConformalRegressor(RegressorMixin, Calibrated):
    r"""Prediction intervals with guaranteed coverage, around any regressor.

    Parameters
    ----------
    estimator : regressor
        Any regressor of the scikit-learn API; for "cqr" one whose `predict` returns
        quantiles of the levels `quantiles`, such as `JointQuantileRegressor`; for
        "jackknife+" a `SketchedKernelRegressor` of the square loss. If it is frozen
        (`sklearn.frozen.FrozenEstimator`), all rows of `fit` calibrate, which it must
        not have been trained on.
    method : {"split", "jackknife+", "cv+", "cqr"}, default="split"
        "split": predictions plus or minus a quantile of the absolute residuals of rows
        kept out of the fit. "cqr": the same around fitted quantiles, for errors whose
        size depends on x. "cv+": residuals and predictions of the models of k folds,
        which uses all rows, for k + 1 fits. "jackknife+": of the n models that leave
        one row out, in closed form with length scales, penalty and landmarks of one
        fit to all rows.
    coverage : float in (0, 1), default=0.9
        Probability that an interval holds its target.
    cv : int, splitter, iterable of (train, test) or None, default=None
        "split", "cqr": the test rows of the last split calibrate; None: a random
        quarter. "cv+": the folds; None: five random ones. An integer: that many
        contiguous blocks, the last of which calibrates. Ignored by "jackknife+".
    random_state : None, int or Generator, default=None
        Pass an int for reproducible splits. The estimator has its own.

    Attributes
    ----------
    estimator_ : regressor
        The fitted regressor; that of `predict`.
    models_ : Refits, Jackknife or None
        The models without a fold or a row, for "cv+" and "jackknife+".
    values_, targets_ : ndarray of shape (m, d)
        Predictions of the calibration rows, or their quantiles (m, levels), by models
        that have not met them, and their targets.
    weights_, groups_ : ndarray of shape (m,) or None
        Weights and groups of the calibration rows.
    scale_ : ndarray of shape (d,)
        Unit of the errors of each output: their mean size at the calibration rows, 1
        for a single output.
    shift_ : float
        What `update` has added to the coverage.

    Notes
    -----
    For exchangeable rows an interval holds the target with at least the stated
    probability c for "split" and "cqr", at least 2 c - 1 for "jackknife+" and "cv+"
    (for the latter less a term of order k / n), which in practice have about c. The
    guarantee of "jackknife+" does not count that length scales and penalty are chosen
    with the row. Several outputs are covered together: the whole vector lies in its box
    with that probability, up to the choice of `scale_` on the calibration rows.

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
            Rows, as the estimator takes them.
        y : array of shape (n,) or (n, d)
            Targets.
        sample_weight : array of shape (n,) or None, default=None
            Weights of the rows, in the fit and in the calibration: the likelihood
            ratio of new rows, if their law is another. None: equal weights.
        groups : array of shape (n,) or None, default=None
            Group of each row: for `predict_interval` with `groups`, for splitters that
            take groups, and for an estimator with its own `cv` and `groups`.
        """
        with keeping_fitted(self):
            check_choice("method", self.method, _METHODS)
            self._nominal(None)
            targets = check_array(y, ensure_2d=False, dtype=float, input_name="y")
            self.shift_ = 0.0
            weights, labels = of_rows(sample_weight, groups, len(targets))
            self.models_: Models | None = None
            if self.method in ("split", "cqr"):
                self._calibrate(X, targets, weights, labels)
            else:
                self._leave_out(X, targets, weights, labels)
            self.scale_ = self._unit()
        return self

    def _leave_out(self, X: Any, y: NDArray, weights: Any, groups: Any) -> None:
        """Fit to all rows, and without each fold or row."""
        all_rows = np.arange(len(y))
        self.estimator_ = fit_on(self.estimator, X, y, weights, groups, all_rows)
        if self.method == "jackknife+":
            models: Models = jackknife(self.estimator_, X, y, weights)
        else:
            shuffled = KFold(_FOLDS, shuffle=True, random_state=self._seed())
            folds = splits(shuffled if self.cv is None else self.cv, X, y, groups)
            arrays = X, y, weights, groups
            fitted = [fit_on(self.estimator, *arrays, train) for train, _ in folds]
            models = Refits(fitted, [test for _, test in folds])
        rows, self.models_ = models.rows, models
        self.targets_ = self._checked_targets(y[rows])
        self.values_ = models.left_out(X)
        self._keep(rows, weights, groups)

    def _unit(self) -> NDArray:
        """Return the unit of the errors of each output."""
        d = self.targets_.shape[1]
        if d == 1:
            return np.ones(1)
        size = np.abs(self.targets_ - self.values_).mean(axis=0)
        return np.where(size > 0, size, 1.0)

    def _values(self, X: Any) -> NDArray:
        """Return predictions (n, d), or quantiles (n, levels) in ascending order."""
        values = _columns(self.estimator_, X)
        if self.method != "cqr":
            return values
        levels = getattr(self.estimator_, "quantiles", ())
        if len(levels) != values.shape[1]:
            raise TypeError(
                "`estimator` must predict the quantiles of the levels `quantiles` for "
                "method='cqr', such as JointQuantileRegressor, got "
                f"{self.estimator!r}"
            )
        return np.sort(values, axis=1)

    def _checked_targets(self, y: Any) -> NDArray:
        targets = check_array(y, ensure_2d=False, dtype=float, input_name="y")
        return targets.reshape(len(targets), -1)

    def _ends(self, values: NDArray, coverage: float) -> NDArray:
        """Return the ends of intervals before calibration, (n, d, 2)."""
        if self.method != "cqr":
            return np.repeat(values[:, :, None], 2, axis=2)
        levels = np.asarray(self.estimator_.quantiles, dtype=float)
        tails = (1 - coverage) / 2, (1 + coverage) / 2
        return between_levels(levels, values, tails)[:, None]

    def _outside(self, values: NDArray, targets: NDArray, coverage: float) -> NDArray:
        """Return how far targets are outside the ends, (n, d, 2)."""
        ends = self._ends(values, coverage)
        if ends.shape[:2] != targets.shape:
            raise ValueError(
                f"`y` must have {ends.shape[1]} outputs, got {targets.shape[1]}"
            )
        return (targets[:, :, None] - ends) * [-1.0, 1.0]

    def _scores(self, values: NDArray, targets: NDArray, coverage: float) -> NDArray:
        outside = self._outside(values, targets, coverage)
        return (outside / self.scale_[:, None]).max(axis=(1, 2))

    def update(
        self,
        X: Any,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        groups: ArrayLike | None = None,
    ) -> Self:
        """Adapt the coverage to rows that came later: see the base class."""
        if self.method not in ("split", "cqr"):
            raise ValueError(
                "`method` must be 'split' or 'cqr' for `update`, whose rows are not "
                f"exchangeable, got {self.method!r}"
            )
        return super().update(X, y, sample_weight, groups)

    def predict_interval(
        self,
        X: Any,
        coverage: float | None = None,
        groups: ArrayLike | None = None,
        *,
        sample_weight: ArrayLike | None = None,
        symmetric: bool = True,
    ) -> NDArray:
        """Return intervals that hold the targets with a given probability.

        Parameters
        ----------
        X : array or data frame of shape (n, q)
            Rows.
        coverage : float in (0, 1) or None, default=None
            Probability; "cqr" corrects the fitted quantiles nearest to the levels
            (1 - coverage) / 2 and (1 + coverage) / 2. None: that of the constructor.
        groups : array of shape (n,) or None, default=None
            Group of each row: calibrated by the rows of the same group alone, so that
            each group has this coverage. None: all rows calibrate.
        sample_weight : array of shape (n,) or None, default=None
            Weights of the rows, on the scale of those in `fit`. None: their mean.
        symmetric : bool, default=True
            Whether both ends move by the same distance. False: each end is missed with
            probability (1 - coverage) / 2, for skewed errors; one output, "split" or
            "cqr".

        Returns
        -------
        ndarray of shape (n, 2) or (n, d, 2)
            Lower and upper ends; infinite if there are too few calibration rows.
        """
        check_is_fitted(self)
        nominal, values = self._nominal(coverage), self._values(X)
        n, d = len(values), len(self.scale_)
        weights, labels = self._of_new_rows(sample_weight, groups, n)
        if not symmetric and (d > 1 or self.models_ is not None):
            raise ValueError(
                "`symmetric` must be True for several outputs and for methods "
                "'jackknife+' and 'cv+', got False"
            )
        if self.models_ is not None:
            ends = self._around(self.models_, X, n, nominal, labels, weights)
        elif symmetric:
            limits = self._thresholds(nominal, n, labels, weights)
            move = limits[:, None, None] * self.scale_[:, None] * [-1.0, 1.0]
            ends = self._ends(values, nominal) + move
        else:
            outside = self._outside(self.values_, self.targets_, nominal)[:, 0]
            level = (1 + self._adapted(nominal)) / 2
            args = level, n, labels, weights
            limits = np.stack([self._ranked(side, *args) for side in outside.T], -1)
            ends = self._ends(values, nominal) + limits[:, None] * [-1.0, 1.0]
        return ends[:, 0] if d == 1 else ends

    def _around(
        self,
        models: Models,
        X: Any,
        n: int,
        coverage: float,
        groups: Any,
        weights: Any,
    ) -> NDArray:
        """Return the ends from the predictions of all left-out models, (n, d, 2)."""
        m, d = self.targets_.shape
        margin = self._scores(self.values_, self.targets_, coverage)
        out, step = np.empty((n, d, 2)), max(1, _BLOCK // (m * d))
        for start in range(0, n, step):
            part = slice(start, min(start + step, n))
            left_out = models.predict(_safe_indexing(X, part))
            rows = part.stop - start
            labels = None if groups is None else groups[part]
            new = None if weights is None else weights[part]
            for j, unit in enumerate(self.scale_):
                for k, sign in enumerate([-1.0, 1.0]):
                    ranked = sign * left_out[:, :, j] + unit * margin
                    limit = self._ranked(ranked, coverage, rows, labels, new)
                    out[part, j, k] = sign * limit
        return out
