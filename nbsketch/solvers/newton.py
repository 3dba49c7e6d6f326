r"""Certified solvers on features, for every scalar loss and for joint quantiles.

The conjugate of a loss defined by code is unknown, except at subgradients: if a is a
subgradient at u, then :math:`\psi^*(a) = a u - \psi(u)`, and its Fenchel-Young term at
another residual r is the Bregman divergence

.. math:: \psi(r) + \psi^*(a) - a r = \psi(r) - \psi(u) - a (r - u) \ge 0.

An intercept requires a dual point with ``sum_i s_i a_i = 0``. It is a convex
combination of two points whose sums have opposite signs; the conjugate is convex, so
the same combination of their divergences is an upper bound of the term.

The search is limited-memory BFGS, which starts from a multiple of the inverse Hessian
of the square loss, ``Z^T S Z / n + alpha I``.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nbsketch.losses import Loss, as_loss
from nbsketch.outputs import check_levels
from nbsketch.solvers._certified import checks
from nbsketch.solvers._certified.search import minimize
from nbsketch.solvers._linear.conjugate_gradients import Inverse
from nbsketch.solvers._newton.problem import ONE, NewtonProblem, gram_of
from nbsketch.solvers._newton.search import NewtonSearch
from nbsketch.solvers._newton.smooth import SmoothSearch, inverse_of
from nbsketch.solvers._newton.start import splitting_start
from nbsketch.solvers.design import Design, as_design
from nbsketch.solvers.passes import InverseHessian, LandmarkDesign, PassesSearch
from nbsketch.solvers.row_loss import (
    RowLoss,
    has_row_loss,
    loss_sums,
    pinball_rows,
    row_loss,
)
from nbsketch.solvers.solution import Callback, Certificate, Solution, State

# Trial shifts to find sums of opposite signs, and to bring these together.
_EXPANSIONS = 100
_REFINEMENTS = 100
_ROUNDING = 2.0**-50  # of losses and targets, added to the gap
_ALLOWED = 0.1  # share of the tolerance that balancing the dual point may cost
_TRIALS = 40  # of the length of a step
# Steps whose change of the gradient is used: kinks need more than curvatures do.
_MEMORY = 30
# Conditions on a step: its decrease relative to the slope, and its slope relative to
# that at the start.
_DECREASE = 1e-4
_FLATTER = 0.9


class Pair(NamedTuple):
    """Residuals u and subgradients a of the loss there, for a shift of the residuals.

    `total` is the weighted sum of a; it decreases with the shift.
    """

    shift: float
    u: NDArray
    a: NDArray
    total: float


@dataclass(frozen=True, kw_only=True)
class GenericProblem(NewtonProblem):
    """Minimize ``sum_i s_i psi_i(y_i - z_i w - b) / n + (alpha / 2) |w|^2``.

    psi_i is the loss of the residual or, for a classification loss, of the margin ``y f
    = 1 - y r``.
    """

    loss: Loss
    tol: float

    def best_constant(self) -> NDArray:
        """Return the median of the targets, 0 for labels."""
        return super().best_constant() * (not self.loss.is_classification)

    def values(self, res: NDArray) -> NDArray:
        """Return the losses."""
        return self.loss.value(self._argument(res))

    def derivatives(self, res: NDArray) -> NDArray:
        """Return the derivatives of the losses with respect to the residuals."""
        slopes = self.loss.derivative(self._argument(res))
        return -self.y * slopes if self.loss.is_classification else slopes

    def _argument(self, res: NDArray) -> NDArray:
        return 1.0 - self.y * res if self.loss.is_classification else res

    def point(
        self, res: NDArray, center: NDArray, sigma: float
    ) -> tuple[NDArray, Any, NDArray, float]:
        """Return the fields of a `RowPoint`, with a total for each output."""
        a = self.derivatives(res)
        return a, np.ones_like(a), a @ self.weights, 0.0

    def pair(self, shift: float, res: NDArray) -> Pair:
        """Return the pair for a shift of residuals."""
        a = self.derivatives(res - shift)
        return Pair(shift, res - shift, a, float(self.weights @ a))

    def balanced_pairs(
        self, res: NDArray, start: float, allowed: float
    ) -> list[tuple[float, Pair]]:
        """Return two pairs with totals >= 0 and <= 0, close together, and their shares.

        The totals of the pairs cancel in the combination with these shares.

        Parameters
        ----------
        res : ndarray
            Residuals without an intercept.
        start : float
            First shift of the residuals; their size there sets the first distance from
            it.
        allowed : float
            Maximum of an upper bound on the sum of the divergences.

        Returns
        -------
        list of (float, Pair)
            A single pair without an intercept, or if there are no such pairs: the
            intercept may have no optimum.
        """
        high = low = self.pair(start, res)
        if not self.fit_intercept:
            return [(1.0, high)]
        step = 1e-3 * self.spread(res[None] - start)
        for _ in range(_EXPANSIONS):
            if high.total >= 0 >= low.total:
                break
            if low.total > 0:
                high = low
                low = self.pair(low.shift + step, res)
            else:
                high, low = self.pair(high.shift - step, res), high
            step *= 2.0
        else:
            return [(1.0, self.pair(start, res))]
        for trial in range(_REFINEMENTS):
            width = low.shift - high.shift
            drop = high.total - low.total
            if width * drop <= allowed:
                break
            part = high.total / drop if trial % 2 else 0.5
            middle = high.shift + min(max(part, 0.01), 0.99) * width
            if not high.shift < middle < low.shift:
                break
            pair = self.pair(middle, res)
            high, low = (pair, low) if pair.total >= 0 else (high, pair)
        drop = high.total - low.total
        share = -low.total / drop if drop > 0 else 0.5
        return [(share, high), (1.0 - share, low)]

    def certify(
        self,
        W: NDArray,
        b: NDArray,
        res: NDArray,
        a: NDArray,
        gradient: NDArray | None = None,
        rate: Any = None,
    ) -> Certificate:
        """Return the certificate of W with the best intercept, found by a line search.

        The dual point is a balanced combination of two pairs, not `a`. The gap is
        infinite if an intercept needs two pairs and there is only one.
        """
        weights = self.weights
        free = res[0] + b
        typical = loss_sums(self.values(res[0]), weights)[1]
        pairs = self.balanced_pairs(free, float(b[0]), _ALLOWED * self.tol * typical)
        shift = sum(share * pair.shift for share, pair in pairs)
        res = free - shift
        losses = self.values(res)
        young = 0.0
        dual = np.zeros_like(res)
        for share, pair in pairs:
            divergence = losses - self.values(pair.u) - pair.a * (res - pair.u)
            young += share * float(weights @ np.maximum(divergence, 0.0))
            dual += share * pair.a
        noise = np.abs(losses) + np.abs(self.y * dual)
        young += _ROUNDING * float(weights @ noise)
        if self.fit_intercept and len(pairs) == 1:
            young = np.inf
        gradient = self.design.rmv((weights * dual)[:, None])
        best = np.array([shift])
        return self.certificate(W, best, dual[None], gradient, losses, young)


def check_slopes(u: NDArray, problem: GenericProblem) -> None:
    """Raise an error if some slope is not a subgradient of the loss at u_i.

    It is compared with the other residuals: ``psi(v) >= psi(u) + a (v - u)``. The
    certificate assumes that the loss is convex and that its derivative matches its
    value.
    """
    values = problem.values(u)
    a = problem.derivatives(u)
    y = problem.y
    for shift in range(1, min(len(u), 9)):
        # Only rows of the same class are compared.
        same = (np.roll(y, shift) == y) | (not problem.loss.is_classification)
        v = np.roll(u, shift)
        loss = np.roll(values, shift)
        below = values + a * (v - u) - loss
        size = np.abs(values) + np.abs(loss) + np.abs(a * (v - u))
        if not (below <= 1e-6 * size + 1e-12)[same].all():
            raise ValueError(
                "`loss` must be convex with a `derivative` that matches its `value`, "
                f"got {problem.loss!r}, whose subgradient inequality fails"
            )


class GenericSearch(PassesSearch):
    """Search by limited-memory BFGS on features whose Gram matrix is computed."""

    problem: GenericProblem

    def _begin(self, state: State) -> Certificate:
        check_slopes(self.res[0], self.problem)
        self.memory = InverseHessian(self._preconditioner(), _MEMORY)
        return super()._begin(state)

    def _length(self, D: NDArray, shift: NDArray) -> float:
        """Return the step along a direction, by the weak conditions of Wolfe.

        The minimizer along it often lies on a kink, next to which slopes tell nothing
        of curvatures (A. S. Lewis, M. L. Overton, 2013).
        """
        start = self._value(0.0, D)
        low = 0.0
        high = np.inf
        t = 1.0
        for _ in range(_TRIALS):
            if self._value(t, D) > start + _DECREASE * t * self.slope:
                high = t
            elif self._slope(t, D) < _FLATTER * self.slope:
                low = t
            else:
                break
            t = (low + high) / 2 if high < np.inf else 2 * t
        else:
            t = low
        self.res -= t * self.move
        return t

    def _value(self, t: float, D: NDArray) -> float:
        """Return the objective at a step."""
        p = self.problem
        losses = p.values((self.res - t * self.move)[0])
        square = float(np.square(self.coef + t * D).sum())
        return float(p.weights @ losses) / p.n + p.alpha / 2 * square

    def _slope(self, t: float, D: NDArray) -> float:
        """Return its derivative."""
        p = self.problem
        slopes = p.weights * p.derivatives((self.res - t * self.move)[0])
        penalty = float(np.vdot(D, self.coef + t * D))
        return p.alpha * penalty - float(slopes @ self.move[0]) / p.n

    def _scale(self) -> None:
        """Return None: the preconditioner is of another curvature."""

    def _preconditioner(self) -> Inverse:
        p = self.problem
        return inverse_of(gram_of(p, None, True) / p.n, p.alpha, p.rank)


def solve_generic(
    design: Design | ArrayLike,
    y: ArrayLike,
    loss: Loss | str,
    alpha: float,
    *,
    sample_weight: ArrayLike | None = None,
    fit_intercept: bool = True,
    tol: float = 1e-6,
    max_iter: int = 1000,
    state: State | None = None,
    callback: Callback | None = None,
) -> Solution:
    r"""Minimize a loss defined by its derivative, by L-BFGS.

    .. math:: \min_{w, b} \frac1n \sum_{i=1}^n s_i\, \ell(z_i^\top w + b, y_i)
              + \frac{\alpha}{2} \|w\|^2

    `solve_scalar` calls this function for losses without `elq`, and is faster with it.

    Parameters
    ----------
    design : Design or array_like of shape (n, r)
        The features Z.
    y : array_like of shape (n,)
        Targets; -1 and +1 for a classification loss.
    loss : Loss or str
        A convex loss; see `nbsketch.losses.Loss` for what to implement.
    alpha : float
        Penalty (> 0).
    sample_weight : array_like of shape (n,), optional
        The weights s, at least 0. They are used unchanged: scale them to mean one.
    fit_intercept : bool, default=True
        Whether to fit b, which is not penalized.
    tol : float, default=1e-6
        Stop when the certified gap is at most this share of the objective, in which
        losses above 20 times their median are truncated.
    max_iter : int, default=1000
        Maximum number of iterations.
    state : State, optional
        Warm start: the state of a similar problem.
    callback : callable, optional
        Called as ``callback(iteration, objective, gap, seconds)`` at each certificate;
        if it returns true, the search stops with the best solution so far.

    Returns
    -------
    Solution
        `converged` is False if the gap is above `tol` after `max_iter` iterations, or
        if rounding stopped the search before. The gap is infinite if the optimal
        intercept is not finite.

    Raises
    ------
    TypeError
        If the loss defines neither `elq`, nor `value` and `derivative`.
    ValueError
        If, at the residuals checked, the derivative does not match the value or the
        loss is not convex.

    Notes
    -----
    The gap is valid for every convex loss: its conjugate is evaluated only at
    subgradients, where it is known.

    References
    ----------
    D. C. Liu, J. Nocedal, "On the limited memory BFGS method for large scale
    optimization", 1989.

    Examples
    --------
    >>> import numpy as np
    >>> from nbsketch.losses import Loss
    >>> class LogCosh(Loss):
    ...     def value(self, x):
    ...         return np.logaddexp(x, -np.asarray(x)) - np.log(2)
    ...
    ...     def derivative(self, x):
    ...         return np.tanh(x)
    >>> Z = np.array([[0.0], [1.0], [2.0], [3.0]])
    >>> solution = solve_generic(Z, [1.0, 3.0, 5.0, 7.0], LogCosh(), 1e-6)
    >>> solution.coef.round(2), round(solution.intercept, 2), solution.converged
    (array([2.]), 1.0, True)
    """
    design = as_design(design)
    loss = as_loss(loss)
    y = checks.labels("y", checks.targets("y", y, design.shape[:1]), loss)
    loss.check_solvable()
    unbounded = np.full((1, len(y)), np.inf)
    problem = GenericProblem.of(
        design, alpha, sample_weight, fit_intercept, y=y, loss=loss, T=ONE, tol=tol,
        losses=RowLoss(-unbounded, unbounded, gam=1.0),
    )  # fmt: skip
    return minimize(
        problem, GenericSearch, tol, max_iter, state, callback, is_scalar=True
    )


def solve_scalar(
    design: Design | ArrayLike,
    y: ArrayLike,
    loss: Any,
    alpha: float,
    *,
    sample_weight: ArrayLike | None = None,
    fit_intercept: bool = True,
    tol: float = 1e-6,
    max_iter: int = 1000,
    state: State | None = None,
    callback: Callback | None = None,
) -> Solution:
    r"""Minimize a scalar loss with a ridge penalty, to a certified accuracy.

    .. math:: \min_{w, b} \frac1n \sum_{i=1}^n s_i\, \ell(z_i^\top w + b, y_i)
              + \frac{\alpha}{2} \|w\|^2

    Parameters
    ----------
    design : Design or array_like of shape (n, r)
        The features Z.
    y : array_like of shape (n,)
        Targets; -1 and +1 for a classification loss.
    loss : Loss or str
        See `nbsketch.losses`. A loss without `elq`, defined by its derivative, is
        passed to `solve_generic`.
    alpha : float
        Penalty (> 0).
    sample_weight : array_like of shape (n,), optional
        The weights s, at least 0. They are used unchanged: scale them to mean one.
    fit_intercept : bool, default=True
        Whether to fit b, which is not penalized.
    tol : float, default=1e-6
        Stop when the certified gap is at most this share of the objective, in which
        losses above 20 times their median are truncated, so that a few outliers do not
        loosen it. A gap below 1e-15 times the initial objective, or below the rounding
        of the residuals, counts as zero.
    max_iter : int, default=1000
        Maximum number of Newton steps.
    state : State, optional
        Warm start: the state of a similar problem. Default: solutions on nested random
        samples of the rows, or zero for few rows.
    callback : callable, optional
        Called as ``callback(iteration, objective, gap, seconds)`` after each step;
        if it returns true, the search stops with the best solution so far.

    Returns
    -------
    Solution
        `converged` is False if `max_iter` stopped the search; `shortfall` then returns
        the text of a warning.

    Raises
    ------
    TypeError
        If the loss defines neither `elq`, nor `value` and `derivative`.
    ValueError
        If an argument has a wrong shape or value.

    References
    ----------
    X. Li, D. Sun, K.-C. Toh, "A highly efficient semismooth Newton augmented Lagrangian
    method for solving Lasso problems", 2018 (the scheme for losses with kinks).

    Examples
    --------
    >>> import numpy as np
    >>> Z = np.array([[0.0], [1.0], [2.0], [3.0]])
    >>> solution = solve_scalar(Z, [1.0, 3.0, 5.0, 100.0], "pinball", 1e-3)
    >>> solution.coef.round(2), solution.converged
    (array([2.]), True)
    """
    loss = as_loss(loss)
    design = as_design(design)
    if not has_row_loss(loss):
        return solve_generic(
            design, y, loss, alpha, sample_weight=sample_weight,
            fit_intercept=fit_intercept, tol=tol, max_iter=max_iter, state=state,
            callback=callback,
        )  # fmt: skip
    y = checks.labels("y", checks.targets("y", y, design.shape[:1]), loss)
    problem = NewtonProblem.of(
        design, alpha, sample_weight, fit_intercept, y=y, loss=loss, T=ONE,
        losses=row_loss(loss, y[None]),
    )  # fmt: skip
    search = NewtonSearch if problem.losses.has_kinks else SmoothSearch
    if isinstance(design, LandmarkDesign):
        search = PassesSearch
    return minimize(problem, search, tol, max_iter, state, callback, is_scalar=True)


def solve_joint_pinball(
    design: Design | ArrayLike,
    y: ArrayLike,
    quantiles: ArrayLike,
    T: ArrayLike,
    alpha: float,
    *,
    sample_weight: ArrayLike | None = None,
    fit_intercept: bool = True,
    non_crossing: bool = False,
    tol: float = 1e-6,
    max_iter: int = 1000,
    state: State | None = None,
    callback: Callback | None = None,
) -> Solution:
    r"""Fit several conditional quantiles of one target together.

    .. math:: \min_{W, b} \frac1n \sum_{i=1}^n s_i \sum_{j=1}^d
              \ell_{\tau_j}\bigl(y_i - (Z W T)_{ij} - b_j\bigr)
              + \frac{\alpha}{2} \|W\|_F^2

    with the pinball loss of level tau_j for output j and the output matrix ``T^T T =
    M``, which couples the levels.

    Parameters
    ----------
    design : Design or array_like of shape (n, r)
        The features Z.
    y : array_like of shape (n,)
        Targets.
    quantiles : array_like of shape (d,)
        Levels, strictly ascending in (0, 1).
    T : array_like of shape (d', d)
        Factor of the output matrix; see `nbsketch.outputs.Output.factor`.
    alpha : float
        Penalty (> 0).
    sample_weight : array_like of shape (n,), optional
        The weights s, at least 0. They are used unchanged: scale them to mean one.
    fit_intercept : bool, default=True
        Whether to fit b, which is not penalized.
    non_crossing : bool, default=False
        Whether to add the constraints that the quantiles of each row of positive weight
        ascend, ``(Z W T)_ij + b_j <= (Z W T)_i(j+1) + b_(j+1)``. They need an
        intercept: the levels of every certified point are shifted until they hold.
    tol : float, default=1e-6
        Stop when the certified gap is at most this share of the objective, in which
        losses above 20 times their median are truncated.
    max_iter : int, default=1000
        Maximum number of Newton steps.
    state : State, optional
        Warm start: the state of a similar problem. Default: solutions on nested random
        samples of the rows, or zero for few rows.
    callback : callable, optional
        Called as ``callback(iteration, objective, gap, seconds)`` after each step;
        if it returns true, the search stops with the best solution so far.

    Returns
    -------
    Solution
        With `coef` of shape (r, d'), `intercept` (d,), `dual` (n, d), and ``converged``
        False if `max_iter` stopped the search. With constraints, `dual` has d - 1 more
        columns: their negative multipliers divided by the weights s.

    Raises
    ------
    ValueError
        If an argument has a wrong shape or value, or if `non_crossing` is true without
        an intercept.

    Notes
    -----
    Each Newton step factorizes a matrix of order r d', so the time grows like ``(r
    d')^3`` above a few hundred.

    A constraint is an additional term of the sum: its loss is 0 for a nonnegative
    difference of neighboring levels and infinite otherwise. The method of multipliers
    treats it like the other terms, with a multiplier (dual point) in [0, infinity). The
    gap therefore bounds the distance from the minimum of the constrained problem.

    References
    ----------
    M. Sangnier, O. Fercoq, F. d'Alche-Buc, "Joint quantile regression in vector-valued
    RKHSs", NeurIPS 2016 (the problem); X. Li, D. Sun, K.-C. Toh, "A highly efficient
    semismooth Newton augmented Lagrangian method for solving Lasso problems", 2018 (the
    scheme).

    Examples
    --------
    >>> import numpy as np
    >>> Z, y = np.zeros((101, 1)), np.arange(101.0)
    >>> solution = solve_joint_pinball(Z, y, [0.1, 0.5], np.eye(2), alpha=1.0)
    >>> solution.intercept.round(1), solution.converged
    (array([10., 50.]), True)
    """
    if non_crossing and not fit_intercept:
        raise ValueError(
            "`non_crossing` needs an intercept, got fit_intercept=False: set it to True"
        )
    design = as_design(design)
    levels = np.array(check_levels("quantiles", quantiles))
    ordered = bool(non_crossing)
    problem = NewtonProblem.of(
        design, alpha, sample_weight, fit_intercept, ordered=ordered,
        y=checks.targets("y", y, design.shape[:1]), T=checks.factor(T, len(levels)),
        losses=pinball_rows(levels, design.shape[0], ordered),
    )  # fmt: skip
    search = PassesSearch if isinstance(design, LandmarkDesign) else NewtonSearch
    return minimize(problem, search, tol, max_iter, state, callback, splitting_start)
