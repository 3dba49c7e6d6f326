"""Files of a data set: found in a folder, in the cache, or downloaded."""

import gzip
import hashlib
import os
import socket
import warnings
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from nbsketch._validation import check_choice

# Errors of a download; all are reported as FileNotFoundError.
_DOWNLOAD_ERRORS = (OSError, HTTPException, EOFError, zlib.error)
_TIMEOUT = 30.0  # seconds


@dataclass(frozen=True)
class RemoteFile:
    """One file: its name on disk, its address, and the SHA-256 of its content.

    The file at an address that ends with .gz is unpacked first.
    """

    name: str
    url: str | None = None
    sha256: str | None = None


@dataclass(frozen=True)
class Source:
    """The files of the set `name`, and a description of their origin."""

    name: str
    origin: str
    files: tuple[RemoteFile, ...]


def locate(
    source: Source, data_home: str | os.PathLike | None, download: bool
) -> list[Path]:
    """Return the paths of the files; download missing ones if allowed."""
    check_choice("download", download, (True, False))
    for folder in _folders(data_home):
        paths = [_present(folder / source.name / file.name) for file in source.files]
        if all(paths):
            return [path for path in paths if path is not None]
    failure: Exception | None = None
    if download and all(file.url for file in source.files):
        try:
            return [_download(source.name, file) for file in source.files]
        except _DOWNLOAD_ERRORS as error:
            failure = error
    raise FileNotFoundError(_explain(source, data_home, download, failure))


def fetch_through_sklearn(
    fetcher: Callable[..., Any], missing: FileNotFoundError, **options: Any
) -> Any:
    """Return the result of a downloader of scikit-learn, or raise `missing` again."""
    try:
        with _limited_wait(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about a second attempt
            return fetcher(n_retries=1, delay=0.1, **options)
    # An identifier unknown to OpenML, or a file that cannot be parsed, is a ValueError.
    except (*_DOWNLOAD_ERRORS, ValueError) as error:
        message = f"{missing} Through scikit-learn it failed too: {error}."
        raise FileNotFoundError(message) from None


def fetch(url: str) -> bytes:
    """Return the content of an address."""
    with urlopen(url, timeout=_TIMEOUT) as answer:
        content: bytes = answer.read()
    return content


@contextmanager
def _limited_wait() -> Iterator[None]:
    """Set a timeout for downloaders without an option for it."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(_TIMEOUT)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)


def _folders(data_home: str | os.PathLike | None) -> list[Path]:
    """Return the folders to search, in order."""
    given = [data_home, os.environ.get("NBSKETCH_DATA"), _cache_folder()]
    return [Path(folder).expanduser() for folder in given if folder]


def _cache_folder() -> Path:
    # The rule of sklearn.datasets.get_data_home, which would create the folder
    # and takes a second to import.
    home = os.environ.get("SCIKIT_LEARN_DATA", "~/scikit_learn_data")
    return Path(home).expanduser() / "nbsketch"


def _present(path: Path) -> Path | None:
    """Return the path of the plain or the gzipped file, None if neither exists."""
    candidates = (path, path.with_name(path.name + ".gz"))
    return next((candidate for candidate in candidates if candidate.is_file()), None)


def _download(name: str, file: RemoteFile) -> Path:
    """Download a file into the cache and return its path, if its SHA-256 is known."""
    content = fetch(str(file.url))
    if str(file.url).endswith(".gz"):
        content = gzip.decompress(content)
    digest = hashlib.sha256(content).hexdigest()
    if digest != file.sha256:
        raise OSError(
            f"{file.url} is not the known file: its SHA-256 is {digest}, "
            f"not {file.sha256}"
        )
    path = _cache_folder() / name / file.name
    path.parent.mkdir(parents=True, exist_ok=True)
    # Renamed when complete, so that no partial file is read.
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    part.write_bytes(content)
    return part.replace(path)


def _explain(
    source: Source,
    data_home: str | os.PathLike | None,
    download: bool,
    failure: Exception | None,
) -> str:
    """Return the error message: what is missing, and how to get it."""
    names = ", ".join(file.name for file in source.files)
    looked = ", ".join(str(folder / source.name) for folder in _folders(data_home))
    if failure is not None:
        attempt = f"The download failed: {failure}."
    elif download:
        attempt = "No plain files of it can be downloaded."
    else:
        attempt = "Nothing was downloaded, because download=False."
    return (
        f"The data set {source.name!r} was not found. It needs {names} (each may be "
        f"gzipped, with .gz at the end of its name). Source: {source.origin}. Put the "
        f"files into FOLDER/{source.name}/ and pass data_home=FOLDER or set the "
        f"environment variable NBSKETCH_DATA to FOLDER. Looked in: {looked}. {attempt}"
    )
