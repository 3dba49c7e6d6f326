"""The problem of stochastic methods, and Adam and subgradient steps, epoch by epoch.

The papers on p-sparsified sketches used these methods. They reproduce those results and
serve as baselines; the certified solvers are faster and have a stopping criterion.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nbsketch._jit.sgd import (
    ADAM,
    COLUMNS,
    LOGISTIC,
    MARGIN,
    RADIAL,
    SUBGRADIENT,
    run_steps,
)
from nbsketch._report.fields import Checked, choice, count, integer, positive, rules
from nbsketch._report.validation import check_real
from nbsketch.losses import LogisticLoss, Loss, SquaredHingeLoss, SquareLoss, as_loss
from nbsketch.solvers._certified import checks
from nbsketch.solvers.design import Design
from nbsketch.solvers.row_loss import conjugate_numbers
from nbsketch.solvers.solution import Callback, Progress, Solution

METHODS = {"adam": ADAM, "sgd": SUBGRADIENT}

# Factor of the learning rate, given the step (from 1) and the share of the rows done.
SCHEDULES: dict[str, Callable[[NDArray, NDArray], NDArray]] = {
    "constant": lambda step, done: np.ones_like(done),
    "inverse-sqrt": lambda step, done: 1.0 / np.sqrt(step),
    "cosine": lambda step, done: 0.5 * (1.0 + np.cos(np.pi * done)),
}

# Steps have diverged if the loss exceeds this multiple of the loss of a constant. On
# noise it is up to 3 times, and above 1e3 times after 5 passes of steps that are 5 %
# too long.
DIVERGED = 10.0
# Decay rates of Adam's two moments; the values of Kingma and Ba (2015).
_BETAS = 0.9, 0.999


@dataclass(frozen=True)
class StochasticSolver(Checked):
    r"""Adam or stochastic subgradient steps, as in the papers.

    It has no certificate and needs a suitable learning rate; the default solvers are
    certified and faster. Use it to repeat the experiments of the papers.

    With g the (sub)gradient of the mean loss of a batch plus the penalty, a step is ``W
    - rate g`` or Adam's

    .. math:: m \leftarrow 0.9 m + 0.1 g, \quad v \leftarrow 0.999 v + 0.001 g^2, \quad
              W \leftarrow W - rate\, \frac{m / (1 - 0.9^t)}
              {\sqrt{v / (1 - 0.999^t)} + 10^{-8}} .

    Parameters
    ----------
    method : {"adam", "sgd"}, default="adam"
        Adam or plain subgradient steps.
    learning_rate : float, default=0.1
        Learning rate (> 0).
    n_epochs : int, default=25
        Passes over the samples. There is no stopping criterion.
    batch_size : int, default=16
        Rows per step.
    schedule : {"constant", "inverse-sqrt", "cosine"}, default="cosine"
        Decay of the learning rate: in step t it is multiplied by 1, 1 / sqrt(t), or (1
        + cos(pi u)) / 2 with u the share of the work done before.
    shuffle : bool, default=True
        Whether to shuffle the samples (of each block) in each epoch.
    average : bool, default=False
        Whether to return the average of the second half of the iterates.
    random_state : int, default=0
        Seed of the order of the samples.

    Notes
    -----
    Batches of one sample in fixed order at a constant rate are the method of El Ahmad,
    Laforgue and d'Alche-Buc, TMLR 2023. Adam follows Kingma and Ba, ICLR 2015.

    Examples
    --------
    >>> import numpy as np
    >>> from nbsketch import SketchedKernelRegressor, StochasticSolver
    >>> solver = StochasticSolver(learning_rate=0.05, n_epochs=10)
    >>> X = np.random.default_rng(0).uniform(-3, 3, size=(500, 1))
    >>> model = SketchedKernelRegressor(loss="huber", solver=solver, random_state=0)
    >>> print(f"{model.fit(X, np.sin(X[:, 0])).score(X, np.sin(X[:, 0])):.2f}")
    1.00
    """

    method: Literal["adam", "sgd"] = "adam"
    learning_rate: float = 0.1
    n_epochs: int = 25
    batch_size: int = 16
    schedule: Literal["constant", "inverse-sqrt", "cosine"] = "cosine"
    shuffle: bool = True
    average: bool = False
    random_state: int = 0

    _rules = rules(
        method=choice(*METHODS),
        schedule=choice(*SCHEDULES),
        learning_rate=positive,
        n_epochs=count,
        batch_size=count,
        shuffle=choice(False, True),
        average=choice(False, True),
        random_state=integer(),
    )


@dataclass(frozen=True)
class StochasticProblem:
    """Checked data of the problem; predictions are ``Z coef mix + b``."""

    design: Design
    targets: NDArray  # (n, d), or (n, 1) for d outputs
    weights: NDArray
    loss: Loss
    kind: int
    numbers: NDArray  # (4, d)
    alpha: float
    mix: NDArray  # (d', d)
    fit_intercept: bool
    scalar: bool  # one output, and arrays without its axis

    @property
    def n_outputs(self) -> int:
        """Number of outputs d."""
        return self.mix.shape[1]

    def split(self, point: NDArray) -> tuple[NDArray, NDArray]:
        """Return views of coefficients (r, d') and intercept in a flat point."""
        size = len(point) - self.n_outputs
        return point[:size].reshape(len(self.mix), -1).T, point[size:]

    def answer(self, coef: NDArray, intercept: NDArray) -> tuple[NDArray, Any]:
        """Return coefficients and intercept in the form returned by solvers."""
        coef = np.ascontiguousarray(coef)
        return (coef[:, 0], float(intercept[0])) if self.scalar else (coef, intercept)

    def middle(self) -> NDArray:
        """Return the starting value of the intercept, of shape (d,)."""
        if isinstance(self.loss, SquareLoss | SquaredHingeLoss):
            return np.average(self.targets, axis=0, weights=self.weights)
        rows = self.targets[self.weights > 0]
        if self.kind == LOGISTIC:  # half a row more per class: both are finite
            high, low = (self.weights @ (s * self.targets > 0) for s in (1, -1))
            return np.log((high + 0.5) / (low + 0.5))
        if rows.shape[1] < self.n_outputs:
            return np.quantile(rows[:, 0], self.numbers[3])
        return np.median(rows, axis=0)

    def objective(self, coef: NDArray, intercept: NDArray) -> float:
        """Return the exact value at coefficients (r, d')."""
        # a diverged point may still be finite; its value then shows the divergence
        with np.errstate(over="ignore", invalid="ignore"):
            predictions = self.design.mv(coef) @ self.mix + intercept
            loss = self.weights @ self._values(predictions) / len(self.weights)
            return float(loss + self.alpha / 2 * np.vdot(coef, coef))

    def _values(self, predictions: NDArray) -> NDArray:
        if self.scalar or self.loss.is_classification:
            return self.loss.of_rows(self.targets, predictions).sum(axis=1)
        residuals = self.targets - predictions
        if self.kind == RADIAL:
            return self.loss.norm_value(residuals)
        lo, hi = self.numbers[2:]
        return np.maximum(lo * residuals, hi * residuals).sum(axis=1)


def stochastic_problem(
    design: Design,
    Y: ArrayLike,
    loss: Loss | str,
    alpha: float,
    sample_weight: ArrayLike | None,
    fit_intercept: bool,
    T: NDArray | None = None,
    quantiles: Sequence[float] | None = None,
) -> StochasticProblem:
    """Check the arguments of `solve_sgm`, and for several outputs.

    `T` (d', d) is a factor of the output matrix, M = T^T T; None: the identity. With
    levels `quantiles` (d,) of a joint pinball loss, the d losses are added and the
    level of `loss` is ignored. These two are not checked.
    """
    loss = as_loss(loss)
    n = design.shape[0]
    targets = _targets(Y, n, loss)
    scalar = targets.ndim == 1 and quantiles is None
    targets = targets.reshape(n, -1)
    n_outputs = targets.shape[1] if quantiles is None else len(quantiles)
    return StochasticProblem(
        design, targets, checks.weights(sample_weight, n), loss,
        _kind(loss, scalar or quantiles is not None),
        _numbers(loss, quantiles, n_outputs), check_real("alpha", alpha, low=0),
        np.eye(n_outputs) if T is None else T, bool(fit_intercept), scalar,
    )  # fmt: skip


def _targets(Y: ArrayLike, n: int, loss: Loss) -> NDArray:
    # a copy, because a read-only array would need another compilation
    targets = np.array(Y, dtype=float, order="C")
    if targets.ndim not in (1, 2) or len(targets) != n or targets.size == 0:
        raise ValueError(f"`Y` must have shape ({n},) or ({n}, d), got {targets.shape}")
    checks.targets("Y", targets, targets.shape)
    if targets.ndim == 2 and not (loss.is_radial or loss.is_classification):
        raise ValueError(
            f"`Y` must have shape ({n},) for {loss!r}, got {targets.shape}"
        )
    return checks.labels("Y", targets, loss)


def _kind(loss: Loss, by_column: bool) -> int:
    if type(loss) is LogisticLoss:
        return LOGISTIC
    if loss.elq is None:
        raise TypeError(
            "`loss` must be logistic or give `elq` numbers for stochastic steps, got "
            f"{loss!r}"
        )
    if loss.is_classification:
        return MARGIN
    if by_column:
        return COLUMNS
    loss.check_radial()
    return RADIAL


def _numbers(loss: Loss, quantiles: Sequence[float] | None, n_outputs: int) -> NDArray:
    numbers = np.empty((4, n_outputs))
    numbers[:] = np.array(conjugate_numbers(loss))[:, None]
    if quantiles is not None:
        numbers[3] = quantiles
        numbers[2] = numbers[3] - 1.0
    return numbers


class EpochSearch:
    """Adam or subgradient steps, epoch by epoch.

    Attributes
    ----------
    problem, settings
        The problem to minimize, and the settings.
    point : ndarray
        Coefficients, output by output, then the intercept; modified in place.
    moments : ndarray of shape (2, size of the point)
        Adam's moments.
    total : ndarray
        Sum of the points to average; empty before averaging starts.
    n_averaged, n_steps, n_rows, epoch : int
        Points in `total`, steps, visits of rows and epochs so far.
    """

    def __init__(self, problem: StochasticProblem, settings: StochasticSolver) -> None:
        self.problem = problem
        self.settings = settings
        self.rng = np.random.default_rng(settings.random_state)
        n_coef = len(problem.mix) * problem.design.shape[1]
        self.point = np.zeros(n_coef + problem.n_outputs)
        # Labels are near zero already; targets may be farther than all steps together.
        if problem.fit_intercept and not problem.loss.is_classification:
            self.point[n_coef:] = problem.middle()
        self.moments = np.zeros((2, self.point.size))
        self.total = np.empty(0)
        self.n_averaged = 0
        self.n_steps = 0
        self.n_rows = 0
        self.epoch = 0

    def run_epoch(self) -> None:
        """Pass over the data once."""
        settings = self.settings
        if settings.average and self.epoch == settings.n_epochs // 2:
            self.total = np.zeros_like(self.point)
        problem = self.problem
        for start, stop, block in problem.design.blocks():
            order = np.arange(len(block))
            if settings.shuffle:
                order = self.rng.permutation(len(block))
            run_steps(
                np.ascontiguousarray(block), problem.targets[start:stop],
                problem.weights[start:stop], order, settings.batch_size,
                self._next_rates(len(block)), problem.kind, problem.numbers,
                problem.mix, problem.alpha, problem.fit_intercept,
                METHODS[settings.method], *_BETAS, self.point, self.moments, self.total,
            )  # fmt: skip
        self.epoch += 1
        if not np.isfinite(self.point).all():
            raise FloatingPointError(
                f"the steps diverged in epoch {self.epoch}: `learning_rate` must be "
                f"smaller, got {settings.learning_rate:g}"
            )

    def _next_rates(self, n_rows: int) -> NDArray:
        """Return length and root factor of the steps over the next rows; count both."""
        settings = self.settings
        index = np.arange(-(-n_rows // settings.batch_size))
        n_all = settings.n_epochs * self.problem.design.shape[0]
        done = (self.n_rows + settings.batch_size * index) / n_all
        step = 1.0 + self.n_steps + index
        rates = np.ones((len(index), 2))
        rates[:, 0] = settings.learning_rate * SCHEDULES[settings.schedule](step, done)
        if settings.method == "adam":
            rates[:, 0] /= 1.0 - _BETAS[0] ** step
            rates[:, 1] = 1.0 / np.sqrt(1.0 - _BETAS[1] ** step)
        self.n_rows += n_rows
        self.n_steps += len(index)
        self.n_averaged += len(index) if self.total.size else 0
        return rates

    def solution(self, seconds: float) -> Solution:
        """Return the solution at this point, with its exact objective."""
        point = self.total / self.n_averaged if self.n_averaged else self.point.copy()
        coef, intercept = self.problem.split(point)
        objective = self.problem.objective(coef, intercept)
        return Solution(
            *self.problem.answer(coef, intercept), None, objective, np.inf, np.inf,
            self.epoch, seconds, converged=False,
        )  # fmt: skip


def check_steps(loss: float, limit: float, name: str, when: str = "") -> None:
    """Raise an error if stochastic steps have ended in a mean loss above a limit.

    `name` is the parameter of their length. Constant targets set no limit.
    """
    if limit > 0 and not loss <= limit:
        raise FloatingPointError(
            f"the steps diverged{when}, to a mean loss of {loss:.1e}, more than "
            f"{DIVERGED:g} times that of a constant: `{name}` must be smaller"
        )


def solve_stochastic(
    problem: StochasticProblem, settings: StochasticSolver, callback: Callback | None
) -> Solution:
    """Minimize a penalized mean loss by Adam or by stochastic subgradient steps.

    There is no certificate: gaps are infinite, and there is no dual point. `n_iter`
    counts epochs. `callback` is called as ``callback(epoch, objective, gap, seconds)``
    after each; if it returns true, the search stops.
    """
    progress = Progress(callback)
    search = EpochSearch(problem, settings)
    while search.epoch < settings.n_epochs and not progress.stopped:
        search.run_epoch()
        if callback is not None:
            latest = search.solution(progress.seconds)
            progress.report(search.epoch, latest.objective, np.inf)
    return search.solution(progress.seconds)
