r"""How much too small left-out errors are, because they have chosen the length scales.

Of n residuals whose mean square chooses k parameters, the root mean square is expected
to be smaller than that of new rows by the factor

.. math:: \sqrt{(n + k) / (n - k)},

the final prediction error of Akaike (Ann. Inst. Statist. Math. 22, 1970). Length scales
that hardly change the errors are hardly fitted to them: with J the derivatives of the
residuals with respect to the logarithms of length scales and penalty, the effective
number is

.. math:: k = \mathrm{tr}\, J^T J (J^T J + s^2 I)^{-1}

for the mean square s^2, that of a prior of unit variance for each logarithm. For J,
residuals are those of generalized cross-validation, :math:`n P y / \mathrm{tr} P` with
the P of `nbsketch.tabular.leaves`. Several outputs have as many more residuals, fewer
if these are correlated.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nbsketch._jit.tuning import FAMILIES
from nbsketch.tabular.leaves import solve_shifted
from nbsketch.tabular.scales import Scales
from nbsketch.tuning.distances import distance_of

# Rows that the effective number is computed from.
_ROWS = 700
# The largest effective number, as a share of the residuals.
_LARGEST = 0.5


def optimism(scales: Scales, rows: NDArray, Y: NDArray) -> float:
    """Return the factor from left-out errors to those expected on new rows.

    Parameters
    ----------
    scales : Scales
        Length scales of a kernel of Euclidean distances, and the penalty learned with
        them.
    rows : ndarray of shape (n, p)
        Preprocessed training rows.
    Y : ndarray of shape (n, d)
        Targets.
    """
    some = np.linspace(0, len(rows) - 1, min(len(rows), _ROWS)).astype(np.intp)
    k, outputs = effective_numbers(scales, rows[some], Y[some])
    n = len(rows) * outputs
    k = min(k, _LARGEST * n)
    return float(np.sqrt((n + k) / (n - k)))


def effective_numbers(scales: Scales, rows: NDArray, Y: NDArray) -> tuple[float, float]:
    """Return the effective number of length scales and penalty, and that of outputs.

    The latter is the participation ratio of the eigenvalues of their cross products.
    """
    U, tau = rows * scales.inverse, scales.tau
    K, slopes = np.empty((2, len(U), len(U)))
    distance_of(FAMILIES[scales.family]).fill(U, U, K, slopes)
    slopes *= 2  # from the squared distance to the logarithm of a scale
    P = _projected_inverse(K, tau)
    trace, by_trace = np.trace(P), _trace_slopes(P @ P, slopes, U, tau)
    A = P @ Y
    G = np.zeros((len(by_trace), len(by_trace)))
    for a in A.T:
        J = np.outer(a, by_trace) / trace - P @ _slopes_times(slopes, U, a, tau)
        G += J.T @ J
    total, squares = float(np.square(A).sum()), np.square(A.T @ A).sum()
    if not squares > 0:
        return 0.0, 1.0
    outputs = float(total**2 / squares)
    values = np.maximum(np.linalg.eigvalsh(G), 0)
    return float((values / (values + total / (len(A) * outputs))).sum()), outputs


def _projected_inverse(K: NDArray, tau: float) -> NDArray:
    """Return the matrix P of a leaf with kernel matrix K."""
    ones = np.ones((len(K), 1))
    solved = solve_shifted(K, np.hstack([np.eye(len(K)), ones]), tau)
    u = solved[:, -1]
    return solved[:, :-1] - np.outer(u, u) / u.sum()


def _slopes_times(slopes: NDArray, U: NDArray, a: NDArray, tau: float) -> NDArray:
    """Return dA a for each logarithm, of length scales and of tau, (n, p + 1).

    `slopes` times the squared differences in a column of U are the derivatives of K.
    """
    squares, a = np.square(U), a[:, None]
    ends = squares * (slopes @ a) + slopes @ (squares * a)
    return np.hstack([ends - 2 * U * (slopes @ (U * a)), tau * a])


def _trace_slopes(Q: NDArray, slopes: NDArray, U: NDArray, tau: float) -> NDArray:
    """Return tr(Q dA) for each logarithm, (p + 1,), with a symmetric Q."""
    C = Q * slopes
    found = np.square(U).T @ C.sum(axis=1) - np.einsum("ip,ip->p", U, C @ U)
    return np.append(2 * found, tau * np.trace(Q))
