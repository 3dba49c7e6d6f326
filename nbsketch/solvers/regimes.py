"""Step, batch size and number of steps from the theory of stochastic gradients."""

from __future__ import annotations

from math import ceil, log, sqrt
from typing import NamedTuple

from nbsketch._validation import check_choice, check_integer, check_positive, check_real

REGIMES = ("I", "II", "III", "IV")


class Regime(NamedTuple):
    """Settings of `solve_sgm`.

    Attributes
    ----------
    step : float
        Relative to 1 / kappa^2, at most 1.
    batch_size : int
        Rows per step.
    n_steps : int
        Number of steps.
    """

    step: float
    batch_size: int
    n_steps: int


def sgm_regime(
    name: str, n: int, *, source: float = 0.5, capacity: float = 1.0
) -> Regime:
    r"""Return one of the four regimes in which few passes reach the optimal rate.

    With :math:`\lambda_* = n^{-1 / \max(2 \zeta + \gamma, 1)}` each has
    :math:`\eta T \approx 1 / \lambda_*`, and all constants are one:

    ====  =================  ======================  =============================
    name  step               batch                   steps
    ====  =================  ======================  =============================
    I     :math:`\lambda_*`  1                       :math:`\lambda_*^{-2}`
    II    1 / log n          :math:`\lambda_*^{-1}`  :math:`\lambda_*^{-1} \log n`
    III   1 / n              1                       :math:`\lambda_*^{-1} n`
    IV    :math:`n^{-1/2}`   :math:`n^{1/2}`         :math:`\lambda_*^{-1} n^{1/2}`
    ====  =================  ======================  =============================

    Parameters
    ----------
    name : {"I", "II", "III", "IV"}
        Regime. I visits the fewest rows, II takes the fewest steps.
    n : int
        Number of rows.
    source : float, default=0.5
        Exponent zeta > 0 of the source condition: smoothness of the target. 1/2 assumes
        that it lies in the space of the kernel, and no more.
    capacity : float, default=1.0
        Exponent gamma in [0, 1] of the effective dimension; 1 assumes nothing.

    Returns
    -------
    Regime
        Batches have at least one row and at most n; numbers of steps are rounded up.

    References
    ----------
    J. Lin and V. Cevher, "Convergences of Regularized Algorithms and Stochastic
    Gradient Methods with Random Projections", JMLR 2020.

    Examples
    --------
    >>> sgm_regime("I", 10_000)
    Regime(step=0.01, batch_size=1, n_steps=10000)
    >>> sgm_regime("IV", 10_000)
    Regime(step=0.01, batch_size=100, n_steps=10000)
    """
    check_choice("regime", name, REGIMES)
    n = check_integer("n", n)
    zeta = check_positive("source", source)
    gamma = check_real("capacity", capacity, low=0, high=1)
    inverse = n ** (1.0 / max(2 * zeta + gamma, 1.0))  # of lambda*
    step, batch = {
        "I": (1 / inverse, 1.0),
        "II": (1 / max(log(n), 1.0), inverse),
        "III": (1 / n, 1.0),
        "IV": (1 / sqrt(n), sqrt(n)),
    }[name]
    # Do not let rounding push a whole number up to the next one.
    n_steps = ceil(inverse / step * (1 - 1e-12))
    return Regime(step, min(n, max(1, round(batch))), n_steps)
