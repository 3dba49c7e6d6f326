r"""Stochastic gradients on features: settings, preconditioning and early stopping.

Preconditioned features have the same convergence rate in all directions.

With C the covariance of z on a subset of the rows, :math:`C = V \Lambda V^T`, their
mean :math:`\mu` and a damping :math:`\lambda > 0`, the features are

.. math:: \tilde z = (\Lambda + \lambda)^{-1/2} V^T (z - \mu) .

Without an intercept they are not centered, and C is the mean of :math:`z z^T`. For
:math:`\lambda = \alpha` and the square loss, the Hessian of the penalized objective is
the identity. Coefficient k has the weight :math:`1 / (\Lambda_k + \lambda)` in the
penalty.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import ceil
from typing import Annotated, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nbsketch._expansion import projection
from nbsketch._machine.blas import eigh, graded_eigh, one_thread
from nbsketch._report.fields import (
    Checked,
    array,
    choice,
    count,
    not_negative,
    optional,
    positive,
    rules,
    stored,
)
from nbsketch._report.progress import is_watched, report
from nbsketch._sketch_map import SketchMap, features_design
from nbsketch.fitting.objectives import RadialObjective, ScalarObjective
from nbsketch.fitting.sketched import SketchedData
from nbsketch.losses import Loss
from nbsketch.solvers.design import ArrayDesign, Blocks, Design, is_off_center
from nbsketch.solvers.scratch import RowsDesign, collected
from nbsketch.solvers.sgm import (
    REGIMES,
    Iterate,
    StreamState,
    sgm_iterates,
    sgm_regime,
    squared_norms,
    stream_sgm,
)
from nbsketch.solvers.stochastic import DIVERGED, check_steps

# Number of rows per feature for estimating C.
_ROWS_PER_FEATURE = 10
# Quantile of the squared norms that determines the step; larger rows take shorter
# steps. The largest norm would slow down every step by a factor of 5 to 50.
_TYPICAL = 0.999
_STEP = 1.0  # default step
_BATCH_SIZE = 1  # default number of rows per step
_N_EPOCHS = 20  # default number of passes over the rows
# Maximum number of rows for this quantile.
_FEW_ROWS = 2000
# Number of rows of a stream whose mean loss is checked for divergence.
_LEAST_CHECKED = 30
# Standard deviations below this share of the mean are rounding of a constant.
_CONSTANT = 1e-12
# Number of iterates evaluated in early stopping for each doubling of the steps, back to
# a thousandth of them.
_PER_DOUBLING = 4
_DOUBLINGS = 10


def precondition(
    data: SketchedData, damping: float, objective: Any
) -> tuple[NDArray, NDArray, NDArray]:
    """Estimate preconditioned features on a subset of the training rows.

    Returns
    -------
    projection : ndarray of shape (s, r)
        The features are :math:`P^T S k_x` minus the center.
    center : ndarray of shape (r,)
        Mean of those features; zero without an intercept.
    penalty_weights : ndarray of shape (r,)
        Weights of the coefficients in the penalty.
    """
    sketch_map = data.sketch_map
    X = data.rows
    P = projection(sketch_map.inner(X))
    count = min(X.shape[0], _ROWS_PER_FEATURE * max(1, P.shape[1]))
    rows = np.sort(data.rng.choice(X.shape[0], count, replace=False))
    weights = objective.take(rows).weights
    shares = np.full(count, 1 / count) if weights is None else weights / count
    features = features_design(sketch_map, P, X[rows])
    mean, covariance = _moments(features, shares, objective.fit_intercept)
    decomposition = graded_eigh if sketch_map.is_columns else eigh
    values, vectors = decomposition(covariance)
    penalty_weights = 1.0 / (np.maximum(values, 0.0) + damping)
    rotation = vectors * np.sqrt(penalty_weights)
    return P @ rotation, mean @ rotation, penalty_weights


def _moments(
    features: Design, shares: NDArray, centered: bool
) -> tuple[NDArray, NDArray]:
    """Return the mean (zero if not `centered`) and the covariance around it."""
    rank = features.shape[1]
    origin = np.zeros(rank)
    mean = np.zeros(rank)
    squares = np.zeros((rank, rank))
    for start, stop, Z in features.blocks():
        part = shares[start:stop]
        if start == 0 and centered:  # near the mean, to avoid cancellation
            origin = part @ Z / part.sum()
        deviations = Z - origin
        mean += part @ deviations * centered
        squares += (deviations * part[:, None]).T @ deviations
    return origin + mean, squares - np.outer(mean, mean)


class _Centered(Design):
    """Features minus a center, rounded to a dtype."""

    def __init__(self, features: Design, center: NDArray, dtype: Any) -> None:
        self.shape = features.shape
        self.dtype = np.dtype(dtype)
        self._features = features
        self._center = center

    def blocks(self) -> Blocks:
        """Yield (start, stop, Z[start:stop]) in order, covering all rows."""
        for start, stop, Z in self._features.blocks():
            yield start, stop, np.subtract(Z, self._center, dtype=np.float64)


def centered_features(
    sketch_map: SketchMap, rows: Any, P: NDArray, center: NDArray, dtype: Any = "f4"
) -> NDArray:
    """Return features of rows minus a center: in memory, or mapped to a file.

    Rounding to single precision is far below the noise of stochastic steps.
    """
    return collected(_Centered(features_design(sketch_map, P, rows), center, dtype))


@stored
class Preconditioning:
    """Preconditioned features of a stream, and their step."""

    penalty_weights: Annotated[NDArray, array("r", positive=True)]
    center: Annotated[NDArray, array("r")]
    step: Annotated[float, positive]

    def intercept(self, coef: NDArray, intercept: NDArray) -> NDArray:
        """Return the intercept for uncentered features."""
        return intercept - self.center @ coef


def standardized(
    Z: NDArray, is_free: bool, is_scaled: bool
) -> tuple[NDArray, NDArray] | None:
    """Return scales and means (in their units) of features; None: use them unchanged.

    Features are centered if their mean exceeds their variation and there is an
    intercept. Columns of X as features are also scaled.
    """
    sample = Z[:: 1 + len(Z) // _FEW_ROWS]
    mean = sample.mean(axis=0, dtype=np.float64) * is_free
    deviations = np.sqrt(np.square(sample - mean).mean(axis=0))
    scales = np.ones(len(mean))
    if is_scaled:
        varies = deviations > _CONSTANT * np.abs(mean)
        scales[varies] = 1 / deviations[varies]
    elif not is_off_center(mean, deviations, each=False):
        return None
    return scales, mean * scales


class FeatureSample(NamedTuple):
    """Features of a subset of rows, and the objective on them."""

    Z: NDArray
    objective: ScalarObjective | RadialObjective

    @property
    def design(self) -> ArrayDesign:
        """The features, which are not checked again."""
        return ArrayDesign._trusted(self.Z)

    def mean_loss(self, iterate: Iterate) -> float:
        """Return the mean loss of an iterate on the rows."""
        return self.objective.mean_loss(
            self.design.mv(iterate.coef) + iterate.intercept
        )

    def limit(self, is_stream: bool = False) -> float:
        """Return the loss above which steps have diverged.

        The loss of zero is also a limit, because rows of a stream may be similar and a
        model without intercept fits no constant.
        """
        sample = self._subset()
        reference = sample.objective.constant_loss()
        if is_stream or not sample.objective.fit_intercept:
            zero = np.zeros_like(sample.objective.targets)
            reference = max(reference, sample.objective.mean_loss(zero))
        return DIVERGED * reference

    def check(self, iterate: Iterate, limit: float) -> Iterate:
        """Return an iterate; raise an error if its steps have diverged."""
        with np.errstate(over="ignore", invalid="ignore"):
            loss = self._subset().mean_loss(iterate)
        check_steps(loss, limit, "step", f" before step {iterate.n_steps}")
        return iterate

    def _subset(self) -> FeatureSample:
        """Return a subset of the rows, evenly spaced."""
        return self._take(np.arange(0, len(self.Z), 1 + len(self.Z) // _FEW_ROWS))

    def validation(self, Z: NDArray, targets: NDArray) -> FeatureSample:
        """Return validation rows of equal weight."""
        return FeatureSample(Z, replace(self.objective, targets=targets, weights=None))

    def split(
        self, count: int, rng: np.random.Generator
    ) -> tuple[FeatureSample, FeatureSample]:
        """Return the rows to fit and the held-out rows.

        The held-out rows are the last fold, or random rows.
        """
        n = len(self.Z)
        if self.objective.folds is not None:
            fold = self.objective.folds[-1]
            return self._take(fold.kept(n)), self._take(fold.test)
        out = np.sort(rng.choice(n, count, replace=False))
        return self._take(np.delete(np.arange(n), out)), self._take(out)

    def _take(self, rows: NDArray) -> FeatureSample:
        Z = collected(RowsDesign(self.design, rows))
        return FeatureSample(Z, self.objective.take(rows))


@dataclass(frozen=True)
class DescentSettings(Checked):
    """Settings of stochastic gradients, with the estimator's parameter names."""

    step: Any
    batch_size: Any
    n_epochs: Any
    regime: Any
    source: float
    capacity: float
    alpha: float | None
    average: bool
    n_steps: int = 0  # after `resolve`
    free_step: bool = False  # whether the step is a default
    # Preconditioned features, and the squared norm that determines their step; None:
    # features are used unchanged.
    preconditioning: Preconditioning | None = None
    square_norm: float | None = None

    _rules = rules(
        step=optional(positive),
        batch_size=optional(count),
        n_epochs=optional(count),
        regime=optional(choice(*REGIMES)),
        alpha=optional(not_negative),
        average=choice(False, True),
    )

    def resolve(self, n: int) -> DescentSettings:
        """Return the settings with defaults for n rows, or of a regime."""
        if self.regime is not None:
            return self._by_regime(n)
        step = _STEP if self.step is None else self.step
        batch = _BATCH_SIZE if self.batch_size is None else self.batch_size
        epochs = _N_EPOCHS if self.n_epochs is None else self.n_epochs
        steps = ceil(epochs * n / batch)
        free = self.step is None
        return replace(self, step=step, batch_size=batch, n_steps=steps, free_step=free)

    def _by_regime(self, n: int) -> DescentSettings:
        given = self.step, self.batch_size, self.n_epochs
        if given != (None, None, None):
            raise ValueError(
                "`regime` must be None unless `step`, `batch_size` and `n_epochs` are "
                f"None, got {self.regime!r} and {given}"
            )
        step, batch, steps = sgm_regime(
            self.regime, n, source=self.source, capacity=self.capacity
        )
        return replace(self, step=step, batch_size=batch, n_steps=steps)

    def is_preconditioned(self, data: SketchedData) -> bool:
        """Return whether to precondition: with a penalty and a default step."""
        alpha = data.inputs.alpha if self.alpha is None else self.alpha
        return self.free_step and bool(alpha)

    def preconditioned(
        self, data: SketchedData, objective: Any
    ) -> tuple[NDArray | None, DescentSettings]:
        """Return the projection to preconditioned features, or None, and the settings.

        The penalty is set: the given one, or the one learned with the length scales. A
        default step is scaled to the units of the targets if it depends on them.
        """
        alpha = self.alpha
        ratio = objective.slope_ratio()
        if alpha is None:
            learned = None if self.regime else data.inputs.alpha
            alpha = 0.0 if learned is None else learned * ratio
        descent = replace(self, alpha=alpha)
        if not self.is_preconditioned(data):
            return None, descent
        P, center, penalty_weights = precondition(data, alpha / ratio, objective)
        step = float(self.step if objective.loss.is_smooth else self.step / ratio)
        preconditioning = Preconditioning(penalty_weights, center, step)
        return P, replace(descent, step=step, preconditioning=preconditioning)

    def standardized(
        self, projection: NDArray, Z: NDArray, data: SketchedData, objective: Any
    ) -> tuple[NDArray, DescentSettings]:
        """Return the projection to features without preconditioning, and the settings.

        Features are standardized if their means or units would hide their variation.
        """
        is_scaled = data.sketch_map.is_columns and self.free_step
        standard = standardized(Z, objective.fit_intercept, is_scaled)
        if standard is None:
            return projection, self
        scales, center = standard
        by = Preconditioning(np.square(scales), center, float(self.step))
        return projection * scales, replace(self, preconditioning=by)

    def centered(self, Z: NDArray) -> NDArray:
        """Return features of other rows, centered like those of the training rows."""
        return Z if self.preconditioning is None else Z - self.preconditioning.center

    def continued(
        self, preconditioning: Preconditioning, square_norm: float | None
    ) -> DescentSettings:
        """Return the settings for more rows; a given step replaces the old one."""
        step = preconditioning.step if self.free_step else self.step
        return replace(
            self,
            step=step,
            preconditioning=replace(preconditioning, step=step),
            square_norm=square_norm or None,
        )

    def search(
        self,
        sample: FeatureSample,
        validation: FeatureSample | None,
        rng: np.random.Generator,
    ) -> tuple[Iterate, dict[str, NDArray] | None]:
        """Return the iterate with the lowest validation loss, and the path of losses.

        Without validation rows, return the last iterate. Otherwise the search stops
        after twice the steps of the best iterate plus one pass over the data without
        improvement.
        """
        ahead = self._iterates(sample, rng, validation is not None or is_watched())
        if validation is None:
            *_, best = ahead
            return sample.check(best, sample.limit()), None
        best = next(ahead)
        steps = [best.n_steps]
        errors = [validation.mean_loss(best)]
        per_epoch = len(sample.Z) / self.batch_size
        for iterate in ahead:
            steps.append(iterate.n_steps)
            errors.append(validation.mean_loss(iterate))
            if errors[-1] < min(errors[:-1]):
                best = iterate
            elif iterate.n_steps > 2 * best.n_steps + per_epoch:
                break
        path = {"n_steps": np.array(steps), "error": np.array(errors)}
        return sample.check(best, sample.limit()), path

    def stream(
        self,
        sample: FeatureSample,
        state: StreamState | None,
        rng: np.random.Generator,
        limit: float,
    ) -> tuple[NDArray, NDArray, StreamState]:
        """Pass once over the rows; return coefficients, intercept and state.

        Raise an error if the mean loss is above the limit.
        """
        Y, loss = _targets(sample)
        options = self._options(sample, rng)
        coef, intercept, after = stream_sgm(sample.design, Y, loss, state, **options)
        iterate = Iterate(after.n_steps, *_columns(coef, intercept, sample))
        # A single row far from the previous ones may have a large loss.
        sample.check(iterate, limit * max(1.0, _LEAST_CHECKED / len(sample.Z)))
        return iterate.coef, iterate.intercept, after

    def _iterates(
        self, sample: FeatureSample, rng: np.random.Generator, every: bool
    ) -> Iterator[Iterate]:
        """Yield the last iterate, preceded by earlier ones if `every` is true."""
        stops = [self.n_steps]
        if every:
            halvings = np.arange(_PER_DOUBLING * _DOUBLINGS + 1) / _PER_DOUBLING
            stops = (
                np.unique(np.ceil(self.n_steps / 2.0**halvings)).astype(int).tolist()
            )
        Y, loss = _targets(sample)
        for n_steps, coef, intercept in sgm_iterates(
            sample.design, Y, loss, checkpoints=stops, **self._options(sample, rng)
        ):
            yield Iterate(n_steps, *_columns(coef, intercept, sample))
            if report("steps", iteration=n_steps, total=self.n_steps):
                return

    def _options(
        self, sample: FeatureSample, rng: np.random.Generator
    ) -> dict[str, Any]:
        by = self.preconditioning
        return {
            "step": self.step,
            "penalty_weights": None if by is None else by.penalty_weights,
            "square_norm": self.square_norm,
            "alpha": self.alpha or 0.0,
            "batch_size": self.batch_size,
            "sample_weight": sample.objective.weights,
            "fit_intercept": sample.objective.fit_intercept,
            "average": self.average,
            "rng": rng,
        }


def _targets(sample: FeatureSample) -> tuple[NDArray, Loss]:
    Y = sample.objective.targets
    return Y[:, 0] if Y.shape[1] == 1 else Y, sample.objective.loss


def _columns(
    coef: NDArray, intercept: Any, sample: FeatureSample
) -> tuple[NDArray, NDArray]:
    """Return coefficients (r, d) and intercept (d,)."""
    return coef.reshape(-1, sample.objective.targets.shape[1]), np.atleast_1d(intercept)


class Descended(NamedTuple):
    """The result of `descend`."""

    iterate: Iterate
    path: dict[str, NDArray] | None  # of validation losses
    sample: FeatureSample  # the fitted rows
    projection: NDArray
    descent: DescentSettings  # with penalty and step


def descend(
    descent: DescentSettings,
    objective: ScalarObjective | RadialObjective,
    data: SketchedData,
    n_held_out: int,
    validation: tuple[Any, NDArray] | None,
) -> Descended:
    """Minimize by stochastic gradients; return the best iterate on validation rows."""
    projection, descent = descent.preconditioned(data, objective)
    with one_thread():
        Z, projection, descent = _features(descent, projection, data, objective)
        sample = FeatureSample(Z, objective)
        held_out = None
        if validation is not None:
            rows, targets = validation
            by = descent.preconditioning
            center = np.zeros(projection.shape[1]) if by is None else by.center
            rows = data.transform(rows, "X_val")
            Z_val = centered_features(data.expansion, rows, projection, center, float)
            held_out = sample.validation(Z_val, targets)
        elif n_held_out:
            sample, held_out = sample.split(n_held_out, data.rng)
        best, path = descent.search(sample, held_out, data.rng)
    return Descended(best, path, sample, projection, descent)


def _features(
    descent: DescentSettings,
    projection: NDArray | None,
    data: SketchedData,
    objective: Any,
) -> tuple[NDArray, NDArray, DescentSettings]:
    """Return the features, their projection, and the settings of their steps.

    They are preconditioned, standardized or unchanged.
    """
    if projection is None:
        projection, design = data.design(keep=True)
        Z = design.collect()
        projection, descent = descent.standardized(projection, Z, data, objective)
    by = descent.preconditioning
    if by is None:
        return Z, projection, descent
    Z = centered_features(data.sketch_map, data.rows, projection, by.center)
    if descent.free_step:
        # The squared norm of long rows limits the step. Rows of tiny weight are hardly
        # ever drawn, but are long in preconditioned features, which ignore them: they
        # must not shorten the steps of other rows.
        weighted = {"method": "inverted_cdf", "weights": objective.weights}
        options = {} if objective.weights is None else weighted
        square = float(np.quantile(squared_norms(Z), _TYPICAL, **options))
        descent = replace(descent, square_norm=square or None)
    return Z, projection, descent
