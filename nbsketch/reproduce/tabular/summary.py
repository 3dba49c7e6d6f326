"""Tables and figures of the comparison on tables: ratios, means, ranks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import rankdata, studentized_range

from nbsketch.plots import axes_or_new
from nbsketch.reproduce._figures import Curve, Panel, style_of
from nbsketch.reproduce._report import (
    Row,
    Rows,
    column,
    groups,
    spread,
    where,
    write_csv,
)
from nbsketch.reproduce.tabular.baselines import BOOSTING, LIGHTGBM
from nbsketch.reproduce.tabular.pairs import against_others, coverages
from nbsketch.reproduce.tabular.problems import CLASSIFICATION, QUANTILES, REGRESSION

EVERY, NEW, DEVELOPED = "all sets", "sets not developed on", "development sets"
WITHOUT_YACHT = "all sets without yacht"
_TASKS = REGRESSION, CLASSIFICATION, QUANTILES
_RATIOS = "ratio", "log_loss_ratio", "times", "slower"


def summarize(rows: Rows) -> list[Row]:
    """Return a row for each task, set and method, then geometric means of ratios."""
    table = []
    for found in groups(rows, "task", "set").values():
        table += _compared(found)
    return table + [mean for task in _TASKS for mean in _means(where(table, task=task))]


def _compared(rows: Rows) -> list[Row]:
    """Return the methods on one set, with ratios to the reference on its splits."""
    by_method = {key[0]: found for key, found in groups(rows, "method").items()}
    reference = LIGHTGBM if LIGHTGBM in by_method else BOOSTING
    base = by_method.get(reference, [])
    return [_row(found, base) for found in by_method.values()]


def _row(found: Rows, base: Rows) -> Row:
    first, splits = found[0], {row["split"] for row in found}
    same = [row for row in base if row["split"] in splits]
    has_base = len(same) == len(found)
    fit, predict = (float(np.median(column(found, n))) for n in ("fit", "predict"))
    row: Row = {name: first[name] for name in ("task", "set", "developed", "rows")}
    row |= {"method": first["method"], **spread("error", column(found, "error"))}
    for name in ("log_loss", "calibration", "coverage"):
        known = first[name] is not None
        row[name] = float(column(found, name).mean()) if known else None
    row |= {"fit": fit, "predict": predict} | dict.fromkeys(_RATIOS)
    if has_base:
        row["ratio"] = _error(found) / _error(same)
        row["times"] = fit / float(np.median(column(same, "fit")))
        row["slower"] = predict / float(np.median(column(same, "predict")))
        if first["log_loss"] is not None:
            losses = column(found, "log_loss").mean(), column(same, "log_loss").mean()
            row["log_loss_ratio"] = float(losses[0] / losses[1])
    return row


def _error(rows: Rows) -> float:
    """Return the mean error; of labels, with half a wrong one more, so never zero."""
    errors = column(rows, "error")
    if rows[0]["task"] == CLASSIFICATION:
        n = column(rows, "test_rows")
        errors = (errors * n + 0.5) / (n + 1)
    return float(errors.mean())


def _means(table: Rows) -> list[Row]:
    """Return geometric means over sets, of the methods that ran on all of them."""
    kinds = {
        EVERY: table,
        WITHOUT_YACHT: [row for row in table if row["set"] != "yacht"],
        DEVELOPED: [row for row in table if row["developed"] in (True, "True")],
        NEW: [row for row in table if row["developed"] not in (True, "True")],
    }
    means = []
    for label, kept in kinds.items():
        n_sets = len({row["set"] for row in kept})
        for (method,), found in groups(kept, "method").items():
            if len(found) == n_sets and len(kept) < len(table) + (label == EVERY):
                means.append(_mean(label, method, found))
    return means


def _mean(label: str, method: str, rows: Rows) -> Row:
    row: Row = dict.fromkeys(rows[0])
    row |= {"task": rows[0]["task"], "set": label, "method": method}
    row["rows"] = f"{len(rows)} sets"
    for name in _RATIOS:
        if all(found[name] is not None for found in rows):
            row[name] = float(np.exp(np.log(column(rows, name)).mean()))
    if rows[0]["calibration"] is not None:
        row["calibration"] = float(column(rows, "calibration").mean())
    return row


def ranks(rows: Rows, task: str, name: str = "error") -> tuple[dict[str, float], float]:
    """Return the mean rank of each method, and Nemenyi's critical distance.

    A method is ranked on each set by its mean over the splits, among the methods that
    ran on all sets of the task. Two methods differ at the level 5 % if their mean ranks
    differ by more than the distance.

    References
    ----------
    Demsar (2006), Statistical comparisons of classifiers over multiple data sets,
    Journal of Machine Learning Research 7, 1-30, section 3.2.2.
    """
    table = [_row(found, []) for found in _of_task(rows, task)]
    sets = tuple(dict.fromkeys(row["set"] for row in table))
    every = groups(table, "method")
    names = [key[0] for key, found in every.items() if len(found) == len(sets)]
    if not names:
        return {}, float("nan")
    values = np.array([column(every[method,], name) for method in names])
    mean = rankdata(values, axis=0).mean(axis=1)
    return dict(zip(names, mean.tolist(), strict=True)), nemenyi(len(names), len(sets))


def nemenyi(n_methods: int, n_sets: int, level: float = 0.05) -> float:
    """Return the critical distance of mean ranks.

    Examples
    --------
    >>> round(nemenyi(4, 14), 2)
    1.25
    """
    quantile = studentized_range.ppf(1 - level, n_methods, np.inf) / np.sqrt(2)
    return float(quantile * np.sqrt(n_methods * (n_methods + 1) / (6 * n_sets)))


def _of_task(rows: Rows, task: str) -> list[list[Row]]:
    return list(groups(where(rows, task=task), "set", "method").values())


def plot_ranks(rows: Rows, task: str, ax: Any = None, name: str = "error") -> Any:
    """Draw mean ranks with bars of half the critical distance on either side.

    Methods whose bars do not overlap differ at the level 5 %. Returns the axes.
    """
    ax = axes_or_new(ax)
    mean, distance = ranks(rows, task, name)
    order = sorted(mean, key=lambda method: -mean[method])
    for height, method in enumerate(order):
        color = style_of(method).color
        ax.errorbar(
            mean[method], height, xerr=distance / 2, fmt="o", color=color, capsize=3
        )
    ax.set_yticks(range(len(order)), order)
    ax.set(title=task, xlabel="Mean rank (lower is better)")
    ax.grid(axis="x", alpha=0.25, linewidth=0.6)
    return ax


def panels(rows: Rows) -> list[Panel]:
    """Return dots of error ratios of each task, and of times of regression."""
    table = [row for row in summarize(rows) if row["error"] is not None]
    found = []
    for task, name, title in (
        (REGRESSION, "ratio", "Test error over LightGBM's"),
        (REGRESSION, "times", "Fit time over LightGBM's"),
        (CLASSIFICATION, "log_loss_ratio", "Log loss over LightGBM's"),
        (QUANTILES, "ratio", "Pinball loss over LightGBM's"),
    ):
        kept = [row for row in where(table, task=task) if row[name] is not None]
        sets = tuple(dict.fromkeys(row["set"] for row in kept))
        if kept:
            found.append(Panel(title, "", "Ratio", _dots(kept, name, sets), "y", sets))
    return found


def _dots(table: Rows, name: str, sets: Sequence[str]) -> list[Curve]:
    return [
        Curve(
            method,
            [sets.index(row["set"]) for row in rows],
            [row[name] for row in rows],
            joined=False,
        )
        for (method,), rows in groups(table, "method").items()
    ]


def write_tables(rows: Rows, folder: Path) -> None:
    """Write the tables of the documentation: NAME.csv for each of `page_tables`."""
    for name, table in page_tables(rows).items():
        if table:
            write_csv(table, folder / f"tabular-{name}.csv")


def page_tables(rows: Rows) -> dict[str, list[Row]]:
    """Return tables of text by name: methods as columns, sets as rows."""
    table = summarize(rows)
    regression, labels = (
        where(table, task=REGRESSION),
        where(table, task=CLASSIFICATION),
    )
    quantiles = where(table, task=QUANTILES)
    return {
        "errors": _wide(regression, "ratio"),
        "times": _wide(regression, "times"),
        "predictions": _wide(regression, "slower"),
        "rmse": _wide(regression, "error", "{:.4g}"),
        "labels": _wide(labels, "ratio"),
        "log-loss": _wide(labels, "log_loss_ratio"),
        "calibration": _wide(labels, "calibration", "{:.3f}"),
        "label-times": _wide(labels, "times"),
        "pinball": _wide(quantiles, "ratio"),
        "coverage": _wide(quantiles, "coverage"),
        "pairs": against_others([row for row in table if row["error"] is not None]),
        "intervals": coverages(rows),
        "ranks": _rank_table(rows),
        "about": _about(rows),
    }


def _wide(table: Rows, name: str, form: str = "{:.2f}") -> list[Row]:
    known = [row for row in table if row[name] is not None]
    names = tuple(dict.fromkeys(row["method"] for row in known))
    return [
        {
            "set": place + (" *" if found[0]["developed"] in (True, "True") else ""),
            "rows": found[0]["rows"],
            **dict.fromkeys(names, ""),
            **{row["method"]: form.format(row[name]) for row in found},
        }
        for (place,), found in groups(known, "set").items()
    ]


def _rank_table(rows: Rows) -> list[Row]:
    table: dict[str, Row] = {}
    for task in dict.fromkeys(row["task"] for row in rows):
        mean, distance = ranks(rows, task)
        last = {"critical distance": distance} if mean else {}
        for method, rank in (mean | last).items():
            entry = table.setdefault(method, {"method": method})
            entry[task] = f"{rank:.2f}"
    tasks = [task for task in _TASKS if any(task in row for row in table.values())]
    order = sorted(table, key="critical distance".__eq__)  # the distance last
    return [
        {"method": n, **{task: table[n].get(task, "") for task in tasks}} for n in order
    ]


def _about(rows: Rows) -> list[Row]:
    """Return versions, dates and machines of the measurements."""
    names = "version", "processor", "threads"
    return [
        {
            **dict(zip(names, map(str, key), strict=True)),
            "dates": _period([str(row["date"]) for row in found]),
            "measurements": str(len(found)),
        }
        for key, found in groups(rows, *names).items()
    ]


def _period(dates: Sequence[str]) -> str:
    first, last = min(dates), max(dates)
    return first if first == last else f"{first} to {last}"
