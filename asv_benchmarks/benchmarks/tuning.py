"""Learning length scales: time, and errors where most features are useless."""

import numpy as np

import nbsketch
from benchmarks.common import choose, identity, make_problem
from nbsketch.tuning import tune

version = identity(__file__)


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


FUNCTIONS = {
    "sine and product": lambda X: np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2],
    "steps": lambda X: 2.0 * (X[:, 0] > 0.3) + np.abs(X[:, 1]) - 0.5 * X[:, 2],
    "additive": lambda X: X[:, 0] + X[:, 1] ** 2 / 2 + np.cos(2 * X[:, 2]),
}


class UselessFeatures:
    """Root mean squared errors of defaults where 3 of many features matter."""

    params = (
        list(FUNCTIONS),
        choose(
            fast=[(1200, 50)],
            regular=[(1200, 50), (1200, 200), (8000, 100), (8000, 300), (3000, 1000)],
        ),
    )
    param_names = ("function", "rows and useless features")
    unit = "rmse"
    timeout = 600

    def setup(self, function, shape):
        n, useless = shape
        rng = np.random.default_rng([1, n, useless])
        f, q = FUNCTIONS[function], 5 + useless
        self.X, self.X_new = rng.normal(size=(n, q)), rng.normal(size=(3000, q))
        self.y, self.target = f(self.X) + 0.1 * rng.normal(size=n), f(self.X_new)

    def error(self, model, columns=slice(None)):
        model.fit(self.X[:, columns], self.y)
        residual = model.predict(self.X_new[:, columns]) - self.target
        return float(np.sqrt(np.mean(residual**2)))

    def track_all_features(self, function, shape):
        return self.error(nbsketch.SketchedKernelRegressor(random_state=0))

    def track_the_three_that_matter(self, function, shape):
        model = nbsketch.SketchedKernelRegressor(random_state=0)
        return self.error(model, slice(3))

    def track_lightgbm(self, function, shape):
        from lightgbm import LGBMRegressor

        return self.error(LGBMRegressor(n_estimators=500, verbose=-1, n_jobs=1))
