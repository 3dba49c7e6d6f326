"""Arrays in an .npz file; headers and sizes are checked before reading."""

import io
import math
import os
import shutil
import stat
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from secrets import token_hex
from typing import Any, BinaryIO

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

# Arrays take at most this memory, or this multiple of the file size if larger.
FREE_BYTES = 64 << 20
LARGEST_RATIO = 100
# Maximum memory of the text that describes a model.
TEXT_BYTES = 64 << 20
_KINDS = "biufUS"
# Readers of a header, by the version of the .npy format.
_HEADERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
_ARRAYS = 10_000


class Archive:
    """The arrays of an open .npz file by name, read on access.

    Opening reads only headers. A ValueError is raised if an array holds objects, if its
    size does not match its header, or if the arrays are too large in total.
    """

    def __init__(self, file: zipfile.ZipFile, size: int) -> None:
        self._file = file
        self._infos = {_array_name(info): info for info in file.infolist()}
        total = sum(info.file_size for info in self._infos.values())
        limit = max(FREE_BYTES, LARGEST_RATIO * size)
        if len(self._infos) != len(file.infolist()) or len(self._infos) > _ARRAYS:
            raise ValueError("it has two arrays of the same name, or too many arrays")
        if total > limit:
            raise ValueError(f"its arrays take {total} bytes, more than {limit}")
        self.headers = {name: self._header(name) for name in self._infos}

    def __getitem__(self, name: str) -> NDArray:
        with self._file.open(self._infos[name]) as stream:
            array = npy.read_array(stream, allow_pickle=False)
        return array.astype(array.dtype.newbyteorder("="), copy=False)

    def text(self, name: str) -> str:
        """Return an array that is a single string."""
        dtype, shape = self.headers.get(name, (np.dtype(float), None))
        if shape != () or dtype.kind != "U":
            raise ValueError(f"it has no text `{name}`")
        if dtype.itemsize > TEXT_BYTES:
            raise ValueError(f"`{name}` takes more than {TEXT_BYTES} bytes")
        return str(self[name])

    def _header(self, name: str) -> tuple[np.dtype, tuple[int, ...]]:
        """Return dtype and shape of an array."""
        info = self._infos[name]
        with self._file.open(info) as stream:
            version = npy.read_magic(stream)
            if version not in _HEADERS:
                raise ValueError(f"`{name}` is in version {version} of the .npy format")
            shape, _, dtype = _HEADERS[version](stream)
            start = stream.tell()
        if dtype.kind not in _KINDS or dtype.names or dtype.subdtype:
            raise ValueError(f"`{name}` holds {dtype}, not numbers or text")
        if dtype.kind in "iuf" and dtype.itemsize > 8:
            raise ValueError(f"`{name}` holds {dtype}, numbers of more than 8 bytes")
        if min(shape, default=0) < 0:
            raise ValueError(f"`{name}` has an invalid shape {shape}")
        if start + math.prod(shape) * dtype.itemsize != info.file_size:
            raise ValueError(f"`{name}` does not have the size of its shape, {shape}")
        return dtype, shape


def _array_name(info: zipfile.ZipInfo) -> str:
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise ValueError(f"`{info.filename}` is compressed by an unknown method")
    if not info.filename.endswith(".npy"):
        raise ValueError(f"`{info.filename}` is not an array")
    return info.filename.removesuffix(".npy")


@contextmanager
def open_archive(path: str | Path | BinaryIO) -> Iterator[Archive]:
    """Open an .npz file, or use an open file; raise a ValueError for other values."""
    with _opened(path) as stream:
        if not zipfile.is_zipfile(stream):
            raise ValueError("it is not an .npz file")
        size = stream.seek(0, os.SEEK_END)
        try:
            with zipfile.ZipFile(stream) as file:
                yield Archive(file, size)
        except OSError as error:  # a position that the file does not have
            raise ValueError(f"it cannot be read: {error}") from error


def _opened(path: str | Path | BinaryIO) -> BinaryIO:
    """Return an open file that can be closed in either case."""
    if not isinstance(path, str | os.PathLike):
        return io.BytesIO(path.read())
    mode = Path(path).stat().st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):  # devices and pipes are endless
        raise ValueError("it is not a regular file")
    return Path(path).open("rb")


def write_archive(path: str | Path | BinaryIO, arrays: dict[str, Any]) -> None:
    """Write an .npz file, uncompressed if compression would exceed the size limit.

    A temporary file in the same folder replaces the file of this name when it is
    complete; an open file is written directly.
    """
    if not isinstance(path, str | os.PathLike):
        if not hasattr(path, "write"):
            raise TypeError(
                f"`path` must be a path or an open binary file, got {path!r:.60}"
            )
        buffer = io.BytesIO()
        _write(buffer, arrays)
        path.write(buffer.getvalue())
        return
    _replace(Path(path).resolve(), arrays)  # the target of a link


def _replace(path: Path, arrays: dict[str, Any]) -> None:
    """Replace a file once the new one is complete."""
    if path.is_dir():
        raise IsADirectoryError(f"`path` must be a file, got the folder {str(path)!r}")
    if not path.parent.is_dir():
        raise FileNotFoundError(
            f"`path` must be in an existing folder, got {str(path)!r}: create "
            f"{str(path.parent)!r} first"
        )
    beside = path.with_name(f".nbsketch-{token_hex(8)}")
    try:
        with _created(beside, path) as file:
            _write(file, arrays)
        if path.exists():
            shutil.copymode(path, beside)
        beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


def _created(beside: Path, path: Path) -> BinaryIO:
    """Open a new file; error messages name the final path."""
    try:
        return beside.open("xb")
    except OSError as error:
        raise type(error)(error.errno, error.strerror, str(path)) from None


def _write(file: BinaryIO, arrays: dict[str, Any]) -> None:
    total = sum(np.asarray(array).nbytes for array in arrays.values())
    np.savez_compressed(file, **arrays)
    if total > max(FREE_BYTES, LARGEST_RATIO * file.tell()) - (1 << 20):
        file.seek(0)
        file.truncate()
        np.savez(file, **arrays)
