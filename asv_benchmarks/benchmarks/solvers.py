"""Solvers on given features; for one output in units of the time of Z^T Z."""

from functools import partial

import numpy as np

import nbsketch
from benchmarks.common import bandwidth_for, choose, fastest, identity, make_problem
from nbsketch.losses import LOSSES
from nbsketch.solvers import (
    solve_generic,
    solve_joint_pinball,
    solve_radial,
    solve_scalar,
)

version = identity(__file__)

SIZES = choose(fast=[10**4], regular=[10**5, 10**6])
RANK = 100


class Solver:
    """Base: makes features."""

    def make_features(self, n, n_outputs=1, rank=RANK):
        X, self.Y = make_problem(n, n_outputs=n_outputs)
        transformer = nbsketch.SketchedFeatures(
            bandwidth=bandwidth_for(10), size=rank, random_state=0
        )
        self.Z = transformer.fit_transform(X)


class Scalar(Solver):
    unit = "Gram times"
    params = (
        SIZES,
        choose(fast=["pinball", "logistic"], regular=list(LOSSES)),
        choose(fast=[1e-4], regular=[1e-4, 1e-8]),
    )
    param_names = ("n", "loss", "alpha")

    def setup(self, n, loss, alpha):
        self.make_features(n)
        if LOSSES[loss].is_classification:
            self.Y = np.where(self.Y > 0, 1.0, -1.0)
        self.solve(loss, alpha)

    def solve(self, loss, alpha):
        return solve_scalar(self.Z, self.Y, loss, alpha)

    def track_gram_times(self, n, loss, alpha):
        def gram():
            return self.Z.T @ self.Z

        solve = partial(self.solve, loss, alpha)
        solve_time, gram_time = fastest(solve, gram, repeat=choose(fast=2, regular=5))
        return solve_time / gram_time


class Generic(Scalar):
    """The solvers of losses given by code: L-BFGS (smooth) and ADMM (kinks)."""

    params = (
        choose(fast=[10**4], regular=[10**5]),
        choose(fast=["huber"], regular=["huber", "logistic", "pinball"]),
        [1e-4],
    )

    def solve(self, loss, alpha):
        return solve_generic(self.Z, self.Y, loss, alpha)


class Joint(Solver):
    """Five quantile levels."""

    params = choose(fast=[2000], regular=[5000, 50_000])
    param_names = ("n",)
    levels = (0.1, 0.3, 0.5, 0.7, 0.9)

    def setup(self, n):
        self.make_features(n, rank=50)
        self.factor = nbsketch.QuantileOutput(self.levels).factor(len(self.levels))
        self.solve()

    def solve(self):
        return solve_joint_pinball(self.Z, self.Y, self.levels, self.factor, 1e-4)

    def time_solve(self, n):
        self.solve()


class Radial(Solver):
    """Sixteen outputs, losses of the norm of the residual."""

    params = (
        choose(fast=[4000], regular=[10**4, 10**5]),
        choose(fast=["huber"], regular=["huber", "epsilon-insensitive"]),
    )
    param_names = ("n", "loss")

    def setup(self, n, loss):
        self.make_features(n, n_outputs=16)
        self.solve(loss)

    def solve(self, loss):
        return solve_radial(self.Z, self.Y, loss, np.eye(16), 1e-4)

    def time_solve(self, n, loss):
        self.solve(loss)
