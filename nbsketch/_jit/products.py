"""Products with a row-major float matrix, accumulated in double precision.

BLAS has no product of a float32 matrix with a float64 vector, and a float32 product is
too coarse to certify a solution. BLAS is also not optimized for matrices with few
columns that exceed the cache: these loops are up to twice as fast.

Also the product Z^T W Z v with a row-major matrix, in one pass over its memory.

Four rows at a time stay in the cache between the two products; rows of weight zero are
skipped. Sums are float64. Rows are divided into a fixed number of parts, each with its
own sum, so that the result does not depend on the number of threads.
"""

import numpy as np

from nbsketch._jit import threads
from nbsketch._jit.compiler import REORDER, compiled, empty
from nbsketch._jit.threads import in_parallel

# Number of parts whose sums are computed in parallel.
PARTS = 16


@compiled(fastmath=REORDER)
def row_products(Z, w, out):
    """Fill `out` (n,) with ``Z w``."""
    for i in range(Z.shape[0]):
        total = 0.0
        for j in range(Z.shape[1]):
            total += Z[i, j] * w[j]
        out[i] = total


@compiled(fastmath=REORDER)
def add_combination(Z, rows, a, out):
    """Add ``sum_k a[k] Z[rows[k]]`` to `out` (r,), four rows at a time."""
    count = rows.shape[0]
    whole = count - count % 4
    for k in range(0, whole, 4):
        i0 = rows[k]
        i1 = rows[k + 1]
        i2 = rows[k + 2]
        i3 = rows[k + 3]
        a0 = a[k]
        a1 = a[k + 1]
        a2 = a[k + 2]
        a3 = a[k + 3]
        for j in range(Z.shape[1]):
            out[j] += a0 * Z[i0, j] + a1 * Z[i1, j] + a2 * Z[i2, j] + a3 * Z[i3, j]
    for k in range(whole, count):
        for j in range(Z.shape[1]):
            out[j] += a[k] * Z[rows[k], j]


@compiled(fastmath=REORDER)
def add_all(Z, a, out):
    """Add ``Z^T a`` to `out` (r,).

    One row at a time: a single stream through memory is twice as fast as four.
    """
    for i in range(Z.shape[0]):
        for j in range(Z.shape[1]):
            out[j] += a[i] * Z[i, j]


@compiled(fastmath=REORDER)
def products_of_few(Z, W, out):
    """Fill `out` (n, d) with ``Z W^T`` for W of shape (d, r), two by two."""
    (n, r), d = Z.shape, W.shape[0]
    for i in range(0, n - n % 2, 2):
        for c in range(0, d - d % 2, 2):
            t00 = 0.0
            t01 = 0.0
            t10 = 0.0
            t11 = 0.0
            for j in range(r):
                x = Z[i, j]
                y = Z[i + 1, j]
                u = W[c, j]
                v = W[c + 1, j]
                t00 += x * u
                t01 += x * v
                t10 += y * u
                t11 += y * v
            out[i, c] = t00
            out[i, c + 1] = t01
            out[i + 1, c] = t10
            out[i + 1, c + 1] = t11
        for c in range(d - d % 2, d):
            t00 = 0.0
            t10 = 0.0
            for j in range(r):
                t00 += Z[i, j] * W[c, j]
                t10 += Z[i + 1, j] * W[c, j]
            out[i, c] = t00
            out[i + 1, c] = t10
    for i in range(n - n % 2, n):
        for c in range(d):
            t00 = 0.0
            for j in range(r):
                t00 += Z[i, j] * W[c, j]
            out[i, c] = t00


@compiled(fastmath=REORDER)
def add_few_combinations(Z, A, out):
    """Add ``A^T Z`` to `out` (d, r) for A of shape (n, d), eight rows at a time."""
    (n, r), d = Z.shape, A.shape[1]
    for i in range(0, n - n % 8, 8):
        for c in range(d):
            a0 = A[i, c]
            a1 = A[i + 1, c]
            a2 = A[i + 2, c]
            a3 = A[i + 3, c]
            a4 = A[i + 4, c]
            a5 = A[i + 5, c]
            a6 = A[i + 6, c]
            a7 = A[i + 7, c]
            for j in range(r):
                first = a0 * Z[i, j] + a1 * Z[i + 1, j]
                second = a2 * Z[i + 2, j] + a3 * Z[i + 3, j]
                third = a4 * Z[i + 4, j] + a5 * Z[i + 5, j]
                fourth = a6 * Z[i + 6, j] + a7 * Z[i + 7, j]
                out[c, j] += (first + second) + (third + fourth)
    for i in range(n - n % 8, n):
        for c in range(d):
            for j in range(r):
                out[c, j] += A[i, c] * Z[i, j]


@compiled(fastmath=REORDER)
def _add_four(Z, rows, shares, V, c, out, part):
    i0 = rows[0]
    i1 = rows[1]
    i2 = rows[2]
    i3 = rows[3]
    t0 = t1 = t2 = t3 = 0.0
    for j in range(V.shape[1]):
        t0 += V[c, j] * Z[i0, j]
        t1 += V[c, j] * Z[i1, j]
        t2 += V[c, j] * Z[i2, j]
        t3 += V[c, j] * Z[i3, j]
    t0 = shares[0] * t0
    t1 = shares[1] * t1
    t2 = shares[2] * t2
    t3 = shares[3] * t3
    for j in range(V.shape[1]):
        out[part, c, j] += (t0 * Z[i0, j] + t1 * Z[i1, j]) + (
            t2 * Z[i2, j] + t3 * Z[i3, j]
        )


@compiled(sources=(threads.__file__,))
def add_normal(Z, V, weights, out, first, last, together, loop):
    """Add V Z^T W Z to `out` (PARTS, d, s), for V (d, s) and weights (n,).

    Four rows of nonzero weight at a time; the last ones are completed by rows that are
    ignored. Slices of arrays would take 0.1 s to compile.
    """
    if loop:
        in_parallel()
        return
    n = Z.shape[0]
    rows = empty(4, np.intp)
    shares = empty(4, np.float64)
    for part in range(first, last):
        end = (part + 1) * n // PARTS
        count = 0
        for i in range(part * n // PARTS, end):
            if weights[i] != 0.0:
                rows[count] = i
                shares[count] = weights[i]
                count += 1
            if count == 4 or (count > 0 and i == end - 1):
                for k in range(count, 4):
                    rows[k] = rows[0]
                    shares[k] = 0.0
                for c in range(V.shape[0]):
                    _add_four(Z, rows, shares, V, c, out, part)
                count = 0
