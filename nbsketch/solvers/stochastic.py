"""Adam and the stochastic subgradient method, compiled, epoch by epoch.

The papers on p-sparsified sketches and on stochastic gradients with random projections
computed their results with these methods. They reproduce those results and serve as
baselines; the certified solvers are faster and have a stopping test.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nbsketch._jit.sgd import ADAM, SUBGRADIENT, run_steps
from nbsketch._report.validation import (
    check_choice,
    check_integer,
    check_positive,
    check_real,
    random_generator,
)
from nbsketch.losses import Loss
from nbsketch.solvers._certified.search import Callback
from nbsketch.solvers._stochastic import StochasticProblem, stochastic_problem
from nbsketch.solvers.design import Design, as_design
from nbsketch.solvers.solution import Solution

METHODS = {"adam": ADAM, "sgd": SUBGRADIENT}

# Factor of the learning rate, of the step (from 1) and of the share of the rows done.
SCHEDULES: dict[str, Callable[[NDArray, NDArray], NDArray]] = {
    "constant": lambda step, done: np.ones_like(done),
    "inverse-sqrt": lambda step, done: 1.0 / np.sqrt(step),
    "cosine": lambda step, done: 0.5 * (1.0 + np.cos(np.pi * done)),
}

# Steps have diverged once the loss is this many times that of a constant. On noise it
# is up to 3 times, and beyond 1e3 times after 5 passes of steps that are 5 % too long.
DIVERGED = 10.0
# Steps of one compiled call: a few tens of milliseconds, after which Ctrl-C works.
_STEPS_PER_CALL = 65536


class Snapshot(NamedTuple):
    """State of a stochastic method at the end of an epoch.

    Attributes
    ----------
    epoch : int
        Passes over the data so far.
    seconds : float
        Time of those passes, without evaluations and compilation.
    objective : float
        Exact value of the objective.
    coef, intercept
        As in `Solution`; the average of the points once averaging has begun.
    """

    epoch: int
    seconds: float
    objective: float
    coef: NDArray
    intercept: Any


@dataclass
class EpochSearch:
    """Adam or subgradient steps, epoch by epoch.

    Attributes
    ----------
    problem, rng
        What to minimize, and the source of the order of rows.
    method, batch_size, n_epochs, learning_rate, schedule, betas
        Settings of `solve_stochastic`.
    shuffle, replace, average
        More of them.
    point : ndarray
        Coefficients, output by output, then the intercept; changed in place.
    moments : ndarray of shape (2, size of the point)
        Adam's moments.
    total : ndarray
        Sum of the points to average; empty before averaging begins.
    n_averaged, n_steps, n_rows, epoch : int
        Points in `total`, steps, visits of rows and epochs so far.
    seconds : float
        Time of the epochs.
    """

    problem: StochasticProblem
    rng: np.random.Generator
    method: str
    batch_size: int
    n_epochs: int
    learning_rate: float
    schedule: str
    betas: tuple[float, float]
    shuffle: bool
    replace: bool
    average: bool
    point: NDArray = field(init=False)
    moments: NDArray = field(init=False)
    total: NDArray = field(init=False)
    n_averaged: int = 0
    n_steps: int = 0
    n_rows: int = 0
    epoch: int = 0
    seconds: float = 0.0

    def __post_init__(self) -> None:
        self._check_settings()
        problem = self.problem
        rank, n_mixed = problem.design.shape[1], len(problem.mix)
        self.point = np.zeros(n_mixed * rank + problem.n_outputs)
        # Labels are near zero already; targets may be farther than all steps together.
        if problem.fit_intercept and not problem.loss.is_classification:
            problem.split(self.point)[1][:] = problem.middle()
        self.moments = np.zeros((2, self.point.size))
        self.total = np.empty(0)
        # compile before the clock starts: a run over no rows changes nothing
        start, _, block = next(iter(problem.design.blocks()))
        self._run_block(start, block[:0], np.arange(0))

    def _check_settings(self) -> None:
        check_choice("method", self.method, METHODS)
        check_choice("schedule", self.schedule, SCHEDULES)
        check_integer("batch_size", self.batch_size)
        check_integer("n_epochs", self.n_epochs)
        check_positive("learning_rate", self.learning_rate)
        if not isinstance(self.betas, tuple | list) or len(self.betas) != 2:
            raise ValueError(
                f"`betas` must be two numbers in [0, 1), got {self.betas!r}"
            )
        for k, beta in enumerate(self.betas):
            check_real(f"betas[{k}]", beta, low=0, high=1, high_open=True)
        if self.replace and not self.shuffle:
            raise ValueError("`shuffle` must be True with replace=True, got False")

    def run_epoch(self) -> None:
        """Pass over the data once."""
        begin = perf_counter()
        if self.average and self.epoch == self.n_epochs // 2:
            self.total = np.zeros_like(self.point)
        for start, _, block in self.problem.design.blocks():
            self._run_block(start, block, self._order(len(block)))
        self.epoch += 1
        self.seconds += perf_counter() - begin
        if not np.isfinite(self.point).all():
            raise FloatingPointError(
                f"the steps diverged in epoch {self.epoch}: `learning_rate` must be "
                f"smaller, got {self.learning_rate:g}"
            )

    def _order(self, count: int) -> NDArray:
        """Return the rows of a block as they are to be visited."""
        if not self.shuffle:
            return np.arange(count)
        if self.replace:
            return self.rng.integers(count, size=count)
        return self.rng.permutation(count)

    def _run_block(self, start: int, block: NDArray, order: NDArray) -> None:
        problem, block = self.problem, np.ascontiguousarray(block)
        rows = slice(start, start + len(block))
        for part in _parts(order, _STEPS_PER_CALL * self.batch_size):
            run_steps(
                block, problem.targets[rows], problem.weights[rows], part,
                self.batch_size, self._next_rates(len(part)), problem.kind,
                problem.numbers, problem.mix, problem.penalty, problem.alpha,
                problem.fit_intercept, METHODS[self.method], *map(float, self.betas),
                self.point, self.moments, self.total,
            )  # fmt: skip

    def _next_rates(self, n_rows: int) -> NDArray:
        """Return length and root factor of the steps over the next rows; count both."""
        index = np.arange(-(-n_rows // self.batch_size))
        n_all = self.n_epochs * self.problem.design.shape[0]
        done = (self.n_rows + self.batch_size * index) / n_all
        step, rates = 1.0 + self.n_steps + index, np.ones((len(index), 2))
        rates[:, 0] = self.learning_rate * SCHEDULES[self.schedule](step, done)
        if self.method == "adam":
            rates[:, 0] /= 1.0 - self.betas[0] ** step
            rates[:, 1] = 1.0 / np.sqrt(1.0 - self.betas[1] ** step)
        self.n_rows += n_rows
        self.n_steps += len(index)
        self.n_averaged += len(index) if self.total.size else 0
        return rates

    def snapshot(self) -> Snapshot:
        """Return a copy of the answer at this point, with its objective."""
        point = self.total / self.n_averaged if self.n_averaged else self.point.copy()
        coef, intercept = self.problem.split(point)
        objective = self.problem.objective(coef, intercept)
        answer = self.problem.answer(coef, intercept)
        return Snapshot(self.epoch, self.seconds, objective, *answer)


def _parts(order: NDArray, size: int) -> Iterator[NDArray]:
    """Yield `order` in pieces; one empty piece if it is empty."""
    for first in range(0, max(len(order), 1), size):
        yield order[first : first + size]


def check_steps(loss: float, limit: float, name: str, when: str = "") -> None:
    """Raise an error if stochastic steps have ended in a mean loss above a limit.

    `name` is the parameter of their length. Targets that are all equal set no limit.
    """
    if limit > 0 and not loss <= limit:
        raise FloatingPointError(
            f"the steps diverged{when}, to a mean loss of {loss:.1e}, beyond "
            f"{DIVERGED:g} times that of a constant: `{name}` must be smaller"
        )


def squared_norms(Z: NDArray) -> NDArray[np.float64]:
    """Return the squared norm of each row."""
    return np.einsum("ij,ij->i", Z, Z).astype(float)


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
        as_design(design), Y, loss, alpha, sample_weight, fit_intercept, T, quantiles,
        variable, penalty,
    )  # fmt: skip
    every = check_integer("record_every", record_every, low=0)
    search = EpochSearch(
        problem, random_generator(rng), method, batch_size, n_epochs, learning_rate,
        schedule, betas, shuffle, replace, average,
    )  # fmt: skip
    history = [search.snapshot()] if every else []
    for epoch in range(1, search.n_epochs + 1):
        search.run_epoch()
        is_due = epoch % max(every, 1) == 0 or epoch == search.n_epochs
        if is_due and (every or callback is not None):
            latest = search.snapshot()
            history += [latest] if every else []
            progress = latest.objective, np.inf, latest.seconds
            if callback is not None and callback(epoch, *progress):
                break
    last = search.snapshot()
    solution = StochasticSolution(
        last.coef, last.intercept, None, last.objective, np.inf, np.inf, last.epoch,
        last.seconds, converged=False,
    )  # fmt: skip
    solution.history = tuple(history)
    return solution
