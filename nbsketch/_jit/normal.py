"""The product Z^T W Z v with a row-major matrix, in one pass over its memory.

Four rows at a time stay in the cache between the two products. Sums are float64. Rows
are cut into a fixed number of parts, each with its own sum, so that the result
does not depend on the number of threads.
"""

from numba import prange

from nbsketch._jit.compiler import REORDER, compiled

# Sums of rows that are made side by side.
PARTS = 16


@compiled(fastmath=REORDER)
def _add_four(z0, z1, z2, z3, v, w0, w1, w2, w3, out):
    t0 = t1 = t2 = t3 = 0.0
    for j in range(v.size):
        t0 += v[j] * z0[j]
        t1 += v[j] * z1[j]
        t2 += v[j] * z2[j]
        t3 += v[j] * z3[j]
    t0, t1, t2, t3 = w0 * t0, w1 * t1, w2 * t2, w3 * t3
    for j in range(v.size):
        out[j] += (t0 * z0[j] + t1 * z1[j]) + (t2 * z2[j] + t3 * z3[j])


@compiled()
def _add_part(Z, V, weights, out, part):
    """Add the rows of one part to out[part] (d, s)."""
    quads = (Z.shape[0] + 3) // 4
    last = Z.shape[0] - 1
    for quad in range(part * quads // PARTS, (part + 1) * quads // PARTS):
        i = 4 * quad
        # Rows beyond the last one count nothing.
        i1, i2, i3 = min(i + 1, last), min(i + 2, last), min(i + 3, last)
        w1 = weights[i1] if i1 > i else 0.0
        w2 = weights[i2] if i2 > i1 else 0.0
        w3 = weights[i3] if i3 > i2 else 0.0
        for c in range(V.shape[0]):
            _add_four(
                Z[i], Z[i1], Z[i2], Z[i3], V[c],
                weights[i], w1, w2, w3, out[part, c],
            )  # fmt: skip


@compiled()
def add_normal_serial(Z, V, weights, out, first, last):
    """Add V Z^T W Z to `out` (PARTS, d, s), for V (d, s) and weights (n,)."""
    for part in range(first, last):
        _add_part(Z, V, weights, out, part)


@compiled(parallel=True)
def add_normal_parallel(Z, V, weights, out, first, last):
    """Do what `add_normal_serial` does, on numba's threads and to the same bits."""
    for part in prange(first, last):
        _add_part(Z, V, weights, out, part)
