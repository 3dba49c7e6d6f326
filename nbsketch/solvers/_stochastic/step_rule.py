"""How the stochastic methods step: method, rates, and the order of the rows."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nbsketch._jit.sgd import ADAM, SUBGRADIENT
from nbsketch._validation import (
    check_choice,
    check_integer,
    check_positive,
    check_real,
)

METHODS = {"adam": ADAM, "sgd": SUBGRADIENT}

# Factor of the learning rate, of the step (from 1) and of the share of the rows done.
SCHEDULES: dict[str, Callable[[NDArray, NDArray], NDArray]] = {
    "constant": lambda step, done: np.ones_like(done),
    "inverse-sqrt": lambda step, done: 1.0 / np.sqrt(step),
    "cosine": lambda step, done: 0.5 * (1.0 + np.cos(np.pi * done)),
}


@dataclass(frozen=True)
class Rule:
    """Checked settings of the method."""

    method: int
    batch_size: int
    n_epochs: int
    learning_rate: float
    schedule: Callable[[NDArray, NDArray], NDArray]
    beta1: float
    beta2: float
    shuffle: bool
    replace: bool
    average: bool

    def rates(self, step: NDArray, done: NDArray) -> NDArray:
        """Return length and root factor of the steps, which are numbered from 1."""
        rates = np.ones((len(step), 2))
        rates[:, 0] = self.learning_rate * self.schedule(step, done)
        if self.method == ADAM:
            rates[:, 0] /= 1.0 - self.beta1**step
            rates[:, 1] = 1.0 / np.sqrt(1.0 - self.beta2**step)
        return rates

    def order(self, count: int, rng: np.random.Generator) -> NDArray:
        """Return the rows of a block as they are to be visited."""
        if not self.shuffle:
            return np.arange(count)
        return (
            rng.integers(count, size=count) if self.replace else rng.permutation(count)
        )


def step_rule(
    method: str,
    batch_size: int,
    n_epochs: int,
    learning_rate: float,
    schedule: str,
    betas: tuple[float, float],
    shuffle: bool,
    replace: bool,
    average: bool,
) -> Rule:
    """Check the settings, which are those of `solve_stochastic`."""
    if replace and not shuffle:
        raise ValueError("`shuffle` must be True with replace=True, got False")
    return Rule(
        METHODS[check_choice("method", method, METHODS)],
        check_integer("batch_size", batch_size),
        check_integer("n_epochs", n_epochs),
        check_positive("learning_rate", learning_rate),
        SCHEDULES[check_choice("schedule", schedule, SCHEDULES)],
        *_betas(betas),
        bool(shuffle),
        bool(replace),
        bool(average),
    )


def _betas(betas: tuple[float, float]) -> tuple[float, float]:
    if not isinstance(betas, tuple | list) or len(betas) != 2:
        raise ValueError(f"`betas` must be two numbers in [0, 1), got {betas!r}")
    return (
        check_real("betas[0]", betas[0], low=0, high=1, high_open=True),
        check_real("betas[1]", betas[1], low=0, high=1, high_open=True),
    )
