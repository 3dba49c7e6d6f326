"""Sketches without zeros."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from nbsketch._validation import random_generator
from nbsketch.sketches._sketch import DenseSketch, SizedRecipe


@dataclass(frozen=True)
class GaussianSketch(SizedRecipe):
    r"""Gaussian sketch: independent entries :math:`S_{ij} \sim N(0, 1/s)`.

    Parameters
    ----------
    size : int
        Number of rows s of the sketch.

    Notes
    -----
    Yang, Pilanci and Wainwright, Ann. Stat. 2017. It needs every column of the Gram
    matrix, which is streamed, and s n numbers of memory for itself.

    Examples
    --------
    >>> from nbsketch import GaussianSketch
    >>> GaussianSketch(size=3).draw(100, rng=0)
    DenseSketch(shape=(3, 100), columns=100)
    """

    def draw(
        self, n: int, rng: Any = None, *, X: Any = None, kernel: Any = None
    ) -> DenseSketch:
        """Draw the sketch of n rows of data: see `SketchRecipe.draw`."""
        shape = (self.size, self._check_rows(n))
        entries = random_generator(rng).standard_normal(shape)
        entries /= math.sqrt(self.size)
        return DenseSketch(entries)


@dataclass(frozen=True)
class RademacherSketch(SizedRecipe):
    r"""Rademacher sketch: independent entries :math:`S_{ij} = \pm 1/\sqrt{s}`.

    Parameters
    ----------
    size : int
        Number of rows s of the sketch.

    Notes
    -----
    The p-SR sketch with p = 1. It needs every column of the Gram matrix, which is
    streamed, and s n numbers of memory for itself.

    Examples
    --------
    >>> from nbsketch import RademacherSketch
    >>> RademacherSketch(size=4).draw(100, rng=0)
    DenseSketch(shape=(4, 100), columns=100)
    """

    def draw(
        self, n: int, rng: Any = None, *, X: Any = None, kernel: Any = None
    ) -> DenseSketch:
        """Draw the sketch of n rows of data: see `SketchRecipe.draw`."""
        shape = (self.size, self._check_rows(n))
        heads = random_generator(rng).integers(2, size=shape, dtype=np.int8)
        return DenseSketch((2.0 * heads - 1.0) / math.sqrt(self.size))
