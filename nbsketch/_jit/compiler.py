"""The one way in which nbsketch compiles a function."""

from collections.abc import Callable
from typing import Any

from numba import njit

# Fused multiply-adds only: tricks that rely on rounding survive, and so do infinities.
CONTRACT = frozenset({"contract"})
# Reordered sums as well, for reductions; infinite bounds and NaN keep their meaning.
REORDER = frozenset({"reassoc", "contract", "arcp", "nsz"})


def compiled(
    *,
    parallel: bool = False,
    fastmath: frozenset[str] = CONTRACT,
    **options: Any,
) -> Callable[[Callable], Callable]:
    """Compile on first call, release the GIL, and keep the code on disk if possible."""
    options |= {
        "parallel": parallel,
        "fastmath": set(fastmath),
        "nogil": True,
        "error_model": "numpy",
    }

    def decorate(function: Callable) -> Callable:
        try:
            return njit(cache=True, **options)(function)
        except RuntimeError:  # no directory to cache in can be written
            return njit(**options)(function)

    return decorate
