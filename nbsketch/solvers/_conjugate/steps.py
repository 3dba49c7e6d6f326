"""Flexible preconditioned conjugate gradients for the normal equations of a sketch."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nbsketch.solvers._conjugate.normal import SketchedSystem
from nbsketch.solvers._conjugate.search import Limits, dots

# A certificate that exceeds the estimate asks for a sharper estimate, so many times.
_ROUNDS = 4


class NormalSearch:
    """Conjugate gradients from coefficients G (s, d) until certified."""

    def __init__(
        self,
        system: SketchedSystem,
        start: NDArray | None,
        limits: Limits,
        callback: Callable[[int, float, float, float], Any] | None,
    ) -> None:
        self.system, self._limits, self._callback = system, limits, callback
        self._began, self.n_passes = perf_counter(), 1  # one was for the targets
        self.stopped = False
        self.G = np.zeros(system.right.shape)
        self.R = system.right.copy()
        if start is not None:
            self.G = start.copy()
            self._renew()

    def run(self) -> NDArray:
        """Search, and return certified gaps."""
        tol = np.full(self.system.d, self._limits.tol)
        for _ in range(_ROUNDS):
            if self._descend(tol):
                self._renew()
            enough = self._limits.tol * self._objective()
            gaps = self.system.certify(self.R, enough)
            late = gaps > enough
            if not late.any() or not self._has_time():
                break
            tol[late] /= 8
        return gaps

    def _renew(self) -> None:
        """Compute the residual from the coefficients."""
        everything = np.arange(self.system.d)
        self.R = self.system.right - self._multiply(self.G, everything)

    def _objective(self) -> NDArray:
        return self.system.objective(self.G, self.R)

    def _has_time(self) -> bool:
        used = perf_counter() - self._began
        # One pass is kept for the residual at the end.
        in_time = used * (1 + 2 / self.n_passes) <= self._limits.seconds
        spent = self.stopped or self.n_passes + 2 > self._limits.passes
        return in_time and not spent

    def _multiply(self, V: NDArray, columns: NDArray) -> NDArray:
        self.n_passes += 1
        return self.system.apply(V, columns)

    def _descend(self, tol: NDArray) -> bool:
        """Step until estimated gaps are small enough; return if a step was made."""
        before = self.n_passes
        live = np.flatnonzero(np.abs(self.R).max(axis=0) > 0)
        Z = self.system.precondition(self.R[:, live], live)
        D, slope = Z, dots(self.R[:, live], Z)
        while True:
            keep = self._late(Z, live, tol) & (slope > 0)
            if not keep.any() or not self._has_time():
                return self.n_passes > before
            live, D, slope = live[keep], D[:, keep], slope[keep]
            Q = self._multiply(D, live)
            size = slope / dots(D, Q)
            old = self.R[:, live]
            self.G[:, live] += size * D
            self.R[:, live] = old - size * Q
            Z = self.system.precondition(self.R[:, live], live)
            new = dots(self.R[:, live], Z)
            beta = np.maximum((new - dots(old, Z)) / slope, 0)
            D, slope = Z + beta * D, new

    def _late(self, Z: NDArray, live: NDArray, tol: NDArray) -> NDArray:
        """Return which of the live columns have not reached their tolerance."""
        gaps = self.system.estimate(self.R, Z, live)
        objective = self._objective()
        if self._callback is not None:
            seconds = perf_counter() - self._began
            total = float(objective.sum())
            known = total, float(gaps.sum()), seconds
            self.stopped |= bool(self._callback(self.n_passes, *known))
        return gaps > tol[live] * objective[live]
