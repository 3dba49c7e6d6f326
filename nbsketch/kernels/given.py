"""Kernels that are given as a function or as a matrix."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nbsketch._validation import check_matrix
from nbsketch.kernels._kernel import Kernel


@dataclass(frozen=True)
class CallableKernel(Kernel):
    """Any function of two sets of rows, evaluated tile by tile.

    Parameters
    ----------
    function : callable
        ``function(X, Y)`` returns the matrix of kernel values, of shape (n, m). It must
        be symmetric and positive semi-definite.

    Examples
    --------
    >>> import numpy as np
    >>> from nbsketch import CallableKernel
    >>> CallableKernel(lambda X, Y: X @ Y.T)([[2.0]]).tolist()
    [[4.0]]
    """

    function: Callable[[NDArray, NDArray], ArrayLike]

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise TypeError(f"`function` must be callable, got {self.function!r}")

    def __call__(self, X: ArrayLike, Y: ArrayLike | None = None) -> NDArray:
        """Return the matrix k(X, Y) of shape (n, m); Y is X by default."""
        X = check_matrix("X", X)
        Y = X if Y is None else check_matrix("Y", Y, n_features=X.shape[1])
        values = np.asarray(self.function(X, Y))
        if values.shape != (len(X), len(Y)):
            raise ValueError(
                f"`kernel` must return a matrix of shape ({len(X)}, {len(Y)}), "
                f"got shape {values.shape}"
            )
        if not np.isfinite(values).all():
            raise ValueError("`kernel` must return finite values, got NaN or infinity")
        return values

    def compiled_form(self, n_features: int) -> None:
        """Return None."""

    def diag(self, X: ArrayLike) -> NDArray:
        """Return k(x, x) for each row x of X, one call a row."""
        X = check_matrix("X", X)
        return np.array([self(x[None])[0, 0] for x in X])


@dataclass(frozen=True)
class PrecomputedKernel(Kernel):
    """The rows of X are kernel values already: k(x, x_j) for each training row x_j.

    Examples
    --------
    >>> import numpy as np
    >>> from nbsketch import PrecomputedKernel
    >>> PrecomputedKernel()(np.eye(3), [0, 2]).tolist()
    [[1.0, 0.0], [0.0, 0.0], [0.0, 1.0]]
    """

    def __call__(self, X: ArrayLike, Y: ArrayLike | None = None) -> NDArray:
        """Return the columns Y (indices of training rows; all by default) of X."""
        X = check_matrix("X", X)
        return X if Y is None else X[:, np.asarray(Y, dtype=np.intp)]

    def compiled_form(self, n_features: int) -> None:
        """Return None."""

    def diag(self, X: ArrayLike) -> NDArray:
        """Return the diagonal of the square matrix X."""
        X = check_matrix("X", X)
        if X.shape[0] != X.shape[1]:
            raise ValueError(
                "`X` must be the square matrix of the kernel values of its rows, got "
                f"shape {X.shape}"
            )
        return np.diagonal(X).copy()

    def take(self, rows: NDArray, index: NDArray | None = None) -> NDArray:
        """Return the indices themselves: they stand for the training rows."""
        return np.arange(rows.shape[1]) if index is None else index

    def check_landmarks(self, landmarks: ArrayLike, n_features: int) -> NDArray:
        """Return landmarks as an array if they are indices of columns."""
        index = np.asarray(landmarks)
        if index.ndim != 1 or index.dtype.kind not in "iu":
            raise TypeError(
                "`landmarks` must be indices of training rows when the kernel is "
                f"precomputed, got shape {index.shape} and dtype {index.dtype}"
            )
        if index.size and not 0 <= index.min() <= index.max() < n_features:
            raise ValueError(
                f"`landmarks` must be in [0, {n_features - 1}], got {index.min()} to "
                f"{index.max()}"
            )
        return index
