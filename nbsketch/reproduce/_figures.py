"""Figures with several panels of curves; each method has one color and marker."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nbsketch.plots import require_matplotlib
from nbsketch.reproduce import read_toml
from nbsketch.reproduce._report import Rows, column, groups

DPI = 200
_COLUMNS = 2
_LEGEND_COLUMNS = 5  # at most
_PANEL_WIDTH = 4.2  # inches
_PANEL_HEIGHT = 3.2  # inches
_LEGEND_HEIGHT = 0.7  # inches
# Multiples of powers of ten with a tick, by the maximum ratio of the ends of an axis.
_TICKS = (
    (10, (1, 1.5, 2, 3, 4, 5, 7)),
    (100, (1, 2, 5)),
    (1e5, (1, 3)),
    (float("inf"), (1,)),
)


class Style(NamedTuple):
    """Color and marker of a curve; without a marker it is dashed."""

    color: str
    marker: str


_DEFAULT = Style("#1764ab", "o")
# By the prefix of a label; the first match is used.
STYLES = {label: Style(*style) for label, style in read_toml("styles.toml").items()}


def style_of(label: str) -> Style:
    """Return the style of a label; a blue circle for labels that are not listed."""
    fitting = (style for name, style in STYLES.items() if label.startswith(name))
    return next(fitting, _DEFAULT)


Numbers = Sequence[float] | NDArray


class Curve(NamedTuple):
    """Points, `joined` by a line, with a band of half-width `spread` if given."""

    label: str
    x: Numbers
    y: Numbers
    spread: Numbers | None = None
    joined: bool = True
    style: Style | None = None  # default: the style of the label


def curves_of(
    rows: Rows, series: str, x: str, y: str, deviation: str = ""
) -> list[Curve]:
    """Return a curve of the columns x and y for each value of the column `series`.

    With the name of a column of deviations, the band is one standard error wide.
    """
    curves = []
    for (label,), group in groups(rows, series).items():
        curve = Curve(label, column(group, x), column(group, y))
        if deviation:
            errors = column(group, deviation) / column(group, "replicates") ** 0.5
            curve = curve._replace(spread=errors)
        curves.append(curve)
    return curves


class Panel(NamedTuple):
    """Curves on the same axes; `log` names the logarithmic axes.

    `names`, if given, label the positions 0, 1, ... of the x axis.
    """

    title: str
    x_label: str
    y_label: str
    curves: Sequence[Curve]
    log: str = ""
    names: Sequence[str] = ()


def save_panels(panels: Sequence[Panel], title: str, path: Path) -> None:
    """Write a figure of several panels to a file."""
    require_matplotlib()
    from matplotlib.figure import Figure

    rows = -(-len(panels) // _COLUMNS)
    size = _PANEL_WIDTH * _COLUMNS, _PANEL_HEIGHT * rows + _LEGEND_HEIGHT
    figure = Figure(figsize=size, layout="constrained")
    grid = figure.subplots(rows, _COLUMNS, squeeze=False).ravel()
    for ax, panel in zip(grid, panels, strict=False):
        draw_panel(panel, ax)
    for ax in grid[len(panels) :]:
        ax.remove()
    figure.suptitle(title)
    add_legend(figure, grid[: len(panels)])
    figure.savefig(path, dpi=DPI)


def draw_panel(panel: Panel, ax: Any) -> None:
    """Draw a panel on axes."""
    for curve in panel.curves:
        _draw_curve(curve, ax)
    ax.set(title=panel.title, xlabel=panel.x_label, ylabel=panel.y_label)
    for name in panel.log:
        _make_logarithmic(ax, name)
    if panel.names:
        ax.set_xticks(range(len(panel.names)), panel.names, rotation=30, ha="right")
    ax.grid(alpha=0.25, linewidth=0.6)


def add_legend(figure: Any, grid: Iterable[Any]) -> None:
    """Put one legend below all axes, each label once, in columns that fit."""
    handles: dict[str, Any] = {}
    for ax in grid:
        for handle, label in zip(*ax.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    for count in range(min(_LEGEND_COLUMNS, len(handles)), 0, -1):
        legend = figure.legend(
            handles.values(), handles, loc="outside lower center",
            ncols=count, frameon=False,
        )  # fmt: skip
        if legend.get_window_extent().width <= figure.bbox.width or count == 1:
            return
        legend.remove()


def _draw_curve(curve: Curve, ax: Any) -> None:
    color, marker = curve.style or style_of(curve.label)
    line = ("-" if marker else "--") if curve.joined else ""
    ax.plot(
        curve.x, curve.y, linestyle=line, label=curve.label, color=color,
        marker=marker, markersize=3.5, linewidth=1.3,
    )  # fmt: skip
    if curve.spread is not None:
        y = np.asarray(curve.y)
        e = np.asarray(curve.spread)
        ax.fill_between(curve.x, y - e, y + e, color=color, alpha=0.12, linewidth=0)


def _make_logarithmic(ax: Any, name: str) -> None:
    """Make an axis logarithmic, with plain numbers at a few round values."""
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    ax.set(**{f"{name}scale": "log"})
    low, high = getattr(ax, f"get_{name}lim")()
    subs = next(multiples for ratio, multiples in _TICKS if high <= ratio * low)
    axis = getattr(ax, f"{name}axis")
    axis.set_major_locator(LogLocator(subs=subs, numticks=10))
    axis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axis.set_minor_formatter(NullFormatter())
