r"""Certified solver for scalar losses defined by code.

The conjugate of such a loss is unknown, except at subgradients: if a is a subgradient
at u, then :math:`\psi^*(a) = a u - \psi(u)`, and its Fenchel-Young term at another
residual r is the Bregman divergence

.. math:: \psi(r) + \psi^*(a) - a r = \psi(r) - \psi(u) - a (r - u) \ge 0.

An intercept requires a dual point with ``sum_i s_i a_i = 0``. It is a convex
combination of two points whose sums have opposite signs; the conjugate is convex, so
the same combination of their divergences is an upper bound of the term.

The search is whitened L-BFGS. With ``Z^T S Z / n + alpha I = L L^T``, centered if there
is an intercept, the variable is ``L^T w``: for a loss of curvature one, the Hessian is
then the identity.
"""

from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import scipy.linalg
from numpy.typing import ArrayLike, NDArray
from scipy import optimize

from nbsketch.losses import Loss, as_loss
from nbsketch.solvers._certified import checks
from nbsketch.solvers._certified.problem import (
    Certificate,
    CertifiedProblem,
    Shapes,
    loss_sums,
)
from nbsketch.solvers._certified.search import Search, cold_start, minimize
from nbsketch.solvers.design import Design, as_design
from nbsketch.solvers.solution import Callback, Progress, Solution, State

# Trial shifts to find sums of opposite signs, and to bring these together.
_EXPANSIONS = 100
_REFINEMENTS = 100
_ROUNDING = 2.0**-50  # of losses and targets, added to the gap
_ALLOWED = 0.1  # share of the tolerance that balancing the dual point may cost
_MEMORY = 20  # pairs of L-BFGS
_RESTARTS = 10


class Pair(NamedTuple):
    """Residuals u and subgradients a of the loss there, for a shift of the residuals.

    `total` is the weighted sum of a; it decreases with the shift.
    """

    shift: float
    u: NDArray
    a: NDArray
    total: float


@dataclass(frozen=True, kw_only=True)
class GenericProblem(CertifiedProblem):
    """Minimize ``sum_i s_i psi_i(y_i - z_i w - b) / n + (alpha / 2) |w|^2``.

    psi_i is the loss of the residual or, for a classification loss, of the margin ``y f
    = 1 - y r``.
    """

    y: NDArray
    loss: Loss

    @property
    def shapes(self) -> Shapes:
        """Shapes of the coefficients, the intercept and the dual point."""
        return (self.rank,), (), self.y.shape

    def residual(self, coef: NDArray, intercept: float) -> NDArray:
        """Return ``y - Z w - b``."""
        return self.y - self.design.mv(coef) - intercept

    def sizes(self, res: NDArray) -> NDArray:
        """Return the absolute residuals of the rows of positive weight."""
        return np.abs(res[self.weights > 0])

    def best_constant(self) -> float:
        """Return the median of the targets, 0 for labels."""
        labels = self.loss.is_classification
        return 0.0 if labels else float(self.target_quantile(self.y, 0.5))

    def values(self, res: NDArray) -> NDArray:
        """Return the losses."""
        return self.loss.value(self._argument(res))

    def slopes(self, res: NDArray) -> NDArray:
        """Return the derivatives of the losses with respect to the residuals."""
        slopes = self.loss.derivative(self._argument(res))
        return -self.y * slopes if self.loss.is_classification else slopes

    def _argument(self, res: NDArray) -> NDArray:
        return 1.0 - self.y * res if self.loss.is_classification else res

    def pair(self, shift: float, res: NDArray) -> Pair:
        """Return the pair for a shift of residuals."""
        a = self.slopes(res - shift)
        return Pair(shift, res - shift, a, float(self.weights @ a))

    def balanced_pairs(
        self, res: NDArray, start: float, allowed: float
    ) -> tuple[Pair, ...]:
        """Return two pairs with totals >= 0 and <= 0, close together.

        Parameters
        ----------
        res : ndarray
            Residuals without an intercept.
        start : float
            First shift of the residuals; their size there sets the first distance from
            it.
        allowed : float
            Maximum loss of the certificate: an upper bound on the divergences.

        Returns
        -------
        tuple of Pair
            A single pair without an intercept, or if there are no such pairs: the
            intercept may have no optimum.
        """
        high = low = self.pair(start, res)
        if not self.fit_intercept:
            return (high,)
        step = 1e-3 * self.spread(res - start)
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
            return (self.pair(start, res),)
        for trial in range(_REFINEMENTS):
            width = low.shift - high.shift
            drop = high.total - low.total
            if width * drop <= allowed * self.n:
                break
            part = high.total / drop if trial % 2 else 0.5
            middle = high.shift + min(max(part, 0.01), 0.99) * width
            if not high.shift < middle < low.shift:
                break
            pair = self.pair(middle, res)
            high, low = (pair, low) if pair.total >= 0 else (high, pair)
        return high, low

    def certify(
        self, w: NDArray, b: float, res: NDArray, pairs: tuple[Pair, ...]
    ) -> Certificate:
        """Return the certificate of (w, b) and the balanced combination of `pairs`.

        The gap is infinite if an intercept needs two pairs and there is only one.
        """
        losses = self.values(res)
        young = 0.0
        a = np.zeros_like(res)
        for share, pair in zip(_shares(pairs), pairs, strict=True):
            divergence = losses - self.values(pair.u) - pair.a * (res - pair.u)
            young += share * float(self.weights @ np.maximum(divergence, 0.0))
            a += share * pair.a
        noise = np.abs(losses) + np.abs(self.y * a)
        young += _ROUNDING * float(self.weights @ noise)
        rho = self.alpha * w - self.design.rmv(self.weights * a) / self.n
        young += abs(b * float(self.weights @ a))
        balanced = len(pairs) > 1 or not self.fit_intercept
        young = young if balanced else np.inf
        sums = loss_sums(losses, self.weights)
        return self.certificate(w, b, a, rho, *sums, young)


def _shares(pairs: tuple[Pair, ...]) -> tuple[float, ...]:
    """Return the shares for which the totals of two pairs cancel."""
    if len(pairs) == 1:
        return (1.0,)
    high, low = pairs
    drop = high.total - low.total
    first = -low.total / drop if drop > 0 else 0.5
    return first, 1.0 - first


def check_slopes(u: NDArray, problem: GenericProblem) -> None:
    """Raise an error if some slope is not a subgradient of the loss at u_i.

    It is compared with the other residuals: ``psi(v) >= psi(u) + a (v - u)``. The
    certificate assumes that the loss is convex and that its derivative matches its
    value.
    """
    values = problem.values(u)
    a = problem.slopes(u)
    # Only rows of the same class are compared.
    labels = problem.y if problem.loss.is_classification else np.zeros(len(u))
    for shift in range(1, min(len(u), 9)):
        same = np.roll(labels, shift) == labels
        v = np.roll(u, shift)
        loss = np.roll(values, shift)
        below = values + a * (v - u) - loss
        size = np.abs(values) + np.abs(loss) + np.abs(a * (v - u))
        if not (below <= 1e-6 * size + 1e-12)[same].all():
            raise ValueError(
                "`loss` must be convex with a `derivative` that matches its `value`, "
                f"got {problem.loss!r}, whose subgradient inequality fails"
            )


class _Done(Exception):
    """Raised when the solution is certified."""


class WhitenedDescent(Search[GenericProblem]):
    """L-BFGS on whitened features until the certificate is good enough.

    Attributes
    ----------
    mean : ndarray
        Weighted mean of the features, zero without an intercept.
    root : ndarray
        ``root root^T`` is the inverse of ``Z^T S Z / n + alpha I``, centered with an
        intercept.
    awaited : float
        Estimated gap below which a point is certified.
    """

    def __init__(
        self,
        problem: GenericProblem,
        state: State,
        tol: float,
        max_iter: int,
        progress: Progress | None,
    ) -> None:
        super().__init__(problem, tol, max_iter, progress)
        gram, self.mean, _ = problem.centered_gram(exact=True)
        values, vectors = np.linalg.eigh(gram / problem.n)
        self.root = vectors / np.sqrt(np.maximum(values, 0.0) + problem.alpha)
        self.awaited = np.inf
        w = np.array(state.coef, float)
        b = float(state.intercept) * problem.fit_intercept
        check_slopes(problem.residual(w, b), problem)
        self.best = self._certify(w, b, np.inf)
        self._report(self.best)

    def run(self) -> Solution:
        """Return the best solution found."""
        with suppress(_Done):
            for _ in range(_RESTARTS):
                before = self.best.gap
                self._descend()
                self._improve()
                if not self.best.gap < 0.5 * before:
                    break
        best = self.best
        return self._solution(State(best.coef, best.intercept, best.dual))

    def _point(self, x: NDArray) -> tuple[NDArray, float]:
        w = self.root @ x[: self.problem.rank]
        return w, float(x[-1] - self.mean @ w) if self.problem.fit_intercept else 0.0

    def _descend(self) -> None:
        w = self.best.coef
        b = self.best.intercept
        x = scipy.linalg.solve(self.root, w)
        if self.problem.fit_intercept:
            x = np.append(x, b + self.mean @ w)
        limits = {"maxiter": self.max_iter - self.steps, "maxfun": 10**9, "maxls": 50}
        optimize.minimize(
            self._objective, x, jac=True, method="L-BFGS-B", callback=self._check,
            options={"ftol": 0.0, "gtol": 0.0, "maxcor": _MEMORY, **limits},
        )  # fmt: skip

    def _objective(self, x: NDArray) -> tuple[float, NDArray]:
        p = self.problem
        w, b = self._point(x)
        res = p.residual(w, b)
        slopes = p.weights * p.slopes(res)
        rho = p.alpha * w - p.design.rmv(slopes) / p.n
        tilt = -slopes.sum() / p.n
        self.last = w, b, float(rho @ rho) / (2 * p.alpha)
        gradient = self.root.T @ (rho - tilt * self.mean)
        value = p.weights @ p.values(res) / p.n + p.alpha / 2 * (w @ w)
        return value, np.append(gradient, tilt) if p.fit_intercept else gradient

    def _check(self, x: NDArray) -> None:
        """Certify the new iterate if its estimated gap is small enough."""
        self.steps += 1
        if self.progress.callback or self.last[2] <= min(self.target, self.awaited):
            self._improve()

    def _improve(self) -> None:
        """Certify the last iterate, keep it if it is the best, and report the best."""
        w, b, estimate = self.last
        self.awaited = 0.5 * estimate
        certificate = self._certify(w, b, _ALLOWED * self.target)
        if certificate.gap < self.best.gap:
            self.best = certificate
        self._report(self.best)
        if self.converged or self._is_spent:
            raise _Done

    def _certify(self, w: NDArray, b: float, allowed: float) -> Certificate:
        """Certify w with the best intercept, found by a one-dimensional search."""
        p = self.problem
        res = self.problem.residual(w, 0.0)
        pairs = p.balanced_pairs(res, b, allowed)
        b = min(pairs, key=lambda pair: abs(pair.total)).shift
        return p.certify(w, b, res - b, pairs)


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
    problem = GenericProblem.of(
        design, alpha, sample_weight, fit_intercept, y=y, loss=loss
    )
    loss.check_solvable()
    state = cold_start(problem) if state is None else state
    return minimize(problem, WhitenedDescent, tol, max_iter, state, callback)
