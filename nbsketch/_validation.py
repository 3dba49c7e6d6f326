"""Checks of arguments: an error names the argument, what it must be, and what came."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from numbers import Integral, Real
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray


def check_real(
    name: str,
    value: Any,
    *,
    low: float = -np.inf,
    high: float = np.inf,
    low_open: bool = False,
    high_open: bool = False,
) -> float:
    """Return `value` as a float if it is a number inside the interval."""
    interval = f"{'(' if low_open else '['}{low}, {high}{')' if high_open else ']'}"
    if isinstance(value, bool | np.bool_) or not isinstance(value, Real):
        raise TypeError(f"`{name}` must be a number in {interval}, got {value!r}")
    number = float(value)
    above = number > low if low_open else number >= low
    below = number < high if high_open else number <= high
    if not (above and below):
        raise ValueError(f"`{name}` must be in {interval}, got {value!r}")
    return number


def check_positive(name: str, value: Any) -> float:
    """Return `value` as a float if it is a positive finite number."""
    return check_real(name, value, low=0, low_open=True, high_open=True)


def check_integer(
    name: str, value: Any, *, low: int = 1, high: int | None = None
) -> int:
    """Return `value` as an int if it is an integer between `low` and `high`."""
    limits = f"at least {low}" if high is None else f"in [{low}, {high}]"
    if isinstance(value, bool | np.bool_) or not isinstance(value, Integral):
        raise TypeError(f"`{name}` must be an integer {limits}, got {value!r}")
    number = int(value)
    if number < low or (high is not None and number > high):
        raise ValueError(f"`{name}` must be {limits}, got {value!r}")
    return number


def check_choice(name: str, value: Any, choices: Iterable[Any]) -> Any:
    """Return `value` if it is one of `choices`."""
    known = list(choices)
    if not any(isinstance(value, type(c)) and value == c for c in known):
        raise ValueError(f"`{name}` must be one of {known}, got {value!r}")
    return value


def check_matrix(name: str, value: Any, *, n_features: int | None = None) -> NDArray:
    """Return `value` as a finite C-ordered float matrix; float32 stays float32."""
    array = np.asarray(value)
    dtype = _checked_dtype(name, array, n_features)
    array = np.ascontiguousarray(array, dtype=dtype)
    _check_finite(name, array)
    return array


def check_rows(name: str, value: Any, *, n_features: int | None = None) -> Any:
    """Return `value` as `check_matrix` does or, if it is sparse, as `as_csr` does."""
    if not sp.issparse(value):
        return check_matrix(name, value, n_features=n_features)
    dtype = _checked_dtype(name, value, n_features)
    rows = as_csr(value.astype(dtype, copy=False))
    _check_finite(name, rows.data)
    return rows


def as_csr(value: Any) -> sp.csr_array:
    """Return a sparse matrix as a CSR array, sorted columns at most once in a row.

    It shares the arrays of `value` where it can.
    """
    rows = sp.csr_array(value)
    if not rows.has_canonical_format:
        rows = rows.copy()
        rows.sum_duplicates()
    return rows


def _checked_dtype(name: str, array: Any, n_features: int | None) -> type[np.floating]:
    """Return the type in which a matrix is computed with, if it is one."""
    if array.dtype.kind not in "fiub":
        raise TypeError(f"`{name}` must hold real numbers, got dtype {array.dtype}")
    if array.ndim != 2 or 0 in array.shape:
        raise ValueError(
            f"`{name}` must be a non-empty 2-dimensional array, got shape {array.shape}"
        )
    if n_features is not None and array.shape[1] != n_features:
        raise ValueError(
            f"`{name}` must have {n_features} columns, got shape {array.shape}"
        )
    return np.float32 if array.dtype == np.float32 else np.float64


def _check_finite(name: str, values: NDArray) -> None:
    if not np.isfinite(values).all():
        raise ValueError(f"`{name}` must be finite, got NaN or infinity")


def check_positives(name: str, values: Any) -> list[float]:
    """Return `values` as a list of floats if they are positive finite numbers."""
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise TypeError(f"`{name}` must be a sequence of numbers, got {values!r}")
    return [check_positive(name, value) for value in values]


def random_generator(rng: Any) -> np.random.Generator:
    """Return a Generator from None, a seed, a Generator or a RandomState."""
    if isinstance(rng, np.random.RandomState):
        return np.random.default_rng(rng.randint(2**32, size=4, dtype=np.uint32))
    try:
        return np.random.default_rng(rng)
    except (TypeError, ValueError) as error:
        raise type(error)(
            "`random_state` must be None, a non-negative integer or a Generator, "
            f"got {rng!r}"
        ) from error


@contextmanager
def keeping_fitted(estimator: Any) -> Iterator[None]:
    """Give a fitted estimator back as it was if fitting it again fails."""
    before = dict(vars(estimator))
    try:
        yield
    except BaseException:
        vars(estimator).clear()
        vars(estimator).update(before)
        raise
