"""Sketches with few nonzeros in each column, in rows chosen at random."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import scipy.sparse as sp

from nbsketch._jit.csr import fill_distinct
from nbsketch._validation import check_integer
from nbsketch.sketches._recipe import SizedRecipe
from nbsketch.sketches._streams import signs

# Advised by Martinsson and Tropp, 2020, section 9.2.
_NONZEROS = 8


@dataclass(frozen=True)
class CountSketch(SizedRecipe):
    r"""CountSketch: one entry :math:`\pm 1` in each column, in a random row.

    Rows and signs are independent and uniform; :math:`E[S^T S] = I`.

    Parameters
    ----------
    size : int
        Number of rows s of the sketch.

    Notes
    -----
    Clarkson and Woodruff, "Low-rank approximation and regression in input sparsity
    time", J. ACM 2017. It uses every column of the Gram matrix, computed tile by tile,
    and costs hardly more than these kernel values. Its rows are dependent, so it cannot
    grow.

    Examples
    --------
    >>> from nbsketch import CountSketch
    >>> S = CountSketch(size=10).draw(100, rng=0)
    >>> S, S.to_csr().nnz
    (Sketch(shape=(10, 100), columns=100), 100)
    """

    grows: ClassVar[bool] = False

    def draw_matrix(self, n: int, seed: int) -> sp.csr_array:
        """Return the matrix of a seed: see `SizedRecipe.draw_matrix`."""
        return _draw_columns(self.size, n, 1, seed)


@dataclass(frozen=True)
class SparseJLSketch(SizedRecipe):
    r"""Sparse Johnson-Lindenstrauss sketch: c entries in each column.

    The entries are :math:`\pm 1/\sqrt{c}` with independent signs, in c distinct rows,
    any c of them equally likely; :math:`E[S^T S] = I`.

    Parameters
    ----------
    size : int
        Number of rows s of the sketch.
    nonzeros : int or None, default=None
        Number c of nonzeros in each column, at most s. None: min(8, s). 1 gives the
        `CountSketch`, s the `RademacherSketch`.

    Notes
    -----
    Kane and Nelson, "Sparser Johnson-Lindenstrauss transforms", J. ACM 2014, the graph
    construction. To preserve lengths up to a factor 1 + e with probability 1 - d, s of
    the order of log(1/d) / e^2 and c of the order of e s suffice; in practice a
    constant c does, and 8 is advised by Martinsson and Tropp, "Randomized numerical
    linear algebra", Acta Numerica 2020, section 9.2. It uses every column of the Gram
    matrix, computed tile by tile. Its rows are dependent, so it cannot grow.

    Examples
    --------
    >>> from nbsketch import SparseJLSketch
    >>> S = SparseJLSketch(size=10, nonzeros=3).draw(100, rng=0)
    >>> S, S.to_csr().nnz
    (Sketch(shape=(10, 100), columns=100), 300)
    """

    nonzeros: int | None = None
    grows: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.nonzeros is not None:
            c = check_integer("nonzeros", self.nonzeros, high=self.size)
            object.__setattr__(self, "nonzeros", c)

    def draw_matrix(self, n: int, seed: int) -> sp.csr_array:
        """Return the matrix of a seed: see `SizedRecipe.draw_matrix`."""
        c = min(_NONZEROS, self.size) if self.nonzeros is None else self.nonzeros
        return _draw_columns(self.size, n, c, seed)


def _draw_columns(size: int, n: int, c: int, seed: int) -> sp.csr_array:
    rows = np.empty((n, c), dtype=np.int32)
    fill_distinct(np.uint64(seed), size, np.full(size, -1), rows)
    values = signs(seed, n, c) / math.sqrt(c)
    pointers = np.arange(n + 1) * c
    columns = (values.ravel(), rows.ravel(), pointers)
    return sp.csr_array(sp.csc_array(columns, shape=(size, n)))
