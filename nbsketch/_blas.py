"""Eigenvalues and a limit on BLAS threads.

Threads of a BLAS library wait actively for each other. On small matrices this costs
more than it saves, and on a busy machine up to a hundred times more.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

# About a tenth of a second of work on one thread; below it one thread is faster.
_SMALL = 3e9


def eigh(matrix: NDArray) -> tuple[NDArray, NDArray]:
    """Return the ascending eigenvalues and the eigenvectors of a symmetric matrix."""
    matrix = matrix.astype(np.float64, copy=False)
    with threads_for(10.0 * len(matrix) ** 3):
        try:
            return scipy.linalg.eigh(matrix)
        except np.linalg.LinAlgError:
            # The fastest driver fails on some multiples of the identity plus rounding,
            # which ones depends on the BLAS kernels; divide and conquer does not.
            return scipy.linalg.eigh(matrix, driver="evd")


def threads_for(operations: float) -> AbstractContextManager:
    """Limit BLAS to one thread in a context if there is little to compute."""
    return one_thread() if operations < _SMALL else nullcontext()


def one_thread() -> AbstractContextManager:
    """Limit BLAS to one thread in a context, if threadpoolctl is installed."""
    return _limit.hold() if _controller() else nullcontext()


class _Limit:
    """The limit of one thread: the first to ask sets it, the last to leave lifts it.

    It is the limit of the whole process. If each thread of Python saved and restored
    the number of BLAS threads by itself, two at once would leave it at one for good.
    """

    def __init__(self) -> None:
        self._lock, self._holders = threading.Lock(), 0
        self._before: list[tuple[Any, int]] = []

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Limit BLAS as long as the context lasts."""
        with self._lock:
            if self._holders == 0:
                self._before = [(blas, blas.num_threads) for blas in _libraries()]
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


def _libraries() -> list[Any]:
    return _controller().select(user_api="blas").lib_controllers


def _set_threads(library: Any, number: int) -> None:
    """Set the number of threads of a library, whichever thread asks.

    threadpoolctl may ignore all threads but the first one that has set a number.
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
