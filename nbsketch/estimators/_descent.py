"""What estimators by stochastic gradients share: fits, streams, and their state."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import fields, replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.metaestimators import available_if

from nbsketch._progress import report, watched_fit
from nbsketch._sketch_map import SketchMap
from nbsketch._validation import check_choice, check_real
from nbsketch.distributed.checks import check_alike, in_blocks
from nbsketch.distributed.collections import is_dask
from nbsketch.estimators._base import KernelExpansion
from nbsketch.fitting.descent import (
    Descent,
    Preconditioning,
    Sample,
    count_held_out,
)
from nbsketch.fitting.fit import Descended, descend
from nbsketch.fitting.inputs import Inputs
from nbsketch.fitting.settings import SketchSettings
from nbsketch.fitting.sizes import stochastic_size, stream_size
from nbsketch.fitting.sketched import SketchedData, draw_sketch
from nbsketch.fitting.weights import TrainingRows
from nbsketch.solvers._stochastic.rows import squared_norms
from nbsketch.solvers.streams import StreamState


def streams(model: Any) -> bool:
    """Return whether a model takes streams; raise an error that says why not."""
    if model.method == "projected":
        return True
    raise AttributeError(f"partial_fit needs method='projected', got {model.method!r}")


def _largest_square(Z: NDArray) -> float:
    return float(squared_norms(Z).max(initial=0.0))


class DescentModel(KernelExpansion):
    """Base of the estimators by stochastic gradients.

    A subclass checks rows and targets, and knows the objective.
    """

    @abstractmethod
    def _new_rows(self, X: Any, y: Any, sample_weight: Any) -> TrainingRows:
        """Check the rows of a new model; return those of positive weight, y (n, d)."""

    def _first_rows(self, X: Any, y: Any, sample_weight: Any) -> TrainingRows:
        """Check the rows with which a stream begins."""
        return self._new_rows(X, y, sample_weight)

    @abstractmethod
    def _next_rows(self, X: Any, y: Any, sample_weight: Any) -> TrainingRows:
        """Check rows that come after others."""

    @abstractmethod
    def _objective(self, Y: NDArray, weights: NDArray | None) -> Any:
        """Return the objective for targets (n, d)."""

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        groups: ArrayLike | None = None,
        *,
        X_val: ArrayLike | None = None,
        y_val: ArrayLike | None = None,
    ) -> Self:
        """Fit a new model.

        Parameters
        ----------
        X : array or sparse matrix of shape (n, q)
            Training rows; float32 stays float32. Memory-mapped arrays, Dask arrays and
            Dask data frames are not copied; their features are gathered in memory, or
            in a scratch file beyond the memory limit.
        y : array of shape (n,) or (n, d)
            Targets; labels of shape (n,) for a classifier.
        sample_weight : array of shape (n,) or None, default=None
            Non-negative weights. None: equal weights.
        groups : array of shape (n,) or None, default=None
            Label of the group of each row, for `cv`.
        X_val, y_val : arrays or None, default=None
            Validation rows for early stopping. None: it holds out rows of X.
        """
        with watched_fit(self):
            rows = self._new_rows(X, y, sample_weight)
            objective = replace(
                self._objective(rows.y, rows.relative_weights),
                folds=self._folds(rows, groups),
            )
            validation = self._validation(rows.X, rows.y, X_val, y_val)
            held_out = self._n_held_out(objective, validation)
            descent = self._descent(len(rows.y) - held_out)
            data = self._sketch(rows, objective, stochastic_size(len(rows.y)))
            found = descend(descent, objective, data, held_out, validation)
            return self._publish(data, found)

    @available_if(streams)
    def partial_fit_chunks(self, chunks: Iterable[tuple]) -> Self:
        """Pass once over the chunks of an iterator: `partial_fit` of each, in order.

        If a chunk fails, the model is as it was before the call. If `callback` returns
        true, no more chunks are read.

        Parameters
        ----------
        chunks : iterable of tuples
            (X, y) or (X, y, sample_weight) as in `partial_fit`: arrays, data frames,
            record batches of Arrow. One of them is in memory at a time.
        """
        return self._pass_chunks(chunks)

    def _pass_chunks(self, chunks: Iterable[tuple]) -> Self:
        """Pass once over chunks, of labels that are known if it is a classifier."""
        with watched_fit(self):
            for chunk in chunks:
                if not isinstance(chunk, tuple) or len(chunk) not in (2, 3):
                    raise TypeError(
                        "`chunks` must yield tuples (X, y) or (X, y, sample_weight), "
                        f"got {type(chunk).__name__}"
                    )
                self._follow(*chunk)
                if report("steps", iteration=self.n_steps_):
                    break
        return self

    def _pass_over(self, X: Any, y: Any, sample_weight: Any) -> Self:
        """Pass once over rows, or over the chunks of Dask collections one by one."""
        if is_dask(X):
            check_alike(X, y=y, sample_weight=sample_weight)
            return self._pass_chunks(in_blocks(X, y, sample_weight))
        with watched_fit(self):
            return self._follow(X, y, sample_weight)

    def _follow(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Pass once over rows; the first ones make the model."""
        self._check_stream()
        first = not hasattr(self, "coef_")
        check = self._first_rows if first else self._next_rows
        rows = check(X, y, sample_weight)
        objective = self._objective(rows.y, rows.weights)
        descent = self._descent(len(rows.y))
        if not first:
            return self._pass(descent, rows, objective, self._fixed())
        data = self._sketch(rows, objective, stream_size(len(rows.y)))
        if descent.is_preconditioned(data):
            return self._publish(data, descend(descent, objective, data, 0, None))
        self._open_stream(data)
        return self._pass(descent, rows, objective, data)

    def _validation(
        self, X: Any, Y: NDArray, X_val: Any, y_val: Any
    ) -> tuple[Any, NDArray] | None:
        """Check the parameters of early stopping; return the rows given for it."""
        check_choice("early_stopping", self.early_stopping, [False, True])
        check_real(
            "validation_fraction", self.validation_fraction,
            low=0, high=1, low_open=True, high_open=True,
        )  # fmt: skip
        others = self._check_validation(X, Y, X_val, y_val)
        if others is not None and not self.early_stopping:
            raise ValueError("`early_stopping` must be True with `X_val`, got False")
        return others

    def _n_held_out(self, objective: Any, validation: Any) -> int:
        """Return the number of rows that early stopping holds out."""
        if not self.early_stopping or validation is not None:
            return 0
        return count_held_out(self.validation_fraction, objective)

    def _descent(self, n: int) -> Descent:
        given = {f.name for f in fields(Descent)} & self.get_params().keys()
        return Descent(**{name: getattr(self, name) for name in given}).resolve(n)

    def _sketch(
        self, rows: TrainingRows, objective: Any, default_size: int
    ) -> SketchedData:
        """Prepare the rows, learning length scales if asked, and draw the sketch."""
        settings = SketchSettings.of(self)
        settings.check_size_is_fixed()
        target = objective.tuning_target(self.alpha or None)
        return draw_sketch(rows.X, target, default_size, settings, rows.kept)

    def _check_stream(self) -> None:
        if self.regime is not None or self.early_stopping:
            raise ValueError(
                "`regime` must be None and `early_stopping` False in partial_fit, got "
                f"{self.regime!r} and {self.early_stopping!r}: a stream has no end"
            )

    def _publish(self, data: SketchedData, found: Descended) -> Self:
        """Set the fitted attributes, and what a stream needs to continue."""
        best, fitted = found.iterate, found.descent
        self._seed = int(data.rng.integers(2**62))
        self._projection, self.path_ = found.projection, found.path
        known = fitted.preconditioning
        self._preconditioning: Any = None if known is None else tuple(known)
        self.alpha_ = fitted.alpha
        largest = fitted.square_norm or _largest_square(found.sample.Z)
        point = np.column_stack([best.coef.T, best.intercept])
        count = len(found.sample.Z) if self.average else 0
        state = StreamState.after(point, count, largest)
        self._set_stream(best.coef, best.intercept, data, state)
        self.n_steps_ = best.n_steps
        passes = best.n_steps * fitted.batch_size / len(found.sample.Z)
        self.n_iter_ = max(1, round(passes))
        return self

    def _open_stream(self, data: SketchedData) -> None:
        """Set what stays fixed in a stream, before its first step."""
        self._seed = int(data.rng.integers(2**62))
        self._projection, _ = data.design(keep=False)
        self._stream: tuple | None = None
        self._preconditioning = None
        self.alpha_ = self.alpha or 0.0
        self.path_, self.n_iter_, self.n_steps_ = None, 1, 0

    def _fixed(self) -> SketchedData:
        """Return the sketch of the model; random numbers differ in each call."""
        sketch_map = SketchMap(self.kernel_, self.landmarks_, self.sketch_.weights)
        rng = np.random.default_rng([self._seed, self.n_steps_])
        inputs = Inputs(None, None, None, self.scaler_, self.length_scales_)
        return SketchedData(inputs, self.sketch_, sketch_map, rng)

    def _pass(
        self, descent: Descent, rows: TrainingRows, objective: Any, data: SketchedData
    ) -> Self:
        """Pass once over rows."""
        Z = data.sketch_map.times(data.transform(rows.X, "X"), self._projection)
        before = StreamState(*self._stream) if self._stream else None
        if before is not None and self._preconditioning is not None:
            known = Preconditioning(*self._preconditioning)
            descent = descent.continued(known, before.square_norm)
        sample = Sample(descent.centered(Z), objective)
        coef, intercept, state = descent.stream(sample, before, data.rng)
        self.n_steps_ += state.n_steps - (before.n_steps if before else 0)
        self._set_stream(coef, intercept, data, state)
        return self

    def _set_stream(
        self, coef: NDArray, intercept: NDArray, data: SketchedData, state: StreamState
    ) -> None:
        self._stream = tuple(state)
        self.rank_ = len(coef)
        if self._preconditioning is not None:
            known = Preconditioning(*self._preconditioning)
            intercept = known.intercept(coef, intercept)
        coef = self._projection @ coef
        self._set_expansion(coef, intercept, data, single_output=self._one_target)
