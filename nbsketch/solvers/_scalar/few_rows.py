"""The Newton direction from a small matrix over the rows strictly between kinks.

With D the roots of the weights of these rows and X their features, the Newton matrix is
``alpha I + X^T D^2 X``, so that a direction w solves

    v = D (X w + b),   w = -(rho + X^T D v) / alpha,

a system of as many unknowns v as there are rows, and one for the intercept b.
"""

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack

from nbsketch.solvers._scalar.problem import ScalarProblem

# Fewer rows than this share of the features: their matrix is cheaper.
_FEW_ROWS = 0.5
# Largest residual of a direction, relative to the gradient: beyond it rounding rules.
_ACCURACY = 1e-4


def are_few(rows: NDArray, rank: int) -> bool:
    """Return whether a matrix over `rows` is cheaper than one over the features."""
    return 0 < len(rows) < _FEW_ROWS * rank


def direction_of_rows(
    part: ScalarProblem, rows: NDArray, rho: NDArray, factor: float, pivot: float
) -> NDArray:
    """Return minus the inverse of the Newton matrix of `rows` applied to `rho`.

    Parameters
    ----------
    part : ScalarProblem
        Contains the rows, and all others that are active.
    rows : ndarray of int
        Rows strictly between kinks.
    rho : ndarray
        Gradient, the intercept last.
    factor : float
        Curvature of the smoothed loss, over n.
    pivot : float
        Least weight of the rows that determine the intercept.

    Raises
    ------
    numpy.linalg.LinAlgError
        If rounding may have spoiled the direction.
    """
    alpha, main = part.alpha, rho[: part.rank]
    roots = np.sqrt(factor * part.weights[rows])
    X = part.design.gather(rows).collect().astype(float, copy=False) * roots[:, None]
    right = np.column_stack([-(X @ main) / alpha, roots])
    matrix = X @ X.T / alpha
    matrix.flat[:: len(rows) + 1] += 1.0
    _, found, info = lapack.dposv(matrix, right, overwrite_a=1)
    if info != 0:
        raise np.linalg.LinAlgError
    v, shift = found[:, 0], 0.0
    if part.fit_intercept:
        rest = factor * max(0.0, pivot - float(part.weights[rows].sum()))
        shift = -(rho[-1] + roots @ v) / (roots @ found[:, 1] + rest)
        v = v + shift * found[:, 1]
    step = -(main + X.T @ v) / alpha
    error = X.T @ (X @ step + shift * roots - v)
    if not np.linalg.norm(error) <= _ACCURACY * np.linalg.norm(rho):
        raise np.linalg.LinAlgError
    return np.append(step, shift) if part.fit_intercept else step
