"""What members are given and what they give: data of a fit, and one contract."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nbsketch.rows.transform import InputScaler
from nbsketch.tuning.rows import Rows, prepare


def at_rows(values: NDArray | None, index: NDArray) -> NDArray | None:
    """Return the values of some rows; None for None."""
    return None if values is None else values[index]


class Training(NamedTuple):
    """Rows, targets, weights and blocks that members are fitted to.

    Attributes
    ----------
    rows : ndarray of shape (n, p)
        Rows, encoded or preprocessed.
    Y : ndarray of shape (n, d)
        Targets.
    weights : ndarray of shape (n,) or None
        Positive weights of mean one. None: ones.
    labels : ndarray of int of shape (n,) or None
        Block of each row. None: each row is left out by itself.
    """

    rows: NDArray
    Y: NDArray
    weights: NDArray | None = None
    labels: NDArray | None = None

    @classmethod
    def of(cls, rows: Rows, index: NDArray) -> Training:
        """Return some rows, preprocessed, with their standardized targets."""
        options = at_rows(rows.weights, index), at_rows(rows.labels, index)
        return cls(rows.transform(index), rows.Y[index], *options)

    def tuned_rows(self, scaler: InputScaler) -> Rows:
        """Return all rows as those for which length scales are learned."""
        every = np.arange(len(self.Y))
        return prepare(*self[:3], scaler, every, labels=self.labels)

    def take(self, index: NDArray) -> Training:
        """Return some rows, which are the arguments of `fit_leaf`."""
        options = at_rows(self.weights, index), at_rows(self.labels, index)
        return Training(self.rows[index], self.Y[index], *options)


class Points(NamedTuple):
    """Rows at which members are evaluated.

    Attributes
    ----------
    encoded : ndarray of shape (m, q)
        Encoded rows.
    rows : ndarray of shape (m, p)
        Preprocessed rows.
    training : ndarray of shape (n, p)
        Preprocessed rows of the fit.
    """

    encoded: NDArray
    rows: NDArray
    training: NDArray


class Member:
    """A fitted function that is part of a machine.

    Attributes
    ----------
    scales : ndarray of shape (p,)
        Inverse length scales of its kernel.
    """

    scales: NDArray

    def predict(self, points: Points) -> NDArray:
        """Return the values (m, d) at some points."""
        raise NotImplementedError

    def n_numbers(self) -> int:
        """Return how many numbers predictions need, beside the rows of the fit."""
        raise NotImplementedError

    def summary(self) -> tuple[str, str]:
        """Return the entry of a summary: the kind of the member, and what it is."""
        raise NotImplementedError
