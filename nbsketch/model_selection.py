"""Cross-validation that makes the features once and uses them in all folds."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nbsketch._validation import check_integer, check_matrix, check_positive
from nbsketch.features import SketchMap, draw, sketched_design
from nbsketch.solvers.design import ArrayDesign
from nbsketch.solvers.exact import solve_exact
from nbsketch.solvers.ridge import ridge_path


class CrossValidation(NamedTuple):
    """Errors of `cross_validate` for every bandwidth, alpha and output.

    Attributes
    ----------
    bandwidths : ndarray of shape (b,)
        Bandwidths tried.
    alphas : ndarray of shape (a,)
        Penalties tried.
    errors : ndarray of shape (b, a, d)
        Mean squared error of each output on the rows left out.
    """

    bandwidths: NDArray
    alphas: NDArray
    errors: NDArray

    def best(self, scale: ArrayLike = 1.0) -> tuple[float, float]:
        """Return the bandwidth and the alpha of least mean root error.

        `scale` divides the mean squared error of each output first: with the variances
        of the targets the criterion is the aRRMSE.
        """
        scores = np.sqrt(self.errors / np.asarray(scale)).mean(axis=2)
        i, j = np.unravel_index(scores.argmin(), scores.shape)
        return float(self.bandwidths[i]), float(self.alphas[j])


def cross_validate(
    X: ArrayLike,
    Y: ArrayLike,
    bandwidths: Iterable[float],
    alphas: Iterable[float],
    *,
    kernel: str = "gaussian",
    sketch: Any = "p-sparsified",
    size: int | None = None,
    cv: int = 5,
    output: NDArray | None = None,
    fit_intercept: bool = True,
    random_state: Any = None,
) -> CrossValidation:
    """Cross-validate sketched kernel ridge over bandwidths and alphas.

    For each bandwidth the features of all rows are made once; a fold is a set of their
    rows, and one eigendecomposition in it serves every alpha. Landmarks may be rows
    that a fold leaves out, whose targets it does not see. Without a sketch the Gram
    matrix is made once and decomposed for each fold and alpha.

    Parameters
    ----------
    X : array of shape (n, q)
        Rows.
    Y : array of shape (n, d)
        Targets.
    bandwidths, alphas : sequences of floats
        What to try.
    kernel, sketch, size, random_state
        As in `SketchedKernelRegressor`.
    cv : int
        Number of folds: contiguous runs of rows, so that a neighbour in time does not
        give the answer away. Shuffle the rows first where their order means nothing.
    output : ndarray of shape (d, d), optional
        Output matrix M.
    fit_intercept : bool
        Whether the constant is free.

    Returns
    -------
    CrossValidation
        Errors for every combination.

    Examples
    --------
    >>> import numpy as np
    >>> from nbsketch.model_selection import cross_validate
    >>> X = np.random.default_rng(0).uniform(-3, 3, size=(300, 1))
    >>> result = cross_validate(X, np.sin(X), [0.01, 1.0], [1e-6, 1.0], size=30)
    >>> result.best()
    (1.0, 1e-06)
    """
    X, Y = check_matrix("X", X), check_matrix("Y", Y).astype(float, copy=False)
    widths = np.array([check_positive("bandwidths", width) for width in bandwidths])
    penalties = np.array([check_positive("alphas", alpha) for alpha in alphas])
    folds = np.array_split(
        np.arange(len(X)), check_integer("cv", cv, low=2, high=len(X))
    )
    errors = np.zeros((len(widths), len(penalties), Y.shape[1]))
    problem = {"output": output, "fit_intercept": fit_intercept}
    for i, width in enumerate(widths):
        resolved, drawn = draw(X, kernel, float(width), sketch, size, random_state)
        if drawn.is_identity:
            errors[i] = _exact_errors(resolved(X), Y, folds, penalties, problem)
        else:
            sketch_map = SketchMap.of(resolved, X, drawn)
            _, design = sketched_design(sketch_map, X, drawn.columns, keep=True)
            errors[i] = _ridge_errors(design, Y, folds, penalties, problem)
    return CrossValidation(widths, penalties, errors)


def _ridge_errors(
    design: Any, Y: NDArray, folds: list, alphas: NDArray, problem: dict
) -> NDArray:
    errors = np.zeros((len(alphas), Y.shape[1]))
    for left_out in folds:
        kept = np.delete(np.arange(len(Y)), left_out)
        path = ridge_path(ArrayDesign(design.Z[kept]), Y[kept], **problem)
        for j, alpha in enumerate(alphas):
            B, b = path.solve(alpha)
            residual = Y[left_out] - design.Z[left_out] @ B - b
            errors[j] += np.square(residual).sum(axis=0) / len(Y)
    return errors


def _exact_errors(
    K: NDArray, Y: NDArray, folds: list, alphas: NDArray, problem: dict
) -> NDArray:
    errors = np.zeros((len(alphas), Y.shape[1]))
    for left_out in folds:
        kept = np.delete(np.arange(len(Y)), left_out)
        inner, outer = K[np.ix_(kept, kept)], K[np.ix_(left_out, kept)]
        for j, alpha in enumerate(alphas):
            A, b, _ = solve_exact(inner, Y[kept], alpha, **problem)
            residual = Y[left_out] - outer @ A - b
            errors[j] += np.square(residual).sum(axis=0) / len(Y)
    return errors
