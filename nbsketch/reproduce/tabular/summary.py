"""Tables and figures of the comparison on tables: ratios, pairs of methods, ranks."""

from typing import Any

import numpy as np
from scipy.stats import gmean, rankdata, sem, studentized_range

from nbsketch.reproduce import ENTRIES, _report
from nbsketch.reproduce._figures import Panel, curves_of
from nbsketch.reproduce._report import Row, Rows, column, groups, where
from nbsketch.reproduce.tabular import problems
from nbsketch.reproduce.tabular.methods import DEFAULT, HISTOGRAMS, LIGHTGBM, OURS
from nbsketch.reproduce.tabular.problems import CLASSIFICATION, QUANTILES

# Smaller ratios, of noise-free sets, would leave no space for the others in a figure.
_LEAST_DRAWN = 0.1
# Ratios to the reference, and their columns.
_RATIOS = ENTRIES["tabular"]["ratios"]
# Sets with hardly any noise, whose ratios dominate a mean: for the last three, targets
# are nearly a function of the columns.
NOISE_FREE = "yacht", "parkinsons", "loans", "rice", "sun"
# Share of the targets between the outer quantiles.
_LEVEL = 0.8
# Maximum distance of a coverage from its level, in standard errors.
_DEVIATIONS = 2.0


def summarize(rows: Rows) -> Rows:
    """Return a row for each task, set and method, of the splits that all ran on."""
    parts = groups(shared_splits(rows), "task", "set").values()
    return [row for part in parts for row in _compared(part)]


def shared_splits(rows: Rows) -> Rows:
    """Return the splits on which every method of a set ran; sets keep their order."""
    order = [(problem.task, problem.name) for problem in problems.PROBLEMS]
    grouped = groups(rows, "task", "set")
    kept = []
    for place in dict.fromkeys([*order, *grouped]):
        group = grouped.get(place, [])
        splits = [
            {r["split"] for r in part} for part in groups(group, "method").values()
        ]
        kept += [row for row in group if all(row["split"] in part for part in splits)]
    return kept


def _compared(rows: Rows) -> Rows:
    """Return the methods on one set, with ratios to the reference."""
    by_method = groups(rows, "method")
    base = by_method.get((LIGHTGBM,)) or by_method.get((HISTOGRAMS,), [])
    table = []
    for (method,), group in by_method.items():
        row = {name: group[0][name] for name in ("task", "set", "rows")}
        row |= {"splits": len(group), "method": method}
        row |= _report.spread("error", column(group, "error"))
        for name in ("log_loss", "calibration", "coverage", "fit", "predict"):
            row[name] = _typical(group, name)
        for ratio, name in _RATIOS.items():
            value = _typical(group, name)
            is_compared = base and value is not None
            row[ratio] = value / _typical(base, name) if is_compared else None
        table.append(row)
    return table


def _typical(rows: Rows, name: str) -> Any:
    """Return the median of a time, or the mean of a score; None if not measured.

    Errors of labels count half an additional error, so that none is zero.
    """
    if rows[0][name] is None:
        return None
    values = column(rows, name)
    if name in ("fit", "predict"):
        return float(np.median(values))
    if name == "error" and rows[0]["task"] == CLASSIFICATION:
        n = column(rows, "test_rows")
        values = (values * n + 0.5) / (n + 1)
    return float(values.mean())


def ranks(rows: Rows, task: str) -> tuple[dict[str, float], float]:
    """Return the mean rank of each method, and Nemenyi's critical distance.

    On each set, a method is ranked by its mean over the splits, among the methods that
    ran on all sets of the task. Two methods differ at the 5 % level if their mean ranks
    differ by more than the distance.

    References
    ----------
    Demsar (2006), Statistical comparisons of classifiers over multiple data sets,
    Journal of Machine Learning Research 7, 1-30, section 3.2.2.
    """
    table = where(summarize(rows), task=task)
    n_sets = len({row["set"] for row in table})
    errors = {
        method: column(group, "error")
        for (method,), group in groups(table, "method").items()
        if len(group) == n_sets
    }
    if not errors:
        return {}, float("nan")
    mean = rankdata(list(errors.values()), axis=0).mean(axis=1).tolist()
    return dict(zip(errors, mean, strict=True)), nemenyi(len(errors), n_sets)


def nemenyi(n_methods: int, n_sets: int) -> float:
    """Return the critical distance of mean ranks at the 5 % level.

    Examples
    --------
    >>> round(nemenyi(4, 14), 2)
    1.25
    """
    quantile = studentized_range.ppf(0.95, n_methods, np.inf) / np.sqrt(2)
    return float(quantile * np.sqrt(n_methods * (n_methods + 1) / (6 * n_sets)))


def panels(rows: Rows) -> list[Panel]:
    """Return dots of error ratios (at least 0.1) and of the times of regression."""
    table = summarize(rows)
    result = []
    for title, (task, name) in ENTRIES["tabular"]["panels"].items():
        kept = [row for row in where(table, task=task) if row[name] is not None]
        sets = tuple(dict.fromkeys(row["set"] for row in kept))
        dots = [
            row | {"place": sets.index(row["set"]), name: max(row[name], _LEAST_DRAWN)}
            for row in kept
        ]
        curves = curves_of(dots, "method", "place", name)
        curves = [curve._replace(joined=False) for curve in curves]
        if kept:
            result.append(Panel(title, "", "Ratio", curves, "y", sets))
    return result


def page_tables(rows: Rows) -> dict[str, Rows]:
    """Return tables of text by name."""
    table = summarize(rows)
    pages = {
        key: _wide(where(table, task=task), name)
        for key, (task, name) in ENTRIES["tabular"]["pages"].items()
    }
    return pages | {
        "pairs": against_others(table),
        "best": against_best(table),
        "intervals": coverages(shared_splits(rows)),
        "ranks": _rank_table(rows),
        "about": _about(rows),
    }


def front_tables(rows: Rows) -> dict[str, Rows]:
    """Return the tables of text, and that of the front page.

    It has medians of ratios over the sets on which the default was measured.
    """
    table = summarize(rows)
    table = [row for row in table if where(table, set=row["set"], method=DEFAULT)]
    entry = ENTRIES["unseen"]["front"]
    front = [
        {"method": method}
        | {name: _median(table, method, *of) for name, of in entry["columns"].items()}
        for method in entry["methods"]
    ]
    return page_tables(rows) | {"front": front}


def _median(table: Rows, method: str, task: str, ratio: str) -> str:
    """Return the text of the median of a ratio over the sets of a task."""
    values = column(where(table, task=task, method=method), ratio)
    return f"{np.median(values):.2f}" if len(values) else ""


def _wide(table: Rows, name: str) -> Rows:
    """Return a row for each set, with a column for each method."""
    measured = [row for row in table if row[name] is not None]
    names = tuple(dict.fromkeys(row["method"] for row in measured))
    return [
        {
            "set": place,
            "rows": rows[0]["rows"],
            "splits": rows[0]["splits"],
            **dict.fromkeys(names, ""),
            **{row["method"]: _cell(row, name) for row in rows},
        }
        for (place,), rows in groups(measured, "set").items()
    ]


def _cell(row: Row, name: str) -> str:
    """Return the text of a value: of an error, with the standard error of its mean."""
    n = row["splits"]
    if name == "error":
        error = f" ± {row['error_deviation'] / np.sqrt(n - 1):.2g}" if n > 1 else ""
        return f"{row['error']:.4g}{error}"
    return f"{row[name]:.{3 if name == 'calibration' else 2}f}"


def _rank_table(rows: Rows) -> Rows:
    """Return the mean ranks of the methods by task, and the critical distances."""
    by_task = {task: ranks(rows, task) for task in problems.TASKS}
    by_task = {task: pair for task, pair in by_task.items() if pair[0]}
    table: dict[str, Row] = {}
    for task, (mean, _) in by_task.items():
        for method, rank in mean.items():
            table.setdefault(method, dict.fromkeys(by_task, ""))[task] = f"{rank:.2f}"
    if table:
        texts = {task: f"{distance:.2f}" for task, (_, distance) in by_task.items()}
        table["critical distance"] = texts
    return [{"method": method, **row} for method, row in table.items()]


def _about(rows: Rows) -> Rows:
    """Return packages, dates and computers of the measurements."""
    names = "package", "processor", "threads"
    table = []
    for key, group in groups(rows, *names).items():
        dates = [str(row["date"]) for row in group]
        row = dict(zip(names, map(str, key), strict=True))
        row["dates"] = " to ".join(sorted({min(dates), max(dates)}))
        table.append(row | {"measurements": str(len(group))})
    return table


def against_others(table: Rows) -> Rows:
    """Return, by task, partners and method, the comparison where both ran.

    The error of classes is the log loss. `table` has a row for each set and method.
    """
    pairs = []
    for (task, method), theirs in groups(table, "task", "method").items():
        for own in OURS[:2]:
            rows = {r["set"]: r for r in where(table, task=task, method=own)}
            common = [row for row in theirs if row["set"] in rows]
            if method != own and common:
                ours = [rows[row["set"]] for row in common]
                pair = {"task": task, "ours": own, "method": method}
                pairs.append(pair | _pair(ours, common, _error_of(task)))
    return pairs


def _error_of(task: str) -> str:
    return "log_loss" if task == CLASSIFICATION else "error"


def _pair(ours: Rows, theirs: Rows, name: str) -> Row:
    """Return statistics of the ratios of errors and times on the same sets."""
    ratios = column(ours, name) / column(theirs, name)
    is_noisy = np.array([row["set"] not in NOISE_FREE for row in ours])
    mean = gmean(ratios)
    n = len(ratios)
    error = f" ± {mean * sem(np.log(ratios)):.2f}" if n > 1 else ""
    return {
        "sets": n,
        "mean ratio": f"{mean:.2f}{error}",
        "noisy sets": f"{gmean(ratios[is_noisy]):.2f}" if is_noisy.any() else "",
        "median": f"{np.median(ratios):.2f}",
        "lower": int((ratios < 1).sum()),
        "higher": int((ratios > 1).sum()),
        "least ratio": f"{ratios.min():.2f}",
        "largest ratio": f"{ratios.max():.2f}",
        "fit time": f"{gmean(column(ours, 'fit') / column(theirs, 'fit')):.2f}",
    }


def against_best(table: Rows) -> Rows:
    """Return the method of other packages with the lowest error on each set.

    Sets of a task are in descending order of the ratio of tabular to it.
    """
    pairs = []
    for (task, name), rows in groups(table, "task", "set").items():
        error = _error_of(task)
        others = [row for row in rows if row["method"] not in OURS]
        ours = where(rows, method=DEFAULT)
        if others and ours:
            best = min(others, key=lambda row: row[error])
            pair = {"task": task, "set": name, "least error": best["method"]}
            pairs.append(pair | {"ratio": ours[0][error] / best[error]})
    pairs.sort(key=lambda row: (problems.TASKS.index(row["task"]), -row["ratio"]))
    return [row | {"ratio": f"{row['ratio']:.2f}"} for row in pairs]


def coverages(rows: Rows) -> Rows:
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
    """Return the distance of a coverage from its level, in standard errors."""
    n = column(rows, "test_rows")
    share = float(n @ column(rows, "coverage") / n.sum())
    return (share - _LEVEL) / float(np.sqrt(_LEVEL * (1 - _LEVEL) / n.sum()))
