r"""Scalar losses on all rows of a kernel matrix, using only products with it.

.. math:: \min_{c, b} \frac1n \sum_i s_i\, \ell\bigl((K c)_i + b, y_i\bigr)
          + \frac{\alpha}{2} c^\top K c

for losses with and without kinks, in the time of some tens of products. K need not be
stored, and the certificate needs no inverse of it.

Searches for several penalties or targets share products with the matrix.

Columns of targets are separate searches, with their own smoothing and certificates,
whose products are computed together. As a single problem with the matrix kernel k(x,
x') I they would take 1.2 to 7 times as long (six columns of 2500 rows, hinge, squared
hinge and logistic, alpha 1e-4 and 1e-6).

Also joint quantile regression on all rows of a kernel matrix,

.. math:: f_j = \sum_i (C M)_{ij}\, k(\cdot, x_i), \qquad
          \min_{C, b} \frac1n \sum_{ij} s_i\, \ell_{\tau_j}(y_i - f_j(x_i) - b_j)
          + \frac{\alpha}{2} \operatorname{tr}(C^\top K C M)

with an output matrix M that couples the levels.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypedDict, Unpack

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nbsketch._report.validation import check_integer, check_positive, check_real
from nbsketch.losses import as_loss
from nbsketch.outputs import check_levels
from nbsketch.solvers._certified import checks
from nbsketch.solvers._dual.matrix import (
    CoupledMatrix,
    CoupledPreconditioner,
    run_together,
)
from nbsketch.solvers._dual.problem import DualProblem
from nbsketch.solvers._dual.search import DualLimits, DualSearch, cold_start
from nbsketch.solvers._linear import cholesky
from nbsketch.solvers._linear.conjugate_gradients import (
    KernelOperator,
    SymmetricOperator,
    as_operator,
    check_columns,
)
from nbsketch.solvers.row_loss import RowLoss, conjugate_numbers, pinball_rows, row_loss
from nbsketch.solvers.solution import Callback, Progress, Solution, State

# Share of the default rank for losses with kinks: smoothing makes their shifts larger,
# and few of their rows are between kinks at the end.
RANK_WITH_KINKS = 0.5
# Number of seeds of the pivots.
_SEEDS = 2**63


class DualOptions(TypedDict, total=False):
    """Keyword arguments of the solvers in this module: those of `DualPath`."""

    sample_weight: ArrayLike | None
    fit_intercept: bool
    tol: float
    max_iter: int
    max_seconds: float
    state: State | None
    callback: Callback | None
    random_state: Any


@dataclass
class DualPath:
    """Searches with one kernel matrix, up to a relative gap or a limit.

    Parameters
    ----------
    K : KernelOperator of shape (n, n)
        Kernel matrix of the rows.
    alphas : iterable of float
        Penalties.
    shape : tuple of int
        Shape of the coefficients of a solution, (n,) or (n, d).
    rank : int
        Rank of the factor of K.
    sample_weight, fit_intercept, tol, state, callback, random_state
        As in `nbsketch.solvers.solve_dual`.
    max_iter, max_seconds
        As in `nbsketch.solvers.solve_dual`, for each penalty.
    """

    K: KernelOperator
    alphas: Iterable[float]
    shape: tuple[int, ...]
    rank: int
    sample_weight: ArrayLike | None = None
    fit_intercept: bool = True
    tol: float = 1e-4
    max_iter: int = 200
    max_seconds: float = np.inf
    state: State | None = None
    callback: Callback | None = None
    random_state: Any = None

    def __post_init__(self) -> None:
        self.alphas = [check_positive("alpha", alpha) for alpha in self.alphas]
        self.weights = checks.weights(self.sample_weight, self.shape[0])
        self.fit_intercept = bool(self.fit_intercept)
        check_positive("tol", self.tol)
        check_integer("max_iter", self.max_iter)
        check_real("max_seconds", self.max_seconds, low=0)
        # Later random numbers must not depend on whether there is a factor.
        self.seed = np.random.default_rng(self.random_state).integers(_SEEDS)
        if self.state is not None:
            checks.state(self.state, self.shape, self.shape[1:], self.shape)

    @cached_property
    def factor(self) -> NDArray:
        """A low-rank factor of K for the smallest penalty."""
        shift = self.shape[0] * min(self.alphas)
        rng = np.random.default_rng(self.seed)
        return cholesky.low_rank_factor(self.K, shift, rng, rank=self.rank)

    def solutions(
        self,
        problems: list[DualProblem],
        matrix: SymmetricOperator,
        precondition: Callable[[], cholesky.LowRankPreconditioner],
        mixing: NDArray | None = None,
    ) -> Iterator[Solution]:
        """Yield the solution of all problems for each penalty, warm-started.

        Parameters
        ----------
        problems : list of DualProblem
            Columns of targets, for any penalty.
        matrix : SymmetricOperator
            The matrix of all entries of a problem.
        precondition : callable
            Returns a preconditioner of `matrix` that a search may change.
        mixing : ndarray of shape (d, d), optional
            Output matrix that multiplies the coefficients at the end.
        """
        for alpha in self.alphas:
            self._progress = Progress(self.callback)
            self._searches: list[DualSearch] = []
            limits = DualLimits(self.tol, self.max_iter, self._is_late)
            starts = _starts(problems, self.state)
            for problem, start in zip(problems, starts, strict=True):
                # a mean over all terms, not rows
                scaled = replace(problem, alpha=alpha / problem.outputs)
                self._searches.append(
                    DualSearch(
                        matrix, scaled, precondition, start, limits, self._report
                    )
                )
            run_together(matrix, [search.run() for search in self._searches])
            solution = self._solution()
            self.state = solution.state
            if mixing is not None:
                solution = solution._replace(coef=solution.coef @ mixing)
            yield solution

    def _is_late(self) -> bool:
        progress = self._progress
        return progress.stopped or progress.seconds > self.max_seconds

    def _report(self, step: int) -> None:
        best = [s.best for s in self._searches if s.best is not None]
        gap = sum(b.gap + b.noise for b in best)
        self._progress.report(step, sum(b.objective for b in best), gap)

    def _solution(self) -> Solution:
        """Return the best points of all searches as one solution."""
        searches = self._searches
        best = [s.best for s in searches]
        d = searches[0].problem.outputs

        def table(vectors: list[NDArray]) -> NDArray:
            columns = np.column_stack([v.reshape(d, -1).T for v in vectors])
            return columns.reshape(self.shape)

        dual = table([b.dual for b in best])
        coef = table([b.coef for b in best])
        b: Any = np.concatenate([b.intercept for b in best])
        if len(self.shape) == 1:
            b = float(b[0])
        return Solution(
            coef=coef,
            intercept=b,
            dual=dual,
            objective=d * sum(b.objective for b in best),
            gap=d * sum(b.gap + b.noise for b in best),
            relative_gap=max(b.relative_gap for b in best),
            n_iter=max(search.steps for search in searches),
            seconds=self._progress.seconds,
            converged=all(search.converged for search in searches),
            state=State(coef, b, dual),
        )


def _starts(problems: list[DualProblem], state: State | None) -> list[State]:
    """Return the starts of the searches for problems: a state, or constants."""
    if state is None:
        return list(map(cold_start, problems))

    def entries(array: Any) -> NDArray:
        by_output = np.ascontiguousarray(np.transpose(array), dtype=np.float64)
        return by_output.reshape(len(problems), -1)

    coef = entries(state.coef)
    b = entries(state.intercept) * float(problems[0].fit_intercept)
    if state.dual is None:
        return list(map(State, coef, b))
    duals = zip(problems, entries(state.dual), strict=True)
    return list(map(State, coef, b, (p.rows.clip(dual) for p, dual in duals)))


def solve_dual(
    K: KernelOperator | NDArray,
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

    Semismooth Newton steps on the loss smoothed by sigma, which decreases from a value
    at which nearly all rows are between kinks. The linear system of a step involves the
    rows between kinks: a Cholesky factorization of up to 1500 rows, else conjugate
    gradients with a low-rank preconditioner of K.

    Parameters
    ----------
    K : SymmetricGram or ndarray of shape (n, n)
        Kernel matrix.
    y : array_like of shape (n,) or (n, d)
        Targets; -1 and +1 for a classification loss. Columns are separate problems that
        share the products with K.
    loss : Loss or str
        A loss with `elq`, or the logistic loss; see `nbsketch.losses`.
    alpha : float
        Penalty (> 0).
    sample_weight : array_like of shape (n,), optional
        The weights s, at least 0. They are used unchanged: scale them to mean one.
    fit_intercept : bool, default=True
        Whether to fit b, which is not penalized.
    tol : float, default=1e-4
        Stop when the certified gap of each column is at most this share of its
        objective, in which losses above 20 times their median are truncated.
    max_iter : int, default=200
        Maximum number of Newton steps.
    max_seconds : float, default=inf
        Time limit; checked between steps.
    state : State, optional
        Warm start: the state of a similar solution, such as for another `alpha`.
    callback : callable, optional
        Called as ``callback(iteration, objective, gap, seconds)`` after each step of
        each column, with sums over the best certificates so far; return true to stop.
    random_state : int, Generator or None
        Random numbers of the pivots of the preconditioner.

    Returns
    -------
    Solution
        ``coef`` (n,) or (n, d) are the coefficients c, ``dual`` is a, ``n_iter`` the
        maximum number of Newton steps of a column. ``gap`` includes an estimate of the
        rounding of kernel values. ``converged`` is False if a limit, or the precision
        of the kernel values, stopped the search before `tol`.

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
    >>> solution.converged, solution.relative_gap < 1e-4
    (True, True)
    """
    return next(dual_path(K, y, loss, [alpha], **options))


def dual_path(
    K: KernelOperator | NDArray,
    y: ArrayLike,
    loss: Any,
    alphas: Iterable[float],
    **options: Unpack[DualOptions],
) -> Iterator[Solution]:
    """Yield the solution for each penalty, warm-started from the previous one.

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
    operator = as_operator(K)
    loss = as_loss(loss)
    n = operator.shape[0]
    columns = [np.ascontiguousarray(column) for column in check_columns(y, n).T]
    checks.labels("y", np.array(columns), loss)
    share = 1.0 if conjugate_numbers(loss).gam > 0 else RANK_WITH_KINKS
    rank = cholesky.default_rank(n, share)
    path = DualPath(operator, alphas, np.shape(y), rank, **options)
    problems = [
        DualProblem(
            y=column,
            weights=path.weights,
            rows=row_loss(loss, column),
            fit_intercept=path.fit_intercept,
        )
        for column in columns
    ]
    return path.solutions(
        problems,
        operator,
        lambda: cholesky.LowRankPreconditioner(path.factor, np.zeros(n)),
    )


def solve_joint_dual(
    K: KernelOperator | NDArray,
    y: ArrayLike,
    quantiles: ArrayLike,
    T: ArrayLike,
    alpha: float,
    **options: Unpack[DualOptions],
) -> Solution:
    r"""Fit several conditional quantiles over all kernel functions, certified.

    The problem is that of `solve_joint_pinball` on features Z with :math:`Z Z^\top =
    K`. It has n d entries with the kernel matrix :math:`M \otimes K` and is solved like
    the scalar problems of `solve_dual`: with a dual point A and :math:`C = s \circ A /
    (n \alpha)`, the gap needs no inverse, and one product is used for all levels.

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
        Penalty (> 0).
    sample_weight : array_like of shape (n,), optional
        The weights s, at least 0. They are used unchanged: scale them to mean one.
    fit_intercept : bool, default=True
        Whether to fit b, which is not penalized.
    tol, max_iter, max_seconds, callback, random_state
        As in `solve_dual`.
    state : State, optional
        Warm start: the state of a similar solution, such as for another `alpha`.

    Returns
    -------
    Solution
        ``coef`` (n, d) is C M, the coefficients of the predictions K C M + b;
        ``intercept`` (d,); ``dual`` (n, d) is A. ``gap`` includes an estimate of the
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
    >>> solution = solve_joint_dual(K, y, [0.25, 0.75], np.eye(2), 1e-3)
    >>> solution.converged, solution.coef.shape
    (True, (200, 2))
    >>> (K[:1] @ solution.coef + solution.intercept).round(1).tolist()
    [[-1.0, 0.5]]
    """
    return next(joint_dual_path(K, y, quantiles, T, [alpha], **options))


def joint_dual_path(
    K: KernelOperator | NDArray,
    y: ArrayLike,
    quantiles: ArrayLike,
    T: ArrayLike,
    alphas: Iterable[float],
    **options: Unpack[DualOptions],
) -> Iterator[Solution]:
    """Yield the solution for each penalty, warm-started from the previous one.

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
    levels = np.array(check_levels("quantiles", quantiles))
    n = operator.shape[0]
    d = len(levels)
    T = checks.factor(T, d)
    targets = checks.targets("y", y, (n,))
    rank = cholesky.default_rank(n, RANK_WITH_KINKS, len(T))
    path = DualPath(operator, alphas, (n, d), rank, **options)
    coupled = CoupledMatrix(operator, T.T @ T)
    losses = pinball_rows(levels, n)
    problem = DualProblem(
        y=np.tile(targets, d),
        weights=np.tile(path.weights, d),
        rows=RowLoss(losses.lo.ravel(), losses.hi.ravel()),
        fit_intercept=path.fit_intercept,
        outputs=d,
    )
    return path.solutions(
        [problem],
        coupled,
        lambda: CoupledPreconditioner(path.factor, T, coupled.row, coupled.output),
        coupled.M,
    )
