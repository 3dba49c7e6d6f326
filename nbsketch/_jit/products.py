"""Products with a row-major matrix of floats that accumulate in double precision.

BLAS has no product of a float32 matrix with a float64 vector, and a product that is
float32 throughout is too coarse to certify a solution. Nor is a matrix with few
columns, too large for the cache, what BLAS is made for: these loops are up to twice as
fast.
"""

from typing import Any

from nbsketch._jit.compiler import REORDER, compiled


@compiled(fastmath=REORDER)
def row_products(Z: Any, w: Any, out: Any) -> None:
    """Fill `out` (n,) with ``Z w``."""
    for i in range(Z.shape[0]):
        total = 0.0
        for j in range(Z.shape[1]):
            total += Z[i, j] * w[j]
        out[i] = total


@compiled(fastmath=REORDER)
def add_combination(Z: Any, rows: Any, a: Any, out: Any) -> None:
    """Add ``sum_k a[k] Z[rows[k]]`` to `out` (r,), four rows at a time."""
    count = rows.shape[0]
    whole = count - count % 4
    for k in range(0, whole, 4):
        i0, i1, i2, i3 = rows[k], rows[k + 1], rows[k + 2], rows[k + 3]
        a0, a1, a2, a3 = a[k], a[k + 1], a[k + 2], a[k + 3]
        for j in range(Z.shape[1]):
            out[j] += a0 * Z[i0, j] + a1 * Z[i1, j] + a2 * Z[i2, j] + a3 * Z[i3, j]
    for k in range(whole, count):
        for j in range(Z.shape[1]):
            out[j] += a[k] * Z[rows[k], j]


@compiled(fastmath=REORDER)
def add_all(Z: Any, a: Any, out: Any) -> None:
    """Add ``Z^T a`` to `out` (r,).

    One row at a time: a single stream through memory is twice as fast as four.
    """
    for i in range(Z.shape[0]):
        for j in range(Z.shape[1]):
            out[j] += a[i] * Z[i, j]
