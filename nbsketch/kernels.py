"""Kernels: small frozen objects that can be called on two sets of rows."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import InitVar, dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.spatial.distance import pdist

from nbsketch._jit.gram import (
    ABSOLUTE,
    EXPONENTIAL,
    MATERN_12,
    MATERN_32,
    MATERN_52,
    POWER,
    PRODUCT,
    SQUARED,
)
from nbsketch._validation import (
    check_choice,
    check_integer,
    check_matrix,
    check_positive,
    check_real,
    random_generator,
)
from nbsketch.gram import CompiledForm, evaluate

_LOG2E = 1 / math.log(2)
# Rows on which the median heuristic looks at all pairs.
_MEDIAN_ROWS = 1000


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


@dataclass(frozen=True)
class StationaryKernel(Kernel):
    """A kernel of the differences of features, each divided by its bandwidth."""

    bandwidth: Any = "median"
    _distance: ClassVar[str] = "euclidean"

    def __post_init__(self) -> None:
        object.__setattr__(self, "bandwidth", _check_bandwidth(self.bandwidth))

    def resolve(self, X: NDArray, rng: Any = None) -> Kernel:
        """Return the kernel with "median" replaced by the median distance in X.

        The median is over the distinct pairs of at most 1000 rows, drawn with `rng`; it
        is 1 where all rows are equal. See `Kernel.resolve`.
        """
        if self.bandwidth != "median":
            _bandwidth_of_features(self.bandwidth, X.shape[1])
            return self
        median = median_distance(X, self._distance, rng)
        return type(self)(**{**self._others(), "bandwidth": median})

    def _others(self) -> dict[str, Any]:
        return {}

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
    def _family(self) -> tuple[int, int, float]:
        """Return metric, profile, and the scale of a feature of unit bandwidth."""

    def diag(self, X: ArrayLike) -> NDArray:
        """Return ones: k(x, x) = 1."""
        X = check_matrix("X", X)
        return np.ones(X.shape[0], dtype=X.dtype)


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

    def _family(self) -> tuple[int, int, float]:
        return SQUARED, EXPONENTIAL, math.sqrt(0.5 * _LOG2E)


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

    _distance: ClassVar[str] = "cityblock"

    def _family(self) -> tuple[int, int, float]:
        return ABSOLUTE, EXPONENTIAL, _LOG2E


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

    _families: ClassVar[dict[float, tuple[int, float]]] = {
        0.5: (MATERN_12, _LOG2E),
        1.5: (MATERN_32, math.sqrt(3) * _LOG2E),
        2.5: (MATERN_52, math.sqrt(5) * _LOG2E),
        math.inf: (EXPONENTIAL, math.sqrt(0.5 * _LOG2E)),
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        nu = check_real("nu", self.nu, low=0, low_open=True)
        object.__setattr__(self, "nu", check_choice("nu", nu, self._families))

    def _others(self) -> dict[str, Any]:
        return {"nu": self.nu}

    def _family(self) -> tuple[int, int, float]:
        return SQUARED, *self._families[self.nu]


@dataclass(frozen=True)
class PolynomialKernel(Kernel):
    r"""Polynomial kernel.

    .. math:: k(x, y) =
        (\text{scale}\,\langle x, y\rangle + \text{offset})^\text{degree}

    Parameters
    ----------
    degree : int
        Degree, at least 1.
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
        check_integer("degree", self.degree)
        check_positive("scale", self.scale)
        check_real("offset", self.offset, low=0, high_open=True)

    def compiled_form(self, n_features: int) -> CompiledForm:
        """Return what compiled code needs."""
        scale = np.full(n_features, math.sqrt(self.scale))
        return CompiledForm(PRODUCT, POWER, scale, float(self.offset), self.degree)

    def diag(self, X: ArrayLike) -> NDArray:
        """Return k(x, x) for each row x of X."""
        X = check_matrix("X", X)
        return (self.scale * np.square(X).sum(axis=1) + self.offset) ** self.degree


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
        return CompiledForm(PRODUCT, POWER, np.ones(n_features))

    def diag(self, X: ArrayLike) -> NDArray:
        """Return the squared norm of each row of X."""
        return np.square(check_matrix("X", X)).sum(axis=1)


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
        return np.diagonal(check_matrix("X", X)).copy()

    def take(self, rows: NDArray, index: NDArray | None = None) -> NDArray:
        """Return the indices themselves: they stand for the training rows."""
        return np.arange(rows.shape[1]) if index is None else index


_BY_NAME: dict[str, type[Kernel]] = {
    "gaussian": GaussianKernel,
    "laplacian": LaplacianKernel,
    "matern": MaternKernel,
    "polynomial": PolynomialKernel,
    "linear": LinearKernel,
    "precomputed": PrecomputedKernel,
}


def as_kernel(kernel: Any, bandwidth: Any = None) -> Kernel:
    """Return a kernel from an object, a name or a function of two sets of rows.

    Parameters
    ----------
    kernel : Kernel, str or callable
        A kernel, one of "gaussian", "laplacian", "matern", "polynomial", "linear" and
        "precomputed", or a function ``k(X, Y)``.
    bandwidth : optional
        The bandwidth, where `kernel` is the name of a kernel that has one.
    """
    if isinstance(kernel, str):
        family = _BY_NAME[check_choice("kernel", kernel, _BY_NAME)]
        if bandwidth is None:
            return family()
        if issubclass(family, StationaryKernel):
            return family(bandwidth=bandwidth)
        raise ValueError(f"`bandwidth` has no meaning for kernel={kernel!r}")
    if bandwidth is not None:
        raise ValueError(
            f"`bandwidth` goes with the name of a kernel, got kernel={kernel!r}: "
            "set the bandwidth of the object instead"
        )
    if isinstance(kernel, Kernel):
        return kernel
    if callable(kernel):
        return CallableKernel(kernel)
    raise TypeError(f"`kernel` must be a name, a Kernel or a callable, got {kernel!r}")


def median_distance(X: NDArray, metric: str = "euclidean", rng: Any = None) -> float:
    """Return the median distance of the distinct rows of X, of at most 1000 drawn.

    Parameters
    ----------
    X : ndarray of shape (n, q)
        Rows.
    metric : str
        "euclidean" or "cityblock".
    rng : None, int or Generator
        Source of the draw.
    """
    if len(X) > _MEDIAN_ROWS:
        X = X[random_generator(rng).choice(len(X), _MEDIAN_ROWS, replace=False)]
    distances = pdist(X.astype(np.float64), metric)
    distances = distances[distances > 0]
    return float(np.median(distances)) if distances.size else 1.0


def _check_bandwidth(bandwidth: Any) -> float | tuple[float, ...] | str:
    if isinstance(bandwidth, str):
        return check_choice("bandwidth", bandwidth, ["median"])
    if np.ndim(bandwidth) == 0:
        return check_positive("bandwidth", np.asarray(bandwidth)[()])
    if np.ndim(bandwidth) != 1 or len(bandwidth) == 0:
        raise ValueError(
            "`bandwidth` must be a number, one number per feature or 'median', "
            f"got shape {np.shape(bandwidth)}"
        )
    return tuple(check_positive("bandwidth", width) for width in bandwidth)


def _bandwidth_of_features(bandwidth: Any, n_features: int) -> NDArray[np.float64]:
    if isinstance(bandwidth, tuple) and len(bandwidth) != n_features:
        raise ValueError(
            f"`bandwidth` must have one number per feature, {n_features}, "
            f"got {len(bandwidth)}"
        )
    return np.full(n_features, bandwidth, dtype=np.float64)
