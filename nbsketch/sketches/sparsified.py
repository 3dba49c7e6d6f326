"""p-sparsified sketches: independent entries, nonzero with probability p."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import scipy.sparse as sp

from nbsketch._jit.csr import GAUSSIAN, RADEMACHER, count_entries, fill_entries
from nbsketch._validation import check_choice, check_real
from nbsketch.sketches._recipe import SizedRecipe

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

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("law", self.law, _LAWS)
        if self.density is not None:
            p = check_real("density", self.density, low=0, high=1, low_open=True)
            object.__setattr__(self, "density", p)

    def draw_matrix(self, n: int, seed: int) -> sp.csr_array:
        """Return the matrix of a seed: see `SizedRecipe.draw_matrix`."""
        p = min(1.0, _NONZEROS_PER_ROW / n) if self.density is None else self.density
        scale = 1 / math.sqrt(self.size * p)
        return _draw_csr(self.size, n, p, _LAWS[self.law], scale, np.uint64(seed))


def _draw_csr(
    size: int, n: int, p: float, law: int, scale: float, seed: np.uint64
) -> sp.csr_array:
    log_absent = math.log1p(-p) if p < 1 else -math.inf
    pointers = np.zeros(size + 1, dtype=np.int64)
    count_entries(seed, n, log_absent, pointers[1:])
    np.cumsum(pointers, out=pointers)
    columns = np.empty(pointers[-1], dtype=np.int64)
    values = np.empty(pointers[-1])
    fill_entries(seed, n, log_absent, law, scale, pointers, columns, values)
    return sp.csr_array((values, columns, pointers), shape=(size, n))
