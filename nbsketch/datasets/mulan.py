"""Mulan's sets with several targets: labels of text and video, flows, prices."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, vstack

from nbsketch._validation import check_choice
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
)


@dataclass(frozen=True)
class LabelSet(Entry):
    """Files and shape of a set; `n_train`: rows of the first file if None."""

    n_features: int
    n_labels: int
    is_sparse: bool = False
    n_train: int | None = None


@dataclass(frozen=True)
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
    """Return the function that loads a set of labels."""
    entry = LABEL_SETS[name]

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
            Without effect: the source is a RAR archive, which Python cannot unpack.

        Returns
        -------
        Dataset
        {returns}

        Raises
        ------
        FileNotFoundError
            If a file is not found; it says where the files come from and where to put
            them.
        ValueError
            If a file does not have the expected columns, or not enough rows.

        References
        ----------
        {references}

        Examples
        --------
        >>> from nbsketch.datasets import {loader}
        >>> {loader}()  # doctest: +SKIP
        {example}
        """
        return _load_labels(entry, data_home, download)

    return described(load, entry)


def _load_labels(entry: LabelSet, data_home: Folder, download: bool) -> Dataset:
    tables, q = [], entry.n_features
    for path in locate(entry, data_home, download):
        names, table = (read_arff if entry.is_sparse else read_dense_arff)(path)
        if table.shape[1] != q + entry.n_labels:
            raise ValueError(
                f"{path} must have {q + entry.n_labels} columns, got {table.shape[1]}"
            )
        tables.append(csr_array(table) if entry.is_sparse else table)
    if entry.is_sparse:
        all_rows = vstack(tables, format="csr")
        X, Y = all_rows[:, :q], all_rows[:, q:].toarray()
    else:
        all_rows = np.vstack(tables)
        X, Y = all_rows[:, :q].copy(), all_rows[:, q:]
    n_train = entry.n_train or tables[0].shape[0]
    features, labels = tuple(names[:q]), tuple(names[q:])
    return Dataset(entry.name, X, Y.astype(np.int8), features, labels, n_train)


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
            Whether to download the files if none of these folders has them: the two
            files from the Mulan project, verified by SHA-256, or else the whole set
            from OpenML through scikit-learn, assumed to hold the training rows followed
            by the test rows (only their number is verified).

        Returns
        -------
        Dataset
        {returns}

        Raises
        ------
        FileNotFoundError
            If a file is neither found nor downloaded; it says where the files come
            from and where to put them.
        ValueError
            If a file does not have the expected columns, or the set of OpenML not the
            expected number of rows.

        References
        ----------
        {references}

        Examples
        --------
        >>> from nbsketch.datasets import {loader}
        >>> {loader}()  # doctest: +SKIP
        {example}
        """
        return _load_targets(entry, data_home, preparation, download)

    return described(load, entry)


def _load_targets(
    entry: TargetSet, data_home: Folder, preparation: str, download: bool
) -> Dataset:
    check_choice("preparation", preparation, ("plain", "paper"))
    feature_names, X, Y, n_train = _read_targets(entry, data_home, download)
    if preparation == "plain":
        X = _fill_with_training_mean(X, n_train)
    else:
        X = np.where(np.isnan(X), 0.0, X)
        Y = np.trunc(Y) if entry.is_truncated else Y
    return Dataset(entry.name, X, Y, feature_names, entry.target_names, n_train)


def _read_targets(
    entry: TargetSet, data_home: Folder, download: bool
) -> tuple[tuple[str, ...], NDArray, NDArray, int]:
    """Return the names of the inputs, the inputs, the targets and n_train."""
    try:
        paths = locate(entry, data_home, download)
    except FileNotFoundError as missing:
        if not download:
            raise
        return *_read_openml(entry, missing), entry.n_train
    (names, X_train, Y_train), (_, X_test, Y_test) = (
        _split_columns(entry, *read_dense_arff(path), str(path)) for path in paths
    )
    X, Y = np.vstack([X_train, X_test]), np.vstack([Y_train, Y_test])
    return names, X, Y, len(X_train)


def _read_openml(
    entry: TargetSet, missing: FileNotFoundError
) -> tuple[tuple[str, ...], NDArray, NDArray]:
    """Return the whole set as OpenML has it; raise `missing` if it fails."""
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
    """Return the names of the inputs, the inputs and the targets of a table."""
    targets = [names.index(name) for name in entry.target_names if name in names]
    inputs = [i for i in range(len(names)) if i not in set(targets)]
    if (len(inputs), len(targets)) != (entry.n_features, len(entry.target_names)):
        raise ValueError(
            f"{what} must have {entry.n_features} inputs and the targets "
            f"{', '.join(entry.target_names)}; got {len(inputs)} inputs and "
            f"{len(targets)} of these targets"
        )
    return tuple(names[i] for i in inputs), table[:, inputs], table[:, targets]


def _fill_with_training_mean(X: NDArray, n_train: int) -> NDArray:
    """Return X with NaN replaced by the mean of the column's known training values."""
    gaps = np.isnan(X)
    present = ~gaps[:n_train]
    totals = np.where(present, X[:n_train], 0.0).sum(axis=0)
    # A column without training values is constant, and has no effect.
    means = totals / np.maximum(present.sum(axis=0), 1)
    return np.where(gaps, means, X)
