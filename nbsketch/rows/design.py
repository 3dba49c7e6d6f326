"""Features and sketched columns stored with the partitions of a Dask array."""

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nbsketch._machine import memory
from nbsketch.gram.columns import (
    ColumnBlocks,
    SketchedOperator,
    adjoint_of,
    core_of,
    normal_of,
    times_of,
)
from nbsketch.gram.form import (
    CompiledForm,
    KernelLike,
    middle_of,
    rounded_rows,
    values_type,
)
from nbsketch.gram.lazy import Product
from nbsketch.rows.partitions import (
    PartitionedRows,
    Partitions,
    computed,
    fits_workers,
    task,
    tree_sum,
)
from nbsketch.solvers.design import ArrayDesign, Blocks, Design
from nbsketch.solvers.scratch import stored_or

_LOCAL_BYTES = 256 << 20  # of features gathered in this process
_SAMPLE_BYTES = 32 << 20  # of features of a sample of the rows
# Sums with larger terms are added on the workers, in a tree.
_SUMMED_BYTES = 1 << 20


class PartitionedDesign(Design):
    """Features Z (n x r) in partitions; products with them are computed on the workers.

    Gram matrices and sums are added in a tree. ``Z W`` and the n numbers in ``Z^T A``
    are transferred; features only if few rows are gathered.

    Parameters
    ----------
    partitions : Partitions
        Blocks of Z.
    n_columns : int
        Number r of features.
    dtype : dtype
        float32 or float64.
    """

    def __init__(self, partitions: Partitions, n_columns: int, dtype: Any) -> None:
        self.dtype = np.dtype(dtype)
        self.shape = len(partitions), n_columns
        self._partitions = (
            partitions.kept() if fits_workers(self.nbytes) else partitions
        )

    @classmethod
    def near(
        cls,
        partitions: Partitions,
        n_columns: int,
        dtype: Any,
        limit: int | None = None,
    ) -> Design:
        """Return the features, gathered in this process if they are small."""
        n_bytes = np.dtype(dtype).itemsize * len(partitions) * n_columns
        limit = _LOCAL_BYTES if limit is None else limit
        if n_bytes > limit or not memory.fits(n_bytes, copies=2, modest=limit):
            return cls(partitions, n_columns, dtype)
        empty = np.empty((0, n_columns), dtype)
        return ArrayDesign._trusted(
            np.concatenate([empty, *computed(partitions.blocks)])
        )

    @property
    def nbytes(self) -> int:
        """Memory of the features in bytes."""
        return self.dtype.itemsize * self.shape[0] * self.shape[1]

    def blocks(self) -> Blocks:
        """Yield (start, stop, Z[start:stop]), gathered block by block."""
        partitions = self._partitions
        for k, block in enumerate(partitions.blocks):
            yield (
                int(partitions.starts[k]),
                int(partitions.starts[k + 1]),
                computed([block])[0],
            )

    def mv(self, W: ArrayLike) -> NDArray:
        """Return ``Z W`` for W of shape (r,) or (r, d)."""
        W = np.ascontiguousarray(W, dtype=float)
        return np.concatenate(self._partitions.each(_mv, W))

    def rmv(self, A: ArrayLike, rows: NDArray | None = None) -> NDArray:
        """Return ``Z[rows]^T A`` for A with one row per row of Z chosen."""
        A = np.ascontiguousarray(A, dtype=float)
        return self._sum(_rmv, rows, A, shape=self.shape[1:] + A.shape[1:])

    def _gram(
        self, rows: NDArray | None, weights: NDArray | None, exact: bool
    ) -> NDArray:
        return self._sum(_gram, rows, weights, exact, shape=(self.shape[1],) * 2)

    def gather(self, rows: NDArray) -> Design:
        """Return the features of the given rows, in memory if they are small."""
        self._check_rows(rows)
        return PartitionedDesign.near(
            self._partitions.select(rows),
            self.shape[1],
            self.dtype,
            limit=min(_LOCAL_BYTES, _SAMPLE_BYTES),
        )

    def collect(self) -> NDArray:
        """Return all features: in memory or, above the limit, mapped to a file."""
        if not memory.fits(self.nbytes, copies=2):
            stored = stored_or(self)
            return super().collect() if stored is self else stored.collect()
        return np.concatenate(computed(self._partitions.blocks))

    def total(
        self, function: Callable[..., tuple], *args: Any, rows: Sequence = ()
    ) -> tuple:
        """Return the sums of the tuples ``function(block, *parts, *args)``."""
        return self._partitions.total(function, *args, rows=rows)

    def _sum(
        self,
        function: Callable[..., tuple[NDArray]],
        rows: NDArray | None,
        values: NDArray | None,
        *args: Any,
        shape: tuple[int, ...],
    ) -> NDArray:
        """Return the sum of ``function(block, values, rows, *args)[0]``.

        `values` have one entry per row; small results are added in this process.
        """
        if rows is None:
            tasks = self._partitions.tasks(function, (None, *args), [values])
        else:
            self._check_rows(rows)
            tasks = []
            for c in self._partitions.choose(rows):
                part = None if values is None else values[c.place]
                tasks.append(task(function, c.block, part, c.local, *args))
        if 8 * len(tasks) * np.prod(shape) > _SUMMED_BYTES:
            tasks = [tree_sum(tasks)]
        return sum((part[0] for part in computed(tasks)), start=np.zeros(shape))


def _mv(Z: NDArray, W: NDArray) -> NDArray:
    return ArrayDesign._trusted(Z).mv(W)


def _rmv(Z: NDArray, A: NDArray, rows: NDArray | None) -> tuple[NDArray]:
    return (ArrayDesign._trusted(Z).rmv(A, rows),)


def _gram(
    Z: NDArray, weights: NDArray | None, rows: NDArray | None, exact: bool
) -> tuple[NDArray]:
    return (ArrayDesign._trusted(Z).gram(rows, weights, exact=exact),)


class PartitionedColumns(SketchedOperator):
    """K S^T in partitions, as `nbsketch.gram.SketchedColumns` is for rows in memory.

    Values are stored on the workers if they fit; otherwise each pass recomputes them
    block by block. Only sums of s numbers are transferred.

    Parameters
    ----------
    kernel : Kernel
        A kernel with all its parameters set.
    X : PartitionedRows of shape (n, q)
        Rows.
    sketch : Sketch of shape (s, n)
        S.
    dtype : {float32, float64} or None, default=None
        Dtype of the values, as in `nbsketch.gram.SketchedColumns`.
    """

    def __init__(
        self, kernel: KernelLike, X: PartitionedRows, sketch: Any, dtype: Any = None
    ) -> None:
        self._make = partial(PartitionedColumns, kernel, X, sketch)
        self._is_chosen = dtype is not None
        self.shape = len(X), sketch.shape[0]
        self._sketch = sketch
        self._X = X
        chosen = X[sketch.columns]
        form = kernel.compiled_form(X.shape[1])
        center = middle_of(chosen)
        self.dtype = dtype = values_type(form, chosen, dtype or np.float64, center)
        landmarks = rounded_rows(form, chosen, dtype, center)
        self._exact = Product(kernel, chosen, sketch.weights)
        self._product = Product(kernel, landmarks, sketch.weights, dtype)
        self._columns = partial(
            _columns, product=self._product, form=form, center=center
        )

    @cached_property
    def _partitions(self) -> Any:
        """Columns of each partition, stored in the first pass if they fit."""
        if not fits_workers(self.dtype.itemsize * int(np.prod(self.shape))):
            return self._X.partitions.map(self._columns)
        return self._X.partitions.map(partial(_stored, make=self._columns)).kept()

    def core(self) -> NDArray:
        """Return S K S^T of shape (s, s), evaluated in float64."""
        landmarks = self._product.landmarks
        return core_of(self._product, landmarks, np.arange(len(landmarks)))

    def normal(self, V: NDArray, weights: NDArray) -> NDArray:
        """Return Z^T W Z V for V of shape (s, d) and weights W of the rows."""
        return self._partitions.total(_normal, V, rows=[weights])[0]

    def times(self, V: NDArray) -> NDArray:
        """Return Z V for V of shape (s, d)."""
        return np.concatenate(self._partitions.each(_times, V))

    def adjoint(self, U: NDArray) -> NDArray:
        """Return Z^T U for U of shape (n, d)."""
        return self._partitions.total(_adjoint, rows=[U])[0]

    def exact(self, rows: NDArray, V: NDArray) -> NDArray:
        """Return Z[rows] V, for an ascending index, with all values in float64."""
        return self._exact(self._X[rows]).T @ V

    def take(self, rows: NDArray) -> ColumnBlocks:
        """Return the rows of an ascending index, gathered in this process."""
        return self._columns(self._X[rows])


def _columns(
    X: NDArray, product: Product, form: CompiledForm | None, center: NDArray
) -> ColumnBlocks:
    rows = rounded_rows(form, X, product.dtype, center)
    return ColumnBlocks(product, rows, product.dtype)


def _stored(X: NDArray, make: Callable[[NDArray], ColumnBlocks]) -> NDArray:
    columns = make(X)
    start = 0
    out = np.empty(columns.shape, columns.dtype)
    for block in columns.blocks():
        out[start : start + len(block)] = block
        start += len(block)
    return out


def _blocks(Z: NDArray | ColumnBlocks) -> Iterable[NDArray]:
    return [Z] if isinstance(Z, np.ndarray) else Z.blocks()


def _normal(Z: NDArray | ColumnBlocks, weights: NDArray, V: NDArray) -> tuple[NDArray]:
    return (normal_of(_blocks(Z), V, weights),)


def _times(Z: NDArray | ColumnBlocks, V: NDArray) -> NDArray:
    return times_of(_blocks(Z), V)


def _adjoint(Z: NDArray | ColumnBlocks, U: NDArray) -> tuple[NDArray]:
    return (adjoint_of(_blocks(Z), U, Z.shape[1]),)
