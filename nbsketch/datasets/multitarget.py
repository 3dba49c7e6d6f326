"""Mulan's multi-target regression sets: river flow (rf) and supply chain (scm)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nbsketch._validation import check_choice
from nbsketch.datasets._arff import read_dense_arff
from nbsketch.datasets._dataset import Dataset
from nbsketch.datasets._docs import Folder, Loader, documented
from nbsketch.datasets._files import (
    RemoteFile,
    Source,
    fetch_through_sklearn,
    locate,
)

_FOLDER = (
    "https://downloads.sourceforge.net/project/mulan/datasets/"
    "multi-target%20regression%20datasets/"
)
_ORIGIN = (
    "the file area of the Mulan project (mulan.sourceforge.net), folder "
    "'datasets/multi-target regression datasets'"
)
_RIVERS = ("CHSI2", "NASI2", "EADM7", "SCLM7", "CLKM7", "VALI2", "NAPM7", "DLDI4")
_FLOWS = tuple(f"{river}_48H__0" for river in _RIVERS)


@dataclass(frozen=True)
class _Set:
    """Source and shape of a set; `truncated`: the paper has integer targets."""

    source: Source
    n_features: int
    target_names: tuple[str, ...]
    n_train: int
    n_test: int
    openml_id: int
    truncated: bool = False


def _source(name: str, train_sha256: str, test_sha256: str) -> Source:
    files = tuple(
        RemoteFile(f"{name}-{part}.arff", f"{_FOLDER}{name}-{part}.arff", sha256)
        for part, sha256 in (("train", train_sha256), ("test", test_sha256))
    )
    return Source(name, _ORIGIN, files)


_RF1 = _Set(
    _source(
        "rf1",
        "5dabd31afa42d5cd536fb8b29c9ec46a8f56dca18d41f1166a3cfe3eff7e1197",
        "abb017dd6e2d4ea1e45a4c3520ccdfdacc6e51c4f9dd5eb8ac7f6f044b756f34",
    ),
    n_features=64,
    target_names=_FLOWS,
    n_train=4108,
    n_test=5017,
    openml_id=41483,  # unconfirmed: names and number of rows are checked
    truncated=True,
)
_RF2 = _Set(
    _source(
        "rf2",
        "8304ecda366b7b33b880a817e795c2668f7da543c927e7a69b2cca5cba0ae395",
        "7e681ff77cdfbacdf6971bc39124f0c658a9c9144ab6ccdd124d7b8a1212442b",
    ),
    n_features=576,
    target_names=_FLOWS,
    n_train=4108,
    n_test=5017,
    openml_id=41484,
    truncated=True,
)
_SCM1D = _Set(
    _source(
        "scm1d",
        "a47931e09b47c4264bd8f530d6dfcdadd1250acdd6ecbea2492660b26664b5c9",
        "6f13588e01d84aa9a417876e1fb2cb275fffc01d8c514ed36f92383b068d5c46",
    ),
    n_features=280,
    target_names=("LBL", *(f"MTLp{i}" for i in range(2, 17))),
    n_train=8145,
    n_test=1658,
    openml_id=41485,
)
_SCM20D = _Set(
    _source(
        "scm20d",
        "a29a9b36509ded4a24faa90c64fafa792199dc4ef950a52a1c42d6b2482bb5c6",
        "ab650adbb9b651af7d027ca5eec5f49d544ce96f5de65389fc242bb6d2fe678f",
    ),
    n_features=61,
    target_names=("LBL", *(f"MTLp{i}A" for i in range(2, 17))),
    n_train=7463,
    n_test=1503,
    openml_id=41486,
)

_GAPS = (
    '"plain" replaces missing inputs by the mean of their column over the training '
    'rows. "paper" is the preparation of the p-sparsified paper (El Ahmad, Laforgue '
    "and d'Alche-Buc, 2023): missing inputs are 0, targets are truncated to integers. "
    "Neither scales the data."
)
_COMPLETE = (
    "Without effect: this set has no missing values. The parameter exists for symmetry "
    "with the river-flow sets. The data are not scaled."
)
_DOWNLOAD = (
    "Whether to download the files if none of these folders has them: the two files "
    "from the Mulan project, verified by SHA-256, or else the whole set from OpenML "
    "through scikit-learn, assumed to hold the training rows followed by the test rows "
    "(only their number is verified)."
)
_MISMATCH = (
    "If a file does not have the expected columns, or the set of OpenML not the "
    "expected number of rows."
)


def _load(known: _Set, data_home: Folder, preparation: str, download: bool) -> Dataset:
    check_choice("preparation", preparation, ("plain", "paper"))
    feature_names, X, Y, n_train = _read(known, data_home, download)
    if preparation == "plain":
        X = _fill_with_training_mean(X, n_train)
    else:
        X = np.where(np.isnan(X), 0.0, X)
        Y = np.trunc(Y) if known.truncated else Y
    name = known.source.name
    return Dataset(name, X, Y, feature_names, known.target_names, n_train)


def _read(
    known: _Set, data_home: Folder, download: bool
) -> tuple[tuple[str, ...], NDArray, NDArray, int]:
    """Return the names of the inputs, the inputs, the targets and n_train."""
    try:
        paths = locate(known.source, data_home, download)
    except FileNotFoundError as missing:
        if not download:
            raise
        return *_read_openml(known, missing), known.n_train
    (names, X_train, Y_train), (_, X_test, Y_test) = (
        _split_columns(known, *read_dense_arff(path), str(path)) for path in paths
    )
    X, Y = np.vstack([X_train, X_test]), np.vstack([Y_train, Y_test])
    return names, X, Y, len(X_train)


def _read_openml(
    known: _Set, missing: FileNotFoundError
) -> tuple[tuple[str, ...], NDArray, NDArray]:
    """Return the whole set as OpenML has it; raise `missing` if it fails."""
    from sklearn.datasets import fetch_openml

    whole = fetch_through_sklearn(
        fetch_openml,
        missing,
        data_id=known.openml_id,
        target_column=None,
        as_frame=False,
        parser="liac-arff",
    )
    table = np.asarray(whole.data, dtype=float)
    what = f"OpenML's data set {known.openml_id}"
    if len(table) != known.n_train + known.n_test:
        raise ValueError(
            f"{what} must have {known.n_train} + {known.n_test} rows for the published "
            f"split, got {len(table)}. {missing}"
        ) from None
    return _split_columns(known, list(whole.feature_names), table, what)


def _split_columns(
    known: _Set, names: Sequence[str], table: NDArray, what: str
) -> tuple[tuple[str, ...], NDArray, NDArray]:
    """Return the names of the inputs, the inputs and the targets of a table."""
    targets = [names.index(name) for name in known.target_names if name in names]
    inputs = [i for i in range(len(names)) if i not in set(targets)]
    if (len(inputs), len(targets)) != (known.n_features, len(known.target_names)):
        raise ValueError(
            f"{what} must have {known.n_features} inputs and the targets "
            f"{', '.join(known.target_names)}; got {len(inputs)} inputs and "
            f"{len(targets)} of these targets"
        )
    return tuple(names[i] for i in inputs), table[:, inputs], table[:, targets]


def _fill_with_training_mean(X: NDArray, n_train: int) -> NDArray:
    """Return X with NaN replaced by the mean of the column's known training values."""
    gaps = np.isnan(X)
    known = ~gaps[:n_train]
    totals = np.where(known, X[:n_train], 0.0).sum(axis=0)
    # A column without training values is constant, and has no effect.
    means = totals / np.maximum(known.sum(axis=0), 1)
    return np.where(gaps, means, X)


def _loader(
    known: _Set, preparation_text: str
) -> Callable[[Callable[[], None]], Loader]:
    """Return a decorator that makes the loader of a set."""

    def load(
        *, data_home: Folder = None, preparation: str = "plain", download: bool = True
    ) -> Dataset:
        return _load(known, data_home, preparation, download)

    texts = {"preparation": preparation_text, "download": _DOWNLOAD}
    return documented(load, known.source, mismatch=_MISMATCH, **texts)


@_loader(_RF1, _GAPS)
def load_rf1() -> None:
    """Load rf1: river flows two days ahead at eight sites.

    Inputs are the flows of the eight sites now and at seven times up to 60 hours
    before; the earliest rows miss some of these (1632 values in each part). One target
    is an outlier: NASI2 is 78.9 in row 674 of the test part, counted from 0.

    Returns
    -------
    Dataset
        9125 rows (4108 train, 5017 test), 64 features, 8 targets.

    References
    ----------
    Spyromitros-Xioufis, Tsoumakas, Groves and Vlahavas (2016), Multi-target
    regression via input space expansion: treating targets as inputs, Machine
    Learning 104(1), 55-98.

    Examples
    --------
    >>> from nbsketch.datasets import load_rf1
    >>> load_rf1()  # doctest: +SKIP
    Dataset('rf1', X=(9125, 64), y=(9125, 8), n_train=4108)
    """


@_loader(_RF2, _GAPS)
def load_rf2() -> None:
    """Load rf2: river flows two days ahead, with rain forecasts as inputs.

    The inputs of rf1 and 512 more from precipitation forecasts, many of them missing:
    332256 values in the training part, 23904 in the test part. Rows and targets are
    those of rf1, including its outlier.

    Returns
    -------
    Dataset
        9125 rows (4108 train, 5017 test), 576 features, 8 targets.

    References
    ----------
    Spyromitros-Xioufis, Tsoumakas, Groves and Vlahavas (2016), Multi-target
    regression via input space expansion: treating targets as inputs, Machine
    Learning 104(1), 55-98.

    Examples
    --------
    >>> from nbsketch.datasets import load_rf2
    >>> load_rf2()  # doctest: +SKIP
    Dataset('rf2', X=(9125, 576), y=(9125, 8), n_train=4108)
    """


@_loader(_SCM1D, _COMPLETE)
def load_scm1d() -> None:
    """Load scm1d: mean prices of the next day in a supply-chain game.

    Each row is a day of the 2010 Trading Agent Competition in supply chain management;
    the inputs are observed prices, some of them lagged, and the 16 targets are the
    mean prices of the products on the next day.

    Returns
    -------
    Dataset
        9803 rows (8145 train, 1658 test), 280 features, 16 targets.

    References
    ----------
    Spyromitros-Xioufis, Tsoumakas, Groves and Vlahavas (2016), Multi-target
    regression via input space expansion: treating targets as inputs, Machine
    Learning 104(1), 55-98.

    Examples
    --------
    >>> from nbsketch.datasets import load_scm1d
    >>> load_scm1d()  # doctest: +SKIP
    Dataset('scm1d', X=(9803, 280), y=(9803, 16), n_train=8145)
    """


@_loader(_SCM20D, _COMPLETE)
def load_scm20d() -> None:
    """Load scm20d: mean prices 20 days ahead in a supply-chain game.

    Each row is a day of the 2010 Trading Agent Competition in supply chain management;
    the inputs are observed prices and the 16 targets are the mean prices of the
    products 20 days later.

    Returns
    -------
    Dataset
        8966 rows (7463 train, 1503 test), 61 features, 16 targets.

    References
    ----------
    Spyromitros-Xioufis, Tsoumakas, Groves and Vlahavas (2016), Multi-target
    regression via input space expansion: treating targets as inputs, Machine
    Learning 104(1), 55-98.

    Examples
    --------
    >>> from nbsketch.datasets import load_scm20d
    >>> load_scm20d()  # doctest: +SKIP
    Dataset('scm20d', X=(8966, 61), y=(8966, 16), n_train=7463)
    """
