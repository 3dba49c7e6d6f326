"""Other libraries on the same data; errors on the real data of scikit-learn."""

import numpy as np
from lightgbm import LGBMRegressor
from sklearn.datasets import load_diabetes, load_digits
from sklearn.kernel_approximation import Nystroem
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import HuberRegressor, QuantileRegressor, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.svm import SVR

import nbsketch
from benchmarks.common import bandwidth_for, choose, fastest, identity, make_problem

version = identity(__file__)

N, SIZE, ALPHA = choose(fast=2000, regular=8000), 100, 1e-4
BANDWIDTH = bandwidth_for(10)
GAMMA = 1 / (2 * BANDWIDTH**2)


def sketched(loss="square", **settings):
    """Return a regressor with settings that every baseline has as well."""
    settings = {"bandwidth": BANDWIDTH, "size": SIZE, "alpha": ALPHA} | settings
    return nbsketch.SketchedKernelRegressor(
        "gaussian", loss=loss, random_state=0, **settings
    )


def nystroem(model):
    """Return a linear model on as many landmarks."""
    features = Nystroem(gamma=GAMMA, n_components=SIZE, random_state=0)
    return make_pipeline(features, model)


PAIRS = {
    "KernelRidge": (
        sketched(size=None, sketch="identity"),
        KernelRidge(kernel="rbf", gamma=GAMMA, alpha=ALPHA * N),
    ),
    "Nystroem + Ridge": (sketched(), nystroem(Ridge(ALPHA * N))),
    "Nystroem + HuberRegressor": (
        sketched("huber"),
        nystroem(HuberRegressor(alpha=ALPHA, max_iter=1000)),
    ),
    "Nystroem + QuantileRegressor": (
        sketched("pinball"),
        nystroem(QuantileRegressor(alpha=ALPHA, solver="highs")),
    ),
    "SVR": (
        sketched("epsilon-insensitive"),
        SVR(gamma=GAMMA, C=1 / (ALPHA * N), epsilon=0.1),
    ),
    "LightGBM": (
        nbsketch.SketchedKernelRegressor(random_state=0),
        LGBMRegressor(n_estimators=500, verbose=-1, n_jobs=1),
    ),
}


class FitAgainst:
    """Time of a fit over that of another library, interleaved in one process."""

    params = choose(
        fast=["KernelRidge", "Nystroem + Ridge", "LightGBM"], regular=list(PAIRS)
    )
    param_names = ("baseline",)

    def setup(self, baseline):
        self.X, self.y = make_problem(N)
        self.models = PAIRS[baseline]
        for model in self.models:
            model.fit(self.X[:500], self.y[:500])

    def track_time(self, baseline):
        ours, theirs = fastest(
            *(lambda m=m: m.fit(self.X, self.y) for m in self.models),
            repeat=choose(fast=1, regular=3),
        )
        return ours / theirs

    track_time.unit = "times"


class RealErrors:
    """Errors of the default estimators on held-out rows of real data."""

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
