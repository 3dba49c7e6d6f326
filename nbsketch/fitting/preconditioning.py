r"""Features in which stochastic gradients converge at one rate in all directions.

With C the covariance of z over some rows, :math:`C = V \Lambda V^T`, their mean
:math:`\mu` and a damping :math:`\lambda > 0` the features are

.. math:: \tilde z = (\Lambda + \lambda)^{-1/2} V^T (z - \mu) .

Without an intercept they are not centered, and C is the mean of :math:`z z^T`. For
:math:`\lambda = \alpha` and the square loss the Hessian of the penalized objective is
then the identity. The penalty weighs coefficient k by
:math:`1 / (\Lambda_k + \lambda)`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nbsketch._blas import eigh
from nbsketch._expansion import Expansion
from nbsketch._whitening import projection
from nbsketch.fitting.sketched import SketchedData
from nbsketch.solvers._stochastic.search import squared_norms

# Rows for each feature in the estimate of C.
_ROWS_PER_FEATURE = 10
# Share of the rows whose squared norm sets the step; larger ones take shorter steps.
# The largest norm of all would slow down every step by a factor of 5 to 50.
_TYPICAL = 0.999


class Preconditioner(NamedTuple):
    """The map to preconditioned features and their penalty.

    Attributes
    ----------
    projection : ndarray of shape (s, r)
        The features are :math:`P^T S k_x` minus the center.
    center : ndarray of shape (r,)
        Mean of those features; zero without an intercept, which centering separates
        from them.
    penalty_weights : ndarray of shape (r,)
        Weights of their coefficients in the penalty.
    """

    projection: NDArray
    center: NDArray
    penalty_weights: NDArray

    @classmethod
    def of(cls, data: SketchedData, damping: float, objective: Any) -> Preconditioner:
        """Estimate mean and covariance on some of the training rows."""
        sketch_map, X = data.sketch_map, data.inputs.rows
        P = projection(sketch_map(sketch_map.rows(X)) @ sketch_map.weights.T)
        count = min(X.shape[0], _ROWS_PER_FEATURE * P.shape[1])
        rows = np.sort(data.rng.choice(X.shape[0], count, replace=False))
        Z = sketch_map.times(X[rows], P)
        weights = objective.take(rows).weights
        shares = np.full(count, 1 / count) if weights is None else weights / count
        mean = shares @ Z * objective.fit_intercept
        Z -= mean
        values, vectors = eigh((Z * shares[:, None]).T @ Z)
        penalty_weights = 1.0 / (np.maximum(values, 0.0) + damping)
        rotation = vectors * np.sqrt(penalty_weights)
        return cls(P @ rotation, mean @ rotation, penalty_weights)

    def features(self, data: SketchedData) -> tuple[NDArray, NDArray]:
        """Return the projection and the features of the training rows.

        Single precision: rounding is far below the noise of stochastic steps.
        """
        rows, P = data.inputs.rows, self.projection
        Z = np.empty((rows.shape[0], P.shape[1]), np.float32)
        Expansion(data.sketch_map.product, P).fill(rows, None, Z)
        Z -= self.center.astype(np.float32)
        return P, Z


def typical_square(Z: NDArray) -> float | None:
    """Return a squared norm that few rows exceed; None if it is zero."""
    return float(np.quantile(squared_norms(Z), _TYPICAL)) or None
