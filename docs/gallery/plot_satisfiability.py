"""
K-satisfiability of sketches
============================

Share of K-satisfiable draws of a sketch against its size, from the results of
``nbsketch reproduce satisfiability``.
"""

from pathlib import Path

import matplotlib.pyplot as plt

from nbsketch.reproduce._figures import draw_panel
from nbsketch.reproduce._report import read_csv
from nbsketch.reproduce.p_sparsified.satisfiability import panels

drawn = panels(read_csv(Path("../results/satisfiability.csv")))
figure, grid = plt.subplots(1, 2, figsize=(7.2, 3.2), sharey=True, layout="constrained")
for ax, panel in zip(grid, drawn, strict=True):
    draw_panel(panel, ax)
grid[1].set_ylabel("")
grid[0].legend()
plt.show()
