r"""Ridge leverage scores, exact or by recursive sampling.

.. math:: \ell_i(\alpha) = \bigl[K (K + n \alpha I)^{-1}\bigr]_{ii}

Scores are in [0, 1] and sum to the effective dimension at the penalty alpha. Isolated
samples have large scores.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.linalg
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq

from nbsketch._machine.blas import eigh, threads_for
from nbsketch._report.validation import (
    check_choice,
    check_positive,
    check_rows,
    random_generator,
)
from nbsketch.kernels import Kernel, as_kernel

__all__ = ["alpha_for_dimension", "ridge_leverage_scores"]

METHODS = "auto", "exact", "recursive"
# Up to this number of samples, method="auto" computes exact scores.
_EXACT_ROWS = 1500
# Samples at the first level of the recursion; all of them are landmarks.
_FIRST_ROWS = 256
# A sample is kept as a landmark with probability (factor * score) within the recursion,
_OVERSAMPLING = 1.0
# and at its last level.
_LAST_OVERSAMPLING = 2.5
# Memory of one block of kernel values.
_BLOCK_BYTES = 16 << 20
# Number of samples to estimate the spectrum, and relative cut-off of eigenvalues.
_SPECTRUM_ROWS = 500
_SPECTRUM_FLOOR = 1e-12


def ridge_leverage_scores(
    X: ArrayLike,
    kernel: Any,
    alpha: float,
    *,
    method: str = "auto",
    random_state: Any = None,
) -> NDArray:
    r"""Return the ridge leverage scores of the samples X.

    .. math:: \ell_i(\alpha) = \bigl[K (K + n \alpha I)^{-1}\bigr]_{ii}

    Parameters
    ----------
    X : array_like or sparse array of shape (n, q)
        Samples.
    kernel : Kernel, str or callable
        Kernel object, name of a kernel (with the median bandwidth) or function
        ``k(X, Y)``.
    alpha : float
        Penalty (> 0); the ridge is n alpha.
    method : {"auto", "exact", "recursive"}, default="auto"
        "exact" inverts :math:`K + n \alpha I` in :math:`n^3` time and :math:`n^2`
        memory. "recursive" samples landmarks on nested subsets, each twice as large as
        the previous one, without forming K. It keeps of the order of d log d landmarks,
        where d is the effective dimension; m landmarks take :math:`n m^2` time. "auto":
        "exact" for at most 1500 samples, else "recursive".
    random_state : None, int or Generator, default=None
        Random numbers of the recursion and of the median bandwidth. Pass an int for
        reproducible results.

    Returns
    -------
    ndarray of shape (n,)
        Scores. With "recursive", at least 90 % are within a factor of 2 of the exact
        scores.

    Raises
    ------
    ValueError
        If `alpha` is so small that :math:`K + n \alpha I` is numerically singular.

    Notes
    -----
    For landmarks J kept with probabilities p, the estimate is

    .. math:: \frac{1}{n \alpha} \bigl(k_{ii} - k_{iJ}
        (K_{JJ} + n \alpha \operatorname{diag}(p))^{-1} k_{Ji}\bigr)

    C. Musco and C. Musco, "Recursive sampling for the Nystrom method", NeurIPS 2017,
    section 3 (algorithm 2) and lemma 6.

    Examples
    --------
    >>> import numpy as np
    >>> from nbsketch.leverage import ridge_leverage_scores
    >>> x = np.append(np.linspace(0, 1, 99), 5.0)[:, None]  # the last row is isolated
    >>> scores = ridge_leverage_scores(x, "gaussian", alpha=1e-3)
    >>> print(f"{scores.argmax()} {scores[-1]:.2f} {np.median(scores):.2f}")
    99 0.91 0.04
    """
    rows = check_rows("X", X).astype(np.float64, copy=False)
    check_choice("method", method, METHODS)
    rng = random_generator(random_state)
    problem = _RegularizedGram.of(rows, as_kernel(kernel).resolve(rows, rng), alpha)
    if method == "exact" or (method == "auto" and problem.n <= _EXACT_ROWS):
        return problem.exact()
    return problem.recursive(rng)


def alpha_for_dimension(
    X: ArrayLike, kernel: Any, dimension: float, *, random_state: Any = None
) -> float:
    r"""Return the penalty with an effective dimension of about `dimension`.

    Solves :math:`\sum_j \mu_j / (\mu_j + \alpha) = \text{dimension}`, where
    :math:`\mu_j` are the eigenvalues of K/n, estimated on a random subset of at most
    max(500, 4 dimension) samples.

    Parameters
    ----------
    X : array_like or sparse array of shape (n, q)
        Samples.
    kernel : Kernel, str or callable
        Kernel object, name of a kernel (with the median bandwidth) or function
        ``k(X, Y)``.
    dimension : float
        Effective dimension (> 0).
    random_state : None, int or Generator, default=None
        Random numbers of the subset and of the median bandwidth.

    Returns
    -------
    float
        Penalty. If no penalty reaches `dimension`, 1e-12 times the largest eigenvalue.

    Examples
    --------
    >>> import numpy as np
    >>> from nbsketch.leverage import alpha_for_dimension, ridge_leverage_scores
    >>> X = np.random.default_rng(0).normal(size=(300, 2))
    >>> alpha = alpha_for_dimension(X, "gaussian", 10)
    >>> round(float(ridge_leverage_scores(X, "gaussian", alpha).sum()), 6)
    10.0
    """
    rows = check_rows("X", X).astype(np.float64, copy=False)
    dimension = check_positive("dimension", dimension)
    rng = random_generator(random_state)
    resolved = as_kernel(kernel).resolve(rows, rng)
    size = min(rows.shape[0], max(_SPECTRUM_ROWS, int(4 * dimension)))
    chosen = rng.choice(rows.shape[0], size, replace=False)
    values = eigh(_block(rows, resolved, chosen, chosen))[0] / size
    least = _SPECTRUM_FLOOR * max(values[-1], np.finfo(float).tiny)
    values = values[values > least]

    def excess(log_alpha: float) -> float:
        return float(np.sum(values / (values + np.exp(log_alpha)))) - dimension

    if values.size == 0 or excess(np.log(least)) <= 0:
        return float(least)
    most = np.log(values.sum() / dimension)  # the dimension is below trace / alpha
    return float(np.exp(brentq(excess, np.log(least), most + 1)))


class _RegularizedGram(NamedTuple):
    """Samples, kernel, ridge n alpha and the diagonal of K."""

    rows: Any
    kernel: Kernel
    ridge: float
    diagonal: NDArray

    @classmethod
    def of(cls, rows: Any, kernel: Kernel, alpha: float) -> _RegularizedGram:
        ridge = rows.shape[0] * check_positive("alpha", alpha)
        return cls(rows, kernel, ridge, kernel.diag(rows).astype(np.float64))

    @property
    def n(self) -> int:
        return self.rows.shape[0]

    def exact(self) -> NDArray:
        """Return 1 - ridge [(K + ridge I)^{-1}]_ii, by inverting a Cholesky factor."""
        matrix = np.array(self.kernel(self.rows), dtype=np.float64)
        with threads_for(self.n**3):
            factor = self._factor(matrix, np.ones(self.n))
            inverse, _ = scipy.linalg.lapack.dtrtri(factor, lower=1, overwrite_c=1)
        return self._within_bounds(
            1 - self.ridge * np.einsum("ij,ij->j", inverse, inverse)
        )

    def recursive(self, rng: np.random.Generator) -> NDArray:
        """Return the scores estimated from the landmarks of the last level."""
        n = self.n
        order = rng.permutation(n)
        size = min(n, _FIRST_ROWS)
        landmarks = order[:size]
        kept = np.ones(size)
        while size < n:
            size = min(2 * size, n)
            factor = _OVERSAMPLING if size < n else _LAST_OVERSAMPLING
            shares = factor * self._estimate(order[:size], landmarks, kept)
            chosen = rng.random(size) < shares
            landmarks = order[:size][chosen]
            kept = np.minimum(shares[chosen], 1.0)
        return self._estimate(np.arange(n), landmarks, kept)

    def _estimate(self, index: NDArray, landmarks: NDArray, kept: NDArray) -> NDArray:
        """Return the scores of the samples `index`, estimated from the landmarks.

        `kept` are the probabilities with which the landmarks were kept.
        """
        scores = np.empty(index.size)
        m = landmarks.size
        if m == 0:
            return self._within_bounds(self.diagonal[index] / self.ridge, index)
        data = self.rows, self.kernel
        with threads_for(float(m) ** 2 * index.size):
            factor = self._factor(_block(*data, landmarks, landmarks), kept)
            step = max(64, _BLOCK_BYTES // (8 * m))
            for start in range(0, index.size, step):
                rows = index[start : start + step]
                values = _block(*data, rows, landmarks).T
                part = scipy.linalg.solve_triangular(
                    factor, values, lower=True, overwrite_b=True, check_finite=False
                )
                explained = np.einsum("ij,ij->j", part, part)
                scores[start : start + step] = self.diagonal[rows] - explained
        return self._within_bounds(scores / self.ridge, index)

    def _factor(self, matrix: NDArray, weights: NDArray) -> NDArray:
        """Return the Cholesky factor of matrix + ridge diag(weights); overwrites it."""
        matrix[np.diag_indices(len(matrix))] += self.ridge * weights
        try:
            return scipy.linalg.cholesky(matrix.T, lower=True, overwrite_a=True)
        except np.linalg.LinAlgError:
            raise ValueError(
                "`alpha` must be large enough for K + n alpha I to be numerically "
                f"positive definite, got {self.ridge / self.n}: increase it"
            ) from None

    def _within_bounds(self, scores: NDArray, index: Any = slice(None)) -> NDArray:
        """Clip scores to the bounds implied by the diagonal of K."""
        own = self.diagonal[index]
        least = own / (self.diagonal.sum() + self.ridge)
        return np.clip(scores, least, own / (own + self.ridge))


def _block(rows: Any, kernel: Kernel, index: NDArray, landmarks: NDArray) -> NDArray:
    """Return the block (index, landmarks) of K as a new float64 array."""
    return np.array(kernel(rows[index], kernel.take(rows, landmarks)), dtype=np.float64)
