"""K-satisfiability of a drawn sketch."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nbsketch._validation import check_real
from nbsketch.diagnostics._spectrum import (
    Spectrum,
    critical_radius,
    eigenvalues,
    statistical_dimension,
)
from nbsketch.sketches import Sketch

# Bound on the distortion of the leading eigenvectors.
DISTORTION_BOUND = 0.5


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
    p = check_real("density", density, low=0, high=1, low_open=True)
    return 2 / math.sqrt(p) * (1 + math.sqrt(math.log(5))) + 1


def is_k_satisfiable(
    sketch: Sketch,
    spectrum: Spectrum,
    *,
    density: float = 1.0,
    noise: float = 1.0,
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
    leading, others = rotated[:, :d], rotated[:, d:] * np.sqrt(spectrum.values[d:])
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
