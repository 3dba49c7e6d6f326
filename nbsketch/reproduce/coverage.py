"""Coverage of conformal intervals over many draws, beside MAPIE where it has a method.

Not from a paper. Kernel, bandwidth and penalty are fixed, so that a draw takes
milliseconds and the guarantees hold as they are stated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nbsketch.conformal import ConformalRegressor
from nbsketch.estimators.quantile import JointQuantileRegressor
from nbsketch.estimators.regressor import SketchedKernelRegressor
from nbsketch.kernels import GaussianKernel
from nbsketch.losses import PinballLoss
from nbsketch.reproduce._report import Row
from nbsketch.reproduce.experiment import Experiment

COVERAGES = 0.8, 0.9, 0.95
# Rows of training and of test in each draw, and rows of one update.
_ROWS, _TEST_ROWS, _BATCH = 200, 500, 25
FIXED: dict[str, Any] = {
    "kernel": GaussianKernel(1.0),
    "alpha": 1e-3,
    "size": 40,
    "random_state": 0,
}


class Draw(NamedTuple):
    """Rows of training and test of one draw, with groups and weights if any."""

    X: NDArray
    y: NDArray
    X_test: NDArray
    y_test: NDArray
    groups: NDArray | None = None
    weights: NDArray | None = None


class Setting(NamedTuple):
    """A law of rows, the method for it, and its name in MAPIE."""

    draw: Callable[[np.random.Generator], Draw]
    method: str
    in_mapie: str | None = None
    updates: bool = False


def _split(X: NDArray, y: NDArray, *others: NDArray | None) -> Draw:
    return Draw(X[:_ROWS], y[:_ROWS], X[_ROWS:], y[_ROWS:], *others)


def _smooth(X: NDArray) -> NDArray:
    return np.sin(2 * X[:, 0]) + X[:, 1]


def _rows(rng: np.random.Generator) -> tuple[NDArray, NDArray]:
    n = _ROWS + _TEST_ROWS
    return rng.uniform(-2, 2, size=(n, 2)), rng.normal(size=n)


def exchangeable(rng: np.random.Generator) -> Draw:
    """Noise of one size."""
    X, noise = _rows(rng)
    return _split(X, _smooth(X) + 0.3 * noise)


def heteroscedastic(rng: np.random.Generator) -> Draw:
    """Noise that grows with a feature."""
    X, noise = _rows(rng)
    return _split(X, _smooth(X) + 0.2 * (2.1 + X[:, 0]) * noise)


def skewed(rng: np.random.Generator) -> Draw:
    """Exponential noise."""
    X, _ = _rows(rng)
    return _split(X, _smooth(X) + rng.exponential(size=len(X)))


def outlying(rng: np.random.Generator) -> Draw:
    """One row in fifty has noise 30 times as large."""
    X, noise = _rows(rng)
    size = np.where(rng.random(len(X)) < 0.02, 9.0, 0.3)
    return _split(X, _smooth(X) + size * noise)


def grouped(rng: np.random.Generator) -> Draw:
    """Three groups with noise of 0.1, 0.3 and 0.9."""
    X, noise = _rows(rng)
    groups = rng.integers(3, size=len(X))
    return _split(X, _smooth(X) + 0.1 * 3.0**groups * noise, groups)


def shifted(rng: np.random.Generator) -> Draw:
    """Draw more new rows where the first feature, and with it the noise, is larger."""
    draw = heteroscedastic(rng)
    share = (2 + draw.X_test[:, 0]) / 4
    kept = rng.random(len(share)) < share
    test = draw.X_test[kept], draw.y_test[kept]
    everyone = np.concatenate([draw.X[:, 0], test[0][:, 0]])
    return Draw(draw.X, draw.y, *test, None, (2 + everyone) / 4)


def drifting(rng: np.random.Generator) -> Draw:
    """Noise that grows fivefold with time."""
    X, noise = _rows(rng)
    return _split(X, _smooth(X) + np.linspace(0.2, 1.0, len(X)) * noise)


def vectors(rng: np.random.Generator) -> Draw:
    """Three outputs with noise of 0.1, 0.3 and 0.9."""
    X, _ = _rows(rng)
    noise = rng.normal(size=(len(X), 3)) * [0.1, 0.3, 0.9]
    return _split(X, _smooth(X)[:, None] + noise)


SETTINGS = {
    "exchangeable": Setting(exchangeable, "split", "split"),
    "exchangeable, cv+": Setting(exchangeable, "cv+", "cv+"),
    "exchangeable, jackknife+": Setting(exchangeable, "jackknife+", "jackknife+"),
    "heteroscedastic": Setting(heteroscedastic, "split", "split"),
    "heteroscedastic, cqr": Setting(heteroscedastic, "cqr", "cqr"),
    "skewed, cqr": Setting(skewed, "cqr", "cqr"),
    "outliers": Setting(outlying, "split", "split"),
    "groups": Setting(grouped, "split"),
    "covariate shift": Setting(shifted, "split"),
    "drift": Setting(drifting, "split", updates=True),
    "several outputs": Setting(vectors, "split"),
}


def points(
    replicates: int, quick: bool, sets: Sequence[str] | None = None
) -> list[tuple[str, int]]:
    """Return settings, and the number of draws of the rows."""
    return [(name, replicates) for name in sets or SETTINGS]


def measure(name: str, count: int) -> Iterator[Row]:
    """Yield the rows of a setting: one for each nominal coverage."""
    setting = SETTINGS[name]
    draws = [setting.draw(np.random.default_rng(seed)) for seed in range(count)]
    ours = np.array([measured(setting, draw, k) for k, draw in enumerate(draws)])
    theirs = None
    if setting.in_mapie is not None and find_spec("mapie") is not None:
        theirs = np.array([measured_mapie(setting, draw) for draw in draws])
    for k, nominal in enumerate(COVERAGES):
        inside, widths = ours[:, k].T
        row = {"setting": name, "nominal": nominal, "coverage": float(inside.mean())}
        row |= {"error": float(inside.std() / np.sqrt(count))}
        row |= {"width": float(np.median(widths)), "mapie": None, "mapie_width": None}
        if theirs is not None:
            row["mapie"] = float(theirs[:, k, 0].mean())
            row["mapie_width"] = float(np.median(theirs[:, k, 1]))
        yield row


def regressor(method: str) -> Any:
    """Return the regressor of a method."""
    if method == "cqr":
        return JointQuantileRegressor((0.025, 0.05, 0.1, 0.9, 0.95, 0.975), **FIXED)
    return SketchedKernelRegressor(**FIXED)


def measured(setting: Setting, draw: Draw, seed: int) -> list[tuple[float, float]]:
    """Return coverage and width at each nominal coverage."""
    return [
        updated(setting, draw, seed, nominal)
        if setting.updates
        else predicted(setting, draw, seed, nominal)
        for nominal in COVERAGES
    ]


def predicted(
    setting: Setting, draw: Draw, seed: int, nominal: float
) -> tuple[float, float]:
    """Return coverage and width on all test rows at once."""
    model = ConformalRegressor(
        regressor(setting.method),
        method=setting.method,
        coverage=nominal,
        random_state=seed,
    )
    groups = (None, None) if draw.groups is None else np.split(draw.groups, [_ROWS])
    weights = (None, None) if draw.weights is None else np.split(draw.weights, [_ROWS])
    model.fit(draw.X, draw.y, sample_weight=weights[0], groups=groups[0])
    ends = model.predict_interval(
        draw.X_test, groups=groups[1], sample_weight=weights[1]
    )
    return judged(ends, draw.y_test, groups[1])


def updated(
    setting: Setting, draw: Draw, seed: int, nominal: float
) -> tuple[float, float]:
    """Return coverage and width of intervals that are updated in the order of time."""
    model = ConformalRegressor(regressor(setting.method), coverage=nominal, cv=4)
    model.fit(draw.X, draw.y)
    ends = []
    for start in range(0, _TEST_ROWS, _BATCH):
        part = slice(start, start + _BATCH)
        ends.append(model.predict_interval(draw.X_test[part]))
        model.update(draw.X_test[part], draw.y_test[part])
    return judged(np.concatenate(ends), draw.y_test, None)


def judged(ends: NDArray, y: NDArray, groups: NDArray | None) -> tuple[float, float]:
    """Return the coverage (of the last group, of whole vectors) and the mean width."""
    each: NDArray = (ends[..., 0] <= y) & (y <= ends[..., 1])
    inside = np.all(each.reshape(len(y), -1), axis=1)
    labels = np.zeros(len(y)) if groups is None else groups
    counted = np.flatnonzero(labels == labels.max())
    return float(np.mean(inside[counted])), float((ends[..., 1] - ends[..., 0]).mean())


def measured_mapie(setting: Setting, draw: Draw) -> list[tuple[float, float]]:
    """Return coverage and width of the same method in MAPIE."""
    from sklearn.model_selection import LeaveOneOut

    mapie: Any = import_module("mapie.regression")

    cut, levels = round(0.75 * _ROWS), list(COVERAGES)
    options: dict[str, Any] = {"confidence_level": levels}
    if setting.in_mapie == "cqr":
        return [cqr_of_mapie(draw, nominal, cut) for nominal in COVERAGES]
    if setting.in_mapie == "split":
        model = mapie.SplitConformalRegressor(
            regressor("split"), prefit=False, **options
        )
        model.fit(draw.X[:cut], draw.y[:cut]).conformalize(draw.X[cut:], draw.y[cut:])
    else:
        cv = LeaveOneOut() if setting.in_mapie == "jackknife+" else 5
        model = mapie.CrossConformalRegressor(
            regressor("cv+"), method="plus", cv=cv, **options
        )
        model.fit_conformalize(draw.X, draw.y)
    ends = model.predict_interval(draw.X_test)[1]
    return [judged(ends[:, :, k], draw.y_test, None) for k in range(len(levels))]


def cqr_of_mapie(draw: Draw, nominal: float, cut: int) -> tuple[float, float]:
    """Return coverage and width around separate fits of the three quantiles."""
    mapie: Any = import_module("mapie.regression")
    low, high = (1 - nominal) / 2, (1 + nominal) / 2
    fits = [
        SketchedKernelRegressor(loss=PinballLoss(level), **FIXED).fit(
            draw.X[:cut], draw.y[:cut]
        )
        for level in (low, high, 0.5)
    ]
    model = mapie.ConformalizedQuantileRegressor(
        fits, confidence_level=nominal, prefit=True
    )
    model.conformalize(draw.X[cut:], draw.y[cut:])
    _, ends = model.predict_interval(draw.X_test, symmetric_correction=True)
    return judged(ends[:, :, 0], draw.y_test, None)


run = Experiment("coverage", points, measure)
