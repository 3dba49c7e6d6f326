"""Adam and the stochastic subgradient method, epoch by epoch."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nbsketch._jit.sgd import ADAM, SUBGRADIENT, run_steps
from nbsketch._validation import (
    check_choice,
    check_integer,
    check_positive,
    check_real,
)
from nbsketch.solvers._stochastic.problem import StochasticProblem

METHODS = {"adam": ADAM, "sgd": SUBGRADIENT}

# Factor of the learning rate, of the step (from 1) and of the share of the rows done.
SCHEDULES: dict[str, Callable[[NDArray, NDArray], NDArray]] = {
    "constant": lambda step, done: np.ones_like(done),
    "inverse-sqrt": lambda step, done: 1.0 / np.sqrt(step),
    "cosine": lambda step, done: 0.5 * (1.0 + np.cos(np.pi * done)),
}


@dataclass(frozen=True)
class Rule:
    """Checked settings of the method."""

    method: int
    batch_size: int
    n_epochs: int
    learning_rate: float
    schedule: Callable[[NDArray, NDArray], NDArray]
    beta1: float
    beta2: float
    shuffle: bool
    replace: bool
    average: bool

    def rates(self, step: NDArray, done: NDArray) -> NDArray:
        """Return length and root factor of the steps, which are numbered from 1."""
        rates = np.ones((len(step), 2))
        rates[:, 0] = self.learning_rate * self.schedule(step, done)
        if self.method == ADAM:
            rates[:, 0] /= 1.0 - self.beta1**step
            rates[:, 1] = 1.0 / np.sqrt(1.0 - self.beta2**step)
        return rates

    def order(self, count: int, rng: np.random.Generator) -> NDArray:
        """Return the rows of a block as they are to be visited."""
        if not self.shuffle:
            return np.arange(count)
        return (
            rng.integers(count, size=count) if self.replace else rng.permutation(count)
        )


def step_rule(
    method: str,
    batch_size: int,
    n_epochs: int,
    learning_rate: float,
    schedule: str,
    betas: tuple[float, float],
    shuffle: bool,
    replace: bool,
    average: bool,
) -> Rule:
    """Check the settings, which are those of `solve_stochastic`."""
    if replace and not shuffle:
        raise ValueError("`shuffle` must be True with replace=True, got False")
    return Rule(
        METHODS[check_choice("method", method, METHODS)],
        check_integer("batch_size", batch_size),
        check_integer("n_epochs", n_epochs),
        check_positive("learning_rate", learning_rate),
        SCHEDULES[check_choice("schedule", schedule, SCHEDULES)],
        *_betas(betas),
        bool(shuffle),
        bool(replace),
        bool(average),
    )


def _betas(betas: tuple[float, float]) -> tuple[float, float]:
    if not isinstance(betas, tuple | list) or len(betas) != 2:
        raise ValueError(f"`betas` must be two numbers in [0, 1), got {betas!r}")
    return (
        check_real("betas[0]", betas[0], low=0, high=1, high_open=True),
        check_real("betas[1]", betas[1], low=0, high=1, high_open=True),
    )


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
    problem, rule, rng
        What to minimize, how to step, and the source of the order of rows.
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
    rule: Rule
    rng: np.random.Generator
    point: NDArray = field(init=False)
    moments: NDArray = field(init=False)
    total: NDArray = field(init=False)
    n_averaged: int = 0
    n_steps: int = 0
    n_rows: int = 0
    epoch: int = 0
    seconds: float = 0.0

    def __post_init__(self) -> None:
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

    def run_epoch(self) -> None:
        """Pass over the data once."""
        begin = perf_counter()
        if self.rule.average and self.epoch == self.rule.n_epochs // 2:
            self.total = np.zeros_like(self.point)
        for start, _, block in self.problem.design.blocks():
            self._run_block(start, block, self.rule.order(len(block), self.rng))
        self.epoch += 1
        self.seconds += perf_counter() - begin
        if not np.isfinite(self.point).all():
            raise FloatingPointError(
                f"the steps diverged in epoch {self.epoch}: `learning_rate` must be "
                f"smaller, got {self.rule.learning_rate:g}"
            )

    def _run_block(self, start: int, block: NDArray, order: NDArray) -> None:
        problem, rule = self.problem, self.rule
        block = np.ascontiguousarray(block)
        rows = slice(start, start + len(block))
        for part in _parts(order, _STEPS_PER_CALL * rule.batch_size):
            run_steps(
                block, problem.targets[rows], problem.weights[rows], part,
                rule.batch_size, self._next_rates(len(part)), problem.kind,
                problem.numbers, problem.mix, problem.penalty, problem.alpha,
                problem.fit_intercept, rule.method, rule.beta1, rule.beta2, self.point,
                self.moments, self.total,
            )  # fmt: skip

    def _next_rates(self, n_rows: int) -> NDArray:
        """Return the rates of the steps over the next rows, and count both."""
        batch = self.rule.batch_size
        steps = np.arange(-(-n_rows // batch))
        n_all = self.rule.n_epochs * self.problem.design.shape[0]
        done = (self.n_rows + batch * steps) / n_all
        rates = self.rule.rates(1.0 + self.n_steps + steps, done)
        self.n_rows += n_rows
        self.n_steps += len(steps)
        self.n_averaged += len(steps) if self.total.size else 0
        return rates

    def snapshot(self) -> Snapshot:
        """Return a copy of the answer at this point, with its objective."""
        point = self.total / self.n_averaged if self.n_averaged else self.point.copy()
        coef, intercept = self.problem.split(point)
        objective = self.problem.objective(coef, intercept)
        coef = np.ascontiguousarray(coef)
        if self.problem.scalar:
            return Snapshot(
                self.epoch, self.seconds, objective, coef[:, 0], float(intercept[0])
            )
        return Snapshot(self.epoch, self.seconds, objective, coef, intercept)


def _parts(order: NDArray, size: int) -> Iterator[NDArray]:
    """Yield `order` in pieces; one empty piece if it is empty."""
    for first in range(0, max(len(order), 1), size):
        yield order[first : first + size]
