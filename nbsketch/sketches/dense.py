"""Sketches with independent entries, none of them zero."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nbsketch._jit.csr import (
    GAUSSIAN,
    RADEMACHER,
    fill_dense,
)
from nbsketch._jit.threads import run_slices
from nbsketch.sketches._recipe import SizedRecipe

# Rough time of one random number on one thread.
_SECONDS_PER_ENTRY = 2e-8


@dataclass(frozen=True)
class GaussianSketch(SizedRecipe):
    r"""Gaussian sketch: independent entries :math:`S_{ij} \sim N(0, 1/s)`.

    Parameters
    ----------
    size : int
        Number of rows s of the sketch.

    Notes
    -----
    Yang, Pilanci and Wainwright, Ann. Stat. 2017. It uses every column of the Gram
    matrix, computed tile by tile, and stores its own s n entries.

    Examples
    --------
    >>> from nbsketch import GaussianSketch
    >>> GaussianSketch(size=3).draw(100, rng=0)
    DenseSketch(shape=(3, 100), columns=100)
    """

    def draw_matrix(self, n: int, seed: int) -> NDArray:
        """Return the matrix of a seed: see `SizedRecipe.draw_matrix`."""
        return _draw_dense(self.size, n, GAUSSIAN, seed)


@dataclass(frozen=True)
class RademacherSketch(SizedRecipe):
    r"""Rademacher sketch: independent entries :math:`S_{ij} = \pm 1/\sqrt{s}`.

    Parameters
    ----------
    size : int
        Number of rows s of the sketch.

    Notes
    -----
    The p-SR sketch with p = 1. It uses every column of the Gram matrix,
    computed tile by tile, and stores its own s n entries.

    Examples
    --------
    >>> from nbsketch import RademacherSketch
    >>> RademacherSketch(size=4).draw(100, rng=0)
    DenseSketch(shape=(4, 100), columns=100)
    """

    def draw_matrix(self, n: int, seed: int) -> NDArray:
        """Return the matrix of a seed: see `SizedRecipe.draw_matrix`."""
        return _draw_dense(self.size, n, RADEMACHER, seed)


def _draw_dense(size: int, n: int, law: int, seed: int) -> NDArray:
    entries, scale = np.empty((size, n)), 1 / math.sqrt(size)
    args = (np.uint64(seed), law, scale, entries)
    seconds = n * _SECONDS_PER_ENTRY
    run_slices(fill_dense, size, seconds, *args)
    return entries
