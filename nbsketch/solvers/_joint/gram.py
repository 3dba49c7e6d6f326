"""The Newton matrix of several outputs, from one Gram matrix for each of them."""

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack

from nbsketch.solvers._certified.gram import gram_of
from nbsketch.solvers._joint.problem import JointProblem

# Rebuild a Gram matrix once the changes are this much of what a rebuild would cost.
_REBUILD = 0.6
# Least weight of the rows that determine an intercept, which has no penalty.
LEAST_PIVOT = 1e-3
_HELD = 65536  # rows copied at a time


class OutputGrams:
    """Gram matrices ``X_j^T S X_j``, X_j the rows strictly inside the box of output j.

    X holds the features and, with intercepts, a column of ones. From one Newton step to
    the next few rows enter or leave, so only they are added or taken away.
    """

    def __init__(
        self,
        problem: JointProblem,
        matrices: NDArray | None = None,
        inside: NDArray | None = None,
    ) -> None:
        self.problem = problem
        d, n = problem.mix.shape[1], len(problem.y)
        size = problem.rank + problem.fit_intercept
        fits = matrices is not None and matrices.shape == (d, size, size)
        if matrices is None or inside is None or not fits or inside.shape != (d, n):
            matrices, inside = np.zeros((d, size, size)), np.zeros((d, n), dtype=bool)
        self.matrices, self.inside = matrices.copy(), inside.copy()
        self._pairs = np.einsum("kj,lj->klj", problem.mixed_T, problem.mixed_T)

    def clear(self) -> None:
        """Set the matrices to zero, with no rows."""
        self.matrices[:] = 0.0
        self.inside[:] = False

    def restrict(self, rows: NDArray) -> None:
        """Take away all but `rows`."""
        kept = np.zeros_like(self.inside)
        kept[:, rows] = self.inside[:, rows]
        self.move(self.problem, None, kept)

    def move(self, part: JointProblem, rows: NDArray | None, inside: NDArray) -> None:
        """Make the rows those in `inside`, masks over the rows of `part`."""
        before = self.inside if rows is None else self.inside[:, rows]
        changed = before != inside
        limits = _REBUILD * np.count_nonzero(inside, axis=1)
        for j in np.flatnonzero(np.count_nonzero(changed, axis=1) > limits):
            every = inside[j].all()
            some = None if every else np.flatnonzero(inside[j])
            self.matrices[j] = gram_of(part, some, exact=False)
            changed[j] = False
        self._update(part, changed, inside)
        self.inside[:, slice(None) if rows is None else rows] = inside

    def _update(self, part: JointProblem, changed: NDArray, inside: NDArray) -> None:
        """Add the rows that changed, with a minus sign if they left."""
        touched = np.flatnonzero(changed.any(axis=0))
        for first in range(0, len(touched), _HELD):
            rows = touched[first : first + _HELD]
            X = np.ones((len(rows), len(self.matrices[0])))
            X[:, : part.rank] = part.design.gather(rows).collect()
            signs = np.where(inside[:, rows], 1.0, -1.0) * part.weights[rows]
            for j, some in enumerate(changed[:, rows]):
                some = np.flatnonzero(some)
                mine = X[some]
                self.matrices[j] += (mine * signs[j, some, None]).T @ mine

    def direction(self, rho: NDArray, factor: float) -> NDArray:
        """Return minus the inverse of the Newton matrix applied to `rho`.

        Both are flat: W column by column, then the intercepts. Raises
        `numpy.linalg.LinAlgError` if rounding has made the matrix indefinite.
        """
        matrix = self._newton_matrix(factor)
        main = self.problem.rank * len(self.problem.T)
        diagonal = np.einsum("ii->i", matrix)
        diagonal[:main] += self.problem.alpha
        least = LEAST_PIVOT * factor
        np.maximum(diagonal[main:], least, out=diagonal[main:])
        # LAPACK reads columns: the upper half is the lower one of the transpose
        _, step, info = lapack.dposv(matrix.T, -rho, lower=1, overwrite_a=1)
        if info != 0 or not np.isfinite(step).all():
            raise np.linalg.LinAlgError
        return step

    def safe_direction(self, rho: NDArray, factor: float) -> NDArray:
        """Return the same from an eigendecomposition, negative eigenvalues cut to 0."""
        values, vectors = np.linalg.eigh(self._newton_matrix(factor), UPLO="U")
        values = np.maximum(values, 0.0) + self.problem.alpha
        return -vectors @ ((vectors.T @ rho) / values)

    def _newton_matrix(self, factor: float) -> NDArray:
        """Return the upper half of ``factor sum_j (T_j T_j^T) kron (X_j^T S X_j)``."""
        p = self.problem
        size, d, r = len(p.T), len(p.levels), p.rank
        main = size * r
        out = np.zeros((main + d * p.fit_intercept,) * 2)
        grams = np.ascontiguousarray(self.matrices[:, :r, :r]).reshape(-1, r * r)
        for k in range(size):
            row = (factor * self._pairs[k, k:] @ grams).reshape(size - k, r, r)
            out[k * r : k * r + r, k * r : main] = row.transpose(1, 0, 2).reshape(r, -1)
        if p.fit_intercept:
            border = factor * p.mixed_T[:, None, :] * self.matrices[:, :r, r].T
            out[:main, main:] = border.reshape(main, -1) @ p.mix.T
            out[main:, main:] = factor * p.mix * self.matrices[:, r, r] @ p.mix.T
        return out
