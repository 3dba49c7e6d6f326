"""
Error and time compared with boosted trees
==========================================

The figure and the table of the front page: medians over data sets that were not used to
develop nbsketch, relative to LightGBM on the same splits, from the results file of
``nbsketch reproduce unseen``. ``python docs/gallery/plot_front.py docs`` writes both.
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from nbsketch.reproduce._figures import style_of
from nbsketch.reproduce._report import read_csv, where, write_csv
from nbsketch.reproduce.tabular.summary import summarize

DOCS = Path(sys.argv[1] if len(sys.argv) > 1 else "..")
METHODS = ("tabular", "CatBoost", "LightGBM tuned", "LightGBM")
# Columns of the table: task, and ratio to LightGBM.
COLUMNS = {
    "regression: error": ("regression", "ratio"),
    "regression: fit time": ("regression", "times"),
    "regression: prediction time": ("regression", "slower"),
    "classes: log loss": ("classification", "log_loss_ratio"),
    "classes: fit time": ("classification", "times"),
    "classes: prediction time": ("classification", "slower"),
}
rows = summarize(read_csv(DOCS / "results" / "unseen.csv"))
# The sets on which the present version of tabular was measured.
rows = [row for row in rows if where(rows, set=row["set"], method=METHODS[0])]


def median(method, task, ratio):
    """Return the median over the sets of a task of a ratio to LightGBM."""
    return np.median([row[ratio] for row in where(rows, task=task, method=method)])


def draw(ax, column, digits):
    """Draw a bar for each method, with its number."""
    values = [median(method, *COLUMNS[column]) for method in METHODS]
    colors = [style_of(method).color for method in METHODS]
    ax.bar_label(ax.barh(METHODS, values, color=colors), fmt=f"%.{digits}f", padding=3)
    ax.spines[["top", "right"]].set_visible(False)


figure, axes = plt.subplots(2, 2, figsize=(7.5, 3.8), layout="constrained", sharey=True)
titles = "Regression: error", "Classification: log loss"
columns = (
    ("regression: error", "regression: fit time"),
    ("classes: log loss", "classes: fit time"),
)
for (ax, other), title, (error, time) in zip(axes, titles, columns, strict=True):
    draw(ax, error, 2)
    ax.set(title=title, xlim=(0.7, 1.05))
    draw(other, time, 0)
    other.set(title=f"{title.split(':')[0]}: fit time", xscale="log", xlim=(0.8, 80))
    other.set_xticks([1, 3, 10, 30], ["1", "3", "10", "30"])
axes[0, 0].invert_yaxis()
figure.supxlabel("Relative to LightGBM with early stopping, median over data sets")
plt.show()

# %%
# Lower is better; the error axes start at 0.7. The table also has prediction times.
front = [
    {"method": method}
    | {column: f"{median(method, *of):.2f}" for column, of in COLUMNS.items()}
    for method in METHODS
]
for row in front:
    print("  ".join(row.values()))
if len(sys.argv) > 1:
    write_csv(front, DOCS / "results" / "unseen-front.csv")
    plt.rcParams |= {"svg.fonttype": "none", "svg.hashsalt": "front"}
    text = "\n".join(",".join(row.values()) for row in front)
    metadata = {"Date": None, "Description": text}
    figure.savefig(DOCS / "_static" / "front.svg", metadata=metadata)
