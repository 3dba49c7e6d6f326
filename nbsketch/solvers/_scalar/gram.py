"""The Gram matrix of a changing set of rows, and the Newton direction from it."""

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack, solve_triangular

from nbsketch.solvers._certified.gram import gram_of
from nbsketch.solvers._scalar.problem import ScalarProblem

# Rebuild once the changes are this much of what a rebuild would cost.
_REBUILD = 0.6
# Squared ratio of the diagonal of a triangular root: below it no digit is certain.
_SINGULAR = 1e-14
# Least weight of the rows that hold the intercept in place, over the mean weight.
_PIVOT = 1e-3
_CHUNK = 4096


class RowGram:
    """``X_B^T S X_B`` of the rows B in `inside`; X is Z, and a column of ones.

    From one Newton step to the next few rows enter or leave B, so only they are added
    or taken away.
    """

    def __init__(
        self,
        problem: ScalarProblem,
        matrix: NDArray | None = None,
        inside: NDArray | None = None,
    ) -> None:
        self.problem = problem
        size = problem.rank + problem.fit_intercept
        n = problem.design.shape[0]
        fits = matrix is not None and matrix.shape == (size, size)
        if matrix is None or inside is None or not fits or inside.shape != (n,):
            matrix, inside = np.zeros((size, size)), np.zeros(n, dtype=bool)
        self.matrix, self.inside = matrix.copy(), inside.copy()
        self.pivot = _PIVOT * float(problem.weights.mean())
        self.exact = False  # single precision is usually enough for a direction

    def restrict(self, rows: NDArray) -> None:
        """Take away the rows of B that are not among `rows`."""
        lost = self.inside.copy()
        lost[rows] = False
        count = np.count_nonzero(lost)
        if count == 0:
            return
        if count > _REBUILD * (np.count_nonzero(self.inside) - count):
            self.clear()
        else:
            rows = np.flatnonzero(lost)
            self.matrix -= gram_of(self.problem, rows, self.exact)
            self.inside[lost] = False

    def clear(self) -> None:
        """Set the matrix to zero, with no rows."""
        self.matrix[:] = 0.0
        self.inside[:] = False

    def sharpen(self) -> None:
        """Start again, summing float32 rows in double precision from now on."""
        self.exact = True
        self.clear()

    def move(self, part: ScalarProblem, rows: NDArray | None, inside: NDArray) -> None:
        """Make B the rows in `inside`, a mask over the rows of `part`."""
        before = self.inside if rows is None else self.inside[rows]
        changed = np.flatnonzero(before != inside)
        count = int(np.count_nonzero(inside))
        if not changes_pay(len(changed), count):
            every = count == len(inside)
            some = None if every else np.flatnonzero(inside)
            self.matrix = gram_of(part, some, self.exact)
        elif len(changed):
            entering = inside[changed]
            for sign, some in ((1, changed[entering]), (-1, changed[~entering])):
                if len(some):
                    self.matrix += sign * gram_of(part, some, self.exact)
        self.inside[slice(None) if rows is None else rows] = inside

    def direction(self, rho: NDArray, factor: float) -> NDArray:
        """Return minus the inverse of ``factor * matrix + penalty`` applied to `rho`.

        Raises `numpy.linalg.LinAlgError` if rounding may have spoiled that matrix.
        """
        shifted = factor * self.matrix
        shifted.flat[:: len(shifted) + 1] += self._penalty(factor, self.matrix[-1, -1])
        root, step, info = lapack.dposv(shifted, -rho, overwrite_a=1)
        if info != 0 or not np.isfinite(step).all():
            raise np.linalg.LinAlgError
        diagonal = np.diagonal(root)
        if diagonal.min() ** 2 < _SINGULAR * diagonal.max() ** 2:
            raise np.linalg.LinAlgError
        return step

    def clipped_direction(self, rho: NDArray, factor: float) -> NDArray:
        """Return the same with small eigenvalues raised to the smallest penalty."""
        matrix = factor * self.matrix
        matrix.flat[:: len(matrix) + 1] += self._penalty(factor, self.matrix[-1, -1])
        values, vectors = np.linalg.eigh(matrix)
        least = max(self.problem.alpha, _SINGULAR * float(values[-1]))
        return -vectors @ ((vectors.T @ rho) / np.maximum(values, least))

    def orthogonal_direction(
        self, part: ScalarProblem, rho: NDArray, factor: float
    ) -> NDArray:
        """Return the same by orthogonal factors of the rows, with twice the digits.

        `part` holds the rows B alone.
        """
        root = np.diag(np.sqrt(self._penalty(factor, part.weights.sum())))
        scale = np.sqrt(factor * part.weights)[:, None]
        for first in range(0, len(scale), _CHUNK):
            rows = np.arange(first, min(first + _CHUNK, len(scale)))
            block = part.design.gather(rows).collect() * scale[rows]
            if part.fit_intercept:
                block = np.hstack([block, scale[rows]])
            root = np.asarray(np.linalg.qr(np.vstack([block, root]), mode="r"))
        half = solve_triangular(root, -rho, trans="T", check_finite=False)
        return solve_triangular(root, half, check_finite=False)

    def _penalty(self, factor: float, held: float) -> NDArray:
        """Return the rest of the diagonal, the weight of B being `held`."""
        penalty = np.full(len(self.matrix), self.problem.alpha)
        if self.problem.fit_intercept:  # which has none: keep the pivot positive
            penalty[-1] = factor * max(0.0, self.pivot - held)
        return penalty


def changes_pay(changed: int, count: int) -> bool:
    """Return whether changed rows of a Gram matrix cost less than all its rows."""
    return changed <= _REBUILD * count
