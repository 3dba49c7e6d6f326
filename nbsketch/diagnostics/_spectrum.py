"""The spectrum of a Gram matrix: exact for few rows, by landmarks for many."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nbsketch._blas import eigh, threads_for
from nbsketch._sketch_map import SketchMap, draw, sketched_design
from nbsketch._validation import (
    check_integer,
    check_positive,
    check_rows,
    random_generator,
)
from nbsketch.kernels import Kernel
from nbsketch.sketches import IdentitySketch, SubsamplingSketch


def effective_dimension(spectrum: Spectrum, alpha: float) -> float:
    r"""Return the effective dimension of kernel ridge regression with a penalty.

    .. math:: N(\alpha) = \operatorname{Tr} K (K + n \alpha I)^{-1}
        = \sum_j \frac{\mu_j}{\mu_j + \alpha}

    Parameters
    ----------
    spectrum : Spectrum
        Result of `spectrum`.
    alpha : float
        Penalty (> 0), as in the estimators.

    Returns
    -------
    float
        Between 0 and n. For a spectrum by landmarks an upper bound, which is tight if
        the missing eigenvalues are small compared with `alpha`.

    Notes
    -----
    Also known as the degrees of freedom of kernel ridge regression, and as the sum of
    the ridge leverage scores.

    Examples
    --------
    >>> import numpy as np
    >>> from nbsketch.diagnostics import effective_dimension, spectrum
    >>> mu = spectrum(np.eye(4), "linear")  # four eigenvalues, each 1/4
    >>> effective_dimension(mu, alpha=0.25)
    2.0
    """
    alpha = check_positive("alpha", alpha)
    values, counts = spectrum.levels()
    return float(counts @ (values / (values + alpha)))


def critical_radius(spectrum: Spectrum, *, noise: float = 1.0) -> float:
    r"""Return the critical radius, the root of the minimax rate of the error.

    It is the smallest :math:`\delta_n` with

    .. math:: \sqrt{\frac{1}{n} \sum_{j=1}^n \min(\delta_n^2, \mu_j)}
        \le \frac{\delta_n^2}{\sigma},

    for a regression function of norm at most 1. :math:`\delta_n^2` is the order of the
    minimax mean squared error, and of the best penalty.

    Parameters
    ----------
    spectrum : Spectrum
        Result of `spectrum`.
    noise : float, default=1.0
        Standard deviation sigma of the noise, in units in which the norm of the
        regression function is 1.

    Returns
    -------
    float
        The radius itself, not its square. For a spectrum by landmarks an upper bound.

    Notes
    -----
    Yang, Pilanci and Wainwright, Ann. Stat. 2017, section 2.1. The solution is in
    closed form: the sum is the minimum, over k, of its value with the k largest
    eigenvalues replaced by delta^2, and each of these conditions is quadratic.

    Examples
    --------
    >>> import numpy as np
    >>> from nbsketch.diagnostics import critical_radius, spectrum
    >>> mu = spectrum(np.eye(4), "linear")
    >>> round(critical_radius(mu, noise=2.0), 4)  # sqrt(1/4) = delta^2 / 2
    1.0
    """
    variance = check_positive("noise", noise) ** 2
    values, counts = spectrum.levels()
    cut = np.append(0, np.cumsum(counts))
    tails = np.append(np.cumsum((counts * values)[::-1])[::-1], 0.0)
    half = variance * cut / (2 * spectrum.n)
    squares = half + np.sqrt(half**2 + variance * tails / spectrum.n)
    return math.sqrt(squares.min())


def statistical_dimension(spectrum: Spectrum, *, noise: float = 1.0) -> int:
    r"""Return the index of the first eigenvalue up to the squared critical radius.

    .. math:: d_n = \min\{j : \mu_j \le \delta_n^2\}, \quad
        \text{and } n \text{ if there is none.}

    Parameters
    ----------
    spectrum : Spectrum
        Result of `spectrum`.
    noise : float, default=1.0
        Standard deviation of the noise, as in `critical_radius`.

    Returns
    -------
    int
        Between 1 and n.

    Notes
    -----
    Yang, Pilanci and Wainwright, Ann. Stat. 2017, section 2.1: the size of a sketch
    must be at least of this order.

    Examples
    --------
    >>> import numpy as np
    >>> from nbsketch.diagnostics import spectrum, statistical_dimension
    >>> X = np.random.default_rng(0).uniform(size=(400, 1))
    >>> statistical_dimension(spectrum(X, bandwidth=0.2))
    6
    """
    square = critical_radius(spectrum, noise=noise) ** 2
    values, counts = spectrum.levels()
    return min(spectrum.n, int(counts[values > square].sum()) + 1)


# Rows up to which the spectrum is exact unless a size is given, and landmarks beyond.
EXACT_ROWS = 2000
LANDMARKS = 1000
# Share of the largest eigenvalue below which a negative one is rounding.
_ROUNDING = 1e-8


@dataclass(frozen=True, eq=False)
class Spectrum:
    r"""Eigenvalues :math:`\mu_1 \ge \mu_2 \ge \dots` of :math:`K / n`.

    Attributes
    ----------
    values : ndarray
        The computed eigenvalues in descending order, none negative.
    n : int
        Number of rows, which is the number of all eigenvalues.
    missing : float
        Trace of K/n minus the sum of `values`: 0 if the spectrum is exact. Each of
        `values` is a lower bound of the true eigenvalue.
    vectors : ndarray of shape (n, n) or None
        Eigenvectors in columns, in the order of `values`, if the spectrum is exact.
    kernel : Kernel
        The kernel with all its parameters set.

    Examples
    --------
    >>> import numpy as np
    >>> from nbsketch.diagnostics import spectrum
    >>> spectrum(np.eye(4), "linear")
    Spectrum(n=4, largest=0.25, found=4, missing=0)
    """

    values: NDArray[np.float64]
    n: int
    missing: float
    vectors: NDArray[np.float64] | None
    kernel: Kernel

    def __repr__(self) -> str:
        return (
            f"Spectrum(n={self.n}, largest={self.values[0]:.3g}, "
            f"found={self.values.size}, missing={self.missing:.3g})"
        )

    @property
    def is_exact(self) -> bool:
        """Whether all eigenvalues and eigenvectors were computed."""
        return self.vectors is not None

    def levels(self) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Return descending values and the multiplicity of each.

        `missing` is spread evenly over the eigenvalues that were not computed. This is
        the flattest compatible spectrum, so that the sum over it of a concave function,
        such as mu / (mu + alpha), is an upper bound.
        """
        rest = self.n - self.values.size
        counts = np.ones(self.values.size, dtype=np.int64)
        if rest == 0:
            return self.values, counts
        values = np.append(self.values, self.missing / rest)
        order = np.argsort(-values, kind="stable")
        return values[order], np.append(counts, rest)[order]


def spectrum(
    X: ArrayLike,
    kernel: Any = "gaussian",
    *,
    bandwidth: Any = None,
    size: int | None = None,
    random_state: Any = None,
) -> Spectrum:
    r"""Return the eigenvalues of :math:`K / n` for the rows of X.

    With ``size = n`` by the eigendecomposition of K, which stores n x n numbers. With
    fewer by Nystrom's method on `size` random rows L, without K:

    .. math:: \hat K = K_{nL} K_{LL}^+ K_{Ln} \preceq K,

    so that every computed eigenvalue is a lower bound of the true one, and the trace of
    :math:`(K - \hat K) / n`, returned as ``missing``, bounds the sum of all
    differences.

    Parameters
    ----------
    X : array_like or sparse matrix of shape (n, q)
        Rows; the Gram matrix itself for a precomputed kernel.
    kernel : str, Kernel or callable
        As in `nbsketch.SketchedFeatures`.
    bandwidth : float, sequence of floats or "median", optional
        Bandwidth of a kernel that is given by name; "median" by default.
    size : int, optional
        Number of landmarks, at most n. By default n up to 2000 rows, else 1000.
    random_state : None, int or Generator
        Source of the landmarks, and of the rows for a median bandwidth.

    Returns
    -------
    Spectrum
        Argument of the other functions of this module.

    Raises
    ------
    ValueError
        If K is not positive semi-definite, or zero.

    Notes
    -----
    Time grows as n^3 if exact, else as n size^2; memory as n^2 or size^2, and at most
    256 MiB for features. Everything is in double precision; eigenvalues below 1e-12 of
    the largest are rounding.

    Examples
    --------
    >>> import numpy as np
    >>> from nbsketch.diagnostics import spectrum
    >>> X = np.random.default_rng(0).normal(size=(500, 2))
    >>> exact = spectrum(X, bandwidth=2.0)
    >>> sampled = spectrum(X, bandwidth=2.0, size=100, random_state=0)
    >>> exact.missing, 0 < sampled.missing < 1e-4
    (0.0, True)
    >>> bool(abs(exact.values[:20] - sampled.values[:20]).max() < sampled.missing)
    True
    """
    rows = check_rows("X", X).astype(np.float64, copy=False)
    n = rows.shape[0]
    if size is None:
        size = n if n <= EXACT_ROWS else LANDMARKS
    size = check_integer("size", size, high=n)
    recipe = IdentitySketch() if size == n else SubsamplingSketch(size)
    rngs = random_generator(random_state).spawn(2)
    resolved, sketch = draw(rows, kernel, bandwidth, recipe, None, rngs)
    if sketch.is_identity:
        return _exact(resolved, rows)
    return _by_landmarks(resolved, rows, sketch)


def _exact(kernel: Kernel, X: Any) -> Spectrum:
    n = X.shape[0]
    K = kernel(X, kernel.take(X))
    values, vectors = eigh((K + K.T) / (2 * n))
    _check_definite(values[-1], values[0])
    values = np.maximum(values[::-1], 0.0)
    return Spectrum(values, n, 0.0, vectors[:, ::-1], kernel)


def _by_landmarks(kernel: Kernel, X: Any, sketch: Any) -> Spectrum:
    n = X.shape[0]
    _, design = sketched_design(SketchMap.of(kernel, X, sketch), X, sketch.columns)
    with threads_for(n * float(design.shape[1]) ** 2):
        inner = design.gram() / n
    values = np.maximum(eigenvalues(inner), 0.0)
    missing = float(kernel.diag(X).mean()) - float(values.sum())
    _check_definite(values.max(initial=0.0), missing)
    return Spectrum(values, n, max(0.0, missing), None, kernel)


def _check_definite(largest: float, least: float) -> None:
    """Raise an error if a kernel cannot be positive semi-definite, or is zero."""
    if largest <= 0 or least < -_ROUNDING * largest:
        raise ValueError(
            "`kernel` must be positive semi-definite and not zero on all rows, got K/n "
            f"with largest eigenvalue {largest:.3g} and smallest (or trace of the "
            f"remainder) {least:.3g}"
        )


def eigenvalues(matrix: NDArray) -> NDArray[np.float64]:
    """Return the descending eigenvalues of a symmetric matrix."""
    with threads_for(2.0 * len(matrix) ** 3):
        return np.linalg.eigvalsh(matrix)[::-1]
