r"""Length scales by exact kernel ridge regressions on small blocks of neighboring rows.

Rows are put in the order of a tree and cut into blocks of equal size. In each block,
:math:`\Sigma = K + 1 1^T + \tau\, \mathrm{diag}(1 / w)`, :math:`A = \Sigma^{-1}`,
a = A y, and leave-one-out residuals are :math:`r_i = a_i / A_{ii}`. The criterion is

.. math:: s \log \sum_i w_i r_i^2
          + \frac{1 - s}{M} (\log\det\Sigma + (M - m) \log\tau) + (1 - s) \log y^T A y

up to constants, over all m rows of all blocks, which are equivalent to M rows of equal
weight: the leave-one-out error, and minus twice the log evidence per row. With g the
derivative in r, :math:`v_i = g_i r_i / A_{ii}` and :math:`u = A (g_i / A_{ii})_i`, the
derivative in :math:`\Sigma` is :math:`A\, \mathrm{diag}(v) A - u a^T` (its symmetric
part) for the first term and :math:`A / M - a a^T / (y^T A y)` for the others. Like
models on all rows, blocks are exact local fits. Rows B that are left out together have
:math:`r_B = A_{BB}^{-1} a_B`, and V = h r^T within B, with :math:`h_B = A_{BB}^{-1}
g_B`, replaces diag(v).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nbsketch._jit.threads import run_slices
from nbsketch._jit.tuning import (
    LAPLACIAN,
    SIDE,
    invert,
    multiply_slopes,
    weighted_distances,
)
from nbsketch.solvers.left_out import effective_number
from nbsketch.tuning.criterion import fill_by_differences
from nbsketch.tuning.descent import TAU_LIMITS, Budget, Curvature, Descent
from nbsketch.tuning.rows import CELLS, Training, at_rows
from nbsketch.tuning.trees import grow

# Rows of a block in the first round, and in later rounds unless there are many rows.
_SIZE = 64
_LARGER = 128
_MANY = 5000
# Rows of all blocks of a round, and the maximum number of rounds.
_ROWS = 4096
_ROUNDS = 4
# Maximum rows of trees that are built down to blocks: for more rows, neighbors are
# drawn in each leaf of a tree with 64 to 128 leaves.
_MOST_ROWS = 16_384
_LEAVES = 64
# Maximum iterations of a round. A round that lowers the criterion by less is the last.
_STEPS = 10
_GAIN = 0.05
# A point is given up if the criterion is larger on new blocks by this, over the root of
# their number, as chance differences are. For targets with steps, one search in two
# ended with more than the error of its start.
_WORSE = 1.6
# Changes of log tau in comparisons.
_MOVES = (-1.0, 0.0, 1.0)
# Weight of the leave-one-out error in the criterion.
_SHARE = 0.8
# Added to the diagonal of K.
_JITTER = 1e-8
# Weights below this, relative to the mean, are not inverted.
_LEAST_WEIGHT = 1e-30
_TINY = np.finfo(np.float64).tiny
# Approximate seconds per product of two elements of the matrices of a block.
_SECONDS = 1e-9


def learn(
    data: Training,
    family: int,
    start: NDArray,
    rng: np.random.Generator,
    budget: Budget,
) -> NDArray:
    """Return the final point (log inverse scales, log tau) of `rounds`."""
    *_, point = rounds(data, family, start, rng, budget)
    return point


def rounds(
    data: Training,
    family: int,
    point: NDArray,
    rng: np.random.Generator,
    budget: Budget,
    tau_limits: tuple[float, float] = TAU_LIMITS,
) -> Iterator[NDArray]:
    """Yield the points after descents from `point`, with new blocks in each round.

    If a point is worse on new blocks, the one before is yielded again, and descents
    continue from there on neighbors in the length scales of both: steps between rows
    that are neighbors in one of them only are otherwise not seen.
    """
    given_up: list[NDArray] = []
    curvature = Curvature()
    size = _SIZE

    def descent_from(point: NDArray) -> tuple[Descent, float]:
        """Return a descent on new blocks, and a difference between blocks by chance."""
        blocks = _near([point, *given_up], data, size, rng)
        criterion = BlockCriterion(data, blocks, family)
        descent = Descent(criterion, point, len(data.Y), tau_limits, curvature)
        return descent, _WORSE / len(blocks) ** 0.5

    descent, _ = descent_from(point)
    for left in reversed(range(_ROUNDS)):
        start = point
        before = descent.value
        descent.run(_STEPS, budget)
        point = descent.point
        yield point
        is_last = left == 0 or budget.is_spent or not before - descent.value >= _GAIN
        size = _LARGER if len(data.Y) <= _MANY else _SIZE
        descent, chance = descent_from(point)
        if descent.value > before + chance:
            given_up.append(point)
            point = start
            yield point
            if left == 0 or budget.is_spent:
                return
            curvature = Curvature()
            descent, _ = descent_from(point)
        elif is_last:
            return


def _near(
    points: list[NDArray], data: Training, size: int, rng: np.random.Generator
) -> NDArray:
    """Return blocks of neighbors in the length scales of each point."""
    most = max(_ROWS // len(points), size)
    blocks = (neighbors(data, np.exp(p[:-1]), size, rng, most) for p in points)
    return np.vstack(list(blocks))


def left_out_error(
    data: Training, family: int, point: NDArray, rng: np.random.Generator
) -> float:
    """Return the log of the leave-one-out error of all rows, at the best of three tau.

    They are in blocks of neighbors. The errors of few blocks differ by more between
    draws than between kernels.
    """
    blocks = neighbors(data, np.exp(point[:-1]), _SIZE, rng, len(data.Y))
    errors = []
    for part in np.array_split(blocks, max(1, blocks.size // _ROWS)):
        criterion = BlockCriterion(data, part, family)
        errors.append([criterion.left_out(p) for p in moved(point)])
    return np.log(np.exp(errors).mean(axis=0)).min()


def moved(point: NDArray) -> list[NDArray]:
    """Return a point with three tau."""
    return [np.append(point[:-1], point[-1] + move) for move in _MOVES]


def neighbors(
    data: Training,
    inverse: NDArray,
    size: int,
    rng: np.random.Generator,
    most_rows: int = _ROWS,
) -> NDArray:
    """Return blocks (b, size) of neighboring rows, at random up to `most_rows`.

    `inverse` are the inverse length scales that define neighbors. If rows are left out
    together, they are drawn from as many times more neighbors as there are labels, so
    that other rows remain.
    """
    index = _region(data.rows, inverse, rng)
    n = len(index)
    size = min(size, n)
    count = 1 if data.labels is None else len(np.unique(data.labels))
    tree = grow(data.rows[index], inverse, size * count, rng)
    order = index[tree.order]
    if count > 1:
        order = np.concatenate([rng.permutation(index[i]) for i in tree.leaves()])
    start = rng.integers(n % size + 1)
    blocks = order[start : start + n - n % size].reshape(-1, size)
    most = min(most_rows, CELLS // max(data.rows.shape[1], 1)) // size
    return blocks[rng.permutation(len(blocks))[: max(most, 1)]]


def _region(rows: NDArray, inverse: NDArray, rng: np.random.Generator) -> NDArray:
    """Return all rows if few, else neighbors in each leaf of a coarse tree."""
    n = len(rows)
    if n <= _MOST_ROWS:
        return np.arange(n)
    spots = list[NDArray]()
    for leaf in grow(rows, inverse, -(-n // _LEAVES), rng).leaves():
        is_divided = True
        while is_divided and len(leaf) > _MOST_ROWS // _LEAVES:
            halves = grow(rows[leaf], inverse, -(-len(leaf) // 2), rng).leaves()
            leaf = leaf[halves[rng.integers(len(halves))]]
            is_divided = len(halves) > 1
        spots.append(leaf)
    return np.sort(np.concatenate(spots))


class BlockCriterion:
    """The criterion as a function of (log inverse scales, log tau).

    Parameters
    ----------
    data : Training
        Preprocessed rows and standardized targets. Rows of equal labels are left out
        together; rows of label -1 are never left out.
    blocks : ndarray of int of shape (b, c)
        Rows of each block.
    family : int
        Code in `nbsketch._jit.tuning.FAMILIES`.
    share : float, default=0.8
        Weight of the leave-one-out error; the rest is evidence.

    Attributes
    ----------
    error : float
        Leave-one-out error at the last point: the logarithm of the mean square.
    level : int
        Level of precision: constant.
    """

    level = 0

    def __init__(
        self, data: Training, blocks: NDArray, family: int, share: float = _SHARE
    ) -> None:
        rows = data.rows[blocks].astype(np.float64, copy=False)
        self._rows = rows.reshape(-1, rows.shape[2])
        self._columns = np.ascontiguousarray(rows.swapaxes(1, 2))
        self._Y = data.Y[blocks]
        weights = data.weights[blocks] / data.weights[blocks].mean()
        self._w = np.maximum(weights, _LEAST_WEIGHT)
        self._effective = effective_number(weights.ravel())
        self._judged = weights[:, :, None]
        self._together: NDArray | None = None
        self._share = share
        labels = at_rows(data.labels, blocks)
        if labels is not None:
            self._judged = self._judged * (labels >= 0)[:, :, None]
            self._together = labels[:, :, None] == labels[:, None, :]
            self._share = 1.0  # evidence assumes independent errors
        self._count = max(self._judged.sum(), _TINY)
        self._family = family
        self._A = np.zeros((*blocks.shape, blocks.shape[1]))
        self._slopes = np.empty_like(self._A)
        self.error = np.inf
        width = blocks.shape[1] + -blocks.shape[1] % SIDE
        # Shapes of the arrays in which the compiled functions work.
        self._square = width, width
        self._strip = SIDE, width

    def __call__(self, point: NDArray) -> tuple[float, NDArray]:
        """Return the criterion and its gradient."""
        log_det, noise, dual, residual, squares = self._solve(point)
        A = self._A
        quadratic = max((self._Y * dual).sum(), _TINY)
        M = self._effective
        rest = 1 - noise.size / M
        evidence = log_det / M + rest * point[-1] + np.log(quadratic / M)
        s = self._share
        h = self._solve_left_out((2 * s / squares) * self._judged * residual)
        left = (A @ h + ((1 - s) / quadratic) * dual) / 2
        pair = [np.ascontiguousarray(part.swapaxes(1, 2)) for part in (left, dual)]
        terms = *self._judged_times(h, residual), A, (1 - s) / M, *pair
        gradient = self._gradient(np.exp(point[:-1]), noise, terms)
        gradient[-1] += (1 - s) * rest
        return s * self.error + (1 - s) * evidence, gradient

    def left_out(self, point: NDArray) -> float:
        """Return the leave-one-out error at a point."""
        self._solve(point)
        return self.error

    def _solve(self, point: NDArray) -> tuple[float, NDArray, NDArray, NDArray, float]:
        """Return log determinants, noise, A Y, left-out residuals and their squares."""
        noise = np.exp(point[-1]) / self._w
        log_det = self._invert(np.exp(point[:-1]), noise)
        dual = self._A @ self._Y
        residual = self._solve_left_out(dual)
        squares = max((self._judged * residual * residual).sum(), _TINY)
        self.error = np.log(squares / self._count)
        return log_det, noise, dual, residual, squares

    def _gradient(
        self, inverse: NDArray, noise: NDArray, terms: tuple[Any, ...]
    ) -> NDArray:
        """Return the sum of the derivatives in the covariances times those of these.

        `terms` are the arguments of `multiply_slopes`.
        """
        out = np.zeros((len(noise), len(inverse) + 1))
        slopes = self._slopes
        is_l1 = self._family == LAPLACIAN

        def add_slopes(*part: int) -> None:
            scratch = map(np.zeros, [self._square] * 3)
            multiply_slopes(noise, *terms, slopes, out, *scratch, *part)
            W = slopes.reshape(len(self._rows), -1)
            tiles = noise.shape[1], True, *part
            weighted_distances(is_l1, self._rows, self._columns, W, out, *tiles)

        self._run(add_slopes)
        gradient = out.sum(axis=0)
        gradient[:-1] *= inverse if is_l1 else 2 * inverse**2
        return gradient

    def _invert(self, inverse: NDArray, noise: NDArray) -> float:
        """Compute the inverses and slopes; return the sum of log determinants."""
        c = noise.shape[1]
        log_dets = np.empty(len(noise))
        noise = noise + _JITTER
        scaled = self._rows * inverse, self._columns * inverse[:, None]
        flat = self._A.reshape(-1, c), self._slopes.reshape(-1, c)

        def fill_and_invert(*part: int) -> None:
            fill_by_differences(self._family, *scaled, *flat, c, True, *part)
            scratch = map(np.zeros, (self._square, self._strip, self._strip))
            invert(self._A, noise, log_dets, *scratch, *part)

        self._run(fill_and_invert)
        if not np.isfinite(log_dets).all():
            raise np.linalg.LinAlgError("a block is not positive definite")
        return log_dets.sum()

    def _solve_left_out(self, values: NDArray) -> NDArray:
        """Solve with the parts of A of the rows that are left out together."""
        if self._together is None:
            return values / self._A.diagonal(axis1=1, axis2=2)[:, :, None]
        return np.linalg.solve(np.where(self._together, self._A, 0.0), values)

    def _judged_times(self, h: NDArray, residual: NDArray) -> tuple[NDArray, NDArray]:
        """Return V A, as factors of the rows and a product.

        V = h r^T within the rows that are left out together.
        """
        if self._together is None:
            return (h * residual).sum(axis=2), self._A
        V = np.where(self._together, h @ residual.swapaxes(1, 2), 0.0)
        return np.ones(self._w.shape), (V + V.swapaxes(1, 2)) / 2 @ self._A

    def _run(self, work: Callable[[int, int], None]) -> None:
        """Call a function of the first block and the one after the last, for all."""
        count, size, _ = self._A.shape
        run_slices(work, count, _SECONDS * size**3)
