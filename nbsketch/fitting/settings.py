"""What an estimator hands to a fit: plain settings, checked before any heavy work."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, NamedTuple, Self

from nbsketch._progress import SolverCallback, solver_callback
from nbsketch._validation import check_integer, check_positive
from nbsketch.fitting.sizes import AutoSize, as_auto_size
from nbsketch.fitting.stochastic import StochasticSolver, as_solver


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

    @classmethod
    def of(cls, estimator: Any) -> Self:
        """Return the settings of an estimator; what it does not have is the default."""
        names = (f.name for f in fields(cls) if hasattr(estimator, f.name))
        return cls(**{name: getattr(estimator, name) for name in names})

    @cached_property
    def growth(self) -> AutoSize | None:
        """The rule by which the size is chosen; None if it is given, or the default."""
        return as_auto_size(self.size)

    @property
    def is_free(self) -> bool:
        """Whether neither sketch nor size is given."""
        return self.sketch is None and self.size is None

    def check_size_is_fixed(self) -> None:
        """Refuse a size that is to be chosen."""
        if self.growth is not None:
            raise ValueError(
                f"`size` must be an integer or None, got {self.size!r}: "
                "only `fit` can choose it"
            )


@dataclass(frozen=True)
class Plan(SketchSettings):
    """The words of an estimator, checked and resolved once for all steps of a fit."""

    alpha: float | None = None
    solver: Any = "auto"
    tol: float = 1e-6
    max_iter: int = 1000

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive("tol", self.tol)
        check_integer("max_iter", self.max_iter)
        as_solver(self.solver)
        if self.alpha is not None:
            check_positive("alpha", self.alpha)

    @cached_property
    def stochastic(self) -> StochasticSolver | None:
        """The stochastic solver, or None for the certified ones."""
        return as_solver(self.solver)

    def options(self) -> SolveOptions:
        """Return the options of a solver, which reports to whoever watches the fit."""
        callback = solver_callback("solver", self.tol)
        return SolveOptions(self.tol, self.max_iter, callback)

    def check_has_path(self) -> None:
        """Refuse settings for which there is no path of penalties on one sketch."""
        if self.stochastic is not None:
            raise ValueError(
                f"`solver` must be 'auto' for a path of alphas, got {self.solver!r}"
            )
        self.check_size_is_fixed()
