"""Plot of learned length scales."""

from __future__ import annotations

from typing import Any

import numpy as np

from nbsketch.plots._axes import BLUE, axes_or_new, documents_axes, finish

_MOST_BARS = 30
_WIDTH, _BAR_HEIGHT = 4.2, 0.22  # inches


@documents_axes
def plot_length_scales(model: Any, *, ax: Any = None) -> Any:
    """Plot the relevance of each feature: one over its learned length scale.

    Bars are in units of one over the standard deviation of the feature, in descending
    order; the 30 longest are drawn.

    Parameters
    ----------
    model : estimator
        Fitted, with learned `length_scales_`.

    Returns
    -------
    matplotlib Axes
        The axes, for labels and limits; ``ax.figure.savefig(path)`` writes a file.

    Raises
    ------
    ValueError
        If the model is not fitted, or its length scales were not learned.

    Examples
    --------
    >>> import matplotlib
    >>> matplotlib.use("agg")  # no window
    >>> import numpy as np
    >>> from nbsketch import SketchedKernelRegressor
    >>> from nbsketch.plots import plot_length_scales
    >>> X = np.random.default_rng(0).normal(size=(200, 3))
    >>> model = SketchedKernelRegressor(random_state=0).fit(X, np.sin(X[:, 0]))
    >>> ax = plot_length_scales(model)
    >>> ax.get_yticklabels()[0].get_text()
    'x0'
    """
    scales = getattr(model, "length_scales_", None)
    if scales is None:
        raise ValueError(
            "`model` must be fitted with learned length scales (bandwidth=None or "
            f'"auto"), got {model!r}'
        )
    order = np.argsort(scales, kind="stable")[:_MOST_BARS]
    names = getattr(model, "feature_names_in_", [f"x{k}" for k in range(len(scales))])
    ax = axes_or_new(ax, (_WIDTH, _BAR_HEIGHT * len(order) + 1.2))
    positions = np.arange(len(order))
    ax.barh(positions, 1 / scales[order], color=BLUE)
    ax.set_yticks(positions, [str(names[k]) for k in order])
    ax.invert_yaxis()
    title = _title(len(order), len(scales))
    return finish(ax, xlabel="1 / length scale", title=title)


def _title(drawn: int, count: int) -> str:
    return "Relevance" + (f", {drawn} of {count} features" if drawn < count else "")
