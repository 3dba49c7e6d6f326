r"""Exact kernel ridge regression by preconditioned conjugate gradients.

.. math:: \min_{f, b} \frac{1}{2n} \sum_i w_i \|y_i - f(x_i) - b\|^2
          + \frac{\alpha}{2} \|f\|^2, \qquad f = \sum_j a_j k(\cdot, x_j)

in a few products with the kernel matrix, which need not be stored: about ten to thirty
of :math:`n^2/2` kernel values each.

Sketched kernel ridge regression for large sketches, by conjugate gradients.

.. math:: \min_{g, b} \frac{1}{2n} \sum_i w_i \|y_i - (K S^\top g)_i - b\|^2
          + \frac{\alpha}{2} g^\top (S K S^\top + \delta I) g

in a few passes over :math:`K S^\top`, where the closed form costs :math:`n s^2`. Only
the preconditioner costs :math:`s^3`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, TypedDict, Unpack

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nbsketch._validation import check_positive
from nbsketch.solvers._linear.cholesky import (
    Preconditioner,
    build_preconditioner,
)
from nbsketch.solvers._linear.conjugate_gradients import (
    LARGEST_GAP,
    Callback,
    ColumnOperator,
    ConjugateSearch,
    Limits,
    NotConvergedError,
    RotatedOutputs,
    StoredMatrix,
    SymmetricOperator,
    as_operator,
    check_columns,
)
from nbsketch.solvers._linear.systems import KernelSystem, SketchedSystem
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


class ConjugateOptions(TypedDict, total=False):
    """Keyword arguments of `conjugate_path` and `solve_conjugate`."""

    output: NDArray | None
    sample_weight: NDArray | None
    fit_intercept: bool
    preconditioner: Preconditioner | None
    tol: float
    max_passes: int
    max_seconds: float
    state: State | None
    callback: Callback | None
    random_state: Any


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
    **options: Unpack[ConjugateOptions],
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
    return next(conjugate_path(K, Y, [alpha], **options))


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
    operator = as_operator(K)
    penalties = [check_positive("alpha", alpha) for alpha in alphas]
    limits = Limits.checked(tol, max_passes, max_seconds)
    n, Y = operator.shape[0], check_columns(Y, operator.shape[0])
    rotated = RotatedOutputs(Y, output)
    if preconditioner is None:
        rng = np.random.default_rng(random_state)
        shift = n * min(penalties) / rotated.values.max(initial=1)
        preconditioner = build_preconditioner(
            operator, shift, rng, weights=sample_weight
        )
    for alpha in penalties:
        system = KernelSystem(
            operator,
            rotated.targets[:, rotated.used],
            n * alpha / rotated.values,
            sample_weight,
            fit_intercept,
            preconditioner,
        )
        start = None if state is None else rotated.rotate(state.coef)
        search = ConjugateSearch(system, start, limits, callback)
        solution = search.checked_solution(rotated)
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
    n, rng = len(Y), np.random.default_rng(random_state)
    rotated = RotatedOutputs(check_columns(Y, n), output)
    shifts = (n * np.asarray(alphas)[:, None] / rotated.values).ravel()
    preconditioner = build_preconditioner(
        K, float(shifts.min(initial=n * float(np.min(alphas)))), rng,
        rank=rank, weights=sample_weight, local=False,
    )  # fmt: skip
    targets = np.tile(rotated.targets[:, rotated.used], len(alphas))
    system = KernelSystem(
        K, targets, shifts, sample_weight, fit_intercept, preconditioner
    )
    limits = Limits(tol, max_passes, np.inf)
    search = ConjugateSearch(system, None, limits, callback)
    search.run()
    width = len(rotated.values)
    parts = [slice(i * width, (i + 1) * width) for i in range(len(alphas))]
    return [search.solution(rotated, columns) for columns in parts]


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
    system = KernelSystem(
        StoredMatrix(K), targets, shifts, sample_weight, fit_intercept
    )
    A = rotated.rotate(coef)
    return float(system.certify(A, K @ A).relative_gap.max(initial=0))


def solve_nystrom(
    columns: ColumnOperator,
    Y: ArrayLike,
    alpha: float,
    *,
    output: NDArray | None = None,
    sample_weight: NDArray | None = None,
    fit_intercept: bool = True,
    tol: float = 1e-3,
    max_passes: int = 200,
    max_seconds: float = np.inf,
    state: State | None = None,
    callback: Callback | None = None,
) -> Solution:
    r"""Solve sketched kernel ridge regression to a certified accuracy.

    Conjugate gradients in the coefficients g, preconditioned by the normal matrix with
    a sample of the rows, or the sketch, in place of all (Falkon, for any sketch). The
    problem has :math:`\delta = 10^{-6} \operatorname{tr}(S K S^\top) / s` on the
    diagonal of its penalty, which keeps it well-posed for duplicate landmarks.

    Parameters
    ----------
    columns : SketchedColumns of shape (n, s)
        K S^T and S K S^T.
    Y : array_like of shape (n,) or (n, d)
        Targets.
    alpha : float
        Penalty. Positive.
    output : ndarray of shape (d, d), optional
        Positive semi-definite output matrix M, the identity by default.
    sample_weight : ndarray of shape (n,), optional
        Non-negative weights of mean one.
    fit_intercept : bool, default=True
        Whether to fit b, which is not penalized.
    tol : float, default=1e-3
        Largest relative gap of each column.
    max_passes : int, default=200
        Largest number of passes over K S^T.
    max_seconds : float, default=inf
        Largest time for all passes; checked between them.
    state : State, optional
        Of a solution nearby, such as that for another `alpha`, to start from.
    callback : callable, optional
        Called as ``callback(passes, objective, gap, seconds)`` after each pass; if it
        returns true, the search ends.

    Returns
    -------
    Solution
        ``coef`` (s, d) is g times M, so that f = K S^T coef, ``intercept`` (d,) is b.
        ``gap`` bounds the distance of the objective from its minimum for the values of
        K S^T as they are stored. ``converged`` is False if a budget, or the precision
        of the factors, ended the search before `tol`.

    Raises
    ------
    NotConvergedError
        If the relative gap is still above 0.1: such coefficients are not a model.

    References
    ----------
    A. Rudi, L. Carratino, L. Rosasco, "FALKON: an optimal large scale kernel method",
    2017, Section 3.

    Examples
    --------
    >>> import numpy as np
    >>> from nbsketch import GaussianKernel, SubsamplingSketch
    >>> from nbsketch.gram import SketchedColumns
    >>> X = np.linspace(0, 6, 500)[:, None]
    >>> S = SubsamplingSketch(50).draw(500, 0)
    >>> Z = SketchedColumns(GaussianKernel(1.0), X, S)
    >>> solution = solve_nystrom(Z, np.sin(X[:, 0]), 1e-3)
    >>> solution.converged, bool(solution.relative_gap <= 1e-3)
    (True, True)
    """
    limits = Limits.checked(tol, max_passes, max_seconds)
    rotated = RotatedOutputs(check_columns(Y, columns.shape[0]), output)
    system = SketchedSystem(
        columns,
        rotated.targets[:, rotated.used],
        check_positive("alpha", alpha) / rotated.values,
        sample_weight,
        fit_intercept,
    )
    start = None if state is None else rotated.rotate(state.coef)
    return ConjugateSearch(system, start, limits, callback).checked_solution(rotated)
