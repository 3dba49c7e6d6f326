"""The share of draws that are K-satisfiable, from the file of the experiment."""

from pathlib import Path

import matplotlib.pyplot as plt

from nbsketch.reproduce._report import read_csv
from nbsketch.reproduce.satisfiability import panels

figure, grid = plt.subplots(1, 2, figsize=(7.2, 3.2), sharey=True)
for axes, panel in zip(grid, panels(read_csv(Path("satisfiability.csv"))), strict=True):
    for curve in panel.curves:
        look = {"color": curve.color, "marker": curve.marker, "ms": 3.5}
        axes.plot(curve.x, curve.y, label=curve.label, **look)
    axes.set(title=panel.title, xlabel=panel.x_label)
grid[0].set_ylabel("share of draws")
grid[0].legend()
