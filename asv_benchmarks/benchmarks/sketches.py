"""Drawing sketches, finding the columns that matter, and multiplying K by them."""

import nbsketch
from benchmarks.common import bandwidth_for, choose, fastest, identity, make_rows
from nbsketch.gram import Gram
from nbsketch.leverage import ridge_leverage_scores

version = identity(__file__)

SIZE = 100
FAMILIES = {
    "gaussian": nbsketch.GaussianSketch,
    "rademacher": nbsketch.RademacherSketch,
    "subsampling": nbsketch.SubsamplingSketch,
    "p-sparsified, gaussian": lambda s: nbsketch.PSparsifiedSketch(s, law="gaussian"),
    "p-sparsified, p = 0.1": lambda s: nbsketch.PSparsifiedSketch(s, density=0.1),
    "accumulation": nbsketch.AccumulationSketch,
    "countsketch": nbsketch.CountSketch,
    "sparse-jl": nbsketch.SparseJLSketch,
    "srht": nbsketch.SRHTSketch,
    "srht, dct": lambda s: nbsketch.SRHTSketch(s, transform="dct"),
    "srht, fourier": lambda s: nbsketch.SRHTSketch(s, transform="fourier"),
}


class PSparsified:
    """The default recipe: time must not grow with n."""

    params = choose(fast=[10**8], regular=[10**4, 10**6, 10**8])
    param_names = ("n",)

    def setup(self, n):
        self.recipe = nbsketch.PSparsifiedSketch(SIZE)
        self.draw(n)

    def draw(self, n):
        sketch = self.recipe.draw(n, rng=0)
        return sketch.columns, sketch.weights

    def time_draw(self, n):
        self.draw(n)


class Others:
    params = choose(fast=["gaussian", "p-sparsified, p = 0.1"], regular=list(FAMILIES))
    param_names = ("recipe",)
    n = choose(fast=10**4, regular=10**6)

    def setup(self, recipe):
        self.recipe = FAMILIES[recipe](SIZE)
        self.draw()

    def draw(self):
        sketch = self.recipe.draw(self.n, rng=0)
        return sketch.columns, sketch.weights

    def time_draw(self, recipe):
        self.draw()


class Products:
    """K S^T of each sketch, in units of the same number of plain kernel values."""

    params = choose(fast=["countsketch", "srht"], regular=list(FAMILIES))
    param_names = ("recipe",)
    n = choose(fast=2000, regular=20_000)
    rows = choose(fast=2000, regular=4000)
    size = 200
    unit = "times the values of K"

    def setup(self, recipe):
        X = make_rows(self.n, 10)
        self.K = Gram(nbsketch.GaussianKernel(bandwidth_for(10)), X[: self.rows], X)
        self.sketch = FAMILIES[recipe](self.size).draw(self.n, rng=0)
        self.sums = nbsketch.CountSketch(1).draw(self.n, rng=0)
        self.product()
        self.values()

    def product(self):
        return self.K @ self.sketch.T

    def values(self):
        return self.K @ self.sums.T

    def time_product(self, recipe):
        self.product()

    def track_ratio(self, recipe):
        product, values = fastest(self.product, self.values, repeat=3)
        return product / values


class Leverage:
    """Ridge leverage scores."""

    params = choose(fast=["recursive"], regular=["exact", "recursive"])
    param_names = ("method",)
    n = choose(fast=2000, regular=5000)

    def setup(self, method):
        self.X = make_rows(self.n, 10)
        self.kernel = nbsketch.GaussianKernel(bandwidth_for(10))
        self.scores(method)

    def scores(self, method):
        return ridge_leverage_scores(
            self.X, self.kernel, 1e-4, method=method, random_state=0
        )

    def time_scores(self, method):
        self.scores(method)


class Growth:
    """Adding as many rows as there are."""

    params = choose(
        fast=["srht"], regular=["p-sparsified, p = 0.1", "gaussian", "srht"]
    )
    param_names = ("recipe",)
    n = choose(fast=10**4, regular=10**6)

    def setup(self, recipe):
        self.sketch = FAMILIES[recipe](SIZE).draw(self.n, rng=0)
        self.sketch.extend(SIZE)

    def time_extend(self, recipe):
        self.sketch.extend(SIZE)
