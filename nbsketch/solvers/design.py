"""The interface between features Z and solvers.

Solvers do not access an array of features, so a matrix in memory, in single precision,
on disk or on a cluster is handled in the same way: implement `blocks` and inherit the
rest. Every product accumulates in double precision over the stored values.
"""

from collections.abc import Callable, Iterator, Sequence
from copy import copy
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nbsketch._jit import products
from nbsketch._machine.memory import slices
from nbsketch._report.validation import check_matrix

# Rows copied at a time if a product needs a scaled or gathered copy: fits into cache.
_CHUNK = 1024
# Deviation relative to the mean below which a feature is constant: products round equal
# rows differently.
EQUAL = 16 * np.finfo(np.float64).eps
# Features whose mean square exceeds this multiple of their variance are centered.
_OFF_CENTER = 100.0
# Up to this number of columns, compiled loops are faster than BLAS.
_FEW_COLUMNS = 8

# Blocks of rows in order: start, stop, and the rows.
Blocks = Iterator[tuple[int, int, NDArray]]
# Blocks with selected rows: indices in the block (None: all), their positions among all
# selected rows, and the block.
ChosenBlocks = Iterator[tuple[Any, slice, NDArray]]


class Design:
    """Features Z (n x r) as a sequence of row blocks.

    A subclass sets `shape` and `dtype` and implements `blocks`. Row indices must be in
    ascending order.

    Attributes
    ----------
    shape : tuple of int
        Number of rows n and of features r.
    dtype : dtype
        float32 or float64.

    Examples
    --------
    >>> import numpy as np
    >>> class TwoParts(Design):
    ...     shape, dtype = (4, 1), np.dtype(float)
    ...
    ...     def blocks(self):
    ...         yield 0, 2, np.array([[0.0], [1.0]])
    ...         yield 2, 4, np.array([[2.0], [3.0]])
    >>> TwoParts().mv([2.0])
    array([0., 2., 4., 6.])
    """

    shape: tuple[int, int]
    dtype: np.dtype
    # Offset subtracted from the features, (r,); None: nothing.
    origin: NDArray | None = None
    # Whether features have their own units, so that small ones count like large ones.
    is_graded: bool = False
    # Features of the s - r directions that rounding hides; None: not stored.
    cut: "Design | None" = None
    # Gram matrices of all rows by `exact`, once computed; None: not stored.
    _grams: dict[bool, NDArray] | None = None

    def keeping_grams(self) -> Self:
        """Return the same features, which compute the Gram matrix of all rows once."""
        shared = copy(self)
        shared._grams = {}
        return shared

    def blocks(self) -> Blocks:
        """Yield (start, stop, Z[start:stop]) in order, covering all rows."""
        raise NotImplementedError

    def mv(self, W: ArrayLike) -> NDArray:
        """Return ``Z W`` for W of shape (r,) or (r, d)."""
        W = np.ascontiguousarray(W, dtype=float)
        columns = W[:, None] if W.ndim == 1 else W
        return self._products(columns).reshape(self.shape[:1] + W.shape[1:])

    def rmv(self, A: ArrayLike, rows: NDArray | None = None) -> NDArray:
        """Return ``Z[rows]^T A`` for A with one row per row of Z chosen."""
        A = np.ascontiguousarray(A, dtype=float)
        columns = A[:, None] if A.ndim == 1 else A
        return self._sums(columns, rows).reshape(self.shape[1:] + A.shape[1:])

    def _products(self, W: NDArray) -> NDArray:
        """Return ``Z W`` for W of shape (r, d)."""
        out = np.empty((self.shape[0], W.shape[1]))
        for start, stop, block in self.blocks():
            out[start:stop] = _times(block, W)
        return out

    def _sums(self, A: NDArray, rows: NDArray | None) -> NDArray:
        """Return ``Z[rows]^T A`` for A with d columns."""
        out = np.zeros((self.shape[1], A.shape[1]))
        for chosen, part, block in self._chosen(rows):
            _add_transposed(block, A[part], chosen, out)
        return out

    def gram(
        self,
        rows: NDArray | None = None,
        weights: NDArray | None = None,
        *,
        exact: bool = True,
    ) -> NDArray:
        """Return ``Z[rows]^T diag(weights) Z[rows]`` in double precision.

        Parameters
        ----------
        rows : ndarray of ascending int, optional
            Default: all.
        weights : ndarray, optional
            One nonnegative number per selected row.
        exact : bool
            If False, products of float32 features are rounded to single precision, in
            half the time: enough for the matrix of a Newton step, not for its
            right-hand side.
        """
        if self._grams is None or rows is not None or weights is not None:
            return self._gram(rows, weights, exact)
        if exact not in self._grams:
            self._grams[exact] = self._gram(None, None, exact)
        return self._grams[exact].copy()

    def _gram(
        self, rows: NDArray | None, weights: NDArray | None, exact: bool
    ) -> NDArray:
        out = np.zeros((self.shape[1], self.shape[1]))
        for chosen, part, block in self._chosen(rows):
            part_weights = None if weights is None else weights[part]
            _add_gram(block, chosen, part_weights, exact, out)
        return out

    def gather(self, rows: NDArray) -> "Design":
        """Return the features of the given rows, in memory if they are small."""
        out = np.empty((len(rows), self.shape[1]), dtype=self.dtype)
        for chosen, part, block in self._chosen(rows):
            if chosen is None:
                out[part] = block
            else:  # avoids a temporary copy by mode="raise"
                np.take(block, chosen, axis=0, out=out[part], mode="clip")
        return ArrayDesign._trusted(out, self.is_graded)

    def collect(self) -> NDArray:
        """Return all features as one array, which may be shared."""
        out = np.empty(self.shape, dtype=self.dtype)
        for start, stop, block in self.blocks():
            out[start:stop] = block
        return out

    def total(
        self, function: Callable[..., tuple], *args: Any, rows: Sequence = ()
    ) -> tuple:
        """Return the sums of the tuples ``function(block, *parts, *args)``.

        `rows` have one entry per row, or are None; `parts` are the entries of the
        block.
        """
        sums = ()
        for start, stop, block in self.blocks():
            parts = (None if a is None else a[start:stop] for a in rows)
            part = function(block, *parts, *args)
            sums = tuple(map(np.add, sums, part)) if sums else part
        return sums

    def _check_rows(self, rows: NDArray) -> None:
        """Raise an error unless row indices ascend within the design."""
        if len(rows) == 0:
            return
        ascending = (rows[1:] >= rows[:-1]).all()
        if not (ascending and 0 <= rows[0] <= rows[-1] < self.shape[0]):
            raise ValueError(
                f"`rows` must ascend within [0, {self.shape[0] - 1}], got {rows}"
            )

    def _chosen(self, rows: NDArray | None) -> ChosenBlocks:
        """Yield (rows within the block, None for all; their positions; the block)."""
        if rows is not None:
            self._check_rows(rows)
        for start, stop, block in self.blocks():
            if rows is None:
                yield None, slice(start, stop), block
                continue
            first, last = np.searchsorted(rows, (start, stop))
            if first < last:
                yield rows[first:last] - start, slice(first, last), block


class ArrayDesign(Design):
    """Features in memory, float32 or float64.

    Parameters
    ----------
    Z : array_like of shape (n, r)
        Features. float32 halves memory and time without loss of accuracy in the
        certificate, because sums are in double precision.

    Examples
    --------
    >>> import numpy as np
    >>> design = ArrayDesign(np.arange(6.0).reshape(3, 2))
    >>> design.mv([1.0, -1.0])
    array([-1., -1., -1.])
    >>> design.gram(rows=np.array([0, 2]))
    array([[16., 20.],
           [20., 26.]])
    """

    def __init__(self, Z: ArrayLike) -> None:
        self._set(check_matrix("Z", Z))

    def _set(self, Z: NDArray) -> None:
        self.Z = Z
        self.shape = Z.shape
        self.dtype = Z.dtype

    @classmethod
    def _trusted(cls, Z: NDArray, is_graded: bool = False) -> "ArrayDesign":
        """Wrap an array without checking it."""
        design = cls.__new__(cls)
        design._set(Z)
        design.is_graded = is_graded
        return design

    def blocks(self) -> Blocks:
        """Yield the complete matrix as one block."""
        yield 0, self.shape[0], self.Z

    def collect(self) -> NDArray:
        """Return the array itself."""
        return self.Z


def centered(design: Design) -> Design:
    """Return features in memory without their mean, if it exceeds their variation.

    With an intercept the problem is equivalent, but better conditioned.
    """
    if not isinstance(design, ArrayDesign) or design.origin is not None:
        return design
    mean = design.Z.mean(axis=0, dtype=np.float64)
    deviations = design.Z.std(axis=0, dtype=np.float64)
    if not is_off_center(mean, deviations, design.is_graded):
        return design
    Z = (design.Z - mean).astype(design.dtype)
    Z[:, deviations <= EQUAL * np.abs(mean)] = 0.0
    result = ArrayDesign._trusted(Z, design.is_graded)
    result.origin = mean
    result.cut = design.cut
    return result


def is_off_center(mean: NDArray, deviations: NDArray, each: bool) -> bool:
    """Return whether means exceed the variation of features, of all or of `each`."""
    squares = np.square(mean)
    variances = np.square(deviations)
    if not each:
        return bool(squares.sum() > _OFF_CENTER * variances.sum())
    return bool((squares > _OFF_CENTER * variances).any())


def as_design(Z: Any) -> Design:
    """Return a Design from a Design or an array."""
    return Z if isinstance(Z, Design) else ArrayDesign(Z)


def _times(block: NDArray, W: NDArray) -> NDArray:
    out = np.empty((len(block), W.shape[1]))
    if W.shape[1] == 1:
        products.row_products(block, W[:, 0], out[:, 0])
        return out
    if W.shape[1] <= _FEW_COLUMNS:
        products.products_of_few(block, np.ascontiguousarray(W.T), out)
        return out
    if block.dtype == np.float64:
        return np.matmul(block, W, out=out)
    for part in slices(len(block), _CHUNK):
        np.matmul(block[part].astype(float), W, out=out[part])
    return out


def _add_transposed(
    block: NDArray, A: NDArray, chosen: NDArray | None, out: NDArray
) -> None:
    if A.shape[1] == 1 and chosen is None:
        products.add_all(block, A[:, 0], out[:, 0])
    elif A.shape[1] == 1:
        products.add_combination(block, chosen, A[:, 0], out[:, 0])
    elif A.shape[1] <= _FEW_COLUMNS:
        total = np.zeros(out.shape[::-1])
        for part, chunk in _chunks(block, chosen):
            products.add_few_combinations(chunk, A[part], total)
        out += total.T
    elif block.dtype == np.float64 and chosen is None:
        out += block.T @ A
    else:
        for part, chunk in _chunks(block, chosen):
            out += chunk.astype(float, copy=False).T @ A[part]


def _add_gram(
    block: NDArray,
    chosen: NDArray | None,
    weights: NDArray | None,
    exact: bool,
    out: NDArray,
) -> None:
    """Add the Gram matrix to `out`; X.T @ X of a single array costs half."""
    if chosen is None and weights is None and block.dtype == np.float64:
        out += block.T @ block
        return
    dtype = np.dtype(float) if exact else block.dtype
    roots = None if weights is None else np.sqrt(weights).astype(dtype)
    for part, chunk in _chunks(block, chosen):
        chunk = chunk.astype(dtype, copy=False)
        if roots is not None:
            chunk = chunk * roots[part, None]
        out += chunk.T @ chunk


def _chunks(block: NDArray, chosen: NDArray | None) -> Iterator[tuple[slice, NDArray]]:
    for part in slices(len(block) if chosen is None else len(chosen), _CHUNK):
        yield part, block[part] if chosen is None else block[chosen[part]]
