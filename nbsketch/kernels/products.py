"""Kernels made of products: of two rows, of what they share, of their minima."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

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


@dataclass(frozen=True)
class SobolevKernel(Kernel):
    r"""First-order Sobolev kernel on the unit interval, or cube.

    .. math:: k(x, y) = \prod_j \min(x_j, y_j), \qquad x, y \in [0, 1]^q

    With one feature its functions are those with f(0) = 0 and a square integrable
    derivative, and their squared norm is :math:`\int_0^1 f'(t)^2 dt`. They are zero
    where a feature is; the intercept of an estimator lifts that.

    Raises
    ------
    ValueError
        When called, if a number is outside [0, 1].

    Notes
    -----
    Yang, Pilanci and Wainwright, "Randomized sketches for kernels: fast and optimal
    nonparametric regression", Annals of Statistics 2017.

    Examples
    --------
    >>> from nbsketch import SobolevKernel
    >>> SobolevKernel()([[0.25], [0.5]], [[0.5], [1.0]]).tolist()
    [[0.25, 0.25], [0.5, 0.5]]
    """

    takes_sparse: ClassVar[bool] = False

    def compiled_form(self, n_features: int) -> CompiledForm:
        """Return what compiled code needs."""
        return CompiledForm("minimum", "power", np.ones(n_features))

    def check_domain(self, name: str, rows: Any) -> None:
        """Raise an error if a number is outside [0, 1]."""
        super().check_domain(name, rows)
        low, high = rows.min(), rows.max()
        if low < 0 or high > 1:
            raise ValueError(
                f"`{name}` must be in [0, 1] for SobolevKernel, got numbers from "
                f"{low:g} to {high:g}: scale it, as scikit-learn's MinMaxScaler does"
            )

    def diag(self, X: ArrayLike) -> NDArray:
        """Return the product of the features of each row of X."""
        return self._check_rows("X", X).prod(axis=1)


# Steep enough for any bandwidth, and finite in single precision.
_STEEPEST = 1e30


@dataclass(frozen=True)
class TanimotoKernel(Kernel):
    r"""Tanimoto kernel, of sets or counts: 1 for equal rows, 0 for orthogonal ones.

    .. math:: k(x, y) =
        \frac{\langle x, y\rangle}{\|x\|^2 + \|y\|^2 - \langle x, y\rangle}

    For rows of zeros and ones it is the Jaccard index: the size of the intersection
    divided by that of the union. Two rows of zeros have similarity 1.

    Raises
    ------
    ValueError
        When called, if the squared norm of a row overflows.

    Notes
    -----
    Positive semi-definite for all real rows, negative entries included: it equals
    :math:`\sum_{j \ge 1} (\langle x, y\rangle / (\|x\|^2 + \|y\|^2))^j`, whose terms
    are products of positive semi-definite kernels, and converges as the ratio is at
    most 1/2. Ralaivola, Swamidass, Saigo and Baldi, "Graph kernels for chemical
    informatics", Neural Networks 2005 (binary rows); Tripp, Bacallado, Singh and
    Hernandez-Lobato, "Tanimoto random features for scalable molecular machine
    learning", NeurIPS 2023 (real rows).

    Examples
    --------
    >>> from nbsketch import TanimotoKernel
    >>> TanimotoKernel()([[1, 1, 0]], [[1, 0, 0], [0, 1, 0], [0, 0, 1]]).tolist()
    [[0.5, 0.5, 0.0]]
    """

    def compiled_form(self, n_features: int) -> CompiledForm:
        """Return what compiled code needs."""
        return CompiledForm("tanimoto", "power", np.ones(n_features))

    def check_domain(self, name: str, rows: Any) -> None:
        """Raise an error if the squared norm of a row is not finite."""
        super().check_domain(name, rows)
        with np.errstate(over="ignore"):
            finite = np.isfinite(squared_norms(rows)).all()
        if not finite:
            raise ValueError(
                f"`{name}` must have rows with finite squared norms for "
                f"{type(self).__name__}, got one that overflows: scale `{name}`"
            )

    def diag(self, X: ArrayLike) -> NDArray:
        """Return ones: k(x, x) = 1."""
        rows = self._check_rows("X", X)
        return np.ones(rows.shape[0], dtype=rows.dtype)


@dataclass(frozen=True)
class GaussianTanimotoKernel(TanimotoKernel):
    r"""Gaussian kernel of the distance that the Tanimoto kernel T defines.

    .. math:: k(x, y) = \exp\bigl(-(1 - T(x, y)) / \text{bandwidth}^2\bigr)

    The squared distance of two rows in the feature space of T is 2 - 2 T(x, y).

    Parameters
    ----------
    bandwidth : float
        Length in that feature space, where no two rows are further apart than
        :math:`\sqrt{8/3}`, nor those without negative entries than :math:`\sqrt{2}`.

    Raises
    ------
    ValueError
        When called, if the squared norm of a row overflows.

    Examples
    --------
    >>> from nbsketch import GaussianTanimotoKernel
    >>> kernel = GaussianTanimotoKernel(bandwidth=1.0)
    >>> kernel([[1, 1]], [[1, 1], [1, 0]]).round(4).tolist()
    [[1.0, 0.6065]]
    """

    bandwidth: float = 1.0

    def __post_init__(self) -> None:
        width = check_positive("bandwidth", self.bandwidth)
        object.__setattr__(self, "bandwidth", width)

    def compiled_form(self, n_features: int) -> CompiledForm:
        """Return what compiled code needs."""
        rate = 1 / math.log(2) / self.bandwidth / self.bandwidth
        steepness = min(rate, _STEEPEST)
        return CompiledForm("tanimoto", "complement", np.ones(n_features), steepness)
