"""Plots on matplotlib axes: each function takes ``ax=`` and returns the axes.

Intervals and quantiles have Display classes like the plots of scikit-learn.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nbsketch._report.validation import check_integer

__all__ = [
    "IntervalDisplay",
    "QuantileDisplay",
    "plot_intervals",
    "plot_length_scales",
    "plot_penalties",
    "plot_quantiles",
    "plot_shapley_dependence",
    "plot_shapley_row",
    "plot_shapley_summary",
    "plot_sizes",
]


BLUE = "#1764ab"
ORANGE = "#d95f02"
GRAY = "#777777"
_MOST_BARS = 30  # length scales
_WIDTH = 4.2  # inches
_BAR_HEIGHT = 0.22  # inches
_MOST_ROWS = 60  # with an interval each
_MOST_FEATURES = 20  # with Shapley values
_SHAPLEY_WIDTH = 5.0  # inches
_ROW_HEIGHT = 0.3  # inches
# Bins of the values of a feature; points in a bin are spread over the row height.
_SWARM_BINS = 60
_SPREAD = 0.8  # share of the height of a row


def require_matplotlib() -> None:
    """Raise an error with installation instructions if matplotlib is missing."""
    if find_spec("matplotlib") is None:
        raise ModuleNotFoundError(
            'Plots need matplotlib: pip install "nbsketch[plot]"', name="matplotlib"
        )


def axes_or_new(ax: Any, figsize: tuple[float, float] | None = None) -> Any:
    """Return `ax`, or the axes of a new pyplot figure if it is None."""
    require_matplotlib()
    if ax is not None:
        return ax
    from matplotlib import pyplot

    return pyplot.subplots(figsize=figsize, layout="constrained")[1]


def finish(ax: Any, **labels: Any) -> Any:
    """Set labels, draw a light grid, and add a legend if there are entries."""
    ax.set(**labels)
    ax.grid(alpha=0.25, linewidth=0.6)
    if ax.get_legend_handles_labels()[1]:
        ax.legend()
    return ax


def mark_sizes(ax: Any, sizes: NDArray) -> None:
    """Mark these sizes, and no others, on a logarithmic horizontal axis."""
    ax.set_xscale("log")
    ax.set_xticks(sizes, [str(size) for size in sizes])
    ax.minorticks_off()


def plot_length_scales(model: Any, *, ax: Any = None) -> Any:
    """Plot the relevance of each feature: the inverse of its learned length scale.

    Bars are in units of the inverse standard deviation of the feature (for tabular
    models, relative to the largest), in descending order; at most 30 are drawn.

    Parameters
    ----------
    model : estimator
        Fitted model with learned `length_scales_`, or a tabular model, whose bars are
        the `feature_relevance_` of the encoded features.
    ax : matplotlib Axes, optional
        Axes to draw on. Default: the axes of a new figure.

    Returns
    -------
    matplotlib Axes
        The axes; ``ax.figure.savefig(path)`` writes a file.

    Raises
    ------
    ValueError
        If the model is not fitted, or its length scales were not learned.
    ModuleNotFoundError
        If matplotlib is not installed.

    Examples
    --------
    >>> import matplotlib
    >>> matplotlib.use("agg")  # no window
    >>> import numpy as np
    >>> from nbsketch import SketchedKernelRegressor
    >>> from nbsketch.plots import plot_length_scales
    >>> X = np.random.default_rng(0).normal(size=(200, 3))
    >>> model = SketchedKernelRegressor(random_state=0).fit(X, np.sin(X[:, 0]))
    >>> ax = plot_length_scales(model)
    >>> ax.get_yticklabels()[0].get_text()
    'x0'
    """
    if hasattr(model, "feature_relevance_"):
        relevance = model.feature_relevance_
        names = model.columns_.feature_names
    elif getattr(model, "length_scales_", None) is not None:
        relevance = 1 / model.length_scales_
        names = getattr(model, "feature_names_in_", None)
    else:
        raise ValueError(
            "`model` must be fitted with learned length scales (bandwidth=None or "
            f'"auto"), got {model!r}'
        )
    order = np.argsort(-relevance, kind="stable")[:_MOST_BARS]
    labels = _names(names, len(relevance))
    ax = axes_or_new(ax, (_WIDTH, _BAR_HEIGHT * len(order) + 1.2))
    ax.barh(np.arange(len(order)), relevance[order], color=BLUE)
    _list_features(ax, order, labels)
    title = "Relevance"
    if len(order) < len(relevance):
        title += f", {len(order)} of {len(relevance)} features"
    return finish(ax, xlabel="1 / length scale", title=title)


def plot_sizes(model: Any, *, ax: Any = None) -> Any:
    """Plot the validation loss against the sketch size.

    Parameters
    ----------
    model : estimator
        Fitted with ``size="auto"`` or an `AutoSize`, so that `size_path_` exists.
    ax : matplotlib Axes, optional
        Axes to draw on. Default: the axes of a new figure.

    Returns
    -------
    matplotlib Axes
        The axes. The selected size is marked.

    Raises
    ------
    ValueError
        If the model is not fitted, or its size was not selected automatically.
    ModuleNotFoundError
        If matplotlib is not installed.

    Examples
    --------
    >>> import matplotlib
    >>> matplotlib.use("agg")  # no window
    >>> import numpy as np
    >>> from nbsketch import AutoSize, SketchedKernelRegressor
    >>> from nbsketch.plots import plot_sizes
    >>> X = np.random.default_rng(0).uniform(-3, 3, size=(500, 1))
    >>> model = SketchedKernelRegressor(
    ...     size=AutoSize(start=5, max_size=40), bandwidth=1.0, random_state=0
    ... ).fit(X, np.sin(X[:, 0]))
    >>> plot_sizes(model).get_xscale()
    'log'
    """
    path = getattr(model, "size_path_", None)
    if path is None:
        raise ValueError(
            '`model` must be fitted with size="auto" or AutoSize(...), so that it has '
            f"`size_path_`, got {model!r}"
        )
    ax = axes_or_new(ax)
    ax.plot(path["size"], path["loss"], "o-", color=BLUE, markersize=4)
    ax.axvline(model.size_, color=ORANGE, linestyle="--", label=f"s = {model.size_}")
    mark_sizes(ax, path["size"])
    return finish(ax, xlabel="sketch size $s$", ylabel="validation loss")


def plot_penalties(result: Any, *, ax: Any = None) -> Any:
    """Plot validation errors against the penalty alpha.

    Parameters
    ----------
    result : CrossValidation or SpectralFilterRegressor
        Result of `nbsketch.model_selection.cross_validate` (one curve per bandwidth,
        errors averaged over the outputs), or a fitted spectral filter with a selected
        parameter.
    ax : matplotlib Axes, optional
        Axes to draw on. Default: the axes of a new figure.

    Returns
    -------
    matplotlib Axes
        The axes. The lowest error is marked.

    Raises
    ------
    ValueError
        If `result` has neither errors nor a path.
    ModuleNotFoundError
        If matplotlib is not installed.

    Examples
    --------
    >>> import matplotlib
    >>> matplotlib.use("agg")  # no window
    >>> import numpy as np
    >>> from nbsketch import SketchedKernelRegressor
    >>> from nbsketch.model_selection import cross_validate
    >>> from nbsketch.plots import plot_penalties
    >>> X = np.random.default_rng(0).uniform(-3, 3, size=(300, 1))
    >>> model = SketchedKernelRegressor(size=30, random_state=0)
    >>> found = cross_validate(model, X, np.sin(X[:, 0]), [0.5, 2.0], [1e-3, 1e-6])
    >>> len(plot_penalties(found).lines)
    3
    """
    curves = _curves(result)
    ax = axes_or_new(ax)
    for label, alphas, errors in curves:
        order = np.argsort(alphas)
        ax.plot(alphas[order], errors[order], "o-", markersize=3, label=label)
    _, alphas, errors = min(curves, key=lambda curve: curve[2].min())
    best = errors.argmin()
    ax.plot(alphas[best], errors[best], "o", color="k", markerfacecolor="none", ms=9)
    ax.set(xscale="log", yscale="log")
    return finish(ax, xlabel=r"penalty $\alpha$", ylabel="validation error")


def _curves(result: Any) -> list[tuple[str, Any, Any]]:
    """Return label, penalties and errors of each curve."""
    if hasattr(result, "bandwidths"):
        errors = result.errors.mean(axis=2)
        return [
            (f"bandwidth {width:.3g}", result.alphas, row)
            for width, row in zip(result.bandwidths, errors, strict=True)
        ]
    path = getattr(result, "path_", None)
    if path is None or "alpha" not in path:
        raise ValueError(
            "`result` must be the result of cross_validate, or a fitted "
            f"SpectralFilterRegressor(alpha=None), got {result!r}"
        )
    return [("", np.asarray(path["alpha"]), np.asarray(path["error"]))]


def plot_quantiles(
    model: Any,
    X: ArrayLike,
    y: ArrayLike | None = None,
    *,
    feature: int = 0,
    ax: Any = None,
) -> Any:
    """Plot predicted quantiles against a feature, as nested bands.

    With one feature, the bands are the conditional quantiles. With several features,
    the curves connect samples with different values of the other features.

    Parameters
    ----------
    model : JointQuantileRegressor
        Fitted model; a band joins the first and the last level, the second and the
        second to last, and so on.
    X : array_like of shape (n, q)
        Samples to predict.
    y : array_like of shape (n,), optional
        Targets to draw as points.
    feature : int, default=0
        Column of X on the horizontal axis.
    ax : matplotlib Axes, optional
        Axes to draw on. Default: the axes of a new figure.

    Returns
    -------
    matplotlib Axes
        The axes.

    Raises
    ------
    ModuleNotFoundError
        If matplotlib is not installed.

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
    return QuantileDisplay.from_estimator(model, X, y, feature=feature, ax=ax).ax_


@dataclass(eq=False, repr=False)
class QuantileDisplay:
    """Quantiles against a feature, like scikit-learn's Display classes.

    Use `from_estimator` or `from_predictions`; `plot` draws on other axes.

    Attributes
    ----------
    x : ndarray of shape (n,)
        Values of the feature.
    quantiles : ndarray of shape (n, k)
        Quantiles at the ascending `levels`.
    levels : sequence of k floats
        Levels of the quantiles.
    y : ndarray of shape (n,) or None
        Targets.
    xlabel : str
        Label of the horizontal axis.
    ax_ : matplotlib Axes
        The axes after drawing; ``ax_.figure`` is the figure.

    Examples
    --------
    >>> import matplotlib
    >>> matplotlib.use("agg")  # no window
    >>> import numpy as np
    >>> from nbsketch.plots import QuantileDisplay
    >>> x = np.linspace(0, 1, 9)
    >>> quantiles = np.column_stack([x - 1, x + 1])
    >>> display = QuantileDisplay.from_predictions(x, quantiles, [0.1, 0.9])
    >>> display.ax_.get_legend_handles_labels()[1]
    ['0.1 to 0.9']
    """

    x: Any
    quantiles: Any
    levels: Sequence[float]
    y: Any = None
    xlabel: str = "feature"

    def __post_init__(self) -> None:
        n = len(self.x)
        self.x = _array("x", self.x, n)
        self.quantiles = _array("quantiles", self.quantiles, n, len(self.levels))
        if self.y is not None:
            self.y = _array("y", self.y, n)

    @classmethod
    def from_estimator(
        cls, model: Any, X: Any, y: Any = None, *, feature: int = 0, ax: Any = None
    ) -> Self:
        """Draw the quantiles of a fitted model: see `plot_quantiles`."""
        x = np.asarray(X)[:, feature]
        values = model.predict(X), _part(model, "quantiles_")
        return cls(x, *values, y, f"feature {feature}").plot(ax=ax)

    @classmethod
    def from_predictions(
        cls,
        x: ArrayLike,
        quantiles: ArrayLike,
        levels: Sequence[float],
        y: Any = None,
        *,
        ax: Any = None,
    ) -> Self:
        """Draw given quantiles, of shape (n, k), against x."""
        return cls(x, quantiles, levels, y).plot(ax=ax)

    def plot(self, *, ax: Any = None) -> Self:
        """Draw on `ax`, by default on the axes of a new figure."""
        order = np.argsort(self.x, kind="stable")
        x = self.x[order]
        curves = self.quantiles[order].T
        levels = self.levels
        ax = axes_or_new(ax)
        if self.y is not None:
            ax.plot(self.x, self.y, ".", color=GRAY, ms=2, alpha=0.6, label="target")
        for low in range(len(levels) // 2):
            high = len(levels) - 1 - low
            ax.fill_between(
                x, curves[low], curves[high], color=BLUE, alpha=0.25, linewidth=0,
                label=f"{levels[low]:g} to {levels[high]:g}",
            )  # fmt: skip
        if len(levels) % 2:
            middle = len(levels) // 2
            ax.plot(x, curves[middle], color=BLUE, label=f"{levels[middle]:g}")
        self.ax_ = finish(ax, xlabel=self.xlabel, ylabel="target")
        return self


def _array(name: str, values: Any, *shape: int) -> NDArray:
    """Return values as an array; raise a ValueError if the shape differs."""
    array = np.asarray(values)
    if array.shape != shape:
        raise ValueError(f"`{name}` must have shape {shape}, got {array.shape}")
    return array


def _part(model: Any, name: str) -> Any:
    """Return an attribute of a model, or raise a TypeError that names it."""
    if not hasattr(model, name):
        raise TypeError(f"`model` must have `{name}`, got {model!r}")
    return getattr(model, name)


def plot_intervals(
    model: Any, X: ArrayLike, y: ArrayLike, *, coverage: float = 0.8, ax: Any = None
) -> Any:
    """Plot prediction intervals and targets, ordered by the interval centers.

    At most 60 samples, spread evenly over that order, are drawn; the title states the
    coverage of all samples.

    Parameters
    ----------
    model : estimator with ``predict_interval``
        Fitted model.
    X : array_like of shape (n, q)
        Samples to predict.
    y : array_like of shape (n,)
        Targets.
    coverage : float, default=0.8
        Nominal coverage of the intervals.
    ax : matplotlib Axes, optional
        Axes to draw on. Default: the axes of a new figure.

    Returns
    -------
    matplotlib Axes
        The axes.

    Raises
    ------
    ModuleNotFoundError
        If matplotlib is not installed.

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
    >>> plot_intervals(model, X, y, coverage=0.8).get_title()[-13:]
    '(nominal 80%)'
    """
    return IntervalDisplay.from_estimator(model, X, y, coverage=coverage, ax=ax).ax_


@dataclass(eq=False, repr=False)
class IntervalDisplay:
    """Prediction intervals and targets, like scikit-learn's Display classes.

    Use `from_estimator` or `from_predictions`; `plot` draws on other axes.

    Attributes
    ----------
    y : ndarray of shape (n,)
        Targets.
    intervals : ndarray of shape (n, 2)
        Ends of the intervals.
    coverage : float
        Nominal coverage of the intervals.
    ax_ : matplotlib Axes
        The axes after drawing; ``ax_.figure`` is the figure.

    Examples
    --------
    >>> import matplotlib
    >>> matplotlib.use("agg")  # no window
    >>> import numpy as np
    >>> from nbsketch.plots import IntervalDisplay
    >>> y = np.arange(5.0)
    >>> ends = np.column_stack([y - 1, y + 1])
    >>> IntervalDisplay.from_predictions(y, ends, coverage=0.9).ax_.get_title()
    'Empirical coverage 100.0% (nominal 90%)'
    """

    y: Any
    intervals: Any
    coverage: float

    def __post_init__(self) -> None:
        n = len(self.y)
        self.y = _array("y", self.y, n)
        self.intervals = _array("intervals", self.intervals, n, 2)

    @classmethod
    def from_estimator(
        cls, model: Any, X: Any, y: Any, *, coverage: float = 0.8, ax: Any = None
    ) -> Self:
        """Draw the intervals of a fitted model: see `plot_intervals`."""
        intervals = _part(model, "predict_interval")(X, coverage=coverage)
        return cls.from_predictions(y, intervals, coverage=coverage, ax=ax)

    @classmethod
    def from_predictions(
        cls, y: ArrayLike, intervals: ArrayLike, *, coverage: float, ax: Any = None
    ) -> Self:
        """Draw given intervals, of shape (n, 2)."""
        return cls(y, intervals, coverage).plot(ax=ax)

    def plot(self, *, ax: Any = None) -> Self:
        """Draw on `ax`, by default on the axes of a new figure."""
        y = self.y
        intervals = self.intervals
        inside = (intervals[:, 0] <= y) & (y <= intervals[:, 1])
        order = np.argsort(intervals.mean(axis=1), kind="stable")
        shown = order[np.linspace(0, len(y) - 1, min(len(y), _MOST_ROWS)).astype(int)]
        ax = axes_or_new(ax)
        place = np.arange(len(shown))
        label = f"{self.coverage:.0%} interval"
        ax.vlines(place, *intervals[shown].T, color=BLUE, alpha=0.4, label=label)
        for mask, color, name in ((True, "k", "inside"), (False, ORANGE, "outside")):
            chosen = inside[shown] == mask
            ax.plot(place[chosen], y[shown][chosen], ".", color=color, ms=5, label=name)
        title = f"Empirical coverage {inside.mean():.1%} (nominal {self.coverage:.0%})"
        xlabel = "samples by center of their interval"
        self.ax_ = finish(ax, xlabel=xlabel, ylabel="target", title=title)
        return self


def plot_shapley_summary(
    values: ArrayLike, X: ArrayLike, names: Any = None, *, ax: Any = None
) -> Any:
    """Plot the Shapley values of many samples: one swarm of points per feature.

    Features are in descending order of their mean absolute value; the first 20 are
    drawn. Colors are the ranks of the feature in X: blue is low, orange is high.

    Parameters
    ----------
    values : array_like of shape (n, q)
        Shapley values.
    X : array_like of shape (n, q)
        Explained samples.
    names : sequence of str, optional
        Names of the features. Default: x0, x1, ....
    ax : matplotlib Axes, optional
        Axes to draw on. Default: the axes of a new figure.

    Returns
    -------
    matplotlib Axes
        The axes.

    Raises
    ------
    ValueError
        If the shapes differ.
    ModuleNotFoundError
        If matplotlib is not installed.

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
    ax = axes_or_new(ax, (_SHAPLEY_WIDTH, _ROW_HEIGHT * len(order) + 1.2))
    from matplotlib.colors import LinearSegmentedColormap

    colors = LinearSegmentedColormap.from_list("low_high", [BLUE, ORANGE])
    ax.axvline(0.0, color=GRAY, linewidth=0.8)
    for place, j in enumerate(order):
        height = place + _swarm(phi[:, j])
        ranks = np.argsort(np.argsort(rows[:, j], kind="stable"))
        shares = ranks / max(1, len(rows) - 1)
        ax.scatter(phi[:, j], height, c=shares, cmap=colors, s=5, linewidths=0)
    _list_features(ax, order, labels)
    return finish(ax, xlabel="Shapley value (low feature blue, high orange)")


def plot_shapley_row(
    values: ArrayLike, expected_value: float = 0.0, names: Any = None, *, ax: Any = None
) -> Any:
    """Plot the Shapley values of one sample as bars, from the expected value.

    The title shows that they add up to f(x), the explained value: see
    `nbsketch.explain.shapley_values`.

    Parameters
    ----------
    values : array_like of shape (q,)
        Shapley values of the sample.
    expected_value : float, default=0.0
        Value without any feature, for the title: `nbsketch.explain.expected_value`.
    names : sequence of str, optional
        Names of the features. Default: x0, x1, ....
    ax : matplotlib Axes, optional
        Axes to draw on. Default: the axes of a new figure.

    Returns
    -------
    matplotlib Axes
        The axes.

    Raises
    ------
    ModuleNotFoundError
        If matplotlib is not installed.

    Examples
    --------
    >>> import matplotlib
    >>> matplotlib.use("agg")  # no window
    >>> from nbsketch.plots import plot_shapley_row
    >>> plot_shapley_row([1.0, -2.0], 3.0).get_title()
    'f(x) = 2 = 3 + sum of values'
    """
    phi = np.asarray(values, dtype=float)
    labels = _names(names, len(phi))
    order = np.argsort(-np.abs(phi), kind="stable")[:_MOST_FEATURES]
    ax = axes_or_new(ax, (_SHAPLEY_WIDTH, _ROW_HEIGHT * len(order) + 1.2))
    colors = [ORANGE if phi[j] > 0 else BLUE for j in order]
    ax.barh(np.arange(len(order)), phi[order], color=colors)
    _list_features(ax, order, labels)
    total = expected_value + phi.sum()
    title = f"f(x) = {total:.4g} = {expected_value:.4g} + sum of values"
    return finish(ax, xlabel="Shapley value", title=title)


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
        Explained samples.
    feature : int, default=0
        Column of X.
    names : sequence of str, optional
        Names of the features. Default: x0, x1, ....
    ax : matplotlib Axes, optional
        Axes to draw on. Default: the axes of a new figure.

    Returns
    -------
    matplotlib Axes
        The axes.

    Raises
    ------
    ValueError
        If the shapes differ.
    ModuleNotFoundError
        If matplotlib is not installed.

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
    phi = np.asarray(values, dtype=float)
    rows = np.asarray(X, dtype=float)
    if phi.ndim != 2 or phi.shape != rows.shape:
        raise ValueError(
            "`values` must have the shape of X, one output, got "
            f"{phi.shape} for X of {rows.shape}"
        )
    return phi, rows, _names(names, phi.shape[1])


def _names(names: Any, count: int) -> list[str]:
    given = [f"x{k}" for k in range(count)] if names is None else names
    labels = [str(name).replace("$", r"\$") for name in given]  # no formulas
    if len(labels) != count:
        raise ValueError(f"`names` must have {count} entries, got {len(labels)}")
    return labels


def _list_features(ax: Any, order: NDArray, labels: list[str]) -> None:
    """Label the rows of a chart with features, the first on top."""
    ax.set_yticks(np.arange(len(order)), [labels[j] for j in order])
    ax.invert_yaxis()


def _swarm(values: NDArray) -> NDArray:
    """Return heights around 0 that spread points with nearly equal values."""
    width = np.ptp(values) / _SWARM_BINS
    bins = np.zeros(len(values)) if width == 0 else values // width
    heights = np.zeros(len(values))
    _, counts = np.unique(bins, return_counts=True)
    for label in np.unique(bins):
        inside = np.flatnonzero(bins == label)
        step = np.arange(len(inside)) - (len(inside) - 1) / 2
        heights[inside] = _SPREAD * step / counts.max()
    return heights
