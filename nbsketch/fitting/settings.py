"""What an estimator hands to a fit: plain settings, checked before any heavy work."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from nbsketch._progress import SolverCallback, solver_callback
from nbsketch._validation import check_integer, check_positive
from nbsketch.fitting.sizes import as_auto_size
from nbsketch.fitting.stochastic import as_solver


class SolveOptions(NamedTuple):
    """Accuracy, largest number of iterations, and callback of a solver."""

    tol: float = 1e-6
    max_iter: int = 1000
    callback: SolverCallback | None = None


@dataclass(frozen=True)
class SketchSettings:
    """How rows are transformed and sketched: parameters of the estimators."""

    kernel: Any
    bandwidth: Any
    preprocessing: str | None
    sketch: Any
    size: Any
    random_state: Any

    def __post_init__(self) -> None:
        as_auto_size(self.size)

    def check_size_is_fixed(self) -> None:
        """Refuse a size that is to be chosen."""
        if as_auto_size(self.size) is not None:
            raise ValueError(
                f"`size` must be an integer or None, got {self.size!r}: "
                "only `fit` can choose it"
            )


@dataclass(frozen=True)
class SolveSettings:
    """How an objective is minimized: parameters of the estimators."""

    alpha: float | None
    solver: Any = "auto"
    tol: float = 1e-6
    max_iter: int = 1000

    def __post_init__(self) -> None:
        check_positive("tol", self.tol)
        check_integer("max_iter", self.max_iter)
        as_solver(self.solver)
        if self.alpha is not None:
            check_positive("alpha", self.alpha)

    def options(self) -> SolveOptions:
        """Return the options of a solver, which reports to whoever watches the fit."""
        callback = solver_callback("solver", self.tol)
        return SolveOptions(self.tol, self.max_iter, callback)

    def check_solver_has_paths(self) -> None:
        """Refuse a solver that has no path of penalties."""
        if as_solver(self.solver) is not None:
            raise ValueError(
                f"`solver` must be 'auto' for a path of alphas, got {self.solver!r}"
            )
