"""Mulan's multi-label sets: binary inputs or features of text and video, 0/1 labels."""

import os
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, vstack

from nbsketch.datasets._arff import read_arff, read_dense_arff
from nbsketch.datasets._dataset import Dataset
from nbsketch.datasets._files import RemoteFile, Source, locate

_ORIGIN = (
    "the file area of the Mulan project (mulan.sourceforge.net), archive "
    "'datasets/{name}.rar', to be unpacked with a program that reads RAR"
)
_BIBTEX = Source(
    "bibtex",
    _ORIGIN.format(name="bibtex"),
    (RemoteFile("bibtex-train.arff"), RemoteFile("bibtex-test.arff")),
)
_BOOKMARKS = Source(
    "bookmarks", _ORIGIN.format(name="bookmarks"), (RemoteFile("bookmarks.arff"),)
)
_BOOKMARKS_TRAIN = 60_000
_MEDIAMILL = Source(
    "mediamill",
    _ORIGIN.format(name="mediamill"),
    (RemoteFile("mediamill-train.arff"), RemoteFile("mediamill-test.arff")),
)


def load_bibtex(
    *, data_home: str | os.PathLike | None = None, download: bool = True
) -> Dataset:
    """Load bibtex: tags that users gave to publications, from the words about them.

    Parameters
    ----------
    data_home : str, path or None, default=None
        Folder that holds ``bibtex/bibtex-train.arff`` and ``bibtex/bibtex-test.arff``,
        plain or gzipped. Searched first, then the folder in the environment
        variable NBSKETCH_DATA, then ``nbsketch`` in scikit-learn's data folder.
    download : bool, default=True
        Without effect: the source is a RAR archive, which Python cannot unpack.

    Returns
    -------
    Dataset
        X is a `scipy.sparse.csr_array` of zeros and ones, y a dense int8 matrix of
        zeros and ones: 7395 rows (4880 train, 2515 test), 1836 features, 159 labels.

    Raises
    ------
    FileNotFoundError
        If the files are not found; it says where they come from and where to put them.
    ValueError
        If a file does not have the expected columns.

    References
    ----------
    Katakis, Tsoumakas and Vlahavas (2008), Multilabel text classification for
    automated tag suggestion, ECML/PKDD discovery challenge.

    Examples
    --------
    >>> from nbsketch.datasets import load_bibtex
    >>> load_bibtex()  # doctest: +SKIP
    Dataset('bibtex', X=(7395, 1836), y=(7395, 159), n_train=4880)
    """
    paths = locate(_BIBTEX, data_home, download)
    names, X, Y, n_train = _read_sparse(paths, 1836, 159)
    return Dataset("bibtex", X, Y, names[:1836], names[1836:], n_train)


def load_bookmarks(
    *, data_home: str | os.PathLike | None = None, download: bool = True
) -> Dataset:
    """Load bookmarks: tags that users gave to web pages, from the words about them.

    The file has no published split: the first 60 000 rows are the training
    part, as in the literature on structured prediction.

    Parameters
    ----------
    data_home : str, path or None, default=None
        Folder that holds ``bookmarks/bookmarks.arff``, plain or gzipped. Looked in
        first, then the folder in the environment variable NBSKETCH_DATA, then
        ``nbsketch`` in scikit-learn's data folder.
    download : bool, default=True
        Without effect: the source is a RAR archive, which Python cannot unpack.

    Returns
    -------
    Dataset
        X is a `scipy.sparse.csr_array` of zeros and ones, y a dense int8 matrix of
        zeros and ones: 87856 rows (60000 train, 27856 test), 2150 features, 208
        labels.

    Raises
    ------
    FileNotFoundError
        If the file is not found; it says where it comes from and where to put it.
    ValueError
        If the file does not have the expected columns or not more than 60 000 rows.

    References
    ----------
    Katakis, Tsoumakas and Vlahavas (2008), Multilabel text classification for
    automated tag suggestion, ECML/PKDD discovery challenge.

    Examples
    --------
    >>> from nbsketch.datasets import load_bookmarks
    >>> load_bookmarks()  # doctest: +SKIP
    Dataset('bookmarks', X=(87856, 2150), y=(87856, 208), n_train=60000)
    """
    paths = locate(_BOOKMARKS, data_home, download)
    names, X, Y, _ = _read_sparse(paths, 2150, 208)
    return Dataset("bookmarks", X, Y, names[:2150], names[2150:], _BOOKMARKS_TRAIN)


def load_mediamill(
    *, data_home: str | os.PathLike | None = None, download: bool = True
) -> Dataset:
    """Load mediamill: concepts in video shots, from features of the images.

    Parameters
    ----------
    data_home : str, path or None, default=None
        Folder that holds ``mediamill/mediamill-train.arff`` and
        ``mediamill/mediamill-test.arff``, plain or gzipped. Searched first, then the
        folder that the environment variable NBSKETCH_DATA names, then ``nbsketch`` in
        scikit-learn's data folder.
    download : bool, default=True
        Without effect: the source is a RAR archive, which Python cannot unpack.

    Returns
    -------
    Dataset
        X is a dense float matrix, y a dense int8 matrix of zeros and ones: 43907 rows
        (30993 train, 12914 test), 120 features, 101 labels.

    Raises
    ------
    FileNotFoundError
        If the files are not found; it says where they come from and where to put them.
    ValueError
        If a file does not have the expected columns.

    References
    ----------
    Snoek, Worring, van Gemert, Geusebroek and Smeulders (2006), The challenge problem
    for automated detection of 101 semantic concepts in multimedia, ACM Multimedia.

    Examples
    --------
    >>> from nbsketch.datasets import load_mediamill
    >>> load_mediamill()  # doctest: +SKIP
    Dataset('mediamill', X=(43907, 120), y=(43907, 101), n_train=30993)
    """
    paths = locate(_MEDIAMILL, data_home, download)
    (names, train), (_, test) = (read_dense_arff(path) for path in paths)
    for path, table in zip(paths, (train, test), strict=True):
        _check_columns(path, table, 120 + 101)
    table = np.vstack([train, test])
    X, Y = table[:, :120].copy(), table[:, 120:].astype(np.int8)
    return Dataset(
        "mediamill", X, Y, tuple(names[:120]), tuple(names[120:]), len(train)
    )


def _read_sparse(
    paths: list[Path], n_features: int, n_labels: int
) -> tuple[tuple[str, ...], csr_array, NDArray, int]:
    """Return the names, the inputs, the labels and the rows of the first file."""
    tables = []
    for path in paths:
        names, table = read_arff(path)
        _check_columns(path, table, n_features + n_labels)
        tables.append(csr_array(table))
    whole = vstack(tables, format="csr")
    Y = whole[:, n_features:].toarray().astype(np.int8)
    return tuple(names), whole[:, :n_features], Y, tables[0].shape[0]


def _check_columns(path: Path, table: NDArray | csr_array, n_columns: int) -> None:
    if table.shape[1] != n_columns:
        raise ValueError(f"{path} must have {n_columns} columns, got {table.shape[1]}")
