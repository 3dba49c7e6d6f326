"""Random Fourier features: a kernel of differences as a mean of waves."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import (
    BaseEstimator,
    ClassNamePrefixFeaturesOutMixin,
    TransformerMixin,
)
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from nbsketch._validation import check_integer, keeping_fitted, random_generator
from nbsketch.features import BLOCK_BYTES, checked_rows
from nbsketch.kernels import (
    GaussianKernel,
    Kernel,
    LaplacianKernel,
    MaternKernel,
    as_kernel,
)
from nbsketch.persistence import SaveMixin


class RandomFourierFeatures(
    SaveMixin, ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator
):
    r"""Features whose inner products approximate a kernel of differences at random.

    .. math:: z(x) = \sqrt{2 / D} \, \bigl(\cos w_1^T x, \dots, \cos w_{D/2}^T x,
        \sin w_1^T x, \dots, \sin w_{D/2}^T x\bigr)

    with D/2 independent frequencies w from the spectral density of the kernel, so that
    :math:`E[z(x)^T z(y)] = k(x, y)`.

    Parameters
    ----------
    kernel : {"gaussian", "laplacian", "matern"} or Kernel
        A kernel of one of these three families, by name or as an object.
    bandwidth : float, sequence of floats or "median", optional
        Bandwidth of a kernel that is given by name; "median" by default.
    size : int
        Number of features D; even, since they come in pairs.
    random_state : None, int or Generator
        The same number gives the same features.

    Attributes
    ----------
    kernel_ : Kernel
        The kernel with its bandwidth set.
    frequencies_ : ndarray of shape (q, D/2)
        The frequencies, one in each column.

    Notes
    -----
    Rahimi and Recht, NeurIPS 2007. In units of the bandwidth of each feature the
    frequencies are standard normal for the Gaussian kernel, independent Cauchy for the
    Laplacian one, and multivariate Student with 2 nu degrees of freedom for the Matern
    one (Rasmussen and Williams 2006, section 4.2.1).

    Pairs of cosine and sine, not cosines with random phases: z(x) has length 1, and the
    variance of an inner product, :math:`(1 + k(2 \Delta) - 2 k(\Delta)^2) / D` at the
    difference :math:`\Delta`, is smaller for all of these kernels (Sutherland and
    Schneider, UAI 2015).

    The features look at no data but to set a median bandwidth: the comparator of the
    sketches, which do.

    Examples
    --------
    >>> import numpy as np
    >>> from nbsketch import GaussianKernel, RandomFourierFeatures
    >>> X = np.random.default_rng(0).normal(size=(50, 2))
    >>> features = RandomFourierFeatures(bandwidth=2.0, size=4000, random_state=0)
    >>> Z = features.fit_transform(X)
    >>> bool(abs(Z @ Z.T - GaussianKernel(2.0)(X)).max() < 0.1)
    True
    """

    def __init__(
        self,
        kernel: Any = "gaussian",
        *,
        bandwidth: Any = None,
        size: int = 100,
        random_state: Any = None,
    ) -> None:
        self.kernel = kernel
        self.bandwidth = bandwidth
        self.size = size
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: Any = None) -> RandomFourierFeatures:
        """Draw the frequencies; y is ignored."""
        with keeping_fitted(self):
            self._fit(checked_rows(self, X, reset=True))
        return self

    def _fit(self, X: Any) -> None:
        size = check_integer("size", self.size, low=2)
        if size % 2:
            raise ValueError(f"`size` must be even, for pairs of features, got {size}")
        kernel: Any = as_kernel(self.kernel, self.bandwidth)
        # Two streams, so that a given bandwidth does not change the directions.
        kernel_rng, rng = random_generator(self.random_state).spawn(2)
        unit = _unit_frequencies(kernel, rng, (size // 2, X.shape[1]))
        self.kernel_ = kernel.resolve(X, kernel_rng)
        frequencies = (unit / self.kernel_.bandwidth).T
        self.frequencies_ = np.ascontiguousarray(frequencies, dtype=X.dtype)
        self._n_features_out = size

    def transform(self, X: ArrayLike) -> NDArray:
        """Return the features of the rows of X, of shape (n, D), block by block."""
        check_is_fitted(self)
        W = self.frequencies_
        rows = checked_rows(self, X, dtype=W.dtype)
        n, half = rows.shape[0], W.shape[1]
        Z = np.empty((n, 2 * half), dtype=W.dtype)
        length = max(64, BLOCK_BYTES // (W.itemsize * half))
        for start in range(0, n, length):
            block = slice(start, start + length)
            phases = rows[block] @ W
            np.cos(phases, out=Z[block, :half])
            np.sin(phases, out=Z[block, half:])
        Z *= 1 / math.sqrt(half)
        return Z

    def __sklearn_tags__(self) -> Tags:
        """Say what the transformer can do."""
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def _unit_frequencies(
    kernel: Kernel, rng: np.random.Generator, shape: tuple[int, int]
) -> NDArray:
    """Return frequencies of a kernel of unit bandwidths, one in each row."""
    if isinstance(kernel, LaplacianKernel):
        return rng.standard_cauchy(shape)
    if isinstance(kernel, GaussianKernel):
        return rng.standard_normal(shape)
    if isinstance(kernel, MaternKernel):
        normal = rng.standard_normal(shape)
        if math.isinf(kernel.nu):
            return normal
        # a mean of 2 nu squares of normal numbers, one for each row
        shared = rng.standard_gamma(kernel.nu, (len(normal), 1)) / kernel.nu
        return normal / np.sqrt(shared)
    raise ValueError(
        "`kernel` must be Gaussian, Laplacian or Matern to have random Fourier "
        f"features, got {kernel!r}"
    )
