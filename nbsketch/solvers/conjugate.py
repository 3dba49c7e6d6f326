r"""Exact kernel ridge regression by preconditioned conjugate gradients.

.. math:: \min_{f, b} \frac{1}{2n} \sum_i w_i \|y_i - f(x_i) - b\|^2
          + \frac{\alpha}{2} \|f\|^2, \qquad f = \sum_j a_j k(\cdot, x_j)

in a few products with the kernel matrix, which need not be stored: about ten to thirty,
each with :math:`n^2/2` kernel values.

Also sketched kernel ridge regression for large sketches,

.. math:: \min_{g, b} \frac{1}{2n} \sum_i w_i \|y_i - (K S^\top g)_i - b\|^2
          + \frac{\alpha}{2} g^\top (S K S^\top + \delta I) g

in a few passes over :math:`K S^\top`, while the closed form costs :math:`n s^2`. Only
the preconditioner costs :math:`s^3`.
"""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, Self, TypedDict, Unpack

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nbsketch._report.validation import check_integer, check_positive, check_real
from nbsketch.gram.columns import SketchedOperator
from nbsketch.solvers._linear.cholesky import Preconditioner, build_preconditioner
from nbsketch.solvers._linear.conjugate_gradients import (
    ColumnGaps,
    ConjugateGradients,
    KernelOperator,
    RotatedOutputs,
    as_operator,
    check_columns,
)
from nbsketch.solvers._linear.systems import ColumnSystem, KernelSystem, SketchedSystem
from nbsketch.solvers.solution import Callback, Progress, Solution, State

# Coefficients with a larger relative gap are unusable: early iterates of dual
# coefficients overshoot by orders of magnitude.
LARGEST_GAP = 0.1
# Maximum number of restarts from true residuals; two to four are usual near rounding.
_ROUNDS = 8


class NotConvergedError(RuntimeError):
    """Raised if the objective of all coefficients is far from the minimum.

    `solution` has the last coefficients, or None.
    """

    def __init__(self, text: str, solution: Solution | None = None) -> None:
        super().__init__(text)
        self.solution = solution


class Limits(NamedTuple):
    """Stopping criteria: relative gap, passes over the kernel values, and seconds."""

    tol: float
    passes: int
    seconds: float

    @classmethod
    def checked(cls, tol: float, max_passes: int, max_seconds: float) -> Self:
        """Return the checked limits, given the arguments of a public solver."""
        return cls(
            check_positive("tol", tol),
            check_integer("max_passes", max_passes, low=3),
            check_real("max_seconds", max_seconds, low=0),
        )


class ConjugateSearch:
    """Conjugate gradients until every column is certified or a limit is reached.

    Attributes
    ----------
    X, product : ndarray of shape (p, d)
        Coefficients, and their product with the matrix.
    certificate : ColumnGaps
        Certificate from a true residual, after `run`.
    n_passes : int
        Number of passes over the kernel values.
    progress : Progress
        Time, and the callback.
    """

    def __init__(
        self,
        system: ColumnSystem,
        state: State | None,
        limits: Limits,
        callback: Callback | None,
    ) -> None:
        self.system = system
        self._limits = limits
        self.progress = Progress(callback)
        self.n_passes = system.passes
        d = system.shape[1]
        self._tol = np.full(d, limits.tol)
        self._stuck = np.zeros(d, dtype=bool)
        self.X = np.zeros(system.shape)
        self.product = np.zeros(system.shape)
        if state is not None:
            self.X = np.array(system.project(system.outputs.rotate(state.coef)))
            self.product = self._multiply(self.X, np.arange(d))

    def run(self) -> ColumnGaps:
        """Search, and return the certificate of X."""
        columns = np.arange(len(self._tol))
        before = np.full(len(self._tol), np.inf)
        for _ in range(_ROUNDS):
            if moved := self._descend():
                self.product = self._multiply(self.X, columns)
            tol = self._limits.tol
            self.certificate = self.system.certify(self.X, self.product, tol)
            if moved:  # otherwise rounding has ended the search
                self._stuck |= ~(self.certificate.gap < before / 2)
            late = self._late(tol)
            if not late.any() or not self._has_time():
                break
            before = self.certificate.gap
            self._tol[late] /= self.system.slack
        return self.certificate

    def solution(self, columns: slice = slice(None)) -> Solution:
        """Return the columns of coefficients for one penalty as a solution."""
        gaps = self.certificate
        system = self.system
        coef, intercept, unused = system.outputs.restore(
            self.X[:, columns], system.intercept(self.X, self.product)[columns]
        )
        worst = float(gaps.relative_gap[columns].max(initial=0))
        return Solution(
            coef=coef,
            intercept=intercept,
            dual=None,
            objective=float(gaps.objective[columns].sum()) + unused,
            gap=float((gaps.gap + gaps.noise)[columns].sum()),
            relative_gap=worst,
            n_iter=self.n_passes,
            seconds=self.progress.seconds,
            converged=worst <= self._limits.tol,
            state=State(coef, intercept),
        )

    def checked_solution(self) -> Solution:
        """Run, and return the solution.

        Raise an error for a relative gap above 0.1, unless the callback stopped the
        search.
        """
        self.run()
        solution = self.solution()
        worst = solution.relative_gap
        if not (self.progress.stopped or worst <= LARGEST_GAP):
            raise NotConvergedError(
                f"the relative duality gap is {worst:.1e} after {self.n_passes} "
                f"passes, above {LARGEST_GAP}: the coefficients are unusable. Increase "
                "max_passes, max_seconds or alpha, or use float64 kernel values",
                solution,
            )
        return solution

    def _late(self, tol: Any) -> NDArray:
        """Return the columns that have not converged and can still improve."""
        gaps = self.certificate
        coarse = gaps.gap < gaps.noise / 16
        coarse |= (gaps.gap < gaps.noise) & (gaps.noise > tol * gaps.objective)
        return (gaps.relative_gap > tol) & ~coarse & ~self._stuck

    def _has_time(self) -> bool:
        # One pass is reserved for the final residual.
        used = self.progress.seconds
        in_time = used + 2 * (used / max(1, self.n_passes)) <= self._limits.seconds
        spent = self.progress.stopped or self.n_passes + 2 > self._limits.passes
        return in_time and not spent

    def _multiply(self, V: NDArray, columns: NDArray) -> NDArray:
        self.n_passes += 1
        return self.system.product(V, columns)

    def _descend(self) -> bool:
        """Run conjugate gradients until every column stops; return if any moved."""
        live = np.flatnonzero(~self._stuck)
        before = self.n_passes
        system = self.system
        R = system.project(system.right[:, live] - self.product[:, live])
        steps = ConjugateGradients(R, system.precondition, live)
        while True:
            self.certificate = system.estimate(self.X, self.product, steps)
            self._report()
            late = self._late(self._tol)[steps.columns]
            if not late.any() or not self._has_time():
                return self.n_passes > before
            steps.keep(late)
            steps.turn()
            self._step(steps)

    def _step(self, steps: ConjugateGradients) -> None:
        columns = steps.columns
        D = steps.D
        product = self._multiply(D, columns)
        lengths = steps.step(self.system.project(product))
        self._stuck[columns[lengths == 0]] = True
        self.X[:, columns] += lengths * D
        self.product[:, columns] += lengths * product

    def _report(self) -> None:
        gaps = self.certificate
        if self.n_passes:
            self.progress.report(
                self.n_passes, gaps.objective.sum(), (gaps.gap + gaps.noise).sum()
            )


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
    """Return the dtype of kernel values, float32 or float64, required for `alpha`.

    Rounding of kernel values adds about ``n (eps / (n alpha))^2`` to the relative gap:
    float32 is used if this is below a quarter of `tol`.
    """
    coarse = n * (float(np.finfo(np.float32).eps) / (n * alpha)) ** 2 > tol / 4
    return np.dtype(np.float64 if coarse else np.float32)


def solve_conjugate(
    K: KernelOperator | NDArray,
    Y: ArrayLike,
    alpha: float,
    **options: Unpack[ConjugateOptions],
) -> Solution:
    r"""Solve kernel ridge regression to a certified accuracy.

    .. math:: (K + n \alpha W^{-1}) a = y - b, \qquad \sum_j a_j = 0

    Conjugate gradients on the dual coefficients, preconditioned by a low-rank factor of
    K with random pivots. With residual r, the duality gap is :math:`\sum_i w_i r_i^2 /
    2n`, so the method certifies itself.

    Parameters
    ----------
    K : SymmetricGram or ndarray of shape (n, n)
        Kernel matrix. Only products with it and some of its rows are used.
    Y : array_like of shape (n,) or (n, d)
        Targets.
    alpha : float
        Penalty (> 0).
    output : ndarray of shape (d, d), optional
        Positive semi-definite output matrix M. Default: the identity. The outputs are
        rotated to its eigenvectors, which are columns of one search with their own
        penalties.
    sample_weight : ndarray of shape (n,), optional
        Nonnegative weights of mean one. Rows of weight zero have coefficient zero.
    fit_intercept : bool, default=True
        Whether to fit b, which is not penalized.
    preconditioner : Preconditioner, optional
        Result of `build_preconditioner`. Default: built for `alpha`.
    tol : float, default=1e-3
        Maximum relative duality gap of each column.
    max_passes : int, default=200
        Maximum number of products with K.
    max_seconds : float, default=inf
        Time limit for all passes; checked between them.
    state : State, optional
        Warm start: the state of a similar solution, such as for another `alpha`.
    callback : callable, optional
        Called as ``callback(passes, objective, gap, seconds)`` after each pass; if it
        returns true, the search stops.
    random_state : int, Generator or None
        Random numbers of the pivots of the preconditioner.

    Returns
    -------
    Solution
        ``coef`` (n, d) are the coefficients of f, ``intercept`` (d,) is b, ``n_iter``
        the number of passes. ``gap`` bounds the distance of the objective from its
        minimum, including an estimate of the rounding of kernel values;
        ``relative_gap`` is the maximum over the columns. ``converged`` is False if a
        limit, or the precision of the kernel values, stopped the search before `tol`.

    Raises
    ------
    NotConvergedError
        If the relative gap is still above 0.1: such coefficients are unusable.

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
    >>> solution.converged, solution.relative_gap < 1e-3
    (True, True)
    """
    return next(conjugate_path(K, Y, [alpha], **options))


def conjugate_path(
    K: KernelOperator | NDArray,
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
    """Yield the solution for each penalty, warm-started from the previous one.

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
        Random numbers of the pivots of the preconditioner.

    Yields
    ------
    Solution
    """
    operator = as_operator(K)
    penalties = [check_positive("alpha", alpha) for alpha in alphas]
    limits = Limits.checked(tol, max_passes, max_seconds)
    Y = check_columns(Y, operator.shape[0])
    rotated = RotatedOutputs(Y, output, sample_weight, fit_intercept)
    if preconditioner is None:
        rng = np.random.default_rng(random_state)
        preconditioner = build_preconditioner(
            operator, rotated.least_shift(penalties), rng, weights=sample_weight
        )
    for alpha in penalties:
        system = KernelSystem(operator, rotated, [alpha], preconditioner)
        solution = ConjugateSearch(system, state, limits, callback).checked_solution()
        state = solution.state
        yield solution


def solve_columns(
    K: KernelOperator,
    outputs: RotatedOutputs,
    alphas: NDArray,
    *,
    rank: int,
    tol: float,
    max_passes: int,
    callback: Callback | None,
    rng: np.random.Generator,
) -> list[Solution]:
    """Return the solutions for several penalties, as columns of one search.

    One pass over K is used for all penalties. The solutions are compared on validation
    rows, so they are returned for any gap, with `converged` and `relative_gap`.

    Parameters
    ----------
    K, tol, max_passes, callback
        As in `solve_conjugate`.
    outputs : RotatedOutputs
        Targets, output matrix, weights and intercept.
    alphas : ndarray of shape (a,)
        Penalties.
    rank : int
        Rank of the preconditioner.
    rng : numpy.random.Generator
        Random numbers of the preconditioner.

    Returns
    -------
    list of Solution
        One per penalty.
    """
    shift = outputs.least_shift(alphas)
    preconditioner = build_preconditioner(
        K, shift, rng, rank=rank, weights=outputs.weights, local=False
    )
    system = KernelSystem(K, outputs, alphas, preconditioner)
    search = ConjugateSearch(system, None, Limits(tol, max_passes, np.inf), callback)
    search.run()
    width = len(outputs.values)
    parts = [slice(i * width, (i + 1) * width) for i in range(len(alphas))]
    return [search.solution(columns) for columns in parts]


def solve_nystrom(
    columns: SketchedOperator,
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
    a sample of the rows, or the sketch, in place of all rows (Falkon, for any sketch).
    The penalty has :math:`\delta = 10^{-6} \operatorname{tr}(S K S^\top) / s` added to
    its diagonal, so that the problem is well-posed for duplicate landmarks.

    Parameters
    ----------
    columns : SketchedColumns of shape (n, s)
        K S^T and S K S^T. Without a chosen dtype, K S^T is evaluated in float32 for
        this call if `tol` allows it.
    Y : array_like of shape (n,) or (n, d)
        Targets.
    alpha : float
        Penalty (> 0).
    output : ndarray of shape (d, d), optional
        Positive semi-definite output matrix M. Default: the identity.
    sample_weight : ndarray of shape (n,), optional
        Non-negative weights of mean one.
    fit_intercept : bool, default=True
        Whether to fit b, which is not penalized.
    tol : float, default=1e-3
        Maximum relative gap of each column.
    max_passes : int, default=200
        Maximum number of passes over K S^T.
    max_seconds : float, default=inf
        Time limit for all passes; checked between them.
    state : State, optional
        Warm start: the state of a similar solution, such as for another `alpha`.
    callback : callable, optional
        Called as ``callback(passes, objective, gap, seconds)`` after each pass; if it
        returns true, the search stops.

    Returns
    -------
    Solution
        ``coef`` (s, d) is g times M, so that f = K S^T coef, ``intercept`` (d,) is b.
        ``gap`` bounds the distance of the objective from its minimum for the stored
        values of K S^T. ``converged`` is False if a limit, or the precision of the
        factors, stopped the search before `tol`.

    Raises
    ------
    NotConvergedError
        If the relative gap is still above 0.1: such coefficients are unusable.

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
    >>> solution.converged, solution.relative_gap < 1e-3
    (True, True)
    """
    limits = Limits.checked(tol, max_passes, max_seconds)
    Y = check_columns(Y, columns.shape[0])
    rotated = RotatedOutputs(Y, output, sample_weight, fit_intercept)
    alphas = [check_positive("alpha", alpha)]
    system = SketchedSystem(columns, rotated, alphas, limits.tol)
    return ConjugateSearch(system, state, limits, callback).checked_solution()
