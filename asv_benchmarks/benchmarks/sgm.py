"""Epochs of the stochastic gradient method, in units of those of others."""

import time

import numpy as np
import sklearn
from sklearn.linear_model import SGDRegressor

import nbsketch
from benchmarks.common import bandwidth_for, choose, identity, make_problem
from nbsketch.solvers import ArrayDesign, solve_sgm

version = identity(__file__)

N = choose(fast=10**4, regular=10**5)
# Rows of the loop in numpy, which is too slow for all.
FEW = 2000


def least(*functions, repeat):
    """Return the least process time of each function over interleaved runs."""
    times = np.full(len(functions), np.inf)
    for _ in range(repeat):
        for i, function in enumerate(functions):
            start = time.process_time()
            function()
            times[i] = min(times[i], time.process_time() - start)
    return times


class Epoch:
    """One pass, batches of one row, against loops over the same features."""

    params = ("float64", "float32")
    param_names = ("dtype",)
    repeat = choose(fast=2, regular=10)

    def setup(self, dtype):
        X, y = make_problem(N)
        features = nbsketch.SketchedFeatures(
            bandwidth=bandwidth_for(10), size=100, random_state=0
        )
        Z = features.fit_transform(X.astype(dtype))
        self.Z, self.y, self.design = Z, y.astype(dtype), ArrayDesign(Z)
        self.order = np.random.default_rng(0).integers(N, size=FEW)
        self.model = SGDRegressor(penalty=None, learning_rate="constant", eta0=0.5)
        self.ours()
        self.scikit_learn()

    def ours(self, n_steps=N):
        """Draw rows and take steps; the largest norm takes one more pass over Z."""
        return solve_sgm(
            self.design, self.y, step=0.5, batch_size=1, n_steps=n_steps,
            fit_intercept=True, rng=0,
        )  # fmt: skip

    def scikit_learn(self):
        with sklearn.config_context(assume_finite=True):
            self.model.partial_fit(self.Z, self.y)

    def numpy_loop(self):
        w, b = np.zeros(self.Z.shape[1]), 0.0
        for i in self.order:
            z = self.Z[i]
            pull = 0.25 * (self.y[i] - z @ w - b)
            w += pull * z
            b += pull

    def ten_epochs(self):
        self.ours(10 * N)

    def track_against_numpy(self, dtype):
        ours, loop = least(self.ten_epochs, self.numpy_loop, repeat=self.repeat)
        return (loop / FEW) / (ours / (10 * N))

    track_against_numpy.unit = "times"

    def track_against_scikit_learn(self, dtype):
        ours, theirs = least(self.ten_epochs, self.scikit_learn, repeat=self.repeat)
        return theirs / (ours / 10)

    track_against_scikit_learn.unit = "times"

    def track_one_epoch_against_scikit_learn(self, dtype):
        """Return the ratio for a call of a single pass, norms and checks included."""
        ours, theirs = least(self.ours, self.scikit_learn, repeat=self.repeat)
        return theirs / ours

    track_one_epoch_against_scikit_learn.unit = "times"


class Estimator:
    def setup(self):
        self.X, self.y = make_problem(N)
        self.model = nbsketch.SketchedSGDRegressor(
            bandwidth=bandwidth_for(10), size=100, random_state=0
        )
        self.model.fit(self.X, self.y)

    def time_fit(self):
        self.model.fit(self.X, self.y)


class Stream:
    """A call of partial_fit with a thousand rows."""

    def setup(self):
        self.X, self.y = make_problem(1000)
        self.model = nbsketch.SketchedSGDRegressor(
            bandwidth=bandwidth_for(10), size=100, random_state=0
        )
        self.model.partial_fit(self.X, self.y)

    def time_partial_fit(self):
        self.model.partial_fit(self.X, self.y)
