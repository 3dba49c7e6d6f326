"""Spectra and what is read off them; random Fourier features."""

import nbsketch
from benchmarks.common import bandwidth_for, choose, identity, make_rows
from nbsketch import diagnostics, explain

version = identity(__file__)


class Spectrum:
    """By landmarks, and exact where there are as many as rows."""

    # One parameter, not two: its values are pairs.
    params = (
        choose(
            fast=[(1000, 1000), (10_000, 200)],
            regular=[(2000, 2000), (10_000, 1000), (100_000, 1000)],
        ),
    )
    param_names = ("rows and landmarks",)

    def setup(self, shape):
        n, self.size = shape
        self.X = make_rows(n, 10)
        self.compute()

    def compute(self):
        return diagnostics.spectrum(
            self.X, bandwidth=bandwidth_for(10), size=self.size, random_state=0
        )

    def time_spectrum(self, shape):
        self.compute()

    def track_missing(self, shape):
        """Share of the trace that the landmarks do not find."""
        return self.compute().missing


class Satisfiability:
    """One verdict; the eigendecomposition, once for all draws, is not timed."""

    n = choose(fast=500, regular=1000)

    def setup(self):
        self.mu = diagnostics.spectrum(make_rows(self.n, 10))
        self.sketch = nbsketch.PSparsifiedSketch(200).draw(self.n, rng=0)

    def time_verdict(self):
        diagnostics.is_k_satisfiable(self.sketch, self.mu)


class Shapley:
    """Exact Shapley values of rows with 20 features."""

    n = choose(fast=100, regular=1000)

    def setup(self):
        X = make_rows(2 * self.n, 20)
        model = nbsketch.SketchedKernelRegressor(
            nbsketch.GaussianKernel(5.0), size=self.n, alpha=1e-5, random_state=0
        )
        self.X, self.model = X[: self.n], model.fit(X, X[:, 0])
        self.time_values()

    def time_values(self):
        explain.shapley_values(self.model, self.X)


class FourierFeatures:
    params = (
        choose(fast=[10**4], regular=[10**4, 10**6]),
        choose(fast=["float64"], regular=["float32", "float64"]),
    )
    param_names = ("n", "dtype")

    def setup(self, n, dtype):
        self.X = make_rows(n, 10, dtype)
        self.features = nbsketch.RandomFourierFeatures(
            bandwidth=bandwidth_for(10), size=100, random_state=0
        ).fit(self.X)

    def time_transform(self, n, dtype):
        self.features.transform(self.X)
