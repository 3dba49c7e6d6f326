"""Sketches with random entries: all of them, a share p, or a few in each column."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from nbsketch._fields import Rule, count, optional, plain, share
from nbsketch._jit.csr import (
    GAUSSIAN,
    RADEMACHER,
    count_entries,
    fill_dense,
    fill_distinct,
    fill_entries,
)
from nbsketch._jit.threads import run_slices
from nbsketch._validation import check_choice, check_integer
from nbsketch.sketches._sketch import SizedRecipe, signs

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


_LAWS = {"rademacher": RADEMACHER, "gaussian": GAUSSIAN}

# Mean number of nonzeros in a row, as in the experiments of the paper.
_NONZEROS_PER_ROW = 20


@dataclass(frozen=True)
class PSparsifiedSketch(SizedRecipe):
    r"""p-sparsified sketch, p-SR or p-SG.

    .. math:: S_{ij} = \frac{1}{\sqrt{s p}} B_{ij} R_{ij}

    with independent B ~ Bernoulli(p) and R Rademacher (p-SR) or standard normal (p-SG);
    :math:`E[S^T S] = I`. Only the s' columns with a nonzero matter:
    :math:`S = S_{SG} S_{SS}`, a small dense-like sketch after a sub-sampling one.

    Parameters
    ----------
    size : int
        Number of rows s of the sketch.
    density : float in (0, 1] or None, default=None
        Probability p of a nonzero. None: min(1, 20/n), about 20 nonzeros in each row,
        so that s' is about 20 s at most.
    law : {"rademacher", "gaussian"}, default="rademacher"
        Law of the nonzeros.

    Notes
    -----
    El Ahmad, Laforgue and d'Alche-Buc, "Fast Kernel Methods for Generic Lipschitz
    Losses via p-Sparsified Sketches", TMLR 2023, section 3. The matrix is written
    directly in CSR form in O(s + nnz) time and memory, whatever n is.

    Examples
    --------
    >>> from nbsketch import PSparsifiedSketch
    >>> S = PSparsifiedSketch(size=50).draw(100_000_000, rng=0)
    >>> S.shape, 800 < S.columns.size < 1200
    ((50, 100000000), True)
    """

    density: float | None = None
    law: Literal["rademacher", "gaussian"] = "rademacher"

    _rules: ClassVar[dict[str, Rule]] = {
        "density": optional(share),
        "law": plain(check_choice, choices=_LAWS),
    }

    def draw_matrix(self, n: int, seed: int) -> sp.csr_array:
        """Return the matrix of a seed: see `SizedRecipe.draw_matrix`."""
        p = min(1.0, _NONZEROS_PER_ROW / n) if self.density is None else self.density
        log_absent = math.log1p(-p) if p < 1 else -math.inf
        pointers = np.zeros(self.size + 1, dtype=np.int64)
        law = np.uint64(seed), n, log_absent
        count_entries(*law, pointers[1:])
        np.cumsum(pointers, out=pointers)
        columns, values = np.empty(pointers[-1], np.int64), np.empty(pointers[-1])
        scale = 1 / math.sqrt(self.size * p)
        fill_entries(*law, _LAWS[self.law], scale, pointers, columns, values)
        return sp.csr_array((values, columns, pointers), shape=(self.size, n))


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
    _rules: ClassVar[dict[str, Rule]] = {"nonzeros": optional(count)}

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.nonzeros is not None:
            check_integer("nonzeros", self.nonzeros, high=self.size)

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
