"""Kernel values and their slopes in the distance, in one pass.

With D the squared distance of two scaled rows, the kernel is phi(D) and its slope is
phi'(D); for the Laplacian kernel D is the sum of absolute differences. One simple loop
serves all families, so that it vectorizes and is compiled once: e^-u is a Taylor
polynomial times 2^k.
"""

from math import factorial, inf, log, sqrt

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from nbsketch._jit.compiler import REORDER, compiled

GAUSSIAN, MATERN_12, MATERN_32, MATERN_52, LAPLACIAN = range(5)
FAMILIES = {
    "gaussian": GAUSSIAN,
    "matern-1/2": MATERN_12,
    "matern-3/2": MATERN_32,
    "matern-5/2": MATERN_52,
    "laplacian": LAPLACIAN,
}
# Whether u is the square root of f D or f D itself, and f, a, b, c, d, g, h of each
# family: kernels are (1 + u (a + u / b)) e^-u, slopes c (1 + d u) e^-u / max(g u, h).
PROFILES = (
    (False, 0.5, 0.0, inf, -0.5, 0.0, 0.0, 1.0),
    # Singular at 0, where the squared differences it multiplies vanish.
    (True, 1.0, 0.0, inf, -0.5, 0.0, 1.0, 1e-8),
    (True, 3.0, 1.0, inf, -1.5, 0.0, 0.0, 1.0),
    (True, 5.0, 1.0, 3.0, -5 / 6, 1.0, 0.0, 1.0),
    (False, 1.0, 0.0, inf, -1.0, 0.0, 0.0, 1.0),
)
# Number of rows per tile of absolute differences.
TILE = 64
# Rows and columns of sums in registers.
SIDE = 8

_LOG2E = 1 / log(2)
_LN2 = log(2)
# Coefficients of e^-z: for |z| <= log(2) / 2 the remainder is below rounding.
_TAYLOR = np.array([(-1) ** k / factorial(k) for k in range(13, -1, -1)])
# Adding this rounds to an integer, left in the lowest bits.
_MAGIC = 1.5 * 2.0**52
_HIGHEST = 1022.0


@intrinsic
def _power(typingctx, shifted):
    """Return 2^k, for the integer k in the lowest bits of a number."""

    def codegen(context, builder, signature, args):
        integer = ir.IntType(64)
        bits = builder.shl(builder.bitcast(args[0], integer), integer(52))
        bits = builder.add(bits, integer(1023 << 52))
        return builder.bitcast(bits, args[0].type)

    return types.float64(types.float64), codegen


@compiled()
def kernel_and_slope(profile, row_norms, column_norms, values, slopes, triangle):
    """Convert inner products to kernel values, in place, and fill the slopes.

    `profile` is one of `PROFILES`. `triangle`: only the lower triangles of square
    blocks, one below the other.
    """
    root, f, a, b, c, d, g, h = profile
    n = values.shape[1]
    for i in range(values.shape[0]):
        for j in range(i % n + 1 if triangle else n):
            square = row_norms[i] + column_norms[j] - 2.0 * values[i, j]
            u = f * (0.0 if square < 0.0 else square)
            u = sqrt(u) if root else u
            x = u * _LOG2E
            x = _HIGHEST if x > _HIGHEST else x
            shifted = _MAGIC - x
            z = (x + (shifted - _MAGIC)) * _LN2
            e = _TAYLOR[0]
            for k in range(1, 14):
                e = e * z + _TAYLOR[k]
            e *= _power(shifted)
            values[i, j] = (1.0 + u * (a + u / b)) * e
            slopes[i, j] = c * (1.0 + d * u) * e / (g * u if g * u > h else h)


@compiled()
def distances(is_l1, rows, columns, out, height, triangle, first, last):
    """Fill `out` (n, c) with minus half the distances D, as inner products of rows.

    A tile has `height` rows of `rows` (n, q); columns[tile] (q, c), or the only one,
    has the others. `triangle`: only the lower triangle of each tile.
    """
    for tile in range(first, last):
        block = tile if tile < columns.shape[0] else 0
        for i in range(tile * height, min((tile + 1) * height, rows.shape[0])):
            n = i - tile * height + 1 if triangle else out.shape[1]
            for j in range(n):
                out[i, j] = 0.0
            for k in range(rows.shape[1]):
                for j in range(n):
                    d = rows[i, k] - columns[block, k, j]
                    half = -0.5 if d > 0.0 else 0.5
                    out[i, j] += d * (half if is_l1 else -0.5 * d)


@compiled(fastmath=REORDER)
def weighted_distances(is_l1, rows, columns, W, out, height, triangle, first, last):
    """Add to out[t, k] the sum over tile t of W times the distances in column k.

    Tiles are as for `distances`; `triangle`: what is below their diagonals.
    """
    for tile in range(first, last):
        block = tile if tile < columns.shape[0] else 0
        for i in range(tile * height, min((tile + 1) * height, rows.shape[0])):
            for k in range(rows.shape[1]):
                total = 0.0
                for j in range(i - tile * height if triangle else W.shape[1]):
                    d = rows[i, k] - columns[block, k, j]
                    w = W[i, j]
                    total += (w if is_l1 else w * d) * (abs(d) if is_l1 else d)
                out[tile, k] += total


@compiled()
def signed_sums(rows, columns, W, out):
    """Fill out[i, k] with the sum over j of W_ij sign(x_ik - l_jk)."""
    for i in range(rows.shape[0]):
        for k in range(rows.shape[1]):
            total = 0.0
            a = rows[i, k]
            for j in range(columns.shape[1]):
                b = columns[k, j]
                total += W[i, j] * ((a > b) - (a < b))
            out[i, k] = total


@intrinsic
def _add_products(typingctx, left, right, out, i, j):
    """Add left[:, i : i + 8]^T right[:, j : j + 8] to out[i : i + 8, j : j + 8].

    The sums stay in registers; a compiled loop would store them in each step, because
    its arrays may overlap.
    """

    def codegen(context, builder, signature, args):
        vector = ir.VectorType(ir.DoubleType(), SIDE)
        kinds = signature.args
        *arrays, i, j = args
        views = [
            context.make_array(kind)(context, builder, array)
            for kind, array in zip(kinds, arrays, strict=False)
        ]

        def place(k, *index):
            at = cgutils.get_item_pointer(context, builder, kinds[k], views[k], index)
            return builder.bitcast(at, vector.as_pointer())

        ends = [place(2, builder.add(i, i.type(r)), j) for r in range(SIDE)]
        first = [builder.load(end, align=8) for end in ends]
        sums = [cgutils.alloca_once_value(builder, value) for value in first]
        count = builder.extract_value(views[0].shape, 0)
        with cgutils.for_range(builder, count) as loop:
            a = builder.load(place(0, loop.index, i), align=8)
            b = builder.load(place(1, loop.index, j), align=8)
            for r, total in enumerate(sums):
                lanes = ir.VectorType(ir.IntType(32), SIDE)([r] * SIDE)
                factor = builder.shuffle_vector(a, a, lanes)
                term = builder.fmul(factor, b, flags=["contract"])
                term = builder.fadd(builder.load(total), term, flags=["contract"])
                builder.store(term, total)
        for end, total in zip(ends, sums, strict=True):
            builder.store(builder.load(total), end, align=8)
        return context.get_dummy_value()

    return types.void(left, right, out, i, j), codegen


@compiled()
def invert(A, noise, log_dets, B, rows, scaled, first, last):
    """Invert A + 1 1^T + diag(noise) in place; fill logarithms of determinants.

    `A` is (b, n, n); lower triangles are read. If a matrix is not positive definite,
    the logarithm is not finite. Sweeps turn minus a matrix into its inverse, eight
    pivots at a time, in B (m, m), where m is the next multiple of eight; `rows` and
    `scaled` are (8, m).
    """
    n = A.shape[1]
    m = len(B)
    for t in range(first, last):
        for i in range(m):
            for j in range(i + 1):
                B[i, j] = -1.0 - A[t, i, j] if i < n else 0.0
            B[i, i] -= noise[t, i] if i < n else 1.0
        total = 0.0
        for k in range(0, m, SIDE):
            for i in range(m):
                for p in range(SIDE):
                    rows[p, i] = B[k + p, i] if i < k + p else B[i, k + p]
            for p in range(SIDE):
                pivot = -rows[p, k + p]
                total += log(pivot)
                scale = 1.0 / sqrt(pivot)
                for i in range(m):
                    scaled[p, i] = rows[p, i] * scale
                    rows[p, i] = 0.0
                for q in range(SIDE):
                    factor = scaled[p, k + q] if q != p else scale
                    for i in range(m):
                        rows[q, i] += factor * scaled[p, i]
                    rows[q, k + p] = factor * scale
            for i in range(0, m, SIDE):
                for j in range(0, i + 1, SIDE):
                    _add_products(scaled, scaled, B, i, j)
            for i in range(m):
                for p in range(SIDE):
                    if i < k + p:
                        B[k + p, i] = rows[p, i]
                    else:
                        B[i, k + p] = rows[p, i]
        for i in range(n):
            for j in range(i + 1):
                A[t, i, j] = B[i, j]
                A[t, j, i] = B[i, j]
        log_dets[t] = total


@compiled()
def multiply_slopes(
    noise, v, product, A, share, left, right, slopes, out, P, B, W, first, last
):
    """Multiply slopes (b, c, c) below the diagonals, in place, by 2 W.

    W = A diag(v) product + share A - left^T right - right^T left is symmetric; `left`
    and `right` are (b, d, c). Add the sums of noise times its diagonals to out[:, -1].
    P, B and W are zero matrices of as many rows, up to a multiple of eight.
    """
    c = A.shape[1]
    for t in range(first, last):
        for i in range(c):
            for j in range(c):
                P[i, j] = v[t, i] * product[t, i, j]
                B[i, j] = A[t, i, j]
                W[i, j] = share * A[t, i, j]
        for i in range(0, c, SIDE):
            for j in range(0, i + 1, SIDE):
                _add_products(B, P, W, i, j)
        for i in range(c):
            for k in range(left.shape[1]):
                for j in range(i + 1):
                    W[i, j] -= (
                        left[t, k, i] * right[t, k, j] + right[t, k, i] * left[t, k, j]
                    )
            out[t, -1] += noise[t, i] * W[i, i]
            for j in range(i):
                slopes[t, i, j] *= 2.0 * W[i, j]
