"""Plots of Shapley values: all rows, one row, one feature."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nbsketch._validation import check_integer
from nbsketch.plots._axes import BLUE, GRAY, ORANGE, axes_or_new, documents_axes, finish

_MOST_FEATURES = 20
_WIDTH, _BAR_HEIGHT = 5.0, 0.3  # inches
# Bins of the values of a feature, in each of which points are spread over its height.
_BINS = 60
_SPREAD = 0.8


@documents_axes
def plot_shapley_summary(
    values: ArrayLike, X: ArrayLike, names: Any = None, *, ax: Any = None
) -> Any:
    """Plot the Shapley values of many rows: one swarm of points for each feature.

    Features are in descending order of their mean absolute value; the 20 first are
    drawn. Colors are the ranks of the feature in X: blue is low, orange is high.

    Parameters
    ----------
    values : array_like of shape (n, q)
        Shapley values.
    X : array_like of shape (n, q)
        Rows that were explained.
    names : sequence of str, optional
        Names of the features. Default: x0, x1, ....

    Returns
    -------
    matplotlib Axes
        The axes.

    Raises
    ------
    ValueError
        If the shapes differ.

    Examples
    --------
    >>> import matplotlib
    >>> matplotlib.use("agg")  # no window
    >>> import numpy as np
    >>> from nbsketch.plots import plot_shapley_summary
    >>> X = np.random.default_rng(0).normal(size=(100, 3))
    >>> ax = plot_shapley_summary(X * [1.0, 3.0, 2.0], X)
    >>> [label.get_text() for label in ax.get_yticklabels()]
    ['x1', 'x2', 'x0']
    """
    phi, rows, labels = _checked(values, X, names)
    order = np.argsort(-np.abs(phi).mean(axis=0), kind="stable")[:_MOST_FEATURES]
    ax = axes_or_new(ax, (_WIDTH, _BAR_HEIGHT * len(order) + 1.2))
    ax.axvline(0.0, color=GRAY, linewidth=0.8)
    for place, j in enumerate(order):
        height = place + _swarm(phi[:, j])
        ranks = np.argsort(np.argsort(rows[:, j], kind="stable")) / max(
            1, len(rows) - 1
        )
        ax.scatter(phi[:, j], height, c=ranks, cmap=_colors(), s=5, linewidths=0)
    ax.set_yticks(np.arange(len(order)), [labels[j] for j in order])
    ax.invert_yaxis()
    return finish(ax, xlabel="Shapley value (low feature blue, high orange)")


@documents_axes
def plot_shapley_row(
    values: ArrayLike,
    expected_value: float = 0.0,
    names: Any = None,
    *,
    ax: Any = None,
) -> Any:
    """Plot the Shapley values of one row as bars, from the expected value.

    Parameters
    ----------
    values : array_like of shape (q,)
        Shapley values of the row.
    expected_value : float, default=0.0
        Prediction without any feature, for the title.
    names : sequence of str, optional
        Names of the features. Default: x0, x1, ....

    Returns
    -------
    matplotlib Axes
        The axes.

    Examples
    --------
    >>> import matplotlib
    >>> matplotlib.use("agg")  # no window
    >>> from nbsketch.plots import plot_shapley_row
    >>> plot_shapley_row([1.0, -2.0], 3.0).get_title()
    'prediction 2 = 3 + sum of values'
    """
    phi = np.asarray(values, dtype=float)
    labels = _names(names, len(phi))
    order = np.argsort(-np.abs(phi), kind="stable")[:_MOST_FEATURES]
    ax = axes_or_new(ax, (_WIDTH, _BAR_HEIGHT * len(order) + 1.2))
    colors = [ORANGE if phi[j] > 0 else BLUE for j in order]
    ax.barh(np.arange(len(order)), phi[order], color=colors)
    ax.set_yticks(np.arange(len(order)), [labels[j] for j in order])
    ax.invert_yaxis()
    total = expected_value + phi.sum()
    title = f"prediction {total:.4g} = {expected_value:.4g} + sum of values"
    return finish(ax, xlabel="Shapley value", title=title)


@documents_axes
def plot_shapley_dependence(
    values: ArrayLike,
    X: ArrayLike,
    feature: int = 0,
    names: Any = None,
    *,
    ax: Any = None,
) -> Any:
    """Plot the Shapley values of one feature against the feature.

    Parameters
    ----------
    values : array_like of shape (n, q)
        Shapley values.
    X : array_like of shape (n, q)
        Rows that were explained.
    feature : int, default=0
        Column.
    names : sequence of str, optional
        Names of the features. Default: x0, x1, ....

    Returns
    -------
    matplotlib Axes
        The axes.

    Raises
    ------
    ValueError
        If the shapes differ.

    Examples
    --------
    >>> import matplotlib
    >>> matplotlib.use("agg")  # no window
    >>> import numpy as np
    >>> from nbsketch.plots import plot_shapley_dependence
    >>> X = np.random.default_rng(0).normal(size=(100, 3))
    >>> plot_shapley_dependence(X**2, X, 1).get_xlabel()
    'x1'
    """
    phi, rows, labels = _checked(values, X, names)
    check_integer("feature", feature, low=0, high=phi.shape[1] - 1)
    ax = axes_or_new(ax)
    ax.plot(rows[:, feature], phi[:, feature], ".", color=BLUE, markersize=4)
    return finish(ax, xlabel=labels[feature], ylabel="Shapley value")


def _checked(
    values: ArrayLike, X: ArrayLike, names: Any
) -> tuple[NDArray, NDArray, list[str]]:
    phi, rows = np.asarray(values, dtype=float), np.asarray(X, dtype=float)
    if phi.ndim != 2 or phi.shape != rows.shape:
        raise ValueError(
            "`values` must have the shape of X, one output, got "
            f"{phi.shape} for X of {rows.shape}"
        )
    return phi, rows, _names(names, phi.shape[1])


def _names(names: Any, count: int) -> list[str]:
    labels = [f"x{k}" for k in range(count)] if names is None else list(map(str, names))
    if len(labels) != count:
        raise ValueError(f"`names` must have {count} entries, got {len(labels)}")
    return labels


def _swarm(values: NDArray) -> NDArray:
    """Return heights around 0 that spread points with nearly equal values."""
    width = np.ptp(values) / _BINS
    bins = np.zeros(len(values)) if width == 0 else values // width
    heights = np.zeros(len(values))
    _, counts = np.unique(bins, return_counts=True)
    for label in np.unique(bins):
        inside = np.flatnonzero(bins == label)
        step = np.arange(len(inside)) - (len(inside) - 1) / 2
        heights[inside] = _SPREAD * step / counts.max()
    return heights


def _colors() -> Any:
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("low_high", [BLUE, ORANGE])
