"""Sketches of the default sizes: test error, time of a fit and time of a prediction.

Not from a paper: this measurement determines the default sketch of the estimators. Each
sketch has the same size, with learned length scales and a chosen penalty; subsampling
is also measured at one and a half times that size, and so is what a fit chooses.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import gmean
from sklearn import metrics
from sklearn.base import clone
from threadpoolctl import threadpool_limits

from nbsketch import estimators
from nbsketch.datasets import make_friedman_outliers
from nbsketch.reproduce import ENTRIES, _report
from nbsketch.reproduce._data import MaybePath, load, sketch_of
from nbsketch.reproduce._report import Row, Rows, summarized, timed
from nbsketch.reproduce.experiment import Experiment, Points
from nbsketch.reproduce.tabular.problems import Examples, quantile_error, random_rows

DEFAULT = "default"  # what a fit chooses without `sketch` and `size`
REFERENCE = "sub-sampling"
LARGER = "sub-sampling, 1.5 s"
MEAN = "geometric mean"
SKETCHES = ENTRIES["sketch-cost"]["sketches"]
SYNTHETIC = "friedman"
SYNTHETIC_ROWS = 12_500
_WARM_UP_ROWS = 200
_REPEATS = 3
_MODELS = {
    loss: getattr(estimators, kind)(**options)
    for loss, (kind, options) in ENTRIES["sketch-cost"]["models"].items()
}


class CostProblem(NamedTuple):
    """A set, and a model of a loss with its size s."""

    set: str
    loss: str
    model: Any
    size: int


_ERRORS: dict[str, Callable[[NDArray, NDArray], float]] = {
    "square": metrics.root_mean_squared_error,
    "huber": metrics.mean_absolute_error,
    "quantiles": quantile_error,
    "logistic": metrics.zero_one_loss,
}
PROBLEMS = [
    CostProblem(name, loss, _MODELS[loss], size)
    for name, loss, size in ENTRIES["sketch-cost"]["problems"]
]
QUICK_PROBLEMS = PROBLEMS[4], PROBLEMS[7]  # of airfoil


def points(replicates: int, quick: bool, data_home: MaybePath = None) -> Points:
    """Yield problem, its data and a random split; of two small problems if quick."""
    for problem in QUICK_PROBLEMS if quick else PROBLEMS:
        table = table_of(problem, data_home)
        for split in range(replicates):
            yield problem, table, split


def table_of(problem: CostProblem, data_home: MaybePath) -> Examples:
    """Return the rows and targets of a problem."""
    if problem.set == SYNTHETIC:
        X, y = make_friedman_outliers(SYNTHETIC_ROWS, random_state=0)
    else:
        data = load(problem.set, data_home)
        X = data.X
        y = data.y
    return Examples(X, y > np.median(y) if problem.loss == "logistic" else y)


def measure(problem: CostProblem, table: Examples, split: int) -> Iterator[Row]:
    """Yield error and times of every sketch; a small fit compiles first."""
    if split == 0:
        start = table.rows(np.arange(_WARM_UP_ROWS))
        list(evaluate(problem._replace(size=20), start, 0))
    yield from evaluate(problem, table, split)


def evaluate(problem: CostProblem, table: Examples, seed: int) -> Iterator[Row]:
    """Fit four fifths of the rows with every sketch; yield error and times."""
    (X, y), (X_test, y_test) = map(table.rows, random_rows(table, seed))
    n = len(y)
    s = problem.size
    others = {DEFAULT: None, LARGER: sketch_of(REFERENCE, min(n, 3 * s // 2))}
    for name in SKETCHES:
        sketch = others[name] if name in others else sketch_of(name, s, n)
        model = clone(problem.model).set_params(sketch=sketch, random_state=seed)
        with threadpool_limits(limits=1):
            _, seconds = timed(model.fit, X, y)
        predictions = [timed(model.predict, X_test) for _ in range(_REPEATS)]
        yield {
            "set": problem.set,
            "loss": problem.loss,
            "sketch": name,
            "landmarks": len(model.landmarks_),
            "error": _ERRORS[problem.loss](y_test, predictions[0][0]),
            "fit": seconds,
            # microseconds of a row
            "predict": 1e6 * min(s for _, s in predictions) / len(X_test),
        }


def summarize(rows: Rows) -> Rows:
    """Return a row for each problem and sketch, then the means of each sketch."""
    by = "set", "loss", "sketch"
    statistics = dict.fromkeys(("landmarks", "error", "fit"), np.mean)
    table = summarized(rows, by, statistics | {"predict": min})
    measured = _report.groups(rows, *by)
    for row in table:
        row["landmarks"] = round(row["landmarks"])
        place = row["set"], row["loss"]
        pair = measured[*place, row["sketch"]], measured[*place, REFERENCE]
        for name in ("error", "fit", "predict"):
            values, base = (_report.column(group, name) for group in pair)
            row[f"{name}_ratio"] = float(gmean(values / base))
    ratios = [name for name in table[0] if name.endswith("_ratio")]
    means = summarized(table, ["sketch"], dict.fromkeys(ratios, gmean))
    empty = dict.fromkeys(table[0]) | {"set": MEAN}
    return table + [empty | mean for mean in means]


run = Experiment("sketch-cost", points, measure, summarize)
