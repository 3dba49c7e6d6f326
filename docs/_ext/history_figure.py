"""Figure of the performance over time: ratios to the first version."""

from pathlib import Path

from matplotlib.figure import Figure

PANELS = {
    "processor time of the same task": {
        "$K S^\\top$": "product",
        "fit, square": "square",
        "fit, Huber": "huber",
        "fit, pinball": "pinball",
        "quantiles": "quantiles",
        "predict": "predict",
    },
    "errors of the defaults": {
        "noiseless target": "unexplained",
        "diabetes": "diabetes",
        "digits": "digits",
    },
}


def draw_history(rows, folder):
    """Draw each column relative to its first value, from commit to commit."""
    figure = Figure(figsize=(7.2, 3.4), layout="constrained")
    steps = range(len(rows))
    for ax, (title, curves) in zip(figure.subplots(1, 2), PANELS.items(), strict=True):
        for label, column in curves.items():
            ratios = [row[column] / rows[0][column] for row in rows]
            ax.plot(steps, ratios, "o-", ms=3, lw=1.2, label=label)
        ax.set_xticks(steps, [row["commit"] for row in rows], rotation=45)
        ax.set(title=title, ylim=(0, None), ylabel="ratio to the first version")
        ax.grid(alpha=0.25, linewidth=0.6)
        ax.legend(fontsize=8, frameon=False)
    figure.savefig(Path(folder) / "history.png", dpi=150)
