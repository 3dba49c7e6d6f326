"""Learning length-scales: at a cost that does not grow with the rows."""

import nbsketch
from benchmarks.common import choose, make_problem
from nbsketch.tuning import tune


class Tune:
    params = choose(fast=[2000], regular=[10**4, 10**5])
    param_names = ("n",)

    def setup(self, n):
        self.X, self.y = make_problem(n)
        tune(self.X[:200], self.y[:200, None], size=100, rng=0)

    def time_tune(self, n):
        tune(self.X, self.y[:, None], size=100, rng=0)


class Defaults:
    """``fit(X, y)`` with nothing given."""

    params = choose(fast=[1000], regular=[1000, 10**4])
    param_names = ("n",)

    def setup(self, n):
        self.X, self.y = make_problem(n)
        self.time_fit(n)

    def time_fit(self, n):
        nbsketch.SketchedKernelRegressor(random_state=0).fit(self.X, self.y)
