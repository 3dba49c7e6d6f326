"""Searches whose vectors of n numbers stay with the blocks of the features.

They are for features on other machines: what a step brings back are sums, r numbers or
an r x r matrix, whatever n is. Rows far from every kink are not left out, and residuals
are computed anew at each point instead of following the steps.

A part holds the numbers of the rows of one block: targets, residuals, dual point. The
functions of a step take the block Z and the part; they return a new part, for parts are
never changed, and a tuple of sums, which are all that leaves the block.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from nbsketch.solvers._certified.problem import Certificate, gram_of
from nbsketch.solvers._certified.search import CertifiedSearch
from nbsketch.solvers._newton.directions import TermGrams, changes_pay
from nbsketch.solvers._newton.problem import NewtonProblem
from nbsketch.solvers._newton.search import NewtonSearch
from nbsketch.solvers._newton.smooth import SmoothSearch, curvature_gram
from nbsketch.solvers.design import ArrayDesign
from nbsketch.solvers.row_loss import row_loss, typical_limit
from nbsketch.solvers.solution import State

# Shifts of a dual point until its sum is zero to this share of its size.
_SHIFTS, _BALANCED = 8, 1e-15
# Losses that are brought back for their median.
_SAMPLED = 2048


class Shift(NamedTuple):
    """How a dual point is balanced: along its rates, then along ones."""

    rated: float = 0.0
    even: float = 0.0


@dataclass(frozen=True)
class Part:
    """Rows of one block; arrays over them are (1, rows).

    Attributes
    ----------
    problem : NewtonProblem
        The rows, without features.
    res : ndarray
        Residuals.
    center : ndarray
        Dual point around which the loss is smoothed.
    a, rate : ndarray
        Dual point, and how fast balancing may move it.
    counted : ndarray of bool
        Rows of the last Gram matrix.
    move : ndarray
        Change of the predictions along the last direction.
    """

    problem: NewtonProblem
    res: NDArray
    center: NDArray
    a: NDArray
    rate: NDArray
    counted: NDArray
    move: NDArray

    @classmethod
    def of(
        cls,
        y: NDArray,
        weights: NDArray | None,
        dual: NDArray | None,
        shared: NewtonProblem,
    ) -> Self:
        """Return the rows as a search begins; `shared` is the problem without rows."""
        assert shared.loss is not None
        problem = replace(
            shared, y=y, losses=row_loss(shared.loss, y), uniform=weights is None,
            weights=np.ones(len(y)) if weights is None else weights,
        )  # fmt: skip
        start = np.zeros(len(y)) if dual is None else dual
        start = np.clip(start.reshape(1, -1), *problem.bounds)
        nothing = np.empty((1, 0))
        none = np.zeros(start.shape, dtype=bool)
        return cls(problem, nothing, start, start, none, none, nothing)

    def balanced(self, shift: Shift) -> NDArray:
        """Return the dual point, shifted within its bounds."""
        bounds = self.problem.bounds
        a = self.a
        if shift.rated:
            a = np.clip(a - shift.rated * self.rate, *bounds)
        return np.clip(a - shift.even, *bounds) if shift.even else a

    def values(self) -> NDArray:
        """Return the loss of each row."""
        return self.problem.losses.values(self.res[0])

    def slopes(self, t: float, sigma: float) -> tuple[float, float]:
        """Return two derivatives of the loss sum along the last direction."""
        return self.problem.slopes(t, self.res, self.move, self.center, sigma)

    def with_features(self, Z: NDArray) -> NewtonProblem:
        """Return the problem of the rows, with features."""
        return replace(self.problem, design=ArrayDesign._trusted(Z))


def evaluated(
    Z: NDArray,
    part: Part,
    coef: NDArray,
    intercept: NDArray,
    sigma: float,
    recenter: bool,
) -> tuple[Part, tuple]:
    """Return the part at a point; sums: ``Z^T (s a)^T``, s a, Young terms, counts.

    The counts are the sum of the curvatures and, of a loss with kinks, the number of
    rows between them and of those that have changed since the last Gram matrix.
    """
    p = part.with_features(Z)
    center = part.a if recenter else part.center
    res = p.residual(coef, intercept)
    a, inside, totals, young = p.point(res, center, sigma)
    gradient = p.design.rmv(p.weighted(a).T)
    changed = np.count_nonzero(inside != part.counted)
    counts = inside @ p.weights, np.count_nonzero(inside), changed
    new = replace(part, res=res, center=center, a=a, rate=inside, move=np.empty((1, 0)))
    return new, (gradient, totals, young, *counts)


def gram_changes(
    Z: NDArray, part: Part, whole: bool, exact: bool
) -> tuple[Part, tuple]:
    """Return the part with its rows between kinks counted; the Gram matrix to add."""
    p = part.with_features(Z)
    inside = part.rate[0]
    counted = part.counted[0]
    gram = gram_of(p, np.flatnonzero(inside if whole else inside & ~counted), exact)
    if not whole:
        gram -= gram_of(p, np.flatnonzero(counted & ~inside), exact)
    return replace(part, counted=part.rate), (gram,)


def moved(
    Z: NDArray, part: Part, D: NDArray, shift: NDArray, sigma: float
) -> tuple[Part, tuple]:
    """Return the part with its move along a direction; two slopes at step 1."""
    new = replace(part, move=part.with_features(Z).predict(D, shift))
    return new, new.slopes(1.0, sigma)


def curvature_sums(Z: NDArray, part: Part) -> tuple:
    """Return the Gram matrix weighted by the curvatures, the intercept last."""
    return (curvature_gram(part.with_features(Z), part.rate),)


def hessian_product(Z: NDArray, part: Part, D: NDArray, shift: NDArray) -> tuple:
    """Return the sums of the curvatures times the predictions of a direction."""
    p = part.with_features(Z)
    change = p.curved(part.rate, p.predict(D, shift))
    return p.design.rmv(change.T), change.sum(axis=1)


def balance_sums(part: Part, shift: Shift, even: bool) -> tuple:
    """Return sums of the shifted dual point, and how fast it can go down and up."""
    p = part.problem
    a = part.balanced(shift)[0]
    lo, hi = part.problem.bounds
    rate = np.ones(len(a)) if even else part.rate[0]
    down, up = (p.weights @ (rate * room) for room in (a > lo[0], a < hi[0]))
    return float(p.weights @ a), float(p.weights @ np.abs(a)), float(down), float(up)


def positive_losses(part: Part, every: int) -> tuple[list[NDArray]]:
    """Return a list of the positive losses among every k-th row."""
    counted = part.problem.weights[::every] > 0
    losses = part.values()[::every]
    return ([losses[counted & (losses > 0)]],)


def certified(
    Z: NDArray, part: Part, shift: Shift, limit: float
) -> tuple[NDArray, tuple]:
    """Return the balanced dual point, and the sums of its certificate.

    These are the change of ``Z^T (s a)^T``, Young terms, losses, losses cut at `limit`,
    and s a.
    """
    p = part.with_features(Z)
    a = part.balanced(shift)
    losses = part.values()
    rows = np.flatnonzero(a[0] != part.a[0])
    step = p.weights[rows] * (a[:, rows] - part.a[:, rows])
    change = p.design.rmv(step.T, rows)
    capped = float(p.weights @ np.minimum(losses, limit))
    sums = p.young(part.res, a), float(p.weights @ losses), capped, a @ p.weights
    return a[0], (change, *sums)


class HeldRows:
    """A vector with one number for each row, which stays with the blocks.

    Parameters
    ----------
    parts : list
        What the design holds for each block.
    shape : tuple of int
        Shape of the vector.
    """

    def __init__(self, parts: list, shape: tuple[int, ...]) -> None:
        self.parts = parts
        self.shape = shape

    def reshape(self, *shape: int) -> HeldRows:
        """Return the same vector as a row or a column."""
        n = max(self.shape)
        return HeldRows(self.parts, tuple(n if k == -1 else k for k in shape))

    @property
    def T(self) -> HeldRows:
        """The vector with its axes in reverse order."""
        return HeldRows(self.parts, self.shape[::-1])


class ResidentSearch(CertifiedSearch[NewtonProblem]):
    """What both searches share: parts, line search, certificate."""

    def _first_residual(self) -> NDArray:
        return np.empty((1, 0))

    def _hold(self, state: State) -> None:
        """Send targets, weights and the dual point of a warm start to the blocks."""
        p = self.problem
        dual = state.dual
        if dual is not None:
            dual = dual.parts if isinstance(dual, HeldRows) else np.ravel(dual)
        shared = replace(
            p, design=ArrayDesign._trusted(np.empty((0, p.rank))), y=p.y[:0],
            weights=p.weights[:0], losses=p.losses.take(slice(0)),
        )  # fmt: skip
        vectors = p.y, None if p.uniform else p.weights, dual
        self.parts = p.design.hold(Part.of, vectors, shared)

    def _step(self, function: Any, *args: Any) -> tuple:
        """Replace the parts by those of a function; return its sums."""
        self.parts, sums = self.problem.design.step(function, self.parts, *args)
        return sums

    def _sums(self, function: Any, *args: Any) -> tuple:
        return self.problem.design.part_sums(function, self.parts, *args)

    def _advance(self, direction: NDArray, slope: float) -> bool:
        D, shift = self.problem.split(direction)
        first = self._step(moved, D, shift, self.sigma)

        def slopes(t: float) -> tuple[float, float]:
            return first if t == 1.0 else self._sums(Part.slopes, t, self.sigma)

        t = self._step_length(slopes, D, slope)
        self.coef = self.coef + t * D
        self.intercept = self.intercept + t * shift
        return t > 0

    def _certificate(self, gradient: NDArray) -> Certificate:
        """Return the certificate of the current point from ``Z^T (s a)^T``."""
        p = self.problem
        design = self.problem.design
        every = max(1, design.shape[0] // _SAMPLED)
        (losses,) = self._sums(positive_losses, every)
        limit = typical_limit(np.concatenate(losses))
        shift = self._balance() if p.fit_intercept else Shift()
        dual, (change, young, loss, capped, totals) = design.step(
            certified, self.parts, shift, limit
        )
        rho = p.alpha * self.coef - (gradient + change) / p.n
        young += float(np.abs(self.intercept * totals).sum())
        point = self.coef, self.intercept, HeldRows(dual, (1, design.shape[0]))
        return p.certificate(*point, rho, loss, capped, young)

    def _balance(self) -> Shift:
        """Return the shift that makes the weighted sum of the dual point zero."""
        shift = Shift()
        for even in (False, True):
            best = np.inf
            for _ in range(_SHIFTS):
                total, size, *rooms = self._sums(balance_sums, shift, even)
                rate = rooms[0] if total > 0 else rooms[1]
                if abs(total) <= _BALANCED * size or abs(total) > 0.5 * best:
                    return shift  # balanced, or as well as rounding allows
                if rate <= 0:
                    break
                best = abs(total)
                move = total / rate
                rated, level = shift
                shift = Shift(rated, level + move) if even else Shift(rated + move)
        return shift


@dataclass
class _Sums:
    """Sums over all rows at the current point, as `ActiveRows` has them."""

    gradient: NDArray
    totals: NDArray
    young: float
    mass: NDArray
    count: int
    changed: int
    rows: None = None


class ResidentNewtonSearch(ResidentSearch, NewtonSearch):
    """The search for linear-quadratic losses; see `NewtonSearch`."""

    def _begin(self, state: State) -> Certificate:
        self._hold(state)
        self.sigma = self._first_sigma(state)
        self.gram = TermGrams(self.problem)
        self._evaluate()
        return self._certify()

    def _spread(self) -> float:
        return self.problem.spread_at(self.coef, self.intercept)

    def _start_round(self) -> None:
        """Keep all rows."""

    def _evaluate(self, recenter: bool = False) -> bool:
        point = self.coef, self.intercept, self.sigma, recenter
        self.active: Any = _Sums(*self._step(evaluated, *point))
        return True

    def _direction(self, rho: NDArray) -> NDArray:
        p = self.problem
        gram = self.gram
        factor = 1.0 / (p.n * (p.losses.gam + self.sigma))
        self._count(not changes_pay(self.active.changed, self.active.count))
        for _ in range(2):
            try:
                return gram.direction(rho, factor)
            except np.linalg.LinAlgError:  # updates have drifted, or alpha is tiny
                gram.exact = True
                self._count(True)
        return gram.clipped_direction(rho, factor)

    def _count(self, whole: bool) -> None:
        """Bring the Gram matrix up to date, by its changes or as a whole."""
        if whole or self.active.changed:
            (change,) = self._step(gram_changes, whole, self.gram.exact)
            self.gram.matrices = change[None] + (0.0 if whole else self.gram.matrices)
            self.active.changed = 0

    def _step_certificate(self) -> Certificate | None:
        return self._certify()

    def _certify(self) -> Certificate:
        return self._certificate(self.active.gradient)

    def _next_round(self, settled: bool) -> None:
        moves = self.sigma > 0 and settled
        if moves:
            self.sigma = self._smaller()
        else:
            self.sigma *= 2.0
            self.gram.exact = True
        self._evaluate(recenter=moves)

    def _state(self) -> State:
        best = self.best
        return State(best.coef, best.intercept, best.dual.T, self.sigma or None)


class ResidentSmoothSearch(ResidentSearch, SmoothSearch):
    """The search for losses without kinks; see `SmoothSearch`."""

    def _begin(self, state: State) -> Certificate:
        self._hold(state)
        return super()._begin(state)

    def _evaluate(self) -> bool:
        point = self.coef, self.intercept, 0.0, False
        gradient, totals, _, curvature, *_ = self._step(evaluated, *point)
        self._set_gradient(gradient, totals, curvature)
        return True

    def _curvature_gram(self) -> NDArray:
        return self.problem.design.sums(curvature_sums, self.parts)[0]

    def _hessian_product(self, direction: NDArray) -> tuple[NDArray, NDArray]:
        p = self.problem
        D, shift = self.problem.split(direction)
        gradient, total = p.design.sums(hessian_product, self.parts, D, shift)
        nothing = np.zeros(1)  # the move stays with the blocks
        return p.flat(gradient / p.n + p.alpha * D, total / p.n), nothing

    def _point_certificate(self) -> Certificate:
        return self._certificate(self.gradient)

    def _certify(self) -> Certificate:
        return self._point_certificate()
