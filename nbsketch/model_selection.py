"""Cross-validation that computes the features once for all folds."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone

from nbsketch._report.validation import check_positives
from nbsketch.estimators._base import SketchedModel
from nbsketch.fitting.steps import fold_errors, sketched_method


class CrossValidation(NamedTuple):
    """Held-out errors for every bandwidth, penalty and output.

    Attributes
    ----------
    bandwidths : ndarray of shape (b,)
        Bandwidths tried.
    alphas : ndarray of shape (a,)
        Penalties tried.
    errors : ndarray of shape (b, a, d) or (b, a, 1)
        Held-out errors: the mean squared error of each output for the square loss, the
        mean loss otherwise.
    """

    bandwidths: NDArray
    alphas: NDArray
    errors: NDArray

    def best(self, scale: ArrayLike = 1.0) -> tuple[float, float]:
        """Return the bandwidth and the penalty with the lowest mean root error.

        If `scale` is passed, the error of each output is divided by it first. With the
        variances of the targets, the criterion for the square loss is the aRRMSE.
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
    cv: Any = 5,
    groups: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
) -> CrossValidation:
    """Cross-validate an estimator over bandwidths and penalties.

    For each bandwidth, the features of all samples are computed once, and each fold
    uses a subset of their rows. Solutions of a fold are warm-started from each other;
    for the square loss, one eigendecomposition is used for all penalties. Landmarks may
    be left-out samples, but their targets are not used. Without a sketch, the square
    loss decomposes the Gram matrix for each fold and penalty.

    Parameters
    ----------
    estimator : SketchedModel
        A `SketchedKernelRegressor`, `SketchedKernelClassifier`,
        `JointQuantileRegressor` or `SpectralFilterRegressor` with the name of a kernel
        that has a bandwidth.
    X, y
        As in its ``fit``.
    bandwidths, alphas : sequences of floats
        Values to try; descending penalties are fastest.
    cv : int, splitter or iterable of (train, test), default=5
        An integer: that many contiguous blocks of samples (of whole groups with
        `groups`), so that neighbors in time stay in one fold. Otherwise a scikit-learn
        splitter such as ``KFold(5, shuffle=True)``, or (train, test) indices.
    groups : array of shape (n,) or None, default=None
        Group label of each sample.
    sample_weight : array of shape (n,) or None, default=None
        Non-negative weights for fits and errors. None: equal weights.

    Returns
    -------
    CrossValidation
        Held-out errors for every combination.

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
    problem = clone(estimator).set_params(cv=cv).prepare(X, y, sample_weight, groups)
    problem.plan.check_has_path()
    folds = problem.objective.folds
    if folds is None:
        raise TypeError(
            "`cv` must be an integer, a splitter of scikit-learn or an iterable of "
            "(train, test) index arrays, got None"
        )
    errors = []
    for width in widths:
        sized = problem._replace(plan=replace(problem.plan, bandwidth=float(width)))
        errors.append(fold_errors(sketched_method(sized), folds, penalties))
    return CrossValidation(widths, penalties, np.stack(errors))
