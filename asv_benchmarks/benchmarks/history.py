"""The same tasks at every commit: what the first version could do, still the same call.

Processor time, so that other work on the machine changes little. Settings whose
defaults have changed are given, except in `Defaults`, which follows the defaults.
"""

import os
import subprocess
import sys
import tempfile
import time

import numpy as np
from sklearn.datasets import load_diabetes, load_digits

import nbsketch
from benchmarks.common import bandwidth_for, choose, identity, make_problem, make_rows
from nbsketch.gram import Gram

version = identity(__file__)

N = choose(fast=2000, regular=20_000)
GIVEN = {
    "bandwidth": bandwidth_for(10),
    "sketch": "p-sparsified",
    "size": 100,
    "random_state": 0,
}
FIRST_FIT = """
import numpy as np
from nbsketch import SketchedKernelRegressor
X = np.random.default_rng(0).normal(size=(3000, 5))
SketchedKernelRegressor(random_state=0).fit(X, X[:, 0]).predict(X)
"""


class Timed:
    """Base: processor time, median of five runs after a first one."""

    timer = time.process_time
    number = 1
    repeat = 5
    rounds = 1
    warmup_time = 0.0
    timeout = 600


class Product(Timed):
    """The product of a Gram matrix and a p-sparsified sketch."""

    def setup(self):
        X = make_rows(N, 10)
        sketch = nbsketch.PSparsifiedSketch(100).draw(N, rng=0)
        self.gram = Gram(nbsketch.GaussianKernel(bandwidth_for(10)), X)
        self.transposed = sketch.T
        self.time_product()

    def time_product(self):
        self.gram @ self.transposed


class Fit(Timed):
    """Fits with a given bandwidth, sketch and penalty."""

    params = ("square", "huber", "pinball", "epsilon-insensitive")
    param_names = ("loss",)

    def setup(self, loss):
        self.X, self.y = make_problem(N)
        self.model = nbsketch.SketchedKernelRegressor(loss=loss, alpha=1e-5, **GIVEN)
        self.model.fit(self.X, self.y)

    def time_fit(self, loss):
        self.model.fit(self.X, self.y)


class Quantiles(Timed):
    """Three levels with a given bandwidth, sketch and penalty."""

    def setup(self):
        self.X, self.y = make_problem(N)
        self.model = nbsketch.JointQuantileRegressor(
            (0.1, 0.5, 0.9), alpha=1e-4, tol=1e-4, **GIVEN
        )
        self.model.fit(self.X, self.y)

    def time_fit(self):
        self.model.fit(self.X, self.y)


class Predict(Timed):
    def setup(self):
        self.X, y = make_problem(N)
        self.model = nbsketch.SketchedKernelRegressor(alpha=1e-5, **GIVEN)
        self.model.fit(self.X, y)
        self.model.predict(self.X)

    def time_predict(self):
        self.model.predict(self.X)


class Defaults(Timed):
    """`fit` without settings on smooth targets with heavy-tailed noise."""

    rows = choose(fast=1000, regular=8000)

    def setup(self):
        X, y = make_problem(2 * self.rows)
        self.X, self.X_test, self.y = X[::2], X[1::2], y[::2]
        directions = np.random.default_rng(1).normal(size=(10, 1)) / np.sqrt(10)
        self.truth = np.sin(2 * self.X_test @ directions)[:, 0]
        self.model = nbsketch.SketchedKernelRegressor(random_state=0)
        self.model.fit(self.X, self.y)

    def time_fit(self):
        self.model.fit(self.X, self.y)

    def track_error(self):
        """Share of the variance of the noiseless targets that is not explained."""
        return 1 - float(
            np.corrcoef(self.model.predict(self.X_test), self.truth)[0, 1] ** 2
        )

    track_error.unit = "share of variance"


class RealErrors:
    """Default estimators on every other row of real data."""

    timeout = 600

    def track_diabetes(self):
        X, y = load_diabetes(return_X_y=True)
        model = nbsketch.SketchedKernelRegressor(random_state=0).fit(X[::2], y[::2])
        return float(np.std(model.predict(X[1::2]) - y[1::2]) / np.std(y[1::2]))

    track_diabetes.unit = "standard deviations"

    def track_digits(self):
        X, y = load_digits(return_X_y=True)
        model = nbsketch.SketchedKernelClassifier(random_state=0).fit(X[::2], y[::2])
        return 1 - model.score(X[1::2], y[1::2])

    track_digits.unit = "share wrong"


class FirstFit:
    """The first fit and prediction of a new process, by processor time."""

    unit = "seconds"
    timeout = 600

    def setup_cache(self):
        with tempfile.TemporaryDirectory() as folder:
            cold = self.seconds(folder)
            warm = min(self.seconds(folder) for _ in range(3))
        return {"cold": cold, "warm": warm}

    def seconds(self, folder):
        before = os.times()
        environment = {**os.environ, "NUMBA_CACHE_DIR": folder}
        subprocess.run([sys.executable, "-c", FIRST_FIT], env=environment, check=True)
        after = os.times()
        return sum(
            getattr(after, name) - getattr(before, name)
            for name in ("children_user", "children_system")
        )

    def track_without_cache(self, seconds):
        return seconds["cold"]

    def track_with_cache(self, seconds):
        return seconds["warm"]
