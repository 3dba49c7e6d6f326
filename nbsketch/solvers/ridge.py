r"""Ridge regression in closed form: one eigendecomposition for every alpha.

.. math:: \min_{B, b} \frac{1}{2n} \sum_i w_i \|y_i - B^T z_i - b\|^2
          + \frac{\alpha}{2} \|W\|_F^2, \qquad B = W M^{1/2},

with weights w of mean one and an output matrix M: the spectral filter
:math:`1 / (u + \alpha)`.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from nbsketch.solvers.design import Design
from nbsketch.solvers.filters import PATH_LENGTH, RidgeFilter
from nbsketch.solvers.left_out import Fold, fold_errors, leave_blocks_out
from nbsketch.solvers.spectrum import CovarianceSpectrum, decompose, row_weights

_FILTER = RidgeFilter()
# Share of the mean square of the targets, and relative gap, above which the normal
# equations are accurate.
_LEAST_OBJECTIVE = 1e-9
_LEAST_GAP = 1e-9
# Rounding of an eigenvalue, relative to the largest.
_ROUNDING = 1e-14
# Work of an eigendecomposition of order r, in multiples of r^3.
_EIGH = 9


class RidgePath(CovarianceSpectrum):
    """The solutions for all alphas: see `ridge_path`."""

    def solve(self, alpha: float) -> tuple[NDArray, NDArray]:
        """Return B of shape (r, d) and b of shape (d,) for one alpha."""
        return self.coefficients(_FILTER, alpha)

    def objective(self, alpha: float) -> float:
        """Return the value of the objective at the solution."""
        shrunk = self.shrunk(_FILTER, alpha)[:, 0]
        # By the normal equations, the residual and the penalty add up to this.
        return max(0.0, 0.5 * float(self.y_square.sum() - (shrunk * self.cross).sum()))

    def certificate(
        self, design: Design, Y: NDArray, weights: NDArray | None, alpha: float
    ) -> tuple[float, float]:
        """Return the objective and the gap of the solution.

        If the normal equations lose digits, they are computed from residuals, in two
        passes over the features.
        """
        objective = self.objective(alpha)
        gap = self.gap(alpha)
        is_sharp = objective > _LEAST_OBJECTIVE * self.y_square.sum()
        if is_sharp and gap <= _LEAST_GAP * objective:
            return objective, gap
        B, b = self.solve(alpha)
        w = row_weights(weights, Y)
        errors = (Y - design.mv(B) - b) @ self.rotation
        slopes = design.rmv(w[:, None] * errors) / len(Y)
        slopes -= np.outer(self.z_mean, w @ errors / len(Y))
        return self._from_residuals(B, alpha, w @ np.square(errors) / len(Y), slopes)

    def _from_residuals(
        self, B: NDArray, alpha: float, squares: NDArray, slopes: NDArray
    ) -> tuple[float, float]:
        """Return objective and gap, given mean squares of residuals and Z^T W r / n."""
        used = self.outputs > 0
        penalty = alpha / self.outputs[used]
        shrunk = (B @ self.rotation)[:, used]
        objective = (squares.sum() + (penalty * np.square(shrunk)).sum()) / 2
        gradient = self.vectors.T @ (slopes[:, used] - penalty * shrunk)
        lost = 0.0 if self.least < 1 else _ROUNDING * self.values.max(initial=0.0)
        curvature = np.maximum(self.values - lost, 0.0)[:, None] + penalty
        return float(objective), float((np.square(gradient) / curvature).sum() / 2)

    def gap(self, alpha: float) -> float:
        """Return a bound on the suboptimality, from the normal equations."""
        B, _ = self.solve(alpha)
        shrunk = self.vectors.T @ B @ self.rotation
        used = self.outputs > 0
        penalty = alpha / self.outputs[used]
        residual = self.cross[:, used] - self.values[:, None] * shrunk[:, used]
        residual -= penalty * shrunk[:, used]
        return float((np.square(residual) / penalty).sum() / 2)

    def default_alphas(self, count: int = PATH_LENGTH) -> NDArray:
        """Return alphas from 1e-12 to 10 times the largest eigenvalue."""
        return self.alphas(_FILTER, count)[::-1]


def ridge_path(
    design: Design,
    Y: NDArray,
    *,
    output: NDArray | None = None,
    sample_weight: NDArray | None = None,
    fit_intercept: bool = True,
) -> RidgePath:
    """Read the features once and return the solutions for every alpha.

    Parameters
    ----------
    design : Design of shape (n, r)
        The features; each block is read once.
    Y : ndarray of shape (n, d)
        Targets.
    output : ndarray of shape (d, d), optional
        Positive semi-definite output matrix M. Default: the identity.
    sample_weight : ndarray of shape (n,), optional
        Nonnegative weights of mean one. Default: all one.
    fit_intercept : bool, default=True
        Whether to fit b; otherwise it is zero.

    Returns
    -------
    RidgePath
        `solve`, `objective` and `gap` give the results for one alpha.

    Examples
    --------
    >>> from nbsketch.solvers import ArrayDesign
    >>> Z, Y = ArrayDesign([[0.0], [1.0], [2.0]]), np.array([[1.0], [3.0], [5.0]])
    >>> B, b = ridge_path(Z, Y).solve(1e-9)
    >>> B.round(6).tolist(), b.round(6).tolist()
    ([[2.0]], [1.0])
    """
    return RidgePath(
        *decompose(
            design,
            Y,
            output=output,
            sample_weight=sample_weight,
            fit_intercept=fit_intercept,
        )
    )


def cross_validation(
    path: RidgePath,
    design: Design,
    Y: NDArray,
    alphas: NDArray,
    folds: Sequence[Fold],
    sample_weight: NDArray | None = None,
) -> NDArray:
    """Return the mean squared error on the test rows of all folds for each alpha.

    It is the error of refits with the penalty n alpha of all n rows: in closed form for
    small blocks, else by `nbsketch.solvers.left_out.fold_errors`.

    Examples
    --------
    >>> from nbsketch.solvers import ArrayDesign, Fold
    >>> Z, Y = ArrayDesign([[0.0], [1.0], [2.0]]), np.array([[1.0], [3.0], [5.0]])
    >>> last = Fold(test=np.array([2]), removed=np.array([2]))
    >>> alphas = np.array([1e-9, 1.0])
    >>> cross_validation(ridge_path(Z, Y), Z, Y, alphas, [last]).round(4).tolist()
    [0.0, 6.6122]
    """
    b = max(len(fold.test) for fold in folds)
    r = len(path.values)
    by_blocks = len(alphas) * b * b * (2 * r + _EIGH * b)
    if all(fold.is_block for fold in folds) and by_blocks < _EIGH * r**3:
        blocks = [fold.test for fold in folds]
        return leave_blocks_out(path, _FILTER, design, Y, alphas, blocks, sample_weight)
    return fold_errors(path, _FILTER, design, Y, alphas, folds, sample_weight)
