"""Drawn sketches, and recipes: parameters from which a sketch of any n is drawn.

A sketch defines products, growth, and the parts stored in a model file. The random
numbers of a row depend only on the seed and the row number.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from scipy.sparse.linalg import LinearOperator, eigsh

from nbsketch._jit.csr import fill_signs, fill_uniforms
from nbsketch._report.fields import Checked, count, register, rules
from nbsketch._report.validation import (
    as_csr,
    check_array_of,
    check_integer,
    random_generator,
)

# With fewer nonzeros per column than this, sorting is faster than marking columns.
_SORT_BELOW = 1 / 64
# S S^T is decomposed up to this number of rows.
_FEW_ROWS = 48
# Dimension of the Krylov space.
_STEPS = 40
# From a random start, the largest Ritz value is below 1 / _MARGIN of the largest
# eigenvalue with probability 1e-8 (Kuczynski and Wozniakowski, 1992, Theorem 4.1).
_MARGIN = 1.1


@register
@dataclass(frozen=True, eq=False)
class Origin:
    """Recipe and seed of a sketch, from which more rows can be drawn."""

    recipe: Any  # a SizedRecipe
    seed: int
    # Probabilities of the columns, shape (n,). None: equal.
    probabilities: NDArray | None = None

    def __post_init__(self) -> None:
        if not hasattr(self.recipe, "grows"):
            raise ValueError(f"`recipe` must be a SizedRecipe, got {self.recipe!r:.60}")
        check_integer("seed", self.seed, low=0, high=2**64 - 1)
        if self.probabilities is not None:
            shares = check_array_of("probabilities", self.probabilities, "f", 1)
            if not (shares >= 0).all() or not np.isfinite(shares).all():
                raise ValueError("`probabilities` must be finite and nonnegative")


@register
class Sketch:
    """A drawn sketch: a random (s, n) matrix S, stored by its nonzeros.

    Parameters
    ----------
    matrix : scipy.sparse.csr_array of shape (s, n)
        The matrix, with sorted columns in each row.
    origin : optional
        Recipe and seed, set by `SizedRecipe.draw`. None: the sketch cannot grow.

    Attributes
    ----------
    shape : tuple of int
        (s, n).
    columns : ndarray of shape (s',)
        Sorted indices of the columns with a nonzero.
    T : object
        The transpose, for products ``A @ S.T``.
    can_grow : bool
        Whether `extend` can add rows.

    Examples
    --------
    >>> import numpy as np
    >>> from nbsketch import SubsamplingSketch
    >>> S = SubsamplingSketch(size=2).draw(8, rng=0)
    >>> S.shape, S.columns.size
    ((2, 8), 2)
    >>> (S @ np.ones(8)).tolist()
    [2.0, 2.0]
    """

    def __init__(self, matrix: Any, origin: Origin | None = None) -> None:
        self.matrix: Any = self._checked(matrix)
        self.shape: tuple[int, int] = self.matrix.shape
        numbers = matrix.data if sp.issparse(matrix) else matrix
        if 0 in self.shape or not np.isfinite(numbers).all():
            raise ValueError(
                "`matrix` must be finite and not empty, got a matrix of shape "
                f"{self.shape}"
            )
        self.origin = check_origin(origin, self.shape)

    @staticmethod
    def _checked(matrix: Any) -> Any:
        """Return the matrix in its storage format."""
        if not sp.issparse(matrix):
            raise TypeError(f"`matrix` must be a sparse matrix, got {matrix!r:.60}")
        check_array_of("matrix", matrix.data, "fiub")
        return as_csr(matrix, "matrix")

    def __repr__(self) -> str:
        s, n = self.shape
        return f"{type(self).__name__}(shape=({s}, {n}), columns={self.columns.size})"

    @cached_property
    def columns(self) -> NDArray:
        """The sorted indices of the columns with a nonzero."""
        indices = self.matrix.indices
        if indices.size < _SORT_BELOW * self.shape[1]:
            return np.unique(indices).astype(np.int64)
        marked = np.zeros(self.shape[1], dtype=bool)
        marked[indices] = True
        return np.flatnonzero(marked)

    @cached_property
    def weights(self) -> sp.csr_array:
        """The matrix without its empty columns, of shape (s, s')."""
        m = self.matrix
        indices = np.searchsorted(self.columns, m.indices)
        shape = self.shape[0], self.columns.size
        return sp.csr_array((m.data, indices, m.indptr), shape=shape)

    @property
    def is_identity(self) -> bool:
        """Whether S = I."""
        return False

    @property
    def T(self) -> Transpose:
        """The transpose, for products ``A @ S.T``."""
        return Transpose(self)

    def to_csr(self) -> sp.csr_array:
        """Return the (s, n) matrix as a SciPy CSR array."""
        return self.matrix

    @property
    def can_grow(self) -> bool:
        """Whether `extend` can add rows."""
        return self.origin is not None and self.origin.recipe.grows

    def extend(self, rows: int) -> Sketch:
        r"""Return the sketch with more rows, rescaled so that E[S^T S] = I.

        It equals the sketch that the recipe of the larger size draws from the same
        seed. Its first s rows are :math:`\sqrt{s / (s + \text{rows})}` times the rows
        of this sketch, so products with them can be reused; `tail` returns the new
        rows.

        Parameters
        ----------
        rows : int
            Number of rows to add; s + rows is at most n.

        Raises
        ------
        TypeError
            If the sketch cannot grow: CountSketch and sparse JL sketches (dependent
            rows), the identity, a tail of a sketch, or a matrix not drawn by a
            `SizedRecipe`.

        Examples
        --------
        >>> import numpy as np
        >>> from nbsketch import GaussianKernel, PSparsifiedSketch
        >>> from nbsketch.gram import Gram
        >>> K = Gram(GaussianKernel(1.0), np.linspace(0, 9, 300)[:, None])
        >>> S = PSparsifiedSketch(size=10).draw(300, rng=0)
        >>> old = K @ S.T
        >>> larger = S.extend(10)
        >>> grown = np.hstack([np.sqrt(10 / 20) * old, K @ larger.tail(10).T])
        >>> np.allclose(grown, K @ PSparsifiedSketch(size=20).draw(300, rng=0).T)
        True
        """
        rows = check_integer("rows", rows)
        origin = self.origin
        s, n = self.shape
        if origin is None or not origin.recipe.grows:
            law = "" if origin is None else f" drawn by {origin.recipe!r}"
            raise TypeError(f"a {type(self).__name__}{law} cannot grow: draw a new one")
        if s + rows > n:
            raise ValueError(f"`rows` must be at most {n - s}, got {rows}")
        recipe = replace(origin.recipe, size=s + rows)
        return recipe._draw(n, replace(origin, recipe=recipe))

    def tail(self, start: int) -> Sketch:
        """Return the rows from `start` on, not rescaled, as a sketch."""
        start = check_integer("start", start, low=0, high=self.shape[0] - 1)
        return self.part(slice(start, None))

    def part(self, rows: Any) -> Sketch:
        """Return some rows, in their order and not rescaled, as a sketch."""
        return _stored(self.matrix[rows])

    def squared_norm(self) -> float:
        """Return an upper bound of the largest eigenvalue of S S^T.

        Exact if no column has two nonzeros, as in subsampling; otherwise a Lanczos
        estimate increased by a tenth.
        """
        weights = self.weights
        s = self.shape[0]
        counts = np.bincount(weights.indices) if sp.issparse(weights) else np.array([2])
        if counts.max(initial=0) <= 1:  # orthogonal rows
            return float(weights.power(2).sum(axis=1).max())
        if s <= _FEW_ROWS:
            return float(np.linalg.eigvalsh(self._gram_product(np.eye(s)))[-1])
        operator = LinearOperator((s, s), matvec=self._gram_product, dtype=np.float64)
        start = np.random.default_rng(0).standard_normal(s)
        return _MARGIN * float(
            eigsh(
                operator, return_eigenvectors=False, k=1, ncv=_STEPS, tol=0.01, v0=start
            )[0]
        )

    def _gram_product(self, V: NDArray) -> NDArray:
        """Return S S^T V."""
        return np.asarray(self @ (self.T @ V))

    def __matmul__(self, other: ArrayLike | sp.sparray) -> Any:
        """Return S @ A for a vector or a dense or sparse matrix A with n rows."""
        array: Any = other if sp.issparse(other) else np.asarray(other)
        if array.ndim not in (1, 2) or array.shape[0] != self.shape[1]:
            raise ValueError(
                f"`A` in S @ A must have {self.shape[1]} rows, got shape {array.shape}"
            )
        return self._apply(array)

    def _apply_transposed(self, array: NDArray) -> NDArray:
        return self.matrix.T @ array

    def _apply(self, array: Any) -> Any:
        matrix = self.matrix
        if array.dtype == np.float32:
            matrix = matrix.astype(np.float32)
        return matrix @ array


@register
class DenseSketch(Sketch):
    """A drawn sketch stored as a dense array.

    Parameters
    ----------
    matrix : ndarray of shape (s, n)
        The matrix.
    origin : optional
        Recipe and seed, as in `Sketch`.

    Examples
    --------
    >>> import numpy as np
    >>> from nbsketch.sketches import DenseSketch
    >>> S = DenseSketch(np.ones((2, 5)))
    >>> (S @ np.arange(5.0)).tolist()
    [10.0, 10.0]
    """

    @staticmethod
    def _checked(matrix: Any) -> NDArray:
        return check_array_of("matrix", matrix, "f", 2)

    @cached_property
    def columns(self) -> NDArray:
        """All columns."""
        return np.arange(self.shape[1])

    @property
    def weights(self) -> NDArray:
        """The matrix itself."""
        return self.matrix

    def to_csr(self) -> sp.csr_array:
        """Return the (s, n) matrix as a SciPy CSR array."""
        return sp.csr_array(self.matrix)


@dataclass(frozen=True)
class Transpose:
    """The transpose of a sketch, for products ``A @ S.T`` and ``S.T @ B``."""

    sketch: Sketch
    # Makes NumPy call `__rmatmul__`.
    __array_ufunc__ = None

    @property
    def shape(self) -> tuple[int, int]:
        """(n, s)."""
        return self.sketch.shape[::-1]

    @property
    def T(self) -> Sketch:
        """The sketch."""
        return self.sketch

    def __matmul__(self, other: ArrayLike) -> NDArray:
        """Return S.T @ B for a matrix B with s rows."""
        return self.sketch._apply_transposed(np.asarray(other))

    def __rmatmul__(self, other: ArrayLike | sp.sparray) -> Any:
        """Return A @ S.T for a vector or a matrix A with n columns."""
        array: Any = other if sp.issparse(other) else np.asarray(other)
        if array.ndim not in (1, 2) or array.shape[-1] != self.shape[0]:
            raise ValueError(
                f"`A` in A @ S.T must have {self.shape[0]} columns, "
                f"got shape {array.shape}"
            )
        return (self.sketch @ array.T).T


def check_origin(origin: Any, shape: tuple[int, int]) -> Origin | None:
    """Return the origin of a sketch of this shape, or None, after checking it."""
    if origin is None:
        return None
    q = getattr(origin, "probabilities", None)
    if not isinstance(origin, Origin) or origin.recipe.size != shape[0]:
        raise ValueError(
            f"`origin` must be of a sketch with {shape[0]} rows, got {origin!r}"
        )
    if q is not None and len(q) != shape[1]:
        raise ValueError(f"`probabilities` must have length {shape[1]}, got {len(q)}")
    return origin


def _stored(matrix: Any) -> Sketch:
    return Sketch(matrix) if sp.issparse(matrix) else DenseSketch(matrix)


class SketchRecipe(Checked, ABC):
    """A distribution of random sketches, independent of n: a small frozen dataclass.

    Subclass it for a sketch that determines its number of rows or depends on the data;
    subclass `SizedRecipe` for a sketch with s rows.
    """

    @abstractmethod
    def draw(
        self, n: int, rng: Any = None, *, X: Any = None, kernel: Any = None
    ) -> Sketch:
        """Draw the sketch of n samples.

        Parameters
        ----------
        n : int
            Number of columns of the sketch, equal to the number of samples.
        rng : None, int or numpy.random.Generator, default=None
            Source of randomness; the same seed gives the same sketch.
        X, kernel : optional
            The n samples, and the kernel with its parameters set. Used only by recipes
            that depend on the data.

        Returns
        -------
        Sketch
            The drawn (s, n) matrix.
        """


@dataclass(frozen=True)
class SizedRecipe(SketchRecipe):
    r"""A recipe with a number of rows s, whose sketches can grow.

    A subclass is a frozen dataclass that implements `draw_matrix`. Its sketches then
    have `Sketch.extend`, and ``size="auto"`` of the estimators doubles them.

    Parameters
    ----------
    size : int
        Number of rows s of the sketch.

    Attributes
    ----------
    grows : bool
        Class variable, default True. True requires that, for the same seed, the first s
        rows of a larger matrix with :math:`s + t` rows are :math:`\sqrt{s / (s + t)}`
        times the rows of the smaller matrix: row i is drawn from its own stream, and
        only the scale depends on the size. Set it to False if rows depend on each
        other; ``size="auto"`` then redraws each size.

    Examples
    --------
    Rows that are differences of two random samples:

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
    >>> (new[:3][old != 0] / old[old != 0]).round(3).tolist()  # sqrt(3 / 5)
    [0.775, 0.775, 0.775, 0.775, 0.775, 0.775]
    """

    size: int
    grows = True

    _rules = rules(size=count)

    def draw(
        self, n: int, rng: Any = None, *, X: Any = None, kernel: Any = None
    ) -> Sketch:
        """Draw the sketch of n samples: see `SketchRecipe.draw`."""
        return self._draw(self._check_rows(n), Origin(self, draw_seed(rng)))

    @abstractmethod
    def draw_matrix(self, n: int, seed: int) -> Any:
        """Return the matrix of n columns for a seed.

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
        """Return the sketch of n columns for an origin."""
        drawn = self.draw_matrix(n, origin.seed)
        if np.shape(drawn) != (self.size, n):
            raise ValueError(
                f"`draw_matrix` of {type(self).__name__} must return a matrix of shape "
                f"{(self.size, n)}, got {np.shape(drawn)}"
            )
        sketch = drawn if isinstance(drawn, Sketch) else _stored(drawn)
        sketch.origin = origin
        return sketch

    def _check_rows(self, n: int) -> int:
        n = check_integer("n", n)
        self.check_size(n)
        return n

    def check_size(self, n: int, name: str = "size") -> None:
        """Raise an error if the sketch has more rows than there are samples."""
        if self.size > n:
            raise ValueError(
                f"`{name}` must be at most the number of samples, {n}, got {self.size}"
            )


def rows_of_identity(chosen: NDArray, scales: Any, n: int) -> sp.csr_array:
    """Return the matrix with the rows ``scales[i] e_{chosen[i]}``, or one scale."""
    pointers = np.arange(chosen.size + 1)
    values = np.full(chosen.shape, scales)
    return sp.csr_array((values, chosen, pointers), shape=(chosen.size, n))


def draw_seed(rng: Any) -> int:
    """Return the seed of the random streams of a sketch."""
    return int(random_generator(rng).integers(2**64, dtype=np.uint64))


def uniforms(seed: int, rows: int, columns: int = 1) -> NDArray:
    """Return (rows, columns) numbers uniform on [0, 1), each row from its stream."""
    numbers = np.empty((rows, columns))
    fill_uniforms(np.uint64(seed), numbers)
    return np.subtract(1.0, numbers, out=numbers)


def signs(seed: int, rows: int, columns: int = 1) -> NDArray:
    """Return (rows, columns) random signs, each row from its stream."""
    numbers = np.empty((rows, columns), dtype=np.int8)
    fill_signs(np.uint64(seed), numbers)
    return numbers


def integers(seed: int, rows: int, columns: int, n: int) -> NDArray:
    """Return (rows, columns) uniform integers below n, each row from its stream."""
    return np.minimum((uniforms(seed, rows, columns) * n).astype(np.int64), n - 1)


def start_of_permutation(seed: int, size: int, n: int) -> NDArray:
    """Return the first `size` entries of a random permutation of 0, ..., n - 1.

    They do not depend on `size`. Fisher-Yates shuffle that stores only moved entries:
    time and memory are of order `size`.
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
