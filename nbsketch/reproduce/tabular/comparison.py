"""Kernel models for tables compared with boosted trees: errors, times and ranks.

Not from a paper: `TabularKernelRegressor` and `TabularKernelClassifier` with their
defaults are compared with LightGBM (with fixed settings, and tuned for the same time),
CatBoost, scikit-learn's trees and Gaussian processes, a sketched kernel model and exact
kernel ridge regression, on public sets for regression, classification and quantiles.
RealMLP, xRFM and TabPFN are included if they are installed.
"""

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import log_loss
from threadpoolctl import threadpool_limits

from nbsketch.reproduce._data import MaybePath
from nbsketch.reproduce._report import Row, Rows, provenance, timed, where
from nbsketch.reproduce.experiment import Experiment, Points
from nbsketch.reproduce.tabular import methods as machines
from nbsketch.reproduce.tabular import problems, summary
from nbsketch.reproduce.tabular.methods import (
    DEFAULT,
    TUNED,
    BenchmarkMethod,
    methods_of,
)
from nbsketch.reproduce.tabular.problems import Benchmark, Examples

_WARM_UP_ROWS = 150
_BINS = 15  # bins of the confidence in the calibration error
# Columns that identify a row.
_KEY = "task", "set", "split", "method"
# Tasks and names of the methods with compiled code.
_WARM: set[tuple[str, str]] = set()


def points(
    every: Sequence[Benchmark],
    small: Sequence[str],
    replicates: int,
    quick: bool,
    data_home: MaybePath = None,
    sets: Sequence[str] | None = None,
    methods: Sequence[str] | None = None,
) -> Points:
    """Yield problem, names of the methods, number of splits and folder of the data.

    5 splits for sets with fewer than 2000 rows, 3 for larger ones, or 1 for two small
    sets if `quick`.
    """
    selected = list(problems.chosen(sets or (small if quick else ()), every))
    available = {name for problem in selected for name in methods_of(problem)}
    unknown = [name for name in methods or () if name not in available]
    if unknown:
        raise ValueError(f"`methods` must be among {sorted(available)}, got {unknown}")
    for problem in selected:
        yield problem, methods or available, replicates, data_home


def measure(
    problem: Benchmark,
    names: Sequence[str],
    replicates: int,
    data_home: MaybePath,
    measured: Rows | None = None,
) -> Iterator[Row]:
    """Yield a row for each split and method that is not `measured`."""
    table = problem.table(data_home)
    used = {name: m for name, m in methods_of(problem).items() if name in names}
    about = provenance()
    place = {n: about[n] for n in ("commit", "date", "processor", "threads")}
    for split in range(replicates or table.splits):
        for row in evaluate(problem, table, split, used, measured):
            yield row | place


def evaluate(
    problem: Benchmark,
    table: Examples,
    split: int,
    used: dict[str, BenchmarkMethod],
    measured: Rows | None = None,
) -> Iterator[Row]:
    """Yield errors and times of the methods on one split."""
    train, test = (table.rows(index) for index in problem.split(table, split))
    place = {
        "task": problem.task,
        "set": problem.name,
        "rows": len(train.y),
        "features": train.X.shape[1],
        "test_rows": len(test.y),
        "split": split,
    }
    place_rows = where(measured or [], **{name: place[name] for name in _KEY[:-1]})
    for name, method in used.items():
        if len(train.y) <= method.most_rows and not where(place_rows, method=name):
            _warm_up(problem.task, name, method, table)
            budget = _budget(name, place_rows)
            with threadpool_limits(limits=1):
                predict, fit = timed(
                    method.fit, problem.task, train.X, train.y, split, budget
                )
                values, seconds = timed(predict, test.X)
            scores = scores_of(problem.task, values, test.y)
            times = {"fit": fit, "predict": 1e6 * seconds / len(test.y)}
            place_rows.append({**place, "method": name, **scores, **times})
            yield place_rows[-1] | {"package": machines.release(method.package)}


def _budget(name: str, rows: Rows) -> float:
    """Return the time budget of a tuned method: the time of the default one."""
    if name != TUNED:
        return 0.0
    standard = where(rows, method=DEFAULT)
    if not standard:
        raise ValueError(
            f"`methods` must have {DEFAULT!r} with {TUNED!r}, whose time is that of it"
        )
    return standard[-1]["fit"]


def _warm_up(task: str, name: str, method: BenchmarkMethod, table: Examples) -> None:
    """Fit a few rows by a new method first, so that compilation is not timed."""
    if (task, name) not in _WARM:
        step = max(1, len(table.y) // _WARM_UP_ROWS)
        X, y = table.rows(np.arange(0, len(table.y), step))
        method.fit(task, X, y, 0)(X)
        _WARM.add((task, name))


def scores_of(task: str, values: NDArray, y: NDArray) -> Row:
    """Return the error and other scores of the predictions."""
    scores = dict.fromkeys(("error", "log_loss", "calibration", "coverage"))
    if task == problems.CLASSIFICATION:
        p = np.clip(values, 1e-15, None)
        p = p / p.sum(axis=1, keepdims=True)
        scores["error"] = np.mean(p.argmax(axis=1) != y)
        scores["log_loss"] = log_loss(y, p, labels=np.arange(p.shape[1]))
        scores["calibration"] = calibration_error(p, y)
    elif task == problems.QUANTILES:
        scores["error"] = problems.quantile_error(y, values)
        scores["coverage"] = ((values[:, 0] <= y) & (y <= values[:, -1])).mean()
    else:
        scores["error"] = np.sqrt(np.mean((np.ravel(values) - y) ** 2))
    return scores


def calibration_error(p: NDArray, y: NDArray) -> float:
    """Return the expected calibration error of the most likely class.

    The mean difference between confidence and accuracy, over 15 equal bins of the
    confidence, weighted by their rows.
    """
    confidence = p.max(axis=1)
    bins = np.minimum((confidence * _BINS).astype(int), _BINS - 1)
    gaps = np.bincount(bins, confidence - (p.argmax(axis=1) == y))
    return np.abs(gaps).sum() / len(y)


def remarks() -> list[str]:
    """Return the note about methods that are not available."""
    return [f"Not run: {', '.join(machines.not_run()) or 'none'}."]


def printed(table: Rows) -> Rows:
    """Return the printed table: tabular compared with each other method."""
    return summary.against_others(table) or table


run = Experiment(
    "tabular",
    partial(points, problems.PROBLEMS, ("yacht", "iris")),
    measure,
    summary.summarize,
    summary.panels,
    printed=printed,
    tables=summary.page_tables,
    remarks=remarks,
    key=_KEY,
)
