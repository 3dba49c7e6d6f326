"""Kernels: immutable objects called on two sets of samples."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import InitVar, dataclass, replace
from math import inf, log, sqrt
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from scipy.spatial.distance import pdist

from nbsketch._report import validation
from nbsketch._report.fields import (
    Checked,
    choice,
    named_object,
    not_negative,
    plain,
    positive,
    rules,
)
from nbsketch.gram import CompiledForm, evaluate

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

_LOG2E = 1 / log(2)
# Number of samples whose pairs the median heuristic uses.
_MEDIAN_ROWS = 1000
# A kernel value takes at most this many multiplications.
_HIGHEST_DEGREE = 1000
# Steep enough for any bandwidth, and finite in single precision.
_STEEPEST = 1e30
# Number of rows of a precomputed matrix checked for symmetry.
_CHECKED = 200
# Maximum asymmetry relative to the largest value: far above the rounding of single
# precision.
_ASYMMETRY = 1e-4


class Kernel(Checked, ABC):
    """Base class of kernels: positive semi-definite functions of two samples.

    Attributes
    ----------
    takes_sparse : bool
        Whether X may be a sparse matrix.
    is_pairwise : bool
        Whether X holds kernel values, and landmarks are its columns.
    """

    takes_sparse = True
    is_pairwise = False
    # The metric of a compiled form without parameters.
    _metric: ClassVar[str | None] = None

    def __call__(self, X: ArrayLike, Y: ArrayLike | None = None) -> NDArray:
        """Return the matrix k(X, Y) of shape (n, m); Y is X by default.

        Both may be sparse. Values are computed in float64, and rounded to float32 if
        both X and Y are float32.
        """
        rows, others = self._check_pair(X, Y)
        form = self.compiled_form(rows.shape[1])
        if form is None:
            raise NotImplementedError(
                f"{type(self).__name__} must define __call__, because its "
                "compiled_form is None"
            )
        return evaluate(form, rows, others, np.result_type(rows.dtype, others.dtype))

    def compiled_form(self, n_features: int) -> CompiledForm | None:
        """Return the form for compiled code; None if the kernel can only be called."""
        if self._metric is None:
            return None
        return CompiledForm(self._metric, "power", np.ones(n_features))

    def diag(self, X: ArrayLike) -> NDArray:
        """Return k(x, x) for each row x of X; by default one call per row."""
        rows = self._check_rows("X", X)
        return np.array([self(rows[i : i + 1])[0, 0] for i in range(rows.shape[0])])

    def resolve(
        self, X: Any, rng: Any = None, sample_weight: NDArray | None = None
    ) -> Kernel:
        """Return the kernel with all data-dependent parameters set from X.

        `sample_weight` (n,) are positive weights; None: equal weights.
        """
        return self

    def take(self, rows: Any, index: NDArray | None = None) -> Any:
        """Return the landmarks that represent some samples; by default the samples."""
        return rows if index is None else rows[index]

    def check_landmarks(self, landmarks: ArrayLike, n_features: int) -> Any:
        """Check landmarks of the form returned by `take`; return them as an array."""
        return self._check_rows("landmarks", landmarks, n_features)

    def check_domain(self, name: str, rows: Any) -> None:
        """Raise an error if the kernel is undefined for some rows."""
        if sp.issparse(rows) and not self.takes_sparse:
            raise TypeError(
                f"`{name}` must be dense for {type(self).__name__}, got a sparse "
                "matrix: pass X.toarray(), or a kernel of inner products or distances"
            )

    def _check_rows(self, name: str, rows: Any, n_features: int | None = None) -> Any:
        rows = validation.check_rows(name, rows, n_features=n_features)
        self.check_domain(name, rows)
        return rows

    def _check_pair(self, X: Any, Y: Any) -> tuple[Any, Any]:
        X = self._check_rows("X", X)
        return X, X if Y is None else self._check_rows("Y", Y, X.shape[1])


def check_bandwidth(name: str, bandwidth: Any) -> float | tuple[float, ...] | str:
    """Return a bandwidth as a number, a tuple of numbers, or "median"."""
    allowed = (
        f"`{name}` must be a number, one number per feature or 'median' (for "
        "estimators also 'auto')"
    )
    if isinstance(bandwidth, str):
        if bandwidth != "median":
            raise ValueError(f"{allowed}, got {bandwidth!r}")
        return bandwidth
    if np.ndim(bandwidth) > 1 or np.size(bandwidth) == 0:
        raise ValueError(f"{allowed}, got shape {np.shape(bandwidth)}")
    several = np.ndim(bandwidth) == 1
    # An infinite bandwidth removes a feature; for all features it is a mistake.
    checked = tuple(
        np.inf if several and w == np.inf else validation.check_positive(name, w)
        for w in np.atleast_1d(bandwidth)
    )
    return checked if several else checked[0]


def _positive_or_median(name: str, bandwidth: Any) -> float | str:
    if not isinstance(bandwidth, str):
        return validation.check_positive(name, bandwidth)
    if bandwidth != "median":
        raise ValueError(f"`{name}` must be a number or 'median', got {bandwidth!r}")
    return bandwidth


def _check_resolved(bandwidth: Any) -> None:
    if isinstance(bandwidth, str):
        raise ValueError(
            "`bandwidth` must be a number before the kernel can be evaluated, got "
            "'median': set it from data with kernel.resolve(X)"
        )


def _bandwidth_of_features(bandwidth: Any, n_features: int) -> NDArray:
    if isinstance(bandwidth, tuple) and len(bandwidth) != n_features:
        raise ValueError(
            f"`bandwidth` must have one number per feature, {n_features}, "
            f"got {len(bandwidth)}"
        )
    return np.full(n_features, bandwidth, dtype=np.float64)


class UnitKernel(Kernel):
    """Base class of kernels with k(x, x) = 1."""

    def diag(self, X: ArrayLike) -> NDArray:
        """Return ones: k(x, x) = 1."""
        rows = self._check_rows("X", X)
        return np.ones(rows.shape[0], dtype=rows.dtype)


@dataclass(frozen=True)
class StationaryKernel(UnitKernel):
    """Base class of kernels of feature differences divided by bandwidths."""

    bandwidth: Any = "median"
    _distance = "euclidean"
    _rules = rules(bandwidth=plain(check_bandwidth))

    def resolve(
        self, X: Any, rng: Any = None, sample_weight: NDArray | None = None
    ) -> Kernel:
        """Return the kernel with "median" replaced by the median distance in X.

        Features that are constant in X get an infinite bandwidth, because the distances
        in X say nothing about their scale. See `median_distance` and `Kernel.resolve`.
        """
        if self.bandwidth != "median":
            _bandwidth_of_features(self.bandwidth, X.shape[1])
            return self
        median = median_distance(X, self._distance, rng, sample_weight)
        varies = validation.varying_features(X)
        if varies.all() or not varies.any():
            return replace(self, bandwidth=median)
        return replace(self, bandwidth=tuple(np.where(varies, median, np.inf).tolist()))

    def compiled_form(self, n_features: int) -> CompiledForm:
        """Return the form for compiled code; the bandwidth must be a number."""
        _check_resolved(self.bandwidth)
        metric, profile, scale = self._family()
        widths = _bandwidth_of_features(self.bandwidth, n_features)
        return CompiledForm(metric, profile, scale / widths)

    @abstractmethod
    def _family(self) -> tuple[str, str, float]:
        """Return metric, profile, and the scale of a feature of unit bandwidth."""


@dataclass(frozen=True)
class GaussianKernel(StationaryKernel):
    r"""Gaussian kernel :math:`k(x, y) = \exp(-\|x - y\|^2 / (2\,\text{bandwidth}^2))`.

    Parameters
    ----------
    bandwidth : float, sequence of floats or "median"
        One length for all features or one per feature, in the units of X. "median" is
        the median distance between samples, which makes the kernel independent of the
        scale of X. An infinite bandwidth removes a feature; "median" sets it for
        features that are constant in X.
    gamma : float, optional
        Alternative to `bandwidth`: gamma = 1 / (2 bandwidth^2).

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
                    "`gamma` and `bandwidth` set the same number: pass only one of them"
                )
            width = sqrt(0.5 / validation.check_positive("gamma", gamma))
            object.__setattr__(self, "bandwidth", width)
        super().__post_init__()

    def _family(self) -> tuple[str, str, float]:
        return "squared", "exponential", sqrt(0.5 * _LOG2E)


@dataclass(frozen=True)
class LaplacianKernel(StationaryKernel):
    r"""Laplacian kernel :math:`k(x, y) = \exp(-\|x - y\|_1 / \text{bandwidth})`.

    Parameters
    ----------
    bandwidth : float, sequence of floats or "median"
        One length for all features or one per feature, in the units of X. "median" is
        the median of the distances :math:`\|x - y\|_1` between samples. An infinite
        bandwidth removes a feature; "median" sets it for features that are constant in
        X.

    Examples
    --------
    >>> from nbsketch import LaplacianKernel
    >>> LaplacianKernel(bandwidth=2.0)([[0.0, 0.0]], [[1.0, 1.0]]).round(4).tolist()
    [[0.3679]]
    """

    takes_sparse = False
    _distance = "cityblock"

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
        One length for all features or one per feature, in the units of X. "median" is
        the median distance between samples. An infinite bandwidth removes a feature;
        "median" sets it for features that are constant in X.
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
        1.5: ("matern-3/2", sqrt(3) * _LOG2E),
        2.5: ("matern-5/2", sqrt(5) * _LOG2E),
        inf: ("exponential", sqrt(0.5 * _LOG2E)),
    }
    _rules = rules(nu=choice(*_families))

    def _family(self) -> tuple[str, str, float]:
        return "squared", *self._families[self.nu]


def median_distance(
    X: Any,
    metric: str = "euclidean",
    rng: Any = None,
    sample_weight: NDArray | None = None,
) -> float:
    """Return the median distance between different samples (at most 1000, drawn).

    Each pair is weighted by the product of its sample weights, and identical samples
    form no pair: a sample of weight two is equivalent to the same sample twice, a
    sample of weight zero is ignored. If all samples are identical, the median is 1.

    Parameters
    ----------
    X : ndarray or csr_array of shape (n, q)
        Samples; may be sparse except for the metric "cityblock".
    metric : str
        "euclidean", "cityblock", or "tanimoto" (see `GaussianTanimotoKernel`).
    rng : None, int or Generator
        Random number generator of the draw.
    sample_weight : ndarray of shape (n,), default=None
        Positive weights. None: equal weights.
    """
    n = X.shape[0]
    rows = np.arange(n)
    if n > _MEDIAN_ROWS:
        rows = validation.random_generator(rng).choice(n, _MEDIAN_ROWS, replace=False)
        sample_weight = None if sample_weight is None else sample_weight[rows]
    X = X[rows].astype(np.float64)  # the index copies lazy and Dask rows
    distances = _distances(X, metric)
    is_pair = distances > 0
    if not is_pair.any():
        return 1.0
    if sample_weight is None:
        return float(np.median(distances[is_pair]))
    i, j = np.triu_indices(X.shape[0], 1)
    weights = (sample_weight[i] * sample_weight[j])[is_pair]
    return weighted_median(distances[is_pair], weights)


def weighted_median(values: NDArray, weights: NDArray) -> float:
    """Return the median of values repeated by their weights.

    If half of the weight is on either side, it is the mean of the two middle values, as
    for equal weights.
    """
    order = np.argsort(values, kind="stable")
    values = values[order]
    below = np.cumsum(weights[order])
    half = below[-1] / 2
    # Sums of non-integer weights are compared up to rounding.
    low = int(np.searchsorted(below, half * (1 - 1e-9)))
    is_half = abs(below[low] - half) <= 1e-9 * half
    return float((values[low] + values[low + is_half]) / 2)


def _distances(X: Any, metric: str) -> NDArray:
    """Return the distances of all pairs of rows."""
    if metric != "tanimoto" and not sp.issparse(X):
        return pdist(X, metric)
    name = "tanimoto" if metric == "tanimoto" else "squared"
    values = evaluate(CompiledForm(name, "power", np.ones(X.shape[1])), X, X)
    values = values[np.triu_indices(len(values), 1)]
    return np.sqrt(np.maximum(2 - 2 * values, 0.0) if name == "tanimoto" else values)


@dataclass(frozen=True)
class PolynomialKernel(Kernel):
    r"""Polynomial kernel.

    .. math:: k(x, y) =
        (\text{scale}\,\langle x, y\rangle + \text{offset})^\text{degree}

    Parameters
    ----------
    degree : int
        Degree, an integer from 1 to 1000.
    scale : float
        Factor (> 0) of the inner product.
    offset : float
        Constant (>= 0).

    Raises
    ------
    ValueError
        When called, if k(x, x) overflows for a row, in float32 if the rows are float32.

    Examples
    --------
    >>> from nbsketch import PolynomialKernel
    >>> PolynomialKernel(degree=2, scale=1.0, offset=1.0)([[2.0]], [[3.0]]).tolist()
    [[49.0]]
    """

    degree: int = 3
    scale: float = 1.0
    offset: float = 1.0

    _rules = rules(
        degree=plain(validation.check_integer, high=_HIGHEST_DEGREE),
        scale=positive,
        offset=not_negative,
    )

    def compiled_form(self, n_features: int) -> CompiledForm:
        """Return the form for compiled code."""
        scale = np.full(n_features, sqrt(self.scale))
        return CompiledForm("product", "power", scale, self.offset, self.degree)

    def check_domain(self, name: str, rows: Any) -> None:
        """Raise an error if k(x, x) is not finite, in the dtype of the rows."""
        super().check_domain(name, rows)
        _check_finite(self, name, self._diag(rows))

    def diag(self, X: ArrayLike) -> NDArray:
        """Return k(x, x) for each row x of X."""
        return self._diag(self._check_rows("X", X))

    def _diag(self, rows: Any) -> NDArray:
        with np.errstate(over="ignore"):
            return (self.scale * squared_norms(rows) + self.offset) ** self.degree


@dataclass(frozen=True)
class LinearKernel(Kernel):
    r"""Linear kernel :math:`k(x, y) = \langle x, y\rangle`.

    Examples
    --------
    >>> from nbsketch import LinearKernel
    >>> LinearKernel()([[2.0, 1.0]], [[3.0, 0.0]]).tolist()
    [[6.0]]
    """

    _metric = "product"

    def diag(self, X: ArrayLike) -> NDArray:
        """Return the squared norm of each row of X."""
        return squared_norms(self._check_rows("X", X))


def _check_finite(kernel: Kernel, name: str, values: NDArray) -> None:
    if not np.isfinite(values).all():
        raise ValueError(
            f"`{name}` must have rows with finite squared norms for "
            f"{type(kernel).__name__}, got one whose square or k(x, x) overflows in "
            f"{values.dtype}: scale `{name}`"
        )


def squared_norms(X: Any) -> NDArray:
    """Return the squared norm of each row of X, dense or sparse."""
    if sp.issparse(X):
        return X.multiply(X).sum(axis=1)
    return np.einsum("ij,ij->i", X, X)


@dataclass(frozen=True)
class SobolevKernel(Kernel):
    r"""First-order Sobolev kernel on the unit interval or cube.

    .. math:: k(x, y) = \prod_j \min(x_j, y_j), \qquad x, y \in [0, 1]^q

    With one feature, its functions satisfy f(0) = 0 and have a square integrable
    derivative; their squared norm is :math:`\int_0^1 f'(t)^2 dt`. They are zero
    wherever a feature is 0; the intercept of an estimator compensates for that.

    Raises
    ------
    ValueError
        When called with a number outside [0, 1].

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

    takes_sparse = False
    _metric = "minimum"

    def check_domain(self, name: str, rows: Any) -> None:
        """Raise an error if a number is outside [0, 1]."""
        super().check_domain(name, rows)
        low = rows.min()
        high = rows.max()
        if low < 0 or high > 1:
            raise ValueError(
                f"`{name}` must be in [0, 1] for SobolevKernel, got numbers from "
                f"{low:g} to {high:g}: scale it, as scikit-learn's MinMaxScaler does"
            )

    def diag(self, X: ArrayLike) -> NDArray:
        """Return the product of the features of each row of X."""
        return self._check_rows("X", X).prod(axis=1)


@dataclass(frozen=True)
class TanimotoKernel(UnitKernel):
    r"""Tanimoto kernel for sets or counts: 1 for equal rows, 0 for orthogonal ones.

    .. math:: k(x, y) =
        \frac{\langle x, y\rangle}{\|x\|^2 + \|y\|^2 - \langle x, y\rangle}

    For binary rows it is the Jaccard index: the size of the intersection divided by the
    size of the union. Two zero rows have similarity 1.

    Raises
    ------
    ValueError
        When called, if the squared norm of a row overflows.

    Notes
    -----
    It is positive semi-definite for all real rows, including negative entries: it
    equals :math:`\sum_{j \ge 1} (\langle x, y\rangle / (\|x\|^2 + \|y\|^2))^j`, a sum
    of products of positive semi-definite kernels, which converges because the ratio is
    at most 1/2. Ralaivola, Swamidass, Saigo and Baldi, "Graph kernels for chemical
    informatics", Neural Networks 2005 (binary rows); Tripp, Bacallado, Singh and
    Hernandez-Lobato, "Tanimoto random features for scalable molecular machine
    learning", NeurIPS 2023 (real rows).

    Examples
    --------
    >>> from nbsketch import TanimotoKernel
    >>> TanimotoKernel()([[1, 1, 0]], [[1, 0, 0], [0, 1, 0], [0, 0, 1]]).tolist()
    [[0.5, 0.5, 0.0]]
    """

    _metric = "tanimoto"

    def check_domain(self, name: str, rows: Any) -> None:
        """Raise an error if the squared norm of a row is not finite."""
        super().check_domain(name, rows)
        with np.errstate(over="ignore"):
            _check_finite(self, name, squared_norms(rows))


@dataclass(frozen=True)
class GaussianTanimotoKernel(TanimotoKernel):
    r"""Gaussian kernel of the distance defined by the Tanimoto kernel T.

    .. math:: k(x, y) = \exp\bigl(-(1 - T(x, y)) / \text{bandwidth}^2\bigr)

    The squared distance of two rows in the feature space of T is 2 - 2 T(x, y).

    Parameters
    ----------
    bandwidth : float or "median", default=1.0
        Length in that feature space, where distances are at most :math:`\sqrt{8/3}`,
        and at most :math:`\sqrt{2}` without negative entries. "median" is the median
        distance between samples there.

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

    bandwidth: Any = 1.0
    _rules = rules(bandwidth=plain(_positive_or_median))

    def resolve(
        self, X: Any, rng: Any = None, sample_weight: NDArray | None = None
    ) -> Kernel:
        """Return the kernel with "median" replaced by the median distance in X."""
        if self.bandwidth != "median":
            return self
        median = median_distance(X, "tanimoto", rng, sample_weight)
        return replace(self, bandwidth=median)

    def compiled_form(self, n_features: int) -> CompiledForm:
        """Return the form for compiled code; the bandwidth must be a number."""
        _check_resolved(self.bandwidth)
        steepness = min(_LOG2E / self.bandwidth / self.bandwidth, _STEEPEST)
        return CompiledForm("tanimoto", "complement", np.ones(n_features), steepness)


@dataclass(frozen=True)
class CallableKernel(Kernel):
    """Kernel from a function of two sets of samples, evaluated tile by tile.

    Parameters
    ----------
    function : callable
        ``function(X, Y)`` returns the matrix of kernel values, of shape (n, m). It must
        be symmetric and positive semi-definite. Sparse samples are passed as CSR
        arrays.

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
        if values.shape != shape or values.dtype.kind not in "fiub":
            raise ValueError(
                f"`kernel` must return numbers of shape {shape}, got shape "
                f"{values.shape} and dtype {values.dtype}"
            )
        if not np.isfinite(values).all():
            raise ValueError("`kernel` must return finite values, got NaN or infinity")
        return values


@dataclass(frozen=True)
class PrecomputedKernel(Kernel):
    """Kernel whose X already holds kernel values: k(x, x_j) for each training sample.

    Examples
    --------
    >>> import numpy as np
    >>> from nbsketch import PrecomputedKernel
    >>> PrecomputedKernel()(np.eye(3), [0, 2]).tolist()
    [[1.0, 0.0], [0.0, 0.0], [0.0, 1.0]]
    """

    takes_sparse = False
    is_pairwise = True

    def __call__(self, X: ArrayLike, Y: ArrayLike | None = None) -> NDArray:
        """Return the columns Y (indices of training samples; default: all) of X."""
        rows = self._check_rows("X", X)
        return rows if Y is None else rows[:, self.check_landmarks(Y, rows.shape[1])]

    def diag(self, X: ArrayLike) -> NDArray:
        """Return the diagonal of the square matrix X."""
        K = self._check_rows("X", X)
        if K.shape[0] != K.shape[1]:
            raise ValueError(
                f"`X` must be the square matrix of kernel values, got shape {K.shape}"
            )
        return np.diagonal(K).copy()

    def resolve(
        self, X: Any, rng: Any = None, sample_weight: NDArray | None = None
    ) -> PrecomputedKernel:
        """Return the kernel; check on a subset of rows that square X is symmetric."""
        n = X.shape[0]
        if n == X.shape[1]:
            _check_symmetric(X, np.unique(np.linspace(0, n - 1, _CHECKED).astype(int)))
        return self

    def take(self, rows: NDArray, index: NDArray | None = None) -> NDArray:
        """Return the indices themselves, which represent the training samples."""
        return np.arange(rows.shape[1]) if index is None else index

    def check_landmarks(self, landmarks: ArrayLike, n_features: int) -> NDArray:
        """Check that landmarks are column indices; return them as an array."""
        index = np.asarray(landmarks)
        if index.ndim != 1 or index.dtype.kind not in "iu":
            raise TypeError(
                "`landmarks` must be indices of training samples when the kernel is "
                f"precomputed, got shape {index.shape} and dtype {index.dtype}"
            )
        validation.check_indices("landmarks", index, n_features)
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


KERNELS: dict[str, type[Kernel]] = {
    "auto": GaussianKernel,  # for estimators that learn no length scales
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


# Kernels with learnable length scales, by the family of `_jit.tuning.FAMILIES`.
LEARNABLE: dict[str, StationaryKernel] = {
    "gaussian": GaussianKernel(),
    "matern-1/2": MaternKernel(nu=0.5),
    "matern-3/2": MaternKernel(nu=1.5),
    "matern-5/2": MaternKernel(nu=2.5),
    "laplacian": LaplacianKernel(),
}
# Names of kernels with learnable length scales, and their families.
LEARNABLE_NAMES = {
    name: family
    for name, kernel in KERNELS.items()
    for family, learnable in LEARNABLE.items()
    if kernel is type(learnable) and kernel() == learnable
}


def as_kernel(kernel: Any, bandwidth: Any = None, *, prefix: str = "") -> Kernel:
    """Return a kernel from an object, a name or a function of two sets of samples.

    Parameters
    ----------
    kernel : Kernel, str or callable
        A kernel, one of "auto" (the Gaussian kernel), "gaussian", "laplacian",
        "matern", "polynomial", "linear", "sobolev", "tanimoto", "gaussian-tanimoto" and
        "precomputed", or a function ``k(X, Y)``.
    bandwidth : optional
        Bandwidth, if `kernel` is the name of a kernel that has one.
    prefix : str
        Prefix of both argument names in error messages, such as ``"output_"``.
    """
    name = f"{prefix}kernel"
    validation.check_no_class(name, kernel)
    if isinstance(kernel, str) and bandwidth is not None:
        check_bandwidth(f"{prefix}bandwidth", bandwidth)
    if callable(kernel) and not isinstance(kernel, Kernel):
        kernel = CallableKernel(kernel)
    if not isinstance(kernel, str | Kernel):
        raise TypeError(
            f"`{name}` must be a name, a Kernel or a callable, got {kernel!r}"
        )
    return named_object("kernel", kernel, KERNELS, Kernel, prefix, bandwidth=bandwidth)
