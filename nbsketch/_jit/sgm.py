"""Compiled steps of the projected stochastic gradient method, and its random rows.

A point holds, for each output, the coefficients of the r features and then the
intercept. Random rows are far apart in memory, so those of the next steps are asked for
while one is worked on: without that most of the time goes into waiting.
"""

from math import exp, sqrt
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from nbsketch._jit.compiler import REORDER, compiled

# Which residual a loss looks at: the codes of `nbsketch._jit.sgd`.
COLUMNS, RADIAL, MARGIN, LOGISTIC = range(4)

# The constants of the splitmix64 generator (Steele, Lea and Flood 2014).
_WEYL = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
_SHIFTS = np.array([30, 27, 31, 11], dtype=np.uint64)
_UNIT = 2.0**-53

# How many rows ahead memory is asked for, and for how much of such a row: what follows
# in it the processor foresees by itself.
_AHEAD = 8
_AHEAD_BYTES = 2048
_CACHE_LINE = 64


@compiled()
def _mix(z):
    z = (z ^ (z >> _SHIFTS[0])) * _MIX_1
    z = (z ^ (z >> _SHIFTS[1])) * _MIX_2
    return z ^ (z >> _SHIFTS[2])


@compiled()
def draw_rows(seed, first, n_rows, cumulative, guide, out):
    """Fill `out` with the random rows number `first`, `first + 1`, ... of a stream.

    The row of a number does not depend on how the stream is cut. All `n_rows` are
    equally likely if `cumulative` is empty. Otherwise it holds the sums of positive
    weights up to each row, a row is as likely as its weight is large, and `guide` says
    at which row to look first.
    """
    last = cumulative.size - 1
    for k in range(out.size):
        state = seed + np.uint64(first + k + 1) * _WEYL
        uniform = (_mix(_mix(state)) >> _SHIFTS[3]) * _UNIT
        if last < 0:
            out[k] = int(uniform * n_rows)
            continue
        row = guide[int(uniform * guide.size)]
        while row < last and cumulative[row] <= uniform * cumulative[last]:
            row += 1
        out[k] = row


@intrinsic
def _prefetch(typing_context, array, i, j):
    """Ask for the cache line of ``array[i, j]`` without waiting for it."""

    def generate(context, builder, signature, arguments):
        array_type = signature.args[0]
        array = context.make_array(array_type)(context, builder, arguments[0])
        place = cgutils.get_item_pointer(
            context, builder, array_type, array, list(arguments[1:])
        )
        byte, word = ir.IntType(8).as_pointer(), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [byte, word, word, word])
        prefetch = builder.module.declare_intrinsic("llvm.prefetch", [byte], kind)
        read, keep, data = (ir.Constant(word, code) for code in (0, 3, 1))
        builder.call(prefetch, [builder.bitcast(place, byte), read, keep, data])
        return context.get_dummy_value()

    return types.void(array, i, j), generate


@compiled(fastmath=REORDER, inline="always")
def _fetch_row(Z: Any, i: int) -> None:
    line = _CACHE_LINE // Z.itemsize
    for k in range(0, min(Z.shape[1], _AHEAD_BYTES // Z.itemsize), line):
        _prefetch(Z, i, k)


@compiled(fastmath=REORDER, inline="always")
def _slope(r: float, gam: float, eps: float, lo: float, hi: float) -> float:
    """Return psi'(r); at a kink without curvature, the subgradient 0."""
    excess = r - min(max(r, -eps), eps)
    if gam > 0.0:
        return min(max(excess / gam, lo), hi)
    if excess == 0.0:
        return 0.0
    return hi if excess > 0.0 else lo


@compiled(fastmath=REORDER, inline="always")
def _margin_pull(kind: int, Y: Any, i: int, numbers: Any, out: Any) -> None:
    """Turn the residuals y - f in `out` into minus the slopes of losses of y f.

    Labels y are -1 and 1, so that 1 - y f is y times the residual.
    """
    gam, eps, lo, hi = numbers
    for j in range(out.shape[0]):
        y = Y[i, j]
        below = y * out[j]
        if kind == LOGISTIC:
            out[j] = y / (1.0 + exp(1.0 - below))
        else:
            out[j] = y * _slope(below, gam, eps, lo, hi)


@compiled(fastmath=REORDER, inline="always")
def _pull(
    kind: int, Z: Any, Y: Any, i: int, numbers: Any, point: Any, out: Any
) -> None:
    """Fill `out` (d,) with minus the gradient of the loss of row i by its prediction.

    A loss of residuals is that of the norm of several ones; losses of margins add up.
    """
    rank, square = Z.shape[1], 0.0
    for j in range(out.shape[0]):
        product = 0.0
        for k in range(rank):
            product += Z[i, k] * point[j, k]
        out[j] = Y[i, j] - product - point[j, rank]
        square += out[j] * out[j]
    if kind >= MARGIN:
        _margin_pull(kind, Y, i, numbers, out)
        return
    gam, eps, lo, hi = numbers
    if out.shape[0] == 1:
        out[0] = _slope(out[0], gam, eps, lo, hi)
        return
    norm = sqrt(square)
    scale = _slope(norm, gam, eps, lo, hi) / norm if norm > 0.0 else 0.0
    for j in range(out.shape[0]):
        out[j] *= scale


@compiled(fastmath=REORDER, inline="always")
def _shrink(point: Any, rate: float, penalties: Any) -> None:
    """Take the step of the penalty; `penalties` may be empty."""
    for j in range(point.shape[0]):
        for k in range(penalties.shape[0]):
            point[j, k] *= 1.0 - rate * penalties[k]


@compiled(fastmath=REORDER, inline="always")
def _add_row(Z: Any, i: int, pull: Any, rate: float, drift: float, out: Any) -> None:
    """Add the step of one row to `out`."""
    rank = Z.shape[1]
    for j in range(out.shape[0]):
        step = rate * pull[j]
        for k in range(rank):
            out[j, k] += step * Z[i, k]
        out[j, rank] += drift * pull[j]


@compiled(fastmath=REORDER, inline="always")
def _take_step(point: Any, move: Any) -> None:
    """Add `move` and set it to zero."""
    for j in range(point.shape[0]):
        for k in range(point.shape[1]):
            point[j, k] += move[j, k]
            move[j, k] = 0.0


@compiled(fastmath=REORDER)
def run_steps(
    kind: int,
    Z: Any,
    Y: Any,
    order: Any,
    batch_size: int,
    rates: Any,
    drift: float,
    penalties: Any,
    numbers: Any,
    point: Any,
    move: Any,
    total: Any,
) -> None:
    """Take one step per batch of `order`, changing `point`.

    Parameters
    ----------
    kind : int
        COLUMNS or RADIAL, or MARGIN or LOGISTIC for labels -1 and 1.
    Z, Y : arrays of shape (n, r) and (n, d)
        Features (float32 or float64) and targets.
    order : array of int
        The rows, in the order in which they are visited.
    rates : array of shape (n_steps,)
        Length of each step.
    drift : float
        Length of the steps of the intercept; 0 without one.
    penalties : array of shape (r,) or (0,)
        Penalty of each coefficient, ``penalties[k] / 2`` times its square; empty for
        none.
    numbers : tuple of four floats
        gam, eps, lo and hi of the loss.
    point, move : arrays of shape (d, r + 1)
        The point, and scratch that is zero before and after.
    total : array of the shape of `point`, or (0, 0)
        The points visited are added to it.
    """
    pull = np.empty(point.shape[0])
    # A step of one row needs no scratch.
    target = point if batch_size == 1 else move
    for t in range(rates.shape[0]):
        first = t * batch_size
        last = min(first + batch_size, order.shape[0])
        share = 1.0 / (last - first)
        for position in range(first, last):
            if position + _AHEAD < order.shape[0]:
                _fetch_row(Z, order[position + _AHEAD])
            i = order[position]
            _pull(kind, Z, Y, i, numbers, point, pull)
            if position == last - 1:
                _shrink(point, rates[t], penalties)
            _add_row(Z, i, pull, share * rates[t], share * drift, target)
        if batch_size > 1:
            _take_step(point, move)
        for j in range(total.shape[0]):
            for k in range(total.shape[1]):
                total[j, k] += point[j, k]
