"""BLAS and LAPACK: thread limits, eigenvalues, and routines that release the GIL.

Threads of BLAS libraries wait actively for each other. On small matrices this costs
more than it saves, and on a busy computer up to a hundred times more.

SciPy's wrappers hold the GIL, so factorizations in several threads would run one after
the other. The routines here call the same compiled code by address.
"""

import os
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from ctypes import CFUNCTYPE, byref, c_char_p, c_int, c_void_p, py_object, pythonapi
from functools import cache
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray
from scipy.linalg import cython_blas, cython_lapack

# About a tenth of a second of work on one thread; for less, one thread is faster.
_SMALL = 3e9
# Routines: prefixes of precisions, numbers of arguments, and which are in BLAS.
_PREFIX = {np.dtype(np.float32): "s", np.dtype(np.float64): "d"}
_ARGUMENTS = {"potrf": 5, "potrs": 8, "trtri": 6, "trmm": 11, "symm": 12}
_OF_BLAS = "trmm", "symm"
# Maximum ratio of diagonal entries for which small eigenvalues keep their digits.
_GRADED = 1e6
# Triangles of this order are inverted by trtri, larger ones by halves: trtri reaches a
# fraction of the speed of trmm.
_SMALL_TRIANGLE = 64


def eigh(matrix: NDArray) -> tuple[NDArray, NDArray]:
    """Return the ascending eigenvalues and the eigenvectors of a symmetric matrix."""
    matrix = matrix.astype(np.float64, copy=False)
    with threads_for(10.0 * len(matrix) ** 3):
        try:
            return scipy.linalg.eigh(matrix)
        except np.linalg.LinAlgError:
            # The fastest driver fails on some multiples of the identity plus rounding,
            # depending on the BLAS kernels; divide and conquer does not.
            return scipy.linalg.eigh(matrix, driver="evd")


def graded_eigh(matrix: NDArray) -> tuple[NDArray, NDArray]:
    """Return the result of `eigh`, with small eigenvalues as accurate as large ones.

    It is for matrices D C D with a diagonal D of any range and a well-conditioned C,
    such as covariances of columns in their own units: a Cholesky factorization, and
    Jacobi rotations of its factor (Demmel and Veselic, 1992).
    """
    diagonal = matrix.diagonal()
    positive = diagonal[diagonal > 0]
    if len(positive) == 0 or positive.max() <= _GRADED * positive.min():
        return eigh(matrix)
    scale = np.sqrt(np.where(diagonal > 0, diagonal, 1.0))
    scaled = np.array(matrix / np.outer(scale, scale), dtype=np.float64, order="F")
    lower, pivots, rank, _ = scipy.linalg.lapack.dpstrf(
        scaled, tol=len(scaled) * np.finfo(np.float64).eps, lower=1, overwrite_a=1
    )
    factor = np.zeros((len(scaled), rank), order="F")
    factor[pivots - 1] = np.tril(lower)[:, :rank]
    factor *= scale[:, None]
    # Without V, all of U, for rows of any scale.
    singular, vectors, _, work, _, _ = scipy.linalg.lapack.dgejsv(
        factor, joba=2, jobu=1, jobv=3, jobr=0, jobt=0, jobp=0
    )
    values = np.zeros(len(scaled))
    values[:rank] = np.square(work[0] / work[1] * singular[:rank])
    return values[::-1], vectors[:, ::-1]


def threads_for(operations: float) -> AbstractContextManager:
    """Limit BLAS to one thread in a context for small computations."""
    return one_thread() if operations < _SMALL else nullcontext()


def one_thread() -> AbstractContextManager:
    """Limit BLAS to one thread in a context, if threadpoolctl is installed."""
    return _limit.hold() if _controller() else nullcontext()


class _Limit:
    """The limit of one thread: the first user sets it, the last one removes it.

    The limit applies to the whole process. If each Python thread saved and restored the
    number of BLAS threads separately, two threads would leave it at one permanently.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._holders = 0
        self._before: list[tuple[Any, int]] = []

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Limit BLAS during the context."""
        with self._lock:
            if self._holders == 0:
                libraries = _controller().select(user_api="blas").lib_controllers
                self._before = [(blas, blas.num_threads) for blas in libraries]
                for blas, _ in self._before:
                    _set_threads(blas, 1)
            self._holders += 1
        try:
            yield
        finally:
            with self._lock:
                self._holders -= 1
                if self._holders == 0:
                    for blas, number in self._before:
                        _set_threads(blas, number)


def _set_threads(library: Any, number: int) -> None:
    """Set the number of threads of a library, from any thread.

    threadpoolctl may ignore all threads except the first that has set a number.
    """
    change = getattr(library, "_real_set_num_threads", library.set_num_threads)
    change(number)


_limit = _Limit()


def _enter_child() -> None:
    """Reset in a forked process, where no thread can release the lock."""
    global _limit
    _limit = _Limit()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_enter_child)


@cache
def _controller() -> Any:
    try:
        from threadpoolctl import ThreadpoolController
    except ImportError:
        return None
    return ThreadpoolController()


def factor(matrix: NDArray) -> None:
    """Overwrite the lower triangle of a matrix with its Cholesky factor.

    `matrix` is positive definite, in Fortran order, in single or double precision; the
    strict upper triangle is unchanged.
    """
    n = len(matrix)
    _call("potrf", matrix, b"L", n, matrix, n)


def solve_factored(matrix: NDArray, rhs: NDArray) -> None:
    """Overwrite `rhs` (n, d), in Fortran order, with the solution; see `factor`."""
    n, d = rhs.shape
    _call("potrs", matrix, b"L", n, d, matrix, n, rhs, n)


def symmetric_product(matrix: NDArray, columns: NDArray) -> NDArray:
    """Return A B (n, d), where only the lower triangle of A is read.

    Both are in Fortran order, and of the same dtype.
    """
    out = np.zeros_like(columns)
    n, d = columns.shape
    one = np.ones((), matrix.dtype)
    zero = np.zeros((), matrix.dtype)
    _call("symm", matrix, b"L", b"L", n, d, one, matrix, n, columns, n, zero, out, n)
    return out


def invert_factor(matrix: NDArray) -> None:
    """Overwrite the lower triangle, a Cholesky factor, with its inverse."""
    n = len(matrix)
    _check_order(matrix)
    invert, multiply = (_routine(_PREFIX[matrix.dtype] + r) for r in ("trtri", "trmm"))
    signs = np.array([1.0, -1.0], matrix.dtype)
    address = matrix.ctypes.data
    step = matrix.itemsize
    order = _integer(n)
    plus, minus = (signs.ctypes.data + k * step for k in range(2))
    info = c_int(0)
    status = byref(info)

    def invert_block(start: int, stop: int) -> None:
        """Invert the lower triangle of a diagonal block, by halves."""
        count = stop - start
        place = address + start * (n + 1) * step
        if count <= _SMALL_TRIANGLE:
            invert(b"L", b"N", _integer(count), place, order, status)
            _check_info("trtri", info)
            return
        half = count // 2
        invert_block(start, start + half)
        invert_block(start + half, stop)
        # The inverse of [[A, 0], [B, C]] has -C^-1 B A^-1 below the diagonal.
        last = place + half * (n + 1) * step
        block = place + half * step
        sizes = _integer(count - half), _integer(half)
        for side, sign, triangle in ((b"L", minus, last), (b"R", plus, place)):
            options = side, b"L", b"N", b"N", *sizes
            multiply(*options, sign, triangle, order, block, order)

    invert_block(0, n)


@cache
def _routine(name: str) -> Any:
    """Return a routine of SciPy's LAPACK or BLAS as a function of pointers."""
    get_name = pythonapi.PyCapsule_GetName
    get_name.restype = c_char_p
    get_name.argtypes = [py_object]
    get_pointer = pythonapi.PyCapsule_GetPointer
    get_pointer.restype = c_void_p
    get_pointer.argtypes = [py_object, c_char_p]
    library = cython_blas if name[1:] in _OF_BLAS else cython_lapack
    capsule = library.__pyx_capi__[name]
    address = get_pointer(capsule, get_name(capsule))
    arguments = [c_void_p] * _ARGUMENTS[name[1:]]
    return CFUNCTYPE(None, *arguments)(address)


def _call(name: str, matrix: NDArray, *args: Any) -> None:
    """Call the routine for the precision of `matrix`; raise an error if it fails."""
    _check_order(*(a for a in args if isinstance(a, np.ndarray)))
    info = c_int(0)
    status = () if name in _OF_BLAS else (byref(info),)
    _routine(_PREFIX[matrix.dtype] + name)(*map(_pointer, args), *status)
    _check_info(name, info)


def _check_order(*arrays: NDArray) -> None:
    if not all(array.flags.f_contiguous for array in arrays):
        raise ValueError("arrays of LAPACK must be in Fortran order")


def _check_info(name: str, info: c_int) -> None:
    if info.value:
        raise np.linalg.LinAlgError(
            f"the matrix must be positive definite, {name} returned {info.value}"
        )


def _pointer(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.ctypes.data
    return value if isinstance(value, bytes) else _integer(value)


def _integer(value: int) -> Any:
    return byref(c_int(value))
