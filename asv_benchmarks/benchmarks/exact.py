"""The exact kernel machine: products with K, preconditioners, whole solutions."""

import numpy as np

import nbsketch
from benchmarks.common import choose, identity, make_problem, make_rows
from nbsketch.gram import SketchedColumns, SymmetricGram
from nbsketch.solvers import (
    build_preconditioner,
    solve_conjugate,
    solve_dual,
    solve_nystrom,
)

version = identity(__file__)


class Product:
    """One pass over all pairs of rows, values evaluated or read from memory."""

    params = (
        choose(fast=[7], regular=[7, 15, 60]),
        choose(fast=[0.0, 6e8], regular=[0.0, 6e8]),
        choose(fast=["float32"], regular=["float32", "float64"]),
        choose(fast=[1], regular=[1, 4]),
    )
    param_names = ("n_features", "memory", "dtype", "n_columns")
    n = choose(fast=4000, regular=12_000)

    def setup(self, n_features, memory, dtype, n_columns):
        X = make_rows(self.n, n_features, dtype)
        kernel = nbsketch.MaternKernel(3.0)
        self.K = SymmetricGram(kernel, X, dtype=dtype, memory=memory)
        self.V = np.random.default_rng(1).standard_normal((self.n, n_columns))
        self.K @ self.V

    def time_product(self, n_features, memory, dtype, n_columns):
        self.K @ self.V


class Solve:
    """Kernel ridge regression to a relative gap of 1e-3, and its two stages."""

    params = (choose(fast=[4000], regular=[8000, 16_000, 32_000]), [1e-4, 1e-5])
    param_names = ("n", "alpha")
    timeout = 300

    def setup(self, n, alpha):
        X, self.y = make_problem(n, 7)
        self.K = SymmetricGram(nbsketch.MaternKernel(2.0), X)
        self.K @ self.y
        self.preconditioner = self.build(n, alpha)

    def build(self, n, alpha):
        return build_preconditioner(self.K, n * alpha, np.random.default_rng(0))

    def time_preconditioner(self, n, alpha):
        self.build(n, alpha)

    def time_solve(self, n, alpha):
        solve_conjugate(self.K, self.y, alpha, preconditioner=self.preconditioner)

    def track_passes(self, n, alpha):
        options = {"preconditioner": self.preconditioner}
        return solve_conjugate(self.K, self.y, alpha, **options).n_iter


class Lipschitz:
    """Losses other than the square on all rows, to a relative gap of 1e-4."""

    params = (
        choose(fast=[2500], regular=[4000, 8000, 16_000]),
        choose(fast=["pinball"], regular=["pinball", "huber", "hinge", "logistic"]),
    )
    param_names = ("n", "loss")
    alpha = 1e-5
    timeout = 300

    def setup(self, n, loss):
        X, self.y = make_problem(n, 7)
        self.y = (self.y - self.y.mean()) / self.y.std()
        if loss in ("hinge", "logistic"):
            self.y = np.where(self.y > 0, 1.0, -1.0)
        self.K = SymmetricGram(nbsketch.MaternKernel(2.0), X)
        self.K @ self.y

    def solve(self, loss):
        return solve_dual(self.K, self.y, loss, self.alpha, random_state=0)

    def time_solve(self, n, loss):
        self.solve(loss)

    def track_steps(self, n, loss):
        return self.solve(loss).n_iter

    def track_gap(self, n, loss):
        return self.solve(loss).relative_gap


class Nystrom:
    """Sketches of many rows, by conjugate gradients and in closed form."""

    params = (
        choose(fast=[500], regular=[1000, 2000, 3000]),
        choose(fast=["subsampling"], regular=["subsampling", "p-sparsified"]),
    )
    param_names = ("size", "sketch")
    n = choose(fast=4000, regular=16_000)
    timeout = 300

    def setup(self, size, sketch):
        self.X, self.y = make_problem(self.n, 7)
        self.X = self.X.astype(np.float32)
        self.kernel = nbsketch.MaternKernel(2.0)
        self.recipe = {
            "subsampling": nbsketch.SubsamplingSketch(size),
            "p-sparsified": nbsketch.PSparsifiedSketch(size, density=5 / self.n),
        }[sketch]
        self.sketch = self.recipe.draw(self.n, 0)

    def iterate(self):
        Z = SketchedColumns(self.kernel, self.X, self.sketch)
        return solve_nystrom(Z, self.y, 1e-5)

    def time_conjugate_gradients(self, size, sketch):
        self.iterate()

    def time_closed_form(self, size, sketch):
        nbsketch.SpectralFilterRegressor(
            self.kernel,
            sketch=self.recipe,
            alpha=1e-5,
            preprocessing=None,
            random_state=0,
        ).fit(self.X, self.y)

    def track_passes(self, size, sketch):
        return self.iterate().n_iter


class AgainstSize:
    """Error and time against the size: closed form, sketch by passes, all rows."""

    n = choose(fast=4200, regular=16_000)
    params = (choose(fast=[200, 1100, 4200], regular=[250, 1000, 2000, 4000, 16_000]),)
    param_names = ("size",)
    timeout = 300

    def setup(self, size):
        X = make_rows(self.n + 2000, 4)
        y = np.sin(4 * X[:, 0]) * np.cos(3 * X[:, 1])  # fine structure
        y += 0.1 * np.random.default_rng(1).standard_normal(len(y))
        self.X, self.X_test = np.split(X, [self.n])
        self.y, self.y_test = np.split(y, [self.n])

    def fit(self, size):
        options = {"size": size} if size < self.n else {"sketch": "identity"}
        model = nbsketch.SketchedKernelRegressor(
            nbsketch.MaternKernel(2.0), alpha=1e-6, random_state=0, **options
        )
        return model.fit(self.X, self.y)

    def time_fit(self, size):
        self.fit(size)

    def track_error(self, size):
        error = self.fit(size).predict(self.X_test) - self.y_test
        return float(np.sqrt(np.mean(error**2)))


def reach(n, seed=0, links=8, noise=0.05):
    """Return joint angles of a planar arm, the noisy distance it reaches, and it."""
    rng = np.random.default_rng(seed)
    angles = rng.uniform(-np.pi / 2, np.pi / 2, size=(n, links))
    heading = np.cumsum(angles, axis=1)
    truth = np.hypot(np.cos(heading).sum(axis=1), np.sin(heading).sum(axis=1))
    return angles, truth + noise * truth.std() * rng.normal(size=n), truth


class BeyondExact:
    """The default of the square loss from the end of the exact machine on: an arm.

    Against sizes that are given; errors are shares of the standard deviation.
    """

    params = (
        choose(fast=[18_000], regular=[20_000, 40_000, 80_000, 160_000, 320_000]),
        choose(fast=[None], regular=[None, 1000, 2500]),
    )
    param_names = ("n", "size")
    timeout = 600

    def setup(self, n, size):
        self.X, self.y, _ = reach(n)
        self.X_test, _, self.truth = reach(4000, seed=1)

    def fit(self, size):
        model = nbsketch.SketchedKernelRegressor(size=size, random_state=0)
        return model.fit(self.X, self.y)

    def time_fit(self, n, size):
        self.fit(size)

    def track_error(self, n, size):
        error = self.fit(size).predict(self.X_test) - self.truth
        return float(np.sqrt(np.mean(error**2)) / self.truth.std())

    def track_size(self, n, size):
        return self.fit(size).size_
