"""A path of 50 parameters of a spectral filter, in units of one ridge regression."""

import nbsketch
from benchmarks.common import bandwidth_for, choose, fastest, identity, make_problem

version = identity(__file__)

N = choose(fast=5000, regular=20_000)
SIZE = choose(fast=100, regular=300)


class Path:
    params = (
        ["ridge", "iterated-ridge", "cutoff", "landweber"],
        ["gcv", "leave-one-out"],
    )
    param_names = ("filter", "criterion")

    def setup(self, filter, criterion):
        self.X, self.y = make_problem(N)
        common = {"bandwidth": bandwidth_for(10), "size": SIZE, "random_state": 0}
        self.path = nbsketch.SpectralFilterRegressor(
            filter=filter, criterion=criterion, **common
        )
        self.ridge = nbsketch.SketchedKernelRegressor(alpha=1e-5, **common)
        for model in (self.path, self.ridge):
            model.fit(self.X[:500], self.y[:500])

    def track_fits_of_ridge(self, filter, criterion):
        path, ridge = fastest(
            lambda: self.path.fit(self.X, self.y),
            lambda: self.ridge.fit(self.X, self.y),
            repeat=choose(fast=2, regular=5),
        )
        return path / ridge

    track_fits_of_ridge.unit = "fits"
