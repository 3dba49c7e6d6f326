"""The images of otoliths, or synthetic ones of the same shape if they are not found."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from nbsketch.datasets import Dataset, load_otoliths

_N_TRAIN, _N_TEST, _SIDE, _OLDEST = 3780, 165, 64, 26


def load(data_home: Path | None = None) -> Dataset:
    """Return the otoliths; if they are not found, say so and return synthetic ones."""
    try:
        return load_otoliths(data_home=data_home)
    except FileNotFoundError as error:
        print(f"{error}\nA synthetic set of the same shape is used instead.")
        return make_rings()


def make_rings(
    n_train: int = _N_TRAIN, n_test: int = _N_TEST, seed: int = 0
) -> Dataset:
    """Return noisy images of ellipses with rings, whose size grows with the age.

    Size, shape, tilt and brightness vary, so that the age is not determined.
    """
    rng = np.random.default_rng(seed)
    n = n_train + n_test
    age = np.ceil(rng.gamma(4.0, 2.0, n)).clip(1, _OLDEST)
    growth = (0.4 + 0.45 * (1 - np.exp(-age / 8))) * np.exp(0.06 * rng.normal(size=n))
    shape, tilt = rng.uniform(0.6, 0.9, n), rng.normal(0, 0.3, n)
    light = rng.uniform(0.7, 1.0, n)
    images = [_ellipse(*one) for one in zip(growth, shape, tilt, strict=True)]
    X = light[:, None] * np.stack(images)
    X += 0.02 * rng.normal(size=X.shape)
    names = tuple(f"pixel_{i}" for i in range(_SIDE**2))
    return Dataset("otoliths, synthetic", X, age, names, ("age",), n_train)


def _ellipse(size: float, shape: float, tilt: float) -> NDArray:
    """Return an image of side^2 values: a bright ellipse with faint rings."""
    grid = np.linspace(-1, 1, _SIDE)
    u, v = (axis.ravel() for axis in np.meshgrid(grid, grid))
    along = np.cos(tilt) * u + np.sin(tilt) * v
    across = (np.cos(tilt) * v - np.sin(tilt) * u) / shape
    radius = np.hypot(along, across) / size
    return (0.8 + 0.2 * np.cos(6 * np.pi * radius)) / (1 + np.exp(20 * (radius - 1)))
