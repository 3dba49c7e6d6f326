"""Axes to draw on; matplotlib is imported when they are needed."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any, TypeVar

Plot = TypeVar("Plot", bound=Callable[..., Any])

BLUE, ORANGE, GRAY = "#1764ab", "#d95f02", "#777777"


_AX = """ax : matplotlib Axes, optional
    Axes to draw on; by default those of a new figure.
"""
_MISSING = """ModuleNotFoundError
    If matplotlib is not installed.
"""


def documents_axes(plot: Plot) -> Plot:
    """Add to a docstring what all plots share: the parameter ``ax`` and an error."""
    if plot.__doc__:  # python -OO leaves none
        doc = inspect.cleandoc(plot.__doc__)
        before, after = doc.split("\nReturns\n", 1)
        if "\nRaises\n------\n" not in after:
            after = after.replace("\nExamples\n", "\nRaises\n------\n\nExamples\n", 1)
        raised, examples = after.split("\nExamples\n", 1)
        raised = raised.rstrip("\n") + "\n" + _MISSING
        plot.__doc__ = f"{before}{_AX}\nReturns\n{raised}\nExamples\n{examples}"
    return plot


def require_matplotlib() -> None:
    """Raise an error that says how to install matplotlib if it is missing."""
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
    """Set labels, draw a light grid and a legend if there is anything in it."""
    ax.set(**labels)
    ax.grid(alpha=0.25, linewidth=0.6)
    if ax.get_legend_handles_labels()[1]:
        ax.legend()
    return ax
