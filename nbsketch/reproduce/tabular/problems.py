"""Data sets of the comparison on tables: tasks, samples and splits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import sklearn.datasets
from numpy.typing import NDArray
from sklearn.model_selection import KFold

from nbsketch.metrics import pinball_loss
from nbsketch.reproduce import ENTRIES
from nbsketch.reproduce._data import MaybePath, load, selected

REGRESSION = "regression"
CLASSIFICATION = "classification"
QUANTILES = "quantiles"
TASKS = REGRESSION, CLASSIFICATION, QUANTILES
LEVELS = 0.1, 0.5, 0.9
# The first of several targets.
_SEVERAL = "scm20d", "rf1"
_OF_SCIKIT_LEARN = "diabetes", "digits", "breast-cancer", "wine", "iris"
_FOLDS = 5
_TIMES = 1, 0, 3, 4  # columns of sml: month, day, hour, minute
_PATIENT = 0  # column of parkinsons
_SETS = ENTRIES["tabular"]["sets"]


class Examples(NamedTuple):
    """Samples and targets; labels are integers from 0.

    Attributes
    ----------
    X : ndarray or DataFrame of shape (n, q)
        Samples; a data frame if there are categories.
    y : ndarray of shape (n,)
        Targets.
    """

    X: Any
    y: NDArray

    @property
    def splits(self) -> int:
        """Splits by default: five below 2000 rows, three above."""
        return 5 if len(self.y) < 2000 else 3

    def rows(self, index: NDArray) -> Examples:
        """Return some rows."""
        X = self.X.iloc[index] if hasattr(self.X, "iloc") else self.X[index]
        return Examples(X, self.y[index])


Split = Callable[[Examples, int], Sequence[NDArray]]


def random_rows(table: Examples, seed: int, share: float = 0.8) -> list[NDArray]:
    """Return a share of the samples at random, and the others."""
    order = np.random.default_rng(seed).permutation(len(table.y))
    return np.split(order, [max(1, round(share * len(order)))])


def time_block(table: Examples, seed: int) -> tuple[NDArray, NDArray]:
    """Return four fifths of a time series, and the contiguous fifth left out."""
    order = np.lexsort([table.X[:, j] for j in _TIMES[::-1]])
    blocks = np.array_split(order, _FOLDS)
    left_out = blocks.pop(seed % _FOLDS)
    return np.concatenate(blocks), left_out


def patients(table: Examples, seed: int) -> tuple[NDArray, NDArray]:
    """Return the rows of four fifths of the patients, and those of the others."""
    who, index = np.unique(table.X[:, _PATIENT], return_inverse=True)
    folds = list(KFold(_FOLDS, shuffle=True, random_state=0).split(who))
    is_left_out = np.isin(index, folds[seed % _FOLDS][1])
    return np.flatnonzero(~is_left_out), np.flatnonzero(is_left_out)


class Benchmark(NamedTuple):
    """A set, its task, and how it is split; for dependent rows, label and groups.

    `read` returns rows and targets of a set that nbsketch does not provide.
    """

    set: str
    task: str
    split: Split = random_rows
    label: str = ""
    groups: int | None = None
    read: Callable[[str], tuple[Any, Any]] | None = None

    @property
    def name(self) -> str:
        """Name of the problem: the set, and the kind of split unless random."""
        return f"{self.set}, {self.label}" if self.label else self.set

    def table(self, data_home: MaybePath) -> Examples:
        """Return rows and targets."""
        X, y = self.read(self.set) if self.read else _read(self.set, data_home)
        if self.task == CLASSIFICATION:
            y = np.unique(y, return_inverse=True)[1]
        return Examples(X, np.asarray(y))


def _read(name: str, data_home: MaybePath) -> tuple[Any, Any]:
    loader = name.replace("-", "_")
    if name in _OF_SCIKIT_LEARN:
        return getattr(sklearn.datasets, f"load_{loader}")(return_X_y=True)
    data = load(loader, data_home)
    if data.X.dtype == object:
        data = load(loader, data_home, as_frame=True)
    y = data.y[:, 0] if name in _SEVERAL else np.asarray(data.y)
    return data.X, y


_DEPENDENT = (
    Benchmark("sml", REGRESSION, time_block, "time blocks"),
    Benchmark("parkinsons", REGRESSION, patients, "new patients", _PATIENT),
)
PROBLEMS = (
    *(Benchmark(name, REGRESSION) for name in _SETS[REGRESSION]),
    *_DEPENDENT,
    *(Benchmark(name, CLASSIFICATION) for name in _SETS[CLASSIFICATION]),
    *(Benchmark(name, QUANTILES) for name in _SETS[REGRESSION]),
)


def quantile_error(y: NDArray, predicted: NDArray) -> float:
    """Return the pinball loss, averaged over the levels."""
    return pinball_loss(y, predicted, LEVELS) / len(LEVELS)


def chosen(
    sets: Sequence[str] | None, every: Sequence[Benchmark]
) -> Iterator[Benchmark]:
    """Yield the problems of some sets, all by default.

    Raises
    ------
    ValueError
        If a set is not known.
    """
    names = selected(sets, sorted({problem.set for problem in every}))
    return (problem for problem in every if problem.set in names)
