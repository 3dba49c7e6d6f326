"""Sketches whose rows are multiples of rows of the identity."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from nbsketch._validation import check_choice, check_integer
from nbsketch.sketches._recipe import SizedRecipe, SketchRecipe
from nbsketch.sketches._sketch import Origin, Sketch
from nbsketch.sketches._streams import integers, start_of_permutation


@dataclass(frozen=True)
class SubsamplingSketch(SizedRecipe):
    r"""Uniform sub-sampling (Nystrom): s rows of :math:`\sqrt{n/s}\, I`.

    Parameters
    ----------
    size : int
        Number of rows s of the sketch.
    replace : bool, default=False
        Whether a row may be drawn more than once.

    Notes
    -----
    Yang, Pilanci and Wainwright, Ann. Stat. 2017, section 2.2. The fitted model is the
    Nystrom approximation with s uniform landmarks.

    Examples
    --------
    >>> from nbsketch import SubsamplingSketch
    >>> SubsamplingSketch(size=4).draw(100, rng=0)
    Sketch(shape=(4, 100), columns=4)
    """

    replace: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("replace", self.replace, [False, True])

    def draw_matrix(self, n: int, seed: int) -> sp.csr_array:
        """Return the matrix of a seed: see `SizedRecipe.draw_matrix`."""
        if self.replace:
            chosen = integers(seed, self.size, 1, n)[:, 0]
        else:
            chosen = start_of_permutation(seed, self.size, n)
        scales = np.full(self.size, math.sqrt(n / self.size))
        return rows_of_identity(chosen, scales, n)


@dataclass(frozen=True)
class IdentitySketch(SketchRecipe):
    """No sketch: S = I, the exact kernel machine.

    Memory and time of a fit grow as n^2 and n^3.

    Examples
    --------
    >>> from nbsketch import IdentitySketch
    >>> IdentitySketch().draw(5)
    IdentityMatrix(shape=(5, 5), columns=5)
    """

    def draw(
        self, n: int, rng: Any = None, *, X: Any = None, kernel: Any = None
    ) -> IdentityMatrix:
        """Draw the sketch of n rows of data: see `SketchRecipe.draw`."""
        n = check_integer("n", n)
        return IdentityMatrix(rows_of_identity(np.arange(n), np.ones(n), n))


class IdentityMatrix(Sketch):
    """The identity as a sketch."""

    def __init__(self, matrix: sp.csr_array, origin: Origin | None = None) -> None:
        super().__init__(matrix, origin)
        n, m = self.shape[0], self._matrix
        diagonal = n == self.shape[1] == m.nnz and (m.indices == np.arange(n)).all()
        if not (diagonal and (m.data == 1).all()):
            raise ValueError(
                f"`matrix` must be the identity, got a matrix of shape {self.shape}"
            )

    @property
    def is_identity(self) -> bool:
        """True."""
        return True


def rows_of_identity(
    chosen: NDArray[np.int64], scales: NDArray[np.float64], n: int
) -> sp.csr_array:
    """Return the matrix with the rows ``scales[i] e_{chosen[i]}``."""
    pointers = np.arange(chosen.size + 1)
    return sp.csr_array((scales, chosen, pointers), shape=(chosen.size, n))
