"""Synthetic problems: outlying inputs, exact smoothness and capacity, documents."""

from dataclasses import dataclass
from math import isqrt
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array

from nbsketch._report.validation import (
    check_integer,
    check_level,
    check_positive,
    check_real,
    random_generator,
)

_OUTLIER_MEAN = 1.5  # of the inputs, as in the paper
_SIGNS = 0  # seed of the signs of DiagonalDesign
_BACKGROUND = 100  # words of a document from the whole vocabulary
_WORDS_OF_LABEL = 25
_KEPT = 0.5  # share of the words of a label in a document


def make_friedman_outliers(
    n_samples: int = 10_000,
    *,
    n_features: int = 10,
    n_outliers: int | None = None,
    noise: float = 1.0,
    outlier_std: float = 0.25,
    random_state: Any = None,
) -> tuple[NDArray, NDArray]:
    """Draw Friedman's additive regression problem with a few outlying inputs.

    The target depends only on the first five inputs::

        y = 0.1 exp(4 x_1) + 4 / (1 + exp(-20 (x_2 - 1/2))) + 3 x_3 + 2 x_4 + x_5 + e

    where e is normal with mean 0 and standard deviation `noise`. Inputs are uniform on
    [0, 1], except for `n_outliers` random samples, whose inputs are normal with mean
    1.5. Their targets follow the same formula and are therefore large: the exponential
    term is about 40 there and at most 5.5 elsewhere.

    Parameters
    ----------
    n_samples : int, default=10_000
        Number of samples.
    n_features : int, default=10
        Number of inputs, at least 5; only the first five affect y.
    n_outliers : int or None, default=None
        Number of outlying samples. None: ``floor(sqrt(n_samples))``.
    noise : float, default=1.0
        Standard deviation of e; 0 returns the values of the function.
    outlier_std : float, default=0.25
        Standard deviation of the outlying inputs.
    random_state : None, int, numpy.random.Generator or numpy.random.RandomState
        Random numbers. None: new ones in each call. The draws do not depend on `noise`,
        and samples that are not outliers do not depend on `n_outliers`.

    Returns
    -------
    X : ndarray of shape (n_samples, n_features)
        Inputs.
    y : ndarray of shape (n_samples,)
        Targets.

    Raises
    ------
    TypeError, ValueError
        If an argument has the wrong type or is out of range.

    Notes
    -----
    The function is from Friedman (1991), Multivariate adaptive regression splines,
    section 4.3; the outliers are from the experiments of El Ahmad, Laforgue and
    d'Alche-Buc (2023), Fast kernel methods for generic Lipschitz losses via
    p-sparsified sketches, where the training and test sets have 10,000 samples each,
    both with outliers. The paper states 0.25 as the variance; the default here is the
    standard deviation used for its published results.

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
    step = 4 / (1 + np.exp(-20 * (X[:, 1] - 0.5)))
    return X, 0.1 * np.exp(4 * X[:, 0]) + step + X[:, 2:5] @ [3.0, 2.0, 1.0] + errors


@dataclass(frozen=True)
class DiagonalDesign:
    r"""Regression with a known source condition and a known capacity.

    Inputs x are uniform on [0, 1]. Their features

    .. math:: \sqrt{\mu_j}\, \varphi_j(x), \qquad \mu_j = j^{-1/\gamma}, \qquad
              \varphi_j(x) = \sqrt2 \cos(\pi j x), \qquad j = 1, \dots, J,

    have the inner products of a kernel whose integral operator L is diagonal in the
    orthonormal :math:`\varphi_j`, with eigenvalues :math:`\mu_j`. The target is

    .. math:: f = \sum_j c_j\, \varphi_j, \qquad
              c_j \propto \pm\mu_j^{\zeta}\, j^{-1/2}, \qquad \sum_j c_j^2 = 1.

    Here :math:`\gamma` is the capacity: the effective dimension grows like
    :math:`\alpha^{-\gamma}`. The exponent :math:`\zeta` is the source: :math:`f = L^r
    g` with a square summable g for every r below :math:`\zeta`, and for no r above it,
    up to the number of modes.

    Parameters
    ----------
    capacity : float
        Exponent gamma in (0, 1).
    n_modes : int
        Number of modes J.

    Notes
    -----
    The signs are random but fixed, so that f has no peak at an end.

    Examples
    --------
    >>> from nbsketch.datasets import DiagonalDesign
    >>> design = DiagonalDesign(capacity=0.5, n_modes=100)
    >>> X, y = design.draw(500, source=1.0, noise=0.1, random_state=0)
    >>> X.shape, y.shape
    ((500, 100), (500,))
    >>> design.excess_risk(design.coefficients(1.0), source=1.0)
    0.0
    """

    capacity: float = 0.5
    n_modes: int = 1024

    def __post_init__(self) -> None:
        check_level("capacity", self.capacity)
        check_integer("n_modes", self.n_modes)

    @property
    def eigenvalues(self) -> NDArray:
        """The eigenvalues mu_j of the kernel, of shape (J,)."""
        return np.arange(1.0, self.n_modes + 1) ** (-1 / self.capacity)

    def features(self, x: ArrayLike) -> NDArray:
        """Return the features of inputs x of shape (n,), of shape (n, J)."""
        modes = np.arange(1, self.n_modes + 1)
        waves = np.cos(np.pi * np.multiply.outer(np.asarray(x, dtype=float), modes))
        return waves * np.sqrt(2 * self.eigenvalues)

    def coefficients(self, source: float) -> NDArray:
        """Return w with f(x) = w^T features(x) for the target of a source, (J,)."""
        check_positive("source", source)
        signs = np.random.default_rng(_SIGNS).choice([-1.0, 1.0], self.n_modes)
        c = self.eigenvalues**source / np.sqrt(np.arange(1, self.n_modes + 1))
        return signs * c / np.linalg.norm(c) / np.sqrt(self.eigenvalues)

    def draw(
        self,
        n_samples: int,
        source: float = 1.0,
        *,
        noise: float = 0.3,
        random_state: Any = None,
    ) -> tuple[NDArray, NDArray]:
        """Draw features X of shape (n, J) and targets y = f(x) + normal noise, (n,).

        Parameters
        ----------
        n_samples : int
            Number of samples.
        source : float
            Source exponent zeta (> 0).
        noise : float
            Standard deviation of the noise.
        random_state : None, int, numpy.random.Generator or numpy.random.RandomState
            Random numbers. The inputs do not depend on `source` and `noise`.
        """
        n = check_integer("n_samples", n_samples)
        noise = check_real("noise", noise, low=0, high_open=True)
        rng = random_generator(random_state)
        X = self.features(rng.random(n))
        return X, X @ self.coefficients(source) + noise * rng.standard_normal(n)

    def excess_risk(self, coef: ArrayLike, source: float) -> Any:
        """Return the mean of (w^T features(x) - f(x))^2 over x, without sampling.

        Parameters
        ----------
        coef : array_like of shape (J,) or (J, k)
            Coefficients w of one function, or of k functions.
        source : float
            Source exponent of the target f.

        Returns
        -------
        float or ndarray of shape (k,)
        """
        difference = (np.asarray(coef, dtype=float).T - self.coefficients(source)).T
        risks = self.eigenvalues @ np.square(difference)
        return float(risks) if risks.ndim == 0 else risks


def make_documents(
    n_samples: int = 2000,
    *,
    n_words: int = 400,
    n_labels: int = 20,
    random_state: Any = None,
) -> tuple[csr_array, csr_array]:
    """Draw a multi-label problem: documents as sets of words, with their labels.

    A document has 1 label plus a Poisson(1.05) number of others, about 100 words from
    the whole vocabulary, and a random half of the 25 words of each of its labels. The
    frequencies of labels and words follow Zipf distributions with exponents 0.8 and
    0.5.

    Parameters
    ----------
    n_samples : int, default=2000
        Number of documents.
    n_words : int, default=400
        Size of the vocabulary: number of columns of X.
    n_labels : int, default=20
        Number of columns of Y.
    random_state : None, int, numpy.random.Generator or numpy.random.RandomState
        Random numbers. None: new ones in each call.

    Returns
    -------
    X : scipy.sparse.csr_array of shape (n_samples, n_words)
        Binary inputs: the words of each document.
    Y : scipy.sparse.csr_array of shape (n_samples, n_labels)
        Binary outputs (int8): the labels of each document, at least one.

    Raises
    ------
    TypeError, ValueError
        If a number is not a positive integer.

    Examples
    --------
    >>> from nbsketch.datasets import make_documents
    >>> X, Y = make_documents(500, n_words=300, n_labels=10, random_state=0)
    >>> X.shape, Y.shape, int(Y.sum(axis=1).min())
    ((500, 300), (500, 10), 1)
    """
    n_samples = check_integer("n_samples", n_samples)
    n_words = check_integer("n_words", n_words)
    n_labels = check_integer("n_labels", n_labels)
    rng = random_generator(random_state)
    labels = _draw_rows(rng, 1 + rng.poisson(1.05, n_samples), _zipf(n_labels, 0.8))
    words = _draw_rows(rng, rng.poisson(_BACKGROUND, n_samples), _zipf(n_words, 0.5))
    chosen = rng.integers(n_words, size=(n_labels, _WORDS_OF_LABEL))
    vocabulary = _counts(chosen.ravel(), np.full(n_labels, _WORDS_OF_LABEL), n_words)
    named = csr_array(labels @ vocabulary)
    named.data = np.where(rng.random(named.nnz) < _KEPT, 1.0, 0.0)
    named.eliminate_zeros()
    return _binary(words + named), _binary(labels).astype(np.int8)


def _zipf(count: int, power: float) -> NDArray:
    weights = np.arange(1, count + 1) ** -power
    return weights / weights.sum()


def _draw_rows(
    rng: np.random.Generator, counts: NDArray, frequencies: NDArray
) -> csr_array:
    """Return a binary matrix; row i has counts[i] draws, repetitions merged."""
    size = len(frequencies)
    return _binary(_counts(rng.choice(size, counts.sum(), p=frequencies), counts, size))


def _counts(columns: NDArray, counts: NDArray, n_columns: int) -> csr_array:
    """Return a matrix of ones, row i with the next counts[i] of the columns."""
    pointers = np.concatenate([[0], np.cumsum(counts)])
    ones = np.ones(len(columns))
    return csr_array((ones, columns, pointers), shape=(len(counts), n_columns))


def _binary(matrix: csr_array) -> csr_array:
    rows = csr_array(matrix)
    rows.sum_duplicates()
    rows.data[:] = 1
    return rows
