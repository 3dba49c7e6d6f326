"""Plots of predictions: quantiles, intervals, residuals, reliability of classes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nbsketch.plots._axes import BLUE, GRAY, ORANGE, axes_or_new, documents_axes, finish

_MOST_ROWS = 60  # with a bar each
_BINS = 10


@documents_axes
def plot_quantiles(
    model: Any,
    X: ArrayLike,
    y: ArrayLike | None = None,
    *,
    feature: int = 0,
    ax: Any = None,
) -> Any:
    """Plot predicted quantiles against a feature: a fan of bands around the middle.

    For one feature the bands are the conditional quantiles. With several features the
    curves connect rows with different values of the others.

    Parameters
    ----------
    model : JointQuantileRegressor
        Fitted; a band joins the first and the last level, the second and the last but
        one, ....
    X : array_like of shape (n, q)
        Rows to predict.
    y : array_like of shape (n,), optional
        Targets to draw as points.
    feature : int, default=0
        Column of X on the horizontal axis.

    Returns
    -------
    matplotlib Axes
        The axes.

    Examples
    --------
    >>> import matplotlib
    >>> matplotlib.use("agg")  # no window
    >>> import numpy as np
    >>> from nbsketch import JointQuantileRegressor
    >>> from nbsketch.plots import plot_quantiles
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-2, 2, size=(200, 1))
    >>> y = X[:, 0] + rng.normal(size=200)
    >>> model = JointQuantileRegressor((0.1, 0.5, 0.9), size=20, random_state=0)
    >>> ax = plot_quantiles(model.fit(X, y), X, y)
    >>> ax.get_legend_handles_labels()[1]
    ['target', '0.1 to 0.9', '0.5']
    """
    x = np.asarray(X)[:, feature]
    order = np.argsort(x, kind="stable")
    levels, curves = model.quantiles, model.predict(X)[order].T
    ax = axes_or_new(ax)
    if y is not None:
        ax.plot(x, y, ".", color=GRAY, markersize=2, alpha=0.6, label="target")
    for low in range(len(levels) // 2):
        high = len(levels) - 1 - low
        ax.fill_between(
            x[order], curves[low], curves[high], color=BLUE, alpha=0.25, linewidth=0,
            label=f"{levels[low]:g} to {levels[high]:g}",
        )  # fmt: skip
    if len(levels) % 2:
        middle = len(levels) // 2
        ax.plot(x[order], curves[middle], color=BLUE, label=f"{levels[middle]:g}")
    return finish(ax, xlabel=f"feature {feature}", ylabel="target")


@documents_axes
def plot_intervals(
    model: Any, X: ArrayLike, y: ArrayLike, *, coverage: float = 0.8, ax: Any = None
) -> Any:
    """Plot prediction intervals and targets, rows in the order of the interval centers.

    At most 60 rows, spread evenly over that order, are drawn; the title states the
    share of all rows inside.

    Parameters
    ----------
    model : estimator with ``predict_interval``
        Fitted.
    X : array_like of shape (n, q)
        Rows to predict.
    y : array_like of shape (n,)
        Their targets.
    coverage : float, default=0.8
        Share of targets that the intervals shall contain.

    Returns
    -------
    matplotlib Axes
        The axes.

    Examples
    --------
    >>> import matplotlib
    >>> matplotlib.use("agg")  # no window
    >>> import numpy as np
    >>> from nbsketch import JointQuantileRegressor
    >>> from nbsketch.plots import plot_intervals
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-2, 2, size=(300, 1))
    >>> y = X[:, 0] + rng.normal(size=300)
    >>> model = JointQuantileRegressor((0.1, 0.9), size=20, random_state=0).fit(X, y)
    >>> plot_intervals(model, X, y, coverage=0.8).get_title()[-32:]
    'of all targets inside, 80% asked'
    """
    intervals, y = model.predict_interval(X, coverage=coverage), np.asarray(y)
    inside = (intervals[:, 0] <= y) & (y <= intervals[:, 1])
    order = np.argsort(intervals.mean(axis=1), kind="stable")
    shown = order[np.linspace(0, len(y) - 1, min(len(y), _MOST_ROWS)).astype(int)]
    ax = axes_or_new(ax)
    place = np.arange(len(shown))
    label = f"{coverage:.0%} interval"
    ax.vlines(place, *intervals[shown].T, color=BLUE, alpha=0.4, label=label)
    for mask, color, name in ((True, "k", "inside"), (False, ORANGE, "outside")):
        chosen = inside[shown] == mask
        ax.plot(place[chosen], y[shown][chosen], ".", color=color, ms=5, label=name)
    title = f"{inside.mean():.1%} of all targets inside, {coverage:.0%} asked"
    xlabel = "rows by center of their interval"
    return finish(ax, xlabel=xlabel, ylabel="target", title=title)


@documents_axes
def plot_residuals(model: Any, X: ArrayLike, y: ArrayLike, *, ax: Any = None) -> Any:
    """Plot residuals, target minus prediction, against predictions.

    Parameters
    ----------
    model : regressor
        Fitted, with one output.
    X : array_like of shape (n, q)
        Rows to predict; rows of the fit have smaller residuals than new ones.
    y : array_like of shape (n,)
        Their targets.

    Returns
    -------
    matplotlib Axes
        The axes. The title states the root mean squared residual.

    Examples
    --------
    >>> import matplotlib
    >>> matplotlib.use("agg")  # no window
    >>> import numpy as np
    >>> from nbsketch import SketchedKernelRegressor
    >>> from nbsketch.plots import plot_residuals
    >>> X = np.random.default_rng(0).uniform(-3, 3, size=(200, 1))
    >>> y = np.sin(X[:, 0])
    >>> model = SketchedKernelRegressor(random_state=0).fit(X[:100], y[:100])
    >>> plot_residuals(model, X[100:], y[100:]).get_ylabel()
    'residual'
    """
    predicted = np.asarray(model.predict(X))
    residuals = np.asarray(y) - predicted
    ax = axes_or_new(ax)
    ax.plot(predicted, residuals, ".", color=BLUE, markersize=3, alpha=0.5)
    ax.axhline(0, color="k", linewidth=0.8)
    title = f"root mean squared residual {np.sqrt(np.mean(residuals**2)):.3g}"
    return finish(ax, xlabel="prediction", ylabel="residual", title=title)


@documents_axes
def plot_reliability(model: Any, X: ArrayLike, y: ArrayLike, *, ax: Any = None) -> Any:
    """Plot the frequency of each class against its predicted probability.

    Rows are sorted into ten bins of equal width by the probability of a class. Points
    on the diagonal are calibrated.

    Parameters
    ----------
    model : classifier with ``predict_proba``
        Fitted. With two classes the second is drawn, otherwise each of them.
    X : array_like of shape (n, q)
        Rows to predict, not those of the fit.
    y : array_like of shape (n,)
        Their labels.

    Returns
    -------
    matplotlib Axes
        The axes. The legend states the expected calibration error of each class: the
        mean distance to the diagonal over the rows.

    Examples
    --------
    >>> import matplotlib
    >>> matplotlib.use("agg")  # no window
    >>> import numpy as np
    >>> from nbsketch import SketchedKernelClassifier
    >>> from nbsketch.plots import plot_reliability
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(400, 2))
    >>> y = X[:, 0] + rng.normal(size=400) > 0
    >>> model = SketchedKernelClassifier(loss="logistic", random_state=0)
    >>> ax = plot_reliability(model.fit(X[:200], y[:200]), X[200:], y[200:])
    >>> ax.get_xlabel()
    'predicted probability'
    """
    probabilities, y = model.predict_proba(X), np.asarray(y)
    classes = list(enumerate(model.classes_))
    ax = axes_or_new(ax)
    ax.plot([0, 1], [0, 1], color="k", linewidth=0.8)
    for k, name in classes[1:] if len(classes) == 2 else classes:
        mean, frequency, error = _reliability(probabilities[:, k], y == name)
        ax.plot(mean, frequency, "o-", ms=4, label=f"{name}: error {error:.3f}")
    return finish(ax, xlabel="predicted probability", ylabel="frequency")


def _reliability(p: NDArray, hits: NDArray) -> tuple[NDArray, NDArray, float]:
    """Return mean probability and frequency of each bin, and their mean distance."""
    bins = np.minimum((p * _BINS).astype(int), _BINS - 1)
    count = np.bincount(bins, minlength=_BINS)
    full = count > 0
    mean = np.bincount(bins, p, _BINS)[full] / count[full]
    frequency = np.bincount(bins, hits, _BINS)[full] / count[full]
    error = np.abs(mean - frequency) @ count[full] / len(p)
    return mean, frequency, float(error)
