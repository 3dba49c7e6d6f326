"""How the stochastic estimator steps, and which of its iterates it keeps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import ceil
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nbsketch._validation import (
    check_choice,
    check_integer,
    check_positive,
    check_real,
)
from nbsketch.losses import Loss
from nbsketch.solvers.design import ArrayDesign
from nbsketch.solvers.regimes import sgm_regime
from nbsketch.solvers.sgm import sgm_iterates
from nbsketch.solvers.stochastic import solve_stochastic
from nbsketch.solvers.streams import StreamState, stream_sgm

# Step and batch of each method if nothing is said of them.
METHODS = {"projected": (1.0, 1), "adam": (0.1, 16)}
_EPOCHS = 20
# Iterates looked at in early stopping: this many for each doubling of the steps, back
# to a thousandth of them.
_PER_DOUBLING, _DOUBLINGS = 4, 10


class Iterate(NamedTuple):
    """A model on the way."""

    n_steps: int
    coef: NDArray  # (r, d)
    intercept: NDArray  # (d,)


class Sample(NamedTuple):
    """Features, targets and weights of some rows."""

    Z: NDArray
    Y: NDArray  # (n, d)
    weights: NDArray | None

    @property
    def design(self) -> ArrayDesign:
        """The features, which are not checked again."""
        return ArrayDesign._trusted(self.Z)

    def mean_loss(self, loss: Loss, iterate: Iterate) -> float:
        """Return the mean loss of an iterate on the rows."""
        residuals = self.Y - (self.Z @ iterate.coef + iterate.intercept)
        single = residuals.shape[1] == 1
        losses = loss.value(residuals[:, 0]) if single else loss.norm_value(residuals)
        return float(np.average(losses, weights=self.weights))

    def split(self, count: int, rng: np.random.Generator) -> tuple[Sample, Sample]:
        """Return the rows that stay, and random ones of those with a weight."""
        n = len(self.Y)
        counted = np.arange(n) if self.weights is None else np.flatnonzero(self.weights)
        out = np.sort(rng.choice(counted, count, replace=False))
        return self._take(np.delete(np.arange(n), out)), self._take(out)

    def _take(self, rows: NDArray) -> Sample:
        weights = None if self.weights is None else self.weights[rows]
        if weights is not None:
            weights /= weights.mean()
        return Sample(self.Z[rows], self.Y[rows], weights)


@dataclass(frozen=True)
class Descent:
    """Checked settings of a fit."""

    method: str
    loss: Loss
    step: float
    batch_size: int
    n_steps: int
    n_epochs: int  # of "adam"
    alpha: float
    fit_intercept: bool
    average: bool

    @classmethod
    def of(cls, model: Any, loss: Loss, n: int) -> Descent:
        """Return the settings of an estimator that is fitted to n rows."""
        check_choice("method", model.method, METHODS)
        settings = _given(model, n) if model.regime is None else _regime(model, n)
        return cls(
            model.method,
            loss,
            *settings,
            check_real("alpha", model.alpha, low=0, high_open=True),
            check_choice("fit_intercept", model.fit_intercept, [False, True]),
            check_choice("average", model.average, [False, True]),
        )

    def search(
        self, sample: Sample, judge: Sample | None, rng: np.random.Generator
    ) -> tuple[Iterate, dict[str, NDArray] | None]:
        """Return the iterate of least error on `judge`, and the path of errors.

        Without a judge it is the last one. Otherwise no iterates are asked for after a
        pass over the data, and twice as many steps as the best one took, without a
        better one.
        """
        ahead = self._iterates(sample, rng, every=judge is not None)
        best = next(ahead)
        if judge is None:
            return best, None
        steps, errors = [best.n_steps], [judge.mean_loss(self.loss, best)]
        per_epoch = len(sample.Z) / self.batch_size
        for iterate in ahead:
            steps.append(iterate.n_steps)
            errors.append(judge.mean_loss(self.loss, iterate))
            if errors[-1] < min(errors[:-1]):
                best = iterate
            elif iterate.n_steps > 2 * best.n_steps + per_epoch:
                break
        return best, {"n_steps": np.array(steps), "error": np.array(errors)}

    def stream(
        self, sample: Sample, state: StreamState | None, rng: np.random.Generator
    ) -> tuple[NDArray, NDArray, StreamState]:
        """Pass once over the rows; return coefficients, intercept and state."""
        coef, intercept, after = stream_sgm(
            sample.Z, *self._targets(sample), state, step=self.step,
            **self._options(sample, rng),
        )  # fmt: skip
        return *_columns(coef, intercept, sample), after

    def _iterates(
        self, sample: Sample, rng: np.random.Generator, every: bool
    ) -> Iterator[Iterate]:
        """Yield the last iterate, or with `every` those on the way as well."""
        run = self._adam if self.method == "adam" else self._sgm
        for n_steps, coef, intercept in run(sample, rng, every):
            yield Iterate(n_steps, *_columns(coef, intercept, sample))

    def _sgm(
        self, sample: Sample, rng: np.random.Generator, every: bool
    ) -> Iterable[tuple]:
        stops = _checkpoints(self.n_steps) if every else [self.n_steps]
        return sgm_iterates(
            sample.design, *self._targets(sample), step=self.step, checkpoints=stops,
            **self._options(sample, rng),
        )  # fmt: skip

    def _adam(
        self, sample: Sample, rng: np.random.Generator, every: bool
    ) -> Iterable[tuple]:
        per_epoch = ceil(len(sample.Y) / self.batch_size)
        solution = solve_stochastic(
            sample.design, *self._targets(sample), method="adam",
            learning_rate=self.step, n_epochs=self.n_epochs, record_every=int(every),
            **self._options(sample, rng),
        )  # fmt: skip
        epochs = solution.history[1:] if every else ()
        on_the_way = [(s.epoch * per_epoch, s.coef, s.intercept) for s in epochs]
        last = (self.n_epochs * per_epoch, solution.coef, solution.intercept)
        return on_the_way or [last]

    def _targets(self, sample: Sample) -> tuple[NDArray, Loss]:
        return sample.Y[:, 0] if sample.Y.shape[1] == 1 else sample.Y, self.loss

    def _options(self, sample: Sample, rng: np.random.Generator) -> dict[str, Any]:
        return {
            "alpha": self.alpha,
            "batch_size": self.batch_size,
            "sample_weight": sample.weights,
            "fit_intercept": self.fit_intercept,
            "average": self.average,
            "rng": rng,
        }


def count_held_out(fraction: float, weights: NDArray | None, n: int) -> int:
    """Return how many of n rows early stopping holds out; at least one stays."""
    counted = n if weights is None else int(np.count_nonzero(weights))
    if counted < 2:
        raise ValueError(
            "`early_stopping` must be False unless two rows have a weight, got "
            f"{counted} sample"
        )
    return min(max(round(fraction * counted), 1), counted - 1)


def _given(model: Any, n: int) -> tuple[float, int, int, int]:
    """Return step, batch, steps and epochs, by default those of the method."""
    step, batch = METHODS[model.method]
    step = step if model.step is None else check_positive("step", model.step)
    if model.batch_size is not None:
        batch = check_integer("batch_size", model.batch_size)
    epochs = _EPOCHS
    if model.n_epochs is not None:
        epochs = check_integer("n_epochs", model.n_epochs)
    return step, batch, ceil(epochs * n / batch), epochs


def _regime(model: Any, n: int) -> tuple[float, int, int, int]:
    """Return step, batch, steps and (idle) epochs of a regime of the theory."""
    given = model.step, model.batch_size, model.n_epochs
    if given != (None, None, None) or model.method != "projected":
        raise ValueError(
            "`regime` must be None unless method='projected' and `step`, `batch_size` "
            f"and `n_epochs` are None, got {model.regime!r}, method={model.method!r} "
            f"and {given}"
        )
    regime = sgm_regime(model.regime, n, source=model.source, capacity=model.capacity)
    return *regime, _EPOCHS


def _columns(coef: NDArray, intercept: Any, sample: Sample) -> tuple[NDArray, NDArray]:
    """Return coefficients (r, d) and intercept (d,)."""
    return coef.reshape(-1, sample.Y.shape[1]), np.atleast_1d(intercept)


def _checkpoints(n_steps: int) -> list[int]:
    """Return numbers of steps in a geometric progression up to `n_steps`."""
    halvings = np.arange(_PER_DOUBLING * _DOUBLINGS + 1) / _PER_DOUBLING
    return [int(stop) for stop in np.unique(np.ceil(n_steps / 2.0**halvings))]
