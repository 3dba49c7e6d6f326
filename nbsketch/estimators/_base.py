"""What the sketched kernel machines share: checks, publishing a fit, prediction."""

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from contextlib import suppress
from copy import copy
from dataclasses import field, fields, is_dataclass, replace
from functools import partial
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import (
    BaseEstimator,
    ClassifierMixin,
    MultiOutputMixin,
    RegressorMixin,
    clone,
    is_classifier,
)
from sklearn.exceptions import DataConversionWarning
from sklearn.metrics import accuracy_score, d2_tweedie_score, r2_score
from sklearn.utils import Tags
from sklearn.utils.validation import check_array, check_is_fitted

from nbsketch._expansion import expansion_of
from nbsketch._onnx import write_onnx
from nbsketch._report import validation
from nbsketch._report.progress import watching
from nbsketch.estimators._summary import entries_of
from nbsketch.files import SaveMixin
from nbsketch.fitting.callbacks import CallbackSupportMixin, watched_fit
from nbsketch.fitting.certificate import warn_of
from nbsketch.fitting.lost_columns import warn_of_lost_columns
from nbsketch.fitting.methods import FitPlan, chosen_method, plan_fit, sketched_method
from nbsketch.fitting.objective import FeatureSolution, Problem
from nbsketch.fitting.sketched import SketchedData, summary_text
from nbsketch.losses import LogLinkLoss, as_loss
from nbsketch.rows import inputs
from nbsketch.rows.copies import merged_weights, representatives
from nbsketch.rows.splits import folds_of_kept, merges_copies, warn_of_divided_copies
from nbsketch.rows.transform import transform_rows
from nbsketch.solvers.left_out import Folds

# The deviance of fewer targets is not explained: scikit-learn warns.
_LEAST_SCORED = 2
# Relative error of means of equal targets that is rounding.
_ROUNDING = 1e-9
# How targets of a regression are checked.
NUMBERS = {"multi_output": True, "y_numeric": True}
# Rows that are predicted at a time.
_BLOCK_ROWS = 1 << 18


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
        return score_of(self, self._metric, X, y, sample_weight)

    @property
    def _metric(self) -> Callable[..., float]:
        return r2_score


class ResidualLoss(MultiOutputMixin):
    """Mixin of regressors with a loss: what targets it takes."""

    loss: Any

    def __sklearn_tags__(self) -> Tags:
        """Return the capabilities of the estimator."""
        tags = super().__sklearn_tags__()
        try:
            loss = as_loss(self.loss)
        except ValueError:  # `fit` refuses it
            return tags
        is_monotone = getattr(self, "monotonic_cst", None) is not None
        tags.target_tags.positive_only = isinstance(loss, LogLinkLoss)
        tags.target_tags.multi_output = loss.is_radial and not is_monotone
        return tags

    @property
    def _metric(self) -> Callable[..., float]:
        loss = as_loss(self.loss)
        if isinstance(loss, LogLinkLoss):
            return partial(_explained_deviance, power=loss.power)
        return super()._metric


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
        y = y if inputs.is_dask(y) else validation.as_labels("y", y)
        return score_of(self, accuracy_score, X, y, sample_weight)


class LogProbabilities:
    """Mixin of classifiers that have probabilities whatever their parameters are."""

    def predict_log_proba(self, X: Any) -> NDArray:
        """Return the logarithm of `predict_proba`, (n, c); minus infinity for 0."""
        with np.errstate(divide="ignore"):
            return np.log(self.predict_proba(X))  # type: ignore[attr-defined]


def score_of(model: Any, metric: Callable, X: Any, y: Any, weights: Any) -> float:
    """Return a metric of the predictions of arrays, or of Dask collections."""
    y, predictions, weights = inputs.predicted(model, X, y, weights)
    with validation.explaining({"y": y, "sample_weight": weights}, text_in=("y",)):
        return metric(y, predictions, sample_weight=weights)


def _explained_deviance(
    y: NDArray, predictions: NDArray, sample_weight: NDArray | None, power: float
) -> float:
    """Return D2; of equal targets 1 if they are predicted and else 0, as R2 is."""
    used = slice(None) if sample_weight is None else np.asarray(sample_weight) > 0
    counted, found = (np.ravel(values)[used] for values in (y, predictions))
    if len(counted) < _LEAST_SCORED or np.ptp(counted) > 0:
        args = {"sample_weight": sample_weight, "power": power}
        return d2_tweedie_score(y, predictions, **args)
    return float(np.allclose(found, counted[0], rtol=_ROUNDING, atol=0.0))


def _flattened(y: NDArray) -> NDArray:
    """Return the column of the only target, with the warning of scikit-learn."""
    warnings.warn(
        "A column-vector y was passed when a 1d array was expected: `y` has shape "
        f"{y.shape}, and is used as y.ravel()",
        DataConversionWarning,
        stacklevel=4,
    )
    return y[:, 0]


class ObjectParameters:
    """Mixin of estimators whose parameters may be objects that have parameters.

    Those of a loss, kernel, sketch or output matrix are searched as those of estimators
    are: ``loss__kappa``, ``sketch__density``.
    """

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters by name; if deep, also those of objects."""
        params = super().get_params(deep)  # type: ignore[misc]
        for name, value in list(params.items()) if deep else ():
            given = _with_parameters(name, value)
            keys = [] if given is None else [part.name for part in fields(given)]
            params |= {f"{name}__{key}": getattr(given, key) for key in keys}
        return params

    def set_params(self, **params: Any) -> Self:
        """Set parameters by name; an object gives way to one with other parameters."""
        parts = {name: params.pop(name) for name in list(params) if "__" in name}
        super().set_params(**params)  # type: ignore[misc]
        known = self.get_params()
        for name, value in parts.items():
            if name not in known:
                raise ValueError(
                    f"Invalid parameter {name!r} of {type(self).__name__}, whose "
                    f"parameters are {sorted(known)}"
                )
            holder, _, key = name.partition("__")
            given = _with_parameters(holder, getattr(self, holder))
            setattr(self, holder, replace(given, **{key: value}))
        return self


def _with_parameters(name: str, value: Any) -> Any:
    """Return a parameter that is an object, or the name of a loss; None for others."""
    if name == "loss" and isinstance(value, str):
        with suppress(ValueError):
            return as_loss(value)
    is_object = is_dataclass(value) and not isinstance(value, BaseEstimator | type)
    return value if is_object else None


@validation.declares_parameters
class KernelExpansion(SaveMixin, CallbackSupportMixin, ObjectParameters, BaseEstimator):
    """A model that, once fitted, is a kernel expansion on the landmarks of a sketch."""

    kernel: Any = field(default="auto", kw_only=False)
    bandwidth: Any = None
    preprocessing: str | None = "auto"
    sketch: Any = None
    size: Any = None
    alpha: float | None = None
    cv: Any = None
    fit_intercept: bool = True
    random_state: Any = None
    verbose: int = 0
    callback: Any = None

    def summary(self) -> str:
        """Return what the fit has chosen and found, one line each."""
        check_is_fitted(self)
        return summary_text(self, entries_of(self))

    def to_onnx(self, path: Any) -> None:
        """Write the fitted model as an ONNX graph, for prediction without nbsketch.

        The graph maps `X`, doubles of shape (n, q), to `scores`: predictions of a
        regressor, the decision function of a classifier, quantiles as fitted. For dense
        rows and Gaussian, Laplacian, Matern, linear and polynomial kernels.

        Parameters
        ----------
        path : str or path
            File to write.

        Raises
        ------
        ModuleNotFoundError
            If onnx is not installed (``pip install "nbsketch[onnx]"``).
        TypeError
            If the kernel has no graph.
        """
        check_is_fitted(self)
        write_onnx(self, path)

    def _check_training(
        self,
        X: Any,
        y: Any,
        sample_weight: Any,
        *,
        is_stream: bool = False,
        **options: Any,
    ) -> inputs.TrainingRows:
        """Check training data; return the rows of positive weight.

        Copies of rows become one row of their weight, except in a stream and for a
        splitter, which refers to the rows as given.
        """
        X, y, sample_weight = inputs.training_data(self, X, y, sample_weight, **options)
        if y.shape[1:] == (1,) and not self.__sklearn_tags__().target_tags.multi_output:
            y = _flattened(y)
        weights = self._weigh(y, inputs.check_weights(sample_weight, X))
        n_given = len(y) if weights is None else int(np.count_nonzero(weights))
        if merges_copies(self.cv) and not is_stream:
            weights = merged_weights(X, y, weights)
        pairwise = inputs.is_pairwise(self.kernel) and options.get("reset", True)
        rows = inputs.TrainingRows.of(X, y, weights, pairwise=pairwise, lazy=True)
        self.n_copies_ = n_given - len(rows.y)
        return rows

    def _weigh(self, y: NDArray, weights: NDArray | None) -> NDArray | None:
        """Return the weights of the rows, given their targets and sample weights."""
        return weights

    def _check_validation(
        self, X: Any, Y: NDArray, X_val: Any, y_val: Any
    ) -> tuple[Any, NDArray] | None:
        """Check validation rows, if there are any, against training data."""
        if X_val is None and y_val is None:
            return None
        if X_val is None or y_val is None:
            raise ValueError("`X_val` and `y_val` go together, got one of them")
        rows = inputs.checked_rows(self, X_val, dtype=X.dtype, name="X_val")
        with validation.explaining({"y_val": y_val}):
            targets = check_array(
                y_val, dtype=float, ensure_2d=False, input_name="y_val"
            )
        validation.check_magnitude("y_val", targets)
        targets = targets.reshape(len(targets), -1)
        expected = rows.shape[0], Y.shape[1]
        if targets.shape != expected:
            raise ValueError(f"`y_val` must have shape {expected}, got {targets.shape}")
        return rows, targets

    def _terms(self, rows: inputs.TrainingRows) -> tuple[NDArray, NDArray | None, bool]:
        """Return targets (n, d), weights and intercept, as objectives take them.

        Targets may share the memory of y. Compiled code is compiled once more for
        read-only arrays, so these are copied.
        """
        Y = rows.y.reshape(len(rows.y), -1)
        Y = Y.astype(float, copy=not Y.flags.writeable)
        return Y, rows.relative_weights, self.fit_intercept

    def _folds(self, rows: inputs.TrainingRows, groups: Any) -> Folds | None:
        """Return the rows that `cv` leaves out together."""
        labelled = is_classifier(self)
        folds = folds_of_kept(self.cv, groups, rows, classification=labelled)
        if hasattr(self.cv, "split"):
            place = representatives(rows.X, rows.y)
            warn_of_divided_copies(self.cv, folds, place)
        return folds

    def _set_expansion(
        self, coef: NDArray, intercept: Any, data: SketchedData, single_output: bool
    ) -> None:
        """Set what prediction needs; with a single output without its axis."""
        self.kernel_ = data.kernel
        self.sketch_ = data.sketch
        self.scaler_ = data.inputs.scaler
        self.length_scales_ = data.inputs.length_scales
        self.bandwidth_ = getattr(self.kernel_, "bandwidth", None)
        self.size_ = self.sketch_.shape[0]
        self.landmarks_ = data.expansion.landmarks
        if not data.sketch_map.is_columns:
            warn_of_lost_columns(self, data.rows)
        self.coef_ = coef[:, 0] if single_output else coef
        self.intercept_: Any = float(intercept[0]) if single_output else intercept

    @inputs.rowwise(inputs.row_by_row)
    def predict(self, X: ArrayLike) -> NDArray:
        """Return the predictions of the rows of X, of shape (n,) or (n, d)."""
        return self._decision(X)

    def _decision(self, X: ArrayLike) -> NDArray:
        """Return f(X), of shape (n,) or (n, d), tile by tile."""
        check_is_fitted(self)
        return self._values(inputs.new_rows(self, X))

    def _values(self, X: Any) -> NDArray:
        # In blocks, for transformed rows are a copy.
        blocks = (X[k : k + _BLOCK_ROWS] for k in range(0, X.shape[0], _BLOCK_ROWS))
        rows = (transform_rows(b, self.scaler_, self.kernel_) for b in blocks)
        return np.concatenate([self._values_of_inputs(block) for block in rows])

    def _values_of_inputs(self, rows: Any) -> NDArray:
        """Return f at preprocessed rows."""
        coef = self.coef_.reshape(len(self.coef_), -1)
        values = expansion_of(self, coef)(rows) + self.intercept_
        return values[:, 0] if self.coef_.ndim == 1 else values

    def __sklearn_tags__(self) -> Tags:
        """Return the capabilities of the estimator."""
        tags = super().__sklearn_tags__()
        inputs.set_input_tags(self, tags.input_tags)
        return tags


@validation.declares_parameters
class SketchedModel(KernelExpansion, ABC):
    """Base of the estimators that minimize an objective with a penalty.

    Their `fit` reads: checked data and objective (`prepare`), sketched rows, solution,
    published attributes.
    """

    @abstractmethod
    def prepare(
        self, X: Any, y: Any, sample_weight: Any = None, groups: Any = None
    ) -> Problem:
        """Check parameters and data; return the problem that `fit` solves."""

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        groups: ArrayLike | None = None,
    ) -> Self:
        """Fit the model.

        Parameters
        ----------
        X : array or sparse matrix of shape (n, q)
            Training rows; float32 stays float32. Memory-mapped arrays are read block
            by block, Dask arrays and data frames of numbers where they are.
        y : array of shape (n,), or (n, d) for a `SketchedKernelRegressor`
            Targets; for a classifier labels, numbers or strings, of at least two
            classes.
        sample_weight : array of shape (n,) or None, default=None
            Non-negative weights. None: equal weights.
        groups : array of shape (n,) or None, default=None
            Label of the group of each row, for `cv`.
        """
        with watched_fit(self):
            return self._solve(self.prepare(X, y, sample_weight, groups))

    def plan(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        groups: ArrayLike | None = None,
    ) -> FitPlan:
        """Return what `fit` will do with these data, without fitting.

        Parameters
        ----------
        X, y, sample_weight, groups
            As in `fit`.

        Returns
        -------
        FitPlan
            Method, size of the sketch, and how the penalty is chosen. Limits of time,
            and sizes that are chosen by ``size="auto"``, are known to `fit` alone.

        Examples
        --------
        >>> import numpy as np
        >>> from nbsketch import SketchedKernelRegressor
        >>> X = np.random.default_rng(0).uniform(size=(2000, 3))
        >>> found = SketchedKernelRegressor(random_state=0).plan(X, X.sum(axis=1))
        >>> found.method, found.size
        ('AllRows', 2000)
        >>> SketchedKernelRegressor(size=100).plan(X, X.sum(axis=1)).penalty
        'leave-one-out'
        """
        return plan_fit(clone(self).prepare(X, y, sample_weight, groups))

    def _solve(self, problem: Problem) -> Self:
        """Solve the problem of a fit and publish the solution."""
        method = chosen_method(problem)
        solution = method.solve()
        warn_of(solution)
        return self._publish(problem, method.data, solution)

    def fit_path(
        self,
        X: ArrayLike,
        y: ArrayLike,
        alphas: Iterable[float],
        sample_weight: ArrayLike | None = None,
        groups: ArrayLike | None = None,
    ) -> list[Self]:
        """Fit one model for each penalty, on one sketch and one set of features.

        Each solution starts from the one before, so descending penalties are fastest;
        for the square loss one decomposition serves them all.

        Parameters
        ----------
        X, y, sample_weight
            As in `fit`.
        alphas : sequence of floats
            Positive penalties.
        groups
            As in `fit`.

        Returns
        -------
        list of estimators
            Fitted copies, in the order of `alphas`.
        """
        penalties = validation.check_positives("alphas", alphas)
        model = clone(self).set_params(callback=self.callback)  # clones copy methods
        problem = model.prepare(X, y, sample_weight, groups)
        problem.plan.check_has_path()
        with watching(self.verbose, self.callback):
            method = sketched_method(problem).choose_width()
            return [
                copy(model)._publish(problem, method.data, solution)
                for solution in method.path(penalties)
            ]

    def _publish(
        self, problem: Problem, data: SketchedData, solution: FeatureSolution
    ) -> Self:
        """Set the fitted attributes."""
        for name in ("posterior_", "monotonic_violation_"):
            self.__dict__.pop(name, None)  # of an earlier fit
        coef = solution.coef
        intercept = solution.intercept
        self._set_expansion(coef, intercept, data, problem.single_output)
        self.size_path_ = data.size_path
        self.rank_ = solution.rank
        self.alpha_ = solution.alpha
        self.objective_ = solution.objective
        self.dual_gap_ = solution.gap
        self.n_iter_ = solution.n_iter
        return self


@validation.declares_parameters
class IterativeModel(SketchedModel):
    """Base of those whose objective takes a solver, and their parameters."""

    solver: Any = "auto"
    tol: float = 1e-6
    max_iter: int = 1000
    max_seconds: float | None = None
