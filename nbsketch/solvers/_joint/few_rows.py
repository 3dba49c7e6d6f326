"""The Newton direction from a matrix over the entries strictly between kinks.

An entry is a term of a row. With D the roots of their weights, X their features and t_e
the column of the factor T of their term, the Newton matrix of W is
``alpha I + sum_e D_e^2 (t_e t_e^T) kron (x_e x_e^T)``, so that a direction W solves

    v_e = D_e (x_e^T W t_e + b_e),   W = -(rho + sum_e D_e v_e x_e t_e^T) / alpha,

a system of as many unknowns v as there are entries, and one for each intercept.
"""

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack

from nbsketch.solvers._joint.problem import JointProblem

# Work of the matrix over the entries, relative to that over the coefficients.
_LESS_WORK = 0.7
# Largest residual of a direction, relative to the gradient: beyond it rounding rules.
_ACCURACY = 1e-4


def are_few(count: int, problem: JointProblem) -> bool:
    """Return whether a matrix over so many entries is cheaper than one over W."""
    rank, unknowns = problem.rank, problem.rank * len(problem.T)
    work = count**2 * (rank + count / 3)
    return 0 < work < _LESS_WORK * unknowns**3 / 3


def direction_of_entries(
    part: JointProblem, inside: NDArray, rho: NDArray, factor: float, pivot: float
) -> NDArray:
    """Return minus the inverse of the Newton matrix applied to `rho`.

    Parameters
    ----------
    part : JointProblem
        Contains the rows, and all others that are active.
    inside : ndarray of bool, shape (m, rows)
        Entries strictly between kinks.
    rho : ndarray
        Gradient: W column by column, then the intercepts.
    factor : float
        Curvature of the smoothed loss, over n.
    pivot : float
        Least weight of the rows that determine an intercept.

    Raises
    ------
    numpy.linalg.LinAlgError
        If rounding may have spoiled the direction.
    """
    T, alpha, size = part.mixed_T, part.alpha, part.rank * len(part.T)
    terms, rows = np.nonzero(inside)
    distinct, place = np.unique(rows, return_inverse=True)
    Z = part.design.gather(distinct).collect().astype(float, copy=False)
    roots = np.sqrt(factor * part.weights[rows])
    X = Z[place] * roots[:, None]
    main = rho[:size].reshape(len(T), part.rank).T
    shares = part.mix[:, terms].T * roots[:, None]  # of the intercepts in an entry

    def at_entries(W: NDArray) -> NDArray:
        return np.einsum("er,re->e", X, W @ T[:, terms])

    matrix = _matrix(X, terms, T.T @ T / alpha)
    right = np.column_stack([-at_entries(main) / alpha, shares])
    _, found, info = lapack.dposv(matrix.T, right, lower=1, overwrite_a=1)
    if info != 0:
        raise np.linalg.LinAlgError
    v, shift = found[:, 0], np.zeros(len(part.mix))
    if part.fit_intercept:
        inner = shares.T @ found[:, 1:]
        held = np.square(part.mix) @ (inside @ part.weights)
        inner[np.diag_indices_from(inner)] += factor * np.maximum(pivot - held, 0.0)
        shift = -np.linalg.solve(inner, rho[size:] + shares.T @ v)
        v = v + found[:, 1:] @ shift
    push = X.T @ _scattered(v, terms, len(part.mix.T)) @ T.T
    W = -(main + push) / alpha
    rest = at_entries(W) + shares @ shift - v
    error = X.T @ _scattered(rest, terms, len(part.mix.T)) @ T.T
    if not np.linalg.norm(error) <= _ACCURACY * np.linalg.norm(rho):
        raise np.linalg.LinAlgError
    step = W.T.ravel()
    return np.append(step, shift) if part.fit_intercept else step


def _matrix(X: NDArray, terms: NDArray, M: NDArray) -> NDArray:
    """Return ``I + M_(terms) * (X X^T)``, the products by entry."""
    out = X @ X.T
    blocks = [slice(*pair) for pair in _bounds(terms, len(M))]
    for j, rows in enumerate(blocks):
        for k, columns in enumerate(blocks):
            out[rows, columns] *= M[j, k]
    out.flat[:: len(out) + 1] += 1.0
    return out


def _bounds(terms: NDArray, count: int) -> NDArray:
    """Return first and last position of each of the ascending terms, (count, 2)."""
    edges = np.searchsorted(terms, np.arange(count + 1))
    return np.column_stack([edges[:-1], edges[1:]])


def _scattered(v: NDArray, terms: NDArray, count: int) -> NDArray:
    """Return (entries, count) with each value in the column of its term."""
    out = np.zeros((len(v), count))
    out[np.arange(len(v)), terms] = v
    return out
