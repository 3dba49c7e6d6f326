"""
Comparison on tables
====================

Errors, times and ranks of ``nbsketch reproduce tabular``, from its results file.
"""

from pathlib import Path

import matplotlib.pyplot as plt

from nbsketch.reproduce._figures import add_legend, draw_panel
from nbsketch.reproduce._report import read_csv
from nbsketch.reproduce.tabular.summary import panels, plot_ranks

rows = read_csv(Path("../results/tabular.csv"))
drawn = panels(rows)
figure, grid = plt.subplots(len(drawn), 1, figsize=(8, 13), layout="constrained")
for ax, panel in zip(grid, drawn, strict=True):
    draw_panel(panel, ax)
    ax.axhline(1, color="black", linewidth=0.6)
    ax.set_ylabel("")
add_legend(figure, grid, 4)
plt.show()

# %%
# Mean ranks of the test errors. Methods whose bars do not overlap differ at the level
# 5 % (Nemenyi test).
tasks = "regression", "classification", "quantiles"
figure, grid = plt.subplots(3, 1, figsize=(7, 7), layout="constrained")
for ax, task in zip(grid, tasks, strict=True):
    plot_ranks(rows, task, ax)
plt.show()
