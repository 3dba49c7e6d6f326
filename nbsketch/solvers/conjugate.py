r"""Exact kernel ridge regression by preconditioned conjugate gradients.

.. math:: \min_{f, b} \frac{1}{2n} \sum_i w_i \|y_i - f(x_i) - b\|^2
          + \frac{\alpha}{2} \|f\|^2, \qquad f = \sum_j a_j k(\cdot, x_j)

in a few products with the kernel matrix, which need not be stored: about ten to thirty
of :math:`n^2/2` kernel values each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nbsketch._validation import check_positive
from nbsketch.solvers._conjugate.checks import (
    LARGEST_GAP,
    NotConvergedError,
    check_gap,
    check_targets,
)
from nbsketch.solvers._conjugate.operator import StoredMatrix, SymmetricOperator
from nbsketch.solvers._conjugate.preconditioner import (
    Preconditioner,
    build_preconditioner,
)
from nbsketch.solvers._conjugate.problem import ColumnGaps, KernelSystem
from nbsketch.solvers._conjugate.search import ConjugateSearch, Limits, Report
from nbsketch.solvers._linear.outputs import RotatedOutputs
from nbsketch.solvers.solution import Solution, State

__all__ = [
    "LARGEST_GAP",
    "NotConvergedError",
    "build_preconditioner",
    "conjugate_path",
    "relative_gap",
    "solve_columns",
    "solve_conjugate",
    "values_dtype",
]

Callback = Callable[[int, float, float, float], Any]


def values_dtype(n: int, alpha: float, tol: float = 1e-3) -> np.dtype:
    """Return the type of kernel values, float32 or float64, that `alpha` asks for.

    Rounding of kernel values adds about ``n (eps / (n alpha))^2`` to the relative gap:
    float32 is enough while this is below a quarter of `tol`.
    """
    eps = float(np.finfo(np.float32).eps)
    coarse = n * (eps / (n * alpha)) ** 2 > tol / 4
    return np.dtype(np.float64 if coarse else np.float32)


def solve_conjugate(
    K: SymmetricOperator | NDArray,
    Y: ArrayLike,
    alpha: float,
    *,
    output: NDArray | None = None,
    sample_weight: NDArray | None = None,
    fit_intercept: bool = True,
    preconditioner: Preconditioner | None = None,
    tol: float = 1e-3,
    max_passes: int = 200,
    max_seconds: float = np.inf,
    state: State | None = None,
    callback: Callback | None = None,
    random_state: Any = None,
) -> Solution:
    r"""Solve kernel ridge regression to a certified accuracy.

    .. math:: (K + n \alpha W^{-1}) a = y - b, \qquad \sum_j a_j = 0

    Conjugate gradients on the dual coefficients, preconditioned by a low-rank factor of
    K with randomly chosen pivots. With residual r, the duality gap is
    :math:`\sum_i w_i r_i^2 / 2n`: the method certifies itself.

    Parameters
    ----------
    K : SymmetricGram or ndarray of shape (n, n)
        Kernel matrix. Only products with it and some of its rows are used.
    Y : array_like of shape (n,) or (n, d)
        Targets.
    alpha : float
        Penalty. Positive.
    output : ndarray of shape (d, d), optional
        Positive semi-definite output matrix M, the identity by default. The outputs are
        rotated to its eigenvectors, columns of one search with their own penalties.
    sample_weight : ndarray of shape (n,), optional
        Non-negative weights of mean one. Rows of weight zero get coefficient zero.
    fit_intercept : bool, default=True
        Whether to fit b, which is not penalized.
    preconditioner : Preconditioner, optional
        From `build_preconditioner`; built for `alpha` by default.
    tol : float, default=1e-3
        Largest relative duality gap of each column.
    max_passes : int, default=200
        Largest number of products with K.
    max_seconds : float, default=inf
        Largest time for all passes; checked between them.
    state : State, optional
        Of a solution nearby, such as that for another `alpha`, to start from.
    callback : callable, optional
        Called as ``callback(passes, objective, gap, seconds)`` after each pass; if it
        returns true, the search ends.
    random_state : int, Generator or None
        For the pivots of the preconditioner.

    Returns
    -------
    Solution
        ``coef`` (n, d) are the coefficients of f, ``intercept`` (d,) is b, ``n_iter``
        the number of passes. ``gap`` bounds the distance of the objective from its
        minimum, with an estimate of the rounding of kernel values added;
        ``relative_gap`` is the largest of any column. ``converged`` is False if a
        budget, or the precision of the kernel values, ended the search before `tol`.

    Raises
    ------
    NotConvergedError
        If the relative gap is still above 0.1: such coefficients are not a model.

    References
    ----------
    M. Diaz, E. N. Epperly, Z. Frangella, J. A. Tropp, R. J. Webber, "Robust, randomized
    preconditioning for kernel ridge regression", 2023, Section 2.

    Examples
    --------
    >>> import numpy as np
    >>> from nbsketch import GaussianKernel
    >>> from nbsketch.gram import SymmetricGram
    >>> X = np.linspace(0, 6, 500)[:, None]
    >>> K = SymmetricGram(GaussianKernel(1.0), X)
    >>> solution = solve_conjugate(K, np.sin(X[:, 0]), 1e-3, random_state=0)
    >>> solution.converged, bool(solution.relative_gap <= 1e-3)
    (True, True)
    """
    paths = conjugate_path(
        K,
        Y,
        [alpha],
        output=output,
        sample_weight=sample_weight,
        fit_intercept=fit_intercept,
        preconditioner=preconditioner,
        tol=tol,
        max_passes=max_passes,
        max_seconds=max_seconds,
        state=state,
        callback=callback,
        random_state=random_state,
    )
    return next(paths)


def conjugate_path(
    K: SymmetricOperator | NDArray,
    Y: ArrayLike,
    alphas: Iterable[float],
    *,
    output: NDArray | None = None,
    sample_weight: NDArray | None = None,
    fit_intercept: bool = True,
    preconditioner: Preconditioner | None = None,
    tol: float = 1e-3,
    max_passes: int = 200,
    max_seconds: float = np.inf,
    state: State | None = None,
    callback: Callback | None = None,
    random_state: Any = None,
) -> Iterator[Solution]:
    """Yield the solution for each penalty, each started from the one before.

    Parameters
    ----------
    K, Y
        As in `solve_conjugate`.
    alphas : iterable of float
        Penalties. All use one preconditioner, built for the smallest.
    output, sample_weight, fit_intercept, preconditioner, tol, state, callback
        As in `solve_conjugate`.
    max_passes, max_seconds
        As in `solve_conjugate`, for each penalty.
    random_state : int, Generator or None
        For the pivots of the preconditioner.

    Yields
    ------
    Solution
    """
    operator = StoredMatrix(K) if isinstance(K, np.ndarray) else K
    penalties = [check_positive("alpha", alpha) for alpha in alphas]
    limits = Limits.checked(tol, max_passes, max_seconds)
    n, Y = operator.shape[0], check_targets(Y, operator.shape[0])
    rotated = RotatedOutputs(Y, output)
    if preconditioner is None:
        rng = np.random.default_rng(random_state)
        shift = n * min(penalties) / rotated.values.max(initial=1)
        preconditioner = build_preconditioner(
            operator, shift, rng, weights=sample_weight
        )
    for alpha in penalties:
        targets, shifts = rotated.targets[:, rotated.used], n * alpha / rotated.values
        system = KernelSystem(operator, targets, shifts, sample_weight, fit_intercept)
        solution = _solve(rotated, system, preconditioner, limits, state, callback)
        state = solution.state
        yield solution


def solve_columns(
    K: SymmetricOperator,
    Y: NDArray,
    alphas: NDArray,
    *,
    output: NDArray | None = None,
    sample_weight: NDArray | None = None,
    fit_intercept: bool = True,
    rank: int | None = None,
    tol: float = 1e-3,
    max_passes: int = 200,
    callback: Callback | None = None,
    random_state: Any = None,
) -> list[Solution]:
    """Return the solutions for several penalties, as columns of one search.

    A pass over K serves all penalties. Solutions are for comparison on validation rows:
    they are returned whatever their gap is, with `converged` and `relative_gap`.

    Parameters
    ----------
    K, Y, output, sample_weight, fit_intercept, tol, max_passes, callback, random_state
        As in `solve_conjugate`.
    alphas : ndarray of shape (a,)
        Penalties.
    rank : int, optional
        Rank of the preconditioner.

    Returns
    -------
    list of Solution
        One for each penalty.
    """
    began, n = perf_counter(), len(Y)
    rotated = RotatedOutputs(check_targets(Y, n), output)
    shifts = (n * np.asarray(alphas)[:, None] / rotated.values).ravel()
    targets = np.tile(rotated.targets[:, rotated.used], len(alphas))
    system = KernelSystem(K, targets, shifts, sample_weight, fit_intercept)
    rng = np.random.default_rng(random_state)
    shift = float(shifts.min(initial=n * float(np.min(alphas))))
    known: dict[str, Any] = {"rank": rank, "weights": sample_weight, "local": False}
    pre = build_preconditioner(K, shift, rng, **known)
    limits, report = Limits(tol, max_passes, np.inf), _timed(callback, began)
    search = ConjugateSearch(system, pre, None, limits, report)
    search.run()
    width = len(rotated.values)
    return [
        _solution(rotated, search, slice(i * width, (i + 1) * width), tol, began)
        for i in range(len(alphas))
    ]


def relative_gap(
    K: NDArray,
    Y: NDArray,
    coef: NDArray,
    alpha: float,
    *,
    output: NDArray | None = None,
    sample_weight: NDArray | None = None,
    fit_intercept: bool = True,
) -> float:
    """Return the largest certified relative gap of any column of given coefficients.

    Parameters are those of `solve_conjugate`, with `coef` of shape (n, d).
    """
    rotated = RotatedOutputs(Y, output)
    targets, shifts = rotated.targets[:, rotated.used], len(Y) * alpha / rotated.values
    operator = StoredMatrix(K)
    system = KernelSystem(operator, targets, shifts, sample_weight, fit_intercept)
    A = rotated.rotate(coef)
    return float(system.certify(A, K @ A).relative_gap.max(initial=0))


def _solve(
    rotated: RotatedOutputs,
    system: KernelSystem,
    preconditioner: Preconditioner,
    limits: Limits,
    state: State | None,
    callback: Callback | None,
) -> Solution:
    """Solve for one penalty."""
    began = perf_counter()
    start = None if state is None else rotated.rotate(state.coef)
    report = _timed(callback, began)
    search = ConjugateSearch(system, preconditioner, start, limits, report)
    found = search.run()
    if not search.stopped:
        check_gap(found.relative_gap, search.n_passes)
    return _solution(rotated, search, slice(None), limits.tol, began)


def _solution(
    rotated: RotatedOutputs,
    search: ConjugateSearch,
    columns: slice,
    tol: float,
    began: float,
) -> Solution:
    """Return the solution that some columns of a search are."""
    found, system = search.certificate, search.system
    worst = float(found.relative_gap[columns].max(initial=0))
    intercepts = system.mean + system.intercept(search.fitted)
    coef, intercept, rest = rotated.restore(
        search.A[:, columns], intercepts[columns], system.weights, system.fit_intercept
    )
    return Solution(
        coef=coef,
        intercept=intercept,
        dual=None,
        objective=float(found.objective[columns].sum()) + rest,
        gap=float((found.gap + found.noise)[columns].sum()),
        relative_gap=worst,
        n_iter=search.n_passes,
        seconds=perf_counter() - began,
        converged=worst <= tol,
        state=State(coef, intercept),
    )


def _timed(callback: Callback | None, began: float) -> Report | None:
    if callback is None:
        return None

    def report(passes: int, found: ColumnGaps) -> Any:
        objective, gap = float(found.objective.sum()), found.gap + found.noise
        return callback(passes, objective, float(gap.sum()), perf_counter() - began)

    return report
