"""X, y and weights computed together, and refused if their rows change order.

Shuffles and joins of Dask give rows in another order whenever they are computed. Rows
and targets agree if one computation makes both, from the same tasks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nbsketch.distributed.collections import as_dask_array, dask_module
from nbsketch.distributed.tasks import computed, task

# Rows of a block that are compared with those of a second computation.
_COMPARED_ROWS = 200


def as_dask_arrays(named: dict[str, Any]) -> list[Any]:
    """Return Dask collections as arrays that share the tasks of their rows."""
    parts = frame_parts(*named.values())
    if parts is None:
        return [as_dask_array(name, value) for name, value in named.items()]
    return [_array(parts, k, value) for k, value in enumerate(named.values())]


def frame_parts(*frames: Any) -> list[Any] | None:
    """Return tasks of the tuples of parts of data frames, None for other collections.

    Each frame by itself would have a shuffle of its own, of its columns only.
    """
    first, *others = frames
    if not all(hasattr(frame, "map_partitions") for frame in frames):
        return None
    if any(frame.npartitions != first.npartitions for frame in others):
        return None
    options = {"align_dataframes": False, "enforce_metadata": False}
    pairs = first.map_partitions(_tuple, *others, meta=first._meta, **options)
    return list(pairs.to_delayed())


def blocks_of(array: Any) -> list[Any]:
    """Return the tasks of the blocks of a Dask array, shared with other arrays.

    Dask would optimize each array alone, and run a common task once for each.
    """
    return list(array.to_delayed(optimize_graph=False).ravel())


def check_steady(first: Sequence[list[Any]], again: Sequence[list[Any]]) -> None:
    """Raise an error if tasks of blocks give other rows in a second computation.

    Compares some rows of three blocks of each list.
    """
    before, after = (
        computed(
            [task(_some_rows, block) for blocks in lists for block in _few(blocks)]
        )
        for lists in (first, again)
    )
    if before != after:
        raise ValueError(
            "the rows of Dask collections must be the same and in the same order each "
            "time they are computed, got others in a second computation (shuffles and "
            "joins keep no order): persist first, X and y in one call as in "
            "X, y = dask.persist(X, y), or write the rows to files"
        )


def _few(blocks: list[Any]) -> list[Any]:
    return [blocks[k] for k in sorted({0, len(blocks) // 2, len(blocks) - 1})]


def _some_rows(block: NDArray) -> tuple[int, str]:
    """Return the length of a block and a text of some of its rows."""
    step = 1 + len(block) // _COMPARED_ROWS
    return len(block), repr(np.asarray(block)[::step].tolist())


def _tuple(*parts: Any) -> tuple[Any, ...]:
    return parts


def _array(parts: list[Any], k: int, frame: Any) -> Any:
    """Return one of the collections that the parts consist of as a Dask array."""
    nothing, da = frame._meta.to_numpy(), dask_module("dask.array")
    shape = (np.nan, *nothing.shape[1:])
    blocks = [task(_values, part, k) for part in parts]
    arrays = [da.from_delayed(b, shape, nothing.dtype, nothing) for b in blocks]
    return da.concatenate(arrays, allow_unknown_chunksizes=True)


def _values(parts: tuple[Any, ...], k: int) -> NDArray:
    return parts[k].to_numpy()
