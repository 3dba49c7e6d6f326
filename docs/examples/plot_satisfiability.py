"""Share of draws that are K-satisfiable, from the file of the experiment."""

from pathlib import Path

import matplotlib.pyplot as plt

from nbsketch.reproduce._tools.panels import draw_panel
from nbsketch.reproduce._tools.report import read_csv
from nbsketch.reproduce.p_sparsified.satisfiability import panels

figure, grid = plt.subplots(1, 2, figsize=(7.2, 3.2), sharey=True)
for ax, panel in zip(grid, panels(read_csv(Path("satisfiability.csv"))), strict=True):
    draw_panel(panel, ax)
grid[1].set_ylabel("")
grid[0].legend()
