"""Complexity of a kernel problem, sketch sizes, and K-satisfiability.

All functions take the spectrum of the Gram matrix: see `spectrum`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nbsketch._machine.blas import eigh, threads_for
from nbsketch._report.validation import (
    check_choice,
    check_integer,
    check_positive,
    check_real,
    check_rows,
    random_generator,
)
from nbsketch._sketch_map import SketchMap, draw, resolve, sketched_design
from nbsketch.kernels import Kernel, as_kernel
from nbsketch.plots import BLUE, ORANGE, axes_or_new, finish
from nbsketch.sketches import IdentitySketch, Sketch, SubsamplingSketch

__all__ = [
    "Satisfiability",
    "SizeRecommendation",
    "Spectrum",
    "critical_radius",
    "effective_dimension",
    "is_k_satisfiable",
    "plot_spectrum",
    "recommend_size",
    "satisfiability_constant",
    "spectrum",
    "statistical_dimension",
]
# Maximum number of samples for which the spectrum is exact by default.
EXACT_ROWS = 2000
LANDMARKS = 1000  # default above EXACT_ROWS
# Negative eigenvalues below this share of the largest count as rounding.
_ROUNDING = 1e-8
_THEORY_DENSITY = 0.7  # of the nonzeros
_PRACTICE_NONZEROS = 20  # per row
# "theory": the constant in the proof of the theorem (Appendix A.4.1). "satisfiable": on
# d random directions the distortion is 2 sqrt(d/s) + d/s, which is 1/2 at s = 20 d,
# slightly more than 9.8 d / p^2 at p = 0.7.
_FACTORS = {"theory": 5120.0, "satisfiable": 12.0}
# Test errors of sketches with 20 nonzeros per row were within 2 % of the error without
# a sketch at twice the effective dimension, on five data sets with three kernels each.
_PRACTICE_FACTOR = 2.0
# Bound on the distortion of the leading eigenvectors.
DISTORTION_BOUND = 0.5
# Eigenvalues below this share of the largest count as rounding and are not drawn.
_SMALLEST = 1e-12


def effective_dimension(spectrum: Spectrum, alpha: float) -> float:
    r"""Return the effective dimension of kernel ridge regression.

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
        Between 0 and n. For a Nystrom spectrum, an upper bound, which is tight if the
        missing eigenvalues are small compared with `alpha`.

    Notes
    -----
    Also known as the degrees of freedom of kernel ridge regression; equal to the sum of
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
    r"""Return the critical radius, whose square is the minimax rate of the error.

    It is the smallest :math:`\delta_n` with

    .. math:: \sqrt{\frac{1}{n} \sum_{j=1}^n \min(\delta_n^2, \mu_j)}
        \le \frac{\delta_n^2}{\sigma},

    for a regression function of norm at most 1. :math:`\delta_n^2` is the order of the
    minimax mean squared error and of the optimal penalty.

    Parameters
    ----------
    spectrum : Spectrum
        Result of `spectrum`.
    noise : float, default=1.0
        Standard deviation sigma of the noise, in units where the norm of the regression
        function is 1.

    Returns
    -------
    float
        The radius itself, not its square. For a Nystrom spectrum, an upper bound.

    Notes
    -----
    Yang, Pilanci and Wainwright, Ann. Stat. 2017, section 2.1. The solution is in
    closed form: the sum is the minimum over k of its value with the k largest
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
    r"""Return the number of eigenvalues above the squared critical radius, plus one.

    .. math:: d_n = \min\{j : \mu_j \le \delta_n^2\}, \quad
        \text{or } n \text{ if there is none.}

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
    Yang, Pilanci and Wainwright, Ann. Stat. 2017, section 2.1: the sketch size must be
    at least of this order.

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


@dataclass(frozen=True, eq=False)
class Spectrum:
    r"""Eigenvalues :math:`\mu_1 \ge \mu_2 \ge \dots` of :math:`K / n`.

    Attributes
    ----------
    values : ndarray
        Computed eigenvalues in descending order, all nonnegative.
    n : int
        Number of samples, equal to the number of all eigenvalues.
    missing : float
        Trace of K/n minus the sum of `values`: 0 if the spectrum is exact. Each
        computed eigenvalue is a lower bound of the true one.
    vectors : ndarray of shape (n, n) or None
        Eigenvectors in columns, in the order of `values`, if the spectrum is exact.
    kernel : Kernel
        Kernel with all parameters set.

    Examples
    --------
    >>> import numpy as np
    >>> from nbsketch.diagnostics import spectrum
    >>> spectrum(np.eye(4), "linear")
    Spectrum(n=4, largest=0.25, found=4, missing=0)
    """

    values: NDArray
    n: int
    missing: float
    vectors: NDArray | None
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

    def levels(self) -> tuple[NDArray, NDArray]:
        """Return descending eigenvalues and their multiplicities.

        `missing` is spread evenly over the eigenvalues that were not computed. This is
        the flattest compatible spectrum, so sums of concave functions such as mu / (mu
        + alpha) are upper bounds.
        """
        n_missing = self.n - self.values.size
        counts = np.ones(self.values.size, dtype=np.int64)
        if n_missing == 0:
            return self.values, counts
        values = np.append(self.values, self.missing / n_missing)
        order = np.argsort(-values, kind="stable")
        return values[order], np.append(counts, n_missing)[order]


def spectrum(
    X: ArrayLike,
    kernel: Any = "gaussian",
    *,
    bandwidth: Any = None,
    size: int | None = None,
    random_state: Any = None,
) -> Spectrum:
    r"""Return the eigenvalues of :math:`K / n` for the samples X.

    With ``size = n``, K is decomposed, which stores n x n numbers. With a smaller size,
    the Nystrom method on `size` random samples L avoids forming K:

    .. math:: \hat K = K_{nL} K_{LL}^+ K_{Ln} \preceq K,

    Every computed eigenvalue is then a lower bound of the true one, and the trace of
    :math:`(K - \hat K) / n`, returned as ``missing``, bounds the sum of all
    differences.

    Parameters
    ----------
    X : array_like or sparse matrix of shape (n, q)
        Samples; the Gram matrix for a precomputed kernel.
    kernel : str, Kernel or callable
        As in `nbsketch.SketchedFeatures`.
    bandwidth : float, sequence of floats or "median", optional
        Bandwidth of a kernel given by name. Default: "median".
    size : int, optional
        Number of landmarks, at most n. Default: n up to 2000 samples, else 1000.
    random_state : None, int or Generator
        Random numbers for the landmarks and for the median bandwidth.

    Returns
    -------
    Spectrum
        Spectrum, which the other functions of this module take.

    Raises
    ------
    ValueError
        If K is zero or not positive semi-definite.

    Notes
    -----
    Time grows like n^3 if exact, otherwise like n size^2; memory like n^2 or size^2,
    plus at most 256 MiB for features. All computations are in double precision;
    eigenvalues below 1e-12 times the largest are rounding.

    Examples
    --------
    >>> import numpy as np
    >>> from nbsketch.diagnostics import spectrum
    >>> X = np.random.default_rng(0).normal(size=(500, 2))
    >>> exact = spectrum(X, bandwidth=2.0)
    >>> sampled = spectrum(X, bandwidth=2.0, size=100, random_state=0)
    >>> exact.missing, 0 < sampled.missing < 1e-4
    (0.0, True)
    >>> print(f"{exact.values[0]:.3f} {sampled.values[0]:.3f}")
    0.699 0.699
    """
    rows = check_rows("X", X).astype(np.float64, copy=False)
    n = rows.shape[0]
    if size is None:
        size = n if n <= EXACT_ROWS else LANDMARKS
    size = check_integer("size", size, high=n)
    recipe = IdentitySketch() if size == n else SubsamplingSketch(size)
    rngs = random_generator(random_state).spawn(2)
    resolved = resolve(rows, as_kernel(kernel, bandwidth), rngs[0])
    sketch = draw(rows, resolved, recipe, rngs[1])
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
    _, design = sketched_design(SketchMap.of(kernel, X, sketch), X)
    with threads_for(n * float(design.shape[1]) ** 2):
        inner = design.gram() / n
    values = np.maximum(eigenvalues(inner), 0.0)
    missing = float(kernel.diag(X).mean()) - float(values.sum())
    _check_definite(values.max(initial=0.0), missing)
    return Spectrum(values, n, max(0.0, missing), None, kernel)


def _check_definite(largest: float, least: float) -> None:
    """Raise an error if the kernel is zero or not positive semi-definite."""
    if largest <= 0 or least < -_ROUNDING * largest:
        raise ValueError(
            "`kernel` must be positive semi-definite and not zero, got K/n with "
            f"largest eigenvalue {largest:.3g} and smallest (or trace of the "
            f"remainder) {least:.3g}"
        )


def eigenvalues(matrix: NDArray) -> NDArray:
    """Return the eigenvalues of a symmetric matrix in descending order."""
    with threads_for(2.0 * len(matrix) ** 3):
        return np.linalg.eigvalsh(matrix)[::-1]


class SizeRecommendation(NamedTuple):
    """Recommended size of a p-sparsified sketch, and the quantities used.

    Attributes
    ----------
    size : int
        Recommended number of rows s, at most n.
    density : float
        Density p of the sketch.
    guarantee : {"practice", "satisfiable", "theory"}
        Rule used for the recommendation.
    alpha : float
        Penalty used for the effective dimension.
    effective_dimension : float
        N(alpha), used by "practice".
    statistical_dimension : int
        d_n, used by the other rules.
    radius : float
        The critical radius.
    spectrum : Spectrum
        Spectrum of the samples.
    """

    size: int
    density: float
    guarantee: str
    alpha: float
    effective_dimension: float
    statistical_dimension: int
    radius: float
    spectrum: Spectrum


def recommend_size(
    X: Any,
    kernel: Any = None,
    alpha: float | None = None,
    *,
    density: float | None = None,
    guarantee: Literal["practice", "satisfiable", "theory"] = "practice",
    noise: float = 1.0,
    random_state: Any = None,
) -> SizeRecommendation:
    r"""Recommend the size of a p-sparsified sketch.

    .. math:: s = 2 N(\alpha) \quad\text{(practice)}, \qquad
        s = \max(C_0\, d_n / p^2,\; \delta_n^2 n) \quad\text{(others)},

    with :math:`C_0 = 12` (satisfiable) or 5120 (theory), rounded up, and at most n.

    Parameters
    ----------
    X : array_like of shape (n, q) or Spectrum
        Samples, or their spectrum.
    kernel : str, Kernel or callable, optional
        Kernel, "gaussian" by default. Must be None for a spectrum, which has its own
        kernel.
    alpha : float, optional
        Penalty of the model. Default: the squared critical radius, the optimal penalty
        in theory.
    density : float in (0, 1], optional
        Density p of the sketch. Default: 20/n for "practice" and 0.7 otherwise.
    guarantee : {"practice", "satisfiable", "theory"}
        "practice": empirically enough to match the error without a sketch.
        "satisfiable": empirically enough for most draws to be K-satisfiable, see
        `is_k_satisfiable`. "theory": sufficient by the proof, usually more than n.
    noise : float
        Standard deviation of the noise, as in `critical_radius`.
    random_state : None, int or Generator
        As in `spectrum`.

    Returns
    -------
    SizeRecommendation
        ``size``, followed by the quantities used.

    Notes
    -----
    El Ahmad, Laforgue and d'Alche-Buc, TMLR 2023: section 3 leaves the constant open,
    the proof in Appendix A.4.1 has 5120; 12 suffices for random directions at p = 0.7.
    For small p both exceed n, although sketches with p = 20/n have no larger distortion
    than Gaussian sketches (see the documentation). "practice": a sketch with fewer than
    N(alpha) rows cannot represent all directions kept by the penalty.

    Examples
    --------
    >>> import numpy as np
    >>> from nbsketch import PSparsifiedSketch
    >>> from nbsketch.diagnostics import recommend_size, spectrum
    >>> mu = spectrum(np.random.default_rng(0).uniform(size=(400, 1)), bandwidth=0.2)
    >>> advice = recommend_size(mu, alpha=1e-4)
    >>> PSparsifiedSketch(advice.size, advice.density)
    PSparsifiedSketch(size=17, density=0.05, law='rademacher')
    >>> recommend_size(mu, guarantee="satisfiable").size
    147
    """
    check_choice("guarantee", guarantee, ["practice", *_FACTORS])
    if density is not None:
        density = _check_density(density)
    if alpha is not None:
        alpha = check_positive("alpha", alpha)
    mu = X
    if not isinstance(X, Spectrum):
        given = "gaussian" if kernel is None else kernel
        mu = spectrum(X, given, random_state=random_state)
    elif kernel is not None:
        raise ValueError(
            f"`kernel` must be None for a spectrum, which has its own, got {kernel!r}"
        )
    radius = critical_radius(mu, noise=noise)
    alpha = radius**2 if alpha is None else alpha
    d = statistical_dimension(mu, noise=noise)
    free = effective_dimension(mu, alpha)
    if guarantee == "practice":
        p = min(1.0, _PRACTICE_NONZEROS / mu.n) if density is None else density
        required = _PRACTICE_FACTOR * free
    else:
        p = _THEORY_DENSITY if density is None else density
        required = max(_FACTORS[guarantee] * d / p**2, radius**2 * mu.n)
    size = min(mu.n, max(1, math.ceil(required)))
    return SizeRecommendation(size, p, guarantee, alpha, free, d, radius, mu)


def _check_density(density: float) -> float:
    return check_real("density", density, low=0, high=1, low_open=True)


class Satisfiability(NamedTuple):
    """Whether a drawn sketch is K-satisfiable, with the norms and their bounds.

    Attributes
    ----------
    satisfied : bool
        Whether both norms are within their bounds.
    distortion, distortion_bound : float
        Norm of (S U1)^T S U1 - I, and its bound 1/2.
    leakage, leakage_bound : float
        Norm of S U2 D2^(1/2), and its bound, c times the critical radius.
    radius : float
        The critical radius.
    dimension : int
        Statistical dimension: number of columns of U1.
    """

    satisfied: bool
    distortion: float
    distortion_bound: float
    leakage: float
    leakage_bound: float
    radius: float
    dimension: int


def satisfiability_constant(density: float = 1.0) -> float:
    r"""Return the constant c of K-satisfiability for p-sparsified sketches.

    .. math:: c = \frac{2}{\sqrt p} \bigl(1 + \sqrt{\log 5}\bigr) + 1

    Parameters
    ----------
    density : float in (0, 1]
        Probability p of a nonzero; 1 for Gaussian and Rademacher sketches.

    Notes
    -----
    El Ahmad, Laforgue and d'Alche-Buc, TMLR 2023, section 3.

    Examples
    --------
    >>> from nbsketch.diagnostics import satisfiability_constant
    >>> round(satisfiability_constant(), 3)
    5.537
    """
    p = _check_density(density)
    return 2 / math.sqrt(p) * (1 + math.sqrt(math.log(5))) + 1


def is_k_satisfiable(
    sketch: Sketch, spectrum: Spectrum, *, density: float = 1.0, noise: float = 1.0
) -> Satisfiability:
    r"""Check whether a drawn sketch is K-satisfiable.

    With U1 the first d_n eigenvectors of K / n, U2 the remaining ones, and D2 the
    remaining eigenvalues:

    .. math:: \|(S U_1)^T S U_1 - I\|_{op} \le \tfrac12
        \quad\text{and}\quad \|S U_2 D_2^{1/2}\|_{op} \le c\, \delta_n .

    The error of the sketched estimator is then minimax optimal up to a constant.

    Parameters
    ----------
    sketch : Sketch
        A drawn (s, n) sketch.
    spectrum : Spectrum
        Exact spectrum of the n samples.
    density : float in (0, 1]
        Density p of a p-sparsified sketch, which determines the constant c (see
        `satisfiability_constant`). Use 1, the default, for other sketches.
    noise : float
        Standard deviation of the noise, as in `critical_radius`.

    Returns
    -------
    Satisfiability
        ``satisfied``, followed by the norms, their bounds, radius and dimension.

    Raises
    ------
    ValueError
        If the spectrum is not exact, or is of another number of samples.

    Notes
    -----
    Yang, Pilanci and Wainwright, Ann. Stat. 2017, definition 3; constant from El Ahmad,
    Laforgue and d'Alche-Buc, TMLR 2023.

    Examples
    --------
    >>> import numpy as np
    >>> from nbsketch import GaussianSketch
    >>> from nbsketch.diagnostics import is_k_satisfiable, spectrum
    >>> mu = spectrum(np.random.default_rng(0).uniform(size=(300, 1)), bandwidth=0.2)
    >>> [is_k_satisfiable(GaussianSketch(s).draw(300, 0), mu)[0] for s in (4, 150)]
    [False, True]
    """
    if spectrum.vectors is None:
        raise ValueError(
            "`spectrum` must be exact (with eigenvectors), got "
            f"{spectrum!r}; compute it with spectrum(X, kernel, size={spectrum.n})"
        )
    if sketch.shape[1] != spectrum.n:
        raise ValueError(
            f"`sketch` must have {spectrum.n} columns, the number of samples of the "
            f"spectrum, got shape {sketch.shape}"
        )
    radius = critical_radius(spectrum, noise=noise)
    d = statistical_dimension(spectrum, noise=noise)
    rotated = sketch @ spectrum.vectors
    leading = rotated[:, :d]
    others = rotated[:, d:] * np.sqrt(spectrum.values[d:])
    distortion = _norm(leading.T @ leading - np.eye(d))
    leakage = math.sqrt(_norm(others @ others.T))
    bound = satisfiability_constant(density) * radius
    satisfied = distortion <= DISTORTION_BOUND and leakage <= bound
    return Satisfiability(
        satisfied, distortion, DISTORTION_BOUND, leakage, bound, radius, d
    )


def _norm(matrix: NDArray) -> float:
    """Return the operator norm of a symmetric matrix."""
    return float(np.abs(eigenvalues(matrix)).max())


def plot_spectrum(
    spectrum: Spectrum, *, size: int | None = None, noise: float = 1.0, ax: Any = None
) -> Any:
    r"""Plot the eigenvalues of K / n, with critical radius, dimension and sketch size.

    Parameters
    ----------
    spectrum : Spectrum
        Result of `spectrum`.
    size : int, optional
        Sketch size s to mark. Default: none.
    noise : float, default=1.0
        Standard deviation of the noise, as in `critical_radius`.
    ax : matplotlib Axes, optional
        Axes to draw on. Default: the axes of a new figure.

    Returns
    -------
    matplotlib Axes
        The axes; ``ax.figure.savefig(path)`` writes a file.

    Raises
    ------
    ModuleNotFoundError
        If matplotlib is not installed.

    Examples
    --------
    >>> import matplotlib
    >>> matplotlib.use("agg")  # no window
    >>> import numpy as np
    >>> from nbsketch.diagnostics import plot_spectrum, spectrum
    >>> mu = spectrum(np.random.default_rng(0).normal(size=(200, 2)))
    >>> ax = plot_spectrum(mu, size=40)
    >>> ax.get_xscale(), ax.get_yscale()
    ('log', 'log')
    """
    if size is not None:
        size = check_integer("size", size)
    square = critical_radius(spectrum, noise=noise) ** 2
    d = statistical_dimension(spectrum, noise=noise)
    ax = axes_or_new(ax)
    values = spectrum.values[spectrum.values > _SMALLEST * spectrum.values[0]]
    ax.plot(
        np.arange(1, values.size + 1), values, "o-", markersize=3.5, color=BLUE,
        label=r"eigenvalues $\mu_j$",
    )  # fmt: skip
    dashed = {"linestyle": "--", "linewidth": 1.3}
    ax.axhline(square, color=ORANGE, label=r"critical $\delta_n^2$", **dashed)
    ax.axvline(d, color="#1b9e77", label=f"$d_n = {d}$", **dashed)
    if size is not None:
        ax.axvline(size, color="#555555", label=f"$s = {size}$", **dashed)
    ax.set(xscale="log", yscale="log", title=f"Spectrum of $K/n$, n = {spectrum.n}")
    return finish(ax, xlabel="$j$", ylabel=r"$\mu_j$")
