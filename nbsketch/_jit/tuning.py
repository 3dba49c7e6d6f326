"""Kernel values and their slopes in the distance, in one pass.

With D the squared distance of two scaled rows, the kernel is phi(D) and its slope is
phi'(D); for the Laplacian kernel D is the sum of absolute differences. The loops over
short rows are simple, so that they vectorize: e^-u is 2^k times a Taylor polynomial,
and 2^k is written to the bits of the array of slopes.
"""

import math
from typing import Any

import numpy as np

from nbsketch._jit.compiler import REORDER, compiled

GAUSSIAN, MATERN_12, MATERN_32, MATERN_52, LAPLACIAN = range(5)
FAMILIES = {
    "gaussian": GAUSSIAN,
    "matern-1/2": MATERN_12,
    "matern-3/2": MATERN_32,
    "matern-5/2": MATERN_52,
    "laplacian": LAPLACIAN,
}
# Number of rows per call of a compiled function of absolute differences.
TILE = 64

_LOG2E = 1 / math.log(2)
_LN2 = math.log(2)
# Coefficients of e^-z: for |z| <= log(2) / 2 the remainder is below rounding.
_TAYLOR = tuple((-1) ** k / math.factorial(k) for k in range(13, -1, -1))
# Adding this rounds to an integer, left in the lowest bits.
_MAGIC = 1.5 * 2.0**52
_HIGHEST = 1022.0
_BIAS = 1023 << 52


@compiled(inline="always")
def _exponential(u: Any, bits: Any, scale: Any, out: Any) -> None:
    """Fill `out` with e^-u, u >= 0; `scale` is scratch and `bits` the same memory."""
    for j in range(u.size):
        x = min(u[j] * _LOG2E, _HIGHEST)
        shifted = _MAGIC - x
        scale[j] = shifted
        z = (x + (shifted - _MAGIC)) * _LN2
        value = _TAYLOR[0]
        for k in range(1, 14):
            value = value * z + _TAYLOR[k]
        out[j] = value
    for j in range(u.size):
        bits[j] = (bits[j] << 52) + _BIAS
    for j in range(u.size):
        out[j] *= scale[j]


@compiled()
def _exponent(family: int, u: Any) -> None:
    """Replace distances D, in place, by the u of the kernel's e^-u."""
    if family == GAUSSIAN:
        for j in range(u.size):
            u[j] *= 0.5
    elif family != LAPLACIAN:
        factor = 1.0 if family == MATERN_12 else 3.0
        factor = 5.0 if family == MATERN_52 else factor
        for j in range(u.size):
            u[j] = math.sqrt(factor * u[j])


@compiled()
def kernel_and_slope(
    family: int,
    row_norms: Any,
    column_norms: Any,
    values: Any,
    slopes: Any,
    bits: Any,
    u: Any,
) -> None:
    """Convert inner products to kernel values, in place, and fill the slopes.

    `bits` are the slopes as integers; `u` is a buffer, one number per column. Both
    would take 0.4 s to compile here.
    """
    n = u.size
    for i in range(row_norms.size):
        for j in range(n):
            square = row_norms[i] + column_norms[j] - 2.0 * values[i, j]
            u[j] = max(square, 0.0)
        _exponent(family, u)
        _exponential(u, bits[i], slopes[i], values[i])
        _profile(family, u, values[i], slopes[i])


@compiled()
def _profile(family: int, u: Any, values: Any, slopes: Any) -> None:
    """Convert e^-u to the kernel and its slope."""
    for j in range(u.size):
        e = values[j]
        v = u[j]
        if family == GAUSSIAN:
            slopes[j] = -0.5 * e
        elif family == LAPLACIAN:
            slopes[j] = -e
        elif family == MATERN_12:
            # Singular at 0, where the squared differences it multiplies are zero.
            slopes[j] = -0.5 * e / max(v, 1e-8)
        elif family == MATERN_32:
            values[j] = (1.0 + v) * e
            slopes[j] = -1.5 * e
        else:
            values[j] = (1.0 + v * (1.0 + v / 3.0)) * e
            slopes[j] = -5.0 / 6.0 * (1.0 + v) * e


@compiled()
def laplacian(
    rows: Any, columns: Any, values: Any, slopes: Any, bits: Any, first: int, last: int
) -> None:
    """Fill the values of the Laplacian kernel, and the slopes: minus the values.

    `rows` is (m, q), `columns` (q, l) the landmarks; tiles of rows are independent.
    `bits` are the slopes as integers.
    """
    for tile in range(first, last):
        u = np.empty(columns.shape[1])
        for i in range(tile * TILE, min((tile + 1) * TILE, rows.shape[0])):
            u[:] = 0.0
            for k in range(rows.shape[1]):
                a = rows[i, k]
                for j in range(u.size):
                    u[j] += abs(a - columns[k, j])
            _exponential(u, bits[i], slopes[i], values[i])
            _profile(LAPLACIAN, u, values[i], slopes[i])


@compiled(fastmath=REORDER)
def _weighted_distance(a: float, column: Any, weights: Any) -> float:
    """Return sum_j w_j |a - b_j|."""
    total = 0.0
    for j in range(weights.size):
        total += weights[j] * abs(a - column[j])
    return total


@compiled(fastmath=REORDER)
def _weighted_square(a: float, column: Any, weights: Any) -> float:
    """Return sum_j w_j (a - b_j)^2."""
    total = 0.0
    for j in range(weights.size):
        d = a - column[j]
        total += weights[j] * d * d
    return total


@compiled()
def weighted_distances(
    rows: Any, columns: Any, W: Any, out: Any, first: int, last: int
) -> None:
    """Fill out[t, k] with the sum over the rows of tile t of W_ij |x_ik - l_jk|."""
    for tile in range(first, last):
        out[tile] = 0.0
        for i in range(tile * TILE, min((tile + 1) * TILE, rows.shape[0])):
            for k in range(rows.shape[1]):
                out[tile, k] += _weighted_distance(rows[i, k], columns[k], W[i])


@compiled()
def signed_sums(rows: Any, columns: Any, W: Any, out: Any) -> None:
    """Fill out[i, k] with the sum over j of W_ij sign(x_ik - l_jk)."""
    for i in range(rows.shape[0]):
        for k in range(rows.shape[1]):
            total = 0.0
            a = rows[i, k]
            for j in range(columns.shape[1]):
                b = columns[k, j]
                total += W[i, j] * ((a > b) - (a < b))
            out[i, k] = total


@compiled()
def _add_row(is_l1: bool, columns: Any, i: int, u: Any) -> None:
    """Add the distances of row i of a block (p, c) from its first rows to u."""
    for k in range(columns.shape[0]):
        a = columns[k, i]
        column = columns[k]
        if is_l1:
            for j in range(u.size):
                u[j] += abs(a - column[j])
        else:
            for j in range(u.size):
                d = a - column[j]
                u[j] += d * d


@compiled()
def _invert(A: Any, v: Any) -> float:
    """Invert a positive definite matrix by sweeps; return the log of its determinant.

    Its lower triangle is read. NaN if it is not positive definite.
    """
    total = 0.0
    n = v.size
    for k in range(n):
        for i in range(n):
            v[i] = A[max(i, k), min(i, k)]
        pivot = v[k]
        if not pivot > 0.0:
            return np.nan
        total += math.log(pivot)
        for i in range(n):
            factor = v[i] / pivot
            for j in range(i + 1):
                A[i, j] -= factor * v[j]
        for i in range(n):
            A[max(i, k), min(i, k)] = v[i] / pivot
        A[k, k] = -1.0 / pivot
    for i in range(n):
        for j in range(i + 1):
            A[i, j] = -A[i, j]
            A[j, i] = A[i, j]
    return total


@compiled()
def block_inverses(
    family: int,
    rows: Any,
    noise: Any,
    A: Any,
    slopes: Any,
    bits: Any,
    log_dets: Any,
    first: int,
    last: int,
) -> None:
    """Fill inverses of the covariances K + 1 1^T + diag(noise) of blocks of rows.

    `rows` (b, p, c) are scaled. `A` and `slopes` are (b, c, c), `bits` the slopes as
    integers; slopes are filled below the diagonal.
    """
    c = rows.shape[2]
    scratch = np.empty(c)
    for t in range(first, last):
        for i in range(c):
            u = scratch[: i + 1]
            u[:] = 0.0
            _add_row(family == LAPLACIAN, rows[t], i, u)
            values = A[t, i, : i + 1]
            s = slopes[t, i, : i + 1]
            _exponent(family, u)
            _exponential(u, bits[t, i, : i + 1], s, values)
            _profile(family, u, values, s)
            for j in range(u.size):
                values[j] += 1.0
            values[i] += noise[t, i]
        log_dets[t] = _invert(A[t], scratch)


@compiled(inline="always")
def _add_slopes(is_l1: bool, columns: Any, i: int, w: Any, out: Any) -> None:
    """Add to out[k] the sum over j of w_j times the distance of column k."""
    for k in range(columns.shape[0]):
        if is_l1:
            out[k] += _weighted_distance(columns[k, i], columns[k], w)
        else:
            out[k] += _weighted_square(columns[k, i], columns[k], w)


@compiled(inline="always")
def _add_product(a: Any, B: Any, w: Any) -> None:
    """Add the first entries of the row a B to w, four rows of B at a time."""
    last = a.size - a.size % 4
    for k in range(0, last, 4):
        for j in range(w.size):
            w[j] += a[k] * B[k, j] + a[k + 1] * B[k + 1, j]
            w[j] += a[k + 2] * B[k + 2, j] + a[k + 3] * B[k + 3, j]
    for k in range(last, a.size):
        for j in range(w.size):
            w[j] += a[k] * B[k, j]


@compiled()
def block_slopes(
    family: int,
    rows: Any,
    noise: Any,
    product: Any,
    A: Any,
    share: float,
    left: Any,
    right: Any,
    slopes: Any,
    out: Any,
    first: int,
    last: int,
) -> None:
    """Fill out (b, p + 1) with sums of W times derivatives of covariances.

    W = product A + share A - (left^T right + right^T left) / 2 is symmetric; `left` and
    `right` are (b, d, c). The derivatives are with respect to the scale of each column,
    with distances along it from `rows` (b, p, c), and to the logarithm of the noise.
    """
    c = rows.shape[2]
    scratch = np.empty(c)
    for t in range(first, last):
        out[t] = 0.0
        for i in range(c):
            w = scratch[: i + 1]
            for j in range(i + 1):
                w[j] = share * A[t, i, j]
            for k in range(left.shape[1]):
                a = left[t, k, i] / 2.0
                b = right[t, k, i] / 2.0
                for j in range(i + 1):
                    w[j] -= a * right[t, k, j] + b * left[t, k, j]
            _add_product(product[t, i], A[t], w)
            out[t, -1] += noise[t, i] * w[i]
            for j in range(i):
                w[j] *= 2.0 * slopes[t, i, j]
            _add_slopes(family == LAPLACIAN, rows[t], i, scratch[:i], out[t])
