"""Effective dimension, critical radius and statistical dimension of a spectrum."""

from __future__ import annotations

import math

import numpy as np

from nbsketch._validation import check_positive
from nbsketch.diagnostics._spectrum import Spectrum


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
