"""Orthonormal transforms of n numbers, of which only some outputs are wanted."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator

import numpy as np
import scipy.fft
from numpy.typing import NDArray

from nbsketch._jit.transforms import add_hadamard

# Length of the Hadamard transforms that are done in cache.
_BLOCK = 256
_LEAST = 4
# Other transforms that are done at a time: enough for their vectors, few for the cache.
_BATCH = 8


class Transform(ABC):
    """An orthonormal matrix H, of which the first n columns matter.

    Attributes
    ----------
    order : int
        Number of its rows.
    step : int
        Tiles of columns start at multiples of it.
    """

    def __init__(self, n: int) -> None:
        self.n = self.order = self.step = n

    @abstractmethod
    def add(
        self,
        first: int,
        signs: NDArray,
        tile: NDArray,
        rows: NDArray,
        scale: float,
        out: NDArray,
    ) -> None:
        """Add scale H[rows, first : first + m] diag(signs) tile to `out`."""

    @abstractmethod
    def entries(self, rows: NDArray) -> NDArray[np.float64]:
        """Return H[rows, :n] by its formula."""


class Hadamard(Transform):
    """Walsh-Hadamard: the entry (i, j) is (-1)^popcount(i & j) / sqrt(order)."""

    def __init__(self, n: int) -> None:
        super().__init__(n)
        self.order = 1 << (n - 1).bit_length()
        self.step = min(_BLOCK, max(_LEAST, self.order))

    def add(
        self,
        first: int,
        signs: NDArray,
        tile: NDArray,
        rows: NDArray,
        scale: float,
        out: NDArray,
    ) -> None:
        """Add some outputs, block by block: see `Transform.add`."""
        missing = -len(tile) % self.step  # of the last block
        if missing:
            tile = np.pad(tile, ((0, missing), (0, 0)))
            signs = np.pad(signs, (0, missing))
        factor = tile.dtype.type(scale / math.sqrt(self.order))
        add_hadamard(tile, signs, self.step, first, rows, factor, out)

    def entries(self, rows: NDArray) -> NDArray[np.float64]:
        """Return H[rows, :n] by its formula."""
        bits = rows[:, None] & np.arange(self.n)
        for shift in (32, 16, 8, 4, 2, 1):
            bits ^= bits >> shift
        return (1 - 2 * (bits & 1)) / math.sqrt(self.order)


class FastTransform(Transform):
    """A transform with a fast algorithm for all its outputs."""

    def add(
        self,
        first: int,
        signs: NDArray,
        tile: NDArray,
        rows: NDArray,
        scale: float,
        out: NDArray,
    ) -> None:
        """Add some outputs of the fast transform: see `Transform.add`."""
        for some, signed in _batches(signs, tile):
            out[:, some] += self._outputs(signed, rows, scale).T

    @abstractmethod
    def _outputs(self, columns: NDArray, rows: NDArray, scale: float) -> NDArray:
        """Return scale columns H^T[:, rows]; `columns` (k, n) is overwritten."""


class Cosine(FastTransform):
    """The discrete cosine transform of the second kind."""

    def _outputs(self, columns: NDArray, rows: NDArray, scale: float) -> NDArray:
        spectrum = scipy.fft.dct(columns, axis=1, norm="ortho", overwrite_x=True)
        return scale * spectrum[:, rows]

    def entries(self, rows: NDArray) -> NDArray[np.float64]:
        """Return H[rows, :n] by its formula."""
        # Whole periods are taken off among the integers, without rounding.
        turns = rows[:, None] * (2 * np.arange(self.n) + 1) % (4 * self.n)
        values = np.cos(turns * (math.pi / (2 * self.n))) * math.sqrt(2 / self.n)
        values[rows == 0] = 1 / math.sqrt(self.n)
        return values


class Fourier(FastTransform):
    """The real Fourier transform: the constant, then cosines and sines in turn."""

    def _outputs(self, columns: NDArray, rows: NDArray, scale: float) -> NDArray:
        factors = (scale * self._factors(rows)).astype(columns.dtype)
        spectrum = scipy.fft.rfft(columns, axis=1, norm="ortho")
        numbers = spectrum.view(columns.dtype)  # real and imaginary parts in turn
        return (
            factors * numbers[:, rows + (rows > 0)]
        )  # the constant has no imaginary part

    def _factors(self, rows: NDArray) -> NDArray[np.float64]:
        """Return sqrt(2), or 1 for the constant and for the alternating row."""
        alone = (rows == 0) | ((self.n % 2 == 0) & (rows == self.n - 1))
        return np.where(alone, 1.0, math.sqrt(2))

    def entries(self, rows: NDArray) -> NDArray[np.float64]:
        """Return H[rows, :n] by its formula."""
        frequencies = (rows + 1) // 2
        turns = frequencies[:, None] * np.arange(self.n) % self.n
        angles = turns * (2 * math.pi / self.n)
        is_sine = (rows % 2 == 0) & (rows > 0)
        waves = np.where(is_sine[:, None], -np.sin(angles), np.cos(angles))
        return waves * (self._factors(rows) / math.sqrt(self.n))[:, None]


def _batches(signs: NDArray, tile: NDArray) -> Iterator[tuple[slice, NDArray]]:
    """Yield (columns, rows) of the transpose of diag(signs) tile, in one buffer."""
    columns = tile.T
    buffer = np.empty((min(_BATCH, len(columns)), len(tile)), dtype=tile.dtype)
    for start in range(0, len(columns), _BATCH):
        some = slice(start, min(start + _BATCH, len(columns)))
        signed = buffer[: some.stop - start]
        yield some, np.multiply(columns[some], signs, out=signed)
