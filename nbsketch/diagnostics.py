"""Complexity of a kernel problem, sizes of sketches, and K-satisfiability.

All functions take the spectrum of the Gram matrix, see `spectrum`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nbsketch._machine.blas import eigh, threads_for
from nbsketch._report import validation
from nbsketch._sketch_map import SketchMap, draw, resolve, sketched_design
from nbsketch.kernels import Kernel
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
# Rows up to which the spectrum is exact unless a size is given.
EXACT_ROWS = 2000
LANDMARKS = 1000  # beyond these rows
# Share of the largest eigenvalue below which a negative one is rounding.
_ROUNDING = 1e-8
_THEORY_DENSITY = 0.7  # of the nonzeros
_PRACTICE_NONZEROS = 20  # of each row
# "theory": the constant in the proof of the theorem (Appendix A.4.1). "satisfiable": on
# d random directions the distortion is 2 sqrt(d/s) + d/s, which is 1/2 at s = 20 d, a
# little more than 9.8 times d / p^2 at p = 0.7.
_FACTORS = {"theory": 5120.0, "satisfiable": 12.0}
# Test errors of sketches with 20 nonzeros a row: within 2 % of that without a sketch at
# twice the effective dimension, on five sets with three kernels each.
_PRACTICE_FACTOR = 2.0
# Bound on the distortion of the leading eigenvectors.
DISTORTION_BOUND = 0.5
# Eigenvalues below this share of the largest are rounding, and not drawn.
_SMALLEST = 1e-12


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
    alpha = validation.check_positive("alpha", alpha)
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
    variance = validation.check_positive("noise", noise) ** 2
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
        """Return descending values and the multiplicity of each.

        `missing` is spread evenly over the eigenvalues that were not computed. This is
        the flattest compatible spectrum, so that the sum over it of a concave function,
        such as mu / (mu + alpha), is an upper bound.
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
    rows = validation.check_rows("X", X).astype(np.float64, copy=False)
    n = rows.shape[0]
    if size is None:
        size = n if n <= EXACT_ROWS else LANDMARKS
    size = validation.check_integer("size", size, high=n)
    recipe = IdentitySketch() if size == n else SubsamplingSketch(size)
    rngs = validation.random_generator(random_state).spawn(2)
    resolved = resolve(rows, kernel, bandwidth, rngs[0])
    sketch = draw(rows, resolved, recipe, None, rngs[1])
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
    """Raise an error if a kernel cannot be positive semi-definite, or is zero."""
    if largest <= 0 or least < -_ROUNDING * largest:
        raise ValueError(
            "`kernel` must be positive semi-definite and not zero on all rows, got K/n "
            f"with largest eigenvalue {largest:.3g} and smallest (or trace of the "
            f"remainder) {least:.3g}"
        )


def eigenvalues(matrix: NDArray) -> NDArray:
    """Return the descending eigenvalues of a symmetric matrix."""
    with threads_for(2.0 * len(matrix) ** 3):
        return np.linalg.eigvalsh(matrix)[::-1]


class SizeRecommendation(NamedTuple):
    """Recommended size of a p-sparsified sketch, with the quantities behind it.

    Attributes
    ----------
    size : int
        Recommended number of rows s, at most n.
    density : float
        Density p of the sketch.
    guarantee : {"practice", "satisfiable", "theory"}
        Rule of the recommendation.
    alpha : float
        Penalty of the effective dimension.
    effective_dimension : float
        N(alpha), used in practice.
    statistical_dimension : int
        d_n, used by the other rules.
    radius : float
        The critical radius.
    spectrum : Spectrum
        Spectrum of the rows.
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
        Rows, or their spectrum.
    kernel : str, Kernel or callable, optional
        Kernel of the rows, "gaussian" by default. Must be None for a spectrum, which
        has its own.
    alpha : float, optional
        Penalty of the model. By default the squared critical radius, the best penalty
        in theory.
    density : float in (0, 1], optional
        Density p of the sketch. By default 20/n for practice and 0.7 otherwise.
    guarantee : {"practice", "satisfiable", "theory"}
        "practice": empirically enough to match the error without a sketch.
        "satisfiable": empirically enough for most draws to be K-satisfiable, see
        `is_k_satisfiable`. "theory": enough by the proof, mostly more than n.
    noise : float
        Standard deviation of the noise, as in `critical_radius`.
    random_state : None, int or Generator
        As in `spectrum`.

    Returns
    -------
    SizeRecommendation
        ``size``, then the quantities behind it.

    Notes
    -----
    El Ahmad, Laforgue and d'Alche-Buc, TMLR 2023: section 3 leaves the constant open,
    its proof in Appendix A.4.1 has 5120; 12 suffices for random directions at p = 0.7.
    For small p both exceed n, although sketches with p = 20/n distort no more than
    Gaussian ones, as the documentation shows. Practice: a sketch with fewer than
    N(alpha) rows cannot represent all directions that the penalty leaves.

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
    validation.check_choice("guarantee", guarantee, ["practice", *_FACTORS])
    if density is not None:
        density = _check_density(density)
    if alpha is not None:
        alpha = validation.check_positive("alpha", alpha)
    mu = _spectrum_of(X, kernel, random_state)
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
    return validation.check_real("density", density, low=0, high=1, low_open=True)


def _spectrum_of(X: Any, kernel: Any, random_state: Any) -> Spectrum:
    if not isinstance(X, Spectrum):
        given = "gaussian" if kernel is None else kernel
        return spectrum(X, given, random_state=random_state)
    if kernel is not None:
        raise ValueError(
            f"`kernel` must be None for a spectrum, which has its own, got {kernel!r}"
        )
    return X


class Satisfiability(NamedTuple):
    """Whether a drawn sketch is K-satisfiable, with the norms and their bounds.

    Attributes
    ----------
    satisfied : bool
        Whether both norms are within their bounds.
    distortion, distortion_bound : float
        The norm of (S U1)^T S U1 - I, and 1/2.
    leakage, leakage_bound : float
        The norm of S U2 D2^(1/2), and c times the critical radius.
    radius : float
        The critical radius.
    dimension : int
        The statistical dimension: number of columns of U1.
    """

    satisfied: bool
    distortion: float
    distortion_bound: float
    leakage: float
    leakage_bound: float
    radius: float
    dimension: int


def satisfiability_constant(density: float = 1.0) -> float:
    r"""Return c of K-satisfiability for p-sparsified sketches.

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

    With U1 the first d_n eigenvectors of K / n, U2 the others, and D2 the eigenvalues
    of the others:

    .. math:: \|(S U_1)^T S U_1 - I\|_{op} \le \tfrac12
        \quad\text{and}\quad \|S U_2 D_2^{1/2}\|_{op} \le c\, \delta_n .

    Then the error of the sketched estimator is minimax optimal up to a constant.

    Parameters
    ----------
    sketch : Sketch
        A drawn (s, n) sketch.
    spectrum : Spectrum
        The exact spectrum of the n rows.
    density : float in (0, 1]
        Density p of a p-sparsified sketch, which determines the constant c, see
        `satisfiability_constant`; 1 (default) for other sketches.
    noise : float
        Standard deviation of the noise, as in `critical_radius`.

    Returns
    -------
    Satisfiability
        ``satisfied``, then the norms, their bounds, radius and dimension.

    Raises
    ------
    ValueError
        If the spectrum is not exact, or that of another number of rows.

    Notes
    -----
    Yang, Pilanci and Wainwright, Ann. Stat. 2017, definition 3; the constant is that of
    El Ahmad, Laforgue and d'Alche-Buc, TMLR 2023.

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
            f"`sketch` must have {spectrum.n} columns, the number of rows of the "
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
    r"""Plot the eigenvalues of K / n, with radius, dimension and a size marked.

    Parameters
    ----------
    spectrum : Spectrum
        Result of `spectrum`.
    size : int, optional
        Size s of a sketch to mark; none by default.
    noise : float, default=1.0
        Standard deviation of the noise, as in `critical_radius`.
    ax : matplotlib Axes, optional
        Axes to draw on; by default those of a new figure.

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
        size = validation.check_integer("size", size)
    square = critical_radius(spectrum, noise=noise) ** 2
    d = statistical_dimension(spectrum, noise=noise)
    ax = axes_or_new(ax)
    values = spectrum.values[spectrum.values > _SMALLEST * spectrum.values[0]]
    index = np.arange(1, values.size + 1)
    ax.plot(
        index, values, "o-", markersize=3.5, color=BLUE,
        label=r"eigenvalues $\mu_j$",
    )  # fmt: skip
    dashed: dict[str, Any] = {"linestyle": "--", "linewidth": 1.3}
    ax.axhline(square, color=ORANGE, label=r"critical $\delta_n^2$", **dashed)
    ax.axvline(d, color="#1b9e77", label=f"$d_n = {d}$", **dashed)
    if size is not None:
        ax.axvline(size, color="#555555", label=f"$s = {size}$", **dashed)
    ax.set(xscale="log", yscale="log", title=f"Spectrum of $K/n$, n = {spectrum.n}")
    return finish(ax, xlabel="$j$", ylabel=r"$\mu_j$")
