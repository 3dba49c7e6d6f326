"""
K-satisfiability of sketches
============================

Share of K-satisfiable draws of a sketch against its size, from the results of
``nbsketch reproduce satisfiability``.
"""

import matplotlib.pyplot as plt
import pandas as pd

results = pd.read_csv("../results/satisfiability.csv")
figure, grid = plt.subplots(1, 2, figsize=(7.2, 3.2), sharey=True, layout="constrained")
for ax, (name, rows) in zip(grid, results.groupby("set", sort=False), strict=True):
    for (sketch, part), marker in zip(
        rows.groupby("sketch", sort=False), "os^Dv", strict=False
    ):
        ax.plot(part["size"], part["share"], marker=marker, ms=3.5, label=sketch)
    ax.set(title=f"{name}, $d_n = {rows['dimension'].iloc[0]}$", xlabel="Sketch size s")
grid[0].set_ylabel("Share")
grid[0].legend()
plt.show()
