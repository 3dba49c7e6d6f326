"""The Gram matrix of a changing set of rows, and the Newton step it steers."""

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack

from nbsketch.solvers.problem import Problem

# Rebuild once the changes are this much of what a rebuild would cost.
_REBUILD = 0.6


class RowGram:
    """``X_B^T S X_B`` of the rows B in `inside`; X is Z, and a column of ones.

    From one Newton step to the next few rows enter or leave B, so only they are added
    or taken away.
    """

    def __init__(
        self,
        problem: Problem,
        matrix: NDArray | None = None,
        inside: NDArray | None = None,
    ) -> None:
        self.problem = problem
        size = problem.rank + problem.fit_intercept
        n = problem.design.shape[0]
        if matrix is None or inside is None or matrix.shape != (size, size):
            matrix, inside = np.zeros((size, size)), np.zeros(n, dtype=bool)
        self.matrix, self.inside = matrix.copy(), inside.copy()
        self.exact = False  # single precision is enough to steer, as a rule

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
            self.matrix -= self._of(self.problem, np.flatnonzero(lost))
            self.inside[lost] = False

    def clear(self) -> None:
        """Forget everything."""
        self.matrix[:] = 0.0
        self.inside[:] = False

    def sharpen(self) -> None:
        """Forget everything, and from now on sum float32 rows in double precision."""
        self.exact = True
        self.clear()

    def move(self, part: Problem, rows: NDArray | None, inside: NDArray) -> None:
        """Make B the rows in `inside`, a mask over the rows of `part`."""
        before = self.inside if rows is None else self.inside[rows]
        changed = np.flatnonzero(before != inside)
        count = np.count_nonzero(inside)
        if len(changed) > _REBUILD * count:
            every = count == len(inside)
            self.matrix = self._of(part, None if every else np.flatnonzero(inside))
        elif len(changed):
            entering = inside[changed]
            for sign, some in ((1, changed[entering]), (-1, changed[~entering])):
                if len(some):
                    self.matrix += sign * self._of(part, some)
        self.inside[slice(None) if rows is None else rows] = inside

    def direction(self, rho: NDArray, factor: float) -> NDArray:
        """Return minus the inverse of ``factor * matrix + penalty`` applied to `rho`.

        Raises `numpy.linalg.LinAlgError` if rounding has made that matrix indefinite.
        """
        shifted = self._penalised(factor * self.matrix, factor)
        _, step, info = lapack.dposv(shifted, -rho, overwrite_a=1)
        if info != 0 or not np.isfinite(step).all():
            raise np.linalg.LinAlgError
        return step

    def safe_direction(self, rho: NDArray, factor: float) -> NDArray:
        """Return the same from an eigendecomposition, negative eigenvalues cut to 0."""
        values, vectors = np.linalg.eigh(self.matrix)
        values = np.maximum(values, 0.0) * factor + self.problem.alpha
        return -vectors @ ((vectors.T @ rho) / values)

    def _penalised(self, matrix: NDArray, factor: float) -> NDArray:
        rank = self.problem.rank
        matrix.flat[: rank * len(matrix) : len(matrix) + 1] += self.problem.alpha
        if self.problem.fit_intercept:  # which has no penalty: keep the pivot positive
            matrix[-1, -1] = max(matrix[-1, -1], 1e-3 * factor)
        return matrix

    def _of(self, part: Problem, rows: NDArray | None) -> NDArray:
        weights = part.weights if rows is None else part.weights[rows]
        scale = None if part.uniform else weights
        gram = part.design.gram(rows, scale, exact=self.exact)
        if not part.fit_intercept:
            return gram
        out = np.empty((len(gram) + 1,) * 2)
        out[:-1, :-1] = gram
        out[:-1, -1] = out[-1, :-1] = part.design.rmv(weights, rows)
        out[-1, -1] = weights.sum()
        return out
