"""Numbers that say how hard a kernel problem is, read off a spectrum."""

from __future__ import annotations

import math

import numpy as np

from nbsketch._validation import check_positive
from nbsketch.diagnostics._spectrum import Spectrum


def effective_dimension(spectrum: Spectrum, alpha: float) -> float:
    r"""Return how many directions a penalty leaves free.

    .. math:: N(\alpha) = \operatorname{Tr} K (K + n \alpha I)^{-1}
        = \sum_j \frac{\mu_j}{\mu_j + \alpha}

    Parameters
    ----------
    spectrum : Spectrum
        As `spectrum` returns it.
    alpha : float
        Positive penalty, as in the estimators.

    Returns
    -------
    float
        Between 0 and n. For a spectrum by landmarks an upper bound, near to the truth
        as long as the missing eigenvalues are small beside `alpha`.

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
    r"""Return the error that no method can beat by more than a constant.

    The smallest :math:`\delta_n` with

    .. math:: \sqrt{\frac{1}{n} \sum_{j=1}^n \min(\delta_n^2, \mu_j)}
        \le \frac{\delta_n^2}{\sigma},

    for a regression function of norm at most 1: :math:`\delta_n^2` is the order of the
    least mean squared error, and of the best penalty.

    Parameters
    ----------
    spectrum : Spectrum
        As `spectrum` returns it.
    noise : float
        Standard deviation sigma of the noise, in units in which the norm of the
        regression function is 1.

    Returns
    -------
    float
        The radius itself, not its square. For a spectrum by landmarks an upper bound.

    Notes
    -----
    Yang, Pilanci and Wainwright, Ann. Stat. 2017, section 2.1. Found in closed form:
    the sum is the least, over k, of what it would be if exactly the k largest
    eigenvalues were cut to delta^2, and each of these conditions is quadratic.

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
    r"""Return how many directions rise above the critical radius.

    .. math:: d_n = \min\{j : \mu_j \le \delta_n^2\}, \quad
        \text{and } n \text{ if there is none.}

    Parameters
    ----------
    spectrum : Spectrum
        As `spectrum` returns it.
    noise : float
        As in `critical_radius`.

    Notes
    -----
    Yang, Pilanci and Wainwright, Ann. Stat. 2017, section 2.1: a sketch needs at least
    a size of this order.

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
