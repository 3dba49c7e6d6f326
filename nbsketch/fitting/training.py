"""Training rows: their weights, and the folds in which they are left out together.

A row of weight zero is left out before anything else.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.model_selection import check_cv
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.validation import _check_sample_weight

from nbsketch._machine.memory import fits
from nbsketch._report.validation import check_integer, explaining
from nbsketch._sketch_map import KEEP_BYTES
from nbsketch.kernels import Kernel
from nbsketch.rows.inputs import check_domain
from nbsketch.rows.partitions import PartitionedRows
from nbsketch.solvers.folds import Fold, OrderEffect
from nbsketch.tuning import InputScaler
from nbsketch.tuning.rows import as_folds

# Copies of rows are stored if they take at most one over this of the memory limit.
_ROWS_SHARE = 4
# Rows of which the extreme values are found at a time.
_BLOCK_ROWS = 1 << 16


class LazyRows:
    """Rows that are copied, or transformed, when an index asks for them.

    Parameters
    ----------
    X : ndarray or LazyRows of shape (n, q)
        Rows.
    scaler : InputScaler, optional
        Their transformation.
    chosen : ndarray of int, optional
        Indices of the rows that are meant. None: all rows.
    """

    ndim = 2

    def __init__(
        self, X: Any, scaler: InputScaler | None = None, chosen: NDArray | None = None
    ) -> None:
        self._X, self._scaler, self._chosen = X, scaler, chosen
        n_columns = X.shape[1] if scaler is None else len(scaler.center)
        self.shape = len(X if chosen is None else chosen), n_columns
        self.dtype = X.dtype

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Any) -> NDArray:
        part = self._X[rows if self._chosen is None else self._chosen[rows]]
        return part if self._scaler is None else self._scaler.transform(part)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray:
        return self[:].astype(dtype or self.dtype, copy=False)

    def min(self, axis: int | None = None) -> Any:
        """Return the least value, of each column with axis 0."""
        return np.min([block.min(axis) for block in self._blocks()], axis=axis)

    def max(self, axis: int | None = None) -> Any:
        """Return the largest value, of each column with axis 0."""
        return np.max([block.max(axis) for block in self._blocks()], axis=axis)

    def _blocks(self) -> Iterator[NDArray]:
        starts = range(0, len(self), _BLOCK_ROWS)
        return (self[start : start + _BLOCK_ROWS] for start in starts)


def choose_rows(X: Any, rows: NDArray) -> Any:
    """Return some rows of X: copied, or later if a copy takes much of the memory."""
    if isinstance(X, PartitionedRows):
        return X.select(rows)
    is_dense = isinstance(X, np.ndarray | LazyRows) and X.ndim == 2
    if not is_dense or _is_copied(X.dtype, len(rows), X.shape[1]):
        return X[rows]
    return LazyRows(X, chosen=rows)


def transformed(X: Any, scaler: InputScaler) -> Any:
    """Return transformed rows: now, or later if they take much of the memory."""
    if isinstance(X, PartitionedRows):
        return X.map(scaler.transform, len(scaler.center))
    if _is_copied(X.dtype, len(X), len(scaler.center)):
        return scaler.transform(X[:] if isinstance(X, LazyRows) else X)
    return LazyRows(X, scaler)


def transform_rows(
    rows: Any, scaler: InputScaler | None, kernel: Kernel, name: str = "X"
) -> Any:
    """Return new rows as prepared for a kernel; errors call them `name`."""
    if scaler is not None:
        if sp.issparse(rows):
            raise TypeError(
                f"`{name}` must be dense for a model that transforms its inputs, got a "
                "sparse matrix: fit it with sparse rows, or with a bandwidth"
            )
        rows = transformed(rows, scaler)
    check_domain(kernel, name, rows)
    return rows


def _is_copied(dtype: np.dtype, n: int, n_columns: int) -> bool:
    n_bytes = dtype.itemsize * n * n_columns
    return fits(n_bytes, copies=_ROWS_SHARE, modest=KEEP_BYTES)


class TrainingRows(NamedTuple):
    """Rows of positive weight, the only ones that a fit works with.

    Attributes
    ----------
    X : ndarray, csr_array, LazyRows, PartitionedRows or Objects of n rows
        Inputs; for kernel values without the columns of the other rows.
    y : ndarray, csr_array or Objects of n rows
        Targets.
    weights : ndarray of shape (n,) or None
        Positive weights as given. None: equal weights.
    kept : ndarray of shape (n,) or None
        Indices of the rows among those given. None: all of them.
    n_given : int
        Number of rows given, if some are not kept.
    """

    X: Any
    y: Any
    weights: NDArray | None = None
    kept: NDArray | None = None
    n_given: int = 0

    @classmethod
    def of(
        cls,
        X: Any,
        y: Any,
        weights: NDArray | None,
        *,
        pairwise: bool = False,
        lazy: bool = False,
    ) -> TrainingRows:
        """Return the rows of positive weight.

        `pairwise`: X holds kernel values. `lazy`: many rows are copied when they are
        asked for, block by block.
        """
        is_square = X.shape[0] == X.shape[-1]
        if weights is None or weights.all() or (pairwise and not is_square):
            return cls(X, y, weights)  # a matrix that is not square is refused later
        kept = np.flatnonzero(weights)
        if pairwise:
            X = X[np.ix_(kept, kept)]
        else:
            X = choose_rows(X, kept) if lazy else X[kept]
        return cls(X, y[kept], weights[kept], kept, len(weights))

    def take(self, rows: NDArray, columns: NDArray | None = None) -> TrainingRows:
        """Return some rows, for kernel values with some columns."""
        X = (
            choose_rows(self.X, rows)
            if columns is None
            else self.X[np.ix_(rows, columns)]
        )
        weights = None if self.weights is None else self.weights[rows]
        kept = rows if self.kept is None else self.kept[rows]
        return TrainingRows(X, self.y[rows], weights, kept)

    @property
    def relative_weights(self) -> NDArray | None:
        """Weights of mean one, None if they are equal.

        With mean one, a row of weight two counts in the objective as the same row
        twice, and a row of weight zero as no row.
        """
        if self.weights is None or np.ptp(self.weights) == 0:
            return None
        return self.weights / self.weights.mean()


def check_weights(sample_weight: Any, X: Any) -> NDArray | None:
    """Return non-negative weights, not all zero, one for each row of X; None: None."""
    if sample_weight is None:
        return None
    with explaining({"sample_weight": sample_weight}):
        weights = _check_sample_weight(
            sample_weight, X, dtype=np.float64, ensure_non_negative=True
        )
    if not weights.any():
        raise ValueError("`sample_weight` must have a positive entry, got zeros only")
    return weights


def weights_of_classes(
    class_weight: Any, y: NDArray, weights: NDArray | None
) -> NDArray | None:
    """Return the weights of the rows times those of their classes.

    Parameters
    ----------
    class_weight : dict, "balanced" or None
        Weight of each class. "balanced": inversely proportional to the frequencies of
        the classes, with rows counted by their weights. None: ones.
    y : ndarray of shape (n,)
        Labels.
    weights : ndarray of shape (n,) or None
        Weights of the rows; classes without a row of positive weight do not exist.
    """
    if class_weight is None:
        return weights
    row_weights = np.ones(len(y)) if weights is None else weights
    rows = np.flatnonzero(row_weights)
    classes, index = np.unique(y[rows], return_inverse=True)
    factors = compute_class_weight(class_weight, classes=classes, y=y[rows])
    if isinstance(class_weight, str):
        counts = np.bincount(index, row_weights[rows])
        factors = counts.sum() / (len(classes) * counts)
    out = np.zeros(len(y))
    out[rows] = row_weights[rows] * factors[index]
    return out


class DependentRowsWarning(UserWarning):
    """The order of the rows contradicts the leave-one-out error.

    `fit` warns if ``cv=None`` has chosen the penalty of the square loss, or a model for
    tables (:doc:`/tabular`), and contiguous blocks of rows, left out together, are
    predicted far worse than random blocks of the same rows: 1.5 times the error, and a
    tenth of the spread of the targets. Neighbors then nearly repeat each other, or the
    rows are sorted.

    Examples
    --------
    >>> import warnings
    >>> import numpy as np
    >>> from nbsketch import DependentRowsWarning, SketchedKernelRegressor
    >>> X = np.random.default_rng(0).normal(size=(40, 5)).repeat(5, axis=0)
    >>> y = np.random.default_rng(1).normal(size=40).repeat(5)
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always", DependentRowsWarning)
    ...     _ = SketchedKernelRegressor(bandwidth=1.0, random_state=0).fit(X, y)
    >>> caught[0].category.__name__
    'DependentRowsWarning'
    """


def dependent_rows(effect: OrderEffect) -> DependentRowsWarning:
    """Return the warning that says what was found and what to pass."""
    return DependentRowsWarning(
        "rows depend on their neighbors: the error of leaving contiguous blocks out, "
        f"{effect.contiguous:.3g}, contradicts that of random blocks, "
        f"{effect.random:.3g}, so leave-one-out chooses a model that interpolates. "
        "Pass cv=5 (contiguous blocks), cv=TimeSeriesSplit() or cv=GroupKFold() with "
        "`groups`; if the rows are only sorted, shuffle them"
    )


def resolve_folds(
    cv: Any, groups: Any, X: Any, y: NDArray, weights: NDArray | None
) -> tuple[Fold, ...] | None:
    """Return the folds of the rows of X; None for leave-one-out.

    Parameters
    ----------
    cv : None, int, splitter or iterable of (train, test)
        None: leave-one-out. An integer: that many contiguous blocks of rows, or of
        whole groups. A splitter of scikit-learn, or index arrays, are obeyed.
    groups : array of shape (n,) or None
        Label of the group of each row.
    X, y
        As the splitter takes them.
    weights : ndarray of shape (n,) or None
        Weights of the rows; those of weight zero are in no fold.

    Examples
    --------
    >>> import numpy as np
    >>> from nbsketch.fitting.training import resolve_folds
    >>> folds = resolve_folds(2, ["a", "b", "a", "c"], np.eye(4), np.ones(4), None)
    >>> [fold.test.tolist() for fold in folds]
    [[0, 2], [1, 3]]
    """
    groups = _check_groups(groups, X.shape[0])
    if cv is None and groups is None:
        return None
    if cv is None:
        raise ValueError(
            "`cv` must not be None with `groups`: pass an integer, for so many blocks "
            "of whole groups, or a splitter such as GroupKFold()"
        )
    if isinstance(cv, Integral):
        cv = check_integer("cv", cv, low=2, high=X.shape[0])
        return tuple(as_folds(cv, X.shape[0], groups, weights) or ())
    return tuple(as_folds(_pairs(cv, X, y, groups), X.shape[0], None, weights) or ())


def folds_of_kept(cv: Any, groups: Any, rows: TrainingRows) -> tuple[Fold, ...] | None:
    """Return the folds of the rows of positive weight, numbered within them.

    Integers and splitters split these rows. Index arrays refer to all rows that were
    given, as the groups do.
    """
    if rows.kept is None:
        return resolve_folds(cv, groups, rows.X, rows.y, None)
    groups = _check_groups(groups, rows.n_given)
    if cv is None or isinstance(cv, Integral) or hasattr(cv, "split"):
        labels = None if groups is None else groups[rows.kept]
        return resolve_folds(cv, labels, rows.X, rows.y, None)
    weights, targets = np.zeros(rows.n_given), np.zeros(rows.n_given)
    weights[rows.kept] = 1.0
    folds = resolve_folds(cv, groups, targets[:, None], targets, weights)
    return tuple(_restricted(fold, rows.kept) for fold in folds or ())


def _check_groups(groups: Any, n: int) -> NDArray | None:
    if groups is None:
        return None
    labels = np.asarray(groups)
    if labels.shape != (n,):
        raise ValueError(f"`groups` must have shape ({n},), got {labels.shape}")
    return labels


def _pairs(
    cv: Any, X: Any, y: NDArray, groups: NDArray | None
) -> list[tuple[NDArray, NDArray]]:
    """Return the (train, test) index arrays of a splitter or an iterable."""
    try:
        splitter = check_cv(cv)
    except ValueError as error:
        raise TypeError(
            "`cv` must be None, an integer, a splitter of scikit-learn or an iterable "
            f"of (train, test) index arrays, got {cv!r}"
        ) from error
    try:
        pairs = [(train, test) for train, test in splitter.split(X, y, groups)]
    except (TypeError, ValueError) as error:
        missing = "" if groups is not None else " and no `groups`"
        raise type(error)(
            f"`cv` must split {X.shape[0]} rows into (train, test) index arrays, got "
            f"{cv!r}{missing}: {error}"
        ) from error
    return pairs


def split_last(
    folds: Sequence[Fold], n: int, count: int
) -> tuple[NDArray, NDArray, tuple[Fold, ...]]:
    """Hold out the last folds, at least `count` rows, whole.

    Returns
    -------
    kept, held_out : ndarray of int
        Ascending indices of rows; `held_out` are the test rows of the last folds.
    rest : tuple of Fold
        The other folds, restricted to `kept` and numbered within it.
    """
    held_out, left = np.empty(0, dtype=np.intp), list(folds)
    while left and len(held_out) < count:
        held_out = np.union1d(held_out, left.pop().test)
    kept = np.setdiff1d(np.arange(n), held_out)
    restricted = [_restricted(fold, kept) for fold in left]
    usable = tuple(f for f in restricted if len(f.test) and len(f.removed) < len(kept))
    if not usable:
        raise ValueError(
            f"`cv` must have a fold besides those that are held out, whose rows are "
            f"{len(held_out)} of {n}, got {len(folds)} folds: pass more folds"
        )
    return kept, held_out, usable


def _restricted(fold: Fold, kept: NDArray) -> Fold:
    """Return a fold of some rows, numbered within them."""
    parts = (np.intersect1d(rows, kept) for rows in fold)
    return Fold(*(np.searchsorted(kept, rows) for rows in parts))
