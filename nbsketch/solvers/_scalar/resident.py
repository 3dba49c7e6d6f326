"""Searches whose vectors of n numbers stay with the blocks of the features.

They are for features on other machines: what a step brings back are sums, r numbers or
an r x r matrix, whatever n is. Rows far from every kink are not left out, and residuals
are computed anew at each point instead of following the steps.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nbsketch.solvers._certified.certificate import Certificate
from nbsketch.solvers._certified.search import CertifiedSearch
from nbsketch.solvers._scalar import parts
from nbsketch.solvers._scalar.gram import RowGram, changes_pay
from nbsketch.solvers._scalar.parts import Part, Shared, Shift
from nbsketch.solvers._scalar.problem import ScalarProblem
from nbsketch.solvers._scalar.search import ScalarSearch
from nbsketch.solvers._scalar.smooth import SmoothSearch, bordered
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
    n : int
        Number of rows.
    """

    def __init__(self, parts: list, n: int) -> None:
        self.parts, self.shape = parts, (n,)


class ResidentSearch(CertifiedSearch[ScalarProblem]):
    """What both searches share: parts, line search, certificate."""

    def _first_residual(self) -> NDArray:
        return np.empty(0)

    def _hold(self, state: State) -> None:
        """Send targets, weights and the dual point of a warm start to the blocks."""
        p = self.problem
        dual: Any = state.dual
        known = dual.parts if isinstance(dual, HeldRows) else None
        shared = Shared(p.loss, p.alpha, p.fit_intercept, p.n, p.rank)
        vectors = p.y, None if p.uniform else p.weights, None if known else dual
        self.parts = p.design.hold(Part.of, vectors, known, shared)

    def _step(self, function: Any, *args: Any) -> tuple:
        """Replace the parts by those of a function; return its sums."""
        self.parts, sums = self.problem.design.step(function, self.parts, *args)
        return sums

    def _sums(self, function: Any, *args: Any) -> tuple:
        return self.problem.design.part_sums(function, self.parts, *args)

    def _advance(self, direction: NDArray, slope: float) -> bool:
        p, d = self.problem, direction[: self.problem.rank]
        shift = float(direction[-1]) if p.fit_intercept else 0.0
        first = self._step(parts.moved, d, shift, self.sigma)

        def slopes(t: float) -> tuple[float, float]:
            return first if t == 1.0 else self._sums(parts.slopes, t, self.sigma)

        t = self._step_length(slopes, d, slope)
        self.coef = self.coef + t * d
        self.intercept += t * shift
        return t > 0

    def _certificate(self, gradient: NDArray) -> Certificate:
        """Return the certificate of the current point; `gradient` is ``Z^T (s a)``."""
        p, design = self.problem, self.problem.design
        every = max(1, p.design.shape[0] // _SAMPLED)
        found = design.part_values(parts.positive_losses, self.parts, every)
        limit = typical_limit(np.concatenate(found))
        shift = self._balance() if p.fit_intercept else Shift()
        known = self.parts, shift, limit
        dual, (change, young, losses, capped, total) = design.step(
            parts.certified, *known
        )
        rho = p.alpha * self.coef - (gradient + change) / p.n
        young += abs(self.intercept * total) if p.fit_intercept else 0.0
        penalty = p.alpha / 2 * float(self.coef @ self.coef)
        return Certificate(
            self.coef, self.intercept, HeldRows(dual, design.shape[0]),
            losses / p.n + penalty, young / p.n + float(rho @ rho) / (2 * p.alpha),
            capped / p.n + penalty,
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
                paced, level = shift
                shift = Shift(paced, level + move) if even else Shift(paced + move)
        return shift


@dataclass
class _Sums:
    """Sums over all rows at the current point, as `ActiveRows` has them."""

    gradient: NDArray
    total: float
    young: float
    held: float
    count: int
    changed: int
    rows: None = None


class ResidentScalarSearch(ResidentSearch, ScalarSearch):
    """The search for linear-quadratic losses; see `ScalarSearch`."""

    def _begin(self, state: State) -> None:
        self._hold(state)
        self.sigma = self._first_sigma(state)
        self.gram = RowGram(self.problem)
        self._evaluate()

    def _spread(self) -> float:
        return self.problem.spread_at(self.coef, self.intercept)

    def _first_certificate(self, state: State) -> Certificate:
        return self._certify()

    def _start_round(self) -> None:
        """Keep all rows."""

    def _evaluate(self, recenter: bool = False) -> bool:
        known = self.coef, self.intercept, self.sigma, recenter
        self.active: Any = _Sums(*self._step(parts.evaluated, *known))
        return True

    def _direction(self, rho: NDArray) -> NDArray:
        p, gram = self.problem, self.gram
        factor = 1.0 / (p.n * (p.rows.gam + self.sigma))
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
            (found,) = self._step(parts.gram_changes, whole, self.gram.exact)
            self.gram.matrix = found if whole else self.gram.matrix + found
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
        return State(best.coef, best.intercept, best.dual, self.sigma or None)


class ResidentSmoothSearch(ResidentSearch, SmoothSearch):
    """The search for losses without kinks; see `SmoothSearch`."""

    def _begin(self, state: State) -> None:
        self._hold(state)
        self._start_matrix(state)
        self._evaluate()

    def _evaluate(self) -> bool:
        known = self.coef, self.intercept, 0.0, False
        gradient, total, _, bend, *_ = self._step(parts.evaluated, *known)
        self._set_gradient(gradient, total, bend)
        return True

    def _hessian(self) -> NDArray:
        p = self.problem
        sums = p.design.sums(parts.hessian, self.parts)
        return bordered(p, *sums)

    def _hessian_product(self, direction: NDArray) -> tuple[NDArray, NDArray]:
        p, d = self.problem, direction[: self.problem.rank]
        shift = float(direction[-1]) if p.fit_intercept else 0.0
        pulled, total = p.design.sums(parts.hessian_product, self.parts, d, shift)
        image = pulled / p.n + p.alpha * d
        nothing = np.zeros(1)  # the move stays with the blocks
        return np.append(image, total / p.n) if p.fit_intercept else image, nothing

    def _step_certificate(self) -> Certificate:
        return self._certificate(self.gradient)

    def _certify(self) -> Certificate:
        return self._step_certificate()
