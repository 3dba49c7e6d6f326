"""Checks of arguments: an error names the argument, what it must be, and what came."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from numbers import Integral, Real
from typing import Any, TypeVar, dataclass_transform

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from nbsketch._faults import not_finite

T = TypeVar("T")


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
    """Return `value` if it is one of `choices`; NumPy's booleans are booleans."""
    allowed = list(choices)
    value = bool(value) if isinstance(value, np.bool_) else value
    if not any(isinstance(value, type(c)) and value == c for c in allowed):
        raise ValueError(f"`{name}` must be one of {allowed}, got {value!r}")
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
    rows = as_csr(value.astype(dtype, copy=False), name)
    _check_finite(name, rows)
    return rows


def as_csr(value: Any, name: str = "X") -> sp.csr_array:
    """Return a sparse matrix as a CSR array with sorted and distinct columns in a row.

    Arrays of `value` are shared if possible. Its pointers and indices are checked
    first: compiled code, of SciPy too, reads and writes wherever they point.
    """
    if value.format in ("csr", "csc"):
        major = value.shape if value.format == "csr" else value.shape[::-1]
        _check_compressed(name, value.indptr, value.indices, value.data.size, major)
    elif value.format == "bsr":
        value.check_format(full_check=True)
    rows = sp.csr_array(value)
    if not rows.has_canonical_format:
        rows = rows.copy()
        rows.sum_duplicates()
    return rows


def csr_from_parts(
    name: str, data: Any, indices: Any, indptr: Any, shape: Any
) -> sp.csr_array:
    """Return the CSR array with these parts, from a file, if they are valid.

    The parts are arrays of one axis, and columns are sorted and distinct in each row.
    """
    if not (isinstance(shape, tuple) and len(shape) == 2):
        raise ValueError(f"`{name}` must have two axes, got shape {shape!r}")
    rows, columns = (check_integer(f"{name}.shape", k, high=2**62) for k in shape)
    check_array_of(f"{name}.data", data, "fiub", 1)
    check_array_of(f"{name}.indices", indices, "iu", 1)
    check_array_of(f"{name}.indptr", indptr, "iu", 1)
    _check_finite(name, data)
    _check_compressed(name, indptr, indices, data.size, (rows, columns))
    if not indptr[-1] == indices.size == data.size:
        raise ValueError(
            f"`{name}` must have {indptr[-1]} nonzeros, got {indices.size} indices and "
            f"{data.size} values"
        )
    steps = np.diff(indices.astype(np.int64))
    inside = np.ones(steps.size, dtype=bool)
    starts = indptr[1:-1].astype(np.int64)
    inside[starts[(starts > 0) & (starts < data.size)] - 1] = False
    if (steps[inside] <= 0).any():
        raise ValueError(f"`{name}` must have ascending columns in each row")
    return sp.csr_array((data, indices, indptr), shape=(rows, columns))


def _check_compressed(
    name: str, indptr: NDArray, indices: NDArray, size: int, shape: tuple[int, int]
) -> None:
    """Raise an error unless pointers and indices stay within the arrays."""
    n_major, n_minor = shape
    if indptr.size != n_major + 1 or indptr[0] != 0 or (indptr[1:] < indptr[:-1]).any():
        raise ValueError(
            f"`{name}` must have ascending pointers, {n_major + 1} from 0 on, got "
            f"{indptr.size}"
        )
    used = int(indptr[-1])
    if used > min(indices.size, size):
        raise ValueError(
            f"`{name}` must have {used} nonzeros, got {indices.size} indices and "
            f"{size} values"
        )
    if used and not 0 <= indices[:used].min() <= indices[:used].max() < n_minor:
        raise ValueError(
            f"`{name}` must have indices in [0, {n_minor - 1}], got "
            f"{indices[:used].min()} to {indices[:used].max()}"
        )


def check_array_of(
    name: str, value: Any, kinds: str, ndim: int | None = None
) -> NDArray:
    """Return `value` if it is an array of some kinds of numbers and number of axes.

    Floats alone, kinds "f", have single or double precision.
    """
    dtype = getattr(value, "dtype", type(value).__name__)
    if not isinstance(value, np.ndarray) or value.dtype.kind not in kinds:
        raise TypeError(f"`{name}` must be an array of type {kinds!r}, got {dtype}")
    if kinds == "f" and value.dtype.itemsize not in (4, 8):
        raise TypeError(f"`{name}` must be float32 or float64, got {dtype}")
    if ndim is not None and value.ndim != ndim:
        raise ValueError(f"`{name}` must have {ndim} axes, got shape {value.shape}")
    return value


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


def _check_finite(name: str, value: Any) -> None:
    values = value.data if sp.issparse(value) else value
    if not np.isfinite(values).all():
        raise ValueError(not_finite(name, value))


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


@dataclass_transform(eq_default=False, kw_only_default=True, field_specifiers=(field,))
def declares_parameters(estimator: type[T]) -> type[T]:
    """Make the constructor of an estimator from its parameters and those of its bases.

    A parameter is an annotated default of the class, and given by its name.
    """
    return dataclass(eq=False, repr=False, kw_only=True)(estimator)


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
