"""The spectral norm of a sketch."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.sparse.linalg import LinearOperator, eigsh

# Up to so many rows S S^T is decomposed.
_FEW_ROWS = 48
# Dimension of the Krylov space. From a random start the largest Ritz value is below
# 1 / _MARGIN of the largest eigenvalue with a probability of 1e-8 (Kuczynski and
# Wozniakowski, 1992, Theorem 4.1).
_STEPS, _MARGIN = 40, 1.1


def squared_norm(sketch: Any) -> float:
    """Return an upper bound of the largest eigenvalue of S S^T: see `Sketch`."""
    s = sketch.shape[0]
    if sp.issparse(sketch.weights):
        matrix = sketch.weights
        if np.bincount(matrix.indices, minlength=1).max() <= 1:  # orthogonal rows
            return float(matrix.power(2).sum(axis=1).max())
    if s <= _FEW_ROWS:
        values = np.linalg.eigvalsh(_gram_product(sketch, np.eye(s)))
        return float(values[-1])
    operator: Any = LinearOperator(
        (s, s), matvec=lambda v: _gram_product(sketch, v), dtype=np.float64
    )
    start = np.random.default_rng(0).standard_normal(s)
    options = {"k": 1, "ncv": _STEPS, "tol": 0.01, "v0": start}
    return _MARGIN * float(eigsh(operator, return_eigenvectors=False, **options)[0])


def _gram_product(sketch: Any, V: NDArray) -> NDArray:
    """Return S S^T V."""
    return np.asarray(sketch @ (sketch.T @ V))
