"""The one way in which nbsketch compiles a function."""

import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from numba import njit
from numba.core import event

# Fused multiply-adds only: tricks that rely on rounding survive, and so do infinities.
CONTRACT = frozenset({"contract"})
# Reordered sums as well, for reductions; infinite bounds and NaN keep their meaning.
REORDER = frozenset({"reassoc", "contract", "arcp", "nsz"})


class _Notice(event.Listener):
    """Say once in a process that functions of this package are being compiled."""

    said = False

    def on_start(self, event: Any) -> None:
        """Warn if no function of ours is on disk yet; later, and in notebooks, inform.

        Without a handler, `logging` prints warnings on standard error.
        """
        dispatcher = event.data["dispatcher"]
        if self.said or not dispatcher.py_func.__module__.startswith("nbsketch."):
            return
        self.said = True
        folder = dispatcher.stats.cache_path
        first = folder is not None and not any(Path(folder).glob("*.nbi"))
        quiet = not first or "ipykernel" in sys.modules
        logging.getLogger("nbsketch").log(
            logging.INFO if quiet else logging.WARNING,
            "nbsketch compiles for this machine, once: about 5 s in a first fit; "
            "`nbsketch warmup` does all of it beforehand",
        )

    def on_end(self, event: Any) -> None:
        """Do nothing."""


event.register("numba:compile", _Notice())


def compiled(
    *,
    parallel: bool = False,
    fastmath: frozenset[str] = CONTRACT,
    sources: tuple[str, ...] = (),
    **options: Any,
) -> Callable[[Any], Any]:
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

    def decorate(function: Any) -> Any:
        if function.__name__.startswith("_"):
            return njit(no_cpython_wrapper=True, **options)(function)
        try:
            dispatcher = njit(cache=True, **options)(function)
        except RuntimeError:  # no directory to cache in can be written
            return njit(**options)(function)
        _stamp(dispatcher, (__file__, *sources))
        return dispatcher

    return decorate


def _stamp(dispatcher: Any, sources: tuple[str, ...]) -> None:
    """Let the code on disk expire with `sources` as well as with its own file."""
    locator = dispatcher._cache._impl.locator
    stamps = [
        type(locator).from_function(dispatcher.py_func, source).get_source_stamp()
        for source in sources
    ]
    index = dispatcher._cache._cache_file
    index._source_stamp = (index._source_stamp, *stamps)
