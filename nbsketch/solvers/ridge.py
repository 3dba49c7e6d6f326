r"""Ridge regression in closed form: one eigendecomposition serves every alpha.

.. math:: \min_{B, b} \frac{1}{2n} \sum_i w_i \|y_i - B^T z_i - b\|^2
          + \frac{\alpha}{2} \|W\|_F^2, \qquad B = W M^{1/2},

with weights w of mean one and an output matrix M. In the eigenbasis of M the outputs
decouple into scalar problems, the one of eigenvalue m with penalty alpha / m.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nbsketch._linalg import eigh
from nbsketch.solvers.design import Design

# Rows handled at a time: their copies stay in cache.
_CHUNK = 4096
# Columns of predictions for several alphas that are made at a time.
_COLUMNS = 64
# Eigenvalues of M below this share of the largest count as zero.
_NULL_OUTPUT = 1e-12
# What rounding makes of one minus a leverage: residuals are not divided by less.
_LEAST_FREEDOM = 1e-14


class RidgePath(NamedTuple):
    """The solutions for all alphas: see `ridge_path`."""

    values: NDArray  # eigenvalues of the centred covariance of Z, (r,)
    vectors: NDArray  # its eigenvectors, (r, r)
    cross: NDArray  # covariance of Z in that basis with rotated Y, (r, d)
    z_mean: NDArray  # (r,)
    y_mean: NDArray  # of rotated Y, (d,)
    y_square: float  # mean squared norm of centred Y
    outputs: NDArray  # eigenvalues of M, (d,)
    rotation: NDArray  # its eigenvectors, (d, d)
    fit_intercept: bool

    def solve(self, alpha: float) -> tuple[NDArray, NDArray]:
        """Return B of shape (r, d) and b of shape (d,) for one alpha."""
        rotated = self.vectors @ self._shrunk(alpha)
        intercept = self.y_mean - self.z_mean @ rotated
        return rotated @ self.rotation.T, self.rotation @ intercept

    def objective(self, alpha: float) -> float:
        """Return the value of the objective at the solution."""
        shrunk = self._shrunk(alpha)
        # With the normal equations the residual and the penalty add up to this.
        return max(0.0, 0.5 * (self.y_square - float((shrunk * self.cross).sum())))

    def gap(self, alpha: float) -> float:
        """Return a bound of the suboptimality: the residual of the normal equations."""
        B, _ = self.solve(alpha)
        shrunk = self.vectors.T @ B @ self.rotation
        used = self.outputs > 0
        penalty = alpha / self.outputs[used]
        rest = self.cross[:, used] - self.values[:, None] * shrunk[:, used]
        rest -= penalty * shrunk[:, used]
        return float((np.square(rest) / penalty).sum() / 2)

    def default_alphas(self, count: int = 53) -> NDArray:
        """Return alphas from 1e-12 to 10 times the largest eigenvalue."""
        top = self.values[-1] * self.outputs.max(initial=0) if self.values.size else 0
        return (top if top > 0 else 1.0) * np.logspace(-12, 1, count)

    def _shrunk(self, alpha: float) -> NDArray:
        used = self.outputs > 0
        penalty = alpha / np.where(used, self.outputs, 1.0)
        total = self.values[:, None] + penalty
        safe = np.where(total > 0, total, np.inf)
        return np.where(used, self.cross / safe, 0.0)


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
        Positive semi-definite output matrix M; the identity by default.
    sample_weight : ndarray of shape (n,), optional
        Non-negative weights of mean one.
    fit_intercept : bool
        Whether b is free; else it is zero.
    """
    outputs, rotation = _output_basis(output, Y.shape[1])
    Y = Y @ rotation
    n = Y.shape[0]
    weights = np.ones(n) if sample_weight is None else sample_weight
    y_mean = weights @ Y / n if fit_intercept else np.zeros(Y.shape[1])
    G, C, z_mean = _moments(design, Y - y_mean, sample_weight, fit_intercept)
    values, vectors = eigh(G)
    y_square = float(weights @ np.square(Y - y_mean).sum(axis=1) / n)
    return RidgePath(
        values=np.maximum(values, 0.0),
        vectors=vectors,
        cross=vectors.T @ C,
        z_mean=z_mean,
        y_mean=y_mean,
        y_square=y_square,
        outputs=outputs,
        rotation=rotation,
        fit_intercept=fit_intercept,
    )


def leave_one_out(
    path: RidgePath,
    design: Design,
    Y: NDArray,
    alphas: NDArray,
    sample_weight: NDArray | None = None,
) -> NDArray:
    """Return the mean squared leave-one-out error for each alpha, in closed form.

    Reads the features once more. The features themselves (landmarks and sketch) are
    taken as given: only the row's part in the fit is left out.
    """
    n, d = Y.shape
    Y = Y @ path.rotation - path.y_mean
    weights = np.ones(n) if sample_weight is None else sample_weight
    total = np.zeros(len(alphas))
    group = max(1, _COLUMNS // d)
    for rows, Z in _chunks(design):
        Q = (Z - path.z_mean) @ path.vectors
        squares = np.square(Q)
        for first in range(0, len(alphas), group):
            some = slice(first, first + group)
            shrunk = np.stack([path._shrunk(a) for a in alphas[some]], axis=1)
            r, count, _ = shrunk.shape
            fitted = Q @ shrunk.reshape(r, count * d)
            residual = Y[rows, None, :] - fitted.reshape(len(Q), count, d)
            leverage = _leverage(path, squares, alphas[some])
            leverage *= weights[rows, None, None] / n
            residual /= np.maximum(1 - leverage, _LEAST_FREEDOM)
            total[some] += weights[rows] @ np.square(residual).sum(axis=2)
    return total / n


def _leverage(path: RidgePath, squares: NDArray, alphas: NDArray) -> NDArray:
    """Return n h_i at unit weights, of shape (rows, len(alphas), d or 1)."""
    distinct, place = np.unique(path.outputs, return_inverse=True)
    positive = distinct > 0
    penalty = alphas[:, None] / np.where(positive, distinct, 1.0)
    total = path.values[:, None, None] + penalty
    inverse = np.where(positive, 1 / np.where(total > 0, total, np.inf), 0.0)
    columns = squares @ inverse.reshape(len(inverse), penalty.size)
    columns = columns.reshape(len(squares), *penalty.shape) + path.fit_intercept
    return columns if len(distinct) == 1 else columns[:, :, place]


def _output_basis(output: NDArray | None, n_outputs: int) -> tuple[NDArray, NDArray]:
    if output is None:
        return np.ones(n_outputs), np.eye(n_outputs)
    values, vectors = eigh(output)
    return np.where(values > _NULL_OUTPUT * values[-1], values, 0.0), vectors


def _moments(
    design: Design, Y: NDArray, sample_weight: NDArray | None, centred: bool
) -> tuple[NDArray, NDArray, NDArray]:
    """Return covariance of Z, its covariance with the centred Y, and its mean."""
    n, r = design.shape
    G, C = np.zeros((r, r)), np.zeros((r, Y.shape[1]))
    # Sums of differences from a row near the mean: nothing large cancels at the end.
    origin, z_sum = np.zeros(r), np.zeros(r)
    for rows, Z in _chunks(design):
        if centred:
            if rows.start == 0:
                origin = Z.mean(axis=0)
            Z = Z - origin
        targets = Y[rows]
        if sample_weight is not None:
            root = np.sqrt(sample_weight[rows, None])
            z_sum += sample_weight[rows] @ Z
            Z, targets = Z * root, targets * root
        else:
            z_sum += Z.sum(axis=0)
        G += Z.T @ Z
        C += Z.T @ targets
    mean = z_sum / n if centred else np.zeros(r)
    return G / n - np.outer(mean, mean), C / n, origin + mean


def _chunks(design: Design) -> Iterator[tuple[slice, NDArray]]:
    for start, stop, block in design.blocks():
        for first in range(start, stop, _CHUNK):
            last = min(first + _CHUNK, stop)
            chunk = block[first - start : last - start]
            yield slice(first, last), chunk.astype(np.float64, copy=False)
