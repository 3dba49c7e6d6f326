"""
Error and time compared with boosted trees
==========================================

The figure of the front page: medians over data sets that were not used to develop
nbsketch, relative to LightGBM on the same splits, from the results of ``nbsketch
reproduce unseen``. ``python docs/gallery/plot_front.py docs`` writes it.
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd

DOCS = Path(sys.argv[1] if len(sys.argv) > 1 else "..")
COLORS = "#1764ab", "#e6ab02", "#d95f02", "#777777"
medians = pd.read_csv(DOCS / "results" / "unseen-front.csv", index_col="method")


def draw(ax, column, digits):
    """Draw a bar for each method, with its number."""
    bars = ax.barh(medians.index, medians[column], color=COLORS)
    ax.bar_label(bars, fmt=f"%.{digits}f", padding=3)
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
# Lower is better; the error axes start at 0.7. The table also has prediction times:
text = medians.to_csv(header=False, float_format="%.2f").strip()
print(text)
if len(sys.argv) > 1:
    plt.rcParams |= {"svg.fonttype": "none", "svg.hashsalt": "front"}
    metadata = {"Date": None, "Description": text}
    figure.savefig(DOCS / "_static" / "front.svg", metadata=metadata)
