r"""Cholesky factors of matrices that may be indefinite by rounding.

Partial Cholesky factor of a kernel matrix, with random pivots:

.. math:: K \approx F F^\top, \qquad F \in \mathbb R^{n \times m}

Block variant of randomly pivoted Cholesky: Chen, Epperly, Tropp and Webber, "Randomly
pivoted Cholesky", 2022, Algorithm 2.2; as a preconditioner: Diaz, Epperly, Frangella,
Tropp and Webber, "Robust, randomized preconditioning for kernel ridge regression",
2023. Proposals of a block can be accepted or rejected individually: Epperly, Tropp and
Webber, "Embrace rejection", 2024.

Low-rank preconditioner of a kernel matrix plus a multiple of inverse weights:

.. math:: P = F F^\top + \theta W^{-1}, \qquad P^{-1} = \frac1\theta W^{1/2}
          \bigl(I - \tilde F (\tilde F^\top \tilde F + \theta I)^{-1} \tilde F^\top
          \bigr) W^{1/2}, \qquad \tilde F = W^{1/2} F

by Woodbury's identity. Rounding leaves about eps |r| instead of |r| times the shift
over the largest eigenvalue, so theta is at least 2 eps tr(F F^T). A theta above the
shift is harmless as long as the residual K - F F^T is larger.

Low-rank preconditioner with diagonal blocks of neighboring rows, for small shifts:

.. math:: P = F F^\top + D, \qquad D = \operatorname{blockdiag}_b \bigl(
          (K - F F^\top)_{bb} + \lambda W^{-1}_{bb}\bigr)

F represents the part shared by all rows, the blocks the remaining part shared by
neighbors. With :math:`U^\top U = W^{1/2} D W^{1/2}` and :math:`G = F^\top W^{1/2}
U^{-1}`, Woodbury's identity gives

.. math:: P^{-1} = W^{1/2} U^{-1} \bigl(I - G^\top (I + G G^\top)^{-1} G\bigr)
          U^{-\top} W^{1/2} .
"""

from collections.abc import Iterator
from copy import copy
from typing import Self

import numpy as np
from numpy.typing import DTypeLike, NDArray
from scipy.linalg import blas, lapack

from nbsketch._machine.memory import fits, slices
from nbsketch.solvers._linear.conjugate_gradients import KernelOperator

# Factor between trials of the number added to the diagonal.
_GROWTH = 4
# Pivots per block: a tenth of all pivots, but at least this number.
_BLOCKS = 10
_LEAST_BLOCK = 50
# Units of rounding added to the diagonal of a block, and left as the final residual.
_JITTER = 16
_RESIDUAL = 80
# Maximum rows of a block, and steps of the power method for the direction of a split.
_ROWS = 500
_STEPS = 3
# The shift of an indefinite block is increased by this share, then by four times more.
_MORE = 0.25
# Default rank: 8 sqrt(n) between these. Larger ranks cost more than the steps they
# save.
_RANK = 8.0
_RANKS = 300, 2000
# No memory limit reduces it below this.
_LEAST_RANK = 50
# Copies of the factor: itself, weighted, and a part of it or for another shift.
_COPIES = 3
# Factors are float64 if the shift is below this share of the trace.
_SMALL_SHIFT = 2.4e-7
# Diagonal blocks are used if the shift is below this share of the mean diagonal: at
# 1.6e-4 and 4e-4 they take 0.4 to 0.7 of the time if many passes are needed
# (california, power plant, a robot arm), 1.1 to 1.9 of a second or two if few are
# (elevators, kegg).
_LOCAL_SHIFT = 5e-4
# Share of the trace by which theta exceeds rounding.
_ROUNDINGS = 2
# Rows of F reweighted at a time.
_CHUNK = 8192

# Rows of each diagonal block, with its matrix or its factor.
DiagonalBlocks = list[tuple[NDArray, NDArray]]


def raised_cholesky(
    matrix: NDArray, shift: float, more: float | None = None
) -> tuple[NDArray, float]:
    """Return the upper Cholesky factor of a matrix plus ``shift I``, and the shift.

    If it does not exist, `more` (default: 3 times the shift) is added to the shift,
    then 4 times, 16 times as much. Only the upper triangle of the matrix is used; the
    lower triangle of the factor is undefined.
    """
    potrf = lapack.get_lapack_funcs("potrf", (matrix,))
    raised = shift
    more = 3 * shift if more is None else more
    while True:
        system = matrix.copy(order="F")
        system.flat[:: len(system) + 1] += system.dtype.type(raised)
        upper, failed = potrf(system, lower=0, overwrite_a=1, clean=0)
        if not failed:
            return upper, raised
        raised = shift + more
        more = _GROWTH * more


def solve_upper(upper: NDArray, V: NDArray, transposed: int = 0) -> NDArray:
    """Return U^{-1} V or, if transposed, U^{-T} V, for V of shape (m,) or (m, k)."""
    if V.size == 0:
        return V
    if V.ndim == 1 or V.shape[1] == 1:  # twice as fast for a vector
        trsv = blas.get_blas_funcs("trsv", (upper,))
        return trsv(upper, V.ravel(), lower=0, trans=transposed).reshape(V.shape)
    trsm = blas.get_blas_funcs("trsm", (upper,))
    return trsm(1.0, upper, V, lower=0, trans_a=transposed)


def solve_positive_upper(upper: NDArray, V: NDArray) -> NDArray:
    """Return (U^T U)^{-1} V."""
    return solve_upper(upper, solve_upper(upper, V, 1))


def scaled_columns(
    R: NDArray, dtype: DTypeLike | None = None
) -> tuple[NDArray, NDArray]:
    """Return the largest entries of columns (1 for zeros), and R divided by them."""
    size = np.abs(R).max(axis=0, initial=0)
    size[size == 0] = 1.0
    return size, np.asfortranarray(R / size, dtype)


def partial_cholesky(
    K: KernelOperator,
    rank: int,
    rng: np.random.Generator,
    *,
    dtype: DTypeLike = np.float32,
    tolerance: float = 0.0,
    one_by_one: bool = False,
) -> tuple[NDArray, NDArray]:
    """Return the transposed factor F^T of shape (m, n) and its m pivots.

    Pivots are drawn with probabilities proportional to the diagonal of the residual K -
    F F^T. Their number is `rank`, or less if the trace of the residual decreases to
    `tolerance`, or to rounding. Their distribution is that of sequential draws if
    `one_by_one`, otherwise of block draws, where neighboring rows may be pivots
    together.
    """
    diagonal = K.diag()
    mean = float(diagonal.mean())
    rounding = float(np.finfo(np.promote_types(K.dtype, np.float16)).eps)
    rounding = max(rounding, float(np.finfo(dtype).eps))
    residual = max(tolerance, _RESIDUAL * rounding * diagonal.sum())
    F = np.empty((rank, len(diagonal)), dtype)
    pivots = np.empty(0, dtype=np.int64)
    while len(pivots) < rank and diagonal.sum() > residual:
        block = min(max(_LEAST_BLOCK, rank // _BLOCKS), rank - len(pivots))
        factor = F[: len(pivots)]
        if one_by_one:
            index = _accepted(K, diagonal, factor, block, rng)
        else:
            index = _draw(diagonal, block, rng)
        new = _block_factor(K, index, factor, _JITTER * rounding * mean)
        F[len(pivots) : len(pivots) + len(index)] = new
        diagonal -= np.einsum("ij,ij->j", new, new, dtype=np.float64)
        np.maximum(diagonal, 0, out=diagonal)
        diagonal[index] = 0
        pivots = np.concatenate([pivots, index])
    return F[: len(pivots)], pivots


def _draw(diagonal: NDArray, count: int, rng: np.random.Generator) -> NDArray:
    """Return distinct rows, drawn with probabilities proportional to the diagonal."""
    count = min(count, int(np.count_nonzero(diagonal)))
    drawn = rng.choice(len(diagonal), 2 * count, p=diagonal / diagonal.sum())
    return np.sort(rng.permutation(np.unique(drawn))[:count])


def _accepted(
    K: KernelOperator,
    diagonal: NDArray,
    factor: NDArray,
    count: int,
    rng: np.random.Generator,
) -> NDArray:
    """Return at most `count` rows with the distribution of sequential draws.

    Each proposal of a block is accepted with probability equal to the share of its
    residual that remains after those accepted before.
    """
    share = diagonal / diagonal.sum()
    proposed = rng.choice(len(share), max(_LEAST_BLOCK, count), p=share)
    index, order = np.unique(proposed, return_inverse=True)
    part = factor[:, index].astype(np.float64)
    left = K.block(index) - part.T @ part
    limits = rng.random(len(order)) * left.diagonal()[order]
    kept: list[int] = []
    for i, limit in zip(order.tolist(), limits, strict=True):
        if left[i, i] > limit and len(kept) < count:
            kept.append(i)
            left -= np.outer(left[:, i], left[:, i] / left[i, i])
            left[i] = 0.0
            left[:, i] = 0.0
    return index[np.sort(kept)] if kept else index[:1]


def _block_factor(
    K: KernelOperator, index: NDArray, factor: NDArray, jitter: float
) -> NDArray:
    """Return the rows of F^T for a block of pivots, given the previous ones."""
    schur = np.ascontiguousarray(K.rows(index), dtype=factor.dtype)
    if len(factor):
        schur -= factor[:, index].T @ factor
    block = schur[:, index].astype(np.float64)
    upper = raised_cholesky((block + block.T) / 2, jitter)[0].astype(factor.dtype)
    solved = blas.get_blas_funcs("trsm", (upper,))(
        1.0, upper, schur.T, side=1, lower=0, overwrite_b=1
    )
    return solved.T


class BlockPreconditioner:
    """P^{-1} from a factor F^T of shape (m, n), for several shifts at once.

    Parameters
    ----------
    K : KernelOperator of shape (n, n)
        Kernel matrix; its diagonal blocks are evaluated.
    factor : ndarray of shape (m, n)
        F^T in float64. Scaled in place.
    rng : Generator
        Random numbers of the partition of the rows.
    weights : ndarray of shape (n,), optional
        W, at least 0. Default: the identity.
    """

    def __init__(
        self,
        K: KernelOperator,
        factor: NDArray,
        rng: np.random.Generator,
        weights: NDArray | None = None,
    ) -> None:
        parts = list(_partition(factor, rng))
        self._root = np.ones(factor.shape[1]) if weights is None else np.sqrt(weights)
        self.factor = factor
        factor *= self._root
        self._residuals: DiagonalBlocks = []
        for index in parts:  # of W^{1/2} (K - F F^T) W^{1/2}
            part = self.factor[:, index]
            root = self._root[index]
            block = K.block(index) * np.outer(root, root) - part.T @ part
            self._residuals.append((index, block))
        self._shifted: dict[float, tuple[DiagonalBlocks, NDArray, NDArray]] = {}

    @property
    def rank(self) -> int:
        """Number of columns of F."""
        return len(self.factor)

    def solve(self, R: NDArray, shifts: NDArray) -> NDArray:
        """Return P^{-1} R for R of shape (n, d), with one shift per column."""
        out = R * self._root[:, None]
        for c, shift in enumerate(shifts):
            uppers, G, inner = self._with_shift(float(shift))
            half = np.empty(len(out))
            for index, upper in uppers:
                half[index] = solve_upper(upper, out[index, c], 1)
            half -= G.T @ solve_positive_upper(inner, G @ half)
            for index, upper in uppers:
                out[index, c] = solve_upper(upper, half[index])
        return out * self._root[:, None]

    def _with_shift(self, shift: float) -> tuple[DiagonalBlocks, NDArray, NDArray]:
        """Return U by blocks, G, and the factor of I + G G^T."""
        if shift not in self._shifted:
            more = _MORE * shift
            uppers = [
                (index, raised_cholesky(block, shift, more)[0])
                for index, block in self._residuals
            ]
            G = np.empty_like(self.factor)
            for index, upper in uppers:
                G[:, index] = solve_upper(upper, self.factor[:, index].T, 1).T
            inner, _ = raised_cholesky(G @ G.T, 1.0)
            self._shifted[shift] = uppers, G, inner
        return self._shifted[shift]


def _partition(factor: NDArray, rng: np.random.Generator) -> Iterator[NDArray]:
    """Yield blocks of neighboring rows: halves along the direction of largest spread.

    Rows are neighbors if their columns of F^T, coordinates of their features, are
    close.
    """
    waiting = [np.arange(factor.shape[1])]
    while waiting:
        index = waiting.pop()
        if len(index) <= _ROWS:
            yield index
            continue
        part = factor[:, index]
        spread = rng.standard_normal(len(index))
        for _ in range(_STEPS):
            spread = part.T @ (part @ (spread - spread.mean()))
            spread /= np.abs(spread).max() or 1.0
        order = np.argsort(spread - spread.mean(), kind="stable")
        half = len(index) // 2
        waiting += [np.sort(index[order[:half]]), np.sort(index[order[half:]])]


class LowRankPreconditioner:
    """P^{-1} from a factor F^T of shape (m, n), for several shifts at once.

    Weights can be changed: the Gram matrix of the weighted factor is updated by the
    rows whose weights differ, if these are few.

    Parameters
    ----------
    factor : ndarray of shape (m, n)
        F^T, in float32 or float64, the dtype of all computations.
    weights : ndarray of shape (n,), optional
        W, at least 0. Default: the identity.
    """

    def __init__(self, factor: NDArray, weights: NDArray | None = None) -> None:
        self.factor = factor
        n, rank = self._shape
        self._weights = np.zeros(n)
        self._gram = np.zeros((rank, rank), factor.dtype, order="F")
        self._uppers: dict[float, tuple[NDArray, float]] = {}
        self.reweight(np.ones(n) if weights is None else weights)

    @property
    def rank(self) -> int:
        """Number of columns of F."""
        return self._shape[1]

    @property
    def _shape(self) -> tuple[int, int]:
        """The shape of F."""
        return self.factor.shape[1], self.factor.shape[0]

    def reweight(self, weights: NDArray) -> None:
        """Change the weights (n,); rows of weight zero are ignored."""
        changed = np.flatnonzero(weights != self._weights)
        if len(changed) > np.count_nonzero(weights) / 2:
            self._gram[:] = 0
            self._weights = np.zeros(len(weights))
            changed = np.flatnonzero(weights)
        difference = weights[changed] - self._weights[changed]
        for sign in (-1.0, 1.0):
            rows = changed[sign * difference > 0]
            for chunk in slices(len(rows), _CHUNK):
                part = rows[chunk]
                root = np.sqrt(sign * (weights[part] - self._weights[part]))
                self._add(part, root.astype(self.factor.dtype), sign)
        self._weights = weights
        self._uppers = {}
        self._root = np.sqrt(weights)[:, None]

    def solve(self, R: NDArray, shifts: NDArray) -> NDArray:
        """Return P^{-1} R for R of shape (n, d), with one shift per column."""
        size, V = scaled_columns(R * self._root, self.factor.dtype)
        root = self._root.astype(V.dtype)
        G = self._times(V * root)
        thetas = np.empty(len(shifts))
        for c, shift in enumerate(shifts):
            upper, thetas[c] = self._factorized(float(shift))
            G[:, c] = solve_positive_upper(upper, G[:, c])
        V -= self._back(G) * root
        return V * (size / thetas) * self._root

    def restricted(self, rows: NDArray) -> Self:
        """Return the preconditioner restricted to the rows of positive weight."""
        part = copy(self)
        part._take(rows)
        part._weights = self._weights[rows]
        part._root = self._root[rows]
        return part

    def _take(self, rows: NDArray) -> None:
        """Drop the other rows of F."""
        self.factor = self.factor[:, rows]

    def _add(self, rows: NDArray, root: NDArray, sign: float) -> None:
        """Add the products of rows of F, times root, to the Gram matrix."""
        part = np.take(self.factor, rows, axis=1)
        part *= root
        if len(part):
            syrk = blas.get_blas_funcs("syrk", (part,))
            self._gram = syrk(
                sign, part.T, beta=1.0, c=self._gram, trans=1, lower=0, overwrite_c=1
            )

    def _times(self, V: NDArray) -> NDArray:
        """Return F^T V."""
        return self.factor @ V

    def _back(self, G: NDArray) -> NDArray:
        """Return F G."""
        return self.factor.T @ G

    def _factorized(self, shift: float) -> tuple[NDArray, float]:
        """Return the Cholesky factor of F^T W F + theta I, and theta."""
        if not self.rank:
            return self._gram, shift
        if shift not in self._uppers:
            rounding = _ROUNDINGS * float(np.finfo(self._gram.dtype).eps)
            theta = max(shift, rounding * float(np.trace(self._gram)))
            self._uppers[shift] = raised_cholesky(self._gram, theta)
        return self._uppers[shift]


Preconditioner = LowRankPreconditioner | BlockPreconditioner


def default_rank(n: int, share: float = 1.0, outputs: int = 1) -> int:
    """Return a share of the rank for n rows, at most the rank for all outputs.

    It is halved, down to a minimum, until its copies fit into memory.
    """
    rank = int(np.clip(share * _RANK * n**0.5, *_RANKS))
    rank = min(rank, _RANKS[1] // outputs)
    while rank > _LEAST_RANK and not fits(8.0 * n * rank, copies=_COPIES * outputs):
        rank //= 2
    return rank


def low_rank_factor(
    K: KernelOperator,
    shift: float,
    rng: np.random.Generator,
    *,
    rank: int | None = None,
    dtype: DTypeLike | None = None,
) -> NDArray:
    """Return F^T for a shift; see `build_preconditioner`."""
    n = K.shape[0]
    rank = min(n, default_rank(n) if rank is None else rank)
    if dtype is None:
        small = shift < _SMALL_SHIFT * float(K.diag().sum())
        dtype = np.float64 if small else np.float32
    return partial_cholesky(K, rank, rng, dtype=dtype, tolerance=shift / 4)[0]


def build_preconditioner(
    K: KernelOperator,
    shift: float,
    rng: np.random.Generator,
    *,
    rank: int | None = None,
    weights: NDArray | None = None,
    dtype: DTypeLike | None = None,
    local: bool | None = None,
) -> Preconditioner:
    r"""Return a preconditioner of K plus n alpha times inverse weights.

    .. math:: P = F F^\top + \theta W^{-1} \approx K + n \alpha W^{-1}

    with F from block randomly pivoted Cholesky. Alternatively, the last term is
    replaced by the diagonal blocks of :math:`K - F F^\top + n \alpha W^{-1}` for
    neighboring rows. `nbsketch.solvers.solve_conjugate` accepts it for any penalty that
    is not much smaller.

    Parameters
    ----------
    K : SymmetricGram of shape (n, n)
        Kernel matrix; `rank` of its rows are evaluated.
    shift : float
        Smallest n alpha for which it is used. With an output matrix, n alpha divided by
        its largest eigenvalue.
    rng : Generator
        Random numbers of the pivots.
    rank : int, optional
        Number of columns of F. Default: 8 sqrt(n) between 300 and 2000, at most n, and
        fewer above the memory limit or if the remainder of K is negligible. The
        construction takes n rank^2 operations.
    weights : ndarray of shape (n,), optional
        Nonnegative weights W of mean one.
    dtype : {float32, float64}, optional
        Dtype of F. Default: float64 if the shift is below 2.4e-7 tr(K), which float32
        cannot represent next to the largest eigenvalues.
    local : bool, optional
        Whether to add diagonal blocks, of at most 500 rows and in float64. They reduce
        the passes to a third if the penalty is small, and take as long to build as F.
        Default: if neither `rank` nor `dtype` is given, the blocks fit into memory, and
        the shift is below 5e-4 of the mean diagonal of K.

    Returns
    -------
    Preconditioner
        Object with ``solve(R, shifts)`` for columns R and one shift per column.

    Examples
    --------
    >>> import numpy as np
    >>> from nbsketch import GaussianKernel
    >>> from nbsketch.gram import SymmetricGram
    >>> K = SymmetricGram(GaussianKernel(1.0), np.linspace(0, 6, 500)[:, None])
    >>> pre = build_preconditioner(K, 500 * 1e-4, np.random.default_rng(0))
    >>> pre.rank < 500
    True
    """
    if local is None:
        small = shift < _LOCAL_SHIFT * float(K.diag().mean())
        n_bytes = 8.0 * K.shape[0] * _ROWS  # of the blocks, and of their factors
        local = small and rank is None and dtype is None and fits(n_bytes, copies=2)
    if local and dtype is None:
        dtype = np.float64
    F = low_rank_factor(K, shift, rng, rank=rank, dtype=dtype)
    if local:
        return BlockPreconditioner(K, F, rng, weights)
    return LowRankPreconditioner(F, weights)
