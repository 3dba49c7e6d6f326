"""Coverage of conformal intervals over many draws, compared with MAPIE.

Not from a paper. Kernel, bandwidth and penalty are fixed, so that a draw takes
milliseconds and the guarantees hold exactly as stated.
"""

from collections.abc import Iterator, Sequence
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
from nbsketch.reproduce import ENTRIES
from nbsketch.reproduce._data import selected
from nbsketch.reproduce._report import Row
from nbsketch.reproduce.experiment import Experiment, Points

COVERAGES = 0.8, 0.9, 0.95
_ROWS = 200  # training rows in each draw
_TEST_ROWS = 500
_BATCH = 25  # rows of one update
FIXED: dict[str, Any] = {
    "kernel": GaussianKernel(1.0),
    "alpha": 1e-3,
    "size": 40,
    "random_state": 0,
}


class Draw(NamedTuple):
    """Training and test rows of one draw, with groups and weights, if any."""

    X: NDArray
    y: NDArray
    X_test: NDArray
    y_test: NDArray
    groups: Sequence[Any] = (None, None)
    weights: Sequence[Any] = (None, None)


class IntervalCase(NamedTuple):
    """A method, whether MAPIE has it, and the distribution of the rows for it.

    Rows may have groups; new rows may be more frequent where the first feature is
    larger; intervals may be updated in the order of time.
    """

    method: str
    in_mapie: bool = False
    n_groups: int = 0
    is_shifted: bool = False
    updates: bool = False


SETTINGS = {n: IntervalCase(**s) for n, s in ENTRIES["coverage"]["settings"].items()}


def noise_of(
    kind: str, rng: np.random.Generator, X: NDArray, normal: NDArray, groups: Any
) -> NDArray:
    """Return the noise of rows X, mostly scaled standard normal numbers."""
    n = len(X)
    if kind == "skewed":
        return rng.exponential(size=n)
    if kind == "several outputs":
        return rng.normal(size=(n, 3)) * [0.1, 0.3, 0.9]
    scale: Any = 0.3
    if kind in ("heteroscedastic", "covariate shift"):
        scale = 0.2 * (2.1 + X[:, 0])
    elif kind == "outliers":  # in one row of fifty it is 30 times as large
        scale = np.where(rng.random(n) < 0.02, 9.0, 0.3)
    elif kind == "groups":
        scale = 0.1 * 3.0**groups
    elif kind == "drift":
        scale = np.linspace(0.2, 1.0, n)
    return scale * normal


def drawn(name: str, rng: np.random.Generator) -> Draw:
    """Draw rows of a smooth function of two features with the noise of a setting."""
    setting = SETTINGS[name]
    n = _ROWS + _TEST_ROWS
    parts = {}
    groups = None
    X = rng.uniform(-2, 2, size=(n, 2))
    normal = rng.normal(size=n)
    if setting.n_groups:
        groups = rng.integers(setting.n_groups, size=n)
        parts["groups"] = np.split(groups, [_ROWS])
    noise = noise_of(name.partition(",")[0], rng, X, normal, groups)
    smooth = np.sin(2 * X[:, 0]) + X[:, 1]
    y = noise + (smooth if noise.ndim == 1 else smooth[:, None])
    if setting.is_shifted:
        is_kept = rng.random(_TEST_ROWS) < (2 + X[_ROWS:, 0]) / 4
        kept = np.append(np.full(_ROWS, True), is_kept)
        X = X[kept]
        y = y[kept]
        parts["weights"] = np.split((2 + X[:, 0]) / 4, [_ROWS])
    return Draw(X[:_ROWS], y[:_ROWS], X[_ROWS:], y[_ROWS:], **parts)


def points(replicates: int, quick: bool, sets: Sequence[str] | None = None) -> Points:
    """Return settings, and the number of draws of the rows."""
    return [(name, replicates) for name in selected(sets, SETTINGS)]


def measure(name: str, count: int) -> Iterator[Row]:
    """Yield the results of a setting: one per nominal coverage."""
    setting = SETTINGS[name]
    draws = [drawn(name, np.random.default_rng(seed)) for seed in range(count)]
    ours = np.array([measured(setting, draw, k) for k, draw in enumerate(draws)])
    theirs = None
    if setting.in_mapie and find_spec("mapie") is not None:
        theirs = np.array([measured_mapie(setting, draw) for draw in draws])
    for k, nominal in enumerate(COVERAGES):
        inside, widths = ours[:, k].T
        row = {"setting": name, "nominal": nominal, "coverage": inside.mean()}
        row |= {"error": inside.std() / np.sqrt(count)}
        row |= {"width": np.median(widths), "mapie": None, "mapie_width": None}
        if theirs is not None:
            row["mapie"] = theirs[:, k, 0].mean()
            row["mapie_width"] = np.median(theirs[:, k, 1])
        yield row


def regressor(method: str) -> Any:
    """Return the regressor of a method."""
    if method == "cqr":
        return JointQuantileRegressor((0.025, 0.05, 0.1, 0.9, 0.95, 0.975), **FIXED)
    return SketchedKernelRegressor(**FIXED)


def measured(setting: IntervalCase, draw: Draw, seed: int) -> list[tuple[float, float]]:
    """Return coverage and width at each nominal coverage."""
    interval = updated if setting.updates else predicted
    return [
        judged(interval(setting.method, draw, seed, nominal), draw)
        for nominal in COVERAGES
    ]


def predicted(method: str, draw: Draw, seed: int, nominal: float) -> NDArray:
    """Return the intervals of all test rows at once."""
    model = ConformalRegressor(
        regressor(method), method=method, coverage=nominal, random_state=seed
    )
    groups, new_groups = draw.groups
    weights, new_weights = draw.weights
    model.fit(draw.X, draw.y, sample_weight=weights, groups=groups)
    return model.predict_interval(
        draw.X_test, groups=new_groups, sample_weight=new_weights
    )


def updated(method: str, draw: Draw, seed: int, nominal: float) -> NDArray:
    """Return the intervals that are updated in the order of time."""
    model = ConformalRegressor(regressor(method), coverage=nominal, cv=4)
    model.fit(draw.X, draw.y)
    ends = []
    for start in range(0, _TEST_ROWS, _BATCH):
        part = slice(start, start + _BATCH)
        ends.append(model.predict_interval(draw.X_test[part]))
        model.update(draw.X_test[part], draw.y_test[part])
    return np.concatenate(ends)


def judged(ends: NDArray, draw: Draw) -> tuple[float, float]:
    """Return the coverage (of the last group, of whole vectors) and the mean width."""
    y = draw.y_test
    groups = draw.groups[1]
    each = (ends[..., 0] <= y) & (y <= ends[..., 1])
    inside = np.all(each.reshape(len(y), -1), axis=1)
    labels = np.zeros(len(y)) if groups is None else groups
    counted = np.flatnonzero(labels == labels.max())
    return np.mean(inside[counted]), (ends[..., 1] - ends[..., 0]).mean()


def measured_mapie(setting: IntervalCase, draw: Draw) -> list[tuple[float, float]]:
    """Return coverage and width of the same method in MAPIE."""
    from sklearn.model_selection import LeaveOneOut

    mapie = import_module("mapie.regression")
    cut = round(0.75 * _ROWS)
    levels = list(COVERAGES)
    method = setting.method
    if method == "cqr":
        return [cqr_of_mapie(draw, nominal, cut) for nominal in COVERAGES]
    if method == "split":
        model = mapie.SplitConformalRegressor(
            regressor(method), prefit=False, confidence_level=levels
        )
        model.fit(draw.X[:cut], draw.y[:cut]).conformalize(draw.X[cut:], draw.y[cut:])
    else:
        cv = LeaveOneOut() if method == "jackknife+" else 5
        model = mapie.CrossConformalRegressor(
            regressor(method), method="plus", cv=cv, confidence_level=levels
        )
        model.fit_conformalize(draw.X, draw.y)
    ends = model.predict_interval(draw.X_test)[1]
    return [judged(ends[:, :, k], draw) for k in range(len(levels))]


def cqr_of_mapie(draw: Draw, nominal: float, cut: int) -> tuple[float, float]:
    """Return coverage and width around separate fits of the three quantiles."""
    mapie = import_module("mapie.regression")
    low = (1 - nominal) / 2
    fits = [
        SketchedKernelRegressor(loss=PinballLoss(level), **FIXED).fit(
            draw.X[:cut], draw.y[:cut]
        )
        for level in (low, (1 + nominal) / 2, 0.5)
    ]
    model = mapie.ConformalizedQuantileRegressor(
        fits, confidence_level=nominal, prefit=True
    )
    model.conformalize(draw.X[cut:], draw.y[cut:])
    _, ends = model.predict_interval(draw.X_test, symmetric_correction=True)
    return judged(ends[:, :, 0], draw)


run = Experiment("coverage", points, measure)
