"""Rows in the partitions of Dask collections: tasks, storage, and sums in a tree.

X, y and weights are computed together; changes in the order of their rows are errors.

Shuffles and joins of Dask return rows in another order in each computation. Rows and
targets agree if one computation evaluates both from the same tasks.
"""

from __future__ import annotations

import sys
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from itertools import pairwise
from operator import getitem
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from nbsketch._machine import memory
from nbsketch._machine.blas import one_thread

# Number of times that a task is repeated after an error of a worker.
_RETRIES = 3
# Number of results added in one task.
_FAN_IN = 8
# Number of stored sets of blocks during a fit: the rows and their features.
_SETS = 2
# Maximum bytes of an argument that is sent with every task.
_SMALL = 1 << 16
# Number of rows of a block compared with a second computation.
_COMPARED_ROWS = 200
_INSTALL = "Dask collections need dask[array]: pip install 'nbsketch[dask]'"


def dask_module(name: str = "dask") -> Any:
    """Import a module of Dask, or raise an error with installation instructions."""
    try:
        return import_module(name)
    except ImportError as error:
        raise ImportError(_INSTALL) from error


def as_dask_array(name: str, value: Any, ndim: int | None = None) -> Any:
    """Return a Dask array or data frame as a Dask array with one chunk of columns.

    Parameters
    ----------
    name : str
        Name of the argument in error messages.
    value : dask array, data frame or series
        Numbers; class labels may have any dtype.
    ndim : int or None
        Expected number of axes. None: any.
    """
    is_array = isinstance(value, dask_module("dask.array").Array)
    if not (is_array or hasattr(value, "to_dask_array")):
        raise TypeError(
            f"`{name}` must be a dask array or data frame, got {type(value).__name__}"
        )
    array = value if is_array else value.to_dask_array()
    if ndim is not None and array.ndim != ndim:
        raise ValueError(f"`{name}` must have {ndim} axes, got shape {array.shape}")
    if array.ndim == 2 and len(array.chunks[1]) > 1:
        raise ValueError(
            f"`{name}` must have all columns of a row in one chunk, got "
            f"{len(array.chunks[1])} chunks of columns: "
            f"pass {name}.rechunk({{1: -1}})"
        )
    return array


def check_numbers(name: str, array: Any) -> None:
    """Raise an error if a Dask array does not hold real numbers."""
    if array.dtype.kind not in "fiub":
        raise TypeError(
            f"`{name}` must hold real numbers, got dtype {array.dtype}: convert it "
            "with astype(float), encode text first"
        )


def one_row(value: Any, name: str = "X") -> Any:
    """Return one row of zeros with the columns of a collection; a frame for a frame."""
    if hasattr(value, "columns"):
        frame = value._meta
        return frame.reindex([0]).fillna(0).astype(frame.dtypes)
    check_numbers(name, value)
    return np.zeros((1, *value.shape[1:]), dtype=value.dtype)


def task(function: Callable, *args: Any) -> Any:
    """Return the task of a function call, with BLAS limited to one thread.

    Arguments that are tasks are replaced by their results.
    """
    return dask_module().delayed(_run, pure=False)(function, *args)


def literal(value: Any) -> Any:
    """Return a task with a constant result, sent to each worker once."""
    return dask_module().delayed(value, pure=False, traverse=False)


def computed(tasks: Sequence[Any]) -> list[Any]:
    """Return the results of tasks; None and values in memory unchanged.

    On a cluster, the tasks of a lost worker run again, and an interrupt cancels tasks
    that have not started.

    Raises
    ------
    ConnectionError
        If the connection to the scheduler is lost.
    """
    client = current_client()
    options = {} if client is None else {"retries": _RETRIES}
    with _reporting_loss(client), warnings.catch_warnings():
        # Numbers per row are sent with the tasks that multiply them by features.
        warnings.filterwarnings("ignore", "Sending large graph")
        return list(dask_module().compute(*tasks, **options))


def kept(tasks: Sequence[Any]) -> list[Any]:
    """Run tasks and store their results: on the workers of a cluster, or locally.

    Results of a lost worker are recomputed from their inputs.
    """
    client = current_client()
    if client is None:
        return list(dask_module().persist(*tasks))
    results = client.persist(list(tasks), retries=_RETRIES)
    with _reporting_loss(client):
        try:
            dask_module("distributed").wait(results)
        except BaseException:
            client.cancel(results)
            raise
    return results


def tree_sum(tasks: Sequence[Any]) -> Any:
    """Return the task that adds tuples of arrays, always in the same order."""
    while len(tasks) > 1:
        groups = [tasks[part] for part in memory.slices(len(tasks), _FAN_IN)]
        tasks = [task(added, *group) for group in groups]
    return tasks[0]


def added(*terms: tuple) -> tuple:
    """Return the sums of the entries of tuples."""
    return tuple(sum(parts[1:], start=parts[0]) for parts in zip(*terms, strict=True))


def current_client() -> Any:
    """Return the client of Dask's current cluster; None: this process."""
    if "distributed" not in sys.modules:
        return None
    owner = getattr(dask_module("dask.base").get_scheduler(), "__self__", None)
    return owner if hasattr(owner, "scheduler_info") else None


@contextmanager
def _reporting_loss(client: Any) -> Iterator[None]:
    """Convert errors of a client without scheduler into a ConnectionError."""
    try:
        yield
    except BaseException as error:
        interrupted = isinstance(error, KeyboardInterrupt | SystemExit)
        if interrupted or client is None or client.status == "running":
            raise
        raise ConnectionError(
            "the connection to the Dask scheduler was lost during the fit, the "
            "estimator is unchanged: start a cluster with a new Client and fit again"
        ) from error


def _run(function: Callable, *args: Any) -> Any:
    with one_thread():
        return function(*args)


def fits_workers(nbytes: int) -> bool:
    """Return whether this many bytes can be stored, on the workers or locally."""
    client = current_client()
    if client is None:
        return memory.fits(nbytes, copies=_SETS)
    return _SETS * nbytes <= memory.SHARE * _available(client)


def _available(client: Any) -> float:
    """Return the free bytes of all workers."""
    workers = client.scheduler_info(n_workers=-1)["workers"].values()
    limits = [w["memory_limit"] or float("inf") for w in workers]  # 0: no limit
    used = [w["metrics"].get("memory", 0) for w in workers]
    return sum(max(0, m - u) for m, u in zip(limits, used, strict=True))


class Chosen(NamedTuple):
    """Selected rows of one partition."""

    block: Any  # task
    local: NDArray  # indices within it
    place: slice  # position among all selected rows


class Partitions:
    """Consecutive blocks of the rows of a matrix.

    Parameters
    ----------
    blocks : sequence of tasks
        Each task returns an array of rows.
    starts : ndarray of shape (p + 1,)
        First row of each block, and the number of rows.
    """

    def __init__(self, blocks: Sequence[Any], starts: NDArray) -> None:
        self.blocks = list(blocks)
        self.starts = np.asarray(starts)

    def __len__(self) -> int:
        return int(self.starts[-1])

    def map(self, function: Callable[[Any], Any]) -> Partitions:
        """Return the lazy results of a function of each block."""
        return Partitions(self.tasks(_call, (function,), ()), self.starts)

    def each(self, function: Callable, *args: Any) -> list[Any]:
        """Return the results of ``function(block, *args)``."""
        return computed(self.tasks(function, args, ()))

    def total(self, function: Callable, *args: Any, rows: Sequence = ()) -> tuple:
        """Return the sums of tuples ``function(block, *parts, *args)``, by a tree.

        `rows` have one entry per row, or are None; `parts` are the entries of the
        block.
        """
        return computed([tree_sum(self.tasks(function, args, rows))])[0]

    def tasks(self, function: Callable, args: tuple, rows: Sequence) -> list[Any]:
        """Return a task for each block: see `total`."""
        shared = [a if _is_small(a) else literal(a) for a in args]
        tasks = []
        for block, (i, j) in zip(self.blocks, pairwise(self.starts), strict=True):
            parts = [None if a is None else a[i:j] for a in rows]
            tasks.append(task(function, block, *parts, *shared))
        return tasks

    def choose(self, rows: NDArray) -> Iterator[Chosen]:
        """Yield ascending rows by partition, skipping partitions without rows."""
        for k, (first, last) in enumerate(pairwise(np.searchsorted(rows, self.starts))):
            if first < last:
                local = rows[first:last] - self.starts[k]
                yield Chosen(self.blocks[k], local, slice(int(first), int(last)))

    def select(self, rows: NDArray) -> Partitions:
        """Return ascending rows on the workers, lazily."""
        chosen = list(self.choose(rows))
        blocks = [task(getitem, c.block, c.local) for c in chosen]
        return Partitions(blocks, np.cumsum([0, *(len(c.local) for c in chosen)]))

    def gather(self, rows: NDArray) -> list[NDArray]:
        """Return ascending rows, gathered by partition."""
        return computed(self.select(rows).blocks)

    def kept(self) -> Self:
        """Return the same partitions, computed and stored on the workers."""
        return type(self)(kept(self.blocks), self.starts)


def _call(block: Any, function: Callable) -> Any:
    return function(block)


def _is_small(value: Any) -> bool:
    """Return whether a value is small enough to be sent with every task."""
    return getattr(value, "nbytes", 0 if np.isscalar(value) else _SMALL + 1) <= _SMALL


def as_dask_arrays(named: dict[str, Any]) -> list[Any]:
    """Return Dask collections as arrays that share the tasks of their rows."""
    parts = frame_parts(*named.values())
    if parts is None:
        return [as_dask_array(name, value) for name, value in named.items()]
    return [_array(parts, k, value) for k, value in enumerate(named.values())]


def frame_parts(*frames: Any) -> list[Any] | None:
    """Return tasks of the tuples of parts of data frames; None for other collections.

    Separate frames would each have their own shuffle, of their own columns.
    """
    first, *others = frames
    if not all(hasattr(frame, "map_partitions") for frame in frames) or any(
        frame.npartitions != first.npartitions for frame in others
    ):
        return None
    pairs = first.map_partitions(
        _tuple,
        *others,
        meta=first._meta,
        align_dataframes=False,
        enforce_metadata=False,
    )
    return list(pairs.to_delayed())


def blocks_of(array: Any) -> list[Any]:
    """Return the tasks of the blocks of a Dask array, shared with other arrays.

    Dask would optimize each array separately, and run common tasks once for each.
    """
    return list(array.to_delayed(optimize_graph=False).ravel())


def check_steady(first: Sequence[list[Any]], second: Sequence[list[Any]]) -> None:
    """Raise an error if a second computation of blocks returns different rows.

    Compares a few rows of three blocks in each list.
    """

    def some_rows(blocks: list[Any]) -> list[Any]:
        places = sorted({0, len(blocks) // 2, len(blocks) - 1})
        return [task(_some_rows, blocks[k]) for k in places]

    before, after = (
        computed([row for blocks in lists for row in some_rows(blocks)])
        for lists in (first, second)
    )
    if before != after:
        raise ValueError(
            "the rows of Dask collections must be the same and in the same order each "
            "time they are computed, got others in a second computation (shuffles and "
            "joins change the order): persist X and y in one call, as in "
            "X, y = dask.persist(X, y), or write the rows to files"
        )


def _some_rows(block: NDArray) -> tuple[int, str]:
    """Return the length of a block and a text of some of its rows."""
    step = 1 + len(block) // _COMPARED_ROWS
    return len(block), repr(np.asarray(block)[::step].tolist())


def _tuple(*parts: Any) -> tuple[Any, ...]:
    return parts


def _array(parts: list[Any], k: int, frame: Any) -> Any:
    """Return one of the collections in the parts as a Dask array."""
    return array_of([task(_values, p, k) for p in parts], frame._meta.to_numpy())


def array_of(blocks: list[Any], nothing: NDArray) -> Any:
    """Return the Dask array of blocks with unknown numbers of rows.

    `nothing` is an empty block with the dtype and the columns.
    """
    da = dask_module("dask.array")
    shape = np.nan, *nothing.shape[1:]
    arrays = [da.from_delayed(b, shape, nothing.dtype, nothing) for b in blocks]
    return da.concatenate(arrays, allow_unknown_chunksizes=True)


def _values(parts: tuple[Any, ...], k: int) -> NDArray:
    return parts[k].to_numpy()


class BlockRows(ABC):
    """Rows that are in memory block by block."""

    ndim = 2
    shape: tuple[int, int]

    def __len__(self) -> int:
        return self.shape[0]

    @abstractmethod
    def each(self, function: Callable, *args: Any) -> list[Any]:
        """Return the results of ``function(block, *args)``."""

    def min(self, axis: int | None = None) -> Any:
        """Return the smallest value; with axis 0, of each column."""
        return np.min(self.each(np.min, axis), axis=axis)

    def max(self, axis: int | None = None) -> Any:
        """Return the largest value; with axis 0, of each column."""
        return np.max(self.each(np.max, axis), axis=axis)


class PartitionedRows(BlockRows):
    """A matrix whose rows stay in the partitions of a Dask array.

    It has the shape and the dtype of an array. Indexing with an array of row numbers
    gathers these rows as an ndarray; `map` and `select` leave rows on the workers.

    Parameters
    ----------
    partitions : Partitions
        The rows.
    n_columns : int
        Number of columns.
    dtype : dtype
        Dtype of the values.
    """

    def __init__(self, partitions: Partitions, n_columns: int, dtype: Any) -> None:
        self.partitions = partitions
        self.shape = len(partitions), n_columns
        self.dtype = np.dtype(dtype)

    @classmethod
    def of(cls, array: Any) -> PartitionedRows:
        """Return the rows of a Dask array of known shape."""
        blocks = blocks_of(array)
        sizes = np.array(array.chunks[0])
        filled = [block for block, size in zip(blocks, sizes, strict=True) if size]
        starts = np.cumsum([0, *sizes[sizes > 0]])
        return cls(Partitions(filled, starts), array.shape[1], array.dtype)

    def __getitem__(self, rows: NDArray) -> NDArray:
        """Return the rows of an index array, in its order."""
        order = np.argsort(rows, kind="stable")
        out = np.empty((len(rows), self.shape[1]), self.dtype)
        if len(rows):
            out[order] = np.concatenate(self.partitions.gather(np.asarray(rows)[order]))
        return out

    def collect(self) -> NDArray:
        """Return all rows."""
        return self[np.arange(len(self))]

    def map(
        self, function: Callable[[NDArray], NDArray], n_columns: int
    ) -> PartitionedRows:
        """Return the rows computed by a function of each block."""
        return PartitionedRows(self.partitions.map(function), n_columns, self.dtype)

    def checked(
        self,
        check: Callable[[NDArray, int, int], NDArray],
        dtype: Any,
        others: Sequence[list[Any]],
    ) -> tuple[PartitionedRows, list[list[NDArray]]]:
        """Run ``check(block, first row, rows)`` on all blocks; return their results.

        It returns the rows in a dtype. They are stored if the workers have the memory.
        `others` are tasks of the same rows, which are evaluated in the same
        computation.
        """
        starts = self.partitions.starts
        blocks = [
            task(check, block, int(i), int(j - i))
            for block, (i, j) in zip(
                self.partitions.blocks, pairwise(starts), strict=True
            )
        ]
        rows = PartitionedRows(Partitions(blocks, starts), self.shape[1], dtype)
        tasks = [blocks, *others]
        if fits_workers(rows.nbytes):
            tasks = _regrouped(kept([t for group in tasks for t in group]), tasks)
            rows.partitions.blocks = tasks[0]
        # The lengths raise errors of checks.
        groups = [[task(len, block) for block in tasks[0]], *tasks[1:]]
        results = _regrouped(computed([t for group in groups for t in group]), groups)
        check_steady(tasks, [blocks, *others])
        return rows, results[1:]

    @property
    def nbytes(self) -> int:
        """Memory of all rows in bytes."""
        return self.shape[0] * self.shape[1] * self.dtype.itemsize

    def select(self, rows: NDArray) -> PartitionedRows:
        """Return ascending rows without gathering them."""
        return PartitionedRows(self.partitions.select(rows), self.shape[1], self.dtype)

    def each(self, function: Callable, *args: Any) -> list[Any]:
        """Return the results of ``function(block, *args)``, computed on the workers."""
        return self.partitions.each(function, *args)


def _regrouped(values: list[Any], groups: Sequence[list[Any]]) -> list[list[Any]]:
    """Return values in lists with the lengths of the groups."""
    following = iter(values)
    return [[next(following) for _ in group] for group in groups]
