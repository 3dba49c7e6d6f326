"""A picture of a spectrum, with what is read off it."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from nbsketch import plots
from nbsketch._validation import check_integer
from nbsketch.diagnostics._dimensions import critical_radius, statistical_dimension
from nbsketch.diagnostics._spectrum import Spectrum

# Eigenvalues below this share of the largest are rounding, and not drawn.
_SMALLEST = 1e-12


def plot_spectrum(
    spectrum: Spectrum,
    path: str | Path,
    *,
    size: int | None = None,
    noise: float = 1.0,
) -> None:
    """Write a picture of the eigenvalues, with radius, dimension and size marked.

    Parameters
    ----------
    spectrum : Spectrum
        As `spectrum` returns it.
    path : str or Path
        Where the picture goes; its suffix says in which format.
    size : int, optional
        Size s of a sketch to mark.
    noise : float
        Standard deviation of the noise, as in `critical_radius`.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> import numpy as np
    >>> from nbsketch.diagnostics import plot_spectrum, spectrum
    >>> mu = spectrum(np.random.default_rng(0).normal(size=(200, 2)))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder) / "spectrum.png"
    ...     plot_spectrum(mu, path, size=40)
    ...     path.exists()
    True
    """
    if size is not None:
        size = check_integer("size", size)
    values = spectrum.values[spectrum.values > _SMALLEST * spectrum.values[0]]
    found = plots.Curve(
        r"eigenvalues $\mu_j$", np.arange(1, values.size + 1), values, color="#1764ab"
    )
    square = critical_radius(spectrum, noise=noise) ** 2
    d = statistical_dimension(spectrum, noise=noise)
    height = [min(values[-1], square), values[0]]
    width = [1, max(values.size, d, size or 0)]
    marks = [
        _line(r"critical $\delta_n^2$", width, [square] * 2, "#d95f02"),
        _line(f"$d_n = {d}$", [d, d], height, "#1b9e77"),
    ]
    if size is not None:
        marks.append(_line(f"$s = {size}$", [size, size], height, "#555555"))
    panel = plots.Panel("", "$j$", r"$\mu_j$", [found, *marks], "xy")
    plots.draw([panel], f"Spectrum of $K/n$, n = {spectrum.n}", Path(path), columns=1)


def _line(label: str, x: list[float], y: list[float], color: str) -> plots.Curve:
    return plots.Curve(label, x, y, color=color, marker="", dashed=True)
