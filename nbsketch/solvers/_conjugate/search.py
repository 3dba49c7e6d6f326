"""Flexible preconditioned conjugate gradients on several columns, each at its pace."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nbsketch._validation import check_integer, check_positive, check_real
from nbsketch.solvers._conjugate.preconditioner import Preconditioner
from nbsketch.solvers._conjugate.problem import ColumnGaps, KernelSystem

Report = Callable[[int, ColumnGaps], Any]  # returns true to stop


class Limits(NamedTuple):
    """When to stop: relative gap, products with K, and seconds."""

    tol: float
    passes: int
    seconds: float

    @classmethod
    def checked(cls, tol: float, max_passes: int, max_seconds: float) -> Limits:
        """Return the limits of a public solver, by the names of its arguments."""
        return cls(
            check_positive("tol", tol),
            check_integer("max_passes", max_passes, low=3),
            check_real("max_seconds", max_seconds, low=0),
        )


class ConjugateSearch:
    """Conjugate gradients from coefficients A (n, d), until certified or out of budget.

    Columns that have converged stay as they are. The certificate is computed from the
    residual, which is made anew before a result is declared.
    """

    def __init__(
        self,
        system: KernelSystem,
        preconditioner: Preconditioner,
        start: NDArray | None,
        limits: Limits,
        report: Report | None = None,
    ) -> None:
        self.system, self._limits, self._report = system, limits, report
        self._preconditioner = preconditioner
        self._began, self.n_passes, self.stopped = perf_counter(), 0, False
        self.A = np.zeros(system.Y.shape)
        self.fitted = np.zeros(system.Y.shape)  # K A
        if start is not None:
            self.A = system.project(start)
            self.fitted = self._multiply(self.A)
        self.certificate = system.certify(self.A, self.fitted)
        self._stuck = np.zeros(system.d, dtype=bool)

    def run(self) -> ColumnGaps:
        """Search, and return the certificate of A from a residual made anew."""
        while self._live().any() and self._has_time():
            before = self.certificate
            self._descend()
            self.fitted = self._multiply(self.A)
            self.certificate = self.system.certify(self.A, self.fitted)
            # Rounding ends the search where a restart from the true residual gains
            # nothing.
            self._stuck |= ~(self.certificate.gap < before.gap / 2)
        return self.certificate

    def _live(self) -> NDArray:
        """Return the columns that have not converged and can get better."""
        found = self.certificate
        coarse = found.gap < found.noise / 16
        return (found.relative_gap > self._limits.tol) & ~coarse & ~self._stuck

    def _has_time(self) -> bool:
        # One pass is kept for the residual at the end.
        used = perf_counter() - self._began
        per_pass = used / max(1, self.n_passes)
        in_time = used + 2 * per_pass <= self._limits.seconds
        spent = self.stopped or self.n_passes + 2 > self._limits.passes
        return in_time and not spent

    def _multiply(self, V: NDArray) -> NDArray:
        self.n_passes += 1
        return self.system.K @ V

    def _precondition(self, R: NDArray, columns: NDArray) -> NDArray:
        shifts = self.system.shifts[columns]
        return self.system.project(self._preconditioner.solve(R, shifts))

    def _descend(self) -> None:
        """Run conjugate gradients until every column stops."""
        live = np.flatnonzero(self._live())
        R = self.system.residual(self.A[:, live], self.fitted[:, live], live)
        Z = self._precondition(R, live)
        D, slope = Z, dots(R, Z)
        while True:
            old, R = R, R - self._step(D, slope, live)
            self.certificate = self.system.certify(self.A, self.fitted)
            if self._report is not None:
                self.stopped |= bool(self._report(self.n_passes, self.certificate))
            keep = self._live()[live]
            if not keep.any() or not self._has_time():
                return
            live, old, R, D = live[keep], old[:, keep], R[:, keep], D[:, keep]
            Z = self._precondition(R, live)
            new = dots(R, Z)
            # Polak and Ribiere: the preconditioner is not the same to all digits.
            beta = np.maximum((new - dots(old, Z)) / slope[keep], 0)
            D, slope = Z + beta * D, new

    def _step(self, D: NDArray, slope: NDArray, live: NDArray) -> NDArray:
        """Move the live columns along D; return by how much their residuals fall."""
        product = self._multiply(D)
        Q = self.system.project(product + self.system.shifted(D, live))
        curvature = dots(D, Q)
        sound = (slope > 0) & (curvature > 0) & np.isfinite(slope / curvature)
        self._stuck[live[~sound]] = True
        size = np.divide(slope, curvature, out=np.zeros(len(live)), where=sound)
        self.A[:, live] += size * D
        self.fitted[:, live] += size * product
        return size * Q


def dots(A: NDArray, B: NDArray) -> NDArray:
    """Return the inner products of columns."""
    return np.einsum("ij,ij->j", A, B)
