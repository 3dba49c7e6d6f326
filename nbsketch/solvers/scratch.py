"""Features that exceed the memory: in a scratch file, or rows of another design."""

import os
import shutil
import tempfile
import weakref
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nbsketch._machine.memory import fits, slices
from nbsketch._report.progress import report_rows
from nbsketch.solvers.design import Blocks, ChosenBlocks, Design

# Memory of a block read at a time, and the share of it where a limit has no room for
# the arrays of several: a limit of 50 MB was exceeded by 2.7 (8000 rows, SGD).
_BLOCK_BYTES = 16 << 20
_BLOCKS = 8
# If more than this share of the rows is needed, reading the file in order is faster.
_FEW = 0.05
# Free space left on the disk, as a share of the file.
_SPARE = 0.25


class IndexedDesign(Design):
    """Features in blocks of bounded size, of which `at` returns single rows.

    Attributes
    ----------
    few : float
        Share of the rows up to which they are read by index.
    """

    few = np.inf

    def at(self, rows: Any) -> NDArray:
        """Return some rows."""
        raise NotImplementedError

    def _ranges(self) -> Iterator[tuple[int, int]]:
        """Yield start and stop of each block, and report each one that is done."""
        n, r = self.shape
        for part in slices(n, rows_per_block(r, self.dtype)):
            yield part.start, part.stop
            report_rows(part.stop, n)

    def _chosen(self, rows: NDArray | None) -> ChosenBlocks:
        n, r = self.shape
        if rows is None or len(rows) > self.few * n:
            yield from super()._chosen(rows)
            return
        self._check_rows(rows)
        for part in slices(len(rows), rows_per_block(r, self.dtype)):
            yield None, part, self.at(rows[part])


class ScratchDesign(IndexedDesign):
    """Features in a temporary file, in single precision.

    The file has no name, so the system removes it with the design, and when the process
    ends for any reason. A block is valid until the next one is read.

    Parameters
    ----------
    source : Design
        The features, which are read once.

    Raises
    ------
    OSError
        If the disk has not enough free space.
    """

    dtype = np.dtype(np.float32)
    few = _FEW

    def __init__(self, source: Design) -> None:
        self.shape = source.shape
        folder = scratch_folder()
        check_room(folder, source.shape)
        self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115
        weakref.finalize(self, self._file.close)
        for _, _, block in source.blocks():
            self._file.write(np.ascontiguousarray(block, dtype=self.dtype).data)
        self._file.flush()

    def blocks(self) -> Blocks:
        """Yield (start, stop, Z[start:stop]) in order, covering all rows."""
        n, r = self.shape
        buffer = np.empty((min(rows_per_block(r, self.dtype), n), r), dtype=self.dtype)
        for start, stop in self._ranges():
            block = buffer[: stop - start]
            _read(self._file, block, start * r * self.dtype.itemsize)
            yield start, stop, block

    def at(self, rows: NDArray) -> NDArray:
        """Return some rows; each run of neighbors is read at once."""
        out = np.empty((len(rows), self.shape[1]), dtype=self.dtype)
        width = out.strides[0]
        firsts = np.flatnonzero(np.diff(rows, prepend=-2) != 1)
        for first, last in pairwise([*firsts.tolist(), len(rows)]):
            _read(self._file, out[first:last], int(rows[first]) * width)
        return out

    def gather(self, rows: NDArray) -> Design:
        """Return the features of some rows, in memory or in another file."""
        if fits_memory(len(rows), self.shape[1], self.dtype):
            return super().gather(rows)
        return stored_or(RowsDesign(self, rows))

    def collect(self) -> NDArray:
        """Return all features as an array mapped to the file."""
        return np.asarray(np.memmap(self._file, self.dtype, mode="r", shape=self.shape))


class RowsDesign(Design):
    """A subset of rows of another design, read from it in every pass.

    Parameters
    ----------
    whole : Design
        The other design.
    rows : ndarray of ascending int
        Indices of its rows.
    """

    def __init__(self, whole: Design, rows: NDArray) -> None:
        self._whole = whole
        self._rows = rows
        self.shape = len(rows), whole.shape[1]
        self.dtype = whole.dtype

    def blocks(self) -> Blocks:
        """Yield (start, stop, Z[start:stop]) in order, covering all rows."""
        step = rows_per_block(self.shape[1], self.dtype)
        for chosen, part, block in self._whole._chosen(self._rows):
            if chosen is None:
                yield part.start, part.stop, block
                continue
            for some in slices(len(chosen), step):  # a block may be all rows
                rows = chosen[some]
                yield part.start + some.start, part.start + some.stop, block[rows]

    def gather(self, rows: NDArray) -> Design:
        """Return the features of some rows."""
        return self._whole.gather(self._rows[rows])


def stored_or(design: Design) -> Design:
    """Return streamed features in a scratch file, or unchanged if the disk is full."""
    try:
        return ScratchDesign(design)
    except OSError:
        return design


def collected(design: Design) -> NDArray:
    """Return all features: in memory or, above the limit, mapped to a file."""
    is_kept = fits_memory(*design.shape, design.dtype)
    return (design if is_kept else stored_or(design)).collect()


def fits_memory(n: int, rank: int, dtype: np.dtype) -> bool:
    """Return whether the features may be stored; a single block always is."""
    n_bytes = dtype.itemsize * n * rank
    return n_bytes <= _BLOCK_BYTES or fits(n_bytes)


def rows_per_block(rank: int, dtype: np.dtype) -> int:
    """Return the number of rows of a block of features."""
    is_roomy = fits(_BLOCK_BYTES, copies=_BLOCKS)
    n_bytes = _BLOCK_BYTES if is_roomy else _BLOCK_BYTES // _BLOCKS
    return max(64, n_bytes // (dtype.itemsize * max(1, rank)))


def scratch_folder() -> str:
    """Return the folder of scratch files: TMPDIR, else /var/tmp, else the default.

    Many systems keep the default, /tmp, in memory.
    """
    asked = os.environ.get("TMPDIR")
    if not asked and os.access("/var/tmp", os.W_OK):
        return "/var/tmp"
    return asked or tempfile.gettempdir()


def check_room(folder: str, shape: tuple[int, int]) -> None:
    """Raise an error unless a disk has room for features in single precision."""
    needed = 4.0 * shape[0] * shape[1]
    free = shutil.disk_usage(Path(folder)).free
    if free < (1 + _SPARE) * needed:
        raise OSError(
            f"{folder} must have {(1 + _SPARE) * needed:.3g} free bytes for features, "
            f"got {free:.3g}: set TMPDIR to another folder"
        )


def _read(file: Any, block: NDArray, offset: int) -> None:
    file.seek(offset)
    if file.readinto(block) < block.nbytes:
        raise OSError("a scratch file of features is shorter than it was written")
