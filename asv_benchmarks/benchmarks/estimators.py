"""Estimators as users call them."""

import numpy as np
from sklearn.datasets import load_digits

import nbsketch
from benchmarks.common import bandwidth_for, choose, fastest, identity, make_problem

version = identity(__file__)

N = choose(fast=10**4, regular=10**5)
ALPHA = 1e-5
COMMON = {"bandwidth": bandwidth_for(10), "random_state": 0}


class Square:
    """The square loss; alpha=None is the choice by leave-one-out."""

    params = choose(fast=[None], regular=[ALPHA, None])
    param_names = ("alpha",)

    def setup(self, alpha):
        self.X, self.y = make_problem(N)
        self.model = nbsketch.SketchedKernelRegressor(alpha=alpha, size=100, **COMMON)
        self.model.fit(self.X, self.y)

    def time_fit(self, alpha):
        self.model.fit(self.X, self.y)


class Predict:
    def setup(self):
        self.X, y = make_problem(N)
        model = nbsketch.SketchedKernelRegressor(alpha=ALPHA, size=100, **COMMON)
        self.model = model.fit(self.X, y)
        self.one_row = self.X[:1]
        self.model.predict(self.X)
        self.model.predict(self.one_row)

    def time_predict(self):
        self.model.predict(self.X)

    def time_predict_one_row(self):
        self.model.predict(self.one_row)


class Losses:
    """Other losses, one output; alpha given."""

    params = choose(
        fast=["pinball"], regular=["huber", "epsilon-insensitive", "pinball"]
    )
    param_names = ("loss",)

    def setup(self, loss):
        self.X, self.y = make_problem(N)
        self.model = nbsketch.SketchedKernelRegressor(
            loss=loss, alpha=ALPHA, size=100, **COMMON
        )
        self.model.fit(self.X, self.y)

    def time_fit(self, loss):
        self.model.fit(self.X, self.y)


class Vector:
    """Eight outputs at once."""

    params = choose(fast=["huber"], regular=["square", "huber", "epsilon-insensitive"])
    param_names = ("loss",)

    def setup(self, loss):
        self.X, self.Y = make_problem(N, n_outputs=8)
        self.model = nbsketch.SketchedKernelRegressor(
            loss=loss, alpha=ALPHA, size=100, **COMMON
        )
        self.model.fit(self.X, self.Y)

    def time_fit(self, loss):
        self.model.fit(self.X, self.Y)


class Quantiles:
    """Five levels at once."""

    def setup(self):
        self.X, self.y = make_problem(choose(fast=4000, regular=10**5))
        self.model = nbsketch.JointQuantileRegressor(alpha=1e-4, size=50, **COMMON)
        self.model.fit(self.X, self.y)

    def time_fit(self):
        self.model.fit(self.X, self.y)


class QuantilesByDefault:
    """Three levels with the default size and penalty."""

    def setup(self):
        self.X, self.y = make_problem(choose(fast=2000, regular=16_000))
        self.model = nbsketch.JointQuantileRegressor((0.1, 0.5, 0.9), **COMMON)
        self.model.fit(self.X, self.y)

    def time_fit(self):
        self.model.fit(self.X, self.y)


class Digits:
    """Ten classes of handwritten digits with the hinge loss and default settings."""

    def setup(self):
        self.X, self.y = load_digits(return_X_y=True)
        self.model = nbsketch.SketchedKernelClassifier(random_state=0)
        self.model.fit(self.X, self.y)

    def time_fit(self):
        self.model.fit(self.X, self.y)


class Memory:
    """Peak memory of a process that fits once."""

    def setup(self):
        self.X, self.y = make_problem(choose(fast=5 * 10**4, regular=10**6))
        self.model = nbsketch.SketchedKernelRegressor(alpha=ALPHA, size=100, **COMMON)
        self.model.fit(self.X[:1000], self.y[:1000])

    def peakmem_fit(self):
        self.model.fit(self.X, self.y)


class SketchedAgainstExact:
    """What a sketch of 100 rows gains in time, and what it costs in error."""

    n = choose(fast=1000, regular=10**4)

    def setup(self):
        X, y = make_problem(2 * self.n, n_features=3)
        self.X, self.y = X[: self.n], y[: self.n]
        self.X_test, self.y_test = X[self.n :], y[self.n :]
        common = {"bandwidth": bandwidth_for(3), "alpha": ALPHA, "random_state": 0}
        make = nbsketch.SketchedKernelRegressor
        self.models = [
            make(sketch="identity", **common),
            make(sketch="p-sparsified", size=100, **common),
        ]
        for model in self.models:
            model.fit(self.X[:500], self.y[:500])

    def track_speedup(self):
        exact, sketched = fastest(
            *(lambda m=m: m.fit(self.X, self.y) for m in self.models),
            repeat=choose(fast=2, regular=3),
        )
        return exact / sketched

    track_speedup.unit = "times"

    def track_error(self):
        exact, sketched = (
            np.mean((m.fit(self.X, self.y).predict(self.X_test) - self.y_test) ** 2)
            for m in self.models
        )
        return sketched / exact

    track_error.unit = "times"
