"""Dense linear algebra with as many threads as pay.

The threads of a BLAS library wait for each other actively. On small matrices that costs
more than it saves, and on a busy machine a hundred times more.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

# Work of about a tenth of a second on one thread: below it more threads do not pay.
_SMALL = 3e9


def eigh(matrix: NDArray) -> tuple[NDArray, NDArray]:
    """Return the ascending eigenvalues and the eigenvectors of a symmetric matrix."""
    with threads_for(10.0 * len(matrix) ** 3):
        return scipy.linalg.eigh(matrix.astype(np.float64, copy=False))


def threads_for(operations: float) -> AbstractContextManager:
    """Limit BLAS to one thread for a while if there is little to compute."""
    return one_thread() if operations < _SMALL else nullcontext()


def one_thread() -> AbstractContextManager:
    """Limit BLAS to one thread for a while, where threadpoolctl is at hand."""
    controller = _controller()
    return controller.limit(limits=1, user_api="blas") if controller else nullcontext()


@cache
def _controller() -> Any:
    try:
        from threadpoolctl import ThreadpoolController
    except ImportError:
        return None
    return ThreadpoolController()
