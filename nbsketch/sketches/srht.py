"""Subsampled randomized transforms: rows of an orthonormal matrix, random signs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from nbsketch._validation import check_array_of, check_choice, check_positive
from nbsketch.sketches._recipe import SizedRecipe
from nbsketch.sketches._sketch import Origin, Sketch, origin_of
from nbsketch.sketches._streams import signs, start_of_permutation
from nbsketch.sketches._transforms import Cosine, Fourier, Hadamard, Transform

# Entries of the transform that are computed at a time.
_ENTRIES = 1 << 20

_TRANSFORMS: dict[str, type[Transform]] = {
    "hadamard": Hadamard,
    "dct": Cosine,
    "fourier": Fourier,
}


@dataclass(frozen=True)
class SRHTSketch(SizedRecipe):
    r"""Subsampled randomized Hadamard, cosine or Fourier transform (ROS sketch).

    .. math:: S = \sqrt{\frac{N}{s}}\, P H D

    with H orthonormal of order N, P s of its rows drawn without replacement, D random
    signs; :math:`E[S^T S] = I`.

    Parameters
    ----------
    size : int
        Number of rows s of the sketch.
    transform : {"hadamard", "dct", "fourier"}, default="hadamard"
        H: Walsh-Hadamard of the next power of two N, with the rows of the data padded
        by zeros; the discrete cosine transform (of the second kind) or the real Fourier
        transform, both with N = n.

    Notes
    -----
    Tropp, "Improved analysis of the subsampled randomized Hadamard transform", 2011;
    Yang, Pilanci and Wainwright, Ann. Stat. 2017, section 2.2, "ROS sketches". It uses
    every column of the Gram matrix, transformed tile by tile, and stores n signs and s
    row indices. The Hadamard transform is the fastest.

    Examples
    --------
    >>> from nbsketch import SRHTSketch
    >>> SRHTSketch(size=3).draw(100, rng=0)
    TransformSketch(shape=(3, 100), columns=100)
    """

    transform: Literal["hadamard", "dct", "fourier"] = "hadamard"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("transform", self.transform, _TRANSFORMS)

    def draw_matrix(self, n: int, seed: int) -> TransformSketch:
        """Return the sketch of a seed: see `SizedRecipe.draw_matrix`."""
        order = _TRANSFORMS[self.transform](n).order
        rows = start_of_permutation(seed, self.size, order)
        scale = math.sqrt(order / self.size)
        flips = signs(seed, n)[:, 0]
        return TransformSketch(self.transform, flips, rows, scale)


class TransformSketch(Sketch):
    """A drawn `SRHTSketch`: scaled rows of an orthonormal transform, times signs.

    Parameters
    ----------
    transform : {"hadamard", "dct", "fourier"}
        The transform.
    signs : ndarray of shape (n,)
        Signs of the columns.
    rows : ndarray of shape (s,)
        Rows of the transform.
    scale : float
        Factor.
    origin : optional
        Recipe and seed, as in `Sketch`.
    """

    def __init__(
        self,
        transform: str,
        signs: NDArray[np.int8],
        rows: NDArray[np.int64],
        scale: float,
        origin: Origin | None = None,
    ) -> None:
        self.transform = check_choice("transform", transform, _TRANSFORMS)
        self._signs = check_array_of("signs", signs, "i", 1).astype(np.int8, copy=False)
        self._rows = check_array_of("rows", rows, "i", 1).astype(np.int64, copy=False)
        if signs.size == 0 or (np.abs(signs) != 1).any():
            raise ValueError("`signs` must be 1 or -1, got other numbers or none")
        self._fast = _TRANSFORMS[transform](signs.size)
        order = self._fast.order
        if rows.size == 0 or not 0 <= rows.min() <= rows.max() < order:
            raise ValueError(
                f"`rows` must be in [0, {order - 1}], got other numbers or none"
            )
        self._scale, self.origin = check_positive("scale", scale), origin
        self.shape = (rows.size, signs.size)

    @cached_property
    def columns(self) -> NDArray[np.int64]:
        """All columns."""
        return np.arange(self.shape[1])

    @property
    def weights(self) -> TransformSketch:
        """The sketch itself, as `nbsketch.gram.TiledWeights`."""
        return self

    @property
    def step(self) -> int:
        """Tiles of columns start at multiples of this number."""
        return self._fast.step

    def add_block(self, first: int, tile: NDArray, out: NDArray) -> None:
        """Add S[:, first : first + len(tile)] @ tile to `out`, in its type."""
        tile = np.ascontiguousarray(tile)
        signs = self._signs[first : first + len(tile)].astype(tile.dtype)
        self._fast.add(first, signs, tile, self._rows, self._scale, out)

    def squared_norm(self) -> float:
        """Return an upper bound of the largest eigenvalue of S S^T: rows are of H."""
        return self._scale**2

    def to_csr(self) -> sp.csr_array:
        """Return the (s, n) matrix as a SciPy CSR array."""
        return sp.csr_array(self._scale * self._fast.entries(self._rows) * self._signs)

    def _tail(self, start: int) -> Sketch:
        rows = self._rows[start:]
        return TransformSketch(self.transform, self._signs, rows, self._scale)

    def to_parts(self) -> dict[str, Any]:
        """Return the parts of the sketch: see `Sketch.to_parts`."""
        return {
            "transform": self.transform,
            "signs": self._signs,
            "rows": self._rows,
            "scale": self._scale,
            **self._origin_parts(),
        }

    @classmethod
    def from_parts(cls, parts: dict[str, Any]) -> Self:
        """Return the sketch that gave the parts."""
        sketch = cls(*(parts[name] for name in ("transform", "signs", "rows", "scale")))
        sketch.origin = origin_of(parts, sketch.shape[0])
        return sketch

    def _apply_transposed(self, array: NDArray) -> NDArray:
        total = np.zeros((self.shape[1], *array.shape[1:]))
        step = max(1, _ENTRIES // self.shape[1])
        for first in range(0, self.shape[0], step):
            part = slice(first, first + step)
            total += self._fast.entries(self._rows[part]).T @ array[part]
        return (self._scale * (total.T * self._signs)).T

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
