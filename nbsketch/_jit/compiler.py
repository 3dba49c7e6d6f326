"""The decorator that compiles all functions of nbsketch."""

import gc
import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from numba import njit, types
from numba.core import event
from numba.core.imputils import impl_ret_new_ref
from numba.core.typing.npydecl import parse_dtype
from numba.extending import intrinsic
from numba.np.arrayobj import _empty_nd_impl

# Only fused multiply-adds: code that relies on rounding or infinities stays valid.
CONTRACT = frozenset({"contract"})
# Also reordered sums, for reductions; infinite bounds and NaN keep their meaning.
REORDER = frozenset({"reassoc", "contract", "arcp", "nsz"})


class _Notice(event.Listener):
    """Announce once per process that functions of this package are being compiled."""

    said = False

    def on_start(self, event: Any) -> None:
        """Warn if none of our functions is cached; later, and in notebooks, inform.

        Without a handler, `logging` prints warnings on standard error.
        """
        if self.said or not _is_ours(event):
            return
        self.said = True
        folder = event.data["dispatcher"].stats.cache_path
        first = folder is not None and not any(Path(folder).glob("*.nbi"))
        quiet = not first or "ipykernel" in sys.modules
        logging.getLogger("nbsketch").log(
            logging.INFO if quiet else logging.WARNING,
            "nbsketch compiles its functions once per computer: about 5 s in a first "
            "fit; `nbsketch warmup` compiles all of them beforehand",
        )

    def on_end(self, event: Any) -> None:
        """Do nothing."""


class _Pause(event.Listener):
    """Suspend garbage collection while functions of this package are compiled.

    It would take a tenth of the time: the compiler makes many objects that stay.
    """

    def __init__(self) -> None:
        self._enabled = list[bool]()

    def on_start(self, event: Any) -> None:
        """Suspend it; compilations are nested."""
        if _is_ours(event):
            self._enabled.append(gc.isenabled())
            gc.disable()

    def on_end(self, event: Any) -> None:
        """Resume it after the outermost compilation, also if that failed."""
        if _is_ours(event) and self._enabled.pop():
            gc.enable()


def _is_ours(event: Any) -> bool:
    return event.data["dispatcher"].py_func.__module__.startswith("nbsketch.")


for _listener in (_Notice(), _Pause()):
    event.register("numba:compile", _listener)


def compiled(
    *,
    parallel: bool = False,
    fastmath: frozenset[str] = CONTRACT,
    sources: tuple[str, ...] = (),
    **options: Any,
) -> Callable[[Any], Any]:
    """Compile on first call, release the GIL, and cache the code on disk if possible.

    A function whose name starts with an underscore is called only by compiled code: it
    becomes a part of its callers, without a cache file of its own.

    `sources` are the other files with compiled functions that it calls: an edit of one
    of them invalidates the cache.
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
        except RuntimeError:  # no writable cache directory
            return njit(**options)(function)
        _stamp(dispatcher, (__file__, *sources))
        return dispatcher

    return decorate


def _stamp(dispatcher: Any, sources: tuple[str, ...]) -> None:
    """Make the cached code expire with `sources` as well as with its own file."""
    locator = dispatcher._cache._impl.locator
    stamps = [
        type(locator).from_function(dispatcher.py_func, source).get_source_stamp()
        for source in sources
    ]
    index = dispatcher._cache._cache_file
    index._source_stamp = index._source_stamp, *stamps


@intrinsic
def empty(typingctx, size, dtype):
    """Return an array (size,) as `numpy.empty` does, which takes 0.1 s to compile."""
    kind = types.Array(parse_dtype(dtype), 1, "C")

    def codegen(context, builder, signature, args):
        array = _empty_nd_impl(context, builder, kind, args[:1])
        return impl_ret_new_ref(context, builder, kind, array._getvalue())

    return kind(types.intp, dtype), codegen
