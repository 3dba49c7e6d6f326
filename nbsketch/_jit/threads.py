"""Decides, call by call, how a compiled function of tiles runs: parallel or serial.

Both ways do the same work and give the same bits. The parallel one, a loop of `prange`,
is unsafe in a forked child (the OpenMP runtime ends the process) and, on numba's
workqueue layer, from two Python threads at once; the serial one is safe everywhere.
A parallel loop is compiled beside the serial one, for about a second. Functions outside
the products with kernel matrices do without: threads of Python call the serial one.
"""

import os
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numba

from nbsketch._jit.compiler import Tiled

# Long enough to hide the start of a parallel region, short enough for Ctrl-C.
CHUNK_SECONDS = 0.08
# Below this much work a parallel region costs more than it saves.
SERIAL_SECONDS = 5e-4
# The same for threads of Python, which are started at each call.
SLICED_SECONDS = 1e-3

_parallel_region = threading.Lock()
# The process that loaded the runtime of threads; forked ones do not have its threads.
_PROCESS = os.getpid()
_this_thread = threading.local()


def thread_limit() -> int:
    """Return how many threads a parallel kernel may use here and now.

    The smaller of numba's own limit (``NUMBA_NUM_THREADS``, ``numba.set_num_threads``)
    and ``OMP_NUM_THREADS``, which worker processes of joblib set to one.
    """
    if os.getpid() != _PROCESS or getattr(_this_thread, "works", False):
        return 1
    limit = numba.get_num_threads()
    asked = os.environ.get("OMP_NUM_THREADS", "").split(",")[0]
    return min(limit, int(asked)) if asked.isdigit() and int(asked) else limit


def run_tiles(kernel: Tiled, n_tiles: int, seconds: float, *args: Any) -> None:
    """Call ``kernel(*args, first, last)`` over all tiles, in chunks of tiles.

    `seconds` is a rough guess of the time of one tile on one thread.
    """
    total = n_tiles * seconds
    threads = 1 if total < SERIAL_SECONDS else thread_limit()
    if threads > 1 and _parallel_region.acquire(blocking=False):
        before = numba.get_num_threads()
        numba.set_num_threads(threads)
        try:
            _in_chunks(kernel.parallel, n_tiles, seconds / threads, args)
        finally:
            numba.set_num_threads(before)
            _parallel_region.release()
    else:
        _in_chunks(kernel.serial, n_tiles, seconds, args)


def run_slices(kernel: Callable, n_tiles: int, seconds: float, *args: Any) -> None:
    """Call ``kernel(*args, first, last)`` over all tiles, from threads of Python.

    `seconds` is a rough guess of the time of one tile on one thread.
    """
    threads = 1 if n_tiles * seconds < SLICED_SECONDS else thread_limit()
    share = -(-n_tiles // threads)
    width = max(1, min(share, int(CHUNK_SECONDS / max(seconds, 1e-9))))

    def work(first: int) -> None:
        kernel(*args, first, min(first + width, n_tiles))

    run_blocks(work, range(0, n_tiles, width))


def run_blocks(work: Callable[[Any], None], blocks: Iterable[Any]) -> None:
    """Call ``work(block)`` for all blocks, from as many threads as are allowed.

    For work that alternates between compiled code and BLAS, whose own threads would
    wait for each other. Compiled code is serial within it.
    """
    todo = list(blocks)
    threads = min(thread_limit(), len(todo))
    if threads <= 1:
        for block in todo:
            work(block)
        return
    with ThreadPoolExecutor(threads, initializer=_enter_work) as pool:
        for _ in pool.map(work, todo):  # raises what a block has raised
            pass


def _enter_work() -> None:
    _this_thread.works = True


def _in_chunks(kernel: Callable, n_tiles: int, seconds: float, args: tuple) -> None:
    chunk = max(1, min(n_tiles, int(CHUNK_SECONDS / max(seconds, 1e-9))))
    for first in range(0, n_tiles, chunk):
        kernel(*args, first, min(first + chunk, n_tiles))
