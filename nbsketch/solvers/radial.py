"""Certified solver of vector-valued regression with a loss of the residual's norm.

The outputs are turned so that the factor of the output matrix is diagonal: norms do
not change, and every output has its own scale. For any W, b and any a with rows of
length at most hi and ``sum_i s_i a_i = 0`` (if b is free),

    P(W, b) - D(a) = sum_i s_i [phi(|r_i|) + phi*(|a_i|) - a_i . r_i] / n
                     + |alpha W - Z^T (s a) diag(t) / n|^2 / (2 alpha),

a sum of terms that are at least 0.

The search takes semismooth Newton steps with conjugate gradients. Huber, square and
squared epsilon-insensitive losses are smooth and take plain steps. The
epsilon-insensitive loss is smoothed by sigma around the current dual point, which moves
to the new slope as sigma shrinks. The Newton matrix is never formed: conjugate
gradients take two products with the features per iteration.

In an approximate inverse of that matrix every row gets one curvature in all directions,
so that outputs separate: with the (weighted, centered) Gram matrix ``V diag(e) V^T`` of
the features, the inverse for an output of scale t is
``V diag(1 / (t^2 e + alpha)) V^T``. A few rows, those at the kink of a smoothed loss,
are far stiffer along their residual than across it. The Woodbury identity corrects for
them.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import cho_factor, cho_solve

from nbsketch._jit import radial as jit
from nbsketch.losses import ELQ, as_loss
from nbsketch.solvers._certified import checks
from nbsketch.solvers._certified.problem import Certificate, Problem
from nbsketch.solvers._certified.search import Callback, CertifiedSearch, minimize
from nbsketch.solvers._linear.conjugate_gradients import conjugate_gradients
from nbsketch.solvers.design import Design, as_design
from nbsketch.solvers.solution import Solution, State

# A free intercept shifts the dual point where it lies between the kinks, if that takes
# less than this share of the bound, else everywhere.
_SLIGHT = 0.1
_STIFF = 4.0  # times as much curvature along the residual as across it
_NOTHING = 1e-9
_MOST = 1000  # stiff rows: the correction solves a system of that size
_SHRINK = 0.3  # of sigma
_SIZE = 0.05  # of the typical residual: the first sigma
_EASY, _ROUGH, _FINE = 3, 0.1, 0.01  # residuals of the first linear systems, and others
_PIVOT = 1e-3  # rows' worth of curvature for an intercept without any
_MOST_PRODUCTS = 100  # for one linear system


@dataclass(frozen=True, kw_only=True)
class RadialProblem(Problem):
    """Minimize ``sum_i s_i phi(|Y_i - (Z W)_i t - b|) / n + (alpha / 2) |W|^2``.

    t scales the outputs, one by one; those after the last entry of t have b only.
    """

    row_arrays: ClassVar[tuple[str, ...]] = ("Y", "weights")

    Y: NDArray
    numbers: ELQ
    t: NDArray

    @property
    def shapes(self) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        """Shapes of the coefficients, the intercept and the dual point."""
        return (self.rank, len(self.t)), self.Y.shape[1:], self.Y.shape

    @property
    def radial_numbers(self) -> tuple[float, float, float]:
        """The numbers gam, eps and hi of the conjugate."""
        return self.numbers.gam, self.numbers.eps, self.numbers.hi

    def predict(self, W: NDArray, b: NDArray) -> NDArray:
        """Return ``Z W t + b``, of shape (n, d)."""
        if not W.any():
            return np.tile(b, (len(self.Y), 1))
        scaled = np.zeros((self.rank, len(b)))
        scaled[:, : len(self.t)] = W * self.t
        out = self.design.mv(scaled)
        if b.any():
            out += b
        return out

    def transposed(self, A: NDArray) -> NDArray:
        """Return ``Z^T A`` scaled by t, the adjoint of `predict` in W."""
        return self.design.rmv(A)[:, : len(self.t)] * self.t

    def bounded(self, a: NDArray) -> NDArray:
        """Return `a` with its rows cut to the bound on their length."""
        size = np.sqrt(np.einsum("ij,ij->i", a, a))
        return a * np.minimum(1.0, self.numbers.hi / np.maximum(size, 1e-300))[:, None]

    def residual(self, coef: NDArray, intercept: NDArray) -> NDArray:
        """Return ``Y - Z W t - b``."""
        return self.Y - self.predict(coef, intercept)

    def sizes(self, res: NDArray) -> NDArray:
        """Return the norms of the residuals of the rows of positive weight."""
        return np.linalg.norm(res[self.weights > 0], axis=1)

    def best_constant(self) -> Any:
        """Return the medians of the outputs."""
        return self.target_quantile(self.Y, 0.5)

    def certify(
        self,
        W: NDArray,
        b: NDArray,
        res: NDArray,
        a: NDArray,
        between: NDArray,
        gradient: NDArray,
    ) -> Certificate:
        """Return the certificate of (W, b) and a.

        `between` marks the rows between kinks, and `gradient` is ``Z^T (s a)``, scaled
        by t.
        """
        imbalance = np.zeros(len(b))
        if self.fit_intercept:
            a, gradient = self._balanced(a, between, gradient)
            imbalance = self.weights @ a
        rho = self.alpha * W - gradient / self.n
        young = jit.radial_young(res, self.weights, a, *self.radial_numbers)
        young += float(np.abs(b * imbalance).sum())
        losses = self.numbers.value(np.sqrt(np.einsum("ij,ij->i", res, res)))
        return self.certificate(W, b, a.copy(), rho, losses, young)

    def _balanced(
        self, a: NDArray, between: NDArray, gradient: NDArray
    ) -> tuple[NDArray, NDArray]:
        """Return `a` with a weighted sum of zero, and what ``Z^T (s a)`` becomes.

        It is shifted, and then shrunk if that broke a bound.
        """
        weights, hi = self.weights, self.numbers.hi
        total, room = weights @ a, weights @ between
        if not total.any():
            return a, gradient
        rate, mass = np.ones(len(a)), weights.sum()
        if room > 0 and np.linalg.norm(total) <= _SLIGHT * hi * room:
            rate, mass = between, room
        shift = total / mass
        a = a - rate[:, None] * shift
        k = len(self.t)
        gradient = gradient - np.outer(
            self.design.rmv(weights * rate), shift[:k] * self.t
        )
        longest = float(np.sqrt(np.einsum("ij,ij->i", a, a).max()))
        shrink = hi / longest if longest > hi else 1.0
        return shrink * a, shrink * gradient


class KroneckerInverse:
    """Approximate inverse, applied by `solve` to a right side (W part, b part).

    An intercept has no penalty: `lift` is what to add to its curvature, `pivot` if no
    row has any.
    """

    def __init__(
        self,
        problem: RadialProblem,
        unit: NDArray,
        across: NDArray,
        along: NDArray,
        pivot: float,
    ) -> None:
        p, d = problem, unit.shape[1]
        self.problem = p
        curvature = ((d - 1) * across + along) / d
        stiff = np.flatnonzero((along > _STIFF * across) & (p.weights > 0))
        if d == 1 or len(stiff) > _MOST:
            stiff = stiff[:0]
        curvature[stiff] = across[stiff]
        weights = p.weights * curvature / p.n
        mass = float(weights.sum())
        self.lift = pivot if mass <= _NOTHING * pivot else 0.0
        self.mass = mass + self.lift
        self._set_base(weights)
        self.stiff = len(stiff)
        if self.stiff:
            self.unit = unit[stiff]
            self.rows = p.design.gather(stiff)
            self._set_correction(p.n / (p.weights * (along - across))[stiff])

    def _set_base(self, weights: NDArray) -> None:
        p = self.problem
        gram = p.design.gram(None, weights, exact=False)
        self.mean = np.zeros(p.rank)
        if p.fit_intercept:
            self.mean = p.design.rmv(weights) / self.mass
            gram -= self.mass * np.outer(self.mean, self.mean)
        values, self.vectors = np.linalg.eigh(gram)
        self.values = np.maximum(values, 0.0)
        self.inverse = 1.0 / (self.values[:, None] * p.t**2 + p.alpha)

    def _set_correction(self, compliance: NDArray) -> None:
        p, rows = self.problem, self.rows
        Z = rows.mv(self.vectors) - self.mean @ self.vectors
        inner = np.diag(compliance)
        for t in np.unique(p.t):  # outputs of one scale share a product
            same = np.flatnonzero(p.t == t)
            U = self.unit[:, same]
            inner += (U @ U.T) * ((Z * (t**2 * self.inverse[:, same[0]])) @ Z.T)
        if p.fit_intercept:
            inner += self.unit @ self.unit.T / self.mass
        self.factor = cho_factor(inner, overwrite_a=True, check_finite=False)

    def solve(self, G: NDArray, g: NDArray) -> tuple[NDArray, NDArray]:
        """Return the approximate solution (W, b) for the right side (G, g)."""
        W, b = self._base(G, g)
        if not self.stiff:
            return W, b
        p, k = self.problem, len(self.problem.t)
        along = np.einsum("ij,ij->i", self.unit[:, :k], self.rows.mv(W * p.t))
        if p.fit_intercept:
            along += self.unit @ b
        weighted = (
            cho_solve(self.factor, along, check_finite=False)[:, None] * self.unit
        )
        W_off, b_off = self._base(
            self.rows.rmv(weighted)[:, :k] * p.t, weighted.sum(axis=0)
        )
        return W - W_off, b - b_off

    def _base(self, G: NDArray, g: NDArray) -> tuple[NDArray, NDArray]:
        t, k = self.problem.t, len(self.problem.t)
        if self.problem.fit_intercept:
            G = G - np.outer(self.mean, t * g[:k])
        W = self.vectors @ ((self.vectors.T @ G) * self.inverse)
        if not self.problem.fit_intercept:
            return W, np.zeros_like(g)
        b = g / self.mass
        b[:k] -= t * (self.mean @ W)
        return W, b


class RadialSearch(CertifiedSearch[RadialProblem]):
    """The search for losses of the norm; arrays over the rows are (n, d).

    Attributes
    ----------
    center : ndarray of shape (n, d)
        Dual point around which the loss is smoothed.
    a, unit : ndarray of shape (n, d)
        Dual point, and the direction of its rows.
    across, along : ndarray of shape (n,)
        Curvature of the smoothed loss across and along that direction.
    young : float
        Sum of the weighted Fenchel-Young terms.
    gradient : ndarray
        ``Z^T (s a)`` scaled by t, in the shape of `coef`.
    rho : ndarray
        Gradient of the smoothed objective, flat, that of the intercept last.
    inverse : KroneckerInverse or None
        The preconditioner.
    products : int
        Products in the last call of conjugate gradients.
    move : ndarray of shape (n, d)
        Change of the predictions along the last direction.
    """

    patience: ClassVar[int] = 12

    def _begin(self, state: State) -> Certificate:
        p, (n, d) = self.problem, self.problem.Y.shape
        self.center = np.zeros((n, d))
        if state.dual is not None:
            self.center = p.bounded(state.dual)
        self.sigma = self._first_sigma(state)
        self.a, self.unit = np.empty((n, d)), np.empty((n, d))
        self.across, self.along = np.empty(n), np.empty(n)
        self.inverse: KroneckerInverse | None = None
        self.products = 0
        self._evaluate()
        if state.dual is None:
            return self._point_certificate()
        gradient = p.transposed(p.weights[:, None] * self.center)
        point = self.coef, self.intercept, self.res, self.center
        return p.certify(*point, np.zeros(n), gradient)

    def _first_sigma(self, state: State) -> float:
        if self.problem.numbers.gam > 0:
            return 0.0
        if state.sigma is not None:
            return state.sigma
        return max(_SIZE * self.problem.spread(self.res), 1e-300)

    def _evaluate(self) -> bool:
        p = self.problem
        self.young = jit.radial_point(
            self.res, p.weights, self.center, *p.radial_numbers, self.sigma,
            self.a, self.unit, self.across, self.along,
        )  # fmt: skip
        weighted = p.weights[:, None] * self.a
        self.gradient = p.transposed(weighted)
        rho = p.alpha * self.coef - self.gradient / p.n
        self.rho = p.flat(rho, -weighted.sum(axis=0) / p.n)
        return True

    def _gradient(self) -> NDArray:
        return self.rho

    def _gap_parts(self, rho: NDArray) -> tuple[float, float]:
        p, (rho_W, rho_b) = self.problem, self.problem.split(rho)
        error = float(np.vdot(rho_W, rho_W)) / (2 * p.alpha)
        if p.fit_intercept:
            free = max(float(p.weights @ self.across) / p.n, 1e-300)
            error += float(rho_b @ rho_b) / (2 * free)
        return error, self.young / p.n

    def _direction(self, rho: NDArray) -> NDArray:
        p, inverse = self.problem, self._preconditioner()
        accuracy = _ROUGH if self.steps < _EASY else _FINE
        step, self.move, self.products = conjugate_gradients(
            lambda flat: self._newton_product(flat, inverse.lift),
            lambda flat: p.flat(*inverse.solve(*p.split(flat))),
            -rho, accuracy, _MOST_PRODUCTS,
        )  # fmt: skip
        return step

    def _preconditioner(self) -> KroneckerInverse:
        """Return the preconditioner, the last one as long as it serves."""
        changing = self.sigma > 0 or self.steps < 2 or self.products > 2
        if self.inverse is None or changing:
            p = self.problem
            pivot = _PIVOT / (p.n * (p.numbers.gam + self.sigma))
            self.inverse = KroneckerInverse(
                p, self.unit, self.across, self.along, pivot
            )
        return self.inverse

    def _newton_product(self, flat: NDArray, lift: float) -> tuple[NDArray, NDArray]:
        p, (P, q) = self.problem, self.problem.split(flat)
        forward = p.predict(P, q)
        weighted = np.empty_like(forward)
        across, along = p.weights * self.across, p.weights * self.along
        jit.times_curvature(forward, self.unit, across, along, weighted)
        back = weighted.sum(axis=0) / p.n + lift * q
        return p.flat(p.transposed(weighted) / p.n + p.alpha * P, back), forward

    def _advance(self, direction: NDArray, slope: float) -> bool:
        p, (D, shift) = self.problem, self.problem.split(direction)

        def slopes(t: float) -> tuple[float, float]:
            return jit.radial_slope(
                t, self.res, self.move, p.weights, self.center, *p.radial_numbers,
                self.sigma,
            )  # fmt: skip

        t = self._step_length(slopes, D, slope)
        self.coef = self.coef + t * D
        self.intercept = self.intercept + t * shift
        self.res = self.res - t * self.move
        return t > 0

    def _step_certificate(self) -> Certificate | None:
        return None if self.sigma > 0 else self._point_certificate()

    def _point_certificate(self) -> Certificate:
        between = (self.along > 0).astype(float)
        point = self.coef, self.intercept, self.res, self.a
        return self.problem.certify(*point, between, self.gradient)

    def _certify(self) -> Certificate:
        self.res = self.problem.residual(self.coef, self.intercept)
        return self._point_certificate()

    def _has_stalled(self, before: int, settled: bool) -> bool:
        stuck = self.sigma == 0 and self.steps == before and not settled
        return stuck or super()._has_stalled(before, settled)

    def _next_round(self, settled: bool) -> None:
        if self.sigma > 0 and settled:
            self.center = self.a.copy()
            self.sigma *= _SHRINK
        else:
            self.sigma *= 2.0
        self._evaluate()

    def _state(self) -> State:
        best = self.best
        return State(best.coef, best.intercept, best.dual, self.sigma or None)


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
        Penalty. Positive.
    sample_weight : array_like of shape (n,), optional
        The weights s, at least 0. They are used as they are: scale them to mean one.
    fit_intercept : bool, default=True
        Whether to fit b, which is not penalized.
    tol : float, default=1e-6
        Stop when the certified gap is at most this share of the objective, in which
        losses above 20 times their median are cut down.
    max_iter : int, default=1000
        Largest number of Newton steps.
    state : State, optional
        Solution of a similar problem, to start from. Default: solutions of nested
        random samples of the rows, or zero if there are few rows.
    callback : callable, optional
        Called as ``callback(iteration, objective, gap, seconds)`` at each certificate;
        if it returns true, the search ends with the best solution so far.

    Returns
    -------
    Solution
        With `coef` of shape (r, d'), `intercept` (d,), `dual` (n, d), and ``converged``
        False if `max_iter` ended the search.

    Notes
    -----
    Newton's method with conjugate gradients, preconditioned by an eigendecomposition of
    the weighted Gram matrix that serves all outputs. The epsilon-insensitive loss is
    reached through smoothed ones, in a proximal method on the dual.

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
    design, loss, T = as_design(design), as_loss(loss).check_radial(), checks.factor(T)
    n, d = design.shape[0], T.shape[1]
    Y = checks.targets("Y", Y, (n, d))
    # T = left diag(t) turn: with outputs turned by `turn` the factor is diagonal
    left, t, turn = np.linalg.svd(T)
    left = left[:, : len(t)]
    numbers = loss.linear_quadratic()
    problem = RadialProblem.of(
        design, alpha, sample_weight, fit_intercept, Y=Y @ turn.T, numbers=numbers, t=t
    )
    if state is not None:
        checks.state(state, (design.shape[1], len(T)), (d,), (n, d))
        state = _turned(state, left, turn)
    solution = minimize(problem, RadialSearch, tol, max_iter, state, callback)
    assert solution.state is not None  # a search ends with a state and a dual point
    last = _turned(solution.state, left.T, turn.T)
    return solution._replace(
        coef=last.coef,
        intercept=last.intercept,
        dual=np.asarray(solution.dual) @ turn,
        state=last,
    )


def _turned(state: State, left: NDArray, turn: NDArray) -> State:
    """Return the state in the outputs turned by `turn`."""
    dual = None if state.dual is None else np.ascontiguousarray(state.dual @ turn.T)
    return state._replace(
        coef=np.asarray(state.coef) @ left, intercept=turn @ state.intercept, dual=dual
    )
