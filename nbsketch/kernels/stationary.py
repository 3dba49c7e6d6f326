"""Kernels of the differences of features, and their bandwidth."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import InitVar, dataclass, replace
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from scipy.spatial.distance import pdist

from nbsketch._validation import (
    check_choice,
    check_positive,
    check_real,
    random_generator,
)
from nbsketch.gram import CompiledForm, evaluate
from nbsketch.kernels._kernel import Kernel

_LOG2E = 1 / math.log(2)
# Rows on which the median heuristic looks at all pairs.
_MEDIAN_ROWS = 1000


@dataclass(frozen=True)
class StationaryKernel(Kernel):
    """A kernel of the differences of features, each divided by its bandwidth."""

    bandwidth: Any = "median"
    _distance: ClassVar[str] = "euclidean"

    def __post_init__(self) -> None:
        object.__setattr__(self, "bandwidth", check_bandwidth(self.bandwidth))

    def resolve(
        self, X: Any, rng: Any = None, sample_weight: NDArray | None = None
    ) -> Kernel:
        """Return the kernel with "median" replaced by the median distance in X.

        See `median_distance` and `Kernel.resolve`.
        """
        if self.bandwidth != "median":
            _bandwidth_of_features(self.bandwidth, X.shape[1])
            return self
        median = median_distance(X, self._distance, rng, sample_weight)
        return replace(self, bandwidth=median)

    def compiled_form(self, n_features: int) -> CompiledForm:
        """Return what compiled code needs; the bandwidth must be known."""
        if isinstance(self.bandwidth, str):
            raise ValueError(
                "`bandwidth` must be a number before the kernel can be evaluated, got "
                "'median': set it from data with kernel.resolve(X)"
            )
        metric, profile, scale = self._family()
        widths = _bandwidth_of_features(self.bandwidth, n_features)
        return CompiledForm(metric, profile, scale / widths)

    @abstractmethod
    def _family(self) -> tuple[str, str, float]:
        """Return metric, profile, and the scale of a feature of unit bandwidth."""

    def diag(self, X: ArrayLike) -> NDArray:
        """Return ones: k(x, x) = 1."""
        rows = self._check_rows("X", X)
        return np.ones(rows.shape[0], dtype=rows.dtype)


@dataclass(frozen=True)
class GaussianKernel(StationaryKernel):
    r"""Gaussian kernel :math:`k(x, y) = \exp(-\|x - y\|^2 / (2\,\text{bandwidth}^2))`.

    Parameters
    ----------
    bandwidth : float, sequence of floats or "median"
        One length for all features or one for each, in the units of X. "median" is the
        median distance between rows, so that the scale of X does not matter.
    gamma : float, optional
        Another spelling of the bandwidth: gamma = 1 / (2 bandwidth^2).

    Examples
    --------
    >>> from nbsketch import GaussianKernel
    >>> GaussianKernel(bandwidth=2.0)([[0.0]], [[2.0]]).round(4).tolist()
    [[0.6065]]
    >>> GaussianKernel(gamma=0.5)
    GaussianKernel(bandwidth=1.0)
    """

    gamma: InitVar[float | None] = None

    def __post_init__(self, gamma: float | None) -> None:
        if gamma is not None:
            if not (isinstance(self.bandwidth, str) and self.bandwidth == "median"):
                raise ValueError(
                    "`gamma` and `bandwidth` are two spellings of one number: give one"
                )
            width = math.sqrt(0.5 / check_positive("gamma", gamma))
            object.__setattr__(self, "bandwidth", width)
        super().__post_init__()

    def _family(self) -> tuple[str, str, float]:
        return "squared", "exponential", math.sqrt(0.5 * _LOG2E)


@dataclass(frozen=True)
class LaplacianKernel(StationaryKernel):
    r"""Laplacian kernel :math:`k(x, y) = \exp(-\|x - y\|_1 / \text{bandwidth})`.

    Parameters
    ----------
    bandwidth : float, sequence of floats or "median"
        One length for all features or one for each, in the units of X. "median" is the
        median of the distances :math:`\|x - y\|_1` between rows.

    Examples
    --------
    >>> from nbsketch import LaplacianKernel
    >>> LaplacianKernel(bandwidth=2.0)([[0.0, 0.0]], [[1.0, 1.0]]).round(4).tolist()
    [[0.3679]]
    """

    takes_sparse: ClassVar[bool] = False
    _distance: ClassVar[str] = "cityblock"

    def _family(self) -> tuple[str, str, float]:
        return "absolute", "exponential", _LOG2E


@dataclass(frozen=True)
class MaternKernel(StationaryKernel):
    r"""Matern kernel of smoothness nu, a function of :math:`t = \|x - y\|`/bandwidth.

    nu = 1/2: :math:`e^{-t}`; nu = 3/2: :math:`(1 + u) e^{-u}, u = \sqrt{3} t`;
    nu = 5/2: :math:`(1 + u + u^2/3) e^{-u}, u = \sqrt{5} t`;
    nu = infinity: :math:`e^{-t^2/2}`, the Gaussian kernel.

    Parameters
    ----------
    bandwidth : float, sequence of floats or "median"
        One length for all features or one for each, in the units of X. "median" is the
        median distance between rows.
    nu : {0.5, 1.5, 2.5, inf}
        Smoothness.

    Examples
    --------
    >>> from nbsketch import MaternKernel
    >>> MaternKernel(bandwidth=1.0, nu=0.5)([[0.0]], [[1.0]]).round(4).tolist()
    [[0.3679]]
    """

    nu: float = 1.5

    _families: ClassVar[dict[float, tuple[str, float]]] = {
        0.5: ("matern-1/2", _LOG2E),
        1.5: ("matern-3/2", math.sqrt(3) * _LOG2E),
        2.5: ("matern-5/2", math.sqrt(5) * _LOG2E),
        math.inf: ("exponential", math.sqrt(0.5 * _LOG2E)),
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        nu = check_real("nu", self.nu, low=0, low_open=True)
        object.__setattr__(self, "nu", check_choice("nu", nu, self._families))

    def _family(self) -> tuple[str, str, float]:
        return "squared", *self._families[self.nu]


def median_distance(
    X: Any,
    metric: str = "euclidean",
    rng: Any = None,
    sample_weight: NDArray | None = None,
) -> float:
    """Return the median distance of pairs of different rows, of at most 1000 drawn.

    A pair counts by the product of the weights of its rows, and equal rows are no pair:
    a row of weight two counts as the same row twice, a row of weight zero as no row.
    The median is 1 where all rows are equal.

    Parameters
    ----------
    X : ndarray or csr_array of shape (n, q)
        Rows; sparse ones for the Euclidean metric only.
    metric : str
        "euclidean" or "cityblock".
    rng : None, int or Generator
        Source of the draw.
    sample_weight : ndarray of shape (n,), default=None
        Positive weights. None: equal weights.
    """
    n = X.shape[0]
    if n > _MEDIAN_ROWS:
        rows = random_generator(rng).choice(n, _MEDIAN_ROWS, replace=False)
        X = X[rows]
        sample_weight = None if sample_weight is None else sample_weight[rows]
    X = X.astype(np.float64)
    distances = _sparse_distances(X) if sp.issparse(X) else pdist(X, metric)
    is_pair = distances > 0
    if not is_pair.any():
        return 1.0
    if sample_weight is None:
        return float(np.median(distances[is_pair]))
    i, j = np.triu_indices(X.shape[0], 1)
    weights = (sample_weight[i] * sample_weight[j])[is_pair]
    return weighted_median(distances[is_pair], weights)


def weighted_median(values: NDArray, weights: NDArray) -> float:
    """Return the median of values that are repeated by their weights.

    Where half of the weight is on either side it is the mean of the two middle values,
    as for equal weights.
    """
    order = np.argsort(values, kind="stable")
    values, below = values[order], np.cumsum(weights[order])
    half = below[-1] / 2
    # Sums of weights that are not integers are compared up to rounding.
    low = int(np.searchsorted(below, half * (1 - 1e-9)))
    is_half = abs(below[low] - half) <= 1e-9 * half
    return float((values[low] + values[low + is_half]) / 2)


def _sparse_distances(X: Any) -> NDArray[np.float64]:
    """Return the Euclidean distances of all pairs of sparse rows."""
    squares = evaluate(CompiledForm("squared", "power", np.ones(X.shape[1])), X, X)
    return np.sqrt(squares[np.triu_indices(len(squares), 1)])


def check_bandwidth(
    bandwidth: Any, name: str = "bandwidth"
) -> float | tuple[float, ...] | str:
    """Return a bandwidth as a number, a tuple of them, or "median"."""
    allowed = f"`{name}` must be a number, one number per feature or 'median'"
    if isinstance(bandwidth, str):
        if bandwidth != "median":
            raise ValueError(f"{allowed}, got {bandwidth!r}")
        return bandwidth
    if np.ndim(bandwidth) == 0:
        return _check_width(name, bandwidth)
    if np.ndim(bandwidth) != 1 or len(bandwidth) == 0:
        raise ValueError(f"{allowed}, got shape {np.shape(bandwidth)}")
    return tuple(_check_width(name, width) for width in bandwidth)


def _check_width(name: str, width: Any) -> float:
    # numbers of NumPy would be printed with their type
    return check_positive(name, np.asarray(width).item())


def _bandwidth_of_features(bandwidth: Any, n_features: int) -> NDArray[np.float64]:
    if isinstance(bandwidth, tuple) and len(bandwidth) != n_features:
        raise ValueError(
            f"`bandwidth` must have one number per feature, {n_features}, "
            f"got {len(bandwidth)}"
        )
    return np.full(n_features, bandwidth, dtype=np.float64)
