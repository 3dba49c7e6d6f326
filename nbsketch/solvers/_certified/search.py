"""Base of the certified searches: Newton steps in rounds, each round certified."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nbsketch._report.validation import check_integer, check_positive
from nbsketch.solvers._certified import checks
from nbsketch.solvers._newton.problem import NewtonProblem
from nbsketch.solvers.solution import Callback, Certificate, Progress, Solution, State

_TRIALS = 200
_EXACT = 0.1  # share of the derivative at 0 that may remain


Derivatives = Callable[[float], tuple[float, float]]
_LEAST_SHARE = 1e-20  # smallest `share`
_COMPARED = 2000  # rows for measuring the change of the predictions
_RATIO = 8  # between the sizes of nested samples
_ROWS_PER_FEATURE = 30  # a smaller sample is too inaccurate as a start
_SAMPLE_TOL = 1e-4
_SAMPLE_STEPS = 200


def convex_step(
    derivatives: Derivatives,
    start: float,
    n: float = 1.0,
    slope: float = 0.0,
    quadratic: float = 0.0,
) -> float:
    """Return a step t > 0 whose derivative is at most a tenth of the derivative at 0.

    The function is a sum over n, plus ``slope t + quadratic t^2 / 2``.

    Newton's method from t = 1, kept inside a bracket of the minimizer that regula falsi
    and bisection shrink. Return 0 if no trial step is an improvement.

    Parameters
    ----------
    derivatives : callable
        The first and second derivative of the sum at a step.
    start : float
        First derivative of the function at 0. Negative.
    n, slope, quadratic : float
        Divisor of the sum, and the quadratic.
    """
    low = 0.0
    high = None
    t = 1.0
    low_value = start
    high_value = 0.0
    best = 0.0
    best_value = -start
    for trial in range(_TRIALS):
        first, second = derivatives(t)
        value = first / n + slope + quadratic * t
        curvature = second / n + quadratic
        if abs(value) < best_value:
            best = t
            best_value = abs(value)
            if best_value <= -_EXACT * start:
                break
        if value > 0:
            high = t
            high_value = value
        else:
            low = t
            low_value = value
        newton = t - value / curvature if curvature > 0 else 10.0 * t
        if high is None:  # extend outwards, up to a limit
            t = min(max(newton, 1.5 * t), 10.0 * t)
        elif high - low <= 1e-14 * high:
            return low or high
        elif low < newton < high and trial % 3 < 2:
            t = newton
        elif trial % 3 == 0:
            t = low + (high - low) * low_value / (low_value - high_value)
        else:
            t = 0.5 * (low + high)
    return best


class CertifiedSearch(ABC):
    """Minimize a problem by Newton steps in rounds.

    The search runs in rounds. A round minimizes a smooth approximation of the
    objective, of width `sigma` around a dual point, by Newton steps with an exact line
    search, and ends with a certificate over all rows. Then the dual point moves to the
    new slopes, `sigma` decreases, and the next round starts. For a smooth loss sigma =
    0, and rounds differ only in their accuracy.

    The constructor sets the attributes below and calls, in this order,

    - ``_begin(state)``, which sets `sigma`, whatever the subclass keeps for itself,
      evaluates the start (dual point, sums, gradient) and returns the first `best`;
    - ``_rounding()``, the gap that rounding alone may leave.

    `run` then repeats

    1. up to 50 Newton steps, each of them
       ``_settled(step)`` (stop if true; by default from `error` and `young`),
       ``_direction()`` (flat, as `rho`),
       ``_length(D, shift)`` (of the step along it, by `_step_length`, for changes of
       coefficients and intercept; also moves the residuals),
       ``_evaluate()`` (refreshes dual point, sums, `rho`, `error` and `young`, and
       returns whether the round may go on) and, if there is a callback,
       ``_step_certificate()``, in place of which the best certificate is reported if it
       is None;
    2. ``_certify()``, which refreshes `res` from the coefficients and returns a
       certificate over all rows;
    3. ``_has_stalled(before)``, which ends a search that rounding has stopped;
    4. ``_next_round(settled)``, which sets dual point and `sigma`, evaluates them and
       chooses the active rows, if the subclass has any;

    until `converged` or `max_iter`, and asks ``_state()`` for the warm start of the
    next search.

    Parameters
    ----------
    problem : NewtonProblem
        The problem to minimize.
    state : State
        Warm start.
    tol : float
        Bound on the gap divided by the scale of the objective.
    max_iter : int
        Maximum number of steps.
    progress : Progress, optional
        Told of each step. If its callback returns true, the search stops after at least
        one step.

    Attributes
    ----------
    problem, tol, max_iter, progress
        The parameters.
    steps : int
        Steps taken.
    best : Certificate
        The best certificate so far.
    floor : float
        Gap below which rounding dominates.
    coef : ndarray
        Current coefficients; replaced, never modified in place.
    intercept : float or ndarray of shape (d,)
        Current intercept, 0 if it is not fitted; replaced, never modified in place.
    res : ndarray
        Residuals at the last certificate, or current ones, as the subclass chooses.
    sigma : float
        Width of the smoothing; 0 for none.
    rho : ndarray
        Gradient of the smoothed objective, flat, with the intercept last.
    error, young : float
        Estimates of the gap of the inner problem, and of the gap due to smoothing.
    slope : float
        Derivative of the smoothed objective along the last direction.
    idle : int
        Rounds since the best certificate improved by a tenth.
    share : float
        Factor, at most 1, on the accuracy of a round. It decreases if certificates are
        worse than the inner problem, because balancing the dual point has a cost.
    expected : float
        Gap expected after the last round: `error` plus `young`.
    inexact : float
        Class attribute: a round ends when the error of the inner problem is this
        multiple of the gap due to smoothing.
    patience : int
        Class attribute: rounds without progress before the search stops.
    most_steps : int
        Class attribute: maximum number of steps in a round.
    samples : bool
        Class attribute: whether it starts from solutions on samples of the rows.
    """

    rho: NDArray
    error: float
    young: float
    best: Certificate
    samples = True
    inexact = 1.0
    patience = 20
    most_steps = 50

    def __init__(
        self,
        problem: NewtonProblem,
        state: State,
        tol: float,
        max_iter: int,
        progress: Progress | None = None,
    ) -> None:
        self.problem = problem
        self.tol = tol
        self.max_iter = max_iter
        self.progress = progress or Progress()
        self.steps = 0
        self.coef = np.array(state.coef, dtype=float)
        self.intercept = np.array(state.intercept, float) * problem.fit_intercept
        self.res = problem.residual(self.coef, self.intercept)
        self.sigma = 0.0
        self.slope = -np.inf
        self.idle = 0
        self.share = 1.0
        self.expected = np.inf
        self.best = self._begin(state)
        self.floor = max(1e-15 * self.best.scale, self._rounding())

    @property
    def target(self) -> float:
        """The gap at which to stop."""
        return max(self.tol * self.best.scale, self.floor)

    @property
    def converged(self) -> bool:
        """Whether the best certificate reaches the target."""
        return bool(self.best.gap <= self.target)

    @property
    def _is_spent(self) -> bool:
        """Whether no further step is allowed."""
        return self.steps >= self.max_iter or (self.progress.stopped and self.steps > 0)

    def _solution(self, state: State) -> Solution:
        best = self.best
        relative = best.relative_gap
        if self.tol < relative and best.gap <= self.floor:
            # Rounding may leave no typical losses as a reference for the gap.
            relative = best.gap / best.objective if best.objective > 0 else 0.0
        return Solution(
            best.coef, best.intercept, np.transpose(best.dual), best.objective,
            best.gap, relative, self.steps, 0.0, relative <= self.tol, state,
        )  # fmt: skip

    def _report(self, certificate: Certificate) -> None:
        self.progress.report(self.steps, certificate.objective, certificate.gap)

    def run(self) -> Solution:
        """Return the best solution found."""
        self._report(self.best)
        while not (self.converged or self._is_spent):
            before = self.steps
            settled = self._descend()
            self._verify()
            if self.converged or self._has_stalled(before):
                break
            self._next_round(settled)
        return self._solution(self._state())

    @abstractmethod
    def _begin(self, state: State) -> Certificate: ...

    def _rounding(self) -> float:
        return 0.0

    @abstractmethod
    def _direction(self) -> NDArray: ...

    @abstractmethod
    def _length(self, D: NDArray, shift: NDArray) -> float: ...

    @abstractmethod
    def _evaluate(self) -> bool: ...

    def _step_certificate(self) -> Certificate | None:
        """Return a certificate to report after a step; by default None."""
        return None

    @abstractmethod
    def _certify(self) -> Certificate: ...

    def _has_stalled(self, before: int) -> bool:
        """Whether to stop without progress; the round took ``steps - before`` steps."""
        return self.idle >= self.patience

    @abstractmethod
    def _next_round(self, settled: bool) -> None: ...

    @abstractmethod
    def _state(self) -> State: ...

    def _descend(self) -> bool:
        """Take Newton steps until the inner problem is solved; return whether it is."""
        for step in range(self.most_steps):
            if self._settled(step):
                return True
            if self._is_spent:
                return False
            direction = self._direction()
            self.slope = float(self.rho @ direction)
            if not self.slope < 0:
                return True
            if not self._advance(direction):
                return False
            self.steps += 1
            if not self._evaluate():
                return False
            if self.progress.callback:  # a time limit applies within a round
                self._report(self._step_certificate() or self.best)
        return False

    def _advance(self, direction: NDArray) -> bool:
        """Move along a direction; return whether any step was possible."""
        D, shift = self.problem.split(direction)
        t = self._length(D, shift)
        self.coef = self.coef + t * D
        self.intercept = self.intercept + t * shift
        return t > 0

    def _settled(self, step: int) -> bool:
        """Whether the inner problem is solved accurately enough for the round."""
        self.expected = self.error + self.young
        if self.expected <= 0.9 * self.share * self.target:
            return True
        if self.sigma == 0 or step == 0:
            return False
        allowed = max(self.inexact * self.young, 1e-3 * self.target)
        return self.error <= self.share * allowed

    def _step_length(
        self,
        part: NewtonProblem,
        res: NDArray,
        move: NDArray,
        center: NDArray,
        change: NDArray,
        other_slope: float = 0.0,
    ) -> float:
        """Return the step of an exact line search.

        Parameters
        ----------
        part : NewtonProblem
            Problem of the active rows.
        res, move, center : ndarray of shape (m, rows)
            Their residuals, changes of predictions, and dual point of the smoothing.
        change : ndarray
            Change of the coefficients.
        other_slope : float
            Negative constant derivative of the sum over the other rows.
        """
        n = self.problem.n
        alpha = self.problem.alpha
        slope = float(alpha * np.vdot(self.coef, change) - other_slope / n)
        quadratic = float(alpha * np.vdot(change, change))

        def derivatives(t: float) -> tuple[float, float]:
            return part.slopes(t, res, move, center, self.sigma)

        return convex_step(derivatives, self.slope, n, slope, quadratic)

    def _verify(self) -> None:
        """Certify the end of a round and keep the best certificate."""
        certificate = self._certify()
        self._report(certificate)
        self._tighten(certificate)
        self.idle = 0 if certificate.gap < 0.9 * self.best.gap else self.idle + 1
        if certificate.gap < self.best.gap:
            self.best = certificate

    def _tighten(self, certificate: Certificate) -> None:
        """Lower `share` if the certificate is worse than expected."""
        late = certificate.gap > 2.0 * self.expected or self.expected <= self.target
        if certificate.gap > self.target and late:
            reached = self.expected / self.target
            self.share = max(0.1 * min(self.share, reached), _LEAST_SHARE)

    def _is_good(self, certificate: Certificate) -> bool:
        """Whether a certificate would end the search."""
        return certificate.gap <= max(self.tol * certificate.scale, self.floor)

    def _compared(self) -> NDArray:
        """Return the residuals of a subset of rows, to measure their change."""
        return self.res[..., :: max(1, self.res.shape[-1] // _COMPARED)]


def cold_start(problem: NewtonProblem) -> State:
    """Return zero coefficients with a good intercept, if it is fitted."""
    coef, intercept, _ = problem.shapes
    b = problem.best_constant() if problem.fit_intercept else np.zeros(intercept)[()]
    return State(np.zeros(coef), b)


def nested_sizes(n: int, rank: int) -> list[int]:
    """Return the sizes of nested samples of n rows, the largest first."""
    sizes = []
    size = n // _RATIO
    while size > _ROWS_PER_FEATURE * rank:
        sizes.append(size)
        size //= _RATIO
    return sizes


def nested_start(
    problem: Any, method: type[CertifiedSearch], start: Callable[[Any], State]
) -> State:
    """Return a start from nested random samples of the rows, `start` if n is small.

    `method` solves each sample roughly, starting from the smaller one before it. The
    smoothing that follows matches the remaining distance, about sqrt(r / rows).
    """
    counted = np.flatnonzero(problem.weights > 0)
    sizes = nested_sizes(len(counted), problem.rank)
    if not sizes:
        return start(problem)
    order = np.random.default_rng(0).permutation(counted)
    state: Any = None
    for size in reversed(sizes):
        part = problem.sample(np.sort(order[:size]))
        state = start(part) if state is None else state
        best = method(part, state, _SAMPLE_TOL, _SAMPLE_STEPS).run()
        spread = part.spread(part.residual(best.coef, best.intercept))
        sigma = 0.3 * np.sqrt(problem.rank / size) * spread
        last = best.state or state
        gram = last.gram if last.inside is None else None  # else of these rows only
        state = State(best.coef, best.intercept, None, sigma or None, gram)
    return state


def minimize(
    problem: NewtonProblem,
    method: type[CertifiedSearch],
    tol: float,
    max_iter: int,
    state: State | None,
    callback: Callback | None,
    start: Callable[[Any], State] = cold_start,
    *,
    is_scalar: bool = False,
) -> Solution:
    """Return the solution by `method`, from `state` or from nested samples if None.

    `start` returns the state from which the smallest sample is solved. If `is_scalar`,
    the arrays of the given state and of the solution have no axis of outputs.
    """
    progress = Progress(callback)
    check_positive("tol", tol)
    check_integer("max_iter", max_iter)
    shapes = problem.shapes
    if state is not None:
        checks.state(state, *(s[:-1] if is_scalar else s for s in shapes))
        state = state._replace(
            coef=np.reshape(state.coef, shapes[0]),
            intercept=np.reshape(state.intercept, shapes[1]),
            dual=None if state.dual is None else np.reshape(state.dual, shapes[2]),
        )
    elif method.samples:
        state = nested_start(problem, method, start)
    state = state or cold_start(problem)
    solution = method(problem, state, tol, max_iter, progress).run()
    solution = solution._replace(seconds=progress.seconds)
    if not is_scalar:
        return solution
    # A search ends with a state and a dual point.
    assert solution.state is not None and solution.dual is not None
    columns: dict[str, Any] = {
        "coef": solution.coef[:, 0],
        "intercept": float(solution.intercept[0]),
        "dual": solution.dual[:, 0],
    }
    return solution._replace(**columns, state=solution.state._replace(**columns))
