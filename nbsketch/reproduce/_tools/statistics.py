"""Summaries of replicates: means, deviations, times, and log-log slopes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import linregress, sem, t

from nbsketch.reproduce._tools.report import Row, Rows

T = TypeVar("T")


class Slope(NamedTuple):
    """A slope and the half-width of its 95 % confidence interval, if it has one."""

    value: float
    half_width: float | None

    def ends(self) -> tuple[float | None, float | None]:
        """Return the ends of the interval."""
        if self.half_width is None:
            return None, None
        return self.value - self.half_width, self.value + self.half_width


def log_log_slope(x: ArrayLike, y: ArrayLike) -> Slope:
    """Fit the slope of log y against log x by least squares.

    Parameters
    ----------
    x : array_like of shape (n,)
        Positive abscissas.
    y : array_like of shape (n,) or (replicates, n)
        Positive values. With replicates the slope is the mean of their slopes and the
        interval is Student's over the replicates (None for a single one); without, it
        is that of the regression, from the residuals.
    """
    log_x, log_y = np.log(x), np.log(y)
    if log_y.ndim == 1:
        line = linregress(log_x, log_y)
        return _slope(line.slope, np.nan_to_num(line.stderr), log_x.size - 2)
    centered = log_x - log_x.mean()
    slopes = log_y @ centered / (centered @ centered)
    if slopes.size == 1:
        return Slope(float(slopes[0]), None)
    return _slope(slopes.mean(), sem(slopes), slopes.size - 1)


def _slope(value: float, error: float, degrees: int) -> Slope:
    # equal slopes differ by rounding, which is no width
    return Slope(float(value), round(float(t.ppf(0.975, degrees) * error), 9))


def spread(name: str, values: Iterable[float]) -> dict[str, float]:
    """Return mean and standard deviation as the columns `name` and name_deviation."""
    array = np.array(list(values))
    return {name: float(array.mean()), f"{name}_deviation": float(array.std())}


def timed(function: Callable[..., T], *arguments: Any) -> tuple[T, float]:
    """Call a function; return its result and the processor time of all threads.

    Other processes delay a function, but do not add to its processor time.
    """
    start = time.process_time()
    result = function(*arguments)
    return result, time.process_time() - start


def groups(rows: Rows, *names: str) -> dict[tuple[Any, ...], list[Row]]:
    """Return rows by their values in the named columns, in order of appearance."""
    found: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        found.setdefault(tuple(row[name] for name in names), []).append(row)
    return found


def where(rows: Rows, **values: Any) -> list[Row]:
    """Return the rows that have these values."""
    return [row for row in rows if values.items() <= row.items()]


def column(rows: Rows, name: str) -> NDArray[np.float64]:
    """Return the values of a column."""
    return np.array([row[name] for row in rows], dtype=float)
