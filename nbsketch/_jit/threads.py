"""Run compiled functions of tiles in parallel or serially, decided in each call.

Both ways run the same machine code, which is compiled once: a loop of `prange`, shared
by all functions, calls a function of tiles on one tile at a time. That loop is unsafe
in a forked child (the OpenMP runtime ends the process) and, on numba's workqueue layer,
from two Python threads at once; in these cases, and for little work, a function
processes its tiles serially. Functions other than products with kernel matrices are
called from Python threads.
"""

import os
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import numba
from llvmlite import ir
from numba import prange, types
from numba.core import cgutils
from numba.extending import intrinsic

from nbsketch._jit.compiler import compiled

# Long enough to amortize a parallel region, short enough for Ctrl-C.
CHUNK_SECONDS = 0.08
# For less work a parallel region costs more than it saves.
SERIAL_SECONDS = 5e-4
# The same for Python threads, which are started in each call.
SLICED_SECONDS = 1e-3

_parallel_region = threading.Lock()
# Process that loaded the threading runtime; forked processes do not have its threads.
_PROCESS = os.getpid()
_this_thread = threading.local()
# Types of the arguments of the loop over tiles.
_INTEGERS = (types.intp,) * 5
# Status of compiled functions that raise nothing.
_OK = ir.IntType(32)(0)


@intrinsic
def _call(typingctx, function, data, tile):
    """Call a function at an address with data at an address and a tile."""

    def codegen(context, builder, signature, args):
        function, data, tile = args
        kind = ir.FunctionType(ir.VoidType(), [data.type, tile.type])
        builder.call(builder.inttoptr(function, kind.as_pointer()), [data, tile])
        return context.get_dummy_value()

    return types.void(types.intp, types.intp, types.intp), codegen


@compiled(parallel=True)
def each_tile(function, data, first, last, together):
    """Call a function of tiles on each of them: the only parallel loop."""
    while first < last:
        stop = min((first // together + 1) * together, last)
        for tile in prange(first, stop):
            _call(function, data, tile)
        first = stop


@cache
def _loop() -> int:
    """Return the address of the loop, compiled or read from disk."""
    each_tile.compile(_INTEGERS)
    (code,) = each_tile.overloads.values()
    return code.library.get_pointer_to_function(code.fndesc.llvm_func_name)


def _one_tile(own, kind):
    """Return a function that calls `own` on one tile.

    Its data are the status and error of the call, which are set if it fails, and the
    arguments of `own` without the last four.
    """
    integer = own.args[-1].type
    signature = ir.FunctionType(ir.VoidType(), [integer, integer])
    function = ir.Function(own.module, signature, f"{own.name}.tile")
    function.linkage = "internal"
    builder = ir.IRBuilder(function.append_basic_block())
    data = builder.inttoptr(function.args[0], kind.as_pointer())
    result = builder.alloca(own.args[0].type.pointee)
    error = cgutils.gep_inbounds(builder, data, 0, 1)
    arguments = cgutils.unpack_tuple(builder, builder.load(data))[2:]
    tile = function.args[1]
    tiles = tile, builder.add(tile, integer(1)), integer(0), integer(0)
    code = builder.call(own, [result, error, *arguments, *tiles])
    with builder.if_then(cgutils.is_not_null(builder, code)):
        builder.store(code, cgutils.gep_inbounds(builder, data, 0, 0))
    builder.ret_void()
    return function


@intrinsic
def in_parallel(typingctx):
    """Run the tiles of the function that calls this on all threads.

    The calling function must return immediately afterwards, without a value. Its last
    arguments are integers: the first tile and the one after the last, the number of
    tiles that are independent of each other, and the address of the loop, 0 to process
    the tiles serially.
    """

    def codegen(context, builder, signature, args):
        own = builder.function
        result, error, *arguments, first, last, together, loop = own.args
        values = [_OK, error.type.pointee(None), *arguments]
        data = cgutils.alloca_once_value(builder, cgutils.pack_struct(builder, values))
        tile = _one_tile(own, data.type.pointee)
        addresses = [builder.ptrtoint(place, loop.type) for place in (tile, data)]
        kind = context.call_conv.get_function_type(types.none, _INTEGERS)
        run = builder.inttoptr(loop, kind.as_pointer())
        builder.call(run, [result, error, *addresses, first, last, together])
        code, raised, *_ = cgutils.unpack_tuple(builder, builder.load(data))
        builder.store(raised, error)
        with builder.if_then(cgutils.is_not_null(builder, code)):
            builder.ret(code)
        return context.get_dummy_value()

    return types.void(), codegen


def thread_limit() -> int:
    """Return the number of threads that a parallel kernel may use now.

    The minimum of numba's limit (``NUMBA_NUM_THREADS``, ``numba.set_num_threads``) and
    ``OMP_NUM_THREADS``, which worker processes of joblib set to one.
    """
    if os.getpid() != _PROCESS or getattr(_this_thread, "works", False):
        return 1
    limit = numba.get_num_threads()
    asked = os.environ.get("OMP_NUM_THREADS", "").split(",")[0]
    return min(limit, int(asked)) if asked.isdigit() and int(asked) else limit


def run_tiles(
    kernel: Callable, n_tiles: int, seconds: float, *args: Any, together: int = 0
) -> None:
    """Call ``kernel(*args, first, last, together, loop)`` over all tiles, in chunks.

    `seconds` is the approximate time of one tile on one thread. `together` is the
    number of consecutive tiles that are independent of each other; by default all are.
    """
    total = n_tiles * seconds
    threads = 1 if total < SERIAL_SECONDS else thread_limit()
    if threads > 1 and _parallel_region.acquire(blocking=False):
        before = numba.get_num_threads()
        numba.set_num_threads(threads)
        try:
            _in_chunks(kernel, n_tiles, seconds / threads, args, together, _loop())
        finally:
            numba.set_num_threads(before)
            _parallel_region.release()
    else:
        _in_chunks(kernel, n_tiles, seconds, args, together, 0)


def run_slices(kernel: Callable, n_tiles: int, seconds: float, *args: Any) -> None:
    """Call ``kernel(*args, first, last)`` over all tiles, from Python threads.

    `seconds` is the approximate time of one tile on one thread.
    """
    threads = 1 if n_tiles * seconds < SLICED_SECONDS else thread_limit()
    share = -(-n_tiles // threads)
    width = max(1, min(share, int(CHUNK_SECONDS / max(seconds, 1e-9))))

    def work(first: int) -> None:
        kernel(*args, first, min(first + width, n_tiles))

    run_blocks(work, range(0, n_tiles, width))


def run_blocks(work: Callable[[Any], None], blocks: Iterable[Any]) -> None:
    """Call ``work(block)`` for all blocks, from as many threads as allowed.

    For work that alternates between compiled code and BLAS, whose own threads would
    wait for each other. Compiled code is serial inside.
    """
    todo = list(blocks)
    threads = min(thread_limit(), len(todo))
    if threads <= 1:
        for block in todo:
            work(block)
        return
    with ThreadPoolExecutor(threads, initializer=_enter_work) as pool:
        for _ in pool.map(work, todo):  # raises errors of the blocks
            pass


def _enter_work() -> None:
    _this_thread.works = True


def _in_chunks(
    kernel: Callable,
    n_tiles: int,
    seconds: float,
    args: tuple,
    together: int,
    loop: int,
) -> None:
    chunk = max(1, min(n_tiles, int(CHUNK_SECONDS / max(seconds, 1e-9))))
    for first in range(0, n_tiles, chunk):
        stop = min(first + chunk, n_tiles)
        kernel(*args, first, stop, together or n_tiles, loop)
