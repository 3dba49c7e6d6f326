"""Checks of arguments shared by the solvers."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nbsketch._report.validation import check_finite, check_matrix
from nbsketch.losses import Loss
from nbsketch.solvers.solution import State


def targets(name: str, value: ArrayLike, shape: tuple[int, ...]) -> NDArray:
    """Return `value` as a finite float array of the given shape."""
    array = np.ascontiguousarray(value, dtype=float)
    if array.shape != shape:
        raise ValueError(f"`{name}` must have shape {shape}, got {array.shape}")
    check_finite(name, array)
    return array


def labels(name: str, values: NDArray, loss: Loss) -> NDArray:
    """Return `values` after checking them: -1 and +1 for a classification loss."""
    if loss.is_classification and not np.isin(values, (-1.0, 1.0)).all():
        raise ValueError(
            f"`{name}` must hold -1 and +1 only for {loss!r}, got "
            f"{np.unique(values)[:5]}"
        )
    return values


def weights(sample_weight: ArrayLike | None, n: int) -> NDArray:
    """Return the weights of the rows; ones if None."""
    if sample_weight is None:
        return np.ones(n)
    # a copy, because a read-only array would need another compilation
    values = np.array(sample_weight, dtype=float)
    if values.shape != (n,):
        raise ValueError(f"`sample_weight` must have shape ({n},), got {values.shape}")
    if not (np.isfinite(values).all() and values.min() >= 0 and values.any()):
        raise ValueError(
            "`sample_weight` must be finite and nonnegative with a positive sum, got a "
            f"minimum of {values.min()} and a sum of {values.sum()}"
        )
    return values


def factor(T: ArrayLike, n_outputs: int | None = None) -> NDArray:
    """Return T as a float matrix, with one column per output if that is given."""
    return check_matrix("T", T, n_features=n_outputs).astype(float)


def state(start: State, *shapes: tuple[int, ...]) -> None:
    """Raise an error if coef, intercept or dual of `state` have other shapes."""
    values = start.coef, start.intercept, start.dual
    for name, value, shape in zip(State._fields, values, shapes, strict=False):
        if value is not None and np.shape(value) != shape:
            raise ValueError(
                f"`state.{name}` must have shape {shape}, got {np.shape(value)}: "
                "`state` must hold a solution of a problem with the same numbers of "
                "rows, features and outputs"
            )
