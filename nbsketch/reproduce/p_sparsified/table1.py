"""Table 1 of the p-sparsified paper: joint quantile regression on two real sets.

El Ahmad, Laforgue and d'Alche-Buc, TMLR 2023, section 4.2: test pinball and crossing
losses and training time at five levels, without a sketch and with sketches of s = 50
rows, on Boston housing (ten random splits of 70 % and 30 %) and on images of otoliths.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nbsketch.datasets import Dataset, load_boston, load_otoliths
from nbsketch.estimators.quantile import JointQuantileRegressor
from nbsketch.kernels import median_distance
from nbsketch.metrics import crossing_loss, pinball_loss
from nbsketch.model_selection import cross_validate
from nbsketch.reproduce import _data
from nbsketch.reproduce._data import WITHOUT, Key, MaybePath, Setting, Split
from nbsketch.reproduce._report import Row
from nbsketch.reproduce.experiment import Experiment, Points
from nbsketch.reproduce.p_sparsified.table2 import METHODS, PAPER, compare
from nbsketch.sketches import SketchRecipe

LEVELS = 0.1, 0.3, 0.5, 0.7, 0.9

# Grids: multiples of the median distance between rows, penalties and couplings.
_BANDWIDTH_FACTORS = 2.0 ** np.arange(3)
_ALPHAS = 10.0 ** np.arange(-2.5, -6.5, -0.5)
_GAMMAS = 1.0, 3.0, 10.0
_FOLDS = 5
_TUNING_TOL = 1e-3
_TOL = 1e-6
_EXACT_TOL = 1e-4  # without a sketch: matrices of up to five times as many rows
# Without a sketch a fit takes a hundred times as long: a larger sketch is tuned
# instead.
_STAND_IN = "20/n-SR"
_STAND_IN_SIZE = 100
SIZE = 50  # of the sketches
SETTINGS = Path(__file__).with_name("table1_tuning.json")
SETS = "boston", "otoliths"
# Of the otoliths: rows, pixels along a side, and the largest age.
_N_TRAIN = 3780
_N_TEST = 165
_SIDE = 64
_OLDEST = 26


def tune(split: Split, method: str) -> Setting:
    """Choose bandwidth, alpha and gamma by 5-fold cross-validation.

    The criterion is the pinball loss on the shuffled training rows. The setting without
    a sketch is chosen with a p-sparsified sketch of 100 rows.
    """
    stand_in = _data.sketch_of(_STAND_IN, _STAND_IN_SIZE)
    sketch = stand_in if method == WITHOUT else _data.sketch_of(method, SIZE)
    order = np.random.default_rng(0).permutation(len(split.X_train))
    X = split.X_train[order]
    y = split.Y_train[order]
    bandwidths = median_distance(X, rng=0) * _BANDWIDTH_FACTORS
    trials = []
    for gamma in _GAMMAS:
        model = _model(sketch, seed=0, gamma=gamma, tol=_TUNING_TOL)
        result = cross_validate(model, X, y, bandwidths, _ALPHAS, cv=_FOLDS)
        trials.append((result.errors.min(), *result.best(), gamma))
    return dict(zip(("bandwidth", "alpha", "gamma"), min(trials)[1:], strict=True))


def _model(sketch: SketchRecipe, seed: int, **options: Any) -> JointQuantileRegressor:
    """Return a model whose quantiles may cross, as in the paper."""
    return JointQuantileRegressor(
        LEVELS, sketch=sketch, non_crossing=None, random_state=seed, **options
    )


def _load(name: str, data_home: MaybePath) -> Dataset:
    is_image = name == SETS[1]
    return load_images(data_home) if is_image else load_boston(data_home=data_home)


def load_images(data_home: MaybePath = None) -> Dataset:
    """Return the otoliths; if not found, print a message and return synthetic ones."""
    try:
        return load_otoliths(data_home=data_home)
    except FileNotFoundError as error:
        print(f"{error}\nA synthetic set of the same shape is used instead.")
        return make_rings()


def make_rings(n_train: int = _N_TRAIN, n_test: int = _N_TEST) -> Dataset:
    """Return noisy images of ellipses with rings, whose size grows with the age.

    Size, shape, tilt and brightness vary, so that the age is not determined.
    """
    rng = np.random.default_rng(0)
    n = n_train + n_test
    age = np.ceil(rng.gamma(4.0, 2.0, n)).clip(1, _OLDEST)
    growth = (0.4 + 0.45 * (1 - np.exp(-age / 8))) * np.exp(0.06 * rng.normal(size=n))
    shape = rng.uniform(0.6, 0.9, n)
    tilt = rng.normal(0, 0.3, n)
    light = rng.uniform(0.7, 1.0, n)
    images = [_ellipse(*shapes) for shapes in zip(growth, shape, tilt, strict=True)]
    X = light[:, None] * np.stack(images)
    X += 0.02 * rng.normal(size=X.shape)
    names = tuple(f"pixel_{i}" for i in range(_SIDE**2))
    return Dataset("otoliths, synthetic", X, age, names, ("age",), n_train)


def _ellipse(size: float, shape: float, tilt: float) -> NDArray:
    """Return an image of side^2 values: a bright ellipse with faint rings."""
    grid = np.linspace(-1, 1, _SIDE)
    u, v = (axis.ravel() for axis in np.meshgrid(grid, grid))
    along = np.cos(tilt) * u + np.sin(tilt) * v
    across = (np.cos(tilt) * v - np.sin(tilt) * u) / shape
    radius = np.hypot(along, across) / size
    return (0.8 + 0.2 * np.cos(6 * np.pi * radius)) / (1 + np.exp(20 * (radius - 1)))


def points(
    replicates: int,
    quick: bool,
    tuning: MaybePath = None,
    data_home: MaybePath = None,
    sets: Sequence[str] | None = None,
) -> Points:
    """Yield set, method, split, setting and seed.

    Replicates are random splits, or draws of each sketch for a published split.
    """
    for name in _data.selected(sets, SETS[:1] if quick else SETS):
        dataset = _load(name, data_home)
        splits = _splits(dataset, replicates)
        settings = _settings(dataset, splits, tuning)
        for method in METHODS:
            for seed in range(len(splits) if method == WITHOUT else replicates):
                i = seed % len(splits)
                setting = settings[dataset.name, method, str(i)]
                yield dataset.name, method, splits[i], setting, seed


def measure(
    name: str, method: str, split: Split, setting: Setting, seed: int
) -> Iterator[Row]:
    """Yield losses on the test rows, times 100, and time of one fit."""
    sketch = _data.sketch_of(method, SIZE)
    tol = _EXACT_TOL if method == WITHOUT else _TOL
    model = _model(sketch, seed, kernel="gaussian", tol=tol, **setting)
    predicted, seconds = split.fit(model, start=2 * SIZE)
    yield {
        "set": name,
        "method": method,
        "pinball": 100 * pinball_loss(split.Y_test, predicted, LEVELS),
        "crossing": 100 * crossing_loss(predicted),
        "seconds": seconds,
    }


run = Experiment(
    "table1",
    points,
    measure,
    partial(compare, losses=("pinball", "crossing"), typical=np.median, paper=PAPER),
)


def _splits(dataset: Dataset, replicates: int) -> list[Split]:
    """Return the published split, or as many random ones as there are replicates."""
    if dataset.n_train is not None:
        splits = [Split.published(dataset)]
    else:
        splits = [Split.of(*dataset.random_split(seed)) for seed in range(replicates)]
    return [split.with_standardized_targets() for split in splits]


def _settings(
    dataset: Dataset, splits: list[Split], tuning: MaybePath
) -> dict[Key, Setting]:
    """Return the setting of every method on every split."""
    keys = [(dataset.name, m, str(i)) for m in METHODS for i in range(len(splits))]
    return _data.settings_for(
        keys, lambda key: tune(splits[int(key[2])], key[1]), SETTINGS, tuning
    )
