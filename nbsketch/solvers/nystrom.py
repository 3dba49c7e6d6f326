r"""Sketched kernel ridge regression for large sketches, by conjugate gradients.

.. math:: \min_{g, b} \frac{1}{2n} \sum_i w_i \|y_i - (K S^\top g)_i - b\|^2
          + \frac{\alpha}{2} g^\top (S K S^\top + \delta I) g

in a few passes over :math:`K S^\top`, where the closed form costs :math:`n s^2`. Only
the preconditioner costs :math:`s^3`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nbsketch._validation import check_positive
from nbsketch.solvers._conjugate.search import Callback, ConjugateSearch, Limits
from nbsketch.solvers._conjugate.systems import SketchedSystem
from nbsketch.solvers._linear.operator import ColumnOperator, check_columns
from nbsketch.solvers._linear.rotation import RotatedOutputs
from nbsketch.solvers.solution import Solution, State


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
    the sketch in place of all rows (Falkon, for any sketch). The problem has
    :math:`\delta = 10^{-6} \operatorname{tr}(S K S^\top) / s` on the diagonal of its
    penalty, which keeps it well-posed for duplicate landmarks.

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
