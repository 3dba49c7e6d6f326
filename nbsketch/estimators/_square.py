"""The square loss: closed forms, and alpha by leave-one-out."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nbsketch.estimators._base import Fit
from nbsketch.features import SketchMap, sketched_design
from nbsketch.solvers.exact import solve_exact
from nbsketch.solvers.ridge import leave_one_out, ridge_path


def fit_square(
    X: NDArray,
    Y: NDArray,
    kernel: Any,
    sketch: Any,
    alpha: float | None,
    **problem: Any,
) -> Fit:
    """Fit by the square loss; `problem` is output, sample_weight and fit_intercept.

    Without a sketch and with a given alpha: one Cholesky decomposition. Otherwise: one
    eigendecomposition in the features, from which alpha=None takes the alpha of least
    leave-one-out error.
    """
    if sketch.is_identity and alpha is not None:
        K = np.asarray(kernel(X), dtype=np.float64)
        A, b, objective = solve_exact(K, Y, alpha, **problem)
        return Fit(A, b, alpha, len(K), objective, 0.0)
    sketch_map = SketchMap.of(kernel, X, sketch)
    projection, design = sketched_design(sketch_map, X, sketch.columns)
    path = ridge_path(design, Y, **problem)
    if alpha is None:
        alphas = path.default_alphas()
        errors = leave_one_out(path, design, Y, alphas, problem["sample_weight"])
        alpha = float(alphas[np.argmin(errors)])
    B, b = path.solve(alpha)
    objective, gap = path.objective(alpha), path.gap(alpha)
    relative = gap / objective if objective > 0 else 0.0
    return Fit(projection @ B, b, alpha, design.shape[1], objective, relative)
