"""What the sketched kernel machines share: checks, the fit, prediction, saving."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterable
from contextlib import nullcontext
from copy import copy
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import Tags
from sklearn.utils.validation import (
    _check_sample_weight,
    check_array,
    check_is_fitted,
    validate_data,
)

from nbsketch._blas import one_thread, threads_for
from nbsketch._progress import LEARNING, SOLVING, showing
from nbsketch._validation import (
    as_csr,
    check_choice,
    check_integer,
    check_positive,
    check_positives,
    keeping_fitted,
    random_generator,
)
from nbsketch.estimators._summary import summarize
from nbsketch.features import (
    SketchMap,
    checked_rows,
    draw,
    is_pairwise,
    model_dtype,
    sketched_design,
    takes_sparse,
)
from nbsketch.fitting.growth import as_auto_size, grow
from nbsketch.fitting.inputs import (
    Inputs,
    TuningTarget,
    is_learnable,
    prepare_inputs,
    transform_rows,
)
from nbsketch.fitting.least_squares import LeastSquaresObjective
from nbsketch.fitting.objectives import FeatureSolution, Objective, SolveOptions
from nbsketch.fitting.stochastic import as_solver
from nbsketch.persistence import SaveMixin
from nbsketch.sketches import SizedRecipe, Sketch, as_recipe
from nbsketch.solvers.design import Design


class SketchedData(NamedTuple):
    """A drawn sketch, its map, and a stream for what else is random in a fit."""

    inputs: Inputs
    sketch: Sketch
    sketch_map: SketchMap
    rng: np.random.Generator
    # Projection and features, where they are known already.
    features: tuple[NDArray, Design] | None = None

    @property
    def rows(self) -> Any:
        """The training rows as the kernel sees them."""
        return self.inputs.rows

    def others(self, rows: Any, name: str) -> Any:
        """Return other rows as the kernel sees them."""
        return transform_rows(rows, self.inputs.scaler, self.sketch_map.kernel, name)

    def design(self, keep: bool | None = None) -> tuple[NDArray, Design]:
        """Return the projection and the features of the training rows."""
        if self.features is not None:
            return self.features
        columns = self.sketch.columns
        return sketched_design(self.sketch_map, self.rows, columns, keep=keep)


class KernelExpansion(SaveMixin, BaseEstimator):
    """A model that, once fitted, is a kernel expansion on the landmarks of a sketch."""

    # Whether bandwidth=None stands for learned length-scales, where that is possible.
    _learns_unasked: ClassVar[bool] = True

    def _check_X_y(self, X: Any, y: Any, **options: Any) -> tuple[Any, NDArray]:
        options = {"dtype": [np.float64, np.float32], "order": "C"} | options
        X, y = validate_data(self, X, y, accept_sparse="csr", **options)
        # Sparse arrays and text get through.
        if options.get("y_numeric") and np.asarray(y).dtype.kind not in "fiub":
            raise TypeError(f"`y` must be an array of numbers, got {y!r:.60}")
        return as_csr(X) if sp.issparse(X) else X, y

    def _check_validation(
        self, X: Any, Y: NDArray, X_val: Any, y_val: Any
    ) -> tuple[Any, NDArray] | None:
        """Check rows for validation, if there are any, against training data."""
        if X_val is None and y_val is None:
            return None
        if X_val is None or y_val is None:
            raise ValueError("`X_val` and `y_val` go together, got one of them")
        rows = checked_rows(self, X_val, dtype=X.dtype)
        targets = check_array(y_val, dtype=float, ensure_2d=False, input_name="y_val")
        targets = targets.reshape(len(targets), -1)
        expected = rows.shape[0], Y.shape[1]
        if targets.shape != expected:
            raise ValueError(f"`y_val` must have shape {expected}, got {targets.shape}")
        return rows, targets

    def _learned(
        self, X: Any, tuning_target: TuningTarget, size: int | None
    ) -> SketchedData:
        """Learn the length-scales, if they are to be, and draw a sketch of the rows.

        `size` goes with the name of a sketch.
        """
        *rngs, fit_rng, learning_rng = random_generator(self.random_state).spawn(4)
        rows = size or getattr(self.sketch, "size", X.shape[0])
        bandwidth = self.bandwidth
        if bandwidth is None and self._learns_unasked and is_learnable(self.kernel, X):
            bandwidth = "auto"
        with showing(getattr(self, "verbose", 0), LEARNING) as callback:
            inputs = prepare_inputs(
                X,
                self.kernel,
                bandwidth,
                self.preprocessing,
                tuning_target,
                rows,
                learning_rng,
                callback,
            )
        recipe = self.sketch
        if self.size is None and size == X.shape[0]:
            # A random square matrix loses directions: with a residual in one of them
            # alone, leave-one-out errors are small by chance.
            as_recipe(self.sketch, size, X.shape[0])  # a wrong name is an error even so
            recipe, size = "identity", None
        kernel, sketch = draw(
            inputs.rows, inputs.kernel, inputs.bandwidth, recipe, size, rngs
        )
        sketch_map = SketchMap.of(kernel, inputs.rows, sketch)
        return SketchedData(inputs, sketch, sketch_map, fit_rng)

    def _check_size_is_given(self) -> None:
        if as_auto_size(self.size) is not None:
            raise ValueError(f"`size` must be an integer or None, got {self.size!r}")

    def _first_size(self, default: int) -> int | None:
        """Return the size to draw a sketch with, None for a recipe with its own."""
        rule = as_auto_size(self.size)
        if rule is not None:
            named = not isinstance(self.sketch, SizedRecipe)
            return min(rule.start, default) if named else None
        named = isinstance(self.sketch, str) and self.sketch != "identity"
        return default if named and self.size is None else self.size

    def _expand(
        self,
        coef: NDArray,
        intercept: Any,
        projection: NDArray | None,
        drawn: SketchedData,
    ) -> None:
        """Set what prediction needs, from coefficients of the features."""
        self.kernel_, self.sketch_ = drawn.sketch_map.kernel, drawn.sketch
        self.scaler_, self.length_scales_ = drawn.inputs[-2:]
        self.bandwidth_ = getattr(self.kernel_, "bandwidth", None)
        self.size_ = self.sketch_.shape[0]
        self.landmarks_ = drawn.sketch_map.landmarks
        self.coef_ = coef if projection is None else projection @ coef
        self.intercept_: Any = intercept
        self.rank_ = len(coef)

    def _flatten(self) -> None:
        """Give the attributes of a single output without its axis."""
        self.coef_ = self.coef_[:, 0]
        self.intercept_ = float(self.intercept_[0])

    def _decision(self, X: ArrayLike) -> NDArray:
        """Return f(X), of shape (n,) or (n, d), tile by tile."""
        check_is_fitted(self)
        return self._values(checked_rows(self, X, dtype=model_dtype(self.landmarks_)))

    def _values(self, X: Any) -> NDArray:
        sketch_map = SketchMap(self.kernel_, self.landmarks_, self.sketch_.weights)
        coef = self.coef_.reshape(len(self.coef_), -1)
        rows = transform_rows(X, self.scaler_, self.kernel_)
        values = sketch_map.times(rows, coef) + self.intercept_
        return values[:, 0] if self.coef_.ndim == 1 else values

    def summary(self) -> str:
        """Return what the fit has chosen and found, a line each, to be printed."""
        check_is_fitted(self)
        return summarize(self)

    def __sklearn_tags__(self) -> Tags:
        """Say what the estimator can do."""
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = is_pairwise(self.kernel)
        tags.input_tags.sparse = takes_sparse(self.kernel)
        return tags


class SketchedModel(KernelExpansion, ABC):
    """Base of the estimators that minimize an objective with a penalty."""

    def _check_common(self) -> None:
        """Check what needs no data, before any heavy work."""
        check_choice("fit_intercept", self.fit_intercept, [False, True])
        check_positive("tol", self.tol)
        check_integer("max_iter", self.max_iter)
        check_integer("verbose", self.verbose, low=0)
        as_solver(self.solver)
        if self.alpha is not None:
            check_positive("alpha", self.alpha)

    @abstractmethod
    def _prepare(self, X: Any, y: Any, sample_weight: Any) -> tuple[Any, Objective]:
        """Check the data; return the rows and the objective on their features."""

    @abstractmethod
    def _finish(self, objective: Objective) -> None:
        """Bring the fitted attributes into the form that the estimator promises."""

    def fit_path(
        self,
        X: ArrayLike,
        y: ArrayLike,
        alphas: Iterable[float],
        sample_weight: ArrayLike | None = None,
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

        Returns
        -------
        list of estimators
            Fitted copies, in the order of `alphas`.
        """
        penalties = check_positives("alphas", alphas)
        if as_solver(self.solver) is not None:
            raise ValueError(
                f"`solver` must be 'auto' for a path of alphas, got {self.solver!r}"
            )
        self._check_size_is_given()
        model = clone(self)
        model._check_common()
        rows, objective = model._prepare(X, y, sample_weight)
        models = []
        with showing(self.verbose, SOLVING) as callback, one_thread():
            drawn = model._drawn(rows, objective)
            projection, design = drawn.design(keep=True)
            control = SolveOptions(self.tol, self.max_iter, callback)
            for answer in objective.path(design, penalties, control):
                fitted = copy(model)
                fitted._set(answer, projection, drawn)
                fitted._finish(objective)
                models.append(fitted)
        return models

    def _fit(self, X: Any, y: Any, sample_weight: Any) -> Self:
        with keeping_fitted(self):
            self._check_common()
            X, objective = self._prepare(X, y, sample_weight)
            self._learn(X, objective)
            self._finish(objective)
        return self

    def _learn(self, X: Any, objective: Objective) -> None:
        """Draw the sketch, solve the objective on its features, set the attributes."""
        drawn = self._grown(X, objective)
        with showing(self.verbose, SOLVING) as callback:
            control = SolveOptions(self.tol, self.max_iter, callback)
            answer, projection = self._solve(objective, drawn, control)
        if answer.shortfall:
            warnings.warn(answer.shortfall, ConvergenceWarning, stacklevel=4)
        self._set(answer, projection, drawn)

    def _drawn(self, X: Any, objective: Objective) -> SketchedData:
        """Learn the length-scales, if they are to be, and draw a first sketch."""
        self.size_path_: dict[str, NDArray] | None = None
        return self._learned(
            X,
            objective.tuning_target(self.alpha),
            self._first_size(objective.default_size()),
        )

    def _grown(self, X: Any, objective: Objective) -> SketchedData:
        """Draw the sketch, and let it grow if its size is to be chosen."""
        drawn, rule = self._drawn(X, objective), as_auto_size(self.size)
        if rule is None:
            return drawn
        seed = int(drawn.rng.integers(2**32))  # the same rows are held out each time

        def score(design: Design) -> float:
            return objective.score(design, self.alpha, random_generator(seed))

        with one_thread() if objective.keep_features else nullcontext():
            grown = grow(rule, drawn.sketch, drawn.sketch_map, drawn.rows, score)
        self.size_path_ = grown.path
        return drawn._replace(
            sketch=grown.sketch,
            sketch_map=grown.sketch_map,
            features=(grown.projection, grown.design),
        )

    def _solve(
        self, objective: Objective, drawn: SketchedData, control: SolveOptions
    ) -> tuple[FeatureSolution, NDArray | None]:
        """Return the answer, and the projection if it is in terms of features."""
        closed_form = (
            isinstance(objective, LeastSquaresObjective)
            and as_solver(self.solver) is None
        )
        if closed_form and drawn.sketch.is_identity and self.alpha is not None:
            return _fit_gram(objective, drawn, float(self.alpha)), None
        size, n = drawn.sketch.shape
        # Iterative solvers make many small products, whatever n is.
        with threads_for(4.0 * n * size**2) if closed_form else one_thread():
            projection, design = drawn.design(
                keep=objective.keep_features if closed_form else True
            )
            return self._fit_design(design, objective, drawn.rng, control), projection

    def _fit_design(
        self,
        design: Design,
        objective: Objective,
        rng: np.random.Generator,
        control: SolveOptions,
    ) -> FeatureSolution:
        stochastic = as_solver(self.solver)
        if stochastic is None:
            return objective.fit(design, self.alpha, control, rng)
        alpha = (
            objective.choose_alpha(design, rng) if self.alpha is None else self.alpha
        )
        return objective.descend(design, float(alpha), stochastic)

    def _set(
        self, answer: FeatureSolution, projection: NDArray | None, drawn: SketchedData
    ) -> None:
        self._expand(answer.coef, answer.intercept, projection, drawn)
        self.alpha_ = answer.alpha
        self.objective_ = answer.objective
        self.dual_gap_ = answer.gap
        self.n_iter_ = answer.n_iter


def _fit_gram(objective: Any, drawn: SketchedData, alpha: float) -> FeatureSolution:
    """Fit without a sketch and without features."""
    K = np.asarray(drawn.sketch_map.kernel(drawn.rows), dtype=np.float64)
    with threads_for(len(K) ** 3):
        return objective.fit_gram(K, alpha)


def check_weights(sample_weight: Any, X: Any) -> NDArray | None:
    """Return weights of mean one, or None for equal ones.

    With mean one, a row of weight two counts in the objective as the same row twice,
    and a row of weight zero as no row.
    """
    if sample_weight is None:
        return None
    weights = _check_sample_weight(
        sample_weight, X, dtype=np.float64, ensure_non_negative=True
    )
    mean = weights.mean()
    if mean == 0:
        raise ValueError("`sample_weight` must have a positive entry, got zeros only")
    return weights / mean
