"""Kernel machines for tables beside boosted trees: errors, calibration, times, ranks.

Not from a paper: `TabularKernelRegressor` and `TabularKernelClassifier` with their
defaults are compared with LightGBM (with fixed settings, and tuned for the same time),
CatBoost, scikit-learn's trees and Gaussian processes, the sketched machine and exact
kernel ridge regression, on public sets for regression, classification and quantiles.
RealMLP, xRFM and TabPFN are compared where they are installed.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import log_loss
from threadpoolctl import threadpool_limits

from nbsketch._progress import Progress
from nbsketch.metrics import pinball_loss
from nbsketch.reproduce._report import (
    Row,
    Rows,
    append_csv,
    provenance,
    read_csv,
    where,
)
from nbsketch.reproduce.experiment import RESULTS, Report, publish
from nbsketch.reproduce.tabular.methods import (
    DEFAULT,
    TUNED,
    Method,
    methods_of,
    not_run,
    release,
)
from nbsketch.reproduce.tabular.problems import (
    CLASSIFICATION,
    PROBLEMS,
    QUANTILES,
    Problem,
    Table,
    chosen,
)
from nbsketch.reproduce.tabular.rivals import LEVELS
from nbsketch.reproduce.tabular.summary import (
    against_others,
    panels,
    summarize,
    write_tables,
)

NAME = "tabular"
_DEVELOPED = "Every set was looked at when the defaults were developed."
NOTES = (
    "error: root mean squared error, share of wrong labels, or pinball loss averaged "
    "over the levels 0.1, 0.5 and 0.9, on the test rows: mean over the splits. ratio: "
    "over that of LightGBM on the same set.",
    "calibration: expected calibration error of the most likely class (15 bins). "
    "coverage: share of targets between the quantiles 0.1 and 0.9.",
    "fit, predict: median processor seconds of a fit, with all its choices, and "
    "microseconds of a row; times: fit over that of LightGBM.",
    "tabular: TabularKernelRegressor and TabularKernelClassifier. sketched: "
    "SketchedKernelRegressor(), SketchedKernelClassifier(loss='logistic') and "
    "JointQuantileRegressor(). LightGBM: 500 trees at rate 0.1, stopped on a held-out "
    "tenth after 50 trees without progress. LightGBM tuned: random search on a "
    f"held-out fifth for the time of {DEFAULT!r}, refitted on all rows. LightGBM, CQR: "
    "LightGBM conformalized on a quarter. CatBoost, stopped: as LightGBM. exact ridge "
    "(median bandwidth), exact GP (length scales learned): up to 2000 training rows; "
    "xRFM: 5000, RealMLP: 10,000. Categories are given as such to boosted trees and to "
    "tabular, and encoded by fit_columns for the others.",
)
_WARM_UP_ROWS, _BINS = 150, 15
# A row is known by these.
_KEY = "task", "set", "split", "method"


def run(
    replicates: int | None = None,
    quick: bool = False,
    out: Path | None = None,
    data_home: Path | None = None,
    plot_only: bool = False,
    sets: Sequence[str] | None = None,
    methods: Sequence[str] | None = None,
) -> list[Row]:
    """Compare the methods (see `nbsketch.reproduce` for the parameters).

    Replicates are splits: 5 of sets of less than 2000 rows, 3 of larger ones, or 1 of
    two small sets if `quick`. With `sets` or `methods`, only these are measured. Rows
    of an existing CSV file are kept and not measured again.
    """
    if quick:
        replicates, sets = replicates or 1, sets or ("yacht", "iris")
    problems = list(chosen(tuple(sets) if sets else None, PROBLEMS))
    title = "tabular: kernel machines on tables"
    report = Report(NAME, title, (_DEVELOPED, *NOTES), panels, summarize, printed)
    return compare(report, problems, replicates, out, data_home, plot_only, methods)


def compare(
    report: Report,
    problems: Sequence[Problem],
    replicates: int | None,
    out: Path | None,
    data_home: Path | None,
    plot_only: bool,
    methods: Sequence[str] | None,
) -> list[Row]:
    """Measure what is missing in the report's CSV file, and publish all of it."""
    folder = out or RESULTS
    file = folder / f"{report.name}.csv"
    measured = read_csv(file) if file.exists() else []

    def measure_all() -> list[Row]:
        return measure(problems, replicates, methods, data_home, file, measured)

    notes = (*report.notes, f"Not run: {', '.join(not_run()) or 'none'}.")
    table = publish(replace(report, notes=notes), measure_all, folder, plot_only)
    write_tables(read_csv(file), folder, report.name)
    return table


def printed(table: Rows) -> list[Row]:
    """Return what is shown: how tabular compares with each other method."""
    return against_others(table) or list(table)


def measure(
    problems: Sequence[Problem],
    replicates: int | None,
    names: Sequence[str] | None,
    data_home: Path | None,
    file: Path,
    measured: Rows = (),
) -> list[Row]:
    """Return `measured` rows and a row for each other problem, split and method.

    Each row is appended to `file` as soon as it is measured.
    """
    rows = {_key(row): row for row in measured}
    about = _about()
    warm: set[tuple[str, str]] = set()
    with Progress(len(problems)) as progress:
        for problem in problems:
            table = problem.table(data_home)
            used = _selected(problem, problems, names)
            for split in range(replicates or table.splits):
                place = problem.task, problem.name, split
                new = {n: m for n, m in used.items() if (*place, n) not in rows}
                _warm_up(problem.task, new, table, warm)
                for row in evaluate(problem, table, split, new, rows.values()):
                    rows[_key(row)] = row | about
                    append_csv(row | about, file)
            progress.step(f"{problem.name}, {problem.task}")
    return list(rows.values())


def evaluate(
    problem: Problem,
    table: Table,
    split: int,
    used: dict[str, Method],
    measured: Iterable[Row] = (),
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
    place_rows = where(list(measured), **{name: place[name] for name in _KEY[:-1]})
    for name, method in used.items():
        if len(train.y) <= method.most_rows:
            budget = _budget(name, place_rows)
            scores = _measured(method, problem.task, train, test, split, budget)
            place_rows.append({**place, "method": name, **scores})
            yield place_rows[-1] | {"package": release(method.package)}


def _budget(name: str, rows: Rows) -> float:
    """Return the seconds of a tuned method: those of the standard one."""
    if name != TUNED:
        return 0.0
    standard = where(rows, method=DEFAULT)
    if not standard:
        raise ValueError(
            f"`methods` must have {DEFAULT!r} with {TUNED!r}, whose time is that of it"
        )
    return standard[-1]["fit"]


def _measured(
    method: Method, task: str, train: Table, test: Table, seed: int, budget: float
) -> Row:
    with threadpool_limits(limits=1):
        start = time.process_time()
        predict = method.fit(train.X, train.y, seed, budget)
        fitted = time.process_time()
        values = predict(test.X)
        end = time.process_time()
    return {
        **scores_of(task, values, test.y),
        "fit": fitted - start,
        "predict": 1e6 * (end - fitted) / len(test.y),
    }


def scores_of(task: str, values: NDArray, y: NDArray) -> Row:
    """Return the error, and what else tells the quality of the predictions."""
    scores: Row = {"error": None, "log_loss": None, "calibration": None}
    scores["coverage"] = None
    if task == CLASSIFICATION:
        p = np.clip(values, 1e-15, None)
        p = p / p.sum(axis=1, keepdims=True)
        scores["error"] = float(np.mean(p.argmax(axis=1) != y))
        scores["log_loss"] = float(log_loss(y, p, labels=np.arange(p.shape[1])))
        scores["calibration"] = calibration_error(p, y)
    elif task == QUANTILES:
        losses = [pinball_loss(y, q, t) for q, t in zip(values.T, LEVELS, strict=True)]
        scores["error"] = float(np.mean(losses))
        inside = (values[:, 0] <= y) & (y <= values[:, -1])
        scores["coverage"] = float(inside.mean())
    else:
        scores["error"] = float(np.sqrt(np.mean((values - y) ** 2)))
    return scores


def calibration_error(p: NDArray, y: NDArray) -> float:
    """Return the expected calibration error of the most likely class.

    The mean distance between confidence and share of right labels, over 15 equal bins
    of the confidence, weighted by their rows.
    """
    confidence, right = p.max(axis=1), p.argmax(axis=1) == y
    bins = np.minimum((confidence * _BINS).astype(int), _BINS - 1)
    gaps = np.bincount(bins, weights=confidence - right, minlength=_BINS)
    return float(np.abs(gaps).sum() / len(y))


def _selected(
    problem: Problem, problems: Sequence[Problem], names: Sequence[str] | None
) -> dict[str, Method]:
    """Return the methods of a problem with these names, all by default."""
    every = {name for other in problems for name in methods_of(other)}
    unknown = [name for name in names or () if name not in every]
    if unknown:
        raise ValueError(f"`methods` must be among {sorted(every)}, got {unknown}")
    available = methods_of(problem).items()
    return {n: m for n, m in available if names is None or n in names}


def _warm_up(
    task: str, used: dict[str, Method], table: Table, warm: set[tuple[str, str]]
) -> None:
    """Fit a few rows by every new method, so that no compilation is timed."""
    few = table.rows(np.arange(0, len(table.y), max(1, len(table.y) // _WARM_UP_ROWS)))
    for name, method in used.items():
        if (task, name) not in warm:
            method.fit(few.X, few.y, 0, 0.0)(few.X)
            warm.add((task, name))


def _about() -> Row:
    """Return commit, date and machine of a measurement."""
    about = provenance()
    return {name: about[name] for name in ("commit", "date", "processor", "threads")}


def _key(row: Row) -> tuple[Any, ...]:
    return tuple(row[name] for name in _KEY)
