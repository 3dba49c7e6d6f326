"""Data sets by name, and training and test parts standardized by the training rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nbsketch import datasets


def load(name: str, data_home: Path | None, **options: Any) -> Any:
    """Return what the loader of a set returns."""
    return getattr(datasets, f"load_{name}")(data_home=data_home, **options)


def standardized(X_train: NDArray, *others: NDArray) -> list[NDArray]:
    """Return all inputs, shifted and scaled to mean 0 and deviation 1 in training."""
    mean, deviation = X_train.mean(axis=0), X_train.std(axis=0)
    deviation = np.where(deviation == 0, 1.0, deviation)
    return [np.ascontiguousarray((X - mean) / deviation) for X in (X_train, *others)]


class Split(NamedTuple):
    """Training and test data; the inputs standardized by the training rows."""

    X_train: NDArray
    Y_train: NDArray
    X_test: NDArray
    Y_test: NDArray

    @classmethod
    def of(cls, train: tuple[NDArray, NDArray], test: tuple[NDArray, NDArray]) -> Split:
        """Return a split of two pairs of inputs and targets."""
        X_train, X_test = standardized(train[0], test[0])
        return cls(X_train, train[1], X_test, test[1])

    @classmethod
    def published(cls, data: datasets.Dataset) -> Split:
        """Return the published split of a data set."""
        return cls.of((data.X_train, data.y_train), (data.X_test, data.y_test))

    def with_standardized_targets(self) -> Split:
        """Return the split with targets of mean 0 and deviation 1 in training."""
        Y_train, Y_test = standardized(self.Y_train, self.Y_test)
        return self._replace(Y_train=Y_train, Y_test=Y_test)
