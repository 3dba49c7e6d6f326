"""Stochastic solvers as estimators take them: by name or as an object."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from nbsketch._validation import check_choice, check_integer, check_positive
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
