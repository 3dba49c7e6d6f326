"""Products of any weights with any kernel, one tile of kernel values at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from nbsketch._blas import one_thread
from nbsketch._jit.threads import run_blocks
from nbsketch.gram.dense import fill_values, pack_landmarks
from nbsketch.gram.form import KernelLike
from nbsketch.gram.sparse import evaluate_sparse

# Memory of a tile of kernel values, and its rows of X.
TILE_BYTES = 4 << 20
_TILE_ROWS = 480

# Makes k(landmarks, rows) of rows; it may use the buffer that it is given.
_Tile = Callable[[Any, NDArray], NDArray]


class TiledWeights(Protocol):
    """Weights W of shape (s, m) with their own product with a tile of rows.

    A tile starts at a multiple of `step`, and only the last one may have other than a
    multiple of `step` rows.
    """

    shape: tuple[int, int]
    step: int

    def add_block(self, first: int, tile: NDArray, out: NDArray) -> None:
        """Add W[:, first : first + len(tile)] @ tile to `out`, in its type."""


class MatrixWeights:
    """A dense or sparse matrix as tiled weights."""

    step = 1

    def __init__(self, matrix: Any) -> None:
        self._matrix = sp.csc_array(matrix) if sp.issparse(matrix) else matrix
        self.shape: tuple[int, int] = matrix.shape

    def add_block(self, first: int, tile: NDArray, out: NDArray) -> None:
        """Add the product with a tile: see `TiledWeights.add_block`."""
        part = self._matrix[:, first : first + len(tile)]
        out += part.astype(tile.dtype, copy=False) @ tile


def fold_by_tiles(
    kernel: KernelLike, X: Any, landmarks: Any, weights: TiledWeights, out: NDArray
) -> None:
    """Fill `out` (s, n) with W k(L, X)."""
    n, m = X.shape[0], landmarks.shape[0]
    values = max(1, TILE_BYTES // 8)
    height = max(1, min(n, _TILE_ROWS, values // min(weights.step, m or 1)))
    width = weights.step * max(1, values // height // weights.step)
    blocks = [landmarks[first : first + width] for first in range(0, m, width)]
    tiles = _tiles_of(kernel, blocks, X, height < _TILE_ROWS // 2)

    def work(start: int) -> None:
        rows = X[start : start + height]
        total = np.zeros((out.shape[0], rows.shape[0]))
        # Shared by all blocks: allocating costs as much as the values.
        buffer = np.empty((min(width, m), rows.shape[0]))
        for i, tile_of in enumerate(tiles):
            weights.add_block(i * width, tile_of(rows, buffer), total)
        out[:, start : start + height] = total

    with one_thread():  # of BLAS: many small products run side by side
        if kernel.compiled_form(X.shape[1]) is None:  # may not be thread-safe
            for start in range(0, n, height):
                work(start)
        else:
            run_blocks(work, range(0, n, height))


def _tiles_of(
    kernel: KernelLike, blocks: list[Any], X: Any, narrow: bool
) -> list[_Tile]:
    """Return the function of rows that makes a tile, for each block of landmarks.

    Vector lanes are rows, or landmarks if tiles are `narrow`, with few rows.
    """
    form = kernel.compiled_form(X.shape[1])
    if form is None:
        return [_by_call(kernel, block) for block in blocks]
    if sp.issparse(X) or any(map(sp.issparse, blocks)):
        return [_sparse(form, block) for block in blocks]
    make = _across if narrow else _along
    return [make(form, block) for block in blocks]


def _by_call(kernel: KernelLike, block: Any) -> _Tile:
    return lambda rows, buffer: np.asarray(kernel(rows, block), dtype=np.float64).T


def _sparse(form: Any, block: Any) -> _Tile:
    return lambda rows, buffer: evaluate_sparse(form, block, rows, np.float64)


def _along(form: Any, block: NDArray) -> _Tile:
    packed = pack_landmarks(form, block)  # once for all rows
    return lambda rows, buffer: fill_values(packed, rows, buffer[: len(block)])


def _across(form: Any, block: NDArray) -> _Tile:
    def tile(rows: NDArray, buffer: NDArray) -> NDArray:
        out = buffer[: len(block)].reshape(len(rows), len(block))
        return fill_values(pack_landmarks(form, rows), block, out).T

    return tile
