r"""Kernel expansions x -> B^T S k_x: predictions and features of new samples.

Features are whitened: B is P with :math:`P P^T = (S K S^T)^+`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Annotated, Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import scipy.linalg
import scipy.sparse as sp
from numpy.typing import NDArray

from nbsketch._jit.threads import run_blocks
from nbsketch._machine.blas import eigh, one_thread
from nbsketch._report.fields import array, stored
from nbsketch.gram import CompiledForm, Product

# Eigenvalues of S K S^T below this share of the largest are cut: they are rounding
# noise of kernel values, which are float64 for samples of any dtype.
RANK_TOL = 1e-12
# Remaining share of the largest diagonal element of S K S^T at which rows of a sketch
# span the others. Below 3e-14, rounding makes one in six Cholesky factors fail.
_SPAN_TOL = 1e-13
# The same at which pivots may be cut: smooth kernels are far below, others with a few
# equal landmarks far above.
_CUT_TOL = 1e-8
# Rounding units, over the square root of s, that are added to eigenvalues cut off.
_JITTER = 0.25
# Rows of features computed at a time: enough for BLAS, few enough for the cache.
_ROWS = 1024
# Memory of a block of rows of S k(X) that is multiplied by B: fits into the cache.
_BLOCK_BYTES = 2 << 20
_FEWEST_ROWS = 64


class Expansion:
    r"""The map from samples X to :math:`k(X, L) W^T B`, prepared once for many X.

    If B has few columns, :math:`W^T B` is computed first; a call is then one fused
    product with :math:`s'` coefficients per column, without BLAS. Otherwise blocks of
    rows are processed in parallel, each by one thread of compiled code and of BLAS.

    Parameters
    ----------
    product : Product
        The map X -> W k(L, X), with s rows.
    B : ndarray of shape (s, d) or PivotedCholesky
        Coefficients, or the projection to d features.
    """

    def __init__(self, product: Product, B: NDArray | PivotedCholesky) -> None:
        self._product = product
        if isinstance(B, np.ndarray):
            self.n_columns = B.shape[1]
            self._folded = _folded(product, B)
        else:
            self.n_columns = B.rank
            self._folded = None
        self._project = projector(B)

    def __call__(self, X: Any, dtype: Any = np.float64) -> NDArray:
        """Return the (n, d) values for the samples X, rounded to a dtype."""
        if self._folded is not None:
            return np.ascontiguousarray(self._folded(X, dtype).T)
        out = np.empty((X.shape[0], self.n_columns), dtype=dtype)
        self.fill(X, None, out)
        return out

    def fill(self, X: Any, rows: NDArray | None, out: NDArray) -> None:
        """Fill the given rows of `out` (n, d) with their values; None: all rows."""
        step = max(_FEWEST_ROWS, _BLOCK_BYTES // (8 * self._product.shape[0]))

        def work(start: int) -> None:
            part = slice(start, start + step)
            chosen = part if rows is None else rows[part]
            out[chosen] = self._project(self._product(X[chosen]))

        starts = range(0, X.shape[0] if rows is None else len(rows), step)
        with one_thread() if len(starts) > 1 else nullcontext():
            if self._product.is_compiled:
                run_blocks(work, starts)
            else:  # user functions may not be thread-safe
                for start in starts:
                    work(start)


def _folded(product: Product, B: NDArray) -> Product | None:
    """Return the product with W^T B in place of W if it costs less, else None."""
    weights = product.weights
    s, m = weights.shape
    d = B.shape[1]
    nonzeros = weights.nnz if sp.issparse(weights) else s * m
    if d * m > nonzeros + d * s or not hasattr(weights, "T"):
        return None
    return Product(product.kernel, product.landmarks, (weights.T @ B).T)


class _Prepared(NamedTuple):
    parts: tuple[Any, Any, Any]
    B: NDArray  # a copy, because coefficients can be modified in place
    expansion: Expansion


# Fitted models and their expansions, which are neither copied nor saved with them.
_prepared: WeakKeyDictionary[Any, _Prepared] = WeakKeyDictionary()


def expansion_of(model: Any, B: NDArray) -> Expansion:
    """Return the expansion of a fitted model, prepared on the first call.

    It is prepared again if the attributes of the model have changed. Two threads may
    both prepare it; either result is valid.
    """
    parts = model.kernel_, model.landmarks_, model.sketch_.weights
    prepared = _prepared.get(model)
    same = prepared is not None and all(
        a is b for a, b in zip(prepared.parts, parts, strict=True)
    )
    if prepared is None or not same or not np.array_equal(prepared.B, B):
        expansion = Expansion(Product(*parts), B)
        prepared = _prepared[model] = _Prepared(parts, B.copy(), expansion)
    return prepared.expansion


def compiled_form(model: Any) -> CompiledForm | None:
    """Return the compiled form of a fitted kernel on dense landmarks."""
    landmarks = model.landmarks_
    if sp.issparse(landmarks) or landmarks.ndim != 2:
        return None
    return model.kernel_.compiled_form(landmarks.shape[1])


@stored
class PivotedCholesky:
    r"""P with :math:`P P^T = C^+` for C = S K S^T, as triangular solves.

    The pivoted Cholesky decomposition stops when the remaining diagonal is rounding.
    For a numerically singular C this takes a tenth of the time of an
    eigendecomposition, and P is never formed.
    """

    factor: Annotated[NDArray, array("_r _r")]  # lower triangular
    chosen: Annotated[NDArray, array("_r", "i")]  # r rows of C that span the others

    def __post_init__(self) -> None:
        """Check that the factor is valid and its rows are distinct."""
        chosen = self.chosen
        if (self.factor.diagonal() <= 0).any() or np.unique(chosen).size != chosen.size:
            raise ValueError("`factor` must be of distinct rows, got others")

    @classmethod
    def of(cls, inner: NDArray) -> PivotedCholesky:
        """Return P for C."""
        factor, chosen = _pivoted(inner, RANK_TOL)
        if len(chosen) == 0:
            raise ValueError(
                "`kernel` and `output_kernel` must not be zero on all samples drawn by "
                "the sketches, got no positive values: some sample must be nonzero"
            )
        return cls(np.asfortranarray(np.tril(factor)), chosen)

    @property
    def rank(self) -> int:
        """Number r of columns of P."""
        return len(self.chosen)

    def apply(self, product: NDArray) -> NDArray:
        """Return B^T P, of shape (n, r), for B of shape (s, n)."""
        rows = product[self.chosen].astype(np.float64, copy=False).T
        return scipy.linalg.blas.dtrsm(
            1.0, self.factor, rows, side=1, lower=1, trans_a=1, overwrite_b=1
        )

    def lift(self, W: NDArray, size: int) -> NDArray:
        """Return P W, of shape (s, d), for W of shape (r, d)."""
        out = np.zeros((size, W.shape[1]))
        out[self.chosen] = scipy.linalg.solve_triangular(
            self.factor, W, lower=True, trans="T", check_finite=False
        )
        return out


def _pivoted(inner: NDArray, tol: float) -> tuple[NDArray, NDArray]:
    """Return the pivoted Cholesky factor of C, in its lower triangle, and its rows.

    It stops when the remaining diagonal is below a share of the largest element.
    """
    core = np.array(inner, dtype=np.float64, order="F")
    top = core.diagonal().max(initial=0.0)
    factor, pivots, rank, _ = scipy.linalg.lapack.dpstrf(
        core, tol=tol * top, lower=1, overwrite_a=1
    )
    return factor[:rank, :rank], pivots[:rank].astype(np.int64) - 1


def spanning_rows(inner: NDArray, most: int) -> NDArray:
    """Return the first pivots of C = S K S^T, which span the other rows.

    There are none if `most` pivots leave more than smooth kernels do.
    """
    factor, rows = _pivoted(inner, _SPAN_TOL)
    if len(rows) > most and factor[most, most] ** 2 > _CUT_TOL * factor[0, 0] ** 2:
        return rows[:0]
    return rows[:most]


def projection(inner: NDArray, tol: float = RANK_TOL) -> NDArray:
    r"""Return P of shape (s, r) from S K S^T.

    With :math:`S K S^T = U D U^T = L L^T`, P is the upper triangular :math:`L^{-T}` if
    no eigenvalue can be below the cut, and :math:`U_r D_r^{-1/2}` otherwise. The former
    differs by a rotation, at a tenth of the cost. Eigenvalues are cut below a share
    `tol` of the largest; it is 0 for rows in the order of pivots, for which triangular
    solves are accurate.
    """
    inner = inner.astype(np.float64)
    inner = (inner + inner.T) / 2
    factor = _by_cholesky(inner, tol)
    return _by_eigenvalues(inner) if factor is None else factor


def is_cut(projection: NDArray) -> bool:
    """Return whether directions of S K S^T are dropped, but not all."""
    size, rank = projection.shape
    return 0 < rank < size


def cut_projection(projection: NDArray, inner: NDArray) -> NDArray:
    """Return P' with P' P'^T = C'^+ for the part C' of S K S^T that P drops."""
    size, rank = projection.shape
    scale = max(np.trace(inner), np.linalg.norm(inner))  # of indefinite ones as well
    jitter = _JITTER * np.finfo(float).eps * scale * size**-0.5
    basis = np.linalg.qr(projection, mode="complete")[0][:, rank:]
    values, vectors = eigh(basis.T @ inner @ basis)
    return basis @ (vectors / np.sqrt(np.maximum(values, 0) + jitter))


def projector(projection: NDArray | PivotedCholesky) -> Callable[[NDArray], NDArray]:
    """Return the function B -> B^T P, of shape (n, r), for B of shape (s, n)."""
    if isinstance(projection, PivotedCholesky):
        return projection.apply
    size, rank = projection.shape
    if rank != size or scipy.linalg.bandwidth(projection)[0] > 0:
        return lambda product: product.T @ projection
    factor = np.asfortranarray(projection, dtype=np.float64)
    return lambda product: _times_triangle(product, factor)


def project(product: NDArray, projection: NDArray | PivotedCholesky) -> NDArray:
    """Return B^T P, of shape (n, r), for B of shape (s, n)."""
    return projector(projection)(product)


def _times_triangle(product: NDArray, factor: NDArray) -> NDArray:
    """Return B^T P for an upper triangular P, at half the cost of a full P."""
    out = np.empty(product.shape[::-1])
    for start in range(0, len(out), _ROWS):
        rows = out[start : start + _ROWS]
        rows[:] = product[:, start : start + _ROWS].T
        scipy.linalg.blas.dtrmm(1.0, factor, rows.T, trans_a=1, overwrite_b=1)
    return out


def _by_cholesky(inner: NDArray, tol: float) -> NDArray | None:
    try:
        factor = scipy.linalg.cholesky(inner, lower=True, check_finite=False)
    except np.linalg.LinAlgError:
        return None
    inverse = scipy.linalg.lapack.dtrtri(factor, lower=1)[0]
    # Traces bound the largest eigenvalue and the inverse of the smallest.
    condition = np.trace(inner) * np.linalg.norm(inverse) ** 2
    return inverse.T if condition * tol < 1 else None


def _by_eigenvalues(inner: NDArray) -> NDArray:
    values, vectors = eigh(inner)
    # Signs are fixed by a given direction, because rounding would change them.
    vectors *= np.copysign(1, np.cos(np.arange(len(vectors))) @ vectors)
    kept = values > RANK_TOL * max(values[-1], 0.0)
    return vectors[:, kept] / np.sqrt(values[kept])
