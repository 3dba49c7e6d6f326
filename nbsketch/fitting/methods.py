"""The methods, which choose a penalty and solve.

===============  ======================================================================
`ClosedForm`     one decomposition of the features for all penalties
`ExactRidge`     least squares on the Gram matrix of all rows: Cholesky, or passes
`Nystrom`        least squares on a large sketch, by passes
`Newton`         certified Newton steps on the features
`Passes`         the same losses on a large sketch, by passes
`SpanningRows`   the same losses on the features of few rows that span a large sketch
`Dual`           the same losses on all rows, by Newton steps on the dual
`Stochastic`     Adam or stochastic subgradient steps on the features, if requested
===============  ======================================================================

With a time limit, expected times are measured on a few rows, and the model depends on
the computer.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from nbsketch._machine.blas import one_thread, threads_for
from nbsketch._report.progress import is_stopped, report, seconds_left, share_of_time
from nbsketch._sketch_map import features_design, sketched_columns
from nbsketch.fitting import plan as sizes
from nbsketch.fitting.certificate import LARGEST_GAP, FittedCertificate, values_scale
from nbsketch.fitting.choice import (
    LARGEST_FIT,
    DualSample,
    LevelsSample,
    SplitSample,
    choose_on_sample,
    gram,
    products,
)
from nbsketch.fitting.objective import FeatureSolution, Problem
from nbsketch.fitting.sketched import SketchedData
from nbsketch.gram import SymmetricGram
from nbsketch.gram.form import take_rows
from nbsketch.solvers._linear.systems import least_penalty
from nbsketch.solvers.conjugate import (
    NotConvergedError,
    conjugate_path,
    solve_nystrom,
    values_dtype,
)
from nbsketch.solvers.design import Design, centered
from nbsketch.solvers.left_out import Fold, OrderEffect
from nbsketch.solvers.passes import LandmarkDesign
from nbsketch.solvers.solution import Solution, State

# Number of rows to measure the time of a kernel value, and number of repetitions.
_PROBE = 1000
_REPEATS = 3
# Time of a solution, in evaluations of all pairs, with and without stored values.
_KEPT = 12.0
_ANEW = 22.0
# Time to choose penalty and width, in evaluations of the pairs of the sample.
_CHOICES = 150.0
# Rows of a product that measures the time of a multiplication.
_PRODUCT = 400
# Multiplications of a closed form with s features of n rows, over s^2 (n + s), and of a
# solution by Cholesky factors, over n^3 (n up to 10,000, s up to 1500, one thread).
_CLOSED = 7.0
_FACTORS = 1.3
# Shortest time that can be measured.
TICK = 1e-9
# Share of its time that suffices for a usable solution of the exact method.
_MOST_OF_IT = 0.8
# If conjugate gradients do not converge, use a Cholesky factor up to this many rows.
_MOST_DENSE_ROWS = 10_000
# If a penalty chosen on a sample does not converge on all rows within this many passes
# (Newton steps on the dual) or to `LARGEST_GAP`, it is multiplied by this factor, at
# most this many times. Test errors hardly depend on it where targets are nearly free of
# noise.
_MOST_PASSES = 200
_MOST_STEPS = 60
_STRONGER = 4.0
_TRIALS = 8
# Least squares by passes: relative gap with a test error within 0.1 % of its limit.
# Dual: gap at which test losses no longer change, above the number of rows that have
# features (kinks: test losses of 0.999 to 1.003 in 0.28 to 0.95 of the time of 1e-4,
# three functions, 2500 to 5000 rows). `tol` is raised to these; `summary` reports it.
_PASSES_TOL = {"square": 1e-3, "smooth": 1e-3, "kinked": 5e-2, "joint": 5e-2}
_DUAL_TOL = {"smooth": 1e-4, "kinked": 1e-2, "joint": 1e-4}
# Dual: up to this many rows, using the features of all rows is affordable if the dual
# does not converge.
_FEATURE_ROWS = 2000
# If passes do not certify a sketch, use the closed form up to this n s^2.
_CLOSED_FORM_WORK = 1e11
# Below this alpha, for k(x, x) = 1, passes and the dual hardly converge if few rows
# span the others: features of these take 0.03 to 0.6 of the time.
_WEAK = 1e-8
# Up to this n s^2, features of rows that span a sketch are as fast as passes, and the
# penalty is chosen on all rows (0.6 to 1.0 of the error for little noise).
_FAST_WORK = 1e10
# Largest number of rows that span a sketch.
_SPANNING = 1500
# Up to this many rows kernel values are float64, which is cheap and more accurate.
_DOUBLE_ROWS = 8000


def has_seconds(expected: Callable[..., float], *shape: int) -> bool:
    """Return whether the expected time is available."""
    left = seconds_left()
    return not np.isfinite(left) or expected(*shape) <= left


def exact_seconds(data: SketchedData, n_outputs: int) -> tuple[float, float]:
    """Return the approximate time of the exact method: choices and solution."""
    n = data.rows.shape[0]
    rows = data.rows[:_PROBE]
    K = SymmetricGram(data.kernel, rows, memory=0)
    columns = rows[:, :1].repeat(n_outputs, axis=1)
    K @ columns  # compiles or loads the code
    spent = seconds_of(lambda: K @ columns, _REPEATS)
    pair = spent / _REPEATS / len(rows) ** 2
    solution = (_KEPT if sizes.kept_pairs(n) else _ANEW) * n**2
    return pair * _CHOICES * min(n, LARGEST_FIT) ** 2, pair * solution


def closed_seconds(n: int, size: int) -> float:
    """Return the approximate time of a closed form on the features of a sketch."""
    return _CLOSED * size**2 * (n + size) * _seconds_per_multiplication()


def dense_seconds(n: int) -> float:
    """Return the approximate time of Cholesky factors of the full Gram matrix."""
    return _FACTORS * n**3 * _seconds_per_multiplication()


def _seconds_per_multiplication() -> float:
    A = np.ones((_PRODUCT, _PRODUCT))
    least = min(seconds_of(lambda: A @ A) for _ in range(_REPEATS))
    return least / (2.0 * _PRODUCT**3)


def seconds_of(call: Callable[[], object], count: int = 1) -> float:
    """Return the time of some calls, at least a tick of the clock."""
    began = time.perf_counter()
    for _ in range(count):
        call()
    return max(time.perf_counter() - began, TICK)


@dataclass(frozen=True)
class Method(ABC):
    """Solution method of a problem, once its rows are sketched."""

    problem: Problem
    data: SketchedData
    # The penalty with the lowest held-out loss, for a sketch that has grown.
    path_alpha: float | None = None
    # The penalty, once given or chosen.
    known_alpha: float | None = None
    # Whether the order of the rows contradicts the choice of the penalty.
    order: OrderEffect | None = None
    start: State | None = None  # warm start of a solution with one coefficient a row

    # Share of the remaining time for this choice.
    choice_share = 1.0

    def choose_alpha(self) -> Method:
        """Return the method with the given or chosen penalty."""
        if self.known_alpha is not None:
            return self
        given = self.plan.alpha
        if given is not None:
            return replace(self, known_alpha=float(given))
        if self.sample is None:
            return self._with_alpha()
        with one_thread(), share_of_time(self.choice_share):
            data, alpha, order, start = choose_on_sample(
                self.data, self.objective, self.sample
            )
        return replace(self, data=data, known_alpha=alpha, order=order, start=start)

    @property
    def sample(self) -> type[SplitSample] | None:
        """Sample on which penalty and width are chosen; None: all rows."""
        return None

    def choose_width(self) -> Method:
        """Return the method with the kernel width for the penalty."""
        return self if self.sample is None else self.choose_alpha()

    def _with_alpha(self) -> Method:
        return self

    @property
    def plan(self) -> sizes.Plan:
        """The parameters of the estimator."""
        return self.problem.plan

    @property
    def objective(self) -> Any:
        """The objective, adapted to the method."""
        return self.problem.objective

    @property
    def alpha(self) -> float:
        """The penalty, once given or chosen."""
        assert self.known_alpha is not None
        return self.known_alpha

    @abstractmethod
    def solve(self) -> FeatureSolution:
        """Return the solution in terms of the sketched kernel functions."""

    def has_time(self) -> bool:
        """Return whether the remaining time suffices for a usable solution."""
        return True

    def path(self, alphas: Iterable[float]) -> Iterator[FeatureSolution]:
        """Yield the solution for each penalty, with the same features."""
        with one_thread():
            projection, design = self.data.design(keep=True)
            for solution in self.objective.path(design, alphas, self.plan.options()):
                yield self._certificate.of_features(solution, projection, design)

    def left_out(self, alphas: NDArray, fold: Fold) -> Iterator[NDArray]:
        """Yield the predictions of the left-out rows for each penalty."""
        _, Z = self.data.design(keep=True)
        kept = fold.kept(Z.shape[0])
        outside = Z.gather(fold.test)
        part = self.objective.take(kept)
        for solution in part.path(Z.gather(kept), alphas, self.plan.options()):
            yield outside.mv(solution.coef) + solution.intercept

    @property
    def _certificate(self) -> FittedCertificate:
        """Certificate of predictions, in terms of the sketched kernel functions."""
        is_chosen = self.plan.alpha is None
        return FittedCertificate(self.data, self.objective, self._tol, is_chosen)

    @property
    def _columns(self) -> Any:
        """K S^T."""
        return sketched_columns(self.data.kernel, self.data.rows, self.data.sketch)

    def threads(self) -> AbstractContextManager:
        """Limit BLAS to one thread for iterative solvers, for any n."""
        return one_thread()

    @property
    def _tol(self) -> float:
        sketch = self.data.sketch
        kind = self.objective.loss_kind
        on_features = kind != "square" and not sketch.is_identity
        kind = None if on_features else kind
        return max(least_tol(kind, sketch.is_identity, sketch.shape[1]), self.plan.tol)

    def _penalties(self) -> list[float]:
        """Return the penalty; if chosen on a sample, also stronger ones."""
        trials = 1 if self.plan.alpha is not None else _TRIALS
        return [self.alpha * _STRONGER**trial for trial in range(trials)]

    def _with_steps(self, most: int) -> Self:
        """Return the method with at most `most` steps for a chosen penalty."""
        plan = self.plan
        if plan.alpha is None:
            plan = replace(plan, max_iter=min(most, plan.max_iter))
        return replace(self, problem=self.problem._replace(plan=plan))

    def _is_too_slow(self) -> bool:
        """Return whether the time does not suffice to decompose the features."""
        size, n = self.data.sketch.shape
        is_large = n * size**2 > _CLOSED_FORM_WORK
        return is_large or is_stopped() or not has_seconds(closed_seconds, n, size)


class Newton(Method):
    """Certified Newton steps on the features."""

    def _with_alpha(self) -> Method:
        if self.path_alpha is not None and np.isfinite(seconds_left()):
            # No time for a second path of penalties.
            return replace(self, known_alpha=self.path_alpha)
        with one_thread():
            features = self._features()
            alpha = self.objective.choose_alpha(features[1], self.data.rng)
        data = self.data._replace(features=features)
        return replace(self, data=data, known_alpha=float(alpha))

    def solve(self) -> FeatureSolution:
        """Return the solution in terms of the sketched kernel functions."""
        with one_thread():  # many small products, for any n
            projection, design = self._features()
            solution = self._minimum(design)
            return self._certificate.of_features(solution, projection, design)

    def _features(self) -> tuple[NDArray, Design]:
        """Return the projection and the features, centered if there is an intercept."""
        projection, design = self.data.design(keep=True)
        return projection, centered(design) if self.objective.fit_intercept else design

    def _minimum(self, design: Design) -> FeatureSolution:
        return self.objective.solve(design, self.alpha, self.plan.options())


class SpanningRows(Newton):
    """Newton steps on the features of few rows that span the others."""

    def _minimum(self, design: Design) -> FeatureSolution:
        """Return the minimum; a chosen penalty is increased until it converges."""
        options = self.plan.options()
        for solution in self.objective.path(design, self._penalties(), options):
            if solution.gap <= LARGEST_GAP or is_stopped():
                break
        return solution


class DefaultLandmarks(Newton):
    """Newton steps on the default landmarks, with penalty and width chosen on a sample.

    As for all rows of smaller data: held-out errors along a path are flat over decades.
    """

    sample = DualSample
    choice_share = 0.5


class Stochastic(Newton):
    """Adam or stochastic subgradient steps on the features, without a certificate."""

    def _minimum(self, design: Design) -> FeatureSolution:
        solver = self.plan.stochastic
        assert solver is not None
        return self.objective.descend(design, self.alpha, solver)


class ClosedForm(Method):
    """One decomposition of the features for all penalties.

    It chooses the penalty and computes the solution, so `solve` does both.
    """

    def threads(self) -> AbstractContextManager:
        """Leave the number of threads unchanged."""
        return nullcontext()

    def solve(self) -> FeatureSolution:
        """Return the solution in terms of the sketched kernel functions."""
        data, (size, n) = self.data, self.data.sketch.shape
        with threads_for(4.0 * size * n * size):
            projection, design = data.design(self.objective.keep_features)
            report("solver" if self.known_alpha else "penalty")
            chosen_on = None
            if self.problem.validation is not None:
                rows, targets = self.problem.validation
                rows = data.transform(rows, "X_val")
                chosen_on = features_design(data.expansion, projection, rows), targets
            solution = self.objective.fit(design, self.known_alpha, data.rng, chosen_on)
            return self._certificate.of_features(solution, projection, design)

    def _of_rows(self, solution: Solution, alpha: float) -> FeatureSolution:
        solved = FeatureSolution.of_rows(solution, alpha, self._tol)
        return solved._replace(order=self.order)

    def _limits(self) -> dict[str, Any]:
        """Return the problem and the limits in the form of iterative solvers."""
        options = self.plan.options()
        limits = {"tol": self._tol, "max_passes": max(3, options.max_iter)}
        return self.objective.problem() | limits | {"callback": options.callback}


class ExactRidge(ClosedForm):
    """Least squares on the Gram matrix of all rows: Cholesky factors or passes."""

    sample = SplitSample

    def threads(self) -> AbstractContextManager:
        """Limit BLAS to one thread for passes, and by n for factorizations."""
        n = self.data.sketch.shape[0]
        return threads_for(n**3) if sizes.is_dense(n) else one_thread()

    def solve(self) -> FeatureSolution:
        """Return the solution, with one coefficient per row.

        A penalty chosen on a sample is increased until the passes converge.
        """
        penalties = self._penalties()
        given = len(penalties) == 1
        with self.threads():
            for alpha in penalties:
                with nullcontext() if given else suppress(NotConvergedError):
                    solution = next(self._solutions([alpha], not given))
                    return self._certificate.of_rows(solution)
        raise NotConvergedError(
            "conjugate gradients do not converge on "
            f"{self.data.rows.shape[0]} rows: "
            "pass `alpha`, or `size` for a sketch"
        )

    def has_time(self) -> bool:
        """Return whether most of the time of a solution remains."""
        _, seconds = exact_seconds(self.data, self.objective.targets.shape[1])
        return _MOST_OF_IT * seconds <= seconds_left()

    def path(self, alphas: Iterable[float]) -> Iterator[FeatureSolution]:
        """Yield the solution for each penalty; for few rows, on their features."""
        if not sizes.is_solved_by_passes(self.data.sketch.shape[1]):
            yield from super().path(alphas)
            return
        with one_thread():
            yield from map(self._certificate.of_rows, self._solutions(alphas))

    def left_out(self, alphas: NDArray, fold: Fold) -> Iterator[NDArray]:
        """Yield the predictions of the left-out rows for each penalty."""
        kernel = self.data.kernel
        inputs = self.data.inputs
        kept = fold.kept(len(self.objective.targets))
        fitted = take_rows(kernel, inputs.rows, kept)
        others = take_rows(kernel, inputs.rows, fold.test, kept)
        part = self.problem._replace(objective=self.objective.take(kept))
        data = self.data._replace(inputs=inputs._replace(rows=fitted))
        for solution in replace(self, problem=part, data=data)._solutions(alphas):
            yield products(kernel, others, fitted, solution.coef) + solution.intercept

    def _solutions(
        self, alphas: Iterable[float], is_short: bool = False
    ) -> Iterator[FeatureSolution]:
        """Yield the solution for each penalty; the smallest sets the precision."""
        penalties = list(map(float, alphas))
        n = self.data.rows.shape[0]
        if sizes.is_dense(n):
            yield from self._dense(penalties)
            return
        solutions = self._conjugate(penalties, is_short)
        for i in range(len(penalties)):
            try:
                yield next(solutions)
            except NotConvergedError as error:
                if n > _MOST_DENSE_ROWS or not sizes.fits_dense(n):
                    raise
                if has_seconds(dense_seconds, n):
                    yield from self._dense(penalties[i:])
                elif is_short or error.solution is None:
                    raise
                else:
                    yield self._of_rows(error.solution, penalties[i])
                return

    def _conjugate(
        self, alphas: list[float], is_short: bool
    ) -> Iterator[FeatureSolution]:
        """Yield the solutions by preconditioned conjugate gradients."""
        data = self.data
        rows = data.rows
        limits = self._limits()
        if is_short:
            limits["max_passes"] = min(_MOST_PASSES, limits["max_passes"])
        dtype = values_dtype(rows.shape[0], min(alphas) / values_scale(data), self._tol)
        K = SymmetricGram(data.kernel, rows, dtype=dtype)
        solutions = conjugate_path(
            K, self.objective.targets, alphas, **limits, random_state=data.rng
        )
        for alpha, solution in zip(alphas, solutions, strict=True):
            yield self._of_rows(solution, alpha)

    def _dense(self, alphas: list[float]) -> Iterator[FeatureSolution]:
        """Yield the solutions by Cholesky factorizations of the Gram matrix."""
        # Single precision would lose the gap.
        rows = self.data.rows.astype(np.float64, copy=False)
        K = np.asarray(self.data.kernel(rows), dtype=np.float64)
        for alpha in alphas:
            solution = self.objective.solve_gram(K, alpha)
            yield solution._replace(rank=len(K), order=self.order)


class Nystrom(ClosedForm):
    """Least squares on a large sketch, by conjugate gradients, else in closed form."""

    sample = SplitSample
    choice_share = 0.5

    def choose_alpha(self) -> Method:
        """Return the method with the penalty, or in closed form if few rows span."""
        return on_spanning_rows(super().choose_alpha(), ClosedForm, self.plan.alpha)

    def solve(self) -> FeatureSolution:
        """Return the solution in terms of the sketched kernel functions.

        If the closed form is too expensive, a penalty chosen on a sample is increased
        until the passes converge.
        """
        targets = self.objective.targets
        size, n = self.data.sketch.shape
        penalties = self._penalties()
        for alpha in penalties if self._is_too_slow() else penalties[:1]:
            columns = self._columns  # anew: their dtype depends on the penalty
            try:
                solution = solve_nystrom(columns, targets, alpha, **self._limits())
                break
            except NotConvergedError as error:
                if error.solution and not has_seconds(closed_seconds, n, size):
                    solution = error.solution
                    break
        else:
            return super().solve()
        if solution.converged or self._is_too_slow():
            return self._certificate.of_rows(self._of_rows(solution, alpha))
        return super().solve()


class Passes(Newton):
    """Other losses on a large sketch, by passes, else on its features."""

    choice_share = 0.5

    def choose_alpha(self) -> Method:
        """Return the method with the penalty, or on features if few rows span."""
        chosen = super().choose_alpha()
        return on_spanning_rows(chosen, SpanningRows, chosen.known_alpha)

    @property
    def sample(self) -> type[SplitSample]:
        """Sample on which penalty and width are chosen."""
        return LevelsSample if self.objective.loss_kind == "joint" else DualSample

    def solve(self) -> FeatureSolution:
        """Return the solution in terms of the sketched kernel functions.

        If the features are too expensive, a penalty chosen on a sample is increased
        until the passes converge.
        """
        penalties = self._penalties()
        has_features = self.objective.has_features(self.data.sketch.shape[0])
        if has_features and not self._is_too_slow():
            penalties = [alpha for alpha in penalties if alpha == self.alpha]
        limited = self._with_steps(_MOST_PASSES)
        for alpha in penalties:
            solution = next(limited.path([alpha]))
            if solution.gap <= LARGEST_GAP or is_stopped():
                break
        else:
            if has_features:
                return super().solve()
        return solution._replace(order=self.order)

    def _penalties(self) -> list[float]:
        """Return the penalty; if chosen, at least the resolution of the landmarks."""
        penalties = super()._penalties()
        least = least_penalty(self.data.sketch.shape[0]) * values_scale(self.data)
        raised = max(1.0, least / penalties[0]) if len(penalties) > 1 else 1.0
        return [raised * alpha for alpha in penalties]

    def path(self, alphas: Iterable[float]) -> Iterator[FeatureSolution]:
        """Yield the solution for each penalty, warm-started from the previous one."""
        penalties = [float(alpha) for alpha in alphas]
        options = self.plan.options()._replace(tol=self._tol)
        with one_thread():
            scale = self.objective.loss_scale
            tol = self._tol * scale / self.objective.slope_ratio()
            design = LandmarkDesign(self._columns, min(penalties) / scale, tol)
            for solution in self.objective.path(design, penalties, options):
                yield self._certificate.of_columns(solution, design)

    @property
    def _tol(self) -> float:
        return max(_PASSES_TOL[self.objective.loss_kind], self.plan.tol)


class Dual(Newton):
    """Losses other than the square loss on all rows, by Newton steps on the dual.

    All rows would have n features. Products with the Gram matrix, which is not stored
    above the memory limit, are used instead.
    """

    sample = DualSample

    def choose_alpha(self) -> Method:
        """Return the method with the penalty, or on features for a very weak one."""
        chosen = super().choose_alpha()
        is_resolved = self._has_features or chosen.alpha > _WEAK
        if self.plan.alpha is not None or is_resolved:
            return chosen
        return on_spanning_rows(chosen, SpanningRows, chosen.known_alpha)

    def solve(self) -> FeatureSolution:
        """Return the solution; if the dual does not converge, few rows use features.

        A penalty chosen on a sample is increased if it does not converge.
        """
        limited = self if self._has_features else self._with_steps(_MOST_STEPS)
        with one_thread():
            for alpha in self._penalties():
                solution = next(limited._solutions([alpha]))
                if solution.gap <= LARGEST_GAP or is_stopped():
                    break
        reached = not solution.shortfall or self._is_limited(solution.n_iter)
        if reached or not self._has_features:
            return solution._replace(order=self.order)
        return super().solve()

    def path(self, alphas: Iterable[float]) -> Iterator[FeatureSolution]:
        """Yield the solution for each penalty; for few rows, on their features."""
        if self._has_features:
            yield from super().path(alphas)
            return
        with one_thread():
            yield from self._solutions(alphas)

    def _solutions(self, alphas: Iterable[float]) -> Iterator[FeatureSolution]:
        """Yield the solution for each penalty, warm-started from the previous one.

        Kernel values switch to double precision when single precision is too coarse.
        """
        n = self.data.sketch.shape[1]
        state = self.start
        K = self._gram(np.float64 if n <= _DOUBLE_ROWS else np.float32)
        for alpha in map(float, alphas):
            solution = self._solution(K, alpha, state)
            coarse = not solution.converged and solution.relative_gap <= LARGEST_GAP
            limited = self._is_limited(solution.n_iter)
            if coarse and not limited and K.dtype == np.float32:
                K = self._gram(np.float64)
                solution = self._solution(K, alpha, solution.state)
            state = solution.state
            of_rows = FeatureSolution.of_rows(solution, alpha, self._tol)
            yield self._certificate.of_rows(of_rows)

    def _gram(self, dtype: Any) -> SymmetricGram | NDArray:
        return gram(self.data.kernel, self.data.rows, dtype)

    def _solution(
        self, K: SymmetricGram | NDArray, alpha: float, state: Any
    ) -> Solution:
        options = self.plan.options()._replace(tol=self._tol)._asdict()
        options |= {"state": state, "random_state": self.data.rng}
        return next(self.objective.dual_path(K, [alpha], **options))

    @property
    def _has_features(self) -> bool:
        """Whether the features of all rows are affordable."""
        return self.data.sketch.shape[1] <= _FEATURE_ROWS

    def _is_limited(self, n_iter: int) -> bool:
        """Return whether a solution has reached the limit of steps or of time."""
        return is_stopped() or n_iter >= self.plan.max_iter


def on_spanning_rows(
    method: Method, on_features: type[Method], alpha: float | None
) -> Method:
    """Return the method on rows of a default sketch that span the others, if few do.

    If their features are fast, or the penalty is weak, it is that on features, with the
    penalty `alpha`.
    """
    if not method.plan.is_free:
        return method
    n = method.data.sketch.shape[1]
    is_weak = method.alpha <= _WEAK
    affordable = int((_CLOSED_FORM_WORK / n) ** 0.5) if is_weak else _SPANNING
    data = method.data.spanning(min(_SPANNING, affordable))
    if data is method.data:
        return method
    if not is_weak and n * data.sketch.shape[0] ** 2 > _FAST_WORK:
        return replace(method, data=data)
    problem = method._with_steps(_MOST_STEPS).problem
    # The tolerance is that of passes, or of the dual.
    problem = problem._replace(plan=replace(problem.plan, tol=method._tol))
    return on_features(problem, data, known_alpha=alpha, order=method.order)


def least_tol(kind: str | None, all_rows: bool, n: int) -> float:
    """Return the minimum `tol` of a solution.

    It depends on the kind of the loss, None on features. For least squares it is that
    of passes over landmarks, even for all rows.
    """
    if kind is None:
        return 0.0
    if kind == "square" or not all_rows:
        return _PASSES_TOL.get(kind, 0.0)
    return _DUAL_TOL[kind] if n > _FEATURE_ROWS else 0.0
