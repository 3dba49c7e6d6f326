"""What every kernel shares."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from nbsketch._validation import check_rows
from nbsketch.gram import CompiledForm, evaluate


class Kernel(ABC):
    """A positive semi-definite function of two rows.

    Attributes
    ----------
    takes_sparse : bool
        Whether rows may be those of a sparse matrix.
    """

    takes_sparse: ClassVar[bool] = True

    def __call__(self, X: ArrayLike, Y: ArrayLike | None = None) -> NDArray:
        """Return the matrix k(X, Y) of shape (n, m); Y is X by default.

        Both may be sparse. The values are computed in float64, and rounded to float32
        if both X and Y are float32.
        """
        rows, others = self._check_pair(X, Y)
        dtype = np.result_type(rows.dtype, others.dtype)
        form = self.compiled_form(rows.shape[1])
        if form is None:
            raise NotImplementedError(
                f"{type(self).__name__} must define __call__, because its "
                "compiled_form is None"
            )
        return evaluate(form, rows, others, dtype)

    @abstractmethod
    def compiled_form(self, n_features: int) -> CompiledForm | None:
        """Return the form for compiled code, or None if only a call gives values."""

    @abstractmethod
    def diag(self, X: ArrayLike) -> NDArray:
        """Return k(x, x) for each row x of X."""

    def resolve(
        self, X: Any, rng: Any = None, sample_weight: NDArray | None = None
    ) -> Kernel:
        """Return the kernel with every parameter that depends on data set from X.

        `sample_weight` (n,) are positive weights of its rows, None for equal ones.
        """
        return self

    def take(self, rows: Any, index: NDArray | None = None) -> Any:
        """Return the landmarks that represent some rows; by default all rows."""
        return rows if index is None else rows[index]

    def check_landmarks(self, landmarks: ArrayLike, n_features: int) -> Any:
        """Return landmarks as an array if they are such as `take` gives."""
        return self._check_rows("landmarks", landmarks, n_features)

    def check_domain(self, name: str, rows: Any) -> None:
        """Raise an error if the kernel is not defined on some rows."""
        if sp.issparse(rows) and not self.takes_sparse:
            raise TypeError(
                f"`{name}` must be dense for {type(self).__name__}, got a sparse "
                "matrix: kernels of inner products and Euclidean distances take them"
            )

    def _check_rows(self, name: str, rows: Any, n_features: int | None = None) -> Any:
        rows = check_rows(name, rows, n_features=n_features)
        self.check_domain(name, rows)
        return rows

    def _check_pair(self, X: Any, Y: Any) -> tuple[Any, Any]:
        X = self._check_rows("X", X)
        return X, X if Y is None else self._check_rows("Y", Y, X.shape[1])
