"""Kernels: small frozen objects that can be called on two sets of rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from nbsketch._validation import check_choice
from nbsketch.kernels._kernel import (
    GaussianKernel,
    GaussianTanimotoKernel,
    Kernel,
    LaplacianKernel,
    LinearKernel,
    MaternKernel,
    PolynomialKernel,
    SobolevKernel,
    StationaryKernel,
    TanimotoKernel,
    check_bandwidth,
    median_distance,
)

__all__ = [
    "CallableKernel",
    "GaussianKernel",
    "GaussianTanimotoKernel",
    "Kernel",
    "LaplacianKernel",
    "LinearKernel",
    "MaternKernel",
    "PolynomialKernel",
    "PrecomputedKernel",
    "SobolevKernel",
    "StationaryKernel",
    "TanimotoKernel",
    "as_kernel",
    "median_distance",
]

# Rows of a precomputed matrix whose symmetry is checked, and the largest difference as
# a share of the largest value: far above the rounding of single precision.
_CHECKED, _ASYMMETRY = 200, 1e-4


@dataclass(frozen=True)
class CallableKernel(Kernel):
    """Any function of two sets of rows, evaluated tile by tile.

    Parameters
    ----------
    function : callable
        ``function(X, Y)`` returns the matrix of kernel values, of shape (n, m). It must
        be symmetric and positive semi-definite. It gets CSR arrays where rows are
        sparse.

    Examples
    --------
    >>> import numpy as np
    >>> from nbsketch import CallableKernel
    >>> CallableKernel(lambda X, Y: X @ Y.T)([[2.0]]).tolist()
    [[4.0]]
    """

    function: Callable[[Any, Any], ArrayLike]

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise TypeError(f"`function` must be callable, got {self.function!r}")

    def __repr__(self) -> str:
        name = getattr(self.function, "__qualname__", repr(self.function))
        return f"CallableKernel(function={name})"

    def __call__(self, X: ArrayLike, Y: ArrayLike | None = None) -> NDArray:
        """Return the matrix k(X, Y) of shape (n, m); Y is X by default."""
        rows, others = self._check_pair(X, Y)
        given: Any = self.function(rows, others)
        values = given.toarray() if sp.issparse(given) else np.asarray(given)
        shape = rows.shape[0], others.shape[0]
        if values.shape != shape:
            raise ValueError(
                f"`kernel` must return a matrix of shape {shape}, got shape "
                f"{values.shape}"
            )
        if not np.isfinite(values).all():
            raise ValueError("`kernel` must return finite values, got NaN or infinity")
        return values

    def compiled_form(self, n_features: int) -> None:
        """Return None."""

    def diag(self, X: ArrayLike) -> NDArray:
        """Return k(x, x) for each row x of X, one call a row."""
        rows = self._check_rows("X", X)
        return np.array([self(rows[i : i + 1])[0, 0] for i in range(rows.shape[0])])


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

    takes_sparse: ClassVar[bool] = False

    def __call__(self, X: ArrayLike, Y: ArrayLike | None = None) -> NDArray:
        """Return the columns Y (indices of training rows; all by default) of X."""
        rows = self._check_rows("X", X)
        return rows if Y is None else rows[:, self.check_landmarks(Y, rows.shape[1])]

    def compiled_form(self, n_features: int) -> None:
        """Return None."""

    def diag(self, X: ArrayLike) -> NDArray:
        """Return the diagonal of the square matrix X."""
        K = self._check_rows("X", X)
        if K.shape[0] != K.shape[1]:
            raise ValueError(
                "`X` must be the square matrix of the kernel values of its rows, got "
                f"shape {K.shape}"
            )
        return np.diagonal(K).copy()

    def resolve(
        self, X: Any, rng: Any = None, sample_weight: NDArray | None = None
    ) -> PrecomputedKernel:
        """Return the kernel; square X must be symmetric, checked on some rows."""
        n = X.shape[0]
        if n == X.shape[1]:
            _check_symmetric(X, np.unique(np.linspace(0, n - 1, _CHECKED).astype(int)))
        return self

    def take(self, rows: NDArray, index: NDArray | None = None) -> NDArray:
        """Return the indices themselves: they represent the training rows."""
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


def _check_symmetric(K: NDArray, rows: NDArray) -> None:
    sample = K[np.ix_(rows, rows)]
    distance = np.abs(sample - sample.T)
    i, j = np.unravel_index(distance.argmax(), distance.shape)
    if distance[i, j] > _ASYMMETRY * np.abs(sample).max():
        raise ValueError(
            "`X` must be a symmetric matrix when the kernel is precomputed, got "
            f"{sample[i, j]:.6g} in row {rows[i]} and column {rows[j]}, but "
            f"{sample[j, i]:.6g} in row {rows[j]} and column {rows[i]}"
        )


_BY_NAME: dict[str, type[Kernel]] = {
    "auto": GaussianKernel,  # where an estimator does not learn a better one
    "gaussian": GaussianKernel,
    "laplacian": LaplacianKernel,
    "matern": MaternKernel,
    "polynomial": PolynomialKernel,
    "linear": LinearKernel,
    "sobolev": SobolevKernel,
    "tanimoto": TanimotoKernel,
    "gaussian-tanimoto": GaussianTanimotoKernel,
    "precomputed": PrecomputedKernel,
}


# Kernels whose length scales can be learned, by the family of `_jit.tuning.FAMILIES`.
LEARNABLE: dict[str, StationaryKernel] = {
    "gaussian": GaussianKernel(),
    "matern-1/2": MaternKernel(nu=0.5),
    "matern-3/2": MaternKernel(nu=1.5),
    "matern-5/2": MaternKernel(nu=2.5),
    "laplacian": LaplacianKernel(),
}
# Names of kernels whose length scales can be learned, and their families.
LEARNABLE_NAMES = {
    name: family
    for name, kernel in _BY_NAME.items()
    for family, learnable in LEARNABLE.items()
    if kernel is type(learnable) and kernel() == learnable
}


def as_kernel(kernel: Any, bandwidth: Any = None, *, prefix: str = "") -> Kernel:
    """Return a kernel from an object, a name or a function of two sets of rows.

    Parameters
    ----------
    kernel : Kernel, str or callable
        A kernel, one of "auto" (the Gaussian kernel), "gaussian", "laplacian",
        "matern", "polynomial", "linear", "sobolev", "tanimoto", "gaussian-tanimoto" and
        "precomputed", or a function ``k(X, Y)``.
    bandwidth : optional
        The bandwidth, where `kernel` is the name of a kernel that has one.
    prefix : str
        Prefix of the two argument names in error messages, such as ``"output_"``.
    """
    name = f"{prefix}kernel"
    if isinstance(kernel, str):
        family: Any = _BY_NAME[check_choice(name, kernel, _BY_NAME)]
        if bandwidth is None:
            return family()
        if "bandwidth" in [field.name for field in fields(family)]:
            check_bandwidth(bandwidth, f"{prefix}bandwidth")
            return family(bandwidth=bandwidth)
        raise ValueError(
            f"`{prefix}bandwidth` has no meaning for {name}={kernel!r}, "
            f"got {bandwidth!r}"
        )
    if isinstance(kernel, type) and issubclass(kernel, Kernel):
        raise TypeError(
            f"`{name}` must be an object or a name, got a class: write "
            f"{kernel.__name__}()"
        )
    if bandwidth is not None:
        raise ValueError(
            f"`{prefix}bandwidth` goes with the name of a kernel, got {name}="
            f"{kernel!r}: set the bandwidth of the object instead"
        )
    if isinstance(kernel, Kernel):
        return kernel
    if callable(kernel):
        return CallableKernel(kernel)
    raise TypeError(f"`{name}` must be a name, a Kernel or a callable, got {kernel!r}")
