"""Rows of any type: of an array, of a sparse matrix, or a sequence of objects."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from nbsketch._validation import as_csr, check_rows
from nbsketch.kernels import CallableKernel, Kernel


class Objects:
    """A list of objects that a kernel compares, with the interface of an array.

    `dtype` and `itemsize` are those of the kernel values.
    """

    dtype = np.dtype(np.float64)
    itemsize = dtype.itemsize

    def __init__(self, items: Iterable[Any]) -> None:
        self.items = list(items)

    @property
    def shape(self) -> tuple[int, int]:
        """(n, 1)."""
        return len(self.items), 1

    def __len__(self) -> int:
        return len(self.items)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.items)

    def __getitem__(self, index: slice | NDArray) -> Objects:
        if isinstance(index, slice):
            return Objects(self.items[index])
        return Objects(self.items[i] for i in index)


@dataclass(frozen=True)
class ObjectKernel(CallableKernel):
    """A function of two lists of objects as a kernel."""

    def __call__(self, X: Any, Y: Any = None) -> NDArray:
        """Return the matrix k(X, Y) of shape (n, m); Y is X by default."""
        Y = X if Y is None else Y
        values = np.asarray(self.function(list(X), list(Y)))
        if values.shape != (len(X), len(Y)) or values.dtype.kind not in "fiub":
            raise ValueError(
                f"a kernel function must return numbers of shape ({len(X)}, {len(Y)}), "
                f"got shape {values.shape} and dtype {values.dtype}"
            )
        if not np.isfinite(values).all():
            raise ValueError("a kernel function must return finite values")
        return values.astype(np.float64, copy=False)

    def diag(self, X: Any) -> NDArray:
        """Return k(x, x) for each object, one call an object."""
        return np.array([self(X[i : i + 1])[0, 0] for i in range(len(X))])


def object_kernel(kernel: Kernel, value: Any) -> ObjectKernel | None:
    """Return the kernel of objects if `value` holds objects and `kernel` is a function.

    Two-dimensional arrays and sparse matrices hold rows, anything else objects.
    """
    if not isinstance(kernel, CallableKernel) or sp.issparse(value):
        return None
    if hasattr(value, "__array__") and np.ndim(value) == 2:
        return None
    return ObjectKernel(kernel.function)


def check_objects(name: str, value: Any) -> Objects:
    """Return `value` as objects if it is a non-empty sequence of them."""
    if isinstance(value, Objects):
        return value
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        raise TypeError(
            f"`{name}` must be an array or a sequence of objects, got {value!r:.60}"
        )
    objects = Objects(value)
    if not len(objects):
        raise ValueError(f"`{name}` must not be empty, got no object")
    return objects


def check_outputs(
    name: str, value: Any, kernel: Kernel, *, n_features: int | None = None
) -> Any:
    """Return valid rows for a kernel, dense or CSR, of unchanged type."""
    rows = as_csr(value, name) if sp.issparse(value) else _as_matrix(name, value)
    kernel.check_domain(name, check_rows(name, rows, n_features=n_features))
    return rows


def _as_matrix(name: str, value: Any) -> NDArray:
    """Return an array; an array of type object becomes one of floats."""
    try:
        array = np.asarray(value)
        return array.astype(np.float64) if array.dtype == object else array
    except (TypeError, ValueError) as error:
        raise type(error)(
            f"`{name}` must be a matrix of numbers for the kernel, got {value!r:.60}: "
            "only a function compares other objects"
        ) from error


def as_double(rows: Any) -> Any:
    """Return rows in double precision."""
    if isinstance(rows, Objects):
        return rows
    if sp.issparse(rows):
        return rows.astype(np.float64)
    return np.ascontiguousarray(rows, dtype=np.float64)


def as_given(rows: Any) -> Any:
    """Return rows in the type of the user: objects as a list."""
    return rows.items if isinstance(rows, Objects) else rows


def stack(parts: list[Any]) -> Any:
    """Return the rows of several parts of one type, one below the other."""
    if isinstance(parts[0], Objects):
        return Objects(item for part in parts for item in part)
    if any(sp.issparse(part) for part in parts):
        return sp.vstack(parts, format="csr")
    return np.concatenate(parts)


def distinct(rows: Any) -> tuple[NDArray, NDArray]:
    """Return the first index of each distinct row, and the distinct row of each row.

    Objects that cannot be hashed count as distinct.
    """
    owners: dict[Hashable, int] = {}
    owner = np.empty(rows.shape[0], dtype=np.int64)
    first: list[int] = []
    for i, key in enumerate(_keys(rows)):
        owner[i] = owners.setdefault(key, len(owners))
        if owner[i] == len(first):
            first.append(i)
    return np.array(first), owner


def _keys(rows: Any) -> Iterator[Hashable]:
    if isinstance(rows, Objects):
        for item in rows:
            yield item if _has_hash(item) else object()
    elif sp.issparse(rows):
        canonical = as_csr(rows).copy()  # a CSR array shares those of its origin
        canonical.eliminate_zeros()
        for start, stop in pairwise(canonical.indptr):
            places = canonical.indices[start:stop].tobytes()
            yield places, canonical.data[start:stop].tobytes()
    else:
        for row in np.asarray(rows) + 0.0:  # minus zero is zero
            yield row.tobytes()


def _has_hash(item: Any) -> bool:
    try:
        hash(item)
    except TypeError:
        return False
    return True
