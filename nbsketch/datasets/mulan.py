"""Sets with published splits: Mulan's labels and targets, and otolith images."""

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, vstack

from nbsketch._report.validation import check_choice
from nbsketch.datasets._dataset import Dataset
from nbsketch.datasets._files import (
    Entry,
    Folder,
    Loader,
    described,
    fetch_through_sklearn,
    locate,
    read_arff,
    read_dense_arff,
    read_entries,
    read_lines,
)

_SIDE = 64  # of the images
_AGE = "Ground truth"  # the column of the ages
IMAGES = read_entries(Entry, "images")
_NO_DOWNLOAD = (
    "Without effect: the source is a RAR archive, which Python cannot unpack."
)


@dataclass(frozen=True, kw_only=True)
class LabelSet(Entry):
    """Files and shape of a set; `n_train` None: the rows of the first file."""

    n_features: int
    n_labels: int
    is_sparse: bool = False
    n_train: int | None = None


@dataclass(frozen=True, kw_only=True)
class TargetSet(Entry):
    """Files and shape of a set; `is_truncated`: the paper has integer targets."""

    n_features: int
    target_names: tuple[str, ...]
    n_train: int
    n_test: int
    openml_id: int
    is_truncated: bool = False


LABEL_SETS = read_entries(LabelSet, "multilabel")
TARGET_SETS = read_entries(TargetSet, "multitarget")


def label_loader(name: str) -> Loader:
    """Return the function that loads a set of labels, or of images."""
    entry = (LABEL_SETS | IMAGES)[name]

    def load(*, data_home: Folder = None, download: bool = True) -> Dataset:
        """Load {title}.

        {details}

        Parameters
        ----------
        data_home : str, path or None, default=None
            Folder that holds
            {files},
            plain or gzipped. Searched first, then the folder in the environment
            variable NBSKETCH_DATA, then ``nbsketch`` in scikit-learn's data folder.
        download : bool, default=True
        {download}

        Returns
        -------
        Dataset
        {returns}

        Raises
        ------
        FileNotFoundError
            If a file is not found; the message says where to get the files and where to
            put them.
        ValueError
            If a file does not have the expected columns, or an image not its size.

        References
        ----------
        {references}

        Examples
        --------
        >>> from nbsketch.datasets import {loader}
        >>> {loader}()  # doctest: +SKIP
        {example}
        """
        paths = locate(entry, data_home, download)
        if isinstance(entry, LabelSet):
            return _read_labels(entry, paths)
        return _read_images(name, *paths)

    return described(load, entry, download=_NO_DOWNLOAD)


def _read_images(name: str, train_table: Path, test_table: Path) -> Dataset:
    y_train = _read_ages(train_table)
    y_test = _read_ages(test_table)
    images = [train_table.parent / f"Train_fc_{i}.npy" for i in range(len(y_train))]
    images += [test_table.parent / f"Test_fc_{i}.npy" for i in range(len(y_test))]
    X = np.stack([_read_image(path) for path in images])
    y = np.concatenate([y_train, y_test])
    pixels = tuple(f"pixel_{i}_{j}" for i in range(_SIDE) for j in range(_SIDE))
    return Dataset(name, X, y, pixels, ("age",), len(y_train))


def _read_ages(path: Path) -> NDArray:
    rows = list(csv.DictReader(read_lines(path)))
    if not rows or _AGE not in rows[0]:
        raise ValueError(f"{path} must have rows and a column named {_AGE!r}")
    return np.array([float(row[_AGE]) for row in rows])


def _read_image(path: Path) -> NDArray:
    if not path.is_file():
        raise FileNotFoundError(
            f"The image {path} of the data set 'otoliths' was not found, but the table "
            "beside it has a row for it: put all images into this folder"
        )
    image = np.load(path)
    if image.size != _SIDE**2:
        raise ValueError(f"{path} must hold {_SIDE**2} values, got {image.shape}")
    return image.ravel().astype(np.float32 if image.dtype == np.float32 else np.float64)


def _read_labels(entry: LabelSet, paths: Sequence[Path]) -> Dataset:
    tables = []
    q = entry.n_features
    for path in paths:
        names, table = read_arff(path)
        if table.shape[1] != q + entry.n_labels:
            raise ValueError(
                f"{path} must have {q + entry.n_labels} columns, got {table.shape[1]}"
            )
        tables.append(csr_array(table))
    all_rows = vstack(tables, format="csr")
    X = all_rows[:, :q]
    Y = all_rows[:, q:].toarray().astype(np.int8)
    n_train = entry.n_train or tables[0].shape[0]
    features = tuple(names[:q])
    labels = tuple(names[q:])
    X = X if entry.is_sparse else X.toarray()
    return Dataset(entry.name, X, Y, features, labels, n_train)


def target_loader(name: str) -> Loader:
    """Return the function that loads a set of several targets."""
    entry = TARGET_SETS[name]

    def load(
        *, data_home: Folder = None, preparation: str = "plain", download: bool = True
    ) -> Dataset:
        """Load {title}.

        {details}

        Parameters
        ----------
        data_home : str, path or None, default=None
            Folder that holds
            {files},
            plain or gzipped. Searched first, then the folder in the environment
            variable NBSKETCH_DATA, then ``nbsketch`` in scikit-learn's data folder.
        preparation : {{"plain", "paper"}}, default="plain"
        {preparation}
        download : bool, default=True
            Whether to download missing files: the two files from the Mulan project,
            verified by SHA-256, or else the complete set from OpenML through
            scikit-learn, which is assumed to have the training samples first (only
            their number is verified).

        Returns
        -------
        Dataset
        {returns}

        Raises
        ------
        FileNotFoundError
            If a file is neither found nor downloaded; the message says where to get the
            files and where to put them.
        ValueError
            If a file does not have the expected columns, or the set of OpenML not the
            expected number of samples.

        References
        ----------
        {references}

        Examples
        --------
        >>> from nbsketch.datasets import {loader}
        >>> {loader}()  # doctest: +SKIP
        {example}
        """
        check_choice("preparation", preparation, ("plain", "paper"))
        names, X, Y, n_train = _read_targets(entry, data_home, download)
        if preparation == "plain":
            from sklearn.impute import SimpleImputer

            # Columns without values in training are 0.
            X = SimpleImputer(keep_empty_features=True).fit(X[:n_train]).transform(X)
        else:
            X = np.where(np.isnan(X), 0.0, X)
            Y = np.trunc(Y) if entry.is_truncated else Y
        return Dataset(name, X, Y, names, entry.target_names, n_train)

    return described(load, entry)


def _read_targets(
    entry: TargetSet, data_home: Folder, download: bool
) -> tuple[tuple[str, ...], NDArray, NDArray, int]:
    """Return input names, inputs, targets and n_train."""
    try:
        paths = locate(entry, data_home, download)
    except FileNotFoundError as missing:
        if not download:
            raise
        return *_read_openml(entry, missing), entry.n_train
    (names, X_train, Y_train), (_, X_test, Y_test) = (
        _split_columns(entry, *read_dense_arff(path), str(path)) for path in paths
    )
    X = np.vstack([X_train, X_test])
    return names, X, np.vstack([Y_train, Y_test]), len(X_train)


def _read_openml(
    entry: TargetSet, missing: FileNotFoundError
) -> tuple[tuple[str, ...], NDArray, NDArray]:
    """Return the complete set from OpenML; raise `missing` if it fails."""
    from sklearn.datasets import fetch_openml

    bunch = fetch_through_sklearn(
        fetch_openml,
        missing,
        data_id=entry.openml_id,
        target_column=None,
        as_frame=False,
        parser="liac-arff",
    )
    table = np.asarray(bunch.data, dtype=float)
    what = f"OpenML's data set {entry.openml_id}"
    if len(table) != entry.n_train + entry.n_test:
        raise ValueError(
            f"{what} must have {entry.n_train} + {entry.n_test} rows for the published "
            f"split, got {len(table)}. {missing}"
        ) from None
    return _split_columns(entry, list(bunch.feature_names), table, what)


def _split_columns(
    entry: TargetSet, names: Sequence[str], table: NDArray, what: str
) -> tuple[tuple[str, ...], NDArray, NDArray]:
    """Return input names, inputs and targets of a table."""
    targets = [names.index(name) for name in entry.target_names if name in names]
    inputs = [i for i in range(len(names)) if i not in set(targets)]
    if (len(inputs), len(targets)) != (entry.n_features, len(entry.target_names)):
        raise ValueError(
            f"{what} must have {entry.n_features} inputs and the targets "
            f"{', '.join(entry.target_names)}; got {len(inputs)} inputs and "
            f"{len(targets)} of these targets"
        )
    return tuple(names[i] for i in inputs), table[:, inputs], table[:, targets]


LOADERS = {name: label_loader(name) for name in (*LABEL_SETS, *IMAGES)}
LOADERS |= {name: target_loader(name) for name in TARGET_SETS}
