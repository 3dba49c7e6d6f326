"""One method against each of the others, and coverages against their level."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.stats import sem

from nbsketch.reproduce._report import Row, Rows, column, groups, where
from nbsketch.reproduce.tabular.methods import DEFAULT, EFFORTS, OURS
from nbsketch.reproduce.tabular.problems import CLASSIFICATION, QUANTILES, TASKS

# Sets with hardly any noise, whose ratios own a mean: of the last three, targets are
# nearly a function of the columns.
NOISE_FREE = "yacht", "parkinsons", "loans", "rice", "sun"
# Share of the targets between the outer quantiles, and standard errors that a coverage
# may be away from it.
_LEVEL, _DEVIATIONS = 0.8, 2.0


def against_others(table: Rows) -> list[Row]:
    """Return, by task, effort and method, how tabular compares where both ran.

    The error of classes is the log loss. `table` has a row for each set and method.
    """
    pairs = []
    for (task, method), theirs in groups(table, "task", "method").items():
        for effort in EFFORTS:
            pairs += _pair_of(table, task, f"tabular, {effort}", method, theirs)
    return pairs


def _pair_of(table: Rows, task: str, ours: str, method: str, theirs: Rows) -> list[Row]:
    name = _error_of(task)
    rows = {row["set"]: row for row in where(table, task=task, method=ours)}
    common = [row for row in theirs if row["set"] in rows]
    if method == ours or not common:
        return []
    mine = [rows[row["set"]] for row in common]
    ratios = column(mine, name) / column(common, name)
    times = column(mine, "fit") / column(common, "fit")
    noisy = np.array([row["set"] not in NOISE_FREE for row in common])
    return [{"task": task, "ours": ours} | _pair(method, ratios, noisy, times)]


def _error_of(task: str) -> str:
    return "log_loss" if task == CLASSIFICATION else "error"


def _pair(method: str, ratios: NDArray, is_noisy: NDArray, times: NDArray) -> Row:
    mean, n = _geometric(ratios), len(ratios)
    error = f" ± {mean * sem(np.log(ratios)):.2f}" if n > 1 else ""
    noisy = f"{_geometric(ratios[is_noisy]):.2f}" if is_noisy.any() else ""
    return {
        "method": method,
        "sets": n,
        "mean ratio": f"{mean:.2f}{error}",
        "noisy sets": noisy,
        "median": f"{np.median(ratios):.2f}",
        "lower": int((ratios < 1).sum()),
        "higher": int((ratios > 1).sum()),
        "least ratio": f"{ratios.min():.2f}",
        "largest ratio": f"{ratios.max():.2f}",
        "fit time": f"{_geometric(times):.2f}",
    }


def _geometric(ratios: NDArray) -> float:
    return float(np.exp(np.log(ratios).mean()))


def against_best(table: Rows) -> list[Row]:
    """Return the method of other packages with the least error on each set.

    Sets of a task are in descending order of the ratio of tabular to it.
    """
    pairs = []
    for (task, name), rows in groups(table, "task", "set").items():
        error = _error_of(task)
        others = [row for row in rows if row["method"] not in OURS]
        ours = where(rows, method=DEFAULT)
        if others and ours:
            best = min(others, key=lambda row: row[error])
            ratio = ours[0][error] / best[error]
            place = {"task": task, "set": name}
            pairs.append(place | {"least error": best["method"], "ratio": ratio})
    order = sorted(pairs, key=lambda row: (-TASKS.index(row["task"]), row["ratio"]))
    return [row | {"ratio": f"{row['ratio']:.2f}"} for row in reversed(order)]


def coverages(rows: Rows) -> list[Row]:
    """Return, by method, on how many sets the coverage is within two standard errors.

    Standard errors are those of the share of the test rows of all splits of a set.
    """
    result = []
    for (method,), mine in groups(where(rows, task=QUANTILES), "method").items():
        away = np.array([_deviation(part) for part in groups(mine, "set").values()])
        result.append(
            {
                "method": method,
                "sets": len(away),
                "within": int((np.abs(away) <= _DEVIATIONS).sum()),
                "lowest": f"{away.min():.1f}",
                "highest": f"{away.max():.1f}",
            }
        )
    return result


def _deviation(rows: Rows) -> float:
    """Return how many standard errors a coverage is above its level."""
    n = column(rows, "test_rows")
    share = float(n @ column(rows, "coverage") / n.sum())
    return (share - _LEVEL) / float(np.sqrt(_LEVEL * (1 - _LEVEL) / n.sum()))
