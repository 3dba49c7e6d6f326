"""Rows of the Walsh-Hadamard transform of a stream of tiles.

``H[i, j] = (-1)^popcount(i & j)``. The index j is split into a block u and a position
v, and i likewise: the transform within each block runs in cache, two levels at a time,
and an output adds one row of each transformed block, with the sign of its block. No
array of the length of the complete transform is stored.
"""

import numpy as np

from nbsketch._jit.compiler import compiled

# Columns of a tile transformed together: enough for vectors, and with 256 rows within
# the L2 cache.
_STRIP = 120


@compiled()
def _load(tile, signs, start, buffer):
    """Write a strip times its signs, transformed within groups of four rows."""
    for i in range(0, buffer.shape[0], 4):
        s0 = signs[i]
        s1 = signs[i + 1]
        s2 = signs[i + 2]
        s3 = signs[i + 3]
        for k in range(buffer.shape[1]):
            a = s0 * tile[i, start + k]
            b = s1 * tile[i + 1, start + k]
            c = s2 * tile[i + 2, start + k]
            d = s3 * tile[i + 3, start + k]
            buffer[i, k] = a + b + (c + d)
            buffer[i + 1, k] = a - b + (c - d)
            buffer[i + 2, k] = a + b - (c + d)
            buffer[i + 3, k] = a - b - (c - d)


@compiled()
def _two_levels(a, b, c, d):
    for k in range(a.size):
        first = a[k] + b[k]
        second = a[k] - b[k]
        third = c[k] + d[k]
        fourth = c[k] - d[k]
        a[k] = first + third
        b[k] = second + fourth
        c[k] = first - third
        d[k] = second - fourth


@compiled()
def _one_level(a, b):
    for k in range(a.size):
        a[k], b[k] = a[k] + b[k], a[k] - b[k]


@compiled()
def _transform(buffer):
    """Apply the other levels along the first axis, of a power of two, in place."""
    flat = buffer.reshape(buffer.size)
    size = buffer.size
    span = 4 * buffer.shape[1]
    while 4 * span <= size:
        for i in range(0, size, 4 * span):
            parts = flat[i : i + 4 * span].reshape(4, span)
            _two_levels(parts[0], parts[1], parts[2], parts[3])
        span *= 4
    if 2 * span == size:
        _one_level(flat[:span], flat[span:])


@compiled()
def _odd(number):
    """Return whether the number has an odd number of bits."""
    for shift in (32, 16, 8, 4, 2, 1):
        number ^= number >> shift
    return number & 1


@compiled()
def _add(weight, values, target):
    for k in range(target.size):
        target[k] += weight * values[k]


@compiled()
def add_hadamard(tile, signs, block, first, chosen, scale, out):
    """Add ``scale H[chosen, first : first + m] diag(signs) tile`` to `out` (s, w).

    `block`, a power of two from 4 on, divides `first` and the length m of `tile`.
    `signs` and `scale` have the dtype of `tile`.
    """
    scratch = np.empty(block * min(_STRIP, tile.shape[1]), tile.dtype)
    for start in range(0, tile.shape[1], _STRIP):
        width = min(_STRIP, tile.shape[1] - start)
        buffer = scratch[: block * width].reshape(block, width)
        for row in range(0, tile.shape[0], block):
            _load(tile[row : row + block], signs[row : row + block], start, buffer)
            _transform(buffer)
            place = (first + row) // block
            for i in range(chosen.size):
                weight = -scale if _odd(chosen[i] // block & place) else scale
                values = buffer[chosen[i] % block]
                _add(weight, values, out[i, start : start + width])
