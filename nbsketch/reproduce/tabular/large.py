"""Large tables with categories, from Parquet files: error, time and memory of fits.

Not from a paper. Each fit runs in its own process, whose peak memory is measured. The
columns are nine numbers and categories of 3, 8 and 200 levels; or those of a real set
without repeated rows.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import log_loss, root_mean_squared_error

from nbsketch.reproduce import ENTRIES
from nbsketch.reproduce._data import MaybePath
from nbsketch.reproduce._report import Row, T, peak_memory, timed
from nbsketch.reproduce.experiment import Experiment, Points
from nbsketch.reproduce.tabular.methods import DEFAULT, METHODS
from nbsketch.reproduce.tabular.problems import CLASSIFICATION, REGRESSION, Benchmark

_TEST_ROWS = 20_000
_NOISE = 0.3
_LEVELS = {"c": 3, "d": 8, "e": 200}
_TREES = 500
_ERRORS = {REGRESSION: root_mean_squared_error, CLASSIFICATION: log_loss}
ROWS = ENTRIES["large-tables"]["rows"]
FUNCTIONS = "smooth", "steps"
SET = "adult"
_SET_ROWS = 39_000  # of 48,790
OURS = "tables"
LIGHTGBM = "LightGBM, 500 trees"


def points(replicates: int, quick: bool, data_home: MaybePath = None) -> Points:
    """Yield function, task, number of training rows and seed; of few rows if quick.

    Unless quick, a real set, in its folder, is the first function.
    """
    if not quick:
        for seed in range(replicates):
            yield SET, CLASSIFICATION, _SET_ROWS, seed, data_home
    seeds = range(replicates)
    for n, *problem, seed in product(ROWS[quick], FUNCTIONS, _ERRORS, seeds):
        yield *problem, n, seed


def drawn(function: str, n: int, seed: int) -> dict[str, Any]:
    """Return the columns of n rows, and their target y without and z with noise."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 9)).T
    codes = {name: rng.integers(0, k, n) for name, k in _LEVELS.items()}
    effects = np.random.default_rng(0).normal(size=_LEVELS["e"])
    y = 0.5 * effects[codes["e"]] + 0.5 * (codes["d"] == 2)
    if function == "smooth":
        y += (
            np.sin(2 * x[0]) + x[1] * x[2] / 2 + np.abs(x[3]) + (codes["c"] == 1) * x[4]
        )
    else:
        y += (x[0] > 0) + 2.0 * (x[1] > 0.5) * (x[2] < 0) + np.floor(2 * x[3]) / 4
        y += (codes["c"] == 1) * (x[4] > 0)
    texts = {k: np.char.add(k, v.astype(str)) for k, v in codes.items()}
    numbers = {f"x{k}": column for k, column in enumerate(x)}
    return numbers | texts | {"y": y, "z": y + _NOISE * rng.normal(size=n)}


def parts(function: str, n: int, seed: int, data_home: MaybePath) -> Iterator[Any]:
    """Yield the columns of training and test rows.

    The labels of the set, 0 and 1, are y and z; most are 0, their median.
    """
    if function == SET:
        X, y = Benchmark(SET, CLASSIFICATION).table(data_home)
        frame = X.assign(y=y, z=y).drop_duplicates()
        frame = frame.sample(frac=1, random_state=seed, ignore_index=True)
        yield frame[:n]
        yield frame[n:].reset_index(drop=True)
        return
    yield drawn(function, n, 2 * seed)
    yield drawn(function, _TEST_ROWS, 2 * seed + 1)


def measure(
    function: str, task: str, n: int, seed: int, data_home: MaybePath = None
) -> Iterator[Row]:
    """Yield error, time and memory of each method."""
    place = {"function": function, "task": task, "rows": n}
    with TemporaryDirectory() as folder:
        _alone(write, folder, function, n, seed, data_home)
        for method in (OURS, LIGHTGBM):
            result = _alone(evaluate, folder, task, method, seed)
            yield place | {"method": method} | result


def _alone(function: Callable[..., T], *arguments: Any) -> T:
    """Call a function in a new process: the peak memory of one never decreases.

    A child begins with that of its parent.
    """
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()


def write(folder: str, function: str, n: int, seed: int, data_home: MaybePath) -> None:
    """Write the training and test rows into a folder."""
    import pyarrow
    from pyarrow import parquet

    columns_of = parts(function, n, seed, data_home)
    for name, columns in zip(("train", "test"), columns_of, strict=True):
        parquet.write_table(pyarrow.table(columns), Path(folder, name))


def evaluate(folder: str, task: str, method: str, seed: int) -> Row:
    """Fit the table in a folder; return error, processor seconds and peak memory."""
    from pyarrow import parquet

    train, test = (parquet.read_table(Path(folder, name)) for name in ("train", "test"))
    y, y_test = (part["z"].to_numpy() for part in (train, test))
    if task == CLASSIFICATION:
        cut = np.median(train["y"].to_numpy())
        y, y_test = ((values > cut).astype(int) for values in (y, y_test))
    X, X_test = (part.drop_columns(["y", "z"]) for part in (train, test))
    fit = METHODS[DEFAULT].of if method == OURS else _lightgbm
    if method == LIGHTGBM:
        X, X_test = (_frame(part) for part in (X, X_test))
    predict, fit_seconds = timed(fit, task, X, y, seed)
    predicted, seconds = timed(predict, X_test)
    return {
        "error": float(_ERRORS[task](y_test, predicted)),
        "fit": fit_seconds,
        # microseconds of a row
        "predict": 1e6 * seconds / len(y_test),
        "gibibytes": peak_memory(),
    }


def _frame(table: Any) -> Any:
    """Return a pandas frame with text columns as categories."""
    frame = table.to_pandas()
    texts = frame.select_dtypes(exclude="number").columns
    return frame.astype(dict.fromkeys(texts, "category"))


def _lightgbm(task: str, X: Any, y: NDArray, seed: int) -> Any:
    import lightgbm

    goal = "regression" if task == REGRESSION else "binary"
    settings = {"objective": goal, "num_threads": 1, "verbosity": -1, "seed": seed}
    model = lightgbm.train(settings, lightgbm.Dataset(X, y), _TREES)
    return partial(model.predict, num_threads=1)


run = Experiment("large-tables", points, measure)
