"""Random numbers that belong to a seed and the number of a row, and nothing else."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nbsketch._jit.csr import fill_signs, fill_uniforms


def uniforms(seed: int, rows: int, columns: int = 1) -> NDArray[np.float64]:
    """Return (rows, columns) numbers uniform on [0, 1), each row from its stream."""
    numbers = np.empty((rows, columns))
    fill_uniforms(np.uint64(seed), numbers)
    return np.subtract(1.0, numbers, out=numbers)


def signs(seed: int, rows: int, columns: int = 1) -> NDArray[np.int8]:
    """Return (rows, columns) random signs, each row from its stream."""
    numbers = np.empty((rows, columns), dtype=np.int8)
    fill_signs(np.uint64(seed), numbers)
    return numbers


def integers(seed: int, rows: int, columns: int, n: int) -> NDArray[np.int64]:
    """Return (rows, columns) uniform integers below n, each row from its stream."""
    numbers = uniforms(seed, rows, columns)
    return np.minimum((numbers * n).astype(np.int64), n - 1)


def start_of_permutation(seed: int, size: int, n: int) -> NDArray[np.int64]:
    """Return the first `size` places of a random permutation of 0, ..., n - 1.

    They are the same however many follow. The shuffle of Fisher and Yates, which keeps
    only what it has moved: time and memory of the order of `size`.
    """
    places = np.arange(size)
    left = n - places
    others = places + np.minimum((uniforms(seed, size)[:, 0] * left), left - 1)
    chosen = np.empty(size, dtype=np.int64)
    moved: dict[int, int] = {}
    for place, other in enumerate(others.astype(np.int64).tolist()):
        chosen[place] = moved.get(other, other)
        moved[other] = moved.get(place, place)
    return chosen
