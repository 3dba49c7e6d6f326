"""Kernel values and their slopes in the distance, in one pass.

With D the squared distance of two scaled rows, the kernel is phi(D) and its slope is
phi'(D); for the Laplacian kernel D is the sum of absolute differences. The loops over
short rows are plain, so that they vectorize: e^-u is 2^k times a Taylor polynomial, and
2^k is written to the bits of the array of slopes.
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
# Rows that one call of a compiled function on absolute differences handles in a piece.
TILE = 64

_LOG2E = 1 / math.log(2)
_LN2 = math.log(2)
# Coefficients of e^-z: for |z| <= log(2) / 2 the rest is below rounding.
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
def kernel_and_slope(
    family: int,
    row_norms: Any,
    column_norms: Any,
    values: Any,
    slopes: Any,
    bits: Any,
    u: Any,
) -> None:
    """Turn inner products of rows into kernel values, in place, and fill the slopes.

    `bits` are the slopes as integers; `u` is scratch, one number for each column. Both
    would take .4 s to compile here.
    """
    n = u.size
    for i in range(row_norms.size):
        for j in range(n):
            square = row_norms[i] + column_norms[j] - 2.0 * values[i, j]
            u[j] = max(square, 0.0)
        if family == GAUSSIAN:
            for j in range(n):
                u[j] *= 0.5
        else:
            factor = 1.0 if family == MATERN_12 else 3.0
            factor = 5.0 if family == MATERN_52 else factor
            for j in range(n):
                u[j] = math.sqrt(factor * u[j])
        _exponential(u, bits[i], slopes[i], values[i])
        _profile(family, u, values[i], slopes[i])


@compiled()
def _profile(family: int, u: Any, values: Any, slopes: Any) -> None:
    """Turn e^-u into the kernel and its slope."""
    for j in range(u.size):
        e = values[j]
        v = u[j]
        if family == GAUSSIAN:
            slopes[j] = -0.5 * e
        elif family == MATERN_12:
            # Singular at 0, where the squared differences it multiplies vanish.
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
            for j in range(u.size):
                slopes[i, j] = -values[i, j]


@compiled(fastmath=REORDER)
def _weighted_distance(a: float, column: Any, weights: Any) -> float:
    """Return sum_j w_j |a - b_j|."""
    total = 0.0
    for j in range(column.size):
        total += weights[j] * abs(a - column[j])
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
