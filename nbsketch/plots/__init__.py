"""Plots on matplotlib axes: each takes ``ax=`` and returns the axes it drew on."""

from nbsketch.plots.length_scales import plot_length_scales
from nbsketch.plots.paths import plot_penalties, plot_sizes
from nbsketch.plots.predictions import (
    plot_intervals,
    plot_quantiles,
    plot_reliability,
    plot_residuals,
)
from nbsketch.plots.shapley import (
    plot_shapley_dependence,
    plot_shapley_row,
    plot_shapley_summary,
)

__all__ = [
    "plot_intervals",
    "plot_length_scales",
    "plot_penalties",
    "plot_quantiles",
    "plot_reliability",
    "plot_residuals",
    "plot_shapley_dependence",
    "plot_shapley_row",
    "plot_shapley_summary",
    "plot_sizes",
]
