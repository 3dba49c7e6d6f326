"""Cross-validation that makes the features once and uses them in all folds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone

from nbsketch._blas import one_thread
from nbsketch._validation import check_integer, check_positives
from nbsketch.estimators._base import SketchedData, SketchedModel
from nbsketch.fitting.least_squares import LeastSquaresObjective
from nbsketch.fitting.objectives import FeatureSolution, Objective, SolveOptions
from nbsketch.solvers.design import ArrayDesign


class CrossValidation(NamedTuple):
    """Errors of `cross_validate` for every bandwidth, alpha and output.

    Attributes
    ----------
    bandwidths : ndarray of shape (b,)
        Bandwidths tried.
    alphas : ndarray of shape (a,)
        Penalties tried.
    errors : ndarray of shape (b, a, d) or (b, a, 1)
        On the rows left out: the mean squared error of each output for the square loss,
        the mean loss for the others.
    """

    bandwidths: NDArray
    alphas: NDArray
    errors: NDArray

    def best(self, scale: ArrayLike = 1.0) -> tuple[float, float]:
        """Return the bandwidth and the alpha of least mean root error.

        `scale` divides the error of each output first: with the variances of the
        targets the criterion of the square loss is the aRRMSE.
        """
        scores = np.sqrt(self.errors / np.asarray(scale)).mean(axis=2)
        i, j = np.unravel_index(scores.argmin(), scores.shape)
        return float(self.bandwidths[i]), float(self.alphas[j])


def cross_validate(
    estimator: SketchedModel,
    X: ArrayLike,
    y: ArrayLike,
    bandwidths: Iterable[float],
    alphas: Iterable[float],
    *,
    cv: int = 5,
) -> CrossValidation:
    """Cross-validate an estimator over bandwidths and penalties.

    For each bandwidth the features of all rows are made once, and a fold is a set of
    their rows. The solutions of a fold start from each other; for the square loss one
    eigendecomposition serves all penalties. Landmarks may be rows that a fold leaves
    out, whose targets it does not see. Without a sketch the square loss decomposes the
    Gram matrix for each fold and penalty.

    Parameters
    ----------
    estimator : SketchedModel
        A `SketchedKernelRegressor`, `SketchedKernelClassifier` or
        `JointQuantileRegressor` with a kernel given by a name that has a bandwidth.
    X, y
        As in its ``fit``.
    bandwidths, alphas : sequences of floats
        What to try; descending penalties are fastest.
    cv : int
        Number of folds: contiguous runs of rows, so that a neighbor in time does not
        give the answer away. Shuffle the rows first where their order means nothing.

    Returns
    -------
    CrossValidation
        Errors for every combination.

    Examples
    --------
    >>> import numpy as np
    >>> from nbsketch import SketchedKernelRegressor
    >>> from nbsketch.model_selection import cross_validate
    >>> X = np.random.default_rng(0).uniform(-3, 3, size=(300, 1))
    >>> model = SketchedKernelRegressor(size=30, random_state=0)
    >>> cross_validate(model, X, np.sin(X[:, 0]), [0.01, 1.0], [1.0, 1e-6]).best()
    (1.0, 1e-06)
    """
    widths = np.array(check_positives("bandwidths", bandwidths))
    penalties = np.array(check_positives("alphas", alphas))
    model = clone(estimator)
    model._check_common()
    model._check_size_is_given()
    rows, objective = model._prepare(X, y, None)
    n = rows.shape[0]
    count = check_integer("cv", cv, low=2, high=n)
    folds = np.array_split(np.arange(n), count)
    control = SolveOptions(model.tol, model.max_iter)
    errors = []
    for width in widths:
        drawn = model.set_params(bandwidth=float(width))._drawn(rows, objective)
        errors.append(_errors(objective, drawn, folds, penalties, control))
    return CrossValidation(widths, penalties, np.stack(errors))


def _errors(
    objective: Objective,
    drawn: SketchedData,
    folds: list[NDArray],
    alphas: NDArray,
    control: SolveOptions,
) -> NDArray:
    """Return the mean errors of shape (a, d) over the rows that folds leave out."""
    total: Any = 0.0
    Z, n = _features(objective, drawn), drawn.sketch.shape[1]
    for left_out in folds:
        kept = np.delete(np.arange(n), left_out)
        part, judge = objective.take(kept), objective.take(left_out)
        if _is_exact(objective, drawn):
            outside = Z[np.ix_(left_out, kept)]
            solutions = _exact_path(part, Z[np.ix_(kept, kept)], alphas)
        else:
            outside = Z[left_out]
            solutions = part.path(ArrayDesign(Z[kept]), alphas, control)
        with one_thread() if objective.keep_features else nullcontext():
            scores = [judge.errors(outside @ a.coef + a.intercept) for a in solutions]
        total += np.array(scores) * (len(left_out) / n)
    return total


def _is_exact(objective: Objective, drawn: SketchedData) -> bool:
    return drawn.sketch.is_identity and isinstance(objective, LeastSquaresObjective)


def _features(objective: Objective, drawn: SketchedData) -> NDArray:
    """Return the features of the rows, or for the exact method their Gram matrix."""
    if _is_exact(objective, drawn):
        return drawn.sketch_map.kernel(drawn.rows)
    _, design = drawn.design(keep=True)
    return design.gather(np.arange(design.shape[0])).Z


def _exact_path(
    objective: Any, K: NDArray, alphas: NDArray
) -> Iterator[FeatureSolution]:
    for alpha in alphas:
        yield objective.fit_gram(K, float(alpha))
