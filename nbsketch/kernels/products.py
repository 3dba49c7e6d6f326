"""Kernels of the inner product of two rows."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from nbsketch._validation import check_integer, check_positive, check_real
from nbsketch.gram import CompiledForm
from nbsketch.kernels._kernel import Kernel

# A kernel value takes this many products at most.
_HIGHEST_DEGREE = 1000


@dataclass(frozen=True)
class PolynomialKernel(Kernel):
    r"""Polynomial kernel.

    .. math:: k(x, y) =
        (\text{scale}\,\langle x, y\rangle + \text{offset})^\text{degree}

    Parameters
    ----------
    degree : int
        Degree, from 1 to 1000.
    scale : float
        Positive factor of the inner product.
    offset : float
        Non-negative constant.

    Examples
    --------
    >>> from nbsketch import PolynomialKernel
    >>> PolynomialKernel(degree=2, scale=1.0, offset=1.0)([[2.0]], [[3.0]]).tolist()
    [[49.0]]
    """

    degree: int = 3
    scale: float = 1.0
    offset: float = 1.0

    def __post_init__(self) -> None:
        degree = check_integer("degree", self.degree)
        if degree > _HIGHEST_DEGREE:
            raise ValueError(
                f"`degree` must be at most {_HIGHEST_DEGREE}, got {self.degree!r}"
            )
        scale = check_positive("scale", self.scale)
        offset = check_real("offset", self.offset, low=0, high_open=True)
        object.__setattr__(self, "degree", degree)
        object.__setattr__(self, "scale", scale)
        object.__setattr__(self, "offset", offset)

    def compiled_form(self, n_features: int) -> CompiledForm:
        """Return what compiled code needs."""
        scale = np.full(n_features, math.sqrt(self.scale))
        return CompiledForm("product", "power", scale, self.offset, self.degree)

    def diag(self, X: ArrayLike) -> NDArray:
        """Return k(x, x) for each row x of X."""
        norms = squared_norms(self._check_rows("X", X))
        return (self.scale * norms + self.offset) ** self.degree


@dataclass(frozen=True)
class LinearKernel(Kernel):
    r"""Linear kernel :math:`k(x, y) = \langle x, y\rangle`.

    Examples
    --------
    >>> from nbsketch import LinearKernel
    >>> LinearKernel()([[2.0, 1.0]], [[3.0, 0.0]]).tolist()
    [[6.0]]
    """

    def compiled_form(self, n_features: int) -> CompiledForm:
        """Return what compiled code needs."""
        return CompiledForm("product", "power", np.ones(n_features))

    def diag(self, X: ArrayLike) -> NDArray:
        """Return the squared norm of each row of X."""
        return squared_norms(self._check_rows("X", X))


def squared_norms(X: Any) -> NDArray:
    """Return the squared norm of each row of X, dense or sparse."""
    if sp.issparse(X):
        return X.multiply(X).sum(axis=1)
    return np.einsum("ij,ij->i", X, X)
