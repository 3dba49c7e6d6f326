r"""Scalar losses on all rows of a kernel matrix, by products with it.

.. math:: \min_{c, b} \frac1n \sum_i s_i\, \ell\bigl((K c)_i + b, y_i\bigr)
          + \frac{\alpha}{2} c^\top K c

for losses with kinks as for smooth ones, in the time of some tens of products. K need
not be stored, and no inverse of it is in the certificate.

Solutions for several penalties, by searches that share products with the matrix.

Columns of targets are searches of their own, with their own smoothing and certificates,
whose products are taken together. As one problem with the matrix kernel k(x, x') I they
would take 1.2 to 7 times as long (six columns of 2500 rows, hinge, squared hinge and
logistic, alpha 1e-4 and 1e-6).

Several quantile levels at once on all rows of a kernel matrix, by products with it.

.. math:: f_j = \sum_i (C M)_{ij}\, k(\cdot, x_i), \qquad
          \min_{C, b} \frac1n \sum_{ij} s_i\, \ell_{\tau_j}(y_i - f_j(x_i) - b_j)
          + \frac{\alpha}{2} \operatorname{tr}(C^\top K C M)

with an output matrix M that couples the levels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from time import perf_counter
from typing import Any, TypedDict, Unpack

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nbsketch._validation import check_integer, check_positive, check_real
from nbsketch.losses import as_loss
from nbsketch.outputs import check_levels
from nbsketch.solvers._certified.problem import (
    check_factor,
    check_labels,
    check_state,
    check_targets,
    check_weights,
)
from nbsketch.solvers._dual.matrix import (
    CoupledMatrix,
    CoupledPreconditioner,
    run_together,
)
from nbsketch.solvers._dual.problem import DualProblem
from nbsketch.solvers._dual.search import DualSearch, Limits, Start
from nbsketch.solvers._linear.cholesky import (
    LowRankPreconditioner,
    default_rank,
    low_rank_factor,
)
from nbsketch.solvers._linear.conjugate_gradients import (
    SymmetricOperator,
    as_operator,
    check_columns,
)
from nbsketch.solvers.row_loss import RowLoss, conjugate_numbers, row_loss
from nbsketch.solvers.solution import Solution, State

Callback = Callable[[int, float, float, float], bool | None]


# Share of the default rank for losses with kinks: smoothing makes their shifts larger,
# and few of their rows are between kinks at the end.
RANK_WITH_KINKS = 0.5


class DualOptions(TypedDict, total=False):
    """Keyword arguments of `solve_dual`, `solve_joint_dual` and their paths."""

    sample_weight: ArrayLike | None
    fit_intercept: bool
    tol: float
    max_iter: int
    max_seconds: float
    state: State | None
    callback: Callback | None
    random_state: Any


@dataclass(kw_only=True)
class DualPath:
    """Searches with one kernel matrix, up to a relative gap or a limit.

    Parameters
    ----------
    K : SymmetricOperator
        The matrix of all entries of a problem.
    precondition : callable
        Returns a preconditioner of K that a search may change.
    shape : tuple of int
        Of the coefficients of a solution, (n,) or (n, d).
    mixing : ndarray of shape (d, d), optional
        Output matrix by which coefficients are multiplied at the end.
    tol, max_iter, max_seconds, callback
        As in `nbsketch.solvers.solve_dual`, for each penalty.
    """

    K: SymmetricOperator
    precondition: Callable[[], LowRankPreconditioner]
    shape: tuple[int, ...]
    mixing: NDArray | None = None
    tol: float
    max_iter: int
    max_seconds: float
    callback: Callback | None
    _began: float = 0.0
    _stopped: bool = False  # by the callback

    def solutions(
        self, path: Iterable[list[DualProblem]], state: State | None
    ) -> Iterator[Solution]:
        """Yield the solution of the problems of each penalty, from that before."""
        for problems in path:
            solution = self._solve(problems, state)
            state = solution.state
            yield solution

    def _solve(self, problems: list[DualProblem], state: State | None) -> Solution:
        self._began, self._stopped = perf_counter(), False
        searches: list[DualSearch] = []
        limits = Limits(self.tol, self.max_iter, self._is_late)
        for j, problem in enumerate(problems):
            start = _start(problem, state, j)
            search = DualSearch(
                self.K, problem, self.precondition(), start, limits,
                lambda step: self._report(step, searches),
            )  # fmt: skip
            searches.append(search)
        run_together(self.K, [search.run() for search in searches])
        return self._solution(searches)

    def _is_late(self) -> bool:
        return self._stopped or perf_counter() - self._began > self.max_seconds

    def _report(self, step: int, searches: list[DualSearch]) -> None:
        if self.callback is None or self._stopped:
            return
        best = [search.best for search in searches if search.best is not None]
        objective = float(sum(b.objective for b in best))
        gap = float(sum(b.gap + b.noise for b in best))
        seconds = perf_counter() - self._began
        self._stopped = bool(self.callback(step, objective, gap, seconds))

    def _solution(self, searches: list[DualSearch]) -> Solution:
        """Return the best points of all searches as one solution."""
        best, d = [s.best for s in searches], searches[0].problem.outputs
        dual = np.column_stack([b.dual.reshape(d, -1).T for b in best])
        coef = np.column_stack([b.coef.reshape(d, -1).T for b in best])
        dual, coef = dual.reshape(self.shape), coef.reshape(self.shape)
        b: Any = np.concatenate([b.intercept for b in best])
        if len(self.shape) == 1:
            b = float(b[0])
        return Solution(
            coef=coef if self.mixing is None else coef @ self.mixing,
            intercept=b,
            dual=dual,
            objective=d * sum(b.objective for b in best),
            gap=d * sum(b.gap + b.noise for b in best),
            relative_gap=max(b.relative_gap for b in best),
            n_iter=max(search.steps for search in searches),
            seconds=perf_counter() - self._began,
            converged=all(search.converged for search in searches),
            state=State(coef, b, dual),
        )


def check_options(
    tol: float,
    max_iter: int,
    max_seconds: float,
    state: State | None,
    shape: tuple[int, ...],
) -> None:
    """Check the limits of a search, and a state for coefficients of a shape."""
    check_positive("tol", tol)
    check_integer("max_iter", max_iter)
    check_real("max_seconds", max_seconds, low=0)
    if state is not None:
        check_state(state, shape, shape[1:], shape)


def _start(problem: DualProblem, state: State | None, j: int) -> Start:
    """Return where the search for problem j starts: at a state, or at constants."""
    if state is None:
        return _cold_start(problem)
    d = problem.outputs
    columns = slice(j * d, (j + 1) * d)

    def entries(array: NDArray) -> NDArray:
        table = np.reshape(array, (problem.n // d, -1))
        return np.array(table[:, columns].T, dtype=np.float64).ravel()

    b = np.ravel(state.intercept)[columns] * float(problem.fit_intercept)
    dual = state.dual
    center = None if dual is None else problem.rows.clip(entries(dual))
    return Start(entries(state.coef), b, center)


def _cold_start(problem: DualProblem) -> Start:
    """Return the best constants; zero for labels."""
    constants = np.zeros(problem.outputs)
    lo = problem.rows.lo.reshape(problem.outputs, -1)
    if problem.fit_intercept and not (lo != lo[:, :1]).any():
        medians = np.median(problem.y.reshape(problem.outputs, -1), axis=1)
        constants = problem.intercept(problem.y, medians)
    return Start(np.zeros(problem.n), constants)


def solve_dual(
    K: SymmetricOperator | NDArray,
    y: ArrayLike,
    loss: Any,
    alpha: float,
    **options: Unpack[DualOptions],
) -> Solution:
    r"""Minimize a scalar loss over all kernel functions, to a certified accuracy.

    With a dual point a, :math:`c = s \circ a / (n \alpha)` and residuals r of c and b,
    the duality gap is

    .. math:: \frac1n \sum_i s_i \bigl(\psi(r_i) + \psi^*(a_i) - a_i r_i\bigr),
              \qquad \sum_i s_i a_i = 0 .

    Semismooth Newton steps on the loss smoothed by sigma, which falls from a value at
    which nearly all rows lie between kinks. The linear system of a step is that of the
    rows between kinks: a Cholesky factorization up to 1500 of them, else conjugate
    gradients with a low-rank preconditioner of K.

    Parameters
    ----------
    K : SymmetricGram or ndarray of shape (n, n)
        Kernel matrix.
    y : array_like of shape (n,) or (n, d)
        Targets; -1 and +1 for a classification loss. Columns are problems of their own
        that share the products with K.
    loss : Loss or str
        A loss with `elq`, or the logistic loss; see `nbsketch.losses`.
    alpha : float
        Penalty. Positive.
    sample_weight : array_like of shape (n,), optional
        The weights s, at least 0. They are used as they are: scale them to mean one.
    fit_intercept : bool, default=True
        Whether to fit b, which is not penalized.
    tol : float, default=1e-4
        Stop when the certified gap of each column is at most this share of its
        objective, in which losses above 20 times their median are cut down.
    max_iter : int, default=200
        Largest number of Newton steps.
    max_seconds : float, default=inf
        Largest time; checked between steps.
    state : State, optional
        Of a solution nearby, such as that for another `alpha`, to start from.
    callback : callable, optional
        Called as ``callback(iteration, objective, gap, seconds)`` after each step of
        each column, with sums over the best certificates so far; true to stop.
    random_state : int, Generator or None
        For the pivots of the preconditioner.

    Returns
    -------
    Solution
        ``coef`` (n,) or (n, d) are the coefficients c, ``dual`` is a, ``n_iter`` the
        largest number of Newton steps of a column. ``gap`` includes an estimate of the
        rounding of kernel values. ``converged`` is False if a limit, or the precision
        of the kernel values, ended the search before `tol`.

    Raises
    ------
    TypeError
        If the loss is neither linear-quadratic nor logistic.

    References
    ----------
    X. Li, D. Sun, K.-C. Toh, "A highly efficient semismooth Newton augmented Lagrangian
    method for solving Lasso problems", 2018.

    Examples
    --------
    >>> import numpy as np
    >>> from nbsketch import GaussianKernel
    >>> from nbsketch.gram import SymmetricGram
    >>> X = np.linspace(0, 6, 300)[:, None]
    >>> K = SymmetricGram(GaussianKernel(1.0), X, dtype=np.float64)
    >>> solution = solve_dual(K, np.sin(X[:, 0]), "pinball", 1e-3, random_state=0)
    >>> solution.converged, bool(solution.relative_gap <= 1e-4)
    (True, True)
    """
    return next(dual_path(K, y, loss, [alpha], **options))


def dual_path(
    K: SymmetricOperator | NDArray,
    y: ArrayLike,
    loss: Any,
    alphas: Iterable[float],
    *,
    sample_weight: ArrayLike | None = None,
    fit_intercept: bool = True,
    tol: float = 1e-4,
    max_iter: int = 200,
    max_seconds: float = np.inf,
    state: State | None = None,
    callback: Callback | None = None,
    random_state: Any = None,
) -> Iterator[Solution]:
    """Yield the solution for each penalty, each started from the one before.

    Parameters
    ----------
    K, y, loss
        As in `solve_dual`.
    alphas : iterable of float
        Penalties. All use one low-rank factor of K.
    sample_weight, fit_intercept, tol, state, callback, random_state
        As in `solve_dual`.
    max_iter, max_seconds
        As in `solve_dual`, for each penalty.

    Yields
    ------
    Solution
    """
    operator, shape = as_operator(K), np.shape(y)
    penalties = [check_positive("alpha", alpha) for alpha in alphas]
    n, loss = operator.shape[0], as_loss(loss)
    columns = [np.ascontiguousarray(column) for column in check_columns(y, n).T]
    check_labels("y", np.array(columns), loss)
    weights = check_weights(sample_weight, n)
    check_options(tol, max_iter, max_seconds, state, shape)
    rank = default_rank(n, 1.0 if conjugate_numbers(loss).gam > 0 else RANK_WITH_KINKS)
    rng = np.random.default_rng(random_state)
    factor = low_rank_factor(operator, n * min(penalties), rng, rank=rank)
    search = DualPath(
        K=operator, precondition=lambda: LowRankPreconditioner(factor, np.zeros(n)),
        shape=shape, tol=tol, max_iter=max_iter, max_seconds=max_seconds,
        callback=callback,
    )  # fmt: skip

    def problems(alpha: float) -> list[DualProblem]:
        return [
            DualProblem(
                y=column, weights=weights, rows=row_loss(loss, column), alpha=alpha,
                fit_intercept=bool(fit_intercept),
            )
            for column in columns
        ]  # fmt: skip

    return search.solutions(map(problems, penalties), state)


def solve_joint_dual(
    K: SymmetricOperator | NDArray,
    y: ArrayLike,
    quantiles: ArrayLike,
    T: ArrayLike,
    alpha: float,
    **options: Unpack[DualOptions],
) -> Solution:
    r"""Fit several conditional quantiles over all kernel functions, certified.

    The problem is that of `solve_joint_pinball` on features Z with
    :math:`Z Z^\top = K`. It is solved as one of n d entries with the kernel matrix
    :math:`M \otimes K`, as `solve_dual` solves scalar ones: with a dual point A,
    :math:`C = s \circ A / (n \alpha)`, the gap needs no inverse, and a product serves
    all levels.

    Parameters
    ----------
    K : SymmetricGram or ndarray of shape (n, n)
        Kernel matrix.
    y : array_like of shape (n,)
        Targets.
    quantiles : array_like of shape (d,)
        Levels, strictly ascending in (0, 1).
    T : array_like of shape (d', d)
        Factor of the output matrix, M = T^T T; see `nbsketch.outputs.Output.factor`.
    alpha : float
        Penalty. Positive.
    sample_weight : array_like of shape (n,), optional
        The weights s, at least 0. They are used as they are: scale them to mean one.
    fit_intercept : bool, default=True
        Whether to fit b, which is not penalized.
    tol, max_iter, max_seconds, callback, random_state
        As in `solve_dual`.
    state : State, optional
        Of a solution nearby, such as that for another `alpha`, to start from.

    Returns
    -------
    Solution
        ``coef`` (n, d) is C M, the coefficients of the predictions K C M + b;
        ``intercept`` (d,), ``dual`` (n, d) is A. ``gap`` includes an estimate of the
        rounding of kernel values.

    References
    ----------
    M. Sangnier, O. Fercoq, F. d'Alche-Buc, "Joint quantile regression in vector-valued
    RKHSs", NeurIPS 2016 (the problem and its dual, section 3).

    Examples
    --------
    >>> import numpy as np
    >>> from nbsketch import GaussianKernel
    >>> from nbsketch.solvers import solve_joint_dual
    >>> x = np.linspace(0, 6, 200)
    >>> y = np.sin(x) + np.tile([-1.0, -0.5, 0.5, 1.0], 50)
    >>> K = GaussianKernel(1.0)(x[:, None])
    >>> found = solve_joint_dual(K, y, [0.25, 0.75], np.eye(2), 1e-3)
    >>> found.converged, found.coef.shape
    (True, (200, 2))
    >>> bool(np.all(K @ found.coef @ [-1.0, 1.0] + np.diff(found.intercept) > 0))
    True
    """
    return next(joint_dual_path(K, y, quantiles, T, [alpha], **options))


def joint_dual_path(
    K: SymmetricOperator | NDArray,
    y: ArrayLike,
    quantiles: ArrayLike,
    T: ArrayLike,
    alphas: Iterable[float],
    *,
    sample_weight: ArrayLike | None = None,
    fit_intercept: bool = True,
    tol: float = 1e-4,
    max_iter: int = 200,
    max_seconds: float = np.inf,
    state: State | None = None,
    callback: Callback | None = None,
    random_state: Any = None,
) -> Iterator[Solution]:
    """Yield the solution for each penalty, each started from the one before.

    Parameters
    ----------
    K, y, quantiles, T
        As in `solve_joint_dual`.
    alphas : iterable of float
        Penalties. All use one low-rank factor of K.
    sample_weight, fit_intercept, tol, state, callback, random_state
        As in `solve_joint_dual`.
    max_iter, max_seconds
        As in `solve_joint_dual`, for each penalty.

    Yields
    ------
    Solution
    """
    operator = as_operator(K)
    penalties = [check_positive("alpha", alpha) for alpha in alphas]
    n, levels = operator.shape[0], np.array(check_levels("quantiles", quantiles))
    T, targets = check_factor(T, len(levels)), check_targets("y", y, (n,))
    weights, d = check_weights(sample_weight, n), len(levels)
    check_options(tol, max_iter, max_seconds, state, (n, d))
    coupled = CoupledMatrix(operator, T.T @ T)
    rng = np.random.default_rng(random_state)
    rank = default_rank(n, RANK_WITH_KINKS, len(T))
    factor = low_rank_factor(operator, n * min(penalties), rng, rank=rank)

    def precondition() -> CoupledPreconditioner:
        return CoupledPreconditioner(factor, T, coupled.row, coupled.output)

    def problems(alpha: float) -> list[DualProblem]:
        """Return the problem of all entries: a mean over n d terms, not n rows."""
        problem = DualProblem(
            y=np.tile(targets, d), weights=np.tile(weights, d),
            rows=RowLoss(np.repeat(levels - 1, n), np.repeat(levels, n)),
            alpha=alpha / d, fit_intercept=bool(fit_intercept), outputs=d,
        )  # fmt: skip
        return [problem]

    search = DualPath(
        K=coupled, precondition=precondition, shape=(n, d), mixing=coupled.M, tol=tol,
        max_iter=max_iter, max_seconds=max_seconds, callback=callback,
    )  # fmt: skip
    return search.solutions(map(problems, penalties), state)
