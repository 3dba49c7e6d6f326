"""Files of the data sets: table file, folders, downloads, text and ARFF files."""

import gzip
import hashlib
import inspect
import os
import re
import socket
import tomllib
import warnings
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from http.client import HTTPException
from io import BytesIO
from pathlib import Path
from textwrap import indent
from typing import Any, TypeVar
from urllib.request import urlopen

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from nbsketch._report.validation import check_choice
from nbsketch.datasets._dataset import Dataset

# Errors of a download; all are reported as FileNotFoundError.
_DOWNLOAD_ERRORS = OSError, HTTPException, EOFError, zlib.error
_TIMEOUT = 30.0  # seconds
# Maximum size of a downloaded or unpacked file.
MOST_BYTES = 1 << 28
_ATTRIBUTE = re.compile(
    r"""@attribute\s+('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|\S+)""", re.IGNORECASE
)
_SETS = tomllib.loads(Path(__file__).with_name("sets.toml").read_text("utf-8"))


@dataclass(frozen=True)
class RemoteFile:
    """One file: name on disk, address, and SHA-256 of its content.

    If the address ends with .gz, the download is unpacked first.
    """

    name: str
    url: str | None = None
    sha256: str | None = None


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A set of the table file: files, source and parts of its documentation."""

    name: str
    origin: str
    files: tuple[RemoteFile, ...]
    text: dict[str, str]


def locate(
    entry: Entry, data_home: str | os.PathLike | None, download: bool
) -> list[Path]:
    """Return the paths of the files; download missing ones if allowed."""
    check_choice("download", download, (True, False))
    for folder in _folders(data_home):
        paths = [folder / entry.name / file.name for file in entry.files]
        either = [(path, path.with_name(f"{path.name}.gz")) for path in paths]
        present = [[path for path in pair if path.is_file()] for pair in either]
        if all(present):
            return [pair[0] for pair in present]
    failure = None
    if download and all(file.url for file in entry.files):
        try:
            return [_download(entry.name, file) for file in entry.files]
        except _DOWNLOAD_ERRORS as error:
            failure = error
    raise FileNotFoundError(_explain(entry, data_home, download, failure))


def fetch_through_sklearn(
    fetcher: Callable[..., Any], missing: FileNotFoundError, **options: Any
) -> Any:
    """Return the result of a scikit-learn downloader, or raise `missing` again."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(_TIMEOUT)  # the downloaders have no option for it
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about a second attempt
            return fetcher(n_retries=1, delay=0.1, **options)
    # An identifier unknown to OpenML, or a file that cannot be parsed, is a ValueError.
    except (*_DOWNLOAD_ERRORS, ValueError) as error:
        message = f"{missing} The download through scikit-learn failed: {error}."
        raise FileNotFoundError(message) from None
    finally:
        socket.setdefaulttimeout(before)


def fetch(url: str) -> bytes:
    """Return the content of an address."""
    with urlopen(url, timeout=_TIMEOUT) as answer:
        content = answer.read(MOST_BYTES + 1)
    return _checked_size(url, content)


def _checked_size(url: str, content: bytes) -> bytes:
    if len(content) > MOST_BYTES:
        raise OSError(
            f"{url} is not the expected file: it has more than {MOST_BYTES} bytes"
        )
    return content


def _folders(data_home: str | os.PathLike | None) -> list[Path]:
    """Return the folders to search, in order."""
    given = [data_home, os.environ.get("NBSKETCH_DATA"), _cache_folder()]
    return [Path(folder).expanduser() for folder in given if folder]


def _cache_folder() -> Path:
    # The rule of sklearn.datasets.get_data_home, which would create the folder and
    # takes a second to import.
    home = os.environ.get("SCIKIT_LEARN_DATA", "~/scikit_learn_data")
    return Path(home).expanduser() / "nbsketch"


def _download(name: str, file: RemoteFile) -> Path:
    """Download a file into the cache if its SHA-256 matches; return its path."""
    url = str(file.url)
    content = fetch(url)
    if url.endswith(".gz"):
        with gzip.GzipFile(fileobj=BytesIO(content)) as stream:
            content = _checked_size(url, stream.read(MOST_BYTES + 1))
    digest = hashlib.sha256(content).hexdigest()
    if digest != file.sha256:
        raise OSError(
            f"{url} is not the expected file: SHA-256 is {digest}, not {file.sha256}"
        )
    path = _cache_folder() / name / file.name
    path.parent.mkdir(parents=True, exist_ok=True)
    # Renamed when complete, so that no partial file is read.
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    part.write_bytes(content)
    try:
        part.replace(path)
    except PermissionError:  # on Windows, if another process reads the file
        part.unlink()
    return path


def _explain(
    entry: Entry,
    data_home: str | os.PathLike | None,
    download: bool,
    failure: Exception | None,
) -> str:
    """Return the error message: what is missing, and how to get it."""
    names = ", ".join(file.name for file in entry.files)
    looked = ", ".join(str(folder / entry.name) for folder in _folders(data_home))
    if failure is not None:
        attempt = f"The download failed: {failure}."
    elif download:
        attempt = "The set has no plain files to download."
    else:
        attempt = "Nothing was downloaded, because download=False."
    return (
        f"The data set {entry.name!r} was not found. It needs {names} (each may be "
        f"gzipped, with the suffix .gz). Source: {entry.origin}. Put the files into "
        f"FOLDER/{entry.name}/ and pass data_home=FOLDER or set the environment "
        f"variable NBSKETCH_DATA to FOLDER. Folders searched: {looked}. {attempt}"
    )


def read_lines(path: Path) -> list[str]:
    """Return the nonblank lines of a text file."""
    data = path.read_bytes()
    if path.suffix == ".gz":
        data = gzip.decompress(data)
    # Only names may contain bytes that are not UTF-8.
    text = data.decode("utf-8-sig", errors="replace")
    return [line for line in text.split("\n") if line.strip()]


def parse_rows(
    lines: Sequence[str],
    path: Path,
    n_columns: int,
    delimiter: str | None = None,
    dtype: type = float,
) -> NDArray:
    """Return (len(lines), n_columns) entries; None: separated by white space."""
    if not lines:
        raise ValueError(f"{path} has no rows of data")
    try:
        table: NDArray = np.loadtxt(
            lines, dtype, comments=None, delimiter=delimiter, ndmin=2
        )
    except ValueError as error:
        raise ValueError(f"{path} cannot be read: {error}") from error
    if table.shape[1] != n_columns:
        raise ValueError(f"{path} must have {n_columns} columns, got {table.shape[1]}")
    return table


def read_arff(path: Path) -> tuple[list[str], NDArray | csr_array]:
    """Return column names and table; missing values ('?') are NaN.

    Rows are dense, or sparse as in {i v, ...}.
    """
    lines = [line.strip() for line in read_lines(path)]
    lines = [line for line in lines if not line.startswith("%")]
    start = next((i for i, line in enumerate(lines) if line.lower() == "@data"), None)
    if start is None:
        raise ValueError(f"{path} is not an ARFF file: it has no line '@data'")
    matches = [_ATTRIBUTE.match(line) for line in lines[:start]]
    names = [match[1].strip("'\"") for match in matches if match]
    rows = [line.replace("?", "nan") for line in lines[start + 1 :]]
    if rows and rows[0].startswith("{"):
        return names, _parse_sparse(rows, path, len(names))
    return names, parse_rows(rows, path, len(names), delimiter=",")


def read_dense_arff(path: Path) -> tuple[list[str], NDArray]:
    """Return column names and table as one array."""
    names, table = read_arff(path)
    return names, table if isinstance(table, np.ndarray) else table.toarray()


def _parse_sparse(rows: Sequence[str], path: Path, n_columns: int) -> csr_array:
    """Return the (len(rows), n_columns) table of rows '{index value, ...}'."""
    inside = [row[1:-1].strip() for row in rows]
    counts = [row.count(",") + 1 if row else 0 for row in inside]
    try:
        flat = np.array(" ".join(inside).replace(",", " ").split(), dtype=float)
    except ValueError as error:
        raise ValueError(f"{path} cannot be read: {error}") from error
    if flat.size != 2 * sum(counts):
        raise ValueError(f"{path} has a sparse row that is not 'index value' pairs")
    columns = flat[::2].astype(np.int32)
    if columns.size and not 0 <= columns.min() <= columns.max() < n_columns:
        raise ValueError(f"{path} has a column index outside [0, {n_columns - 1}]")
    starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    table = csr_array((flat[1::2], columns, starts), shape=(len(rows), n_columns))
    table.eliminate_zeros()
    table.sort_indices()
    return table


Folder = str | os.PathLike | None
Loader = Callable[..., Dataset]


E = TypeVar("E", bound=Entry)


def read_entries(kind: type[E], section: str) -> dict[str, E]:
    """Return the sets in a section of the table file by name."""
    return {
        name: kind(name=name, **{key: _parsed(key, fields[key]) for key in fields})
        for name, fields in _SETS[section].items()
    }


def _parsed(key: str, value: Any) -> Any:
    if key == "files":
        return tuple(RemoteFile(**file) for file in value)
    return tuple(value) if isinstance(value, list) else value


def described(load: Loader, entry: Entry, **defaults: str) -> Loader:
    """Return the loader of a set, with its docstring completed by the set's texts."""
    load.__name__ = load.__qualname__ = f"load_{entry.name.replace('-', '_')}"
    load.__module__ = "nbsketch.datasets"
    if load.__doc__:  # removed by python -OO
        files = " and ".join(f"``{entry.name}/{file.name}``" for file in entry.files)
        texts = {"details": "", **defaults, **entry.text, "files": files}
        for name in texts.keys() & {"download", "preparation", "returns"}:
            texts[name] = indent(texts[name], "    ")
        doc = inspect.cleandoc(load.__doc__).format(loader=load.__name__, **texts)
        load.__doc__ = doc.replace("\n\n\n\n", "\n\n")  # a set without details
    return load
