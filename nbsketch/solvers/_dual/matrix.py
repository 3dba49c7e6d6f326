r"""Several outputs with a matrix kernel :math:`k(x, x') M`, as one kernel matrix.

An entry is a pair of a row and an output; the entries of one output are contiguous. The
matrix of all entries is :math:`M \otimes K`: a product with it is one product with K
for all outputs.

Also shared products with K for several searches.

A search is a generator: it yields a vector and receives the product of K with it. The
searches of all columns run in parallel, so that one pass over K is used by all.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from nbsketch.solvers._linear.cholesky import LowRankPreconditioner
from nbsketch.solvers._linear.conjugate_gradients import SymmetricOperator

# Up to this share of the columns, only these are evaluated, at twice the cost per
# value.
_FEW = 1 / 12


class CoupledMatrix:
    """Some entries of the Kronecker product of M and K as a `SymmetricOperator`.

    Parameters
    ----------
    K : SymmetricOperator
        Kernel matrix of the rows.
    M : ndarray of shape (d, d)
        Output matrix.
    row, output : ndarray of shape (N,), optional
        Row and output of each entry. Default: all pairs, output by output.
    """

    def __init__(
        self,
        K: SymmetricOperator,
        M: NDArray,
        row: NDArray | None = None,
        output: NDArray | None = None,
    ) -> None:
        n = K.shape[0]
        d = len(M)
        self.K = K
        self.M = M
        self.dtype = K.dtype
        self.row = np.tile(np.arange(n), d) if row is None else row
        self.output = np.repeat(np.arange(d), n) if output is None else output
        self.shape = len(self.row), len(self.row)

    def __matmul__(self, V: NDArray) -> NDArray:
        """Return the product with V of shape (N,) or (N, k)."""
        columns = V.reshape(len(V), -1)
        n = self.K.shape[0]
        d = len(self.M)
        k = columns.shape[1]
        table = np.zeros((n, k, d))
        table[self.row, :, self.output] = columns
        product = (self.K @ table.reshape(n, -1)).reshape(n, k, d) @ self.M
        return product[self.row, :, self.output].reshape(V.shape)

    def combine(self, index: NDArray, v: NDArray) -> NDArray:
        """Return the columns of an index times v."""
        rows, place = self._distinct(index)
        table = np.zeros((len(rows), len(self.M)))
        table[place, self.output[index]] = v
        return (self.K.combine(rows, table) @ self.M)[self.row, self.output]

    def exact(self, index: NDArray, v: NDArray) -> NDArray:
        """Return entries of the product with v without rounding of the values of K."""
        table = np.zeros((self.K.shape[0], len(self.M)))
        table[self.row, self.output] = v
        rows, place = self._distinct(index)
        return self.K.exact(rows, table @ self.M)[place, self.output[index]]

    def block(self, index: NDArray) -> NDArray:
        """Return the block of some entries in float64."""
        rows, place = self._distinct(index)
        output = self.output[index]
        return self.K.block(rows)[np.ix_(place, place)] * self.M[np.ix_(output, output)]

    def take(self, index: NDArray) -> CoupledMatrix:
        """Return the matrix of some entries."""
        rows, place = self._distinct(index)
        return CoupledMatrix(self.K.take(rows), self.M, place, self.output[index])

    def _distinct(self, index: NDArray) -> tuple[NDArray, NDArray]:
        """Return the rows of K for the entries, and the position of each entry."""
        return np.unique(self.row[index], return_inverse=True)


class CoupledPreconditioner(LowRankPreconditioner):
    """The preconditioner of a `CoupledMatrix`, from a factor of K alone.

    Parameters
    ----------
    factor : ndarray of shape (m, n)
        F^T, as `partial_cholesky` returns it.
    T : ndarray of shape (d', d)
        Factor of the output matrix, M = T^T T.
    row, output : ndarray of shape (N,)
        As in `CoupledMatrix`.
    """

    def __init__(
        self, factor: NDArray, T: NDArray, row: NDArray, output: NDArray
    ) -> None:
        self.T = T.astype(factor.dtype)
        self.row = row
        self.output = output
        super().__init__(factor, np.zeros(len(row)))

    @property
    def _shape(self) -> tuple[int, int]:
        return len(self.row), len(self.T) * len(self.factor)

    def _take(self, rows: NDArray) -> None:
        kept, self.row = np.unique(self.row[rows], return_inverse=True)
        self.factor = self.factor[:, kept]
        self.output = self.output[rows]

    def _add(self, rows: NDArray, root: NDArray, sign: float) -> None:
        m = len(self.factor)
        for j, column in enumerate(self.T.T):
            chosen = self.output[rows] == j
            if not chosen.any():
                continue
            part = np.take(self.factor, self.row[rows[chosen]], axis=1)
            part *= root[chosen]
            syrk = scipy.linalg.blas.get_blas_funcs("syrk", (part,))
            square = syrk(sign, part.T, trans=1, lower=0)
            square += np.triu(square, 1).T
            for a, b in zip(*np.triu_indices(len(column)), strict=True):
                block = self._gram[a * m : (a + 1) * m, b * m : (b + 1) * m]
                block += (column[a] * column[b]) * square

    def _times(self, V: NDArray) -> NDArray:
        m, n = self.factor.shape
        d = self.T.shape[1]
        k = V.shape[1]
        table = np.zeros((n, d, k), V.dtype)
        table[self.row, self.output] = V
        products = (self.factor @ table.reshape(n, d * k)).reshape(m, d, k)
        return np.tensordot(self.T, products, (1, 1)).reshape(self.rank, k)

    def _back(self, G: NDArray) -> NDArray:
        m, n = self.factor.shape
        d = self.T.shape[1]
        k = G.shape[1]
        mixed = np.tensordot(G.reshape(len(self.T), m, k), self.T, (0, 0))
        flat = mixed.transpose(0, 2, 1).reshape(m, d * k)
        return (self.factor.T @ flat).reshape(n, d, k)[self.row, self.output]


ResultT = TypeVar("ResultT")
# Values that a search yields, receives and returns.
Steps = Generator[NDArray, NDArray, ResultT]


def run_together(K: SymmetricOperator, searches: list[Steps]) -> list:
    """Run searches to their ends and return their results."""
    results = [None] * len(searches)
    products = dict.fromkeys(range(len(searches)))
    while products:
        vectors = {}
        for i, product in products.items():
            try:
                vectors[i] = searches[i].send(product)  # type: ignore[arg-type]
            except StopIteration as end:
                results[i] = end.value
        products = dict(zip(vectors, _multiply(K, list(vectors.values())), strict=True))
    return results


def _multiply(K: SymmetricOperator, vectors: list[NDArray]) -> list[NDArray]:
    """Return K v for each vector, from the columns of K with nonzero entries."""
    n = K.shape[0]
    products = [np.zeros(0)] * len(vectors)
    dense = []
    for i, v in enumerate(vectors):
        index = np.flatnonzero(v)
        if len(index) > _FEW * n:
            dense.append(i)
        else:
            products[i] = K.combine(index, v[index]) if len(index) else np.zeros(n)
    if dense:
        block = K @ np.column_stack([vectors[i] for i in dense])
        for i, product in zip(dense, np.ascontiguousarray(block.T), strict=True):
            products[i] = product
    return products
