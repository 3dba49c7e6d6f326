"""Plot of a spectrum with critical radius and statistical dimension."""

from __future__ import annotations

from typing import Any

import numpy as np

from nbsketch._validation import check_integer
from nbsketch.diagnostics._spectrum import (
    Spectrum,
    critical_radius,
    statistical_dimension,
)
from nbsketch.plots import BLUE, ORANGE, axes_or_new, documents_axes, finish

# Eigenvalues below this share of the largest are rounding, and not drawn.
_SMALLEST = 1e-12


@documents_axes
def plot_spectrum(
    spectrum: Spectrum, *, size: int | None = None, noise: float = 1.0, ax: Any = None
) -> Any:
    r"""Plot the eigenvalues of K / n, with radius, dimension and a size marked.

    Parameters
    ----------
    spectrum : Spectrum
        Result of `spectrum`.
    size : int, optional
        Size s of a sketch to mark; none by default.
    noise : float, default=1.0
        Standard deviation of the noise, as in `critical_radius`.

    Returns
    -------
    matplotlib Axes
        The axes; ``ax.figure.savefig(path)`` writes a file.

    Examples
    --------
    >>> import matplotlib
    >>> matplotlib.use("agg")  # no window
    >>> import numpy as np
    >>> from nbsketch.diagnostics import plot_spectrum, spectrum
    >>> mu = spectrum(np.random.default_rng(0).normal(size=(200, 2)))
    >>> ax = plot_spectrum(mu, size=40)
    >>> ax.get_xscale(), ax.get_yscale()
    ('log', 'log')
    """
    if size is not None:
        size = check_integer("size", size)
    square = critical_radius(spectrum, noise=noise) ** 2
    d = statistical_dimension(spectrum, noise=noise)
    ax = axes_or_new(ax)
    values = spectrum.values[spectrum.values > _SMALLEST * spectrum.values[0]]
    index = np.arange(1, values.size + 1)
    ax.plot(
        index, values, "o-", markersize=3.5, color=BLUE,
        label=r"eigenvalues $\mu_j$",
    )  # fmt: skip
    dashed: dict[str, Any] = {"linestyle": "--", "linewidth": 1.3}
    ax.axhline(square, color=ORANGE, label=r"critical $\delta_n^2$", **dashed)
    ax.axvline(d, color="#1b9e77", label=f"$d_n = {d}$", **dashed)
    if size is not None:
        ax.axvline(size, color="#555555", label=f"$s = {size}$", **dashed)
    ax.set(xscale="log", yscale="log", title=f"Spectrum of $K/n$, n = {spectrum.n}")
    return finish(ax, xlabel="$j$", ylabel=r"$\mu_j$")
