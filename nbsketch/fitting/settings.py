"""What an estimator hands to a fit: plain settings, checked before any heavy work."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from functools import cached_property
from typing import Any, Literal, NamedTuple, Self

from nbsketch._progress import SolverCallback, solver_callback
from nbsketch._validation import check_choice, check_integer, check_positive
from nbsketch.fitting.sizes import AutoSize, as_auto_size
from nbsketch.solvers.stochastic import METHODS, SCHEDULES


@dataclass(frozen=True)
class StochasticSolver:
    """Adam or stochastic subgradient steps, as in the papers.

    It certifies nothing and needs a suitable learning rate; the default solvers are
    certified and faster. Use it to repeat the experiments of the papers.

    Parameters
    ----------
    method : {"adam", "sgd"}, default="adam"
        Adam or plain subgradient steps.
    learning_rate : float, default=0.1
        Learning rate (> 0).
    n_epochs : int, default=25
        Passes over the rows.
    batch_size : int, default=16
        Rows per step.
    schedule : {"constant", "inverse-sqrt", "cosine"}, default="cosine"
        Decay of the learning rate.
    shuffle : bool, default=True
        Whether to shuffle the rows in each epoch.
    average : bool, default=False
        Whether to return the average of the second half of the iterates.
    random_state : int, default=0
        Seed of the order of rows.

    Notes
    -----
    Batches of one row in fixed order at a constant rate are the method of El Ahmad,
    Laforgue and d'Alche-Buc, TMLR 2023. See `nbsketch.solvers.stochastic`.

    Examples
    --------
    >>> from nbsketch import SketchedKernelRegressor, StochasticSolver
    >>> solver = StochasticSolver(learning_rate=0.05, n_epochs=10)
    >>> model = SketchedKernelRegressor(loss="huber", solver=solver)
    """

    method: Literal["adam", "sgd"] = "adam"
    learning_rate: float = 0.1
    n_epochs: int = 25
    batch_size: int = 16
    schedule: Literal["constant", "inverse-sqrt", "cosine"] = "cosine"
    shuffle: bool = True
    average: bool = False
    random_state: int = 0

    def __post_init__(self) -> None:
        check_choice("method", self.method, METHODS)
        check_choice("schedule", self.schedule, SCHEDULES)
        check_positive("learning_rate", self.learning_rate)
        check_integer("n_epochs", self.n_epochs)
        check_integer("batch_size", self.batch_size)
        check_choice("shuffle", self.shuffle, [False, True])
        check_choice("average", self.average, [False, True])
        check_integer("random_state", self.random_state, low=0)

    def options(self) -> dict[str, Any]:
        """Return the keyword arguments of `solve_stochastic`."""
        options = asdict(self)
        options["rng"] = options.pop("random_state")
        return options


def as_solver(solver: Any) -> StochasticSolver | None:
    """Return the stochastic solver, or None for the certified ones."""
    if isinstance(solver, StochasticSolver):
        return solver
    if not isinstance(solver, str):
        raise TypeError(
            f"`solver` must be a name or a StochasticSolver, got {solver!r}"
        )
    name = check_choice("solver", solver, ["auto", *METHODS])
    return None if name == "auto" else StochasticSolver(method=name)


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
