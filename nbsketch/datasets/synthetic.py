"""The papers' synthetic regression problem with outlying inputs."""

from math import isqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nbsketch._validation import check_integer, check_real, random_generator

_OUTLIER_MEAN = 1.5


def make_friedman_outliers(
    n_samples: int = 10_000,
    *,
    n_features: int = 10,
    n_outliers: int | None = None,
    noise: float = 1.0,
    outlier_std: float = 0.25,
    random_state: Any = None,
) -> tuple[NDArray, NDArray]:
    """Draw Friedman's additive regression problem with a few rows far outside.

    The target depends on the first five inputs only::

        y = 0.1 exp(4 x_1) + 4 / (1 + exp(-20 (x_2 - 1/2))) + 3 x_3 + 2 x_4 + x_5 + e

    where e is normal with mean 0 and standard deviation `noise`. Inputs are uniform
    on [0, 1], except those of `n_outliers` rows chosen at random, whose inputs are
    all normal with mean 1.5. Their targets follow the same formula, which makes
    them large: the exponential alone is about 40 there and 5.5 at most elsewhere.

    Parameters
    ----------
    n_samples : int, default=10_000
        Number of rows.
    n_features : int, default=10
        Number of inputs, at least 5; those after the fifth do not matter for y.
    n_outliers : int or None, default=None
        Number of outlying rows; None means ``floor(sqrt(n_samples))``, 0 none.
    noise : float, default=1.0
        Standard deviation of e; 0 returns the values of the function itself.
    outlier_std : float, default=0.25
        Standard deviation of the outlying inputs.
    random_state : None, int, numpy.random.Generator or numpy.random.RandomState
        Source of randomness; None draws a fresh one. The draws do not depend on
        `noise`, and rows that are no outliers do not depend on `n_outliers`.

    Returns
    -------
    X : ndarray of shape (n_samples, n_features)
        Inputs.
    y : ndarray of shape (n_samples,)
        Targets.

    Raises
    ------
    TypeError, ValueError
        If an argument is not a number of its range.

    Notes
    -----
    The function is that of Friedman (1991), Multivariate adaptive regression
    splines, section 4.3; the outliers are those of the experiments of El Ahmad,
    Laforgue and d'Alche-Buc (2023), Fast kernel methods for generic Lipschitz
    losses via p-sparsified sketches. There the training and the test set hold
    10 000 rows each, both with outliers. Its text gives 0.25 as the variance; the
    default here is the standard deviation its published results were made with.

    Examples
    --------
    >>> from nbsketch.datasets import make_friedman_outliers
    >>> X, y = make_friedman_outliers(400, random_state=0)
    >>> X.shape, y.shape
    ((400, 10), (400,))
    >>> int((X > 1).any(axis=1).sum())  # floor(sqrt(400)) outliers
    20
    """
    n_samples = check_integer("n_samples", n_samples)
    n_features = check_integer("n_features", n_features, low=5)
    noise = check_real("noise", noise, low=0, high_open=True)
    outlier_std = check_real("outlier_std", outlier_std, low=0, high_open=True)
    if n_outliers is None:
        n_outliers = isqrt(n_samples)
    n_outliers = check_integer("n_outliers", n_outliers, low=0, high=n_samples)

    rng = random_generator(random_state)
    X = rng.random((n_samples, n_features))
    errors = noise * rng.standard_normal(n_samples)
    rows = rng.choice(n_samples, n_outliers, replace=False)
    draws = rng.standard_normal((n_outliers, n_features))
    X[rows] = _OUTLIER_MEAN + outlier_std * draws
    return X, _additive(X) + errors


def _additive(X: NDArray) -> NDArray:
    step = 4 / (1 + np.exp(-20 * (X[:, 1] - 0.5)))
    return 0.1 * np.exp(4 * X[:, 0]) + step + X[:, 2:5] @ [3.0, 2.0, 1.0]
