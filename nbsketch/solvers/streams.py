"""The stochastic gradient method on a stream: each row is used once, and not kept."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nbsketch._fields import array, check_fields, integer, not_negative, stored
from nbsketch._validation import (
    check_array_of,
    check_matrix,
    check_positive,
    random_generator,
)
from nbsketch.losses import Loss
from nbsketch.solvers._stochastic.problem import sgm_problem
from nbsketch.solvers._stochastic.search import (
    SGMSearch,
    average_start,
    solution,
    squared_norms,
)
from nbsketch.solvers.design import ArrayDesign


@stored
class StreamState:
    """State of the method between the parts of a stream.

    Attributes
    ----------
    point : ndarray of shape (d, r + 1)
        Coefficients and intercept of each output.
    totals : ndarray of shape (2, d, r + 1) or (2, 0, 0)
        Sums of points for the average; empty without one.
    n_steps : int
        Steps taken.
    square_norm : float
        Largest squared norm of the features of a row so far, or the given one.
    """

    point: Annotated[NDArray, array("_d _columns")]
    totals: NDArray
    n_steps: Annotated[int, integer()]
    square_norm: Annotated[float, not_negative]

    def __post_init__(self) -> None:
        """Check that the sums are those of such points, or empty."""
        check_fields(self)
        shapes = (2, *self.point.shape), (2, 0, 0)
        totals = check_array_of("totals", self.totals, "f")
        if totals.shape not in shapes or not np.isfinite(totals).all():
            raise ValueError(
                f"`totals` must be finite, of one of the shapes {shapes}, got shape "
                f"{totals.shape}"
            )

    @classmethod
    def after(cls, point: NDArray, n_steps: int, square_norm: float) -> StreamState:
        """Return a state at a point, as after so many steps that did not move it.

        For 0 steps it has no average.
        """
        if n_steps == 0:
            return cls(point, np.zeros((2, 0, 0)), 0, square_norm)
        power = 1 << (n_steps.bit_length() - 1)
        counts = n_steps - power, power - average_start(n_steps)
        totals = np.stack([count * point for count in counts])
        return cls(point, totals, n_steps, square_norm)


def stream_sgm(
    Z: ArrayLike,
    Y: ArrayLike,
    loss: Loss | str = "square",
    state: StreamState | None = None,
    *,
    step: float,
    batch_size: int,
    alpha: float = 0.0,
    penalty_weights: ArrayLike | None = None,
    square_norm: float | None = None,
    sample_weight: ArrayLike | None = None,
    fit_intercept: bool = False,
    average: bool = False,
    rng: Any = None,
) -> tuple[NDArray, Any, StreamState]:
    """Pass once over some rows, in their order, and return coef, intercept and state.

    The arguments are those of `solve_sgm`, with these differences: batches are runs of
    rows (the last one may be shorter), the largest squared norm that sets the length of
    a step is that of the rows so far unless `square_norm` is given, and a row of weight
    s is visited s times; of a weight that is not an integer the fraction is the
    probability of one visit more. With batches of one row the result does not depend on
    how the stream is cut into calls. The given state is not changed.

    Examples
    --------
    >>> import numpy as np
    >>> Z = np.random.default_rng(0).normal(size=(200, 2))
    >>> state = None
    >>> for start in range(0, 200, 50):
    ...     rows = slice(start, start + 50)
    ...     coef, _, state = stream_sgm(
    ...         Z[rows], Z[rows] @ [1.0, -1.0], "square", state, step=1.0, batch_size=1
    ...     )
    >>> coef.round(3), state.n_steps
    (array([ 1., -1.]), 200)
    """
    Z = check_matrix("Z", Z)
    problem = sgm_problem(
        ArrayDesign._trusted(Z), Y, loss, alpha, sample_weight, fit_intercept
    )
    search = SGMSearch.start(problem, step, batch_size, average, penalty_weights)
    before = 0.0
    if state is not None:
        _check_state(state, search)
        before = state.square_norm
        search = replace(
            search, point=state.point.copy(), totals=state.totals.copy(),
            n_steps=state.n_steps,
        )  # fmt: skip
    order = np.arange(len(Z))
    if sample_weight is not None:
        order = np.repeat(order, _visits(problem.weights, random_generator(rng)))
    if order.size:
        largest = search.largest(squared_norms(Z), order)
        if square_norm is None:
            largest = np.maximum.accumulate(np.maximum(largest, before))
            before = float(largest[-1])
        else:
            before = check_positive("square_norm", square_norm)
            largest = np.maximum(largest, before)
        search.run(Z, problem.targets, order, search.rates(largest))
    after = StreamState(search.point, search.totals, search.n_steps, before)
    return *solution(search.result, problem.scalar), after


def _visits(weights: NDArray, rng: np.random.Generator) -> NDArray[np.int64]:
    """Round weights to integers at random, with the weights as means."""
    whole = np.floor(weights)
    return (whole + (rng.random(len(weights)) < weights - whole)).astype(np.int64)


def _check_state(state: StreamState, search: SGMSearch) -> None:
    if state.point.shape != search.point.shape:
        n_outputs, size = state.point.shape
        raise ValueError(
            f"`state` must be of {search.point.shape[0]} outputs and "
            f"{search.point.shape[1] - 1} features, got {n_outputs} and {size - 1}"
        )
    if state.totals.shape != search.totals.shape:
        raise ValueError(
            f"`average` must be {state.totals.size > 0} as before in this stream, got "
            f"{search.totals.size > 0}"
        )
