"""Equal rows of X and y: duplicates, or independent observations that agree.

A file that is read twice, an oversampled class or a bootstrap sample contains duplicate
rows. A row with a duplicate in the fit is not really left out, so a fit first merges
duplicates into one row, with the sum of their weights.

If X and y take few values (claims by age bracket and region), equal rows are
independent observations. They are distinguished from duplicates by the targets of equal
rows of X, which agree for duplicates, or by columns of X whose few values make rows
equal by chance (flags).

Float64 numbers are compared without the digits that files and arithmetic round: a
duplicate read from a file is a duplicate.
"""

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from nbsketch._machine.memory import slices
from nbsketch.rows.partitions import PartitionedRows

# Targets are discrete if different rows of X have equal targets more often than this.
_AGREEMENT = 0.01
# Above this number of distinct rows, numbers of equal rows have no common factor by
# chance.
_FEWEST = 20
# The frequencies of values are estimated from this number of rows.
_COUNTED = 1000
# Equal rows by chance, per row: copies of a bootstrap sample are 1.
_BY_CHANCE = 2.0
# Numbers are rounded to this share of the interquartile range of their column,
_RESOLUTION = 1e-8
# estimated from this number of rows.
_SAMPLED = 100
# Number of values hashed at a time.
_BLOCK = 1 << 17
# An odd number near 2**64 over the golden ratio: its multiples are spread evenly.
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
# Hash of NaN, for any bit pattern.
_NAN = np.uint64(0x7FF8000000000000)


def merged_weights(X: Any, y: Any, weights: NDArray | None) -> NDArray | None:
    """Return weights with equal rows merged: the first has the sum, the others zero.

    Examples
    --------
    >>> import numpy as np
    >>> from nbsketch.rows.copies import merged_weights
    >>> X = np.array([[1.0], [2.0], [1.0], [1.0]])
    >>> y = np.array([0.5, 0.6, 0.5, 0.7])
    >>> merged_weights(X, y, None).tolist()
    [2.0, 1.0, 0.0, 1.0]
    """
    return merged(representatives(X, y, weights), weights)


def merged(place: NDArray | None, weights: NDArray | None) -> NDArray | None:
    """Return weights with the sum of each group at its representative."""
    if place is None:
        return weights
    return np.bincount(place, weights, len(place)).astype(float)


def representatives(X: Any, y: Any, weights: NDArray | None = None) -> NDArray | None:
    """Return the representative of each row, the first of its duplicates.

    Parameters
    ----------
    X : ndarray, csr_array or PartitionedRows of n rows
        Rows; NaN equals NaN. Dense float64 numbers are rounded to 1e-8 of the
        interquartile range of their column before they are compared. Rows in partitions
        are compared only by 64-bit hashes. Other collections of objects have no
        duplicates.
    y : ndarray or csr_array of n rows
        Targets or labels.
    weights : ndarray of shape (n,) or None, default=None
        Sample weights. A row of weight zero represents itself.

    Returns
    -------
    ndarray of int of shape (n,) or None
        Indices of rows. None: there are no duplicates.
    """
    if isinstance(X, list) or isinstance(y, list):
        return None
    kept = np.arange(X.shape[0]) if weights is None else np.flatnonzero(weights)
    units = _units(X)
    inputs = _hashes(X, units)[kept]
    if len(np.unique(inputs)) == len(inputs):
        return None
    targets = _codes(y)
    target_units = _units(targets)
    hashes = _hashes(targets, target_units)[kept]
    pairs = _mixed(inputs) + hashes
    _, first, group = np.unique(pairs, return_index=True, return_inverse=True)
    first = kept[first][group]
    differs = _differ(X, kept, first, units)
    differs |= _differ(targets, kept, first, target_units)
    group = np.unique(np.where(differs, kept, first), return_inverse=True)[1]
    counts = np.bincount(group)
    factor: Any = counts
    if _are_observations(inputs, hashes, counts) or (
        # most rows with equal X have equal targets
        2 * np.sum(counts**2.0) > _equal_pairs(inputs) + len(kept)
        and _coincide(X, kept, units)
    ):
        factor = np.gcd.reduce(counts) if len(counts) >= _FEWEST else 1
    place = np.arange(X.shape[0])
    place[kept] = kept[_first_in_group(group, counts, counts // factor)]
    return None if (place == np.arange(len(place))).all() else place


def _first_in_group(group: NDArray, counts: NDArray, independent: NDArray) -> NDArray:
    """Return the representative of each row: one of the first rows of its group.

    A group has `counts` rows; its first `independent` rows represent all of them in
    turn.
    """
    order = np.argsort(group, kind="stable")
    start = np.repeat(np.cumsum(counts) - counts, counts)
    rank = np.arange(len(group)) - start
    out = np.empty_like(group)
    out[order] = order[start + rank % independent[group[order]]]
    return out


def _are_observations(inputs: NDArray, targets: NDArray, counts: NDArray) -> bool:
    """Return whether equal rows are independent observations.

    `inputs` and `targets` are hashes of the rows of X and y, `counts` the numbers of
    rows that are equal in both. Equal rows are independent if targets are discrete
    (different rows of X often have equal targets) and if a row has, on average, more
    rows with equal X and another target than one independent draw. Fewer such rows are
    not decisive: merging observations costs 3 % of the log loss there, keeping
    duplicates up to 40 % (400 rows of 3 to 4 columns with 4 or 5 levels, 3 seeds,
    original and bootstrap samples).
    """
    n = len(inputs)
    pairs = float(np.square(counts, dtype=float).sum())
    same_inputs = _equal_pairs(inputs)
    agreement = 1.0
    if same_inputs < n * n:
        agreement = (_equal_pairs(targets) - pairs) / (n * n - same_inputs)
    is_discrete = agreement > _AGREEMENT
    return is_discrete and (same_inputs - pairs) / n > 1 - agreement


def _coincide(X: Any, kept: NDArray, units: NDArray) -> bool:
    """Return whether independent columns would give a row more than two equal ones.

    Only discrete columns count, because few rows that are repeated often have few
    values too. If such rows were merged, a cell of three flags would be left out as a
    whole, and R2 would be 0.1 for an exact function of the flags.
    """
    m = min(len(kept), _COUNTED)
    rows = X[np.sort(np.random.default_rng(0).choice(kept, m, replace=False))]
    used = np.arange(rows.shape[1])
    if sp.issparse(rows):
        rows = sp.csc_array(rows)
        used = np.flatnonzero(np.diff(rows.indptr))
    else:
        rows = _rounded(rows, units)
    expected = float(len(kept))
    for j in used:
        column = rows[:, [j]]
        column = column.toarray() if sp.issparse(rows) else column
        values, counts = np.unique(column, return_counts=True)
        expected *= (np.sum(counts**2.0) - m) / (m * (m - 1))
        if expected <= _BY_CHANCE or not _are_discrete(values, m):
            return False
    return True


def _are_discrete(values: NDArray, m: int) -> bool:
    """Return whether the distinct values of m rows are few, or codes: 0, 1, 2, ..."""
    if len(values) ** 2 <= m:
        return True
    values = values[~np.isnan(values)]
    return bool(np.ptp(values) <= 2 * len(values) * np.diff(values).min())


def _equal_pairs(hashes: NDArray) -> float:
    """Return the number of pairs of equal rows, including each row with itself."""
    return float(np.square(np.unique(hashes, return_counts=True)[1], dtype=float).sum())


def _codes(y: Any) -> Any:
    """Return targets as numbers, (n, d), and labels as their indices."""
    if sp.issparse(y):
        return y
    y = np.asarray(y)
    if y.ndim == 1 and y.dtype.kind != "f":
        y = np.unique(y, return_inverse=True)[1]
    return y.reshape(len(y), -1).astype(np.float64, copy=False)


def _units(X: Any) -> NDArray:
    """Return the rounding unit of each column; zero: not rounded."""
    n, q = X.shape
    if sp.issparse(X) or X.dtype != np.float64:
        return np.zeros(q)
    sample = np.sort(X[np.arange(0, n, -(-n // _SAMPLED))], axis=0)  # NaN are last
    m = len(sample)
    return _RESOLUTION * (sample[3 * m // 4] - sample[m // 4])


def _rounded(values: NDArray, units: NDArray) -> NDArray:
    """Return numbers that are equal if the values are, up to rounding."""
    used = units > 0
    return np.where(used, np.rint(values / np.where(used, units, 1.0)), values)


def _hashes(X: Any, units: NDArray) -> NDArray:
    """Return a 64-bit hash of each row."""
    if isinstance(X, PartitionedRows):
        return np.concatenate(X.partitions.each(_dense_hashes, units))
    return _sparse_hashes(X) if sp.issparse(X) else _dense_hashes(X, units)


def _dense_hashes(X: NDArray, units: NDArray) -> NDArray:
    out = np.empty(len(X), dtype=np.uint64)
    factors = _factors(X.shape[1])
    for part in slices(len(X), max(1, _BLOCK // X.shape[1])):
        np.matmul(_mixed(_bits(_rounded(X[part], units))), factors, out=out[part])
    return out


def _sparse_hashes(X: Any) -> NDArray:
    values = _mixed(_bits(X.data)) * _factors(X.shape[1])[X.indices]
    sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(values)])
    return sums[X.indptr[1:]] - sums[X.indptr[:-1]]  # modulo 2**64


def _factors(count: int) -> NDArray:
    """Return an odd number for each column."""
    numbers = np.arange(1, count + 1, dtype=np.uint64) * _GOLDEN
    return _mixed(_mixed(numbers) * _GOLDEN) | np.uint64(1)


def _bits(values: NDArray) -> NDArray:
    """Return the bits of numbers; equal numbers, and all NaN, have the same bits."""
    values = values + values.dtype.type(0)  # -0.0 becomes 0.0
    bits = values.view(f"u{values.dtype.itemsize}").astype(np.uint64, copy=False)
    return np.where(np.isnan(values), _NAN, bits)


def _mixed(bits: NDArray) -> NDArray:
    """Return 64 bits whose low bits depend on the high ones; zero for zero."""
    return (bits ^ (bits >> np.uint64(32))) * _GOLDEN


def _differ(X: Any, rows: NDArray, others: NDArray, units: NDArray) -> NDArray:
    """Return a mask of the rows that differ from others with the same hash."""
    out = np.zeros(len(rows), dtype=bool)
    if isinstance(X, PartitionedRows):
        return out
    pairs = np.flatnonzero(rows != others)
    for block in slices(len(pairs), max(1, _BLOCK // max(X.shape[1], 1))):
        part = pairs[block]
        one = X[rows[part]]
        two = X[others[part]]
        if sp.issparse(X):
            out[part] = np.diff(sp.csr_array(one != two).indptr) > 0
        else:
            pair = [_bits(_rounded(values, units)) for values in (one, two)]
            out[part] = (pair[0] != pair[1]).any(axis=1)
    return out
