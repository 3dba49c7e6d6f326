"""The one way in which nbsketch compiles a function."""

import logging
from collections.abc import Callable
from pathlib import Path
from types import FunctionType
from typing import Any, NamedTuple

from numba import njit
from numba.core import event

# Fused multiply-adds only: tricks that rely on rounding survive, and so do infinities.
CONTRACT = frozenset({"contract"})
# Reordered sums as well, for reductions; infinite bounds and NaN keep their meaning.
REORDER = frozenset({"reassoc", "contract", "arcp", "nsz"})


class _Notice(event.Listener):
    """Log once in a process that functions of this package are being compiled."""

    def on_start(self, event: Any) -> None:
        """Log it if the function is ours, and listen no longer."""
        if event.data["dispatcher"].py_func.__module__.startswith("nbsketch."):
            _unregister()
            logging.getLogger("nbsketch").info(
                "compiling for the first use on this machine, some seconds for each "
                "kind of model; `nbsketch warmup` does it beforehand"
            )

    def on_end(self, event: Any) -> None:
        """Do nothing."""


_NOTICE = _Notice()
event.register("numba:compile", _NOTICE)


def _unregister() -> None:
    event.unregister("numba:compile", _NOTICE)


def compiled(
    *,
    parallel: bool = False,
    fastmath: frozenset[str] = CONTRACT,
    sources: tuple[str, ...] = (),
    **options: Any,
) -> Callable[[Callable], Callable]:
    """Compile on first call, release the GIL, and keep the code on disk if possible.

    A function whose name begins with an underscore is called by compiled code only: it
    becomes a part of them, without a file of its own.

    `sources` are the other files whose compiled functions it calls: the code on disk
    is compiled again after an edit of one of them.
    """
    options |= {
        "parallel": parallel,
        "fastmath": set(fastmath),
        "nogil": True,
        "error_model": "numpy",
        "no_cfunc_wrapper": True,
    }

    def decorate(function: Any) -> Callable:
        if function.__name__.startswith("_"):
            return njit(**options)(function)
        try:
            dispatcher = njit(cache=True, **options)(function)
        except RuntimeError:  # no directory to cache in can be written
            return njit(**options)(function)
        _stamp(dispatcher, sources)
        return dispatcher

    return decorate


class Tiled(NamedTuple):
    """A loop over tiles, compiled for one thread and for all, to the same bits."""

    serial: Callable
    parallel: Callable


def tiled(*, sources: tuple[str, ...] = ()) -> Callable[[Any], Tiled]:
    """Compile a function with a loop of `prange` twice: see `Tiled` and `compiled`."""

    def decorate(function: Any) -> Tiled:
        twin = FunctionType(function.__code__, function.__globals__)
        twin.__module__ = function.__module__
        twin.__qualname__ = f"{function.__qualname__}_parallel"  # of its file on disk
        serial = compiled(sources=sources)(function)
        return Tiled(serial, compiled(parallel=True, sources=sources)(twin))

    return decorate


def _stamp(dispatcher: Any, sources: tuple[str, ...]) -> None:
    """Let the code on disk expire with `sources` as well as with its own file."""
    index = getattr(dispatcher._cache, "_cache_file", None)
    if sources and index is not None:
        stats = [Path(source).stat() for source in sources]
        others = tuple((stat.st_mtime, stat.st_size) for stat in stats)
        index._source_stamp = (index._source_stamp, others)
