"""Rows for learning length scales, and samples drawn from them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nbsketch._jit.tuning import MATERN_32
from nbsketch.rows.outliers import NORMAL, medians
from nbsketch.rows.partitions import PartitionedRows
from nbsketch.rows.transform import CONSTANT, InputScaler

# Robust deviations from the median at which targets of a first fit are clipped.
_CLIP = 5.0
# Number of rows transformed at a time.
_BLOCK = 8192
# Number of rows that show whether rare values of a column are relevant.
_SHOWN = 5
# Blocks replace evidence from this number of rows on: with 1000 rows, blocks have 1.1
# to 1.28 times the error on functions of all columns.
_BLOCK_ROWS = 3000
# Number of rows that blocks are drawn from, and maximum of rows times columns.
_SOURCE = 16_384
CELLS = 16_000_000


def at_rows(values: NDArray | None, index: NDArray) -> NDArray | None:
    """Return the values of a subset of rows; None for None."""
    return None if values is None else values[index]


@dataclass(frozen=True)
class Rows:
    """Rows, targets, weights, and the indices of the rows that may be drawn."""

    X: Any  # (n, q), ndarray or PartitionedRows
    Y: NDArray  # (n, d), standardized for learning length scales
    weights: NDArray  # (n,), ones without sample weights
    scaler: InputScaler
    kept: NDArray  # indices
    family: int = MATERN_32  # of the kernel
    cut: float = np.inf  # the loss is linear beyond it
    alpha: float | None = None  # penalty, if it is given
    labels: NDArray | None = None  # block of each row, (n,); see `block_labels`

    @property
    def is_noisy(self) -> bool:
        """Whether errors may be independent and Gaussian, as evidence assumes.

        Errors of classes are not Gaussian, errors of blocks of rows are dependent.
        """
        first = self.Y[self.kept[:_BLOCK]]
        return self.labels is None and any(len(np.unique(y)) > 2 for y in first.T)

    @property
    def has_blocks(self) -> bool:
        """Whether there are enough rows to learn from small blocks."""
        return len(self.kept) >= _BLOCK_ROWS

    def draw(self, rng: np.random.Generator, count: int) -> NDArray:
        """Return the indices of at most `count` rows, drawn without replacement."""
        return rng.choice(self.kept, min(count, len(self.kept)), replace=False)

    def with_rare(self, drawn: NDArray) -> NDArray:
        """Return the drawn rows, and further ones with rare values.

        Without them, a column with one value in all drawn rows would get any scale.
        """
        rows = self.without_ranks()
        X = rows.transform(drawn)
        usual = np.median(X, axis=0)
        rare = np.isfinite(rows.scaler.width) & (np.sum(usual != X, axis=0) < _SHOWN)
        if len(drawn) == len(self.kept) or not rare.any():
            return drawn
        differ = rows.values(partial(_differ, usual, rare), self.kept)
        further = [np.flatnonzero(column) for column in differ.T]
        further = [f[:: max(len(f) // _SHOWN, 1)][:_SHOWN] for f in further]
        return np.append(drawn, np.setdiff1d(self.kept[np.hstack(further)], drawn))

    def take(self, index: NDArray) -> Training:
        """Return a subset of rows, preprocessed, with standardized targets."""
        return Training(
            self.transform(index),
            self.Y[index],
            self.weights[index],
            at_rows(self.labels, index),
        )

    def transform(self, index: NDArray) -> NDArray:
        """Return a subset of rows, transformed in double precision."""
        return self.scaler.transform(self.X[index].astype(np.float64, copy=False))

    def drawn(self, rng: np.random.Generator) -> NDArray:
        """Return the indices of rows for blocks, fewer for many columns."""
        most = CELLS // max(len(self.scaler.center), 1)
        return self.draw(rng, int(np.clip(most, _BLOCK_ROWS, _SOURCE)))

    def keep(self, mask: NDArray, cut: float) -> Rows:
        """Return the same rows, of which fewer may be drawn, with another cut."""
        return replace(self, kept=self.kept[mask], cut=cut if cut > 0 else np.inf)

    def clipped(self) -> Rows:
        """Return the same rows with targets clipped, for a first fit."""
        targets = self.Y[self.kept]
        weights = self.weights[self.kept]
        center = medians(targets, weights)
        most = _CLIP * NORMAL * medians(np.abs(targets - center), weights)
        most = np.where(most > 0, most, np.inf)
        return replace(self, Y=np.clip(self.Y, center - most, center + most))

    def standardized(self) -> tuple[Rows, NDArray, NDArray]:
        """Return the same rows with standardized targets, their mean and deviation.

        These are of the rows that may be drawn; the deviation of constants is infinite.
        Indicators of three or more classes have one deviation, or random classes of a
        few rows would decide: with ten of three rows in 400, the log loss of a table is
        0.31 for 0.14.
        """
        Y = self.Y[self.kept]
        weights = self.weights[self.kept]
        mean = np.average(Y, axis=0, weights=weights)
        spread = np.sqrt(np.average(np.square(Y - mean), axis=0, weights=weights))
        varies = (np.ptp(Y, axis=0) > CONSTANT * np.abs(mean)) & (spread > 0)
        ends = (Y.min(axis=0) == Y) | (Y.max(axis=0) == Y)
        if Y.shape[1] > 2 and ends.all() and np.ptp(Y.sum(axis=1)) == 0:
            spread[:] = np.sqrt(np.mean(np.square(spread)))
        spread = np.where(varies, spread, np.inf)
        return replace(self, Y=(self.Y - mean) / spread), mean, spread

    def part(self, index: NDArray) -> Rows:
        """Return a subset of the rows, all of which may be drawn."""
        return replace(
            self,
            X=self.X[index],
            Y=self.Y[index],
            weights=self.weights[index],
            kept=np.arange(len(index)),
            labels=at_rows(self.labels, index),
        )

    def without_ranks(self) -> Rows:
        """Return the same rows without columns of ranks, if other columns exist."""
        scaler = self.scaler.without_ranks() if self.scaler.plain.size else self.scaler
        return replace(self, scaler=scaler)

    def values(self, function: Callable[[NDArray], NDArray], index: NDArray) -> NDArray:
        """Return a function of ascending, transformed rows, block by block."""
        if isinstance(self.X, PartitionedRows):
            rows = self.X if len(index) == len(self.X) else self.X.select(index)
            return np.vstack(rows.partitions.each(_values, function, self.scaler))
        blocks = np.split(index, range(_BLOCK, len(index), _BLOCK))
        return np.vstack([function(self.transform(block)) for block in blocks])


def _differ(usual: NDArray, columns: NDArray, X: NDArray) -> NDArray:
    """Return where some columns of rows have other values than the usual ones."""
    return X[:, columns] != usual[columns]


def _values(
    X: NDArray, function: Callable[[NDArray], NDArray], scaler: InputScaler
) -> NDArray:
    blocks = (X[first : first + _BLOCK] for first in range(0, len(X), _BLOCK))
    return np.vstack([function(scaler.transform(b.astype(float))) for b in blocks])


class Training(NamedTuple):
    """Rows, targets, weights and blocks for fitting members.

    Attributes
    ----------
    rows : ndarray of shape (n, p)
        Rows, encoded or preprocessed.
    Y : ndarray of shape (n, d)
        Targets.
    weights : ndarray of shape (n,)
        Positive weights of mean one.
    labels : ndarray of int of shape (n,) or None
        Block of each row. None: single rows.
    """

    rows: NDArray
    Y: NDArray
    weights: NDArray
    labels: NDArray | None = None

    def take(self, index: NDArray) -> Training:
        """Return a subset of the rows."""
        return Training(
            self.rows[index],
            self.Y[index],
            self.weights[index],
            at_rows(self.labels, index),
        )
