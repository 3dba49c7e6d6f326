"""Pictures of curves and bars. matplotlib is imported when one is drawn, not before."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

_PANEL_WIDTH, _PANEL_HEIGHT = 4.2, 3.2  # inches
_LEGEND_HEIGHT = 0.7
_DPI = 200
# Features of which a bar is drawn, and the height of one in inches.
_MOST_BARS, _BAR_HEIGHT = 30, 0.22
# Up to which ratio of its ends an axis has marks at which multiples of powers of ten.
_MARKS = (
    (10, (1, 1.5, 2, 3, 4, 5, 7)),
    (100, (1, 2, 5)),
    (1e5, (1, 3)),
    (float("inf"), (1,)),
)


Numbers = Sequence[float] | NDArray


class Curve(NamedTuple):
    """Points, `joined` by a line, with a band around it if `spread` is given."""

    label: str
    x: Numbers
    y: Numbers
    spread: Numbers | None = None
    color: str = "black"
    marker: str = "o"
    dashed: bool = False
    joined: bool = True


class Panel(NamedTuple):
    """Curves on the same axes; `log` names those that are logarithmic.

    `names`, if given, stand at 0, 1, ... on the x axis in place of numbers.
    """

    title: str
    x_label: str
    y_label: str
    curves: Sequence[Curve]
    log: str = ""
    names: Sequence[str] = ()


def require_matplotlib() -> None:
    """Raise an error that says how to install matplotlib where it is missing."""
    if find_spec("matplotlib") is None:
        raise ModuleNotFoundError(
            'Plots need matplotlib: pip install "nbsketch[plot]"', name="matplotlib"
        )


def draw(panels: Sequence[Panel], title: str, path: Path, columns: int = 2) -> None:
    """Write a picture of several panels, with one legend for all, to a file."""
    require_matplotlib()
    from matplotlib.figure import Figure

    rows = -(-len(panels) // columns)
    size = (_PANEL_WIDTH * columns, _PANEL_HEIGHT * rows + _LEGEND_HEIGHT)
    figure = Figure(figsize=size, layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False).ravel()
    for axes, panel in zip(grid, panels, strict=False):
        _draw_panel(axes, panel)
    for axes in grid[len(panels) :]:
        axes.remove()
    figure.suptitle(title)
    handles = _handles(grid[: len(panels)])
    columns = min(3 * columns - 1, 5, len(handles))
    figure.legend(
        handles.values(), handles, loc="outside lower center", ncols=columns,
        frameon=False,
    )  # fmt: skip
    _save(figure, path)


def plot_length_scales(model: Any, path: str | Path) -> None:
    """Write a picture of learned length-scales: how much each feature bends the model.

    A bar is the inverse of a length-scale, in units of one over the standard deviation
    of the feature. The 30 longest bars are drawn.

    Parameters
    ----------
    model : estimator
        Fitted, with `length_scales_`.
    path : str or Path
        Where the picture goes; its suffix says in which format.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> import numpy as np
    >>> from nbsketch import SketchedKernelRegressor
    >>> from nbsketch.plots import plot_length_scales
    >>> X = np.random.default_rng(0).normal(size=(200, 3))
    >>> model = SketchedKernelRegressor(random_state=0).fit(X, np.sin(X[:, 0]))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder) / "scales.png"
    ...     plot_length_scales(model, path)
    ...     path.exists()
    True
    """
    scales = getattr(model, "length_scales_", None)
    if scales is None:
        raise ValueError(
            f"`model` must be fitted and have learned length-scales, got {model!r}"
        )
    require_matplotlib()
    from matplotlib.figure import Figure

    order = np.argsort(scales, kind="stable")[:_MOST_BARS]
    names = getattr(model, "feature_names_in_", [f"x{k}" for k in range(len(scales))])
    size = (_PANEL_WIDTH, _BAR_HEIGHT * len(order) + 1.2)
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots()
    positions = np.arange(len(order))
    axes.barh(positions, 1 / scales[order], color="#1764ab")
    axes.set_yticks(positions, [str(names[k]) for k in order])
    axes.invert_yaxis()
    axes.set(xlabel="1 / length-scale", title=_counted(len(order), len(scales)))
    axes.grid(axis="x", alpha=0.25, linewidth=0.6)
    _save(figure, Path(path))


def _counted(drawn: int, count: int) -> str:
    return "Relevance" + (f", {drawn} of {count} features" if drawn < count else "")


def _save(figure: Any, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=_DPI)


def _draw_panel(axes: Any, panel: Panel) -> None:
    for curve in panel.curves:
        style = "--" if curve.dashed else "-"
        axes.plot(
            curve.x, curve.y, style if curve.joined else " ", label=curve.label,
            color=curve.color, marker=curve.marker, markersize=3.5, linewidth=1.3,
        )  # fmt: skip
        if curve.spread is not None:
            low = [y - e for y, e in zip(curve.y, curve.spread, strict=True)]
            high = [y + e for y, e in zip(curve.y, curve.spread, strict=True)]
            axes.fill_between(
                curve.x, low, high, color=curve.color, alpha=0.12, linewidth=0
            )
    axes.set(title=panel.title, xlabel=panel.x_label, ylabel=panel.y_label)
    for name in panel.log:
        _make_logarithmic(axes, name)
    if panel.names:
        axes.set_xticks(range(len(panel.names)), panel.names, rotation=30, ha="right")
    axes.grid(alpha=0.25, linewidth=0.6)


def _make_logarithmic(axes: Any, name: str) -> None:
    """Make an axis logarithmic, with plain numbers at a few round values."""
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    axes.set(**{f"{name}scale": "log"})
    low, high = getattr(axes, f"get_{name}lim")()
    subs = next(marks for ratio, marks in _MARKS if high <= ratio * low)
    axis = getattr(axes, f"{name}axis")
    axis.set_major_locator(LogLocator(subs=subs, numticks=10))
    axis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axis.set_minor_formatter(NullFormatter())


def _handles(grid: Iterable[Any]) -> dict[str, Any]:
    """Return one handle for each label, in the order in which they first appear."""
    handles: dict[str, Any] = {}
    for axes in grid:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    return handles
