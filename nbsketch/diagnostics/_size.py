"""Recommended size of a p-sparsified sketch, by theory or by practice."""

from __future__ import annotations

import math
from typing import Any, Literal, NamedTuple

from nbsketch._validation import check_choice, check_positive, check_real
from nbsketch.diagnostics._spectrum import (
    Spectrum,
    critical_radius,
    effective_dimension,
    spectrum,
    statistical_dimension,
)

# Density of the nonzeros in theory, and nonzeros of each row in practice.
_THEORY_DENSITY, _PRACTICE_NONZEROS = 0.7, 20
# The theorem leaves its constant open. On d random directions the distortion is
# 2 sqrt(d/s) + d/s, which is 1/2 at s = 20 d: a little more than 9.8 times d / p^2 at
# p = 0.7.
_THEORY_FACTOR = 12.0
# Test errors of sketches with 20 nonzeros a row: within 2 % of that without a sketch at
# twice the effective dimension, on five sets with three kernels each.
_PRACTICE_FACTOR = 2.0


class SizeRecommendation(NamedTuple):
    """Recommended size of a p-sparsified sketch, with the quantities behind it.

    Attributes
    ----------
    size : int
        Recommended number of rows s, at most n.
    density : float
        Density p of the sketch.
    guarantee : {"practice", "theory"}
        Rule of the recommendation.
    alpha : float
        Penalty of the effective dimension.
    effective_dimension : float
        N(alpha), used in practice.
    statistical_dimension : int
        d_n, used in theory.
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
    guarantee: Literal["practice", "theory"] = "practice",
    noise: float = 1.0,
    random_state: Any = None,
) -> SizeRecommendation:
    r"""Recommend the size of a p-sparsified sketch.

    .. math:: s = 2 N(\alpha) \quad\text{(practice)}, \qquad
        s = \max(12\, d_n / p^2,\; \delta_n^2 n) \quad\text{(theory)},

    rounded up, and at most n.

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
        Density p of the sketch. By default 20/n for practice and 0.7 for theory.
    guarantee : {"practice", "theory"}
        "practice": empirically enough to match the error without a sketch; no
        guarantee. "theory": enough for most draws to be K-satisfiable, see
        `is_k_satisfiable`.
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
    Theory: El Ahmad, Laforgue and d'Alche-Buc, TMLR 2023, section 3, where the constant
    is left open; 12 suffices for random directions at p = 0.7. For small p the bound
    exceeds n, although sketches with p = 20/n distort no more than Gaussian ones, as
    the documentation shows. Practice: a sketch with fewer than N(alpha) rows cannot
    represent all directions that the penalty leaves.

    Examples
    --------
    >>> import numpy as np
    >>> from nbsketch import PSparsifiedSketch
    >>> from nbsketch.diagnostics import recommend_size, spectrum
    >>> mu = spectrum(np.random.default_rng(0).uniform(size=(400, 1)), bandwidth=0.2)
    >>> advice = recommend_size(mu, alpha=1e-4)
    >>> PSparsifiedSketch(advice.size, advice.density)
    PSparsifiedSketch(size=17, density=0.05, law='rademacher')
    >>> recommend_size(mu, guarantee="theory").size
    147
    """
    check_choice("guarantee", guarantee, ["practice", "theory"])
    if density is not None:
        density = check_real("density", density, low=0, high=1, low_open=True)
    if alpha is not None:
        alpha = check_positive("alpha", alpha)
    mu = _spectrum_of(X, kernel, random_state)
    radius = critical_radius(mu, noise=noise)
    alpha = radius**2 if alpha is None else alpha
    d, free = statistical_dimension(mu, noise=noise), effective_dimension(mu, alpha)
    if guarantee == "theory":
        p = _THEORY_DENSITY if density is None else density
        wanted = max(_THEORY_FACTOR * d / p**2, radius**2 * mu.n)
    else:
        p = min(1.0, _PRACTICE_NONZEROS / mu.n) if density is None else density
        wanted = _PRACTICE_FACTOR * free
    size = min(mu.n, max(1, math.ceil(wanted)))
    return SizeRecommendation(size, p, guarantee, alpha, free, d, radius, mu)


def _spectrum_of(X: Any, kernel: Any, random_state: Any) -> Spectrum:
    if not isinstance(X, Spectrum):
        given = "gaussian" if kernel is None else kernel
        return spectrum(X, given, random_state=random_state)
    if kernel is not None:
        raise ValueError(
            f"`kernel` must be None for a spectrum, which has its own, got {kernel!r}"
        )
    return X
