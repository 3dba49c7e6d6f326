"""The Newton direction from a matrix over the entries strictly between kinks.

An entry is a term of a row. With D the roots of their weights, X their features and t_e
the column of the factor T of their term, the Newton matrix of W is
``alpha I + sum_e D_e^2 (t_e t_e^T) kron (x_e x_e^T)``, so that a direction W solves

    v_e = D_e (x_e^T W t_e + b_e),   W = -(rho + sum_e D_e v_e x_e t_e^T) / alpha,

a system of as many unknowns v as there are entries, and one for each intercept.
"""

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack

from nbsketch.solvers._newton.problem import NewtonProblem

# Work of the matrix over the entries, relative to that over the coefficients.
_LESS_WORK = 0.7
# Largest residual of a direction, relative to the gradient: beyond it rounding rules.
_ACCURACY = 1e-4


def are_few(count: int, problem: NewtonProblem) -> bool:
    """Return whether a matrix over so many entries is cheaper than one over W."""
    rank, unknowns = problem.rank, problem.rank * len(problem.T)
    work = count**2 * (rank + count / 3)
    return 0 < work < _LESS_WORK * unknowns**3 / 3


def direction_of_entries(
    part: NewtonProblem, inside: NDArray, rho: NDArray, factor: float, pivot: float
) -> NDArray:
    """Return minus the inverse of the Newton matrix applied to `rho`.

    Parameters
    ----------
    part : NewtonProblem
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
    T, alpha, mix = part.mixed_T, part.alpha, part.mix
    terms, rows = np.nonzero(inside)
    roots = np.sqrt(factor * part.weights[rows])
    X = _features(part, rows, len(T.T)) * roots[:, None]
    shares = mix[:, terms].T * roots[:, None]  # of the intercepts in an entry
    entries = np.arange(len(terms)), terms

    def at_entries(W: NDArray) -> NDArray:
        return (X @ (W @ T))[entries]

    def transposed(v: NDArray) -> NDArray:
        by_term = np.zeros((len(v), len(T.T)))
        by_term[entries] = v
        return X.T @ by_term @ T.T

    main, rho_b = part.split(rho)
    matrix = _matrix(X, terms, T.T @ T / alpha)
    right = np.column_stack([-at_entries(main) / alpha, shares])
    _, solved, info = lapack.dposv(matrix.T, right, lower=1, overwrite_a=1)
    if info != 0:
        raise np.linalg.LinAlgError
    v, shift = solved[:, 0], np.zeros(len(mix))
    if part.fit_intercept:
        inner = shares.T @ solved[:, 1:]
        mass = np.square(mix) @ (inside @ part.weights)
        inner[np.diag_indices_from(inner)] += factor * np.maximum(pivot - mass, 0.0)
        shift = -np.linalg.solve(inner, rho_b + shares.T @ v)
        v = v + solved[:, 1:] @ shift
    W = -(main + transposed(v)) / alpha
    error = transposed(at_entries(W) + shares @ shift - v)
    if not np.linalg.norm(error) <= _ACCURACY * np.linalg.norm(rho):
        raise np.linalg.LinAlgError
    return part.flat(W, shift)


def _features(part: NewtonProblem, rows: NDArray, m: int) -> NDArray:
    """Return the features of the rows of entries, which ascend for each of m terms."""
    if m == 1:
        return part.design.gather(rows).collect().astype(float, copy=False)
    distinct, place = np.unique(rows, return_inverse=True)
    return part.design.gather(distinct).collect().astype(float, copy=False)[place]


def _matrix(X: NDArray, terms: NDArray, M: NDArray) -> NDArray:
    """Return ``I + M_(terms) * (X X^T)``, the products by entry."""
    out = X @ X.T
    edges = np.searchsorted(terms, np.arange(len(M) + 1))
    blocks = [slice(*pair) for pair in pairwise(edges)]
    for j, rows in enumerate(blocks):
        for k, columns in enumerate(blocks):
            out[rows, columns] *= M[j, k]
    out.flat[:: len(out) + 1] += 1.0
    return out
