"""Subsampled randomized transforms: rows of an orthonormal matrix, random signs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from math import pi, sqrt
from typing import Any, Literal

import numpy as np
import scipy.fft
import scipy.sparse as sp
from numpy.typing import NDArray

from nbsketch._jit.transforms import add_hadamard
from nbsketch._machine.memory import slices
from nbsketch._report import validation
from nbsketch._report.fields import choice, register, rules
from nbsketch.sketches import _sketch
from nbsketch.sketches._sketch import Origin, SizedRecipe, Sketch, check_origin

# Length of Hadamard transforms that fit into the cache.
_BLOCK = 256
_LEAST = 4
# Number of transforms at a time: enough for vectorization, few enough for the cache.
_BATCH = 8
# Number of entries of the transform computed at a time.
_ENTRIES = 1 << 20


class Transform(ABC):
    """Scaled rows of an orthonormal matrix with column signs, S = c H[rows] D.

    Attributes
    ----------
    signs : ndarray of shape (n,)
        The diagonal of D.
    rows : ndarray of shape (s,)
        Selected rows of H, of which the first n columns are used.
    scale : float
        The factor c.
    """

    def __init__(self, signs: NDArray, rows: NDArray, scale: float) -> None:
        self.n, self.step = signs.size, self.least_step(signs.size)
        self.signs = signs
        self.rows = rows
        self.scale = scale

    @staticmethod
    def order(n: int) -> int:
        """Return the number of rows of H for n columns."""
        return n

    @staticmethod
    def least_step(n: int) -> int:
        """Return the step of the positions where tiles of columns may start."""
        return n

    def add(self, first: int, tile: NDArray, out: NDArray) -> None:
        """Add S[:, first : first + len(tile)] @ tile to `out`."""
        columns = tile.T
        signs = self.signs.astype(tile.dtype)
        buffer = np.empty((min(_BATCH, len(columns)), len(tile)), dtype=tile.dtype)
        for part in slices(len(columns), _BATCH):
            batch = columns[part]
            signed = np.multiply(batch, signs, out=buffer[: len(batch)])
            out[:, part] += self._outputs(signed).T

    def _outputs(self, columns: NDArray) -> NDArray:
        """Return c columns H^T[:, rows]; `columns` (k, n) is overwritten."""
        raise NotImplementedError

    @abstractmethod
    def entries(self, part: slice = slice(None)) -> NDArray:
        """Return H[rows[part], :n] by its formula."""


class Hadamard(Transform):
    """Walsh-Hadamard: the entry (i, j) is (-1)^popcount(i & j) / sqrt(order)."""

    @staticmethod
    def order(n: int) -> int:
        """Return the next power of two."""
        return 1 << (n - 1).bit_length()

    @staticmethod
    def least_step(n: int) -> int:
        """Return the length of the transforms that fit into the cache."""
        return min(_BLOCK, max(_LEAST, Hadamard.order(n)))

    def add(self, first: int, tile: NDArray, out: NDArray) -> None:
        """Add some outputs, block by block: see `Transform.add`."""
        signs = self.signs[first : first + len(tile)].astype(tile.dtype)
        missing = -len(tile) % self.step  # in the last block
        if missing:
            tile = np.pad(tile, ((0, missing), (0, 0)))
            signs = np.pad(signs, (0, missing))
        factor = tile.dtype.type(self.scale / sqrt(self.order(self.n)))
        add_hadamard(tile, signs, self.step, first, self.rows, factor, out)

    def entries(self, part: slice = slice(None)) -> NDArray:
        """Return H[rows[part], :n] by its formula."""
        bits = self.rows[part, None] & np.arange(self.n)
        for shift in (32, 16, 8, 4, 2, 1):
            bits ^= bits >> shift
        return (1 - 2 * (bits & 1)) / sqrt(self.order(self.n))


class Cosine(Transform):
    """The discrete cosine transform of the second kind."""

    def _outputs(self, columns: NDArray) -> NDArray:
        spectrum = scipy.fft.dct(columns, axis=1, norm="ortho", overwrite_x=True)
        return self.scale * spectrum[:, self.rows]

    def entries(self, part: slice = slice(None)) -> NDArray:
        """Return H[rows[part], :n] by its formula."""
        n = self.n
        rows = self.rows[part]
        # Subtract whole periods as integers, without rounding.
        turns = rows[:, None] * (2 * np.arange(n) + 1) % (4 * n)
        values = np.cos(turns * (pi / (2 * n))) * sqrt(2 / n)
        values[rows == 0] = 1 / sqrt(n)
        return values


class Fourier(Transform):
    """The real Fourier transform: the constant, then alternating cosines and sines."""

    def _outputs(self, columns: NDArray) -> NDArray:
        rows = self.rows
        factors = (self.scale * self._factors(rows)).astype(columns.dtype)
        spectrum = scipy.fft.rfft(columns, axis=1, norm="ortho")
        numbers = spectrum.view(columns.dtype)  # real and imaginary parts alternate
        return factors * numbers[:, rows + (rows > 0)]  # the constant has no imaginary

    def _factors(self, rows: NDArray) -> NDArray:
        """Return sqrt(2), or 1 for the constant and for the alternating row."""
        alone = (rows == 0) | ((self.n % 2 == 0) & (rows == self.n - 1))
        return np.where(alone, 1.0, sqrt(2))

    def entries(self, part: slice = slice(None)) -> NDArray:
        """Return H[rows[part], :n] by its formula."""
        n = self.n
        rows = self.rows[part]
        frequencies = (rows + 1) // 2
        turns = frequencies[:, None] * np.arange(n) % n
        angles = turns * (2 * pi / n)
        is_sine = (rows % 2 == 0) & (rows > 0)
        waves = np.where(is_sine[:, None], -np.sin(angles), np.cos(angles))
        return waves * (self._factors(rows) / sqrt(n))[:, None]


_TRANSFORMS: dict[str, type[Transform]] = {
    "hadamard": Hadamard,
    "dct": Cosine,
    "fourier": Fourier,
}


@dataclass(frozen=True)
class SRHTSketch(SizedRecipe):
    r"""Subsampled randomized Hadamard, cosine or Fourier transform (ROS sketch).

    .. math:: S = \sqrt{\frac{N}{s}}\, P H D

    with H orthonormal of order N, s rows P drawn without replacement, and random signs
    D; :math:`E[S^T S] = I`.

    Parameters
    ----------
    size : int
        Number of rows s of the sketch.
    transform : {"hadamard", "dct", "fourier"}, default="hadamard"
        H: Walsh-Hadamard transform with N the next power of two (data padded with
        zeros), discrete cosine transform of the second kind, or real Fourier transform;
        the latter two with N = n.

    Notes
    -----
    Tropp, "Improved analysis of the subsampled randomized Hadamard transform", 2011;
    Yang, Pilanci and Wainwright, Ann. Stat. 2017, section 2.2, "ROS sketches". All
    columns of the Gram matrix are used, tile by tile; n signs and s row indices are
    stored. The Hadamard transform is the fastest.

    Examples
    --------
    >>> from nbsketch import SRHTSketch
    >>> SRHTSketch(size=3).draw(100, rng=0)
    TransformSketch(shape=(3, 100), columns=100)
    """

    transform: Literal["hadamard", "dct", "fourier"] = "hadamard"

    _rules = rules(transform=choice(*_TRANSFORMS))

    def draw_matrix(self, n: int, seed: int) -> TransformSketch:
        """Return the sketch for a seed: see `SizedRecipe.draw_matrix`."""
        order = _TRANSFORMS[self.transform].order(n)
        rows = _sketch.start_of_permutation(seed, self.size, order)
        scale = sqrt(order / self.size)
        flips = _sketch.signs(seed, n)[:, 0]
        return TransformSketch(self.transform, flips, rows, scale)


@register
class TransformSketch(Sketch):
    """A drawn `SRHTSketch`: scaled rows of an orthonormal transform times signs.

    Parameters
    ----------
    transform : {"hadamard", "dct", "fourier"}
        The transform.
    signs : ndarray of shape (n,)
        Signs of the columns.
    rows : ndarray of shape (s,)
        Rows of the transform.
    scale : float
        Factor c.
    origin : optional
        Recipe and seed, as in `Sketch`.
    """

    def __init__(
        self,
        transform: str,
        signs: NDArray,
        rows: NDArray,
        scale: float,
        origin: Origin | None = None,
    ) -> None:
        self.transform = validation.check_choice("transform", transform, _TRANSFORMS)
        for name, value in (("signs", signs), ("rows", rows)):
            validation.check_array_of(name, value, "i", 1)
        self.signs = signs.astype(np.int8, copy=False)
        self.rows = rows.astype(np.int64, copy=False)
        if signs.size == 0 or (np.abs(signs) != 1).any():
            raise ValueError("`signs` must be 1 or -1, got other numbers or none")
        order = _TRANSFORMS[transform].order(signs.size)
        if rows.size == 0:
            raise ValueError(f"`rows` must be in [0, {order - 1}], got none")
        validation.check_indices("rows", rows, order)
        self.scale = validation.check_positive("scale", scale)
        self._fast = _TRANSFORMS[transform](self.signs, self.rows, self.scale)
        self.shape = rows.size, signs.size
        self.origin = check_origin(origin, self.shape)

    @cached_property
    def columns(self) -> NDArray:
        """All columns."""
        return np.arange(self.shape[1])

    @property
    def weights(self) -> TransformSketch:
        """The sketch itself, as `nbsketch.gram.TiledWeights`."""
        return self

    @property
    def step(self) -> int:
        """Tiles of columns must start at multiples of this number."""
        return self._fast.step

    def add_block(self, first: int, tile: NDArray, out: NDArray) -> None:
        """Add S[:, first : first + len(tile)] @ tile to `out`, in its dtype."""
        self._fast.add(first, np.ascontiguousarray(tile), out)

    def squared_norm(self) -> float:
        """Return the largest eigenvalue of S S^T, whose rows are orthogonal."""
        return self.scale**2

    def to_csr(self) -> sp.csr_array:
        """Return the (s, n) matrix as a SciPy CSR array."""
        return sp.csr_array(self.scale * self._fast.entries() * self.signs)

    def part(self, rows: Any) -> Sketch:
        """Return some rows, in their order and not rescaled, as a sketch."""
        return TransformSketch(self.transform, self.signs, self.rows[rows], self.scale)

    def _apply_transposed(self, array: NDArray) -> NDArray:
        total = np.zeros((self.shape[1], *array.shape[1:]))
        for part in slices(self.shape[0], max(1, _ENTRIES // self.shape[1])):
            total += self._fast.entries(part).T @ array[part]
        return (self.scale * (total.T * self.signs)).T

    def _apply(self, array: Any) -> Any:
        if array.dtype.kind not in "fiub":
            raise TypeError(f"`A` must hold real numbers, got dtype {array.dtype}")
        dtype = np.float32 if array.dtype == np.float32 else np.float64
        rows = array.reshape(-1, 1) if array.ndim == 1 else array
        rows = sp.csr_array(rows) if sp.issparse(rows) else rows
        out = np.zeros((self.shape[0], rows.shape[1]), dtype=dtype)
        for first in range(0, self.shape[1], self.step):
            tile = rows[first : first + self.step]
            tile = tile.toarray() if sp.issparse(tile) else tile
            self.add_block(first, tile.astype(dtype, copy=False), out)
        return out[:, 0] if array.ndim == 1 else out
