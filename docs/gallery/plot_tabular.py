"""
Comparison on tables
====================

Errors, times and ranks of ``nbsketch reproduce tabular``, from its tables of results.
"""

import matplotlib.pyplot as plt
import pandas as pd

RESULTS = "../results/tabular-{}.csv"
PANELS = {
    "errors": "Test error of regression",
    "times": "Fit time of regression",
    "log-loss": "Log loss of classification",
    "pinball": "Pinball loss of quantiles",
}
MARKERS = "^Dos<>vph8*X"

ranks = pd.read_csv(RESULTS.format("ranks"), index_col="method")
distances = ranks.loc["critical distance"]
ranks = ranks.drop(index="critical distance")
styles = {
    method: {"marker": marker, "color": plt.cm.tab20(2 * k % 19)}
    for k, (method, marker) in enumerate(zip(ranks.index, MARKERS, strict=False))
}
figure, grid = plt.subplots(4, 1, figsize=(8, 13), layout="constrained")
for ax, (name, title) in zip(grid, PANELS.items(), strict=True):
    table = pd.read_csv(RESULTS.format(name), index_col="set")
    for method in [m for m in styles if m in table]:
        ratios = table[method].clip(lower=0.1)
        ax.plot(ratios, linestyle="", ms=4, label=method, **styles[method])
    ax.axhline(1, color="black", linewidth=0.6)
    ax.set(title=f"{title}, relative to LightGBM", yscale="log")
    ax.yaxis.set_major_formatter("{x:g}")
    ax.yaxis.set_minor_formatter("")
    plt.setp(ax.get_xticklabels(), rotation=30, ha="right")
    ax.grid(alpha=0.25, linewidth=0.6)
figure.legend(*grid[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
plt.show()

# %%
# Mean ranks of the test errors. Methods whose bars do not overlap differ at the level
# 5 % (Nemenyi test).
figure, grid = plt.subplots(3, 1, figsize=(7, 7), layout="constrained")
for ax, task in zip(grid, ranks, strict=True):
    mean = ranks[task].dropna().sort_values(ascending=False)
    bars = {"xerr": distances[task] / 2, "fmt": "o", "capsize": 3}
    ax.errorbar(mean, mean.index, **bars)
    ax.set(title=task, xlabel="Mean rank (lower is better)")
    ax.grid(axis="x", alpha=0.25, linewidth=0.6)
plt.show()
