"""Compiled steps of the stochastic methods: plain subgradient, Adam and projected.

Losses are used through their dual point a = -d loss / d prediction.

A point of plain steps and of Adam is one flat vector: the coefficients, one output
after the other so that the inner loops run along the features, then the intercept.
Predictions of row i are ``mix^T theta z_i + b`` with theta (d', p) and mix (d', d), and
the gradient of a batch is

    -(1 / size) sum_i s_i (mix a_i) z_i^T + alpha theta .

A point of projected steps holds, for each output, the coefficients of the r features
followed by the intercept. Their rows are random and far apart in memory, so the rows of
the next steps are prefetched: otherwise most of the time is spent waiting.
"""

from math import exp, sqrt

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from nbsketch._jit.compiler import REORDER, compiled

# Kind of residual that a loss depends on.
COLUMNS, RADIAL, MARGIN, LOGISTIC = range(4)
# Kind of step.
SUBGRADIENT, ADAM = range(2)

# Added to the root of the second moment; the value of Kingma and Ba (2015).
ADAM_EPSILON = 1e-8

# Number of rows to prefetch ahead, and bytes of each; the processor prefetches the rest
# of a row by itself.
_AHEAD = 8
_AHEAD_BYTES = 2048
_CACHE_LINE = 64


@compiled(fastmath=REORDER, inline="always")
def _slope(r, gam, eps, lo, hi):
    """Return psi'(r); at a kink without curvature, the subgradient 0."""
    excess = r - min(max(r, -eps), eps)
    if gam > 0.0:
        return min(max(excess / gam, lo), hi)
    if excess == 0.0:
        return 0.0
    return hi if excess > 0.0 else lo


@compiled(fastmath=REORDER, inline="always")
def _radial_point(numbers, a):
    """Replace the residual vector in `a` by the gradient of psi of its norm."""
    square = 0.0
    for j in range(a.shape[0]):
        square += a[j] * a[j]
    norm = sqrt(square)
    slope = _slope(norm, numbers[0, 0], numbers[1, 0], numbers[2, 0], numbers[3, 0])
    scale = slope / norm if norm > 0.0 else 0.0
    for j in range(a.shape[0]):
        a[j] *= scale


@compiled(fastmath=REORDER, inline="always")
def _dual_point(kind, numbers, Y, i, a):
    """Replace the prediction of row i in `a` by minus the derivative of the loss."""
    last = Y.shape[1] - 1  # one target may be used for several outputs
    for j in range(a.shape[0]):
        y = Y[i, min(j, last)]
        gam = numbers[0, j]
        eps = numbers[1, j]
        lo = numbers[2, j]
        hi = numbers[3, j]
        if kind == LOGISTIC:
            a[j] = y / (1.0 + exp(y * a[j]))
        elif kind == MARGIN:
            a[j] = y * _slope(1.0 - y * a[j], gam, eps, lo, hi)
        elif kind == COLUMNS:
            a[j] = _slope(y - a[j], gam, eps, lo, hi)
        else:
            a[j] = y - a[j]
    if kind == RADIAL:
        _radial_point(numbers, a)


@compiled(fastmath=REORDER)
def _predict(Z, i, theta, intercept, mix, out):
    """Fill `out` (d,) with the prediction of row i."""
    for j in range(out.shape[0]):
        out[j] = intercept[j]
    for c in range(theta.shape[0]):
        product = 0.0
        for k in range(theta.shape[1]):
            product += theta[c, k] * Z[i, k]
        for j in range(out.shape[0]):
            out[j] += mix[c, j] * product


@compiled(fastmath=REORDER)
def _add_row(Z, i, mix, a, scale, slopes):
    """Add ``scale (mix a) z_i^T`` to `slopes` (d', p)."""
    for c in range(slopes.shape[0]):
        slope = 0.0
        for j in range(a.shape[0]):
            slope += mix[c, j] * a[j]
        slope *= scale
        if slope != 0.0:
            for k in range(slopes.shape[1]):
                slopes[c, k] += slope * Z[i, k]


@compiled(fastmath=REORDER)
def _fill_ridge(theta, alpha, slopes):
    """Fill `slopes` with ``alpha theta``."""
    for c in range(theta.shape[0]):
        for k in range(theta.shape[1]):
            slopes[c, k] = alpha * theta[c, k]


@compiled(fastmath=REORDER)
def _step(point, gradient, rate):
    for j in range(point.shape[0]):
        point[j] -= rate * gradient[j]


@compiled(fastmath=REORDER)
def _adam_step(point, gradient, moments, rate, root, beta1, beta2):
    """Move by the two moments; `rate` and `root` contain their bias corrections."""
    for j in range(point.shape[0]):
        g = gradient[j]
        first = beta1 * moments[0, j] + (1.0 - beta1) * g
        second = beta2 * moments[1, j] + (1.0 - beta2) * g * g
        moments[0, j] = first
        moments[1, j] = second
        point[j] -= rate * first / (root * sqrt(second) + ADAM_EPSILON)


@compiled(fastmath=REORDER)
def run_steps(
    Z,
    Y,
    weights,
    order,
    batch_size,
    rates,
    kind,
    numbers,
    mix,
    alpha,
    fit_intercept,
    method,
    beta1,
    beta2,
    point,
    moments,
    total,
):
    """Take one step per batch of `order`, changing `point` and `moments`.

    Parameters
    ----------
    Z, Y, weights : arrays of shape (n, p), (n, d) or (n, 1), and (n,)
        Features (float32 or float64), targets, weights of the rows.
    order : array of int
        The rows, in the order of the visits.
    rates : array of shape (n_steps, 2)
        Length of each step, and the factor of the root of Adam's second moment.
    numbers : array of shape (4, d)
        gam, eps, lo and hi of each output.
    total : array of the size of `point`, or empty
        The points visited are added to it.
    """
    n_mixed = mix.shape[0]
    size = mix.shape[0] * Z.shape[1]
    theta = point[:size].reshape(n_mixed, Z.shape[1])
    intercept = point[size:]
    gradient = np.empty_like(point)
    a = np.empty(mix.shape[1])
    slopes = gradient[:size].reshape(n_mixed, Z.shape[1])
    for t in range(rates.shape[0]):
        _fill_ridge(theta, alpha, slopes)
        gradient[size:] = 0.0
        first = t * batch_size
        last = min(first + batch_size, order.shape[0])
        for position in range(first, last):
            i = order[position]
            scale = -weights[i] / (last - first)
            _predict(Z, i, theta, intercept, mix, a)
            _dual_point(kind, numbers, Y, i, a)
            _add_row(Z, i, mix, a, scale, slopes)
            if fit_intercept:
                for j in range(a.shape[0]):
                    gradient[size + j] += scale * a[j]
        if method == ADAM:
            rate = rates[t, 0]
            root = rates[t, 1]
            _adam_step(point, gradient, moments, rate, root, beta1, beta2)
        else:
            _step(point, gradient, rates[t, 0])
        for j in range(total.shape[0]):
            total[j] += point[j]


@intrinsic
def _prefetch(typing_context, array, i, j):
    """Prefetch the cache line of ``array[i, j]``."""

    def generate(context, builder, signature, arguments):
        array_type = signature.args[0]
        array = context.make_array(array_type)(context, builder, arguments[0])
        place = cgutils.get_item_pointer(
            context, builder, array_type, array, list(arguments[1:])
        )
        byte = ir.IntType(8).as_pointer()
        word = ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [byte, word, word, word])
        prefetch = builder.module.declare_intrinsic("llvm.prefetch", [byte], kind)
        read, keep, data = (ir.Constant(word, code) for code in (0, 3, 1))
        builder.call(prefetch, [builder.bitcast(place, byte), read, keep, data])
        return context.get_dummy_value()

    return types.void(array, i, j), generate


@compiled(fastmath=REORDER, inline="always")
def _fetch_row(Z, i):
    line = _CACHE_LINE // Z.itemsize
    for k in range(0, min(Z.shape[1], _AHEAD_BYTES // Z.itemsize), line):
        _prefetch(Z, i, k)


@compiled(fastmath=REORDER, inline="always")
def _dual_point_of(kind, Z, Y, i, numbers, point, a):
    """Fill `a` (d,) with minus the derivative of the loss of row i."""
    rank = Z.shape[1]
    for j in range(a.shape[0]):
        product = 0.0
        for k in range(rank):
            product += Z[i, k] * point[j, k]
        a[j] = product + point[j, rank]
    _dual_point(kind, numbers, Y, i, a)


@compiled(fastmath=REORDER, inline="always")
def _shrink(point, rate, penalties):
    """Take the step of the penalty; `penalties` may be empty."""
    for j in range(point.shape[0]):
        for k in range(penalties.shape[0]):
            point[j, k] *= 1.0 - rate * penalties[k]


@compiled(fastmath=REORDER, inline="always")
def _add_step(Z, i, a, rate, drift, out):
    """Add the step of one row to `out`."""
    rank = Z.shape[1]
    for j in range(out.shape[0]):
        step = rate * a[j]
        for k in range(rank):
            out[j, k] += step * Z[i, k]
        out[j, rank] += drift * a[j]


@compiled(fastmath=REORDER, inline="always")
def _take_step(point, move):
    """Add `move` and set it to zero."""
    for j in range(point.shape[0]):
        for k in range(point.shape[1]):
            point[j, k] += move[j, k]
            move[j, k] = 0.0


@compiled(fastmath=REORDER)
def run_projected_steps(
    kind, Z, Y, order, batch_size, rates, drifts, penalties, numbers, point, move, total
):
    """Take one step per batch of `order`, changing `point`.

    Parameters
    ----------
    kind : int
        COLUMNS or RADIAL, or MARGIN or LOGISTIC for labels -1 and 1.
    Z, Y : arrays of shape (n, r) and (n, d)
        Features (float32 or float64) and targets.
    order : array of int
        The rows, in the order of the visits.
    rates : array of shape (n_steps,)
        Length of each step.
    drifts : array of shape (n_steps,)
        Length of each step of the intercept; 0 without one.
    penalties : array of shape (r,) or (0,)
        Penalty of each coefficient, ``penalties[k] / 2`` times its square; empty for
        none.
    numbers : array of shape (4, d)
        gam, eps, lo and hi of each output.
    point, move : arrays of shape (d, r + 1)
        The point, and a buffer that is zero before and after.
    total : array of the shape of `point`, or (0, 0)
        The points visited are added to it.
    """
    a = np.empty(point.shape[0])
    # A step of one row needs no buffer.
    target = point if batch_size == 1 else move
    for t in range(rates.shape[0]):
        first = t * batch_size
        last = min(first + batch_size, order.shape[0])
        share = 1.0 / (last - first)
        for position in range(first, last):
            if position + _AHEAD < order.shape[0]:
                _fetch_row(Z, order[position + _AHEAD])
            i = order[position]
            _dual_point_of(kind, Z, Y, i, numbers, point, a)
            if position == last - 1:
                _shrink(point, rates[t], penalties)
            _add_step(Z, i, a, share * rates[t], share * drifts[t], target)
        if batch_size > 1:
            _take_step(point, move)
        for j in range(total.shape[0]):
            for k in range(total.shape[1]):
                total[j, k] += point[j, k]
