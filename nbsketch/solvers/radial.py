"""Certified solver of vector-valued regression with a loss of the residual's norm.

The outputs are rotated so that the factor of the output matrix is diagonal: norms do
not change, and every output has its own scale. For any W, b and any a with rows of
length at most hi and ``sum_i s_i a_i = 0`` (with an intercept),

    P(W, b) - D(a) = sum_i s_i [phi(|r_i|) + phi*(|a_i|) - a_i . r_i] / n
                     + |alpha W - Z^T (s a) diag(t) / n|^2 / (2 alpha),

a sum of nonnegative terms.

The search is the one for smooth losses: Newton steps by conjugate gradients, with two
products with the features per iteration. Huber, square and squared epsilon-insensitive
losses are smooth. The epsilon-insensitive loss is smoothed by sigma around the current
dual point, which moves to the new slope as sigma decreases.

In the preconditioner every row has one curvature in all directions, so that outputs
separate: with the (weighted, centered) Gram matrix G of the features, the inverse for
an output of scale t is ``(t^2 G + alpha I)^-1``.
"""

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nbsketch.losses import ELQ, as_loss
from nbsketch.solvers._certified import checks
from nbsketch.solvers._certified.search import minimize
from nbsketch.solvers._linear.conjugate_gradients import Inverse
from nbsketch.solvers._newton.problem import NewtonProblem
from nbsketch.solvers._newton.smooth import SmoothSearch, inverse_of
from nbsketch.solvers.design import Design, as_design
from nbsketch.solvers.row_loss import row_loss
from nbsketch.solvers.solution import Callback, Solution, State

# An intercept shifts the dual point of rows between the kinks if the shift is below
# this share of the bound, else of all rows.
_SLIGHT = 0.1
_LEAST = 1e-300  # lower bound of divisors
# An eigendecomposition takes the time of about this many Cholesky factors.
_MOST_FACTORS = 12


class RadialCurvature(NamedTuple):
    """Derivative ``across (I - u u^T) + along u u^T`` of the dual point of each row."""

    unit: NDArray  # (d, n), u
    across: NDArray
    along: NDArray


@dataclass(frozen=True, kw_only=True)
class RadialProblem(NewtonProblem):
    """Minimize ``sum_i s_i phi(|Y_i - (Z W T)_i - b|) / n + (alpha / 2) |W|^2``.

    phi is defined by its conjugate, gam |a|^2 / 2 + eps |a| for |a| <= hi. Its dual
    point at residual r, smoothed by sigma around c, has the direction of v = r + sigma
    c and the length ``min(max(|v| - eps, 0) / (gam + sigma), hi)``. T is diagonal.
    """

    numbers: ELQ  # of the conjugate

    def _lengths(self, size: NDArray, sigma: float) -> tuple[NDArray, NDArray, NDArray]:
        """Return the length of the dual point, and the curvatures across and along."""
        gam, eps, _, hi = self.numbers
        inverse = 1.0 / max(gam + sigma, _LEAST)
        with np.errstate(over="ignore"):  # without smoothing, of large residuals
            length = np.minimum(np.maximum(size - eps, 0.0) * inverse, hi)
        along = np.where((size >= eps) & (length < hi), inverse, 0.0)
        # the limit at a zero residual is a multiple of the identity
        return length, np.divide(length, size, out=along.copy(), where=size > 0), along

    def point(
        self, res: NDArray, center: NDArray, sigma: float
    ) -> tuple[NDArray, RadialCurvature, NDArray, float]:
        """Return the fields of a `RowPoint`, with a total for each output."""
        v = res + sigma * center
        size = _norms(v)
        length, *curvatures = self._lengths(size, sigma)
        unit = np.divide(v, size, out=v, where=size > 0)
        a = length * unit
        return (
            a,
            RadialCurvature(unit, *curvatures),
            a @ self.weights,
            self.young(res, a),
        )

    def slopes(
        self, t: float, res: NDArray, move: NDArray, center: NDArray, sigma: float
    ) -> tuple[float, float]:
        """Return two derivatives of the smoothed loss sum at ``res - t move``."""
        v = res - t * move + sigma * center
        size = _norms(v)
        inner = _products(v, move)
        _, across, along = self._lengths(size, sigma)
        part = np.square(inner / np.maximum(size, _LEAST))
        second = across * (_products(move, move) - part) + along * part
        return -float(self.weights @ (across * inner)), float(self.weights @ second)

    def mass(self, curvature: RadialCurvature) -> NDArray:
        """Return the minimum curvature of the loss sum for each intercept."""
        return np.full(len(self.mix), self.weights @ curvature.across)

    def curved(self, curvature: RadialCurvature, move: NDArray) -> NDArray:
        """Return the changes of s a with those of the predictions."""
        unit, across, along = curvature
        stretch = (along - across) * _products(unit, move)
        return self.weights * (across * move + stretch * unit)

    def values(self, res: NDArray) -> NDArray:
        """Return the loss of each row."""
        return self.numbers.value(_norms(res))

    def young(self, res: NDArray, a: NDArray) -> float:
        """Return the weighted sum of the Fenchel-Young terms.

        The term of the lengths is exactly 0 if a is the slope, and ``|r| |a| - r . a``
        is a sum of squares.
        """
        gam, eps, _, _ = self.numbers
        size = _norms(res)
        length = _norms(a)
        top = self._lengths(size, 0.0)[0]
        terms = (top - length) * (size - 0.5 * gam * (top + length) - eps)
        ratio = np.divide(size, length, out=np.zeros_like(size), where=length > 0)
        stretch = np.sqrt(ratio)
        off = stretch * a - res / np.where(stretch > 0, stretch, np.inf)
        return float(self.weights @ (terms + 0.5 * _products(off, off)))

    def bounded(self, a: NDArray) -> NDArray:
        """Return `a` with its rows clipped to the bound on their length."""
        return a * np.minimum(1.0, self.numbers.hi / np.maximum(_norms(a), _LEAST))

    def sizes(self, res: NDArray) -> NDArray:
        """Return the norms of the residuals of the rows of positive weight."""
        return _norms(res[:, self.weights > 0])

    def _balanced(
        self, a: NDArray, gradient: NDArray, rate: RadialCurvature | None
    ) -> tuple[NDArray, NDArray]:
        """Return `a` with a weighted sum of zero, and the updated ``Z^T (s a)^T``.

        It is shifted, and then scaled down if a bound was violated.
        """
        weights = self.weights
        hi = self.numbers.hi
        total = a @ self.weights
        if not total.any():
            return a, gradient
        moving = np.ones(len(weights))
        if rate is not None:
            between = (rate.along > 0).astype(float)
            if np.linalg.norm(total) < _SLIGHT * hi * (weights @ between):
                moving = between
        shift = total / (weights @ moving)
        a = a - np.outer(shift, moving)
        gradient = gradient - np.outer(self.design.rmv(weights * moving), shift)
        longest = float(_norms(a).max())
        shrink = hi / longest if longest > hi else 1.0
        return shrink * a, shrink * gradient


def _products(A: NDArray, B: NDArray) -> NDArray:
    """Return the inner products of the columns."""
    return np.einsum("ji,ji->i", A, B)


def _norms(A: NDArray) -> NDArray:
    return np.sqrt(_products(A, A))


class RadialSearch(SmoothSearch):
    """The search for losses of the norm."""

    problem: RadialProblem
    patience = 12
    most_products = 100

    def _preconditioner(self) -> Inverse:
        """Return the inverse of the Newton matrix with one curvature per row."""
        p = self.problem
        unit, across, along = self.curvature
        d = len(unit)
        k, _ = p.T.shape
        weights = p.weights * ((d - 1) * across + along) / (d * p.n)
        curved = replace(p, weights=weights, uniform=False)
        gram, mean, mass = curved.centered_gram(exact=False)
        t = np.diagonal(p.T)
        inverse = _resolvent(gram, t**2, p.alpha)

        def solve(flat: NDArray) -> NDArray:
            G, g = p.split(flat)
            W = inverse(G - np.outer(mean, t * g[:k]))
            b = g / mass
            b[:k] -= t * (mean @ W)
            return p.flat(W, b)

        return solve


def _resolvent(gram: NDArray, scales: NDArray, alpha: float) -> Inverse:
    """Return the product of columns with the inverses of ``scale gram + alpha I``."""
    distinct = np.unique(scales)
    if len(distinct) > _MOST_FACTORS:
        values, vectors = np.linalg.eigh(gram)
        inverse = 1.0 / (np.maximum(values, 0.0)[:, None] * scales + alpha)
        return lambda W: vectors @ ((vectors.T @ W) * inverse)
    inverses = [inverse_of(scale * gram, alpha, len(gram)) for scale in distinct]

    def solve(W: NDArray) -> NDArray:
        solved = np.empty_like(W)
        for scale, times in zip(distinct, inverses, strict=True):
            solved[:, scales == scale] = times(W[:, scales == scale])
        return solved

    return solve


def solve_radial(
    design: Design | ArrayLike,
    Y: ArrayLike,
    loss: Any,
    T: ArrayLike,
    alpha: float,
    *,
    sample_weight: ArrayLike | None = None,
    fit_intercept: bool = True,
    tol: float = 1e-6,
    max_iter: int = 1000,
    state: State | None = None,
    callback: Callback | None = None,
) -> Solution:
    r"""Minimize a loss of the norm of vector-valued residuals, with a ridge penalty.

    .. math:: \min_{W, b} \frac1n \sum_{i=1}^n s_i\,
              \phi\bigl(\| Y_i - (Z W T)_i - b \|_2\bigr) + \frac{\alpha}{2} \|W\|_F^2

    with ``T^T T = M`` the output matrix that couples the outputs.

    Parameters
    ----------
    design : Design or array_like of shape (n, r)
        The features Z.
    Y : array_like of shape (n, d)
        Targets.
    loss : Loss or str
        Square, Huber, epsilon-insensitive or squared epsilon-insensitive; see
        `nbsketch.losses`.
    T : array_like of shape (d', d)
        Factor of the output matrix; see `nbsketch.outputs.Output.factor`.
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
        Maximum number of Newton steps.
    state : State, optional
        Warm start: the state of a similar problem. Default: solutions on nested random
        samples of the rows, or zero for few rows.
    callback : callable, optional
        Called as ``callback(iteration, objective, gap, seconds)`` at each certificate;
        if it returns true, the search stops with the best solution so far.

    Returns
    -------
    Solution
        With `coef` of shape (r, d'), `intercept` (d,), `dual` (n, d), and ``converged``
        False if `max_iter` stopped the search.

    Notes
    -----
    Newton's method with conjugate gradients, preconditioned by Cholesky factors of the
    weighted Gram matrix, one for each scale of the outputs. The epsilon-insensitive
    loss is the limit of smoothed losses, in a proximal method on the dual.

    References
    ----------
    T. El Ahmad, P. Laforgue, F. d'Alche-Buc, "Fast kernel methods for generic Lipschitz
    losses via p-sparsified sketches", TMLR 2023 (the losses); X. Li, D. Sun, K.-C. Toh,
    "A highly efficient semismooth Newton augmented Lagrangian method for solving Lasso
    problems", 2018 (the scheme).

    Examples
    --------
    >>> import numpy as np
    >>> Z = np.array([[-1.0], [0.0], [1.0], [0.0]])
    >>> Y = np.array([[-2.0, 1.0], [0.0, 1.0], [2.0, 1.0], [900.0, -900.0]])
    >>> solution = solve_radial(Z, Y, "huber", np.eye(2), alpha=1e-3)
    >>> solution.coef.round(1), solution.converged
    (array([[2., 0.]]), True)
    """
    design = as_design(design)
    loss = as_loss(loss).check_radial()
    T = checks.factor(T)
    n = design.shape[0]
    d = T.shape[1]
    Y = checks.targets("Y", Y, (n, d))
    # T = left diag(t) turn: with outputs rotated by `turn` the factor is diagonal
    left, t, turn = np.linalg.svd(T)
    left = left[:, : len(t)]
    diagonal = np.diag(t) @ np.eye(len(t), d)
    y = np.ascontiguousarray(turn @ Y.T)
    problem = RadialProblem.of(
        design, alpha, sample_weight, fit_intercept, y=y, T=diagonal,
        losses=row_loss(loss, y), numbers=loss.linear_quadratic(),
    )  # fmt: skip
    if state is not None:
        checks.state(state, (design.shape[1], len(T)), (d,), (n, d))
        state = _turned(state, left, turn)
    solution = minimize(problem, RadialSearch, tol, max_iter, state, callback)
    assert solution.state is not None  # a search ends with a state and a dual point
    last = _turned(solution.state, left.T, turn.T)
    return solution._replace(
        coef=last.coef, intercept=last.intercept, dual=last.dual, state=last
    )


def _turned(state: State, left: NDArray, turn: NDArray) -> State:
    """Return the state in the outputs rotated by `turn`."""
    dual = None if state.dual is None else np.ascontiguousarray(state.dual @ turn.T)
    return state._replace(
        coef=np.asarray(state.coef) @ left, intercept=turn @ state.intercept, dual=dual
    )
