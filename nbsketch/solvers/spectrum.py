r"""The covariance of the features in its eigenbasis, for all spectral filters.

The features are read once. For the output matrix M, whose eigenbasis decouples the
outputs, and a `Filter` G, the solution B of y = B^T z + b has in both eigenbases the
entries

.. math:: m_j\, G_a(u_k m_j)\, c_{kj},

with u the eigenvalues of the centered covariance of Z, m those of M, and c the
covariance of Z and Y.

Also ridge regression in closed form, one eigendecomposition for every alpha:

.. math:: \min_{B, b} \frac{1}{2n} \sum_i w_i \|y_i - B^T z_i - b\|^2
          + \frac{\alpha}{2} \|W\|_F^2, \qquad B = W M^{1/2},

with weights w of mean one: the spectral filter :math:`1 / (u + \alpha)`.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nbsketch._machine.blas import eigh, graded_eigh
from nbsketch._report.validation import row_weights
from nbsketch.solvers._linear.conjugate_gradients import centered, output_basis
from nbsketch.solvers.design import EQUAL, ArrayDesign, Design
from nbsketch.solvers.filters import PATH_LENGTH, Filter, RidgeFilter

# Rows processed at a time: their copies fit into the cache.
_CHUNK = 512
# Variances below this share of the largest are rounding of a constant.
_ROUNDED = 1e-30
_RIDGE = RidgeFilter()
# Share of the mean square of the targets, and relative gap, above which the normal
# equations are accurate.
_LEAST_OBJECTIVE = 1e-9
_LEAST_GAP = 1e-9
# Rounding of an eigenvalue, relative to the largest.
_LOST = 1e-14


class CovarianceSpectrum(NamedTuple):
    """The solutions for every filter and parameter: see `decompose`."""

    values: NDArray  # eigenvalues of the centered covariance of Z, (r,)
    vectors: NDArray  # its eigenvectors, (r, r)
    cross: NDArray  # covariance of Z in that basis with rotated Y, (r, d)
    z_mean: NDArray  # (r,)
    y_mean: NDArray  # of rotated Y, (d,)
    y_square: NDArray  # mean squares of centered, rotated Y, (d,)
    outputs: NDArray  # eigenvalues of M, (d,)
    rotation: NDArray  # its eigenvectors, (d, d)
    fit_intercept: bool
    n_samples: int
    least: float = 1.0  # minimum relevant variance relative to the largest

    @property
    def top(self) -> float:
        """The largest of u_k m_j; 1 if all are zero."""
        top = self.values.max(initial=0.0) * self.outputs.max(initial=0.0)
        return float(top) if top > 0 else 1.0

    def alphas(self, filter: Filter, count: int = PATH_LENGTH) -> NDArray:
        """Return a path of parameters, from the strongest to the smallest variance."""
        return extended(filter.alphas(self.top, count), self.least)

    def in_units(self) -> Self:
        """Return the spectrum of outputs over their root mean squares, for M = I."""
        units = units_of(self.y_square, self.y_mean)
        return self._replace(
            cross=self.cross / units,
            y_mean=self.y_mean / units,
            y_square=self.y_square / np.square(units),
            rotation=self.rotation / units,
        )

    def gains(self, filter: Filter, alphas: ArrayLike) -> tuple[NDArray, NDArray]:
        """Return m G_a(u m) for the distinct m, (r, p, k), and their index per output.

        `alphas` holds p parameters.
        """
        distinct, place = np.unique(self.outputs, return_inverse=True)
        u = self.values[:, None, None] * distinct
        return distinct * filter.values(u, np.reshape(alphas, (-1, 1))), place

    def shrunk(self, filter: Filter, alphas: ArrayLike) -> NDArray:
        """Return B in both eigenbases for p parameters, of shape (r, p, d)."""
        gains, place = self.gains(filter, alphas)
        return gains[:, :, place] * self.cross[:, None, :]

    def coefficients(self, filter: Filter, alpha: float) -> tuple[NDArray, NDArray]:
        """Return B of shape (r, d) and b of shape (d,) for one parameter."""
        rotated = self.vectors @ self.shrunk(filter, alpha)[:, 0]
        intercept = self.y_mean - self.z_mean @ rotated
        return rotated @ self.rotation.T, self.rotation @ intercept

    def mean_squares(self, filter: Filter, alphas: ArrayLike) -> NDArray:
        """Return the mean squared residual of the fit for p parameters."""
        gains, place = self.gains(filter, alphas)
        gains = gains[:, :, place]
        reach = self.values[:, None, None] * gains
        explained = np.square(self.cross)[:, None, :] * gains * (2 - reach)
        return np.maximum(self.y_square.sum() - explained.sum(axis=(0, 2)), 0.0)

    def trace(self, filter: Filter, alphas: ArrayLike) -> NDArray:
        """Return the trace of the map from targets to fit, mean over the outputs."""
        gains, place = self.gains(filter, alphas)
        traces = np.tensordot(self.values, gains, axes=1)[:, place]
        return traces.mean(axis=1) + self.fit_intercept


class RidgePath(CovarianceSpectrum):
    """The solutions for all alphas of ridge regression: see `ridge_path`."""

    def solve(self, alpha: float) -> tuple[NDArray, NDArray]:
        """Return B of shape (r, d) and b of shape (d,) for one alpha."""
        return self.coefficients(_RIDGE, alpha)

    def objective(self, alpha: float) -> float:
        """Return the value of the objective at the solution."""
        shrunk = self.shrunk(_RIDGE, alpha)[:, 0]
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
        lost = 0.0 if self.least < 1 else _LOST * self.values.max(initial=0.0)
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
        return self.alphas(_RIDGE, count)[::-1]


def decompose(
    design: Design,
    Y: NDArray,
    *,
    output: NDArray | None = None,
    sample_weight: NDArray | None = None,
    fit_intercept: bool = True,
) -> CovarianceSpectrum:
    """Read the features once and return the spectrum shared by all solutions.

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
        Whether to fit b; otherwise it is zero and nothing is centered.

    Examples
    --------
    >>> from nbsketch.solvers import ArrayDesign, CutoffFilter
    >>> Z, Y = ArrayDesign([[0.0], [1.0], [2.0]]), np.array([[1.0], [3.0], [5.0]])
    >>> spectrum = decompose(Z, Y)
    >>> spectrum.values.round(4).tolist()
    [0.6667]
    >>> spectrum.coefficients(CutoffFilter(), 0.1)[0].round(6).tolist()
    [[2.0]]
    """
    outputs, rotation = output_basis(output, Y.shape[1])
    Y = Y @ rotation
    n = Y.shape[0]
    weights = row_weights(sample_weight, Y)
    y_mean, Y = centered(Y, weights, fit_intercept)
    G, C, z_mean = moments(design, Y, sample_weight, fit_intercept)
    values, vectors = graded_eigh(G) if design.is_graded else eigh(G)
    return CovarianceSpectrum(
        values=np.maximum(values, 0.0),
        vectors=vectors,
        cross=vectors.T @ C,
        z_mean=z_mean,
        y_mean=y_mean,
        y_square=weights @ np.square(Y) / n,
        outputs=outputs,
        rotation=rotation,
        fit_intercept=fit_intercept,
        n_samples=n,
        least=least_share(design, G),
    )


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


def units_of(squares: NDArray, means: NDArray) -> NDArray:
    """Return root mean squares of centered outputs; 1 for constant ones."""
    return np.sqrt(np.where(squares > np.square(EQUAL * means), squares, 1.0))


def least_share(design: Design, spread: NDArray) -> float:
    """Return the smallest relevant variance over the largest, from the covariance.

    It is 1 unless features have their own units, and if all are zero.
    """
    variances = spread.diagonal()
    positive = variances[variances > _ROUNDED * variances.max(initial=0.0)]
    if not (design.is_graded and len(positive)):
        return 1.0
    return float(positive.min() / positive.max())


def extended(path: NDArray, share: float) -> NDArray:
    """Return a path of parameters, strongest first, extended by a factor."""
    if share == 1 or len(path) < 2:
        return path
    ratio = path[-1] / path[-2]
    weaker = np.arange(1, np.ceil(np.log(share) / np.log(ratio)) + 1)
    return np.append(path, path[-1] * ratio**weaker)


def chunks(design: Design) -> Iterator[tuple[slice, NDArray]]:
    """Yield (rows, features of these rows in double precision), covering all rows."""
    # With at least half as many rows as features, adding a product is cheap.
    step = max(_CHUNK, design.shape[1] // 2)
    for start, stop, block in design.blocks():
        for first in range(start, stop, step):
            last = min(first + step, stop)
            chunk = block[first - start : last - start]
            yield slice(first, last), chunk.astype(np.float64, copy=False)


def covariance(
    design: Design, sample_weight: NDArray | None, centered: bool
) -> NDArray:
    """Return the covariance of Z; without centering ``Z^T Z / n``."""
    return moments(design, np.empty((design.shape[0], 0)), sample_weight, centered)[0]


def moments(
    design: Design, Y: Any, sample_weight: NDArray | None, centered: bool
) -> tuple[NDArray, NDArray, NDArray]:
    """Return the covariance of Z, its covariance with the centered Y, and its mean.

    Without centering these are Z^T Z / n, Z^T Y / n and zeros. Y has a shape (n, d) and
    returns slices of rows, which may be sparse.
    """
    n, r = design.shape
    # Sums of differences from a row near the mean avoid cancellation.
    origin = None
    if centered:
        first = design.gather(np.arange(min(n, _CHUNK))).collect()
        origin = first.mean(axis=0, dtype=np.float64)
    sums = design.total(block_moments, origin, rows=[Y, sample_weight])
    G, C, mean = (total / n for total in sums)
    if origin is None:
        return G, C, np.zeros(r)
    G -= np.outer(mean, mean)
    constant = G.diagonal() <= np.square(EQUAL * (origin + mean))
    G[constant] = G[:, constant] = C[constant] = 0.0
    return G, C, origin + mean


def block_moments(
    block: NDArray,
    Y: Any,
    sample_weight: NDArray | None,
    origin: NDArray | None,
    basis: NDArray | None = None,
) -> tuple[NDArray, NDArray, NDArray]:
    """Return the sums over a block of rows: Z^T Z, Z^T Y and Z, from an origin.

    With a square `basis`, its products with Z replace Z.
    """
    r = block.shape[1]
    G = np.zeros((r, r))
    C = np.zeros((r, Y.shape[1]))
    z_sum = np.zeros(r)
    for rows, Z in chunks(ArrayDesign._trusted(block)):
        if origin is not None:
            Z = Z - origin
        if basis is not None:
            Z = Z @ basis
        targets = Y[rows]
        if sample_weight is not None:
            root = np.sqrt(sample_weight[rows, None])
            z_sum += sample_weight[rows] @ Z
            Z = Z * root
            targets = targets * root
        else:
            z_sum += Z.sum(axis=0)
        G += Z.T @ Z
        C += Z.T @ targets
    return G, C, z_sum
