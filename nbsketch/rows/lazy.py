"""Methods of fitted models on Dask collections: lazy arrays with the chunks of X."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nbsketch.rows.collections import as_dask_array, check_numbers, dask_module, one_row
from nbsketch.rows.tasks import array_of, literal, task


def row_by_row(method: Callable[..., NDArray], X: Any, *args: Any) -> Any:
    """Return the lazy result of a method of a model, which has one row for each of X.

    It has the chunks of X. The method is run on one row of zeros at once, so that a
    wrong number of features is an error here.

    Parameters
    ----------
    method : bound method
        ``method(X, *args)`` takes arrays. The model is used as it is now.
    X : dask array or data frame
        Rows.

    Examples
    --------
    >>> import numpy as np
    >>> import dask.array as da
    >>> from nbsketch import SketchedFeatures
    >>> from nbsketch.rows.lazy import row_by_row
    >>> model = SketchedFeatures(size=2, random_state=0).fit(np.eye(4))
    >>> row_by_row(model.transform, da.ones((6, 4), chunks=(3, 4))).chunks
    ((3, 3), (2,))
    """
    array = as_dask_array("X", X, ndim=2)
    check_numbers("X", array)
    nothing = method(one_row(X), *args)[:0]
    da = dask_module("dask.array")
    return da.map_blocks(
        _of_part, array, method=method.__name__, args=args, nothing=nothing,
        model=_shared(method.__self__),  # type: ignore[attr-defined]
        dtype=nothing.dtype, meta=nothing,
        drop_axis=[1] if nothing.ndim == 1 else None,
        chunks=(array.chunks[0], *((k,) for k in nothing.shape[1:])),
    )  # fmt: skip


def table_by_row(method: Callable[..., NDArray], X: Any, *args: Any) -> Any:
    """Return what `row_by_row` does for a model that takes data frames of any columns.

    The chunks of a data frame have unknown sizes.
    """
    if not hasattr(X, "columns"):
        return row_by_row(method, X, *args)
    nothing = method(X._meta_nonempty.iloc[:1], *args)[:0]
    model = literal(copy(method.__self__))  # type: ignore[attr-defined]
    bound = model, method.__name__, args, nothing
    return array_of([task(_of_part, p, *bound) for p in X.to_delayed()], nothing)


def _of_part(X: Any, model: Any, method: str, args: tuple, nothing: NDArray) -> NDArray:
    X = np.ascontiguousarray(X) if isinstance(X, np.ndarray) else X
    return getattr(model, method)(X, *args) if len(X) else nothing


def _shared(model: Any) -> Any:
    """Return the model as it is now, sent to each worker once.

    Names of features are checked before; blocks of a data frame have none.
    """
    model = copy(model)
    vars(model).pop("feature_names_in_", None)
    return literal(model)
