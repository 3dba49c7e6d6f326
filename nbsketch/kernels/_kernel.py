"""What every kernel shares."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nbsketch._validation import check_matrix
from nbsketch.gram import evaluate


class Kernel(ABC):
    """A positive semi-definite function of two rows."""

    def __call__(self, X: ArrayLike, Y: ArrayLike | None = None) -> NDArray:
        """Return the matrix k(X, Y) of shape (n, m); Y is X by default.

        float32 in, float32 out; everything else is computed in float64.
        """
        X = check_matrix("X", X)
        Y = X if Y is None else check_matrix("Y", Y, n_features=X.shape[1])
        dtype = np.result_type(X, Y)
        form = self.compiled_form(X.shape[1])
        return evaluate(form, X.astype(dtype, copy=False), Y.astype(dtype, copy=False))

    @abstractmethod
    def compiled_form(self, n_features: int) -> Any:
        """Return what compiled code needs, or None if only a call gives values."""

    @abstractmethod
    def diag(self, X: ArrayLike) -> NDArray:
        """Return k(x, x) for each row x of X."""

    def resolve(self, X: NDArray, rng: Any = None) -> Kernel:
        """Return the kernel with every parameter that depends on data set from X."""
        return self

    def take(self, rows: NDArray, index: NDArray | None = None) -> NDArray:
        """Return the landmarks that stand for some rows; by default for all."""
        return rows if index is None else rows[index]

    def check_landmarks(self, landmarks: ArrayLike, n_features: int) -> NDArray:
        """Return landmarks as an array if they are such as `take` gives."""
        return check_matrix("landmarks", landmarks, n_features=n_features)
