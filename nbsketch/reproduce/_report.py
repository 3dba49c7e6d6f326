"""Rows of results: text, Markdown, CSV, statistics, and provenance."""

import csv
import json
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from shutil import which
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import linregress, sem, t

import nbsketch
from nbsketch._report import info

Row = dict[str, Any]
Rows = list[Row]
T = TypeVar("T")
_FOLDERS = {"--out", "--data-home"}
_VERSIONS = "nbsketch", "python", "numba", "numpy", "scipy", "scikit-learn"


def as_text(rows: Rows) -> str:
    """Return rows as an aligned table."""
    cells = _cells(rows)
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = [
        "  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip()
        for row in cells
    ]
    return "\n".join([lines[0], "-" * len(lines[0]), *lines[1:]])


def as_markdown(rows: Rows, title: str, notes: Sequence[str]) -> str:
    """Return rows as a Markdown page; each note is a paragraph."""
    head, *body = ["| " + " | ".join(row) + " |" for row in _cells(rows)]
    rule = "|" + " --- |" * len(rows[0])
    return "\n".join([f"# {title}", "", head, rule, *body, "", "\n\n".join(notes), ""])


def write_csv(rows: Rows, path: Path, mode: str = "w") -> None:
    """Write rows to a CSV file; mode "a" appends without a header."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open(mode, newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]))
        if mode == "w":
            writer.writeheader()
        writer.writerows(rows)


def read_csv(path: Path) -> Rows:
    """Return the rows of a CSV file, numbers as numbers, empty cells as None.

    Commits are text, even if they could be numbers, such as 6344e40.
    """
    with path.open(newline="", encoding="utf-8") as file:
        return [
            {k: v or None if k == "commit" else _value(v) for k, v in row.items()}
            for row in csv.DictReader(file)
        ]


def _cells(rows: Rows) -> list[list[str]]:
    return [list(rows[0]), *([_cell(v) for v in row.values()] for row in rows)]


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 0.1 else f"{value:.3f}"
    return str(value)


def _value(text: str) -> Any:
    if not text:
        return None
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def log_log_slope(x: ArrayLike, y: ArrayLike) -> tuple[float, float | None]:
    """Return the least squares slope of log y against log x, and its half width.

    Parameters
    ----------
    x : array_like of shape (n,)
        Positive abscissas.
    y : array_like of shape (n,) or (replicates, n)
        Positive values. With replicates, the slope is the mean of their slopes, and the
        95 % interval is Student's over the replicates (None for a single one);
        otherwise the interval is that of the regression, from the residuals.
    """
    log_x = np.log(x)
    log_y = np.log(y)
    if log_y.ndim == 1:
        line = linregress(log_x, log_y)
        return _slope(line.slope, np.nan_to_num(line.stderr), log_x.size - 2)
    centered = log_x - log_x.mean()
    slopes = log_y @ centered / (centered @ centered)
    if slopes.size == 1:
        return float(slopes[0]), None
    return _slope(slopes.mean(), sem(slopes), slopes.size - 1)


def growth(x: ArrayLike, curves: NDArray) -> Row:
    """Return slope, ends of its interval, and the mean of the first and last values.

    `curves` are positive values (replicates, n), as in `log_log_slope`.
    """
    slope, width = log_log_slope(x, curves)
    first, *_, last = curves.mean(axis=0).tolist()
    low, high = (None, None) if width is None else (slope - width, slope + width)
    return {"slope": slope, "low": low, "high": high, "first": first, "last": last}


def _slope(value: float, error: float, degrees: int) -> tuple[float, float]:
    # equal slopes differ by rounding, which is not a width
    return float(value), round(float(t.ppf(0.975, degrees) * error), 9)


def peak_memory() -> float | None:
    """Return the peak memory of the process in GiB; None if it cannot be read."""
    try:
        import resource
    except ImportError:
        return None
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**30


def timed(function: Callable[..., T], *arguments: Any) -> tuple[T, float]:
    """Call a function; return its result and the processor time of all threads.

    Other processes delay a function but do not add to its processor time.
    """
    start = time.process_time()
    return function(*arguments), time.process_time() - start


def groups(rows: Rows, *names: str) -> dict[tuple[Any, ...], Rows]:
    """Return rows by their values in the named columns, in order of appearance."""
    grouped: dict[tuple[Any, ...], Rows] = {}
    for row in rows:
        grouped.setdefault(tuple(row[name] for name in names), []).append(row)
    return grouped


def where(rows: Rows, **values: Any) -> Rows:
    """Return the rows with these values."""
    return [row for row in rows if values.items() <= row.items()]


def column(rows: Rows, name: str) -> NDArray:
    """Return the values of a column."""
    return np.array([row[name] for row in rows], dtype=float)


def replicated(rows: Rows, y: str) -> tuple[NDArray, NDArray]:
    """Return the distinct n, and y of each replicate, (replicates, len(n)).

    An n is left out if one of its y is missing.
    """
    by_n = {key: column(group, y) for (key,), group in groups(rows, "n").items()}
    complete = {key: curve for key, curve in by_n.items() if np.isfinite(curve).all()}
    curves = np.array(list(complete.values())).T
    return np.array(list(complete), dtype=float), np.ascontiguousarray(curves)


def plain(row: Row) -> Row:
    """Return a row with Python numbers instead of NumPy numbers."""
    return {k: v.item() if isinstance(v, np.generic) else v for k, v in row.items()}


def spread(name: str, values: Iterable[float]) -> Row:
    """Return mean and standard deviation as the columns `name` and name_deviation.

    The deviation of a single value is None.
    """
    array = np.array(list(values))
    deviation = float(array.std()) if len(array) > 1 else None
    return {name: float(array.mean()), f"{name}_deviation": deviation}


def summarized(
    rows: Rows,
    by: Sequence[str],
    statistics: Mapping[str, Callable[[Any], Any]],
    spreads: Sequence[str] = (),
    count: str = "",
) -> Rows:
    """Return a row for each group of rows with the same values in the columns `by`.

    It has these values, mean and deviation of the columns `spreads`, the number of rows
    in the column `count` if given, and the `statistics` of other columns.
    """
    table = []
    for key, group in groups(rows, *by).items():
        row = dict(zip(by, key, strict=True))
        for name in spreads:
            row |= spread(name, column(group, name))
        row |= {count: len(group)} if count else {}
        for name, statistic in statistics.items():
            row[name] = float(statistic(column(group, name)))
        table.append(row)
    return table


def provenance() -> dict[str, str]:
    """Return date (UTC), state of the code, command, versions, processor, threads."""
    environment = info.collect()
    today = datetime.now(UTC).date().isoformat()
    return {"date": today, "commit": _commit(), "command": _command()} | {
        name: environment[name] for name in (*_VERSIONS, "processor", "threads")
    }


def _command() -> str:
    """Return the command of this process, without folders, which affect no number."""
    words = ["nbsketch", *sys.argv[1:]]
    pairs = zip(["", *words], words, strict=False)
    return shlex.join(
        word for pair in pairs if not _FOLDERS & {*pair} for word in pair[1:]
    )


def _commit() -> str:
    """Return the commit of a checkout, with + if files have changed; else nothing."""
    folder = Path(nbsketch.__file__).parents[1]
    git = ["git", "-C", str(folder), "describe", "--always", "--dirty=+", "--exclude=*"]
    if not (folder / ".git").exists() or which("git") is None:
        return ""
    return subprocess.run(git, capture_output=True, text=True).stdout.strip()


def as_sentence(about: dict[str, str]) -> str:
    """Return the provenance of a result in one sentence."""
    commit = f", commit {about['commit']}" if about.get("commit") else ""
    return (
        f"Measured on {about['date']} with nbsketch {about['nbsketch']}{commit} "
        f"(numba {about['numba']}, NumPy {about['numpy']}) on {about['processor']}, "
        f"{about['threads']} thread(s)."
    )


def write_provenance(file: Path) -> None:
    """Write `provenance` next to a result, as NAME.json."""
    text = json.dumps(provenance(), indent=2) + "\n"
    file.with_suffix(".json").write_text(text, encoding="utf-8")


def read_provenance(file: Path) -> str:
    """Return the sentence of the NAME.json next to a result; empty if missing."""
    path = file.with_suffix(".json")
    if not path.exists():
        return ""
    return as_sentence(json.loads(path.read_text(encoding="utf-8")))
