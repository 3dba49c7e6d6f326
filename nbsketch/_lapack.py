"""LAPACK and BLAS routines that release the interpreter lock.

SciPy's wrappers hold the lock, so that factorizations in several threads would wait for
each other. These call the same compiled routines by their addresses.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cython_blas, cython_lapack

_PREFIX = {np.dtype(np.float32): "s", np.dtype(np.float64): "d"}
_ARGUMENTS = {"potrf": 5, "potrs": 8, "trtri": 6, "trmm": 11}
# Triangles of this order are inverted by trtri, larger ones by halves: trtri reaches a
# fraction of the speed of trmm.
_SMALL = 64


def factor(matrix: NDArray) -> None:
    """Overwrite the lower triangle of a matrix by its Cholesky factor.

    `matrix` is positive definite, in Fortran order, in single or double precision; the
    strict upper triangle is left as it is.
    """
    n = len(matrix)
    _call("potrf", matrix, b"L", n, matrix, n)


def solve_factored(matrix: NDArray, rhs: NDArray) -> None:
    """Overwrite `rhs` (n, d), in Fortran order, by the solution; see `factor`."""
    n, d = rhs.shape
    _call("potrs", matrix, b"L", n, d, matrix, n, rhs, n)


def invert_factor(matrix: NDArray) -> None:
    """Overwrite the lower triangle, a Cholesky factor, by its inverse."""
    _invert_block(matrix, 0, len(matrix))


def _invert_block(matrix: NDArray, start: int, stop: int) -> None:
    """Invert the lower triangle of a diagonal block, by halves."""
    n, count = len(matrix), stop - start
    if count <= _SMALL:
        _call("trtri", matrix, b"L", b"N", count, _Place(matrix, start, start), n)
        return
    middle = start + count // 2
    _invert_block(matrix, start, middle)
    _invert_block(matrix, middle, stop)
    # The inverse of [[A, 0], [B, C]] has -C^-1 B A^-1 below the diagonal.
    first, last = middle - start, stop - middle
    block = _Place(matrix, middle, start)
    for side, sign, place in ((b"L", -1.0, middle), (b"R", 1.0, start)):
        triangle, factor = _Place(matrix, place, place), np.array(sign, matrix.dtype)
        options = side, b"L", b"N", b"N", last, first
        _routine(_PREFIX[matrix.dtype] + "trmm")(
            *map(_pointer, (*options, factor, triangle, n, block, n))
        )


class _Place(NamedTuple):
    """An element of a matrix in Fortran order, where a block begins."""

    matrix: NDArray
    row: int
    column: int


@cache
def _routine(name: str) -> Any:
    """Return a routine of SciPy's LAPACK or BLAS as a function of pointers."""
    get_name = ctypes.pythonapi.PyCapsule_GetName
    get_name.restype, get_name.argtypes = ctypes.c_char_p, [ctypes.py_object]
    get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
    get_pointer.restype = ctypes.c_void_p
    get_pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    library = cython_blas if name[1:] == "trmm" else cython_lapack
    capsule = library.__pyx_capi__[name]
    address = get_pointer(capsule, get_name(capsule))
    arguments = [ctypes.c_void_p] * _ARGUMENTS[name[1:]]
    return ctypes.CFUNCTYPE(None, *arguments)(address)


def _call(name: str, matrix: NDArray, *args: Any) -> None:
    """Call the routine for the precision of `matrix`; raise an error if it fails."""
    if not all(a.flags.f_contiguous for a in args if isinstance(a, np.ndarray)):
        raise ValueError("arrays of LAPACK must be in Fortran order")
    info = ctypes.c_int(0)
    _routine(_PREFIX[matrix.dtype] + name)(*map(_pointer, args), ctypes.byref(info))
    if info.value:
        raise np.linalg.LinAlgError(
            f"the matrix must be positive definite, {name} returned {info.value}"
        )


def _pointer(value: Any) -> Any:
    if isinstance(value, _Place):
        offset = value.row + value.column * len(value.matrix)
        return value.matrix.ctypes.data + offset * value.matrix.itemsize
    if isinstance(value, np.ndarray):
        return value.ctypes.data
    return value if isinstance(value, bytes) else ctypes.byref(ctypes.c_int(value))
