"""The one parallel loop: a `prange` over tiles that calls a compiled function.

numba optimizes the body of a parallel loop four times over: in its own function, in two
functions around it and in that of the loop. Here the body calls a serial function by
its address, so that the loop is compiled once for all functions and types, and each
function once.

The address and the arguments of the function, but its tiles, are written to a frame.
The loop handles integers only: the address of an entry, which reads a frame and calls
the function in it, the address of the frame, and tiles.
"""

from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba import prange, types
from numba.core import cgutils
from numba.extending import intrinsic

from nbsketch._jit.compiler import compiled

# Words of eight bytes of a frame; an array of two axes takes nine.
_FRAME = 512
_INTEGERS = (types.int64,) * 3


def _entry(context, builder, args):
    """Emit the function of (frame, first, last) that calls the one of a frame."""
    kind = context.call_conv.get_function_type(types.none, _INTEGERS)
    name = builder.module.get_unique_name("entry")
    function = ir.Function(builder.module, kind, name)
    function.linkage = "internal"
    result, error, frame, first, last = function.args
    inner = ir.IRBuilder(function.append_basic_block("entry"))
    pointer = inner.inttoptr(frame, _frame_type(context, args).as_pointer())
    address, *values = cgutils.unpack_tuple(inner, inner.load(pointer))
    kinds = (*args.types, types.int64, types.int64)
    called = context.call_conv.get_function_type(types.none, kinds)
    raw = context.get_arg_packer(kinds).as_arguments(inner, [*values, first, last])
    target = inner.inttoptr(address, called.as_pointer())
    inner.ret(inner.call(target, [result, error, *raw]))
    return function


def _frame_type(context, args):
    return ir.LiteralStructType(
        [ir.IntType(64), *(context.get_value_type(kind) for kind in args.types)]
    )


def _borrowed(context, builder, kind, value):
    """Return arrays without their owners, which numba counts within one call only."""
    if isinstance(kind, types.BaseTuple):
        parts = cgutils.unpack_tuple(builder, value)
        pairs = zip(kind.types, parts, strict=True)
        parts = [_borrowed(context, builder, *pair) for pair in pairs]
        return cgutils.make_anonymous_struct(builder, parts, value.type)
    if isinstance(kind, types.Array):
        array = context.make_array(kind)(context, builder, value)
        array.meminfo = cgutils.get_null_value(array.meminfo.type)
        array.parent = cgutils.get_null_value(array.parent.type)
        return array._getvalue()
    return value


@intrinsic
def _store(typingctx, address, args, frame):
    """Write a function and its arguments to a frame; return the address of an entry."""

    def codegen(context, builder, signature, values):
        kind = _frame_type(context, signature.args[1])
        if context.get_abi_sizeof(kind) > 8 * _FRAME:
            raise TypeError("too many arguments for a frame: increase `_FRAME`")
        borrowed = _borrowed(context, builder, signature.args[1], values[1])
        parts = [values[0], *cgutils.unpack_tuple(builder, borrowed)]
        pointer = builder.inttoptr(values[2], kind.as_pointer())
        builder.store(cgutils.make_anonymous_struct(builder, parts, kind), pointer)
        entry = _entry(context, builder, signature.args[1])
        return builder.ptrtoint(entry, ir.IntType(64))

    return types.int64(types.int64, args, types.int64), codegen


@intrinsic
def _enter(typingctx, entry, frame, tile):
    """Call an entry for one tile."""

    def codegen(context, builder, signature, values):
        entry, frame, tile = values
        kind = context.call_conv.get_function_type(types.none, _INTEGERS)
        following = builder.add(tile, ir.Constant(ir.IntType(64), 1))
        status, _ = context.call_conv.call_function(
            builder,
            builder.inttoptr(entry, kind.as_pointer()),
            types.none,
            _INTEGERS,
            (frame, tile, following),
        )
        with cgutils.if_unlikely(builder, status.is_error):
            context.call_conv.return_status_propagate(builder, status)
        return context.get_dummy_value()

    return types.void(*_INTEGERS), codegen


@compiled()
def store(address, args, frame):
    """Write a frame; return the address of its entry. Compiled for types of `args`."""
    return _store(address, args, frame)


@compiled(parallel=True)
def loop(entry, frame, first, last, step):
    """Call an entry for the tiles `first` to `last` - 1, `step` tiles at a time."""
    for start in range(first, last, step):
        for tile in prange(start, min(start + step, last)):
            _enter(entry, frame, tile)


class Spread:
    """A compiled function ``kernel(*args, first, last)``, on numba's threads.

    Calls write each tile to memory of its own, so that results are those of one call.
    """

    def __init__(self, kernel: Any) -> None:
        self._kernel = kernel
        self._addresses: dict[Any, int] = {}

    def __call__(self, *args: Any) -> None:
        """Call the function for tiles of which none waits for another."""
        *arguments, first, last = args
        self.in_rounds(tuple(arguments), first, last, max(1, last - first))

    def in_rounds(self, args: tuple, first: int, last: int, step: int) -> None:
        """Call it for `step` tiles at a time: each round waits for the one before."""
        frame = np.empty(_FRAME, dtype=np.int64)
        place = frame.ctypes.data
        entry = store(self._address(args), args, place)
        loop(entry, place, first, last, step)

    def _address(self, args: tuple) -> int:
        """Return the address of the function compiled for the types of arguments."""
        key = _types_of(args)
        if key not in self._addresses:
            kinds = tuple(map(numba.typeof, (*args, 0, 0)))
            self._kernel.compile(kinds)
            code = self._kernel.overloads[kinds]
            name = code.fndesc.llvm_func_name
            self._addresses[key] = code.library.get_pointer_to_function(name)
        return self._addresses[key]


def _types_of(args: tuple) -> tuple:
    """Return what decides the compiled types of arguments, faster than numba does."""
    return tuple(
        (arg.dtype, arg.ndim, arg.flags.num)
        if isinstance(arg, np.ndarray)
        else _types_of(arg)
        if isinstance(arg, tuple)
        else type(arg)
        for arg in args
    )
