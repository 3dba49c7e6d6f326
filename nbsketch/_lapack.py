"""LAPACK and BLAS routines that release the interpreter lock.

SciPy's wrappers hold the lock, so that factorizations in several threads would wait for
each other. These call the same compiled routines by their addresses.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cython_blas, cython_lapack

_PREFIX = {np.dtype(np.float32): "s", np.dtype(np.float64): "d"}
_ARGUMENTS = {"potrf": 5, "potrs": 8, "trtri": 6, "trmm": 11, "symm": 12}
_OF_BLAS = ("trmm", "symm")
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


def symmetric_product(matrix: NDArray, columns: NDArray) -> NDArray:
    """Return A B (n, d) for a matrix whose lower triangle is that of A.

    Both are in Fortran order, and of the same type.
    """
    out = np.zeros_like(columns)
    _check_order(matrix, columns)
    numbers = np.array([1.0, 0.0], matrix.dtype)
    one, zero = (numbers.ctypes.data + k * matrix.itemsize for k in range(2))
    n, d = map(_integer, columns.shape)
    A, B, C = (a.ctypes.data for a in (matrix, columns, out))
    multiply = _routine(_PREFIX[matrix.dtype] + "symm")
    multiply(b"L", b"L", n, d, one, A, n, B, n, zero, C, n)
    return out


def invert_factor(matrix: NDArray) -> None:
    """Overwrite the lower triangle, a Cholesky factor, by its inverse."""
    n = len(matrix)
    _check_order(matrix)
    invert, multiply = (_routine(_PREFIX[matrix.dtype] + r) for r in ("trtri", "trmm"))
    signs = np.array([1.0, -1.0], matrix.dtype)
    address, step, order = matrix.ctypes.data, matrix.itemsize, _integer(n)
    plus, minus = (signs.ctypes.data + k * step for k in range(2))
    info = ctypes.c_int(0)
    status = ctypes.byref(info)

    def invert_block(start: int, stop: int) -> None:
        """Invert the lower triangle of a diagonal block, by halves."""
        count = stop - start
        place = address + start * (n + 1) * step
        if count <= _SMALL:
            invert(b"L", b"N", _integer(count), place, order, status)
            _check("trtri", info)
            return
        half = count // 2
        invert_block(start, start + half)
        invert_block(start + half, stop)
        # The inverse of [[A, 0], [B, C]] has -C^-1 B A^-1 below the diagonal.
        last, block = place + half * (n + 1) * step, place + half * step
        sizes = _integer(count - half), _integer(half)
        for side, sign, triangle in ((b"L", minus, last), (b"R", plus, place)):
            options = side, b"L", b"N", b"N", *sizes
            multiply(*options, sign, triangle, order, block, order)

    invert_block(0, n)


@cache
def _routine(name: str) -> Any:
    """Return a routine of SciPy's LAPACK or BLAS as a function of pointers."""
    get_name = ctypes.pythonapi.PyCapsule_GetName
    get_name.restype, get_name.argtypes = ctypes.c_char_p, [ctypes.py_object]
    get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
    get_pointer.restype = ctypes.c_void_p
    get_pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    library = cython_blas if name[1:] in _OF_BLAS else cython_lapack
    capsule = library.__pyx_capi__[name]
    address = get_pointer(capsule, get_name(capsule))
    arguments = [ctypes.c_void_p] * _ARGUMENTS[name[1:]]
    return ctypes.CFUNCTYPE(None, *arguments)(address)


def _call(name: str, matrix: NDArray, *args: Any) -> None:
    """Call the routine for the precision of `matrix`; raise an error if it fails."""
    _check_order(*(a for a in args if isinstance(a, np.ndarray)))
    info = ctypes.c_int(0)
    _routine(_PREFIX[matrix.dtype] + name)(*map(_pointer, args), ctypes.byref(info))
    _check(name, info)


def _check_order(*arrays: NDArray) -> None:
    if not all(array.flags.f_contiguous for array in arrays):
        raise ValueError("arrays of LAPACK must be in Fortran order")


def _check(name: str, info: ctypes.c_int) -> None:
    if info.value:
        raise np.linalg.LinAlgError(
            f"the matrix must be positive definite, {name} returned {info.value}"
        )


def _pointer(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.ctypes.data
    return value if isinstance(value, bytes) else _integer(value)


def _integer(value: int) -> Any:
    return ctypes.byref(ctypes.c_int(value))
