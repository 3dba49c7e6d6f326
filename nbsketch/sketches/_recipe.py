"""How to draw a sketch, and what a drawn one remembers of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nbsketch._validation import check_integer, random_generator

if TYPE_CHECKING:
    from nbsketch.sketches._sketch import Sketch


class SketchRecipe(ABC):
    """How to draw a sketch: a small frozen dataclass, the same for every n."""

    @abstractmethod
    def draw(
        self, n: int, rng: Any = None, *, X: Any = None, kernel: Any = None
    ) -> Sketch:
        """Draw the sketch of n rows of data.

        Parameters
        ----------
        n : int
            Number of columns of the sketch: rows of the data.
        rng : None, int or numpy.random.Generator
            Source of randomness; the same seed gives the same sketch.
        X, kernel : ignored
            The data and the kernel, for recipes that look at them.

        Returns
        -------
        Sketch
            The drawn (s, n) matrix.
        """


@dataclass(frozen=True)
class SizedRecipe(SketchRecipe):
    """A recipe with a number of rows s."""

    size: int
    # Whether rows follow their streams one by one, so that more of them can follow.
    grows: ClassVar[bool] = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", check_integer("size", self.size))

    def draw(
        self, n: int, rng: Any = None, *, X: Any = None, kernel: Any = None
    ) -> Sketch:
        """Draw the sketch of n rows of data: see `SketchRecipe.draw`."""
        n = self._check_rows(n)
        return self._draw(n, Origin(self, draw_seed(rng)))

    @abstractmethod
    def _draw(self, n: int, origin: Origin) -> Sketch:
        """Return the sketch of n columns that belongs to an origin."""

    def _check_rows(self, n: int) -> int:
        n = check_integer("n", n)
        if self.size > n:
            raise ValueError(
                f"`size` must be at most the number of rows, {n}, got {self.size}"
            )
        return n


class Origin(NamedTuple):
    """What a sketch was drawn from, and can be drawn on from.

    Attributes
    ----------
    recipe : SizedRecipe
        The recipe.
    seed : int
        Its seed.
    probabilities : ndarray of shape (n,), optional
        Those with which it draws columns, if they are not equal.
    """

    recipe: SizedRecipe
    seed: int
    probabilities: NDArray[np.float64] | None = None


def draw_seed(rng: Any) -> int:
    """Return the seed of the streams of a sketch."""
    return int(random_generator(rng).integers(2**64, dtype=np.uint64))
