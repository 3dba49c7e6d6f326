"""Shared base classes of the estimators: checks, publishing a fit, prediction."""

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
from nbsketch._report.progress import watching
from nbsketch._report.validation import (
    as_labels,
    check_magnitude,
    check_positives,
    declares_parameters,
    explaining,
    warn,
)
from nbsketch.estimators._summary import entries_of, summary_text
from nbsketch.files import SaveMixin
from nbsketch.fitting.callbacks import CallbackSupportMixin, watched_fit
from nbsketch.fitting.certificate import warn_of
from nbsketch.fitting.lost_columns import warn_of_lost_columns, warn_of_lost_squares
from nbsketch.fitting.objective import FeatureSolution, Problem
from nbsketch.fitting.sketched import SketchedData
from nbsketch.fitting.steps import FitPlan, plan_fit, sketched_method
from nbsketch.losses import LogLinkLoss, as_loss, fitted_loss
from nbsketch.rows import inputs
from nbsketch.rows.copies import merged_weights, representatives
from nbsketch.rows.splits import folds_of_kept, merges_copies, warn_of_divided_copies
from nbsketch.rows.transform import transform_rows
from nbsketch.solvers.left_out import Folds

# scikit-learn warns about D^2 of fewer samples than this.
_LEAST_SCORED = 2
# Relative difference below which a constant target counts as predicted.
_ROUNDING = 1e-9
# Options of the target check for regression.
NUMBERS = {"multi_output": True, "y_numeric": True}
# Number of samples predicted at a time.
_BLOCK_ROWS = 1 << 18


class RegressorScore(RegressorMixin):
    """Mixin for regressors that accept Dask collections."""

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the coefficient of determination (R^2) of the predictions.

        For a Poisson or gamma loss, return the explained deviance D^2.

        Dask collections of predictions and targets are gathered in this process.

        Parameters
        ----------
        X : array of shape (n, q)
            Samples.
        y : array of shape (n,) or (n, d)
            Targets.
        sample_weight : array of shape (n,) or None, default=None
            Non-negative weights. None: equal weights.
        """
        return score_of(self, self._metric(), X, y, sample_weight)

    def _metric(self) -> Callable[..., float]:
        return r2_score


class ResidualLoss(MultiOutputMixin):
    """Mixin for regressors with a loss: tags for the targets that the loss accepts."""

    loss: Any

    def __sklearn_tags__(self) -> Tags:
        """Return the capabilities of the estimator."""
        tags = super().__sklearn_tags__()
        try:
            loss = as_loss(self.loss)
        except ValueError:  # `fit` raises it
            return tags
        is_monotone = getattr(self, "monotonic_cst", None) is not None
        tags.target_tags.positive_only = isinstance(loss, LogLinkLoss)
        tags.target_tags.multi_output = loss.is_radial and not is_monotone
        return tags

    def _metric(self) -> Callable[..., float]:
        loss = fitted_loss(self)
        if isinstance(loss, LogLinkLoss):
            return partial(_explained_deviance, power=loss.power)
        return super()._metric()


class ClassifierScore(ClassifierMixin):
    """Mixin for classifiers that accept Dask collections."""

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the accuracy of the predicted labels.

        Dask collections of predictions and labels are gathered in this process.

        Parameters
        ----------
        X : array of shape (n, q)
            Samples.
        y : array of shape (n,)
            Labels.
        sample_weight : array of shape (n,) or None, default=None
            Non-negative weights. None: equal weights.
        """
        y = y if inputs.is_dask(y) else as_labels("y", y)
        return score_of(self, accuracy_score, X, y, sample_weight)


class LogProbabilities:
    """Mixin for classifiers with probabilities for every setting of the parameters."""

    def predict_log_proba(self, X: Any) -> NDArray:
        """Return the logarithm of `predict_proba`, (n, c); -inf where it is 0."""
        with np.errstate(divide="ignore"):
            return np.log(self.predict_proba(X))  # type: ignore[attr-defined]


def score_of(model: Any, metric: Callable, X: Any, y: Any, weights: Any) -> float:
    """Evaluate a metric on the predictions for arrays or Dask collections."""
    y, predictions, weights = inputs.predicted(model, X, y, weights)
    with explaining({"y": y, "sample_weight": weights}, labels=True):
        return metric(y, predictions, sample_weight=weights)


def _explained_deviance(
    y: NDArray, predictions: NDArray, sample_weight: NDArray | None, power: float
) -> float:
    """Return D^2; for constant targets 1 if they are predicted, else 0 (like R^2)."""
    used = slice(None) if sample_weight is None else np.asarray(sample_weight) > 0
    targets, predicted = (np.ravel(values)[used] for values in (y, predictions))
    if len(targets) < _LEAST_SCORED or np.ptp(targets) > 0:
        return d2_tweedie_score(
            y, predictions, sample_weight=sample_weight, power=power
        )
    return float(np.allclose(predicted, targets[0], rtol=_ROUNDING, atol=0.0))


class ObjectParameters:
    """Mixin for estimators with parameters that are objects with parameters.

    Parameters of a loss, kernel, sketch or output matrix can be set and searched like
    those of nested estimators: ``loss__kappa``, ``sketch__density``.
    """

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters by name; if deep, include those of objects."""
        params = super().get_params(deep)  # type: ignore[misc]
        for name, value in list(params.items()) if deep else ():
            given = _with_parameters(name, value)
            keys = [] if given is None else [part.name for part in fields(given)]
            params |= {f"{name}__{key}": getattr(given, key) for key in keys}
        return params

    def set_params(self, **params: Any) -> Self:
        """Set parameters by name; objects are replaced, never modified."""
        parts = {name: params.pop(name) for name in list(params) if "__" in name}
        super().set_params(**params)  # type: ignore[misc]
        values = self.get_params()
        for name, value in parts.items():
            if name not in values:
                raise ValueError(
                    f"Invalid parameter {name!r} of {type(self).__name__}, whose "
                    f"parameters are {sorted(values)}"
                )
            holder, _, key = name.partition("__")
            given = _with_parameters(holder, getattr(self, holder))
            setattr(self, holder, replace(given, **{key: value}))
        return self


def _with_parameters(name: str, value: Any) -> Any:
    """Return a parameter that is an object, or a loss by name; otherwise None."""
    if name == "loss" and isinstance(value, str):
        with suppress(ValueError):
            return as_loss(value)
    is_object = is_dataclass(value) and not isinstance(value, BaseEstimator | type)
    return value if is_object else None


@declares_parameters
class KernelExpansion(SaveMixin, CallbackSupportMixin, ObjectParameters, BaseEstimator):
    """Base of the estimators that predict with a kernel expansion on landmarks."""

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
        """Return a text summary of the fitted model, one line per property."""
        check_is_fitted(self)
        return summary_text(self, entries_of(self))

    def to_onnx(self, path: Any) -> None:
        """Write the fitted model as an ONNX graph, to predict without nbsketch.

        The graph maps `X`, float64 of shape (n, q), to `scores`: predictions of a
        regressor, the decision function of a classifier, or unsorted quantiles. It
        needs dense samples and a Gaussian, Laplacian, Matern, linear or polynomial
        kernel.

        Parameters
        ----------
        path : str or path
            Path of the file to write.

        Raises
        ------
        ModuleNotFoundError
            If onnx is not installed (``pip install "nbsketch[onnx]"``).
        TypeError
            If the kernel has no ONNX graph.
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
        """Check training data; return the samples of positive weight.

        Identical samples are merged and their weights added, except in a stream or if
        `cv` is a splitter, whose indices refer to the original samples.
        """
        X, y, sample_weight = inputs.training_data(self, X, y, sample_weight, **options)
        if y.shape[1:] == (1,) and not self.__sklearn_tags__().target_tags.multi_output:
            warn(
                "A column-vector y was passed when a 1d array was expected: `y` has "
                f"shape {y.shape} and is flattened; pass y.ravel() to avoid this "
                "warning",
                DataConversionWarning,
            )
            y = y[:, 0]
        weights = self._weigh(y, inputs.check_weights(sample_weight, X))
        n_given = len(y) if weights is None else int(np.count_nonzero(weights))
        if merges_copies(self.cv) and not is_stream:
            weights = merged_weights(X, y, weights)
        pairwise = inputs.is_pairwise(self.kernel) and options.get("reset", True)
        rows = inputs.TrainingRows.of(X, y, weights, pairwise=pairwise, lazy=True)
        self.n_copies_ = n_given - len(rows.y)
        return rows

    def _weigh(self, y: NDArray, weights: NDArray | None) -> NDArray | None:
        """Return the weights, given targets and sample weights."""
        return weights

    def _check_validation(
        self, X: Any, Y: NDArray, X_val: Any, y_val: Any
    ) -> tuple[Any, NDArray] | None:
        """Check validation data, if any, against the training data."""
        if X_val is None and y_val is None:
            return None
        if X_val is None or y_val is None:
            raise ValueError(
                "`X_val` and `y_val` must be passed together, got only one of them"
            )
        rows = inputs.checked_rows(self, X_val, dtype=X.dtype, name="X_val")
        with explaining({"y_val": y_val}):
            targets = check_array(
                y_val, dtype=float, ensure_2d=False, input_name="y_val"
            )
        check_magnitude("y_val", targets)
        targets = targets.reshape(len(targets), -1)
        expected = rows.shape[0], Y.shape[1]
        if targets.shape != expected:
            raise ValueError(f"`y_val` must have shape {expected}, got {targets.shape}")
        return rows, targets

    def _terms(self, rows: inputs.TrainingRows) -> tuple[NDArray, NDArray | None, bool]:
        """Return targets (n, d), weights and `fit_intercept` for an objective.

        Targets may share memory with y. Read-only arrays are copied, because they would
        need a second compilation.
        """
        Y = rows.y.reshape(len(rows.y), -1)
        Y = Y.astype(float, copy=not Y.flags.writeable)
        return Y, rows.relative_weights, self.fit_intercept

    def _folds(self, rows: inputs.TrainingRows, groups: Any) -> Folds | None:
        """Return the validation folds of `cv`, as indices of the kept samples."""
        folds = folds_of_kept(self.cv, groups, rows, is_classifier(self))
        if hasattr(self.cv, "split"):
            warn_of_divided_copies(self.cv, folds, representatives(rows.X, rows.y))
        return folds

    def _set_expansion(
        self, coef: NDArray, intercept: Any, data: SketchedData, single_output: bool
    ) -> None:
        """Set the attributes used for prediction; squeeze a single output."""
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
        self.intercept_ = float(intercept[0]) if single_output else intercept

    @inputs.rowwise(inputs.row_by_row)
    def predict(self, X: ArrayLike) -> NDArray:
        """Return the predictions for X, of shape (n,) or (n, d)."""
        return self._decision(X)

    def _decision(self, X: ArrayLike) -> NDArray:
        """Return f(X), of shape (n,) or (n, d), computed in tiles."""
        check_is_fitted(self)
        return self._values(inputs.new_rows(self, X))

    def _values(self, X: Any) -> NDArray:
        # In blocks, because the transformed samples are a copy.
        blocks = (X[k : k + _BLOCK_ROWS] for k in range(0, X.shape[0], _BLOCK_ROWS))
        rows = (transform_rows(b, self.scaler_, self.kernel_) for b in blocks)
        return np.concatenate([self._values_of_inputs(block) for block in rows])

    def _values_of_inputs(self, rows: Any) -> NDArray:
        """Return f at preprocessed samples."""
        coef = self.coef_.reshape(len(self.coef_), -1)
        values = expansion_of(self, coef)(rows) + self.intercept_
        return values[:, 0] if self.coef_.ndim == 1 else values

    def __sklearn_tags__(self) -> Tags:
        """Return the capabilities of the estimator."""
        tags = super().__sklearn_tags__()
        inputs.set_input_tags(self, tags.input_tags)
        return tags


@declares_parameters
class SketchedModel(KernelExpansion, ABC):
    """Base of the estimators that minimize a penalized objective.

    Steps of `fit`: check data and objective (`prepare`), sketch, solve, publish the
    attributes.
    """

    @abstractmethod
    def prepare(
        self, X: Any, y: Any, sample_weight: Any = None, groups: Any = None
    ) -> Problem:
        """Check parameters and data; return the problem to solve."""

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
            Training samples; float32 is kept. Memory-mapped arrays are read in blocks;
            numeric Dask arrays and data frames are processed by their workers.
        y : array of shape (n,), or (n, d) for a `SketchedKernelRegressor`
            Targets. For a classifier: labels (numbers or strings) of at least two
            classes.
        sample_weight : array of shape (n,) or None, default=None
            Non-negative weights. None: equal weights.
        groups : array of shape (n,) or None, default=None
            Group label of each sample, for `cv`.
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
        """Return the settings that `fit` would use for these data, without fitting.

        Parameters
        ----------
        X, y, sample_weight, groups
            As in `fit`.

        Returns
        -------
        FitPlan
            Method, sketch size and how the penalty is chosen. Effects of `max_seconds`,
            sizes chosen by ``size="auto"`` and landmarks that the others span are
            determined only by `fit`.

        Examples
        --------
        >>> import numpy as np
        >>> from nbsketch import SketchedKernelRegressor
        >>> X = np.random.default_rng(0).uniform(size=(2000, 3))
        >>> plan = SketchedKernelRegressor(random_state=0).plan(X, X.sum(axis=1))
        >>> plan.method, plan.size
        ('ExactRidge', 2000)
        >>> SketchedKernelRegressor(size=100).plan(X, X.sum(axis=1)).penalty
        'leave-one-out'
        """
        return plan_fit(clone(self).prepare(X, y, sample_weight, groups))

    def _solve(self, problem: Problem) -> Self:
        """Solve the problem and publish the solution."""
        method = sketched_method(problem).choose_alpha()
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
        """Fit one model per penalty, with the same sketch and features.

        Each solution is the warm start of the next, so descending penalties are
        fastest. For the square loss, one decomposition is used for all penalties.

        Parameters
        ----------
        X, y, sample_weight
            As in `fit`.
        alphas : sequence of floats
            Penalties (> 0).
        groups
            As in `fit`.

        Returns
        -------
        list of estimators
            Fitted copies, in the order of `alphas`.
        """
        penalties = check_positives("alphas", alphas)
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
        self._set_expansion(
            solution.coef, solution.intercept, data, problem.single_output
        )
        self.size_path_ = data.size_path
        self.rank_ = solution.rank
        self.alpha_ = solution.alpha
        self.objective_ = solution.objective
        self.dual_gap_ = solution.gap
        self.n_iter_ = solution.n_iter
        warn_of_lost_squares(self, data.rows, problem.objective)
        self._complete(problem, data)
        return self

    def _complete(self, problem: Problem, data: SketchedData) -> None:
        """Set the attributes that are not common (here none), and check the model."""


@declares_parameters
class IterativeModel(SketchedModel):
    """Base of the estimators with an iterative solver, and its parameters."""

    solver: Any = "auto"
    tol: float = 1e-6
    max_iter: int = 1000
    max_seconds: float | None = None
