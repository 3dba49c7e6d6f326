"""The accumulation sketch: a sum of sub-sampling sketches with random signs."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from nbsketch._validation import check_integer
from nbsketch.sketches._recipe import SizedRecipe
from nbsketch.sketches._streams import integers, signs


@dataclass(frozen=True)
class AccumulationSketch(SizedRecipe):
    r"""Accumulation of m sub-sampling sketches with random signs.

    .. math:: S_{i \cdot} = \sqrt{\frac{n}{s m}} \sum_{t=1}^m r_{it}\, e_{j_{it}}^\top

    with independent signs r and columns j uniform among the n, so that
    :math:`E[S^T S] = I`. Values at the same entry are summed.

    Parameters
    ----------
    size : int
        Number of rows s of the sketch.
    m : int, default=30
        Number of sub-sampling sketches: at most m nonzeros in each row. m = 1 is
        sub-sampling with replacement, a large m is close to a Gaussian sketch.

    Notes
    -----
    Y. Chen and Y. Yang, "Accumulations of projections: a unified framework for random
    sketches in kernel ridge regression", AISTATS 2021, section 3, with uniform
    probabilities. m = 30 is the value of the experiments of El Ahmad, Laforgue and
    d'Alche-Buc, TMLR 2023.

    Examples
    --------
    >>> from nbsketch import AccumulationSketch
    >>> S = AccumulationSketch(size=50, m=10).draw(100_000_000, rng=0)
    >>> S.shape, 490 < S.columns.size <= 500
    ((50, 100000000), True)
    """

    m: int = 30

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "m", check_integer("m", self.m))

    def draw_matrix(self, n: int, seed: int) -> sp.csr_array:
        """Return the matrix of a seed: see `SizedRecipe.draw_matrix`."""
        shape = (self.size, self.m)
        columns = integers(seed, *shape, n).ravel()
        values = signs(seed, *shape).ravel().astype(np.float64)
        pointers = np.arange(self.size + 1) * self.m
        matrix = sp.csr_array((values, columns, pointers), shape=(self.size, n))
        matrix.sum_duplicates()
        matrix.eliminate_zeros()
        matrix.data *= math.sqrt(n / (self.size * self.m))
        return matrix
