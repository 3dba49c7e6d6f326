"""The Newton matrix of a changing set of rows, and directions from it.

Also the Newton direction from a matrix over the entries strictly between kinks.

An entry is a term of a row. With D the roots of their weights, X their features and t_e
the column of the factor T of their term, the Newton matrix of W is ``alpha I + sum_e
D_e^2 (t_e t_e^T) kron (x_e x_e^T)``, so that a direction W solves

    v_e = D_e (x_e^T W t_e + b_e),   W = -(rho + sum_e D_e v_e x_e t_e^T) / alpha,

a system with one unknown v per entry, and one per intercept.
"""

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack, solve_triangular

from nbsketch.solvers._newton.problem import NewtonProblem, gram_of

# Recompute a Gram matrix if the changes cost this share of recomputing it.
_REBUILD = 0.6
# Squared ratio of the diagonal of a triangular root below which no digit is reliable.
_SINGULAR = 1e-14
# Minimum weight of the rows that determine an intercept, relative to the mean weight.
_PIVOT = 1e-3
_CHUNK = 4096
# Work of the matrix over the entries, relative to that over the coefficients.
_LESS_WORK = 0.7
# Maximum residual of a direction relative to the gradient; above, rounding dominates.
_ACCURACY = 1e-4


class TermGrams:
    """``X_j^T S X_j``, with X_j the rows of term j in `inside`; X is Z and ones.

    `matrices` has the shape (m, size, size) and `inside` (m, n). Between Newton steps
    only few rows enter or leave, so only these are added or subtracted.
    """

    def __init__(
        self,
        problem: NewtonProblem,
        matrices: NDArray | None = None,
        inside: NDArray | None = None,
    ) -> None:
        self.problem = problem
        m = problem.mix.shape[1]
        n = len(problem.weights)
        size = problem.rank + problem.fit_intercept
        self.matrices = np.array(matrices)
        self.inside = np.array(inside)
        shapes = self.matrices.shape, self.inside.shape
        if shapes != ((m, size, size), (m, n)):
            self.matrices = np.zeros((m, size, size))
            self.inside = np.zeros((m, n), dtype=bool)
        self.pivot = _PIVOT * float(problem.weights.mean())
        self.exact = False  # single precision is usually enough for a direction
        self._pairs = np.einsum("kj,lj->klj", problem.mixed_T, problem.mixed_T)

    def restrict(self, rows: NDArray) -> None:
        """Subtract all rows except `rows`."""
        for matrix, inside in zip(self.matrices, self.inside, strict=True):
            lost = inside.copy()
            lost[rows] = False
            count = int(np.count_nonzero(lost))
            if not changes_pay(count, int(np.count_nonzero(inside)) - count):
                matrix[:] = 0.0
                inside[:] = False
            elif count:
                matrix -= gram_of(self.problem, np.flatnonzero(lost), self.exact)
                inside[lost] = False

    def sharpen(self) -> None:
        """Restart, summing float32 rows in double precision from now on."""
        self.exact = True
        self.matrices[:] = 0.0
        self.inside[:] = False

    def move(self, part: NewtonProblem, rows: NDArray | None, inside: NDArray) -> None:
        """Set the rows to those in `inside`, masks (m, rows) of the rows of `part`."""
        index = slice(None) if rows is None else rows
        for j, before in enumerate(self.inside[:, index]):
            self._move_term(j, part, before, inside[j])
        self.inside[:, index] = inside

    def _move_term(
        self, j: int, part: NewtonProblem, before: NDArray, inside: NDArray
    ) -> None:
        changed = np.flatnonzero(before != inside)
        count = int(np.count_nonzero(inside))
        if not changes_pay(len(changed), count):
            rows = None if count == len(inside) else np.flatnonzero(inside)
            self.matrices[j] = gram_of(part, rows, self.exact)
            return
        entering = inside[changed]
        for sign, rows in ((1, changed[entering]), (-1, changed[~entering])):
            if len(rows):
                self.matrices[j] += sign * gram_of(part, rows, self.exact)

    def direction(self, rho: NDArray, factor: float) -> NDArray:
        """Return the negative inverse of the Newton matrix applied to `rho`.

        Both are flat: W column by column, then the intercepts. Raises
        `numpy.linalg.LinAlgError` if the matrix may be inaccurate by rounding.
        """
        # LAPACK reads columns: the upper half is the lower one of the transpose
        matrix = self._penalized(factor).T
        sizes = matrix.diagonal().copy()
        root, step, info = lapack.dposv(matrix, -rho, lower=1, overwrite_a=1)
        if info != 0 or not np.isfinite(step).all():
            raise np.linalg.LinAlgError
        pivots = np.square(root.diagonal())
        # Scaled, because columns in their own units must not affect each other.
        largest = sizes if self.problem.design.is_graded else pivots.max()
        if (pivots < _SINGULAR * largest).any():
            raise np.linalg.LinAlgError
        return step

    def clipped_direction(self, rho: NDArray, factor: float) -> NDArray:
        """Return the direction with small eigenvalues raised to the least penalty."""
        values, vectors = np.linalg.eigh(self._penalized(factor), UPLO="U")
        least = max(self.problem.alpha, _SINGULAR * float(values[-1]))
        return -vectors @ ((vectors.T @ rho) / np.maximum(values, least))

    def orthogonal_direction(
        self, part: NewtonProblem, rho: NDArray, factor: float
    ) -> NDArray:
        """Return the direction by orthogonal factors of the rows, at twice the digits.

        `part` is a problem with a single term that contains only the rows in `inside`.
        """
        penalty = np.full(len(rho), part.alpha)
        if part.fit_intercept:
            penalty[-1] = factor * max(0.0, self.pivot - float(part.weights.sum()))
        root = np.diag(np.sqrt(penalty))
        scale = np.sqrt(factor * part.weights)[:, None]
        for first in range(0, len(scale), _CHUNK):
            rows = np.arange(first, min(first + _CHUNK, len(scale)))
            block = part.design.gather(rows).collect() * scale[rows]
            if part.fit_intercept:
                block = np.hstack([block, scale[rows]])
            root = np.asarray(np.linalg.qr(np.vstack([block, root]), mode="r"))
        half = solve_triangular(root, -rho, trans="T", check_finite=False)
        return solve_triangular(root, half, check_finite=False)

    def _penalized(self, factor: float) -> NDArray:
        """Return the upper half of the Newton matrix.

        An intercept has no penalty: `pivot` keeps its diagonal entry positive.
        """
        matrix = self._newton_matrix(factor)
        main = self.problem.rank * len(self.problem.T)
        diagonal = np.einsum("ii->i", matrix)
        diagonal[:main] += self.problem.alpha
        np.maximum(diagonal[main:], factor * self.pivot, out=diagonal[main:])
        return matrix

    def _newton_matrix(self, factor: float) -> NDArray:
        """Return the upper half of ``factor sum_j (T_j T_j^T) kron (X_j^T S X_j)``."""
        p = self.problem
        if p.is_single:
            return factor * self.matrices[0]
        size = len(p.T)
        d = len(p.mix)
        r = p.rank
        main = size * r
        out = np.zeros((main + d * p.fit_intercept,) * 2)
        grams = np.ascontiguousarray(self.matrices[:, :r, :r])
        grams = grams.reshape(len(grams), r * r)
        for k in range(size):
            row = (factor * self._pairs[k, k:] @ grams).reshape(size - k, r, r)
            out[k * r : k * r + r, k * r : main] = row.transpose(1, 0, 2).reshape(
                r, main - k * r
            )
        if p.fit_intercept:
            border = factor * p.mixed_T[:, None, :] * self.matrices[:, :r, r].T
            out[:main, main:] = border.reshape(main, border.shape[-1]) @ p.mix.T
            out[main:, main:] = factor * p.mix * self.matrices[:, r, r] @ p.mix.T
        return out


def changes_pay(changed: int, count: int) -> bool:
    """Return whether updating a Gram matrix is cheaper than recomputing it."""
    return changed <= _REBUILD * count


def are_few(count: int, problem: NewtonProblem) -> bool:
    """Return whether a matrix over the entries is cheaper than one over W."""
    rank = problem.rank
    unknowns = rank * len(problem.T)
    work = count**2 * (rank + count / 3)
    return 0 < work < _LESS_WORK * unknowns**3 / 3


def direction_of_entries(
    part: NewtonProblem, inside: NDArray, rho: NDArray, factor: float, pivot: float
) -> NDArray:
    """Return the negative inverse of the Newton matrix applied to `rho`.

    Parameters
    ----------
    part : NewtonProblem
        Contains the rows, and all other active rows.
    inside : ndarray of bool, shape (m, rows)
        Entries strictly between kinks.
    rho : ndarray
        Gradient: W column by column, then the intercepts.
    factor : float
        Curvature of the smoothed loss, over n.
    pivot : float
        Minimum weight of the rows that determine an intercept.

    Raises
    ------
    numpy.linalg.LinAlgError
        If the direction may be inaccurate by rounding.
    """
    T = part.mixed_T
    alpha = part.alpha
    mix = part.mix
    terms, rows = np.nonzero(inside)
    roots = np.sqrt(factor * part.weights[rows])
    distinct, place = np.unique(rows, return_inverse=True)
    features = part.design.gather(distinct).collect()[place]
    X = features.astype(float, copy=False) * roots[:, None]
    shares = mix[:, terms].T * roots[:, None]  # of the intercepts in an entry
    entries = np.arange(len(terms)), terms

    def at_entries(W: NDArray) -> NDArray:
        return (X @ (W @ T))[entries]

    def transposed(v: NDArray) -> NDArray:
        by_term = np.zeros((len(v), len(T.T)))
        by_term[entries] = v
        return X.T @ by_term @ T.T

    main, rho_b = part.split(rho)
    matrix = X @ X.T * (T.T @ T / alpha)[terms][:, terms]
    matrix.flat[:: len(matrix) + 1] += 1.0
    right = np.column_stack([-at_entries(main) / alpha, shares])
    _, solved, info = lapack.dposv(matrix.T, right, lower=1, overwrite_a=1)
    if info != 0:
        raise np.linalg.LinAlgError
    v = solved[:, 0]
    shift = np.zeros(len(mix))
    if part.fit_intercept:
        inner = shares.T @ solved[:, 1:]
        lacking = np.maximum(pivot - part.mass(inside), 0.0)
        inner[np.diag_indices_from(inner)] += factor * lacking
        shift = -np.linalg.solve(inner, rho_b + shares.T @ v)
        v = v + solved[:, 1:] @ shift
    W = -(main + transposed(v)) / alpha
    error = transposed(at_entries(W) + shares @ shift - v)
    if not np.linalg.norm(error) <= _ACCURACY * np.linalg.norm(rho):
        raise np.linalg.LinAlgError
    return part.flat(W, shift)
