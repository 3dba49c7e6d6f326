"""Errors and times of defaults on tabular sets, from the file of the experiment."""

from pathlib import Path

import matplotlib.pyplot as plt

from nbsketch.reproduce._report import read_csv
from nbsketch.reproduce.tabular import panels

figure, grid = plt.subplots(1, 2, figsize=(7.2, 3.6))
for axes, panel in zip(grid, panels(read_csv(Path("tabular.csv"))), strict=True):
    for curve in panel.curves:
        look = {"color": curve.color, "marker": curve.marker, "ms": 4, "ls": ""}
        axes.plot(curve.x, curve.y, label=curve.label, **look)
    axes.set(title=panel.title, yscale="log")
    axes.yaxis.set_major_formatter("{x:g}")
    axes.set_xticks(range(len(panel.names)), panel.names, rotation=40, ha="right")
    axes.grid(alpha=0.25, lw=0.6)
figure.legend(*grid[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
