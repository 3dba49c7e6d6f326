"""From rows to features and predictions."""

import numpy as np

import nbsketch
from benchmarks.common import (
    bandwidth_for,
    choose,
    fastest,
    identity,
    make_problem,
    make_rows,
)
from nbsketch._sketch_map import SketchMap

version = identity(__file__)


class Features:
    params = (
        choose(fast=[10**4], regular=[10**4, 10**6]),
        choose(fast=["p-sparsified"], regular=["p-sparsified", "subsampling"]),
    )
    param_names = ("n", "sketch")

    def setup(self, n, sketch):
        self.X = make_rows(n, 10)
        self.transformer = nbsketch.SketchedFeatures(
            bandwidth=bandwidth_for(10), sketch=sketch, size=100, random_state=0
        )
        self.transformer.fit_transform(self.X)

    def time_fit_transform(self, n, sketch):
        self.transformer.fit_transform(self.X)

    def time_transform(self, n, sketch):
        self.transformer.transform(self.X)


class AgainstProduct:
    """Times of `predict` and `transform` relative to the product K S^T alone.

    A matrix product before each call wakes the threads of BLAS.
    """

    params = (
        choose(fast=["float64"], regular=["float32", "float64"]),
        choose(fast=["p-sparsified"], regular=["p-sparsified", "subsampling"]),
    )
    param_names = ("dtype", "sketch")
    n = choose(fast=20_000, regular=300_000)

    def setup(self, dtype, sketch):
        X, y = make_problem(20_000)
        options = {
            "bandwidth": bandwidth_for(10),
            "sketch": sketch,
            "size": 100,
            "random_state": 0,
        }
        self.model = nbsketch.SketchedKernelRegressor(alpha=1e-6, **options)
        self.model.fit(X.astype(dtype), y)
        self.features = nbsketch.SketchedFeatures(**options).fit(X.astype(dtype))
        weights = self.model.sketch_.weights
        self.product = SketchMap(self.model.kernel_, self.model.landmarks_, weights)
        self.X, self.square = make_rows(self.n, 10, dtype, seed=1), np.ones((800, 800))

    def ratio(self, function):
        def awake(call):
            def run():
                self.square @ self.square
                call(self.X)

            return run

        alone, whole = fastest(awake(self.product), awake(function), repeat=3)
        return whole / alone

    def track_predict(self, dtype, sketch):
        return self.ratio(self.model.predict)

    def track_transform(self, dtype, sketch):
        return self.ratio(self.features.transform)

    track_predict.unit = track_transform.unit = "times"


class FewRows:
    """Latency of predictions of a default model."""

    params = ([1, 10, 100],)
    param_names = ("rows",)
    n = choose(fast=2000, regular=20_000)

    def setup(self, rows):
        X, y = make_problem(self.n)
        self.model = nbsketch.SketchedKernelRegressor(random_state=0).fit(X, y)
        self.X = X[:rows]
        self.model.predict(self.X)

    def time_predict(self, rows):
        self.model.predict(self.X)
