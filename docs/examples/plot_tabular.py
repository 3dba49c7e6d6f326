"""Errors and times of defaults on tabular sets, from the file of the experiment."""

from pathlib import Path

import matplotlib.pyplot as plt

from nbsketch.reproduce._tools.panels import add_legend, draw_panel
from nbsketch.reproduce._tools.report import read_csv
from nbsketch.reproduce.tabular.regression import panels

figure, grid = plt.subplots(1, 2, figsize=(7.2, 3.6), layout="constrained")
for ax, panel in zip(grid, panels(read_csv(Path("tabular.csv"))), strict=True):
    draw_panel(panel, ax)
    ax.set_ylabel("")
add_legend(figure, grid, 3)
