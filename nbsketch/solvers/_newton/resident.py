"""Searches whose vectors of n numbers stay with the blocks of the features.

They are for features on other machines: what a step brings back are sums, r numbers or
an r x r matrix, whatever n is. Rows far from every kink are not left out, and residuals
are computed anew at each point instead of following the steps.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nbsketch.solvers._certified.problem import Certificate
from nbsketch.solvers._certified.search import CertifiedSearch
from nbsketch.solvers._newton import parts
from nbsketch.solvers._newton.directions import TermGrams, changes_pay
from nbsketch.solvers._newton.parts import Part, Shift
from nbsketch.solvers._newton.problem import NewtonProblem
from nbsketch.solvers._newton.search import NewtonSearch
from nbsketch.solvers._newton.smooth import SmoothSearch
from nbsketch.solvers.design import ArrayDesign
from nbsketch.solvers.row_loss import typical_limit
from nbsketch.solvers.solution import State

# Shifts of a dual point until its sum is zero to this share of its size.
_SHIFTS, _BALANCED = 8, 1e-15
# Losses that are brought back for their median.
_SAMPLED = 2048


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
        self.parts, self.shape = parts, shape

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
        p, dual = self.problem, state.dual
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
        first = self._step(parts.moved, D, shift, self.sigma)

        def slopes(t: float) -> tuple[float, float]:
            return first if t == 1.0 else self._sums(parts.slopes, t, self.sigma)

        t = self._step_length(slopes, D, slope)
        self.coef = self.coef + t * D
        self.intercept = self.intercept + t * shift
        return t > 0

    def _certificate(self, gradient: NDArray) -> Certificate:
        """Return the certificate of the current point from ``Z^T (s a)^T``."""
        p, design = self.problem, self.problem.design
        every = max(1, design.shape[0] // _SAMPLED)
        (losses,) = self._sums(parts.positive_losses, every)
        limit = typical_limit(np.concatenate(losses))
        shift = self._balance() if p.fit_intercept else Shift()
        dual, (change, young, loss, capped, totals) = design.step(
            parts.certified, self.parts, shift, limit
        )
        rho = p.alpha * self.coef - (gradient + change) / p.n
        young += float(np.abs(self.intercept * totals).sum())
        penalty = p.alpha / 2 * float(np.vdot(self.coef, self.coef))
        gap = young / p.n + float(np.vdot(rho, rho)) / (2 * p.alpha)
        return Certificate(
            self.coef, self.intercept, HeldRows(dual, (1, design.shape[0])),
            loss / p.n + penalty, gap, capped / p.n + penalty,
        )  # fmt: skip

    def _balance(self) -> Shift:
        """Return the shift that makes the weighted sum of the dual point zero."""
        shift = Shift()
        for even in (False, True):
            best = np.inf
            for _ in range(_SHIFTS):
                total, size, *rooms = self._sums(parts.balance_sums, shift, even)
                rate = rooms[0] if total > 0 else rooms[1]
                if abs(total) <= _BALANCED * size or abs(total) > 0.5 * best:
                    return shift  # balanced, or as well as rounding allows
                if rate <= 0:
                    break
                best, move = abs(total), total / rate
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
        self.active: Any = _Sums(*self._step(parts.evaluated, *point))
        return True

    def _direction(self, rho: NDArray) -> NDArray:
        p, gram = self.problem, self.gram
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
            (change,) = self._step(parts.gram_changes, whole, self.gram.exact)
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
        gradient, totals, _, curvature, *_ = self._step(parts.evaluated, *point)
        self._set_gradient(gradient, totals, curvature)
        return True

    def _curvature_sums(self) -> tuple:
        return self.problem.design.sums(parts.curvature_sums, self.parts)

    def _hessian_product(self, direction: NDArray) -> tuple[NDArray, NDArray]:
        p, (D, shift) = self.problem, self.problem.split(direction)
        gradient, total = p.design.sums(parts.hessian_product, self.parts, D, shift)
        nothing = np.zeros(1)  # the move stays with the blocks
        return p.flat(gradient / p.n + p.alpha * D, total / p.n), nothing

    def _step_certificate(self) -> Certificate:
        return self._certificate(self.gradient)

    def _certify(self) -> Certificate:
        return self._step_certificate()
