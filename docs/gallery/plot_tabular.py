"""
Comparison on tables
====================

Errors and times of ``nbsketch reproduce tabular``, drawn from its file.
"""

from pathlib import Path

import matplotlib.pyplot as plt

from nbsketch.reproduce._tools.panels import add_legend, draw_panel
from nbsketch.reproduce._tools.report import read_csv
from nbsketch.reproduce.tabular.regression import panels

drawn = panels(read_csv(Path("../results/tabular.csv")))
figure, grid = plt.subplots(1, 2, figsize=(7.2, 3.6), layout="constrained")
for ax, panel in zip(grid, drawn, strict=True):
    draw_panel(panel, ax)
    ax.set_ylabel("")
add_legend(figure, grid, 3)
plt.show()
