"""Rows that are left out together: `cv` and `groups`, resolved to folds once."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import check_cv

from nbsketch._validation import check_integer
from nbsketch.fitting.weights import TrainingRows
from nbsketch.solvers.folds import Fold, OrderEffect
from nbsketch.tuning.rows import as_folds


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
    >>> from nbsketch.fitting.folds import resolve_folds
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
    rest = [_restricted(fold, kept) for fold in left]
    usable = tuple(f for f in rest if len(f.test) and len(f.removed) < len(kept))
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
