r"""Adam and the stochastic subgradient method, compiled.

The papers on p-sparsified sketches and on stochastic gradients with random projections
computed their results with these methods. They reproduce those results and serve as
baselines; the certified solvers are faster and have a stopping test.
"""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from nbsketch._validation import check_integer, check_real, random_generator
from nbsketch.losses import Loss, as_loss
from nbsketch.solvers._certified.search import Callback
from nbsketch.solvers._stochastic.epochs import (
    METHODS,
    SCHEDULES,
    EpochSearch,
    Snapshot,
    step_rule,
)
from nbsketch.solvers._stochastic.problem import stochastic_problem
from nbsketch.solvers.design import Design, as_design
from nbsketch.solvers.solution import Solution

__all__ = ["METHODS", "SCHEDULES", "Snapshot", "StochasticSolution", "solve_stochastic"]


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
