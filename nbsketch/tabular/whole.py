r"""A member on all rows at once, by conjugate gradients, with left-out residuals.

With :math:`P` of all rows (`nbsketch.tabular.leaves`), the residual of row i without it
is :math:`a_i / P_{ii}`. The diagonal is known on leaves, where it is smaller: 1 / P_ii
is the variance of the target given those of the other rows, which falls with their
number. That of all rows is estimated by its largest value on leaves, times one factor,

.. math:: P_{ii} \approx c\, P_{ii}^{\mathrm{leaf}}, \qquad
          c = \frac{z^T P z}{\sum_i P_{ii}^{\mathrm{leaf}}} \geq 1

with random signs z: the trace as Hutchinson estimates it (Communications in Statistics
- Simulation and Computation 19, 1990).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nbsketch._memory import fits
from nbsketch.gram import SymmetricGram
from nbsketch.gram.symmetric import MEMORY
from nbsketch.solvers.conjugate import (
    NotConvergedError,
    build_preconditioner,
    solve_conjugate,
    values_dtype,
)
from nbsketch.tabular.members import Training, Tree, kernel_of
from nbsketch.tabular.partition import whole

# Relative gaps of the solution, and of the factor c; the most passes for each.
_TOL, _ROUGH_TOL, _PASSES = 1e-3, 2e-2, 130


def keeps_all_pairs(n: int, tau: float, *, double: bool = True) -> bool:
    """Return whether the kernel values of all pairs of n rows are kept in memory.

    `double`: also in double precision, if the penalty asks for it. It takes longer.
    """
    dtype = values_dtype(n, tau / n, _TOL)
    allowed = double or dtype == np.float32
    return allowed and fits(dtype.itemsize * n**2 / 2, unasked=MEMORY)


def fit_whole(
    family: str,
    inverse: NDArray,
    data: Training,
    tau: float,
    diagonal: NDArray,
    rng: np.random.Generator,
) -> tuple[Tree, NDArray] | None:
    """Fit a kernel with inverse length scales (p,) to all rows.

    Parameters
    ----------
    family, inverse : str, ndarray of shape (p,)
        Kernel, a key of `nbsketch.kernels.LEARNABLE`, and its inverse length scales.
    data : Training
        Rows, targets and weights; rows are left out one by one, whatever its blocks.
    tau : float
        Penalty.
    diagonal : ndarray of shape (n,)
        Diagonal of P on leaves; NaN where it is not known.
    rng : Generator
        Random state.

    Returns
    -------
    tree : Tree
        A single leaf.
    residual : ndarray of shape (n, d)
        Left-out residuals; NaN where the diagonal is not known. None instead of both if
        conjugate gradients do not converge.
    """
    n = len(data.Y)
    alpha = tau / n
    K = SymmetricGram(
        kernel_of(family, inverse), data.rows, dtype=values_dtype(n, alpha, _TOL)
    )
    known: dict[str, Any] = {
        "sample_weight": data.weights,
        "preconditioner": build_preconditioner(K, tau, rng, weights=data.weights),
        "max_passes": _PASSES,
    }
    signs = rng.choice([-1.0, 1.0], size=n)
    try:
        found = solve_conjugate(K, data.Y, alpha, tol=_TOL, **known)
        probe = solve_conjugate(K, signs, alpha, tol=_ROUGH_TOL, **known)
    except NotConvergedError:
        return None
    some = np.isfinite(diagonal)
    trace = signs[some] @ np.ravel(probe.coef)[some]
    factor = max(float(trace / diagonal[some].sum()), 1.0)
    residual = found.coef / (factor * diagonal[:, None])
    return Tree(whole(n), found.coef, found.intercept[None]), residual
