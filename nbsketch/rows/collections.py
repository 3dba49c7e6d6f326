"""Dask arrays and data frames as arguments: detection, checks and conversion."""

from importlib import import_module
from typing import Any

import numpy as np

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
    da = dask_module("dask.array")
    is_array = isinstance(value, da.Array)
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
