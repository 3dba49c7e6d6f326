"""The exact kernel machine: products with K, preconditioners, whole solutions."""

import numpy as np

import nbsketch
from benchmarks.common import choose, make_rows
from nbsketch.gram import SymmetricGram


class Product:
    """One pass over all pairs of rows, values evaluated or read from memory."""

    params = (
        choose(fast=[7], regular=[7, 15, 60]),
        choose(fast=[0.0, 6e8], regular=[0.0, 6e8]),
        choose(fast=["float32"], regular=["float32", "float64"]),
        choose(fast=[1], regular=[1, 4]),
    )
    param_names = ("n_features", "memory", "dtype", "n_columns")
    n = choose(fast=4000, regular=12_000)

    def setup(self, n_features, memory, dtype, n_columns):
        X = make_rows(self.n, n_features, dtype)
        kernel = nbsketch.MaternKernel(3.0)
        self.K = SymmetricGram(kernel, X, dtype=dtype, memory=memory)
        self.V = np.random.default_rng(1).standard_normal((self.n, n_columns))
        self.K @ self.V

    def time_product(self, n_features, memory, dtype, n_columns):
        self.K @ self.V
