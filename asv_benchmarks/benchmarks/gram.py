"""The product K S^T: time, memory, and the gain over the separate steps."""

import tracemalloc

import numpy as np
import scipy.sparse as sp

import nbsketch
from benchmarks.common import bandwidth_for, choose, fastest, identity, make_rows
from nbsketch.gram import Gram

version = identity(__file__)

SIZE = 100
KERNELS = {
    "gaussian": nbsketch.GaussianKernel,
    "laplacian": nbsketch.LaplacianKernel,
    "matern": nbsketch.MaternKernel,
    "polynomial": lambda width: nbsketch.PolynomialKernel(scale=1 / width**2),
    "tanimoto": lambda width: nbsketch.TanimotoKernel(),
}


class Product:
    """Base: ``self.product()`` is K S^T."""

    recipe = nbsketch.PSparsifiedSketch(SIZE)

    def prepare(self, n, n_features=10, dtype="float64", kernel="gaussian"):
        self.X = make_rows(n, n_features, dtype)
        self.kernel = KERNELS[kernel](bandwidth_for(n_features))
        self.sketch = self.recipe.draw(n, rng=0)
        self.product()

    def product(self):
        return Gram(self.kernel, self.X) @ self.sketch.T


class Gaussian(Product):
    params = (
        choose(fast=[10**4], regular=[10**4, 10**5, 10**6]),
        [10, 280],
        choose(fast=["float32"], regular=["float32", "float64"]),
    )
    param_names = ("n", "n_features", "dtype")

    def setup(self, n, n_features, dtype):
        self.prepare(n, n_features, dtype)

    def time_product(self, n, n_features, dtype):
        self.product()


class Kernels(Product):
    params = choose(
        fast=["matern"], regular=["laplacian", "matern", "polynomial", "tanimoto"]
    )
    param_names = ("kernel",)
    n = choose(fast=10**4, regular=10**5)

    def setup(self, kernel):
        self.prepare(self.n, kernel=kernel)

    def time_product(self, kernel):
        self.product()


class DenseSketch(Product):
    """A sketch without zeros needs all columns, by tiles."""

    recipe = nbsketch.GaussianSketch(SIZE)
    n = choose(fast=2000, regular=20_000)

    def setup(self):
        self.prepare(self.n)

    def time_product(self):
        self.product()


class FusedAgainstSeparate(Product):
    """How many times faster than scikit-learn's kernel and a dense product."""

    params = (
        choose(fast=[10], regular=[10, 280]),
        choose(fast=["float64"], regular=["float32", "float64"]),
    )
    param_names = ("n_features", "dtype")
    n = 10**4
    unit = "times"

    def setup(self, n_features, dtype):
        self.prepare(self.n, n_features, dtype)

    def track_ratio(self, n_features, dtype):
        from sklearn.metrics.pairwise import rbf_kernel

        gamma = 0.5 / bandwidth_for(n_features) ** 2
        weights = self.sketch.weights.toarray().T.astype(dtype)
        landmarks = self.X[self.sketch.columns]

        def separate():
            return rbf_kernel(self.X, landmarks, gamma=gamma) @ weights

        repeat = choose(fast=3, regular=20)
        fused_time, separate_time = fastest(self.product, separate, repeat=repeat)
        return separate_time / fused_time


class Sparse:
    """Sparse rows: the product, and the gain over SciPy's product and NumPy's exp."""

    params = (
        choose(fast=[70], regular=[10, 70]),
        choose(fast=["float64"], regular=["float32", "float64"]),
    )
    param_names = ("per_row", "dtype")
    n = choose(fast=2000, regular=20_000)
    n_features, n_landmarks = 2000, 2000
    kernel = nbsketch.GaussianKernel(8.0)

    def setup(self, per_row, dtype):
        rng = np.random.default_rng(0)
        # Few features are frequent and most are rare, as words are.
        share = 1 / np.arange(20, self.n_features + 20)
        share = np.minimum(share * per_row / share.sum(), 1)
        columns = [rng.random(self.n) < p for p in share]
        self.X = sp.csr_array(np.column_stack(columns), dtype=dtype)
        self.landmarks = self.X[: self.n_landmarks]
        self.sketch = nbsketch.PSparsifiedSketch(SIZE).draw(self.n_landmarks, rng=0)
        self.product()

    def product(self):
        return Gram(self.kernel, self.X, self.landmarks) @ self.sketch.T

    def separate(self):
        norms, norms_l = (
            rows.multiply(rows).sum(axis=1) for rows in (self.X, self.landmarks)
        )
        squares = -2 * (self.X @ self.landmarks.T).toarray()
        squares += norms[:, None] + norms_l
        values = np.exp(squares / (-2 * self.kernel.bandwidth**2))
        return values @ self.sketch.to_csr().T

    def time_product(self, per_row, dtype):
        self.product()

    def track_ratio(self, per_row, dtype):
        fused_time, separate_time = fastest(self.product, self.separate, repeat=3)
        return separate_time / fused_time

    track_ratio.unit = "times"


class Memory(Product):
    """Memory beyond the result: it must not grow with n."""

    params = choose(fast=[10**5], regular=[10**4, 10**5, 10**6])
    param_names = ("n",)
    unit = "MB"

    def setup(self, n):
        self.prepare(n)

    def track_extra_memory(self, n):
        tracemalloc.start()
        result = self.product()
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return (peak - result.nbytes) / 1e6
