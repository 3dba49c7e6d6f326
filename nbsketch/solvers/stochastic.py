"""Adam and the stochastic subgradient method, compiled.

The papers on p-sparsified sketches and on stochastic gradients with random projections
computed their results with these methods. They reproduce those results and serve as
baselines; the certified solvers are faster and have a stopping test.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nbsketch._jit import sgd, sgm
from nbsketch._jit.sgm import draw_rows
from nbsketch._validation import (
    check_integer,
    check_positive,
    check_real,
    random_generator,
)
from nbsketch.losses import Loss, as_loss
from nbsketch.solvers._certified.search import Callback
from nbsketch.solvers._stochastic.epochs import (
    METHODS,
    SCHEDULES,
    EpochSearch,
    Snapshot,
    step_rule,
)
from nbsketch.solvers._stochastic.problem import StochasticProblem, stochastic_problem
from nbsketch.solvers.design import Design, as_design
from nbsketch.solvers.solution import Solution

# Rows of one compiled call: some tens of milliseconds, after which Ctrl-C works.
_ROWS_PER_CALL = 1 << 17
_KINDS = {
    sgd.COLUMNS: sgm.RESIDUAL,
    sgd.RADIAL: sgm.RESIDUAL,
    sgd.MARGIN: sgm.MARGIN,
    sgd.LOGISTIC: sgm.LOGISTIC,
}
# One over the greatest curvature of the logistic loss.
_LOGISTIC_FLATNESS = 4.0
__all__ = ["METHODS", "SCHEDULES", "Snapshot", "StochasticSolution", "solve_stochastic"]


@dataclass(frozen=True)
class RowStream:
    """Independent random rows: row number t is the same however they are asked for.

    Attributes
    ----------
    seed : uint64
        Seed of the stream.
    n_rows : int
        The rows are 0, ..., n_rows - 1, all equally likely,
    cumulative, guide : ndarray
        or as likely as the increases of `cumulative`, which the search for a row starts
        at `guide`; empty for equally likely ones.
    """

    seed: np.uint64
    n_rows: int
    cumulative: NDArray
    guide: NDArray

    @classmethod
    def of(cls, rng: np.random.Generator, weights: NDArray | None, n: int) -> RowStream:
        """Return a new stream of n rows, as likely as their weights are large."""
        seed = rng.integers(2**64, dtype=np.uint64)
        if weights is None:
            return cls(seed, n, np.empty(0), np.empty(0, dtype=np.int64))
        cumulative = np.cumsum(weights, dtype=float)
        # Rows without weight at the end must not be found when rounding meets the sum.
        cumulative = cumulative[: np.searchsorted(cumulative, cumulative[-1]) + 1]
        levels = cumulative[-1] * (np.arange(n) / n)
        guide = np.searchsorted(cumulative, levels, side="right")
        return cls(seed, n, cumulative, np.minimum(guide, len(cumulative) - 1))

    def take(self, first: int, count: int) -> NDArray[np.int64]:
        """Return the rows number ``first, ..., first + count - 1``."""
        out = np.empty(count, dtype=np.int64)
        draw_rows(self.seed, first, self.n_rows, self.cumulative, self.guide, out)
        return out


def squared_norms(Z: NDArray) -> NDArray[np.float64]:
    """Return the squared norm of each row."""
    return np.einsum("ij,ij->i", Z, Z).astype(float)


@dataclass
class SGMSearch:
    """Steps of the stochastic gradient method, with sums of points for an average.

    Attributes
    ----------
    kind : int
        Which loss: see `nbsketch._jit.sgm`.
    numbers : tuple of float
        gam, eps, lo and hi of the loss.
    step : float
        Length of the steps times the greatest curvature of a row's loss.
    batch_size : int
        Rows per step.
    penalties : ndarray of shape (r,) or (0,)
        Penalty of each coefficient; empty for none.
    fit_intercept : bool
        Whether the last column of the point moves.
    point : ndarray of shape (d, r + 1)
        Coefficients and intercept of each output; changed in place.
    totals : ndarray of shape (2, d, r + 1) or (2, 0, 0)
        Sums of the points since the last power of two of steps, and between the one
        before and it; empty without an average.
    n_steps : int
        Steps taken.
    """

    kind: int
    numbers: tuple[float, ...]
    step: float
    batch_size: int
    penalties: NDArray
    fit_intercept: bool
    point: NDArray
    totals: NDArray
    n_steps: int = 0

    @classmethod
    def start(
        cls,
        problem: StochasticProblem,
        step: float,
        batch_size: int,
        average: bool,
        penalty_weights: ArrayLike | None = None,
    ) -> SGMSearch:
        """Return a search from zero; an intercept begins amid the targets."""
        rank = problem.design.shape[1]
        point = np.zeros((problem.n_outputs, rank + 1))
        if problem.fit_intercept:
            point[:, rank] = problem.middle()
        return cls(
            _KINDS[problem.kind],
            tuple(problem.numbers[:, 0].tolist()),
            check_positive("step", step),
            check_integer("batch_size", batch_size),
            _penalties(problem.alpha, penalty_weights, rank),
            problem.fit_intercept,
            point,
            np.zeros((2, *point.shape) if average else (2, 0, 0)),
        )

    def rates(self, square_norms: NDArray) -> NDArray:
        """Return step lengths for rows of at most these squared norms.

        A row without features moves nothing but the intercept. A step of the penalty
        shrinks coefficients to zero at most.
        """
        bound = square_norms * (2.0 if self.fit_intercept else 1.0)
        safe = np.where(bound > 0, bound, np.inf)
        most = 1.0 / max(float(self.penalties.max(initial=0.0)), 1e-300)
        return np.minimum(self.step * self._flatness / safe, most)

    def run(self, Z: NDArray, Y: NDArray, order: NDArray, rates: NDArray) -> None:
        """Take a step of each of `rates` on each batch of `order`."""
        move = np.zeros_like(self.point)
        for first, last in self._parts(len(rates)):
            rows = order[first * self.batch_size : last * self.batch_size]
            sgm.run_steps(
                self.kind, Z, Y, rows, self.batch_size, rates[first:last],
                self._drift, self.penalties, self.numbers, self.point, move,
                self.totals[0],
            )  # fmt: skip
            self.n_steps += last - first
            if _is_power_of_two(self.n_steps):
                self.totals[1], self.totals[0] = self.totals[0], 0.0
            self._check()

    def draw(
        self,
        Z: NDArray,
        Y: NDArray,
        rows: RowStream,
        square_norms: NDArray | float,
        stop: int,
    ) -> None:
        """Take steps on random rows until `stop` are taken.

        `square_norms` bound those of the features of each row, or of all rows.
        """
        batch = self.batch_size
        while self.n_steps < stop:
            count = min(stop - self.n_steps, self._longest)
            order = rows.take(self.n_steps * batch, count * batch)
            bounds = np.broadcast_to(square_norms, len(Z))
            self.run(Z, Y, order, self.rates(self.largest(bounds, order)))

    def largest(self, values: NDArray, order: NDArray) -> NDArray:
        """Return the largest value of each batch of the rows of `order`."""
        firsts = np.arange(0, len(order), self.batch_size)
        return np.maximum.reduceat(values[order], firsts)

    @property
    def result(self) -> NDArray:
        """The point, or the average, of shape (d, r + 1): a copy."""
        if self.totals.size == 0 or self.n_steps == 0:
            return self.point.copy()
        return self.totals.sum(axis=0) / (self.n_steps - average_start(self.n_steps))

    @property
    def _flatness(self) -> float:
        """One over the greatest curvature of the loss, if it has any."""
        if self.kind == sgm.LOGISTIC:
            return _LOGISTIC_FLATNESS
        return self.numbers[0] or 1.0

    @property
    def _drift(self) -> float:
        """Length of the steps of the intercept: its share of `step`."""
        return self.step * self._flatness / 2 if self.fit_intercept else 0.0

    @property
    def _longest(self) -> int:
        """Largest number of steps of one compiled call."""
        return max(1, _ROWS_PER_CALL // self.batch_size)

    def _parts(self, count: int) -> Iterator[tuple[int, int]]:
        """Yield ranges of the next steps: up to the powers of two, and not too long."""
        first = 0
        while first < count:
            taken = self.n_steps
            room = (1 << taken.bit_length()) - taken if self.totals.size else count
            last = min(count, first + room, first + self._longest)
            yield first, last
            first = last

    def _check(self) -> None:
        if not np.isfinite(self.point).all():
            raise FloatingPointError(
                f"the steps diverged before step {self.n_steps}: `step` must be smaller"
            )


def average_start(n_steps: int) -> int:
    """Return after which step the average of the points until `n_steps` begins.

    Half the largest power of two among the steps: the average is one of the last half
    to three quarters of the points, and two sums are enough to go on with it.
    """
    return (1 << n_steps.bit_length()) // 4


def solution(point: NDArray, scalar: bool) -> tuple[NDArray, Any]:
    """Return coefficients and intercept of a point as the solvers give them."""
    coef, intercept = np.ascontiguousarray(point[:, :-1].T), point[:, -1]
    return (coef[:, 0], float(intercept[0])) if scalar else (coef, intercept)


def _penalties(alpha: float, weights: ArrayLike | None, rank: int) -> NDArray:
    """Return the penalty of each coefficient; an empty array for none."""
    if weights is None:
        return np.full(rank if alpha > 0 else 0, alpha)
    values = np.array(weights, dtype=float)
    if values.shape != (rank,) or not (np.isfinite(values) & (values >= 0)).all():
        raise ValueError(
            f"`penalty_weights` must be {rank} finite numbers of at least 0, got an "
            f"array of shape {values.shape}"
        )
    return alpha * values if alpha > 0 else np.empty(0)


def _is_power_of_two(number: int) -> bool:
    return number & (number - 1) == 0


class StochasticSolution(Solution):
    """A `Solution` with the history of the search.

    Nothing is certified: `gap` and `relative_gap` are infinite, `dual` is None and
    `converged` is False. `n_iter` counts epochs, `seconds` the time spent in them.

    Attributes
    ----------
    history : tuple of Snapshot
        The epochs recorded, from epoch 0 on; empty unless asked for.
    """

    history: tuple[Snapshot, ...] = ()


def solve_stochastic(
    design: Design | ArrayLike,
    Y: ArrayLike,
    loss: Loss | str,
    alpha: float,
    *,
    T: ArrayLike | None = None,
    quantiles: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
    fit_intercept: bool = False,
    variable: str = "W",
    penalty: ArrayLike | None = None,
    method: str = "adam",
    batch_size: int = 1,
    n_epochs: int = 25,
    learning_rate: float = 0.01,
    schedule: str = "constant",
    betas: tuple[float, float] = (0.9, 0.999),
    shuffle: bool = True,
    replace: bool = False,
    average: bool = False,
    rng: Any = None,
    record_every: int = 0,
    callback: Callback | None = None,
) -> StochasticSolution:
    r"""Minimize a penalized mean loss by Adam or by stochastic subgradient steps.

    .. math:: \min_{W, b} \frac1n \sum_{i=1}^n s_i\, \ell(Y_i - (Z W T)_i - b)
              + \frac{\alpha}{2} \|W\|_F^2

    A step uses a batch B only. With g the (sub)gradient of its mean loss plus that
    of the penalty, it is ``W - rate g`` or Adam's

    .. math:: m \leftarrow \beta_1 m + (1 - \beta_1) g, \quad
              v \leftarrow \beta_2 v + (1 - \beta_2) g^2, \quad
              W \leftarrow W - rate\, \frac{m / (1 - \beta_1^t)}
              {\sqrt{v / (1 - \beta_2^t)} + 10^{-8}} .

    Batches of one row, ``shuffle=False`` and the other defaults are the method of
    El Ahmad et al.; ``method="sgd", replace=True, alpha=0`` is that of Lin and Cevher.

    Parameters
    ----------
    design : Design or array_like of shape (n, r)
        The features Z, float32 or float64. Blocks of a design are visited in order.
    Y : array_like of shape (n,) or (n, d)
        Targets; -1 and +1 for a classification loss. With two dimensions the loss is
        one of the Euclidean norm of each row of residuals.
    loss : Loss or str
        See `nbsketch.losses`.
    alpha : float
        Penalty, at least 0.
    T : array_like of shape (d', d), optional
        Factor of the output matrix, M = T^T T. Default: the identity.
    quantiles : array_like of shape (d,), optional
        Levels of a joint pinball loss: `Y` (n,) is compared with d outputs and the d
        losses add up. The level of `loss` itself is not used.
    sample_weight : array_like of shape (n,), optional
        The weights s, at least 0. They are used as they are: scale them to mean one.
    fit_intercept : bool
        Whether to fit b, which is not penalized. It starts at the mean (square loss),
        the median or the quantiles of the targets; at 0 for a classification loss.
    variable : {"W", "Gamma"}
        "Gamma": features Z = K S^T (n, s), predictions Z Gamma M, and the penalty
        ``(alpha / 2) Tr(P Gamma M Gamma^T)`` with P = S K S^T; for one output Z gamma
        and ``(alpha / 2) gamma^T P gamma``. `coef` is then Gamma. The papers learn
        their quantiles so; W is much better conditioned.
    penalty : array_like of shape (s, s), optional
        The symmetric matrix P; with ``variable="Gamma"`` only.
    method : {"adam", "sgd"}
        "sgd": plain subgradient steps.
    batch_size : int, default=1
        Rows per step; the last batch of a block may be smaller.
    n_epochs : int, default=25
        Passes over the data. There is no stopping test.
    learning_rate : float, default=0.01
        Positive. The best one depends on loss, features and targets: try several.
    schedule : {"constant", "inverse-sqrt", "cosine"}
        Step t has rate ``learning_rate`` times 1, 1 / sqrt(t), or
        (1 + cos(pi u)) / 2 with u the share of the work done before it.
    betas : tuple of two float
        Memory of Adam's moments, in [0, 1).
    shuffle : bool
        Whether to visit rows (of each block) in a new random order at each epoch.
    replace : bool
        Draw rows uniformly with replacement, as the theory of stochastic gradients
        assumes, instead of visiting each once per epoch. Needs `shuffle`.
    average : bool
        Return the mean of the points of the second half of the epochs.
    rng : None, int, numpy Generator or RandomState
        Source of the order of rows.
    record_every : int
        Record a snapshot in `history` after every so many epochs and after the last.
        0: never.
    callback : callable, optional
        Called as ``callback(epoch, objective, gap, seconds)`` after those epochs (all,
        if `record_every` is 0), as by the other solvers; the gap is infinite. If it
        returns true, no further epoch begins.

    Returns
    -------
    StochasticSolution
        The objective is exact, computed at the end over all rows.

    References
    ----------
    D. P. Kingma and J. Ba, "Adam: A Method for Stochastic Optimization", ICLR 2015.
    T. El Ahmad, P. Laforgue and F. d'Alche-Buc, "Fast Kernel Methods for Generic
    Lipschitz Losses via p-Sparsified Sketches", TMLR 2023.
    J. Lin and V. Cevher, "Convergences of Regularized Algorithms and Stochastic
    Gradient Methods with Random Projections", JMLR 2020.
    A. Rakhlin, O. Shamir and K. Sridharan, "Making Gradient Descent Optimal for
    Strongly Convex Stochastic Optimization", ICML 2012 (averages of a half).

    Examples
    --------
    >>> import numpy as np
    >>> Z = np.array([[1.0], [2.0], [3.0], [4.0]])
    >>> result = solve_stochastic(Z, [2.0, 4.0, 6.0, 8.0], "square", 0.0, n_epochs=500)
    >>> result.coef.round(2), result.n_iter
    (array([2.]), 500)
    """
    problem = stochastic_problem(
        as_design(design), Y, as_loss(loss), check_real("alpha", alpha, low=0),
        T, quantiles, sample_weight, fit_intercept, variable, penalty,
    )  # fmt: skip
    rule = step_rule(
        method, batch_size, n_epochs, learning_rate, schedule, betas, shuffle, replace,
        average,
    )  # fmt: skip
    every = check_integer("record_every", record_every, low=0)
    search = EpochSearch(problem, rule, random_generator(rng))
    history = [search.snapshot()] if every else []
    for epoch in range(1, rule.n_epochs + 1):
        search.run_epoch()
        wanted = epoch % max(every, 1) == 0 or epoch == rule.n_epochs
        if wanted and (every or callback is not None):
            latest = search.snapshot()
            history += [latest] if every else []
            if callback is not None:
                progress = latest.objective, np.inf, latest.seconds
                if callback(epoch, *progress):
                    break
    return _solution(search.snapshot(), history)


def _solution(last: Snapshot, history: list[Snapshot]) -> StochasticSolution:
    solution = StochasticSolution(
        last.coef, last.intercept, None, last.objective, np.inf, np.inf, last.epoch,
        last.seconds, converged=False,
    )  # fmt: skip
    solution.history = tuple(history)
    return solution
