"""Folds of `cv`: samples left out together, and checks for dependent samples."""

from collections.abc import Iterable, Sequence
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import check_cv

from nbsketch._report.validation import as_labels, check_integer, warn
from nbsketch.rows.inputs import TrainingRows
from nbsketch.solvers.left_out import Fold, Folds, OrderEffect

# Maximum number of blocks in the search for length scales; more folds are merged.
MOST_BLOCKS = 10
# With fewer rows or a smaller share of the rows in test sets, the search also leaves
# out the other rows: 10, 50 and 100 of 2000 rows (6 features, 8 problems) alone have
# 6.1, 3.4 and 2.2 times the error of leave-one-out, with the others 1.8, 1.1 and 1.1.
_FEWEST_LEFT_OUT = 100
_LEAST_LEFT_OUT = 0.1


class DependentRowsWarning(UserWarning):
    """Warning: the order of the samples contradicts the leave-one-out error.

    `fit` warns if ``cv=None`` has chosen the penalty for the square loss, or a tabular
    model (:doc:`/tabular`), and the error of leaving out contiguous blocks is far
    larger than that of random blocks: 1.5 times the error, and a tenth of the spread of
    the targets. Neighboring samples are then nearly repeated, or the samples are
    sorted. `fit` also warns if a splitter puts samples with equal X and y into
    different folds.

    Examples
    --------
    >>> import warnings
    >>> import numpy as np
    >>> from nbsketch import DependentRowsWarning, SketchedKernelRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(40, 5)).repeat(5, axis=0)
    >>> y = rng.normal(size=40).repeat(5) + 1e-3 * rng.normal(size=200)
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always", DependentRowsWarning)
    ...     _ = SketchedKernelRegressor(bandwidth=1.0, random_state=0).fit(X, y)
    >>> caught[0].category.__name__
    'DependentRowsWarning'
    """


def dependent_rows(
    effect: OrderEffect, labels: NDArray | None = None
) -> DependentRowsWarning:
    """Return the warning with the errors found and the arguments to pass.

    `labels`: the class of each sample, for classification.
    """
    errors = (
        f"the error of leaving contiguous blocks out, {effect.contiguous:.3g}, "
        f"contradicts that of random blocks, {effect.random:.3g}"
    )
    if labels is not None and _is_sorted(labels):
        return DependentRowsWarning(
            f"samples are sorted by class or depend on their neighbors: {errors}. If "
            "they are only sorted, shuffle them; otherwise pass cv=StratifiedKFold() "
            "(contiguous blocks per class) or cv=StratifiedGroupKFold() and `groups`"
        )
    return DependentRowsWarning(
        f"samples depend on their neighbors: {errors}, so leave-one-out chooses a "
        "model that interpolates. Pass cv=5 (contiguous blocks), cv=TimeSeriesSplit() "
        "or cv=GroupKFold() with `groups`; if they are only sorted, shuffle them"
    )


def _is_sorted(labels: NDArray) -> bool:
    """Return whether each class is one run, or a fifth of the rows has all of one."""
    n_runs = 1 + np.count_nonzero(labels[1:] != labels[:-1])
    folds = as_folds(5, len(labels)) or ()
    return n_runs == len(np.unique(labels)) or lost_class(folds, labels) is not None


def lost_class(folds: Iterable[Fold], labels: NDArray) -> Any:
    """Return a class without training rows in some fold; None if there is none.

    Examples
    --------
    >>> import numpy as np
    >>> from nbsketch.rows.splits import as_folds, lost_class
    >>> print(lost_class(as_folds(2, 4), np.array(["a", "a", "a", "b"])))
    b
    """
    classes, index = np.unique(labels, return_inverse=True)
    counts = np.bincount(index)
    for fold in folds:
        lost = np.bincount(index[fold.removed], minlength=len(classes)) == counts
        if lost.any():
            return classes[lost.argmax()]
    return None


def merges_copies(cv: Any) -> bool:
    """Return whether a fit merges duplicate rows: if it makes the folds itself.

    Index arrays and splitters refer to the rows passed by the user.
    """
    return cv is None or isinstance(cv, Integral)


def warn_of_divided_copies(
    cv: Any, folds: Sequence[Fold] | None, place: NDArray | None
) -> None:
    """Warn if duplicates are in different folds of a splitter.

    `place` is the result of `representatives`. Index arrays are the user's choice and
    cause no warning.
    """
    if not hasattr(cv, "split") or folds is None or place is None:
        return
    n = len(place)
    count = max(np.isin(place[f.test], place[f.kept(n)]).sum() for f in folds)
    if count:
        warn(
            DependentRowsWarning(
                f"{count} samples of a test set of `cv` are equal, in X and y, to "
                "training samples, so errors and intervals are too small. Pass an "
                "integer or None as `cv`, or GroupKFold() with a group of equal samples"
            )
        )


def resolve_folds(
    cv: Any, groups: Any, X: Any, y: NDArray, weights: NDArray | None
) -> Folds | None:
    """Return the folds of the samples X; None for leave-one-out.

    Parameters
    ----------
    cv : None, int, splitter or iterable of (train, test)
        None: leave-one-out. An integer: that many contiguous blocks of samples (or of
        whole groups). Scikit-learn splitters and (train, test) indices are used
        unchanged.
    groups : array of shape (n,) or None
        Group label of each sample.
    X, y
        Arguments of the splitter.
    weights : ndarray of shape (n,) or None
        Sample weights; samples of weight zero are in no fold.

    Examples
    --------
    >>> import numpy as np
    >>> from nbsketch.rows.splits import resolve_folds
    >>> folds = resolve_folds(2, ["a", "b", "a", "c"], np.eye(4), np.ones(4), None)
    >>> [fold.test.tolist() for fold in folds]
    [[0, 2], [1, 3]]
    """
    groups = check_groups(groups, X.shape[0])
    if cv is None and groups is None:
        return None
    if cv is None:
        raise ValueError(
            "`cv` must not be None with `groups`: pass an integer, for that many "
            "blocks of whole groups, or a splitter such as GroupKFold()"
        )
    if not isinstance(cv, Integral):
        cv = pairs_of(cv, X, y, groups)
    return tuple(as_folds(cv, X.shape[0], groups, weights) or ())


def folds_of_kept(
    cv: Any, groups: Any, rows: TrainingRows, classification: bool
) -> Folds | None:
    """Return the folds of the samples of positive weight, as indices among them.

    Integers and splitters split these samples. Index arrays and groups refer to all
    samples passed. `classification`: raise an error if blocks leave no training sample
    of a class; for folds of a splitter, warn.
    """
    folds = _folds_of_kept(cv, groups, rows)
    lost = lost_class(folds or (), rows.y) if classification else None
    if lost is None:
        return folds
    message = (
        f"class {lost!s} is in one {{}} of `cv` only, so it has no training sample "
        "there: pass cv=StratifiedKFold(), or cv=StratifiedGroupKFold() and "
        "`groups`; if the samples are only sorted, shuffle them"
    )
    if isinstance(cv, Integral):
        raise ValueError(message.format("block"))
    warn(message.format("fold"))
    return folds


def _folds_of_kept(cv: Any, groups: Any, rows: TrainingRows) -> Folds | None:
    if rows.kept is None:
        return resolve_folds(cv, groups, rows.X, rows.y, None)
    groups = check_groups(groups, rows.n_given)
    if merges_copies(cv) or hasattr(cv, "split"):
        labels = None if groups is None else groups[rows.kept]
        return resolve_folds(cv, labels, rows.X, rows.y, None)
    weights = np.zeros(rows.n_given)
    weights[rows.kept] = 1.0
    folds = resolve_folds(cv, groups, weights[:, None], weights, weights)
    return tuple(_restricted(fold, rows.kept) for fold in folds or ())


def check_groups(groups: Any, n: int) -> NDArray | None:
    """Return the checked group labels of n rows; None if there are no groups."""
    if groups is None:
        return None
    labels = as_labels("groups", groups)
    if labels.shape != (n,):
        raise ValueError(f"`groups` must have shape ({n},), got {labels.shape}")
    return labels


def pairs_of(
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


def as_folds(
    cv: int | Iterable[tuple[Any, Any]] | Sequence[Fold] | None,
    n: int,
    groups: NDArray | None = None,
    sample_weight: NDArray | None = None,
) -> list[Fold] | None:
    """Return folds of n rows; None for leave-one-out.

    Parameters
    ----------
    cv : None, int, iterable of (train, test) or sequence of Fold
        None: leave-one-out, or leave-one-group-out with groups. An integer: that many
        contiguous blocks of rows, or of whole groups in the order of their first rows.
        Pairs of index arrays (as yielded by a scikit-learn splitter) and folds are used
        unchanged.
    n : int
        Number of rows.
    groups : ndarray of shape (n,), default=None
        Group label of each row; ignored for pairs of index arrays.
    sample_weight : ndarray of shape (n,), default=None
        Nonnegative weights. Rows of weight zero are in no fold.

    Examples
    --------
    >>> from nbsketch.rows.splits import as_folds
    >>> [fold.test.tolist() for fold in as_folds(2, 5)]
    [[0, 1, 2], [3, 4]]
    """
    kept = np.arange(n) if sample_weight is None else np.flatnonzero(sample_weight)
    if cv is None and groups is None:
        return None
    if cv is None or isinstance(cv, int | np.integer):
        return [Fold(block, block) for block in _blocks(cv, kept, groups)]
    folds = [_fold(pair, kept, n) for pair in cv]
    if not folds:
        raise ValueError("`cv` must yield at least one (train, test) pair, got none")
    return folds


def _blocks(cv: int | None, kept: NDArray, groups: NDArray | None) -> list[NDArray]:
    """Return contiguous blocks of rows or of whole groups."""
    units = list(kept)
    kind = "rows of positive weight"
    if groups is not None:
        units = _members(kept, np.asarray(groups)[kept])
        kind = "groups"
    count = max(2, len(units)) if cv is None else check_integer("cv", cv, low=2)
    if len(units) < count:
        raise ValueError(
            f"`cv` must have at least {count} {kind} to split for cv={cv!r}, got "
            f"{len(units)}"
        )
    return np.array_split(kept, count) if groups is None else _merged(units, count)


def _members(rows: NDArray, groups: NDArray) -> list[NDArray]:
    """Return the rows of each group, in the order of the first rows of the groups."""
    _, first, member = np.unique(groups, return_index=True, return_inverse=True)
    place = np.argsort(np.argsort(first))[member]
    ends = np.cumsum(np.bincount(place))[:-1]
    return np.split(rows[np.argsort(place, kind="stable")], ends)


def _merged(units: list[NDArray], count: int) -> list[NDArray]:
    """Return neighboring units merged into `count` blocks of about equal size."""
    sizes = np.array([len(unit) for unit in units])
    middles = np.cumsum(sizes) - sizes / 2
    starts = np.searchsorted(middles, np.arange(1, count) * sizes.sum() / count)
    # Each block has a unit, even if units differ much in size.
    place = np.arange(1, count)
    starts = np.maximum.accumulate(np.maximum(starts, 1) - place) + place
    starts = np.minimum(starts, len(units) - count + place)
    parts = np.split(np.arange(len(units)), starts)
    return [np.sort(np.concatenate([units[j] for j in part])) for part in parts]


def _fold(pair: Fold | tuple[Any, Any], kept: NDArray, n: int) -> Fold:
    if isinstance(pair, Fold):
        return pair
    train, test = (_indices(rows, n) for rows in pair)
    if np.intersect1d(train, test).size:
        raise ValueError("`cv` must yield disjoint train and test indices")
    train = np.intersect1d(train, kept)
    test = np.intersect1d(test, kept)
    if not (len(train) and len(test)):
        raise ValueError(
            "`cv` must yield train and test sets with samples of positive weight, got "
            f"{len(train)} and {len(test)} such samples"
        )
    return Fold(test, np.setdiff1d(kept, train))


def _indices(rows: Any, n: int) -> NDArray:
    rows = np.asarray(rows)
    if rows.dtype == bool:
        rows = np.flatnonzero(rows)
    if rows.size and not (
        np.issubdtype(rows.dtype, np.integer) and rows.min() >= 0 and rows.max() < n
    ):
        raise ValueError(f"`cv` must yield indices of the {n} rows, got {rows!r}")
    return rows.astype(np.intp)


def block_labels(folds: Sequence[Fold] | None, n: int) -> NDArray | None:
    """Return the block of each row for the search for length scales; None: rows.

    It is the first fold with the row in its test set. If these are few rows, the others
    form contiguous blocks of the same mean size; otherwise they have block -1. More
    than 10 blocks are merged with their neighbors.
    """
    if folds is None:
        return None
    labels = np.full(n, -1)
    count = len(folds)
    for k in reversed(range(count)):
        labels[folds[k].test] = k
    others = np.flatnonzero(labels < 0)
    left_out = n - len(others)
    if left_out < max(_FEWEST_LEFT_OUT, _LEAST_LEFT_OUT * n):
        more = -(-len(others) * count // left_out)
        labels[others] = count + np.arange(len(others)) * more // len(others)
        count += more
    return labels * min(count, MOST_BLOCKS) // count  # -1 stays


def split_last(
    folds: Sequence[Fold], n: int, count: int
) -> tuple[NDArray, NDArray, Folds]:
    """Hold out complete last folds with at least `count` rows.

    Returns
    -------
    kept, held_out : ndarray of int
        Ascending indices of rows; `held_out` are the test rows of the last folds.
    rest : tuple of Fold
        The other folds, restricted to `kept` and numbered within it.
    """
    held_out = np.empty(0, dtype=np.intp)
    left = list(folds)
    while left and len(held_out) < count:
        held_out = np.union1d(held_out, left.pop().test)
    kept = np.setdiff1d(np.arange(n), held_out)
    restricted = [_restricted(fold, kept) for fold in left]
    usable = tuple(f for f in restricted if len(f.test) and len(f.removed) < len(kept))
    if not usable:
        raise ValueError(
            f"`cv` must have a fold in addition to the held-out folds, which have "
            f"{len(held_out)} of {n} samples, got {len(folds)} folds: pass more folds"
        )
    return kept, held_out, usable


def _restricted(fold: Fold, kept: NDArray) -> Fold:
    """Return a fold restricted to a subset of rows, as indices within it."""
    parts = (np.intersect1d(rows, kept) for rows in fold)
    return Fold(*(np.searchsorted(kept, rows) for rows in parts))
