"""The projected stochastic gradient method, on features of a sketch.

It is regularized by early stopping: the number of passes over the data plays the role
of the penalty. Batches are drawn with replacement, as in the theory; on a stream each
row is used once and not stored.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import ceil, log, sqrt
from typing import Annotated, Any, NamedTuple, Required, TypedDict, Unpack

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nbsketch._jit.csr import draw_rows
from nbsketch._jit.sgd import LOGISTIC, run_projected_steps
from nbsketch._report.fields import array, integer, not_negative, stored
from nbsketch._report.validation import (
    check_array_of,
    check_choice,
    check_integer,
    check_positive,
    check_real,
    random_generator,
)
from nbsketch.losses import Loss
from nbsketch.solvers.design import Design, as_design
from nbsketch.solvers.stochastic import stochastic_problem

# Rows per compiled call: some tens of milliseconds, so that Ctrl-C works.
_ROWS_PER_CALL = 1 << 17
# Inverse of the largest curvature of the logistic loss.
_LOGISTIC_FLATNESS = 4.0
REGIMES = "I", "II", "III", "IV"


class Regime(NamedTuple):
    """Settings of `solve_sgm`.

    Attributes
    ----------
    step : float
        Step relative to 1 / kappa^2, at most 1.
    batch_size : int
        Rows per step.
    n_steps : int
        Number of steps.
    """

    step: float
    batch_size: int
    n_steps: int


def sgm_regime(
    name: str, n: int, *, source: float = 0.5, capacity: float = 1.0
) -> Regime:
    r"""Return one of the four regimes in which few passes reach the optimal rate.

    With :math:`\lambda_* = n^{-1 / \max(2 \zeta + \gamma, 1)}` each has
    :math:`\eta T \approx 1 / \lambda_*`, and all constants are one:

    ====  =================  ======================  =============================
    name  step               batch                   steps
    ====  =================  ======================  =============================
    I     :math:`\lambda_*`  1                       :math:`\lambda_*^{-2}`
    II    1 / log n          :math:`\lambda_*^{-1}`  :math:`\lambda_*^{-1} \log n`
    III   1 / n              1                       :math:`\lambda_*^{-1} n`
    IV    :math:`n^{-1/2}`   :math:`n^{1/2}`         :math:`\lambda_*^{-1} n^{1/2}`
    ====  =================  ======================  =============================

    Parameters
    ----------
    name : {"I", "II", "III", "IV"}
        Regime. I visits the fewest samples, II takes the fewest steps.
    n : int
        Number of samples.
    source : float, default=0.5
        Exponent zeta > 0 of the source condition: smoothness of the target. 1/2 only
        assumes that the target is in the space of the kernel.
    capacity : float, default=1.0
        Exponent gamma in [0, 1] of the effective dimension; 1 assumes nothing.

    Returns
    -------
    Regime
        Batches have at least one sample and at most n; numbers of steps are rounded up.

    References
    ----------
    J. Lin and V. Cevher, "Convergences of Regularized Algorithms and Stochastic
    Gradient Methods with Random Projections", JMLR 2020.

    Examples
    --------
    >>> sgm_regime("I", 10_000)
    Regime(step=0.01, batch_size=1, n_steps=10000)
    >>> sgm_regime("IV", 10_000)
    Regime(step=0.01, batch_size=100, n_steps=10000)
    """
    check_choice("regime", name, REGIMES)
    n = check_integer("n", n)
    zeta = check_positive("source", source)
    gamma = check_real("capacity", capacity, low=0, high=1)
    inverse = n ** (1.0 / max(2 * zeta + gamma, 1.0))  # of lambda*
    step, batch = {
        "I": (1 / inverse, 1.0),
        "II": (1 / max(log(n), 1.0), inverse),
        "III": (1 / n, 1.0),
        "IV": (1 / sqrt(n), sqrt(n)),
    }[name]
    # Prevent rounding from increasing a whole number by one.
    n_steps = ceil(inverse / step * (1 - 1e-12))
    return Regime(step, min(n, max(1, round(batch))), n_steps)


class RowStream:
    """Independent random rows, a function of their position in the stream.

    Parameters
    ----------
    rng : Generator
        Generator that draws the seed of the stream.
    weights : ndarray of shape (n,) or None
        The rows are 0, ..., n - 1, drawn in proportion to their weights; None: equal
        weights.
    n : int
        Number of rows.
    """

    def __init__(
        self, rng: np.random.Generator, weights: NDArray | None, n: int
    ) -> None:
        self._seed = rng.integers(2**64, dtype=np.uint64)
        self._n = n
        self._cumulative = np.empty(0)
        self._guide = np.empty(0, dtype=np.int64)
        if weights is None:
            return
        sums = np.cumsum(weights, dtype=float)
        # Rows of zero weight at the end must not be drawn if rounding meets the sum.
        self._cumulative = sums[: np.searchsorted(sums, sums[-1]) + 1]
        levels = sums[-1] * (np.arange(n) / n)
        guide = np.searchsorted(self._cumulative, levels, side="right")
        self._guide = np.minimum(guide, len(self._cumulative) - 1)

    def take(self, first: int, count: int) -> NDArray:
        """Return the rows number ``first, ..., first + count - 1``."""
        out = np.empty(count, dtype=np.int64)
        draw_rows(self._seed, first, self._n, self._cumulative, self._guide, out)
        return out


class SGMOptions(TypedDict, total=False):
    """Keyword arguments of the solvers in this module: those of `SGMSearch`."""

    step: Required[float]
    batch_size: Required[int]
    alpha: float
    penalty_weights: ArrayLike | None
    square_norm: float | None
    sample_weight: ArrayLike | None
    fit_intercept: bool
    average: bool


class SGMSearch:
    """Steps of the stochastic gradient method, with sums of points for an average.

    It starts from zero, with an intercept in the middle of the targets.

    Parameters
    ----------
    design, Y, loss
        Z, Y and loss of `solve_sgm`.
    **options
        As in `solve_sgm`.

    Attributes
    ----------
    problem : StochasticProblem
        The problem to minimize.
    weights : ndarray of shape (n,) or None
        Weights of the rows; None: equal weights.
    step : float
        Step length times the largest curvature of a row's loss.
    batch_size : int
        Rows per step.
    penalties : ndarray of shape (r,) or (0,)
        Penalty of each coefficient; empty: none.
    square_norm : float or None
        Square of the feature of the intercept; None: the bound of each step.
    point : ndarray of shape (d, r + 1)
        Coefficients and intercept of each output; modified in place.
    totals : ndarray of shape (2, d, r + 1) or (2, 0, 0)
        Sums of the points since the last power of two of steps, and between the
        previous power and it; empty without an average.
    n_steps : int
        Steps taken.
    """

    def __init__(
        self,
        design: Design,
        Y: ArrayLike,
        loss: Loss | str,
        *,
        step: float,
        batch_size: int,
        alpha: float = 0.0,
        penalty_weights: ArrayLike | None = None,
        square_norm: float | None = None,
        sample_weight: ArrayLike | None = None,
        fit_intercept: bool = False,
        average: bool = False,
    ) -> None:
        problem = self.problem = stochastic_problem(
            design, Y, loss, alpha, sample_weight, fit_intercept
        )
        self.weights = None if sample_weight is None else problem.weights
        self.square_norm = square_norm
        if square_norm is not None:
            check_positive("square_norm", square_norm)
        rank = design.shape[1]
        self.step = check_positive("step", step)
        self.batch_size = check_integer("batch_size", batch_size)
        self.penalties = _penalties(problem.alpha, penalty_weights, rank)
        self.point = np.zeros((problem.n_outputs, rank + 1))
        if problem.fit_intercept:
            self.point[:, rank] = problem.middle()
        self.totals = np.zeros((2, *self.point.shape) if average else (2, 0, 0))
        self.n_steps = 0

    def rates(self, square_norms: NDArray) -> NDArray:
        """Return step lengths for rows with at most these squared norms.

        A row without features only changes the intercept. A penalty step shrinks
        coefficients at most to zero.
        """
        bound = square_norms * (2.0 if self.problem.fit_intercept else 1.0)
        safe = np.where(bound > 0, bound, np.inf)
        most = 1.0 / max(float(self.penalties.max(initial=0.0)), 1e-300)
        return np.minimum(self.step * self._flatness / safe, most)

    def drifts(self, square_norms: NDArray) -> NDArray:
        """Return intercept step lengths for rows with at most these squared norms.

        The intercept has the same feature in all steps: if it changed with each step,
        steps that are stable one by one could diverge together.
        """
        own = square_norms if self.square_norm is None else self.square_norm
        share = np.divide(
            own, square_norms, out=np.ones_like(square_norms), where=square_norms > 0
        )
        drift = self.step * self._flatness / 2 * self.problem.fit_intercept
        return drift * share

    def run(self, Z: NDArray, order: NDArray, square_norms: NDArray) -> None:
        """Take a step on each batch of `order`, for rows with at most these norms."""
        p = self.problem
        rates = self.rates(square_norms)
        drifts = self.drifts(square_norms)
        move = np.zeros_like(self.point)
        for first, last in self._parts(len(rates)):
            rows = order[first * self.batch_size : last * self.batch_size]
            run_projected_steps(
                p.kind, Z, p.targets, rows, self.batch_size, rates[first:last],
                drifts[first:last], self.penalties, p.numbers, self.point, move,
                self.totals[0],
            )  # fmt: skip
            self.n_steps += last - first
            if self.n_steps.bit_count() == 1:  # a power of two
                self.totals[1] = self.totals[0]
                self.totals[0] = 0.0
            if not np.isfinite(self.point).all():
                raise FloatingPointError(
                    f"the steps diverged before step {self.n_steps}: `step` must be "
                    "smaller"
                )

    def draw(
        self, Z: NDArray, rows: RowStream, square_norms: NDArray, stop: int
    ) -> Iterate:
        """Take random steps up to number `stop`, and return the iterate.

        `square_norms` bound the squared norms of each row, or of all rows.
        """
        batch = self.batch_size
        while self.n_steps < stop:
            count = min(stop - self.n_steps, self._longest)
            order = rows.take(self.n_steps * batch, count * batch)
            bounds = np.broadcast_to(square_norms, len(Z))
            self.run(Z, order, self.largest(bounds, order))
        return Iterate(stop, *self.answer())

    def largest(self, values: NDArray, order: NDArray) -> NDArray:
        """Return the largest value in each batch of the rows of `order`."""
        firsts = np.arange(0, len(order), self.batch_size)
        return np.maximum.reduceat(values[order], firsts)

    def answer(self) -> tuple[NDArray, Any]:
        """Return coefficients and intercept of the point, or of the average."""
        point = self.point.copy()
        if self.totals.size and self.n_steps:
            count = self.n_steps - average_start(self.n_steps)
            point = self.totals.sum(axis=0) / count
        return self.problem.answer(point[:, :-1].T, point[:, -1])

    @property
    def _flatness(self) -> float:
        """Inverse of the largest curvature of the loss, if it has curvature."""
        if self.problem.kind == LOGISTIC:
            return _LOGISTIC_FLATNESS
        return float(self.problem.numbers[0, 0]) or 1.0

    @property
    def _longest(self) -> int:
        """Maximum number of steps of one compiled call."""
        return max(1, _ROWS_PER_CALL // self.batch_size)

    def _parts(self, count: int) -> Iterator[tuple[int, int]]:
        """Yield ranges of the next steps: up to powers of two, and not too long."""
        first = 0
        while first < count:
            taken = self.n_steps
            room = (1 << taken.bit_length()) - taken if self.totals.size else count
            last = min(count, first + room, first + self._longest)
            yield first, last
            first = last


def average_start(n_steps: int) -> int:
    """Return the step after which the average of points until `n_steps` starts.

    It is half the largest power of two among the steps: the average is over the last
    half to three quarters of the points, and two sums suffice to continue it.
    """
    return (1 << n_steps.bit_length()) // 4


def _penalties(alpha: float, weights: ArrayLike | None, rank: int) -> NDArray:
    """Return the penalty of each coefficient; an empty array if there is none."""
    if weights is None:
        return np.full(rank if alpha > 0 else 0, alpha)
    values = np.array(weights, dtype=float)
    if values.shape != (rank,) or not (np.isfinite(values) & (values >= 0)).all():
        raise ValueError(
            f"`penalty_weights` must be {rank} finite numbers of at least 0, got an "
            f"array of shape {values.shape}"
        )
    return alpha * values if alpha > 0 else np.empty(0)


class Iterate(NamedTuple):
    """Coefficients after some steps.

    Attributes
    ----------
    n_steps : int
        Steps taken.
    coef, intercept
        As in `SGMSolution`.
    """

    n_steps: int
    coef: NDArray
    intercept: Any


class SGMSolution(NamedTuple):
    """The result of `solve_sgm`.

    Attributes
    ----------
    coef : ndarray of shape (r,) or (r, d)
        Coefficients w of the features.
    intercept : float or ndarray of shape (d,)
        Intercept b; 0 without intercept.
    n_steps : int
        Steps taken.
    path : tuple of Iterate
        The iterates at the checkpoints.
    """

    coef: NDArray
    intercept: Any
    n_steps: int
    path: tuple[Iterate, ...]


def solve_sgm(
    Z: Design | ArrayLike,
    Y: ArrayLike,
    loss: Loss | str = "square",
    *,
    n_steps: int,
    checkpoints: Iterable[int] = (),
    rng: Any = None,
    **options: Unpack[SGMOptions],
) -> SGMSolution:
    r"""Take steps of the projected stochastic gradient method.

    .. math:: w_{t+1} = w_t + \eta \Bigl( \frac1b \sum_{i \in B_t}
              \psi'(y_i - z_i^\top w_t)\, z_i - \alpha w_t \Bigr), \qquad w_1 = 0,

    with b rows drawn independently and with replacement for each batch B_t. For the
    square loss :math:`\psi'` is the residual; several outputs share batches, and their
    loss is a function of the Euclidean norm of the residual.

    Parameters
    ----------
    Z : array_like of shape (n, r) or Design
        Features, float32 or float64. Features of a design are copied to memory, because
        rows are visited at random.
    Y : array_like of shape (n,) or (n, d)
        Targets; -1 and +1 for a classification loss, which is summed over columns.
    loss : Loss or str
        The logistic loss or a loss with `elq`: see `nbsketch.losses`.
    step : float
        Relative step (> 0); :math:`\eta` is `step` divided by the largest curvature of
        a row's loss, :math:`\kappa^2 = \max_i \|z_i\|^2` for a loss of curvature one,
        so that the same values suit every kernel. Batches of one row are stable below
        2. The pinball and the epsilon-insensitive loss have no curvature: their steps
        are in units of the targets.
    batch_size : int
        Rows per step, b; may exceed n.
    n_steps : int
        Number of steps, T. A pass over the data has n / b steps.
    alpha : float
        Penalty ``(alpha / 2) |w|^2``, at least 0.
    penalty_weights : array_like of shape (r,), optional
        Weights p of the penalty ``(alpha / 2) sum_k p_k w_k^2``. Default: all one.
    square_norm : float, optional
        :math:`\kappa^2`. Default: the largest squared norm. A batch with a larger norm
        takes a proportionally shorter step, so that steps remain stable.
    sample_weight : array_like of shape (n,), optional
        Rows are drawn in proportion to their weights: a row of weight two is equivalent
        to two rows, a row of weight 0 is never drawn. Default: all one.
    fit_intercept : bool
        Whether to fit an intercept. It is an additional coordinate with the feature
        :math:`\max_i \|z_i\|` in every row, which doubles :math:`\kappa^2`, and starts
        at the mean of the targets (for the square loss) or their median.
    average : bool
        Whether to return averages: after T steps, of the points after step
        ``average_start(T)``, which are the last half to three quarters.
    checkpoints : iterable of int
        Numbers of steps at which the iterate, or average, is recorded in `path`.
    rng : None, int, numpy Generator or RandomState
        Random numbers of the rows. Results do not depend on the number of threads.

    Returns
    -------
    SGMSolution
        Named tuple (coef, intercept, n_steps, path).

    References
    ----------
    J. Lin and V. Cevher, "Convergences of Regularized Algorithms and Stochastic
    Gradient Methods with Random Projections", JMLR 2020.
    N. Mucke, G. Neu and L. Rosasco, "Beating SGD Saturation with Tail-Averaging and
    Minibatching", NeurIPS 2019.

    Examples
    --------
    >>> import numpy as np
    >>> Z = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    >>> y = Z @ [2.0, -1.0]
    >>> solve_sgm(Z, y, step=1.0, batch_size=1, n_steps=500, rng=0).coef.round(6)
    array([ 2., -1.])
    """
    n_steps = check_integer("n_steps", n_steps)
    stops = {check_integer("checkpoints", stop, high=n_steps) for stop in checkpoints}
    every = {*stops, n_steps}
    iterates = list(sgm_iterates(Z, Y, loss, checkpoints=every, rng=rng, **options))
    path = tuple(iterate for iterate in iterates if iterate.n_steps in stops)
    _, coef, intercept = iterates[-1]
    return SGMSolution(coef, intercept, n_steps, path)


def sgm_iterates(
    Z: Design | ArrayLike,
    Y: ArrayLike,
    loss: Loss | str = "square",
    *,
    checkpoints: Iterable[int],
    rng: Any = None,
    **options: Unpack[SGMOptions],
) -> Iterator[Iterate]:
    """Yield the iterates of `solve_sgm` at the checkpoints, in ascending order.

    Steps are taken lazily, so that the caller can stop early.

    Examples
    --------
    >>> Z = [[1.0], [2.0]]
    >>> for iterate in sgm_iterates(
    ...     Z, [3.0, 6.0], step=0.5, batch_size=1, checkpoints=[1, 10, 100], rng=0
    ... ):
    ...     print(iterate.n_steps, iterate.coef.round(2))
    1 [1.5]
    10 [2.97]
    100 [3.]
    """
    design = as_design(Z)
    stops = sorted({check_integer("checkpoints", stop) for stop in checkpoints})
    search = SGMSearch(design, Y, loss, **options)
    rows = RowStream(random_generator(rng), search.weights, design.shape[0])
    features = np.ascontiguousarray(design.collect())
    bounds = _square_bounds(features, search.weights, search.square_norm)
    return (search.draw(features, rows, bounds, stop) for stop in stops)


def squared_norms(Z: NDArray) -> NDArray:
    """Return the squared norm of each row."""
    return np.einsum("ij,ij->i", Z, Z).astype(float)


def _square_bounds(
    Z: NDArray, weights: NDArray | None, square_norm: float | None
) -> NDArray:
    """Return bounds of the squared norms of all rows that can be drawn, or of each."""
    squares = squared_norms(Z)
    if square_norm is not None:
        return np.maximum(squares, square_norm)
    return (squares if weights is None else squares[weights > 0]).max()


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
        """Check that the sums have the shape of such points, or are empty."""
        shapes = (2, *self.point.shape), (2, 0, 0)
        totals = check_array_of("totals", self.totals, "f")
        if totals.shape not in shapes or not np.isfinite(totals).all():
            raise ValueError(
                f"`totals` must be finite, of one of the shapes {shapes}, got shape "
                f"{totals.shape}"
            )

    @classmethod
    def after(cls, point: NDArray, n_steps: int, square_norm: float) -> StreamState:
        """Return a state at a point, as if this many steps had not moved it.

        For 0 steps it has no average.
        """
        if n_steps == 0:
            return cls(point, np.zeros((2, 0, 0)), 0, square_norm)
        power = 1 << (n_steps.bit_length() - 1)
        counts = n_steps - power, power - average_start(n_steps)
        totals = np.stack([count * point for count in counts])
        return cls(point, totals, n_steps, square_norm)


def stream_sgm(
    Z: ArrayLike | Design,
    Y: ArrayLike,
    loss: Loss | str = "square",
    state: StreamState | None = None,
    *,
    rng: Any = None,
    **options: Unpack[SGMOptions],
) -> tuple[NDArray, Any, StreamState]:
    """Pass once over some rows, in their order, and return coef, intercept and state.

    The arguments are as in `solve_sgm`, with these differences: batches are runs of
    consecutive rows (the last one may be shorter); the squared norm that determines the
    step is the largest so far unless `square_norm` is given; and a row of weight s is
    visited s times, where a fractional part is the probability of one more visit. With
    batches of one row, the result does not depend on how the stream is split into
    calls. The given state is not modified.

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
    design = as_design(Z)
    Z = np.ascontiguousarray(design.collect())
    search = SGMSearch(design, Y, loss, **options)
    bound = search.square_norm or 0.0
    if state is not None:
        _check_state(state, search)
        bound = search.square_norm or state.square_norm
        search.point = state.point.copy()
        search.totals = state.totals.copy()
        search.n_steps = state.n_steps
    order = np.arange(len(Z))
    if search.weights is not None:
        # Rounded at random, with the weights as means.
        visits = np.floor(search.weights)
        fractions = search.weights - visits
        visits += random_generator(rng).random(len(Z)) < fractions
        order = np.repeat(order, visits.astype(np.int64))
    if order.size:
        largest = np.maximum(search.largest(squared_norms(Z), order), bound)
        if search.square_norm is None:
            largest = np.maximum.accumulate(largest)
            bound = float(largest[-1])
        search.run(Z, order, largest)
    after = StreamState(search.point, search.totals, search.n_steps, bound)
    return *search.answer(), after


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
