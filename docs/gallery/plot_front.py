"""
Error against time
==================

The picture and the table of the front page: medians over sets on which nothing of
nbsketch was developed, relative to LightGBM on the same splits, from the file of
``nbsketch reproduce unseen``. ``python docs/gallery/plot_front.py docs`` writes both.
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from nbsketch.reproduce._figures import style_of
from nbsketch.reproduce._report import read_csv, write_csv
from nbsketch.reproduce.tabular.summary import summarize

DOCS = Path(sys.argv[1] if len(sys.argv) > 1 else "..")
METHODS = ("tabular, fast", "tabular, high", "CatBoost", "LightGBM tuned", "LightGBM")
rows = summarize(read_csv(DOCS / "results" / "unseen.csv"))


def ratios(task, name, method):
    """Return a ratio to LightGBM on each set of a task."""
    found = (row for row in rows if (row["task"], row["method"]) == (task, method))
    return np.array([row[name] for row in found if row[name] is not None])


def median(task, name, method):
    """Return the median ratio as a text, empty if the method did not run."""
    values = ratios(task, name, method)
    return f"{np.median(values):.2f}" if values.size else ""


figure, ax = plt.subplots(figsize=(7, 4.2), layout="constrained")
for method in METHODS:
    times, errors = (ratios("regression", name, method) for name in ("times", "ratio"))
    style = {"color": style_of(method).color, "marker": style_of(method).marker}
    # Ratios of 0.00 to 0.01, of a set with hardly any noise, are drawn at the edge.
    ax.scatter(times, np.maximum(errors, 0.35), s=14, alpha=0.35, **style)
    place = np.median(times), np.median(errors)
    ax.scatter(*place, s=110, edgecolor="white", zorder=3, label=method, **style)
ax.axhline(1, color="black", linewidth=0.6)
ax.set_xscale("log")
ax.set(xlabel="Fit time over LightGBM's", ylabel="Test error over LightGBM's")
ax.set_xticks([1, 2, 5, 10, 20, 50], ["1", "2", "5", "10", "20", "50"])
ax.legend(frameon=False, loc="upper left", bbox_to_anchor=(1, 1))
plt.show()

# %%
# Large markers are medians over the regression sets, small ones the single sets; ratios
# below 0.35 are drawn there. The table has the medians of both tasks.
front = [
    {
        "method": method,
        "regression: error": median("regression", "ratio", method),
        "classes: log loss": median("classification", "log_loss_ratio", method),
        "fit time": median("regression", "times", method),
        "prediction time": median("regression", "slower", method),
    }
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
