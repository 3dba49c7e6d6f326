"""What the sketched kernel machines share: checks of data, prediction, saving."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import Tags
from sklearn.utils.validation import (
    _check_sample_weight,
    check_is_fitted,
    validate_data,
)

from nbsketch.features import SketchMap, is_pairwise
from nbsketch.persistence import save_model


class Fit(NamedTuple):
    """What a solver found, in terms of the sketch: f(x) = coef^T S k_x + intercept."""

    coef: NDArray  # (s, d)
    intercept: NDArray  # (d,)
    alpha: float
    rank: int
    objective: float
    gap: float  # relative
    n_iter: int = 1


class SketchedModel(BaseEstimator):
    """Base of the estimators: a fitted one is a kernel expansion on the landmarks."""

    def _check_X_y(
        self, X: ArrayLike, y: ArrayLike, **options: Any
    ) -> tuple[NDArray, NDArray]:
        dtype = [np.float64, np.float32]
        return validate_data(self, X, y, dtype=dtype, order="C", **options)

    def _set_fit(
        self, fit: Fit, kernel: Any, sketch: Any, X: NDArray, flat: bool
    ) -> None:
        """Set the fitted attributes; `flat` says that y has one dimension."""
        self.kernel_ = kernel
        self.sketch_ = sketch
        self.landmarks_ = kernel.take(X, sketch.columns)
        self.coef_ = fit.coef[:, 0] if flat else fit.coef
        self.intercept_ = float(fit.intercept[0]) if flat else fit.intercept
        self.alpha_ = fit.alpha
        self.rank_ = fit.rank
        self.objective_ = fit.objective
        self.dual_gap_ = fit.gap
        self.n_iter_ = fit.n_iter

    def _decision(self, X: ArrayLike) -> NDArray:
        """Return f(X), of shape (n,) or (n, d), tile by tile."""
        check_is_fitted(self)
        dtype = [np.float64, np.float32]
        X = validate_data(self, X, reset=False, dtype=dtype, order="C")
        sketch_map = SketchMap(self.kernel_, self.landmarks_, self.sketch_.weights)
        coef = self.coef_.reshape(len(self.coef_), -1)
        values = sketch_map.times(X, coef) + self.intercept_
        return values[:, 0] if self.coef_.ndim == 1 else values

    def save(self, path: str | Path) -> None:
        """Write the model to a portable .npz file, without pickle.

        `nbsketch.load` reads it back. A kernel that is a Python function cannot be
        saved.
        """
        save_model(self, path)

    def __sklearn_tags__(self) -> Tags:
        """Say what the estimator can do."""
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = is_pairwise(self.kernel)
        return tags


@contextmanager
def keeping_fitted(estimator: BaseEstimator) -> Iterator[None]:
    """Give a fitted estimator back as it was if fitting it again fails."""
    before = dict(vars(estimator))
    try:
        yield
    except BaseException:
        vars(estimator).clear()
        vars(estimator).update(before)
        raise


def check_weights(sample_weight: Any, X: NDArray) -> NDArray | None:
    """Return weights of mean one, or None for equal ones.

    With mean one, a row of weight two counts as the same row twice, and a row of weight
    zero as no row.
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
