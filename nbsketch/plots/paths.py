"""Plots of what a fit or a cross-validation tried: sketch sizes and penalties."""

from __future__ import annotations

from typing import Any

import numpy as np

from nbsketch.plots._axes import BLUE, ORANGE, axes_or_new, documents_axes, finish


@documents_axes
def plot_sizes(model: Any, *, ax: Any = None) -> Any:
    """Plot the validation loss against the sketch size: a learning curve in s.

    Parameters
    ----------
    model : estimator
        Fitted with ``size="auto"`` or an `AutoSize`, so that it has `size_path_`.

    Returns
    -------
    matplotlib Axes
        The axes. The size that the model kept is marked.

    Raises
    ------
    ValueError
        If the model is not fitted, or its size was given.

    Examples
    --------
    >>> import matplotlib
    >>> matplotlib.use("agg")  # no window
    >>> import numpy as np
    >>> from nbsketch import AutoSize, SketchedKernelRegressor
    >>> from nbsketch.plots import plot_sizes
    >>> X = np.random.default_rng(0).uniform(-3, 3, size=(500, 1))
    >>> model = SketchedKernelRegressor(
    ...     size=AutoSize(start=5, max_size=40), bandwidth=1.0, random_state=0
    ... ).fit(X, np.sin(X[:, 0]))
    >>> plot_sizes(model).get_xscale()
    'log'
    """
    path = getattr(model, "size_path_", None)
    if path is None:
        raise ValueError(
            '`model` must be fitted with size="auto" or AutoSize(...), so that it has '
            f"`size_path_`, got {model!r}"
        )
    ax = axes_or_new(ax)
    ax.plot(path["size"], path["loss"], "o-", color=BLUE, markersize=4)
    ax.axvline(model.size_, color=ORANGE, linestyle="--", label=f"s = {model.size_}")
    ax.set_xscale("log")
    ax.set_xticks(path["size"], [str(size) for size in path["size"]])
    ax.minorticks_off()
    return finish(ax, xlabel="sketch size $s$", ylabel="validation loss")


@documents_axes
def plot_penalties(result: Any, *, ax: Any = None) -> Any:
    """Plot validation errors against the penalty alpha.

    Parameters
    ----------
    result : CrossValidation or SpectralFilterRegressor
        Result of `nbsketch.model_selection.cross_validate` (a curve for each
        bandwidth, errors averaged over the outputs), or a fitted spectral filter that
        chose its parameter.

    Returns
    -------
    matplotlib Axes
        The axes. The least error is marked.

    Raises
    ------
    ValueError
        If `result` has neither errors nor a path.

    Examples
    --------
    >>> import matplotlib
    >>> matplotlib.use("agg")  # no window
    >>> import numpy as np
    >>> from nbsketch import SketchedKernelRegressor
    >>> from nbsketch.model_selection import cross_validate
    >>> from nbsketch.plots import plot_penalties
    >>> X = np.random.default_rng(0).uniform(-3, 3, size=(300, 1))
    >>> model = SketchedKernelRegressor(size=30, random_state=0)
    >>> found = cross_validate(model, X, np.sin(X[:, 0]), [0.5, 2.0], [1e-3, 1e-6])
    >>> len(plot_penalties(found).lines)
    3
    """
    curves = _curves(result)
    ax = axes_or_new(ax)
    for label, alphas, errors in curves:
        order = np.argsort(alphas)
        ax.plot(alphas[order], errors[order], "o-", markersize=3, label=label)
    _, alphas, errors = min(curves, key=lambda curve: curve[2].min())
    best = errors.argmin()
    ax.plot(alphas[best], errors[best], "o", color="k", markerfacecolor="none", ms=9)
    ax.set(xscale="log", yscale="log")
    return finish(ax, xlabel=r"penalty $\alpha$", ylabel="validation error")


def _curves(result: Any) -> list[tuple[str, Any, Any]]:
    """Return label, penalties and errors of each curve."""
    if hasattr(result, "bandwidths"):
        errors = result.errors.mean(axis=2)
        return [
            (f"bandwidth {width:.3g}", result.alphas, row)
            for width, row in zip(result.bandwidths, errors, strict=True)
        ]
    path = getattr(result, "path_", None)
    if path is None or "alpha" not in path:
        raise ValueError(
            "`result` must be the result of cross_validate, or a fitted "
            f"SpectralFilterRegressor(alpha=None), got {result!r}"
        )
    return [("", np.asarray(path["alpha"]), np.asarray(path["error"]))]
