"""Arguments and results that the solvers of vector-valued problems have in common."""

from collections.abc import Callable
from time import perf_counter
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nbsketch._validation import check_matrix
from nbsketch.solvers.solution import Solution, State

Callback = Callable[[int, float, float, float], Any]


class VectorCertificate(Protocol):
    """A primal and a dual point, and what they prove of each other."""

    @property
    def coef(self) -> NDArray:
        """Coefficients W."""

    @property
    def intercept(self) -> NDArray:
        """Constants b."""

    @property
    def dual(self) -> NDArray:
        """Dual point."""

    @property
    def objective(self) -> float:
        """Objective at (W, b)."""

    @property
    def gap(self) -> float:
        """Certified distance from the minimum."""

    @property
    def scale(self) -> float:
        """What the gap is compared with."""


Report = Callable[[int, VectorCertificate], None]

_RATIO = 8  # between the sizes of nested samples
_ROWS_PER_FEATURE = 30  # fewer rows than this per feature say too little of the whole
_SAMPLE_TOL, _SAMPLE_STEPS = 1e-4, 200
_OUTLYING = 20.0  # times the median


def check_targets(name: str, value: ArrayLike, shape: tuple[int, ...]) -> NDArray:
    """Return `value` as a finite float array of the given shape."""
    array = np.ascontiguousarray(value, dtype=float)
    if array.shape != shape:
        raise ValueError(f"`{name}` must have shape {shape}, got {array.shape}")
    if not np.isfinite(array).all():
        raise ValueError(f"`{name}` must be finite, got NaN or infinity")
    return array


def check_weights(sample_weight: ArrayLike | None, n: int) -> NDArray:
    """Return the weights of the rows, one each if None."""
    if sample_weight is None:
        return np.ones(n)
    weights = check_targets("sample_weight", sample_weight, (n,))
    if weights.min() < 0 or not weights.any():
        raise ValueError(
            "`sample_weight` must be nonnegative with a positive sum, got a minimum of "
            f"{weights.min()} and a sum of {weights.sum()}"
        )
    return weights


def check_factor(T: ArrayLike, n_outputs: int) -> NDArray:
    """Return T as a float matrix with one column per output."""
    return check_matrix("T", T, n_features=n_outputs).astype(float)


def check_state(state: State, coef_shape: tuple[int, int], n_outputs: int) -> None:
    """Raise an error if `state` is that of a problem of another shape."""
    shapes = np.shape(state.coef), np.shape(state.intercept)
    if shapes != (coef_shape, (n_outputs,)):
        raise ValueError(
            f"`state` must hold coef and intercept of shapes {coef_shape} and "
            f"({n_outputs},), got {shapes[0]} and {shapes[1]}"
        )


def nested_start(problem: Any, cold: State, method: Any) -> State:
    """Return a start from nested random samples of the rows, `cold` if they are few.

    Each sample is solved by `method` to a rough accuracy starting from the smaller one
    before; the smoothing that follows matches the distance that is left, about
    sqrt(r / rows).
    """
    counted = np.flatnonzero(problem.weights > 0)
    sizes, size = [], len(counted) // _RATIO
    while size > _ROWS_PER_FEATURE * problem.rank:
        sizes.append(size)
        size //= _RATIO
    state, order = cold, np.random.default_rng(0).permutation(counted)
    for size in reversed(sizes):
        part = problem.sample(np.sort(order[:size]))
        best, *_ = method(part, state, _SAMPLE_TOL, _SAMPLE_STEPS).run()
        spread = part.spread(part.residual(best.coef, best.intercept))
        sigma = 0.3 * np.sqrt(problem.rank / size) * spread
        state = State(best.coef, best.intercept, None, sigma if sigma > 0 else None)
    return state


def typical_size(sizes: NDArray) -> float:
    """Return the mean of the sizes that are not zero, with outlying ones cut down."""
    sizes = sizes[sizes > 0]
    if sizes.size == 0:
        return 1.0
    return float(np.minimum(sizes, _OUTLYING * np.median(sizes)).mean())


def timed(callback: Callback | None, began: float) -> Report | None:
    """Return a report that passes objective, gap and time on to the user's callback."""
    if callback is None:
        return None

    def report(step: int, found: VectorCertificate) -> None:
        callback(step, found.objective, found.gap, perf_counter() - began)

    return report


def vector_solution(
    best: VectorCertificate,
    state: State,
    steps: int,
    target: float,
    tol: float,
    began: float,
) -> Solution:
    """Return the Solution of a search that was to bring the gap below `target`."""
    relative = best.gap * tol / target if target > 0 else best.gap
    return Solution(
        best.coef, best.intercept, best.dual, best.objective, best.gap, relative, steps,
        perf_counter() - began, best.gap <= target, state,
    )  # fmt: skip
