"""Recipes: parameters from which sketches of any number of rows are drawn.

A row of random numbers depends on the seed and its own number only.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from nbsketch._jit.csr import fill_signs, fill_uniforms
from nbsketch._validation import check_integer, random_generator
from nbsketch.sketches._sketch import Origin, Sketch, as_sketch


class SketchRecipe(ABC):
    """A law of random sketches, independent of n: a small frozen dataclass.

    Subclass it for a sketch that fixes its number of rows itself or looks at the data,
    and `SizedRecipe` for one with a number of rows s.
    """

    @abstractmethod
    def draw(
        self, n: int, rng: Any = None, *, X: Any = None, kernel: Any = None
    ) -> Sketch:
        """Draw the sketch of n rows of data.

        Parameters
        ----------
        n : int
            Number of columns of the sketch, the rows of the data.
        rng : None, int or numpy.random.Generator, default=None
            Source of randomness; the same seed gives the same sketch.
        X, kernel : optional
            The data, of n rows, and the kernel with its parameters set. Used by recipes
            that depend on the data, ignored by all others.

        Returns
        -------
        Sketch
            The drawn (s, n) matrix.
        """


@dataclass(frozen=True)
class SizedRecipe(SketchRecipe):
    r"""A recipe with a number of rows s, whose sketches can grow.

    A subclass is a frozen dataclass that implements `draw_matrix`. Its sketches have
    `Sketch.extend`, and ``size="auto"`` of the estimators doubles them.

    Parameters
    ----------
    size : int
        Number of rows s of the sketch.

    Attributes
    ----------
    grows : bool
        Class variable, default True. True promises that, for the same seed, the first
        s rows of a larger matrix, :math:`s + t` rows, are :math:`\sqrt{s / (s + t)}`
        times the rows of the smaller one: row i is drawn from its own stream, and
        only its scale depends on the size. Set it to False if rows depend on each
        other; ``size="auto"`` then draws each size anew.

    Examples
    --------
    Rows that are differences of two random rows of the data:

    >>> from dataclasses import dataclass
    >>> import numpy as np
    >>> import scipy.sparse as sp
    >>> from nbsketch import SizedRecipe
    >>> @dataclass(frozen=True)
    ... class PairSketch(SizedRecipe):
    ...     def draw_matrix(self, n, seed):
    ...         rows = [np.random.default_rng([seed, i]) for i in range(self.size)]
    ...         pairs = np.sort([rng.choice(n, 2, replace=False) for rng in rows])
    ...         values = np.tile([1.0, -1.0], self.size) * np.sqrt(n / (2 * self.size))
    ...         pointers = 2 * np.arange(self.size + 1)
    ...         shape = (self.size, n)
    ...         return sp.csr_array((values, pairs.ravel(), pointers), shape=shape)
    >>> S = PairSketch(size=3).draw(100, rng=0)
    >>> larger = S.extend(2)
    >>> old, new = S.to_csr().toarray(), larger.to_csr().toarray()
    >>> bool(np.allclose(new[:3], np.sqrt(3 / 5) * old))
    True
    """

    size: int
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
    def draw_matrix(self, n: int, seed: int) -> Any:
        """Return the matrix of n columns that belongs to a seed.

        Parameters
        ----------
        n : int
            Number of columns, at least `size`.
        seed : int
            Seed in [0, 2^64) of all randomness: the same seed gives the same matrix.

        Returns
        -------
        csr_array, ndarray or Sketch of shape (size, n)
            Scaled so that :math:`E[S^T S] = I`.
        """

    def _draw(self, n: int, origin: Origin) -> Sketch:
        """Return the sketch of n columns that belongs to an origin."""
        return as_sketch(self.draw_matrix(n, origin.seed), n, origin)

    def _check_rows(self, n: int) -> int:
        n = check_integer("n", n)
        self.check_size(n)
        return n

    def check_size(self, n: int, name: str = "size") -> None:
        """Raise an error if the sketch has more rows than the n rows of the data."""
        if self.size > n:
            raise ValueError(
                f"`{name}` must be at most the number of rows, {n}, got {self.size}"
            )


def draw_seed(rng: Any) -> int:
    """Return the seed of the streams of a sketch."""
    return int(random_generator(rng).integers(2**64, dtype=np.uint64))


def uniforms(seed: int, rows: int, columns: int = 1) -> NDArray[np.float64]:
    """Return (rows, columns) numbers uniform on [0, 1), each row from its stream."""
    numbers = np.empty((rows, columns))
    fill_uniforms(np.uint64(seed), numbers)
    return np.subtract(1.0, numbers, out=numbers)


def signs(seed: int, rows: int, columns: int = 1) -> NDArray[np.int8]:
    """Return (rows, columns) random signs, each row from its stream."""
    numbers = np.empty((rows, columns), dtype=np.int8)
    fill_signs(np.uint64(seed), numbers)
    return numbers


def integers(seed: int, rows: int, columns: int, n: int) -> NDArray[np.int64]:
    """Return (rows, columns) uniform integers below n, each row from its stream."""
    numbers = uniforms(seed, rows, columns)
    return np.minimum((numbers * n).astype(np.int64), n - 1)


def start_of_permutation(seed: int, size: int, n: int) -> NDArray[np.int64]:
    """Return the first `size` places of a random permutation of 0, ..., n - 1.

    They are the same however many follow. The shuffle of Fisher and Yates, which keeps
    only what it has moved: time and memory of the order of `size`.
    """
    places = np.arange(size)
    left = n - places
    others = places + np.minimum((uniforms(seed, size)[:, 0] * left), left - 1)
    chosen = np.empty(size, dtype=np.int64)
    moved: dict[int, int] = {}
    for place, other in enumerate(others.astype(np.int64).tolist()):
        chosen[place] = moved.get(other, other)
        moved[other] = moved.get(place, place)
    return chosen
