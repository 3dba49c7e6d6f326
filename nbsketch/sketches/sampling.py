"""Sketches whose rows are multiples of rows of the identity."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from nbsketch._validation import check_choice, check_integer, random_generator
from nbsketch.sketches._sketch import SizedRecipe, Sketch, SketchRecipe


@dataclass(frozen=True)
class SubsamplingSketch(SizedRecipe):
    r"""Uniform sub-sampling (Nystrom): s rows of :math:`\sqrt{n/s}\, I`.

    Parameters
    ----------
    size : int
        Number of rows s of the sketch.
    replace : bool
        Whether a row may be drawn more than once.

    Notes
    -----
    Yang, Pilanci and Wainwright, Ann. Stat. 2017, section 2.2. The fitted model is that
    of the Nystrom method with s uniform landmarks.

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

    def draw(
        self, n: int, rng: Any = None, *, X: Any = None, kernel: Any = None
    ) -> Sketch:
        """Draw the sketch of n rows of data: see `SketchRecipe.draw`."""
        n = self._check_rows(n)
        chosen = random_generator(rng).choice(n, self.size, replace=self.replace)
        return Sketch(_rows_of_identity(chosen, math.sqrt(n / self.size), n))


@dataclass(frozen=True)
class IdentitySketch(SketchRecipe):
    """No sketch at all: S = I, the exact kernel machine.

    Memory and time then grow as n^2 and n^3.

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
        return IdentityMatrix(_rows_of_identity(np.arange(n), 1.0, n))


class IdentityMatrix(Sketch):
    """The identity as a sketch."""

    @property
    def is_identity(self) -> bool:
        """True."""
        return True


def _rows_of_identity(chosen: np.ndarray, scale: float, n: int) -> sp.csr_array:
    pointers = np.arange(chosen.size + 1)
    return sp.csr_array(
        (np.full(chosen.size, scale), chosen, pointers), shape=(chosen.size, n)
    )
