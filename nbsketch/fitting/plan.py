"""The plan of a fit: parameters of an estimator, checked and resolved once.

Also the default sizes and the default sketch, and ``size="auto"``.
"""

import math
from dataclasses import dataclass, replace
from functools import cached_property
from numbers import Integral
from typing import Any, NamedTuple, Self

from nbsketch._machine.memory import fits
from nbsketch._report import fields
from nbsketch._report.progress import SolverCallback, solver_callback
from nbsketch._report.validation import (
    check_choice,
    check_integer,
    check_positive,
    check_real,
)
from nbsketch._sketch_map import sized_recipe
from nbsketch.kernels import Kernel, as_kernel
from nbsketch.rows.transform import PREPROCESSINGS
from nbsketch.sketches import IdentitySketch, SizedRecipe, SketchRecipe
from nbsketch.solvers.stochastic import METHODS, StochasticSolver

# The default sketch of a model with `sketch` None, unless all rows are used.
# Subsampling is the most accurate at equal time of prediction; denser sketches gain a
# few percent at equal size, for a multiple of that time (`nbsketch reproduce
# sketch-cost`).
_DEFAULT_SKETCH = "subsampling"
# Default sizes are reduced for large n so that n s^2 stays within a budget of a few
# seconds, but not below this size.
_LEAST_SIZE = 100
# Least squares: all rows in closed form up to the first number.
_EXACT_ROWS = 1500
_LEAST_SQUARES_SIZE = 1000
_LEAST_SQUARES_WORK = 5e10
# The exact method is the default up to this cost: nanoseconds of its passes over all
# pairs of rows, with stored kernel values. A value takes a fixed time, a time per
# feature, and in each pass a time per output. Newton steps for other losses take more
# passes, most for losses with kinks, and separate ones for each output; with more
# outputs, the factorizations of small n take too long.
_EXACT_WORK = 1.2e9
_EXACT_BYTES = 6e8
_PASSES = {"square": 20, "smooth": 100, "kinked": 250}
_MOST_OUTPUTS = 4
_VALUE = 0.3
_PER_FEATURE = 0.03
_READ = 0.2
_PER_OUTPUT = 0.16
# Up to this many rows, a Cholesky factorization of the Gram matrix is as fast as
# passes.
_DENSE_ROWS = 4000
# The matrix, the factorized system, and the kernel values before them.
_DENSE_COPIES = 3
# Above this size and this n s^2, the cost of the closed form, sketches are also solved
# by conjugate gradients. The closed form gives all penalties, so a search uses it up to
# the second size.
_LARGE_SIZE = 1000
_LARGE_SEARCH = 1500
_LARGE_WORK = 1e11
# Each pass re-evaluates the part of K S^T that does not fit into memory. Recomputing
# everything is faster from the size whose square is this many times the number of
# landmarks: 0.1 to 0.3 of the time of the closed form for a given penalty, 0.9 to 1.1
# for a chosen one.
_EVALUATED_AGAIN = 500
# Landmarks above the exact method: n s up to the first number near its end, where more
# landmarks avoid a jump of the error, but at least the second number, with a constant
# number of passes: time is linear in n. With several outputs, n s and the passes for
# each output stay within a budget, or within the cost of the landmarks for one output.
_MOST_VALUES = 9e7
_LANDMARKS = 2500
_VALUES = 3.75e8
_COLUMN = 0.45
_COLUMN_OUTPUT = 0.55
# Minimum number of rows per landmark, for other losses of residuals.
_ROWS_EACH = 3
_ITERATIVE_SIZE = 500
_ITERATIVE_WORK = 5e10
# Above the exact method of other losses, to avoid a jump of the error: 0.57 to 0.75 of
# the error of 500 landmarks on smooth functions, 0.93 to 0.97 on california, for two to
# three times the time, which equals that of the exact method at its limit.
_NEWTON_SIZE = 1250
_NEWTON_WORK = {"smooth": 3e10, "kinked": 1.5e10}
# Joint quantile levels: Newton steps on features factorize matrices of size times
# levels, at most this; few are needed after splitting steps.
JOINT_ROWS = 3000
_JOINT_WORK = 1.8e10
# From this many rows times levels (at least two), where features are limited, passes
# have lower errors, with at most this size times levels.
LEVELS_ROWS = 12_000
_LEVELS_WORK = 12_500
_STOCHASTIC_SIZE = 300
# Above the memory limit a default size is reduced, at least to this,
_LEAST_SYSTEM = 500
# until this many matrices of that order fit: S K S^T, systems, factors and copies.
_SYSTEMS = 6


@dataclass(frozen=True)
class AutoSize:
    """Rule to choose the number of rows s of a sketch: ``size="auto"``.

    s doubles until the held-out loss improves by less than `tol` (relative), or until a
    budget would be exceeded; the s with the lowest loss is used. Each larger sketch
    reuses the rows and kernel values of the smaller one, so the whole path costs little
    more than its last fit. CountSketch and sparse JL sketches are redrawn.

    Parameters
    ----------
    start : int, default=50
        First number of rows of a sketch given by name, at most the number of samples. A
        recipe given as an object starts from its own size.
    max_size : int, default=3200
        Maximum number of rows, limited by the number of samples and by the memory
        limit.
    seconds : float or None, default=None
        Time budget: a size is not tried if four times the time of the previous one
        would exceed it. The model then depends on the speed of the computer. None: no
        budget.
    tol : float, default=0.01
        Minimum relative improvement of the loss to continue doubling.

    Examples
    --------
    >>> import numpy as np
    >>> from nbsketch import AutoSize, SketchedKernelRegressor
    >>> X = np.random.default_rng(0).uniform(-3, 3, size=(1000, 1))
    >>> y = np.sin(X[:, 0]) + 0.1 * np.random.default_rng(1).normal(size=1000)
    >>> rule = AutoSize(start=5, max_size=100)
    >>> model = SketchedKernelRegressor(size=rule, bandwidth=1.0, random_state=0)
    >>> sizes = model.fit(X, y).size_path_["size"].tolist()
    >>> sizes[:2], model.sketch_.shape[0] in sizes
    ([5, 10], True)
    """

    start: int = 50
    max_size: int = 3200
    seconds: float | None = None
    tol: float = 0.01

    def __post_init__(self) -> None:
        start = check_integer("start", self.start)
        check_integer("max_size", self.max_size, low=start)
        if self.seconds is not None:
            check_positive("seconds", self.seconds)
        check_real("tol", self.tol, low=0, high=1, high_open=True)

    def rows_to_add(self, path: dict[str, list], n: int) -> int:
        """Return the number of rows to add after a path of sizes; 0 to stop.

        `path` has the sizes, losses and times so far; n is the number of samples.
        """
        size = path["size"][-1]
        loss = path["loss"]
        if len(loss) > 1 and loss[-1] > (1 - self.tol) * loss[-2]:
            return 0
        rows = self._affordable_rows(size, path)
        return max(0, min(rows, _solvable(min(self.max_size, n)) - size))

    def _affordable_rows(self, size: int, path: dict[str, list]) -> int:
        """Return the number of rows of a doubling; 0 if the time does not suffice."""
        seconds = path["seconds"]
        if self.seconds is None:
            return size
        last = seconds[-1] - (seconds[-2] if len(seconds) > 1 else 0.0)
        return size if seconds[-1] + 4 * last <= self.seconds else 0


def is_auto(bandwidth: Any) -> bool:
    """Return whether length scales are to be learned."""
    return isinstance(bandwidth, str) and bandwidth == "auto"


class SolveOptions(NamedTuple):
    """Accuracy, maximum number of iterations, and callback of a solver."""

    tol: float = 1e-6
    max_iter: int = 1000
    callback: SolverCallback | None = None


@dataclass(frozen=True)
class Plan(fields.Checked):
    """Parameters of an estimator, checked and resolved once for all steps of a fit."""

    kernel: Any = "auto"
    bandwidth: Any = None
    preprocessing: str | None = "auto"
    sketch: Any = None
    size: Any = None
    random_state: Any = None
    alpha: float | None = None
    solver: Any = "auto"
    tol: float = 1e-6
    max_iter: int = 1000

    _rules = fields.rules(
        preprocessing=fields.choice(None, "auto", *PREPROCESSINGS),
        tol=fields.positive,
        max_iter=fields.count,
        alpha=fields.optional(fields.positive),
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self.given_kernel, self.growth, self.stochastic  # checks their names

    @classmethod
    def of(cls, estimator: Any, **changes: Any) -> Self:
        """Return the plan of an estimator; missing parameters have their default."""
        names = [name for name in cls.__dataclass_fields__ if hasattr(estimator, name)]
        return cls(**{name: getattr(estimator, name) for name in names} | changes)

    @cached_property
    def given_kernel(self) -> Kernel:
        """The kernel as it is given, which length scales that are learned replace."""
        bandwidth = None if is_auto(self.bandwidth) else self.bandwidth
        return as_kernel(self.kernel, bandwidth)

    @cached_property
    def growth(self) -> AutoSize | None:
        """The rule that chooses the size; None if it is given, or the default."""
        size = self.size
        if isinstance(size, str):
            if size != "auto":
                raise ValueError(
                    f"`size` must be an integer, 'auto' or None, got {size!r}"
                )
            return AutoSize()
        return size if isinstance(size, AutoSize) else None

    @cached_property
    def stochastic(self) -> StochasticSolver | None:
        """The stochastic solver, or None for the certified ones."""
        solver = self.solver
        if isinstance(solver, StochasticSolver):
            return solver
        if not isinstance(solver, str):
            raise TypeError(
                f"`solver` must be a name or a StochasticSolver, got {solver!r}"
            )
        name = check_choice("solver", solver, ["auto", *METHODS])
        return None if name == "auto" else StochasticSolver(method=name)

    @property
    def is_free(self) -> bool:
        """Whether neither sketch nor size is given."""
        return self.sketch is None and self.size is None

    def options(self) -> SolveOptions:
        """Return the options of a solver, with a callback that reports progress."""
        callback = solver_callback("solver", self.tol)
        return SolveOptions(self.tol, self.max_iter, callback)

    def recipe(self, n: int, default: int) -> SketchRecipe:
        """Return the recipe of the first sketch of n rows, with this default size.

        Sketches given by the user are kept. None: all rows (no sketch) if `size` is
        None and the default size is n, else subsampling, so that a prediction costs
        `size` kernel values. A sketch given by name without a size has the default
        size; half the rows if the default is all of them, because a random square
        matrix loses directions.
        """
        sketch = self.sketch
        size = self.size
        is_recipe = isinstance(sketch, SketchRecipe)
        if self.growth is not None:
            has_size = isinstance(sketch, SizedRecipe)
            size = None if has_size else min(self.growth.start, default)
        elif self.is_free and default == n:
            return IdentitySketch()
        elif size is None and sketch != "identity" and not is_recipe:
            size = default if sketch is None or default < n else max(1, n // 2)
        return sized_recipe(_DEFAULT_SKETCH if sketch is None else sketch, size, n)

    def within(self, n: int) -> Self:
        """Return the plan with a size of at most n, for the first rows of a stream."""
        sketch = self.sketch
        size = self.size
        if isinstance(sketch, SizedRecipe) and sketch.size > n:
            sketch = replace(sketch, size=n)
        if isinstance(size, Integral):
            size = min(int(size), n)
        return replace(self, sketch=sketch, size=size)

    def check_size_is_fixed(self) -> None:
        """Raise an error if the size is to be chosen."""
        if self.growth is not None:
            raise ValueError(
                f"`size` must be an integer or None, got {self.size!r}: "
                "only `fit` can choose it"
            )

    def check_has_path(self) -> None:
        """Raise an error if there is no path of penalties on one sketch."""
        if self.stochastic is not None:
            raise ValueError(
                f"`solver` must be 'auto' for a path of alphas, got {self.solver!r}"
            )
        self.check_size_is_fixed()


def takes_all_rows(
    loss: str | None, n: int, n_features: int, n_outputs: int = 1
) -> bool:
    """Return whether the default of a loss is the exact method, without a sketch.

    Parameters
    ----------
    loss : {"square", "smooth", "kinked"} or None
        Kind of the loss. None: a loss that needs a sketch for any n.
    n, n_features, n_outputs : int
        Numbers of samples, features and outputs.
    """
    if loss is None or (loss != "square" and not has_few_outputs(n_outputs)):
        return False
    together, alone = (n_outputs, 1) if loss == "square" else (1, n_outputs)
    time = _PASSES[loss] * alone * (_READ + _PER_OUTPUT * together)
    time += _VALUE + _PER_FEATURE * n_features
    return n**2 / 2 * time <= _EXACT_WORK and kept_pairs(n)


def default_size(
    loss: str, n: int, n_features: int, n_outputs: int, *, is_robust: bool
) -> int:
    """Return n for the exact machine of a loss, or the default number of landmarks.

    The kind of the loss is "square", "smooth" or "kinked"; the numbers are those of
    rows, of features and of outputs.
    """
    if takes_all_rows(loss, n, n_features, n_outputs):
        return n
    if loss == "square":
        return landmarks_size(n, n_outputs)
    return passes_size(n) if is_robust else newton_size(loss, n, n_outputs)


def has_few_outputs(n_outputs: int) -> bool:
    """Return whether losses other than the square loss may use all rows."""
    return n_outputs <= _MOST_OUTPUTS


def kept_pairs(n: int) -> bool:
    """Return whether the kernel values of all pairs of rows are stored."""
    return 4 * (n**2 / 2) <= _EXACT_BYTES


def is_solved_by_passes(n: int) -> bool:
    """Return whether least squares on all rows is solved by passes."""
    return n > _EXACT_ROWS


def is_dense(n: int) -> bool:
    """Return whether the Gram matrix of all rows is factorized."""
    return n <= _DENSE_ROWS and fits_dense(n)


def fits_dense(n: int) -> bool:
    """Return whether the Gram matrix of n rows and its copies fit into memory."""
    return fits(8.0 * n**2, copies=_DENSE_COPIES)


def is_large(
    size: int, n: int, n_landmarks: int, *, searched: bool, kept: float
) -> bool:
    """Return whether conjugate gradients solve a sketch faster than its closed form.

    Parameters
    ----------
    size, n, n_landmarks : int
        s, n and s'.
    searched : bool
        Whether the penalty is to be chosen.
    kept : float
        Share of K S^T that fits into memory.
    """
    small = size <= (_LARGE_SEARCH if searched else _LARGE_SIZE)
    if small and n * size**2 <= _LARGE_WORK:
        return False
    return size**2 > (1 - kept) * _EVALUATED_AGAIN * n_landmarks


def landmarks_size(n: int, n_outputs: int) -> int:
    """Return the default number of landmarks for least squares by passes.

    It is n if the landmarks are more than half of the rows: passes over all pairs are
    then faster (scm20d: 9 seconds instead of 16).
    """
    per_value = _COLUMN + _COLUMN_OUTPUT * n_outputs
    largest = max(_LANDMARKS, int(_MOST_VALUES / n))
    size = min(n, largest, int(max(_LANDMARKS, _VALUES / n) / per_value))
    return n if n <= 2 * size else _solvable(max(size, least_squares_size(n)))


def passes_size(n: int) -> int:
    """Return the default number of landmarks for losses of residuals, by passes."""
    return _solvable(min(n // _ROWS_EACH, landmarks_size(n, 1)))


def least_squares_size(n: int) -> int:
    """Return the default sketch size for the square loss, n up to 1500 samples."""
    if n <= _EXACT_ROWS:
        return n
    return _affordable(n, _LEAST_SQUARES_WORK, _LEAST_SQUARES_SIZE)


def iterative_size(n: int, n_solves: int = 1) -> int:
    """Return the default sketch size for other losses, for several problems."""
    return _affordable(n, _ITERATIVE_WORK / n_solves, _ITERATIVE_SIZE)


def newton_size(loss: str, n: int, n_outputs: int) -> int:
    """Return the default number of landmarks for other losses above the exact method.

    The kind of the loss is "smooth" or "kinked". With more outputs than the exact
    method supports, it is the default sketch size.
    """
    size = iterative_size(n, n_outputs)
    if not has_few_outputs(n_outputs):
        return size
    larger = _affordable(n, _NEWTON_WORK[loss] / n_outputs, _NEWTON_SIZE)
    return _solvable(max(size, larger))


def joint_size(n: int, n_levels: int) -> int:
    """Return the default sketch size for quantile levels solved on features."""
    largest = max(_LEAST_SIZE, min(n // 4, _solvable(JOINT_ROWS) // n_levels))
    return _affordable(n, _JOINT_WORK, largest)


def are_many_levels(n: int, n_levels: int) -> bool:
    """Return whether quantile levels of n rows are solved by passes by default."""
    return n * max(n_levels, 2) >= LEVELS_ROWS


def levels_size(n: int, n_levels: int) -> int:
    """Return the default number of landmarks for quantile levels, by passes if many."""
    if not are_many_levels(n, n_levels):
        return joint_size(n, n_levels)
    return max(min(passes_size(n), _LEVELS_WORK // n_levels), joint_size(n, n_levels))


def stochastic_size(n: int) -> int:
    """Return the default size for stochastic gradients in memory."""
    affordable = _affordable(n, _LEAST_SQUARES_WORK, _LEAST_SQUARES_SIZE)
    return min(n, max(_STOCHASTIC_SIZE, affordable))


def _solvable(size: int) -> int:
    """Return the size, or a smaller one whose systems fit into the user's limit.

    Free memory does not affect the size: the same fit gives the same result.
    """
    while size > _LEAST_SYSTEM and not fits(
        8.0 * size**2, copies=_SYSTEMS, modest=math.inf
    ):
        size = size * 3 // 4
    return size


def _affordable(n: int, work: float, largest: int) -> int:
    return min(n, max(_LEAST_SIZE, int((work / n) ** 0.5)), largest)
