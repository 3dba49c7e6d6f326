"""What the sketched kernel machines share: checks, the fit, prediction, saving."""

from __future__ import annotations

import sys
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from copy import copy
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import Tags
from sklearn.utils.validation import (
    _check_sample_weight,
    check_is_fitted,
    validate_data,
)

from nbsketch._linalg import one_thread, threads_for
from nbsketch._validation import (
    check_choice,
    check_integer,
    check_positive,
    check_positives,
    keeping_fitted,
    random_generator,
)
from nbsketch.estimators._solver import as_solver
from nbsketch.estimators._square import SquareTask
from nbsketch.estimators._tasks import Answer, Control, Task
from nbsketch.features import (
    SketchMap,
    draw,
    is_pairwise,
    model_dtype,
    sketched_design,
)
from nbsketch.persistence import SaveMixin
from nbsketch.sketches import Sketch
from nbsketch.solvers.design import Design


class Drawn(NamedTuple):
    """A drawn sketch, its map, and a stream for what else is random in a fit."""

    sketch: Sketch
    sketch_map: SketchMap
    rng: np.random.Generator


class SketchedModel(SaveMixin, BaseEstimator, ABC):
    """Base of the estimators: a fitted one is a kernel expansion on the landmarks."""

    def _check_X_y(self, X: Any, y: Any, **options: Any) -> tuple[NDArray, NDArray]:
        dtype = [np.float64, np.float32]
        X, y = validate_data(self, X, y, dtype=dtype, order="C", **options)
        # Sparse arrays and text get through.
        if options.get("y_numeric") and np.asarray(y).dtype.kind not in "fiub":
            raise TypeError(f"`y` must be an array of numbers, got {y!r:.60}")
        return X, y

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
    def _prepare(self, X: Any, y: Any, sample_weight: Any) -> tuple[NDArray, Task]:
        """Check the data; return the rows and the task on their features."""

    @abstractmethod
    def _finish(self, task: Task) -> None:
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
        model = clone(self)
        model._check_common()
        rows, task = model._prepare(X, y, sample_weight)
        models = []
        with _showing(self.verbose) as callback, one_thread():
            drawn = model._draw(rows)
            projection, design = sketched_design(
                drawn.sketch_map, rows, drawn.sketch.columns, keep=True
            )
            control = Control(self.tol, self.max_iter, callback)
            for answer in task.path(design, penalties, control):
                fitted = copy(model)
                fitted._set(answer, projection, drawn)
                fitted._finish(task)
                models.append(fitted)
        return models

    def _fit(self, X: Any, y: Any, sample_weight: Any) -> Self:
        with keeping_fitted(self):
            self._check_common()
            X, task = self._prepare(X, y, sample_weight)
            self._learn(X, task)
            self._finish(task)
        return self

    def _draw(self, X: NDArray) -> Drawn:
        rng = random_generator(self.random_state)
        kernel, sketch = draw(
            X, self.kernel, self.bandwidth, self.sketch, self.size, rng
        )
        return Drawn(sketch, SketchMap.of(kernel, X, sketch), rng.spawn(1)[0])

    def _learn(self, X: NDArray, task: Task) -> None:
        """Draw the sketch, solve the task on its features, set the attributes."""
        drawn = self._draw(X)
        with _showing(self.verbose) as callback:
            control = Control(self.tol, self.max_iter, callback)
            answer, projection = self._solve(X, task, drawn, control)
        if answer.shortfall:
            warnings.warn(answer.shortfall, ConvergenceWarning, stacklevel=4)
        self._set(answer, projection, drawn)

    def _solve(
        self, X: NDArray, task: Task, drawn: Drawn, control: Control
    ) -> tuple[Answer, NDArray | None]:
        """Return the answer, and the projection if it is in terms of features."""
        closed_form = isinstance(task, SquareTask) and as_solver(self.solver) is None
        if closed_form and drawn.sketch.is_identity and self.alpha is not None:
            return _fit_gram(task, X, drawn, float(self.alpha)), None
        n, size = len(X), drawn.sketch.shape[0]
        # Iterative solvers make many small products, whatever n is.
        with threads_for(4.0 * n * size**2) if closed_form else one_thread():
            projection, design = sketched_design(
                drawn.sketch_map,
                X,
                drawn.sketch.columns,
                keep=task.keep_features if closed_form else True,
            )
            return self._fit_design(design, task, drawn.rng, control), projection

    def _fit_design(
        self, design: Design, task: Task, rng: np.random.Generator, control: Control
    ) -> Answer:
        stochastic = as_solver(self.solver)
        if stochastic is None:
            return task.fit(design, self.alpha, control, rng)
        alpha = task.choose_alpha(design, rng) if self.alpha is None else self.alpha
        return task.descend(design, float(alpha), stochastic)

    def _set(self, answer: Answer, projection: NDArray | None, drawn: Drawn) -> None:
        self.kernel_, self.sketch_ = drawn.sketch_map.kernel, drawn.sketch
        self.landmarks_ = drawn.sketch_map.landmarks
        self.coef_ = answer.coef if projection is None else projection @ answer.coef
        self.intercept_: Any = answer.intercept
        self.alpha_ = answer.alpha
        self.rank_ = len(answer.coef)
        self.objective_ = answer.objective
        self.dual_gap_ = answer.gap
        self.n_iter_ = answer.n_iter

    def _flatten(self) -> None:
        """Give the attributes of a single output without its axis."""
        self.coef_ = self.coef_[:, 0]
        self.intercept_ = float(self.intercept_[0])

    def _decision(self, X: ArrayLike) -> NDArray:
        """Return f(X), of shape (n,) or (n, d), tile by tile."""
        check_is_fitted(self)
        dtype = model_dtype(self.landmarks_)
        return self._values(validate_data(self, X, reset=False, dtype=dtype, order="C"))

    def _values(self, X: NDArray) -> NDArray:
        sketch_map = SketchMap(self.kernel_, self.landmarks_, self.sketch_.weights)
        coef = self.coef_.reshape(len(self.coef_), -1)
        values = sketch_map.times(X, coef) + self.intercept_
        return values[:, 0] if self.coef_.ndim == 1 else values

    def __sklearn_tags__(self) -> Tags:
        """Say what the estimator can do."""
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = is_pairwise(self.kernel)
        return tags


def _fit_gram(task: Any, X: NDArray, drawn: Drawn, alpha: float) -> Answer:
    """Fit without a sketch and without features."""
    K = np.asarray(drawn.sketch_map.kernel(X), dtype=np.float64)
    with threads_for(len(X) ** 3):
        return task.fit_gram(K, alpha)


def check_weights(sample_weight: Any, X: NDArray) -> NDArray | None:
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


@contextmanager
def _showing(
    verbose: int,
) -> Iterator[Callable[[int, float, float, float], None] | None]:
    """Give a callback that shows how a solver gets on, on one line of the terminal."""
    if not verbose:
        yield None
        return

    def show(step: int, objective: float, gap: float, seconds: float) -> None:
        sys.stderr.write(
            f"\r\x1b[Kiteration {step}: objective {objective:.8g}, at most {gap:.1e} "
            f"above the minimum, {seconds:.2f} s"
        )
        sys.stderr.flush()

    try:
        yield show
    finally:
        sys.stderr.write("\n")
