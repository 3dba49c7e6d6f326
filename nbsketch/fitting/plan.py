"""The plan of a fit: the words of an estimator, checked and resolved once.

How large a sketch is: the default sizes, ``size="auto"``, and the default sketch.
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
from nbsketch.rows.transform import PREPROCESSINGS
from nbsketch.sketches import IdentitySketch, SizedRecipe, SketchRecipe
from nbsketch.solvers.stochastic import METHODS, StochasticSolver

# The sketch of a model whose `sketch` is None, unless all rows are taken. Sub-sampling
# is the most accurate at equal time of prediction; denser sketches gain a few percent
# at equal size, for a multiple of that time (`nbsketch reproduce sketch-cost`).
_DEFAULT_SKETCH = "subsampling"
# Default sizes are reduced above some number of rows so that n s^2 stays below a budget
# of work (a few seconds), but not below this size.
_LEAST_SIZE = 100
# Least squares: all rows in closed form up to the first number.
_EXACT_ROWS = 1500
_LEAST_SQUARES_SIZE = 1000
_LEAST_SQUARES_WORK = 5e10
# The exact machine is the default up to so much work: nanoseconds of its passes over
# all pairs of rows, if the kernel values are kept in memory. A value takes a fixed
# time, a time per feature, and in each pass a time per output. Newton steps for the
# other losses take more passes, most of all those for losses with kinks, and each
# output has its own; with more outputs, the factorizations of small n take too long.
_EXACT_WORK = 1.2e9
_EXACT_BYTES = 6e8
_PASSES = {"square": 20, "smooth": 100, "kinked": 250}
_MOST_OUTPUTS = 4
_VALUE = 0.3
_PER_FEATURE = 0.03
_READ = 0.2
_PER_OUTPUT = 0.16
# Up to so many rows a Cholesky factorization of the Gram matrix is as fast as passes.
_DENSE_ROWS = 4000
# The matrix, the system that is factorized, and the kernel values before them.
_DENSE_COPIES = 3
# Above this size sketches are solved by conjugate gradients as well, and above so much
# n s^2, which the closed form costs. It serves all penalties, so that a search pays for
# it up to the second size.
_LARGE_SIZE = 1000
_LARGE_SEARCH = 1500
_LARGE_WORK = 1e11
# Each pass evaluates again what of K S^T does not fit into memory. All of it pays from
# the size on whose square is so many times the number of landmarks: .1 to .3 of the
# closed form's time for a given penalty, .9 to 1.1 for one that is chosen.
_EVALUATED_AGAIN = 500
# Landmarks beyond the exact machine: n s up to the first number near its end, where
# more of them keep the error from a jump, but not below the second, whose passes do not
# grow with n: time is linear. With several outputs n s and the passes over them, of
# each output, stay below a budget, or below what the landmarks cost one output.
_MOST_VALUES = 9e7
_LANDMARKS = 2500
_VALUES = 3.75e8
_COLUMN = 0.45
_COLUMN_OUTPUT = 0.55
# Landmarks of other losses of residuals, at most: factors of Newton steps cost s^3
# several times, and kinks take more passes.
_MOST_BY_PASSES = {"smooth": 3500, "kinked": 2500}
# Rows of each of these landmarks, at least.
_ROWS_EACH = 3
_ITERATIVE_SIZE = 500
_ITERATIVE_WORK = 5e10
# Beyond the exact machine of other losses, so that its error has no jump: .57 to .75 of
# the error of 500 landmarks on smooth functions, .93 to .97 on california, for two to
# three times the time, which is that of the exact machine at its limit.
_NEWTON_SIZE = 1250
_NEWTON_WORK = {"smooth": 3e10, "kinked": 1.5e10}
# Several levels together: Newton steps factorize matrices of size times levels, at most
# this; few of them are needed, after steps of splitting.
_JOINT_ROWS = 3000
_JOINT_WORK = 1.8e10
_STOCHASTIC_SIZE = 300
# Beyond the memory limit a default size is reduced, not below this,
_LEAST_SYSTEM = 500
# until so many matrices of that order fit: S K S^T, systems, their factors and copies.
_SYSTEMS = 6


@dataclass(frozen=True)
class AutoSize:
    """Rule to choose the number of rows s of a sketch: ``size="auto"``.

    s doubles until the held-out loss improves by less than `tol` relative, or until a
    budget would be exceeded; the s of least loss is kept. Each larger sketch reuses
    the rows and kernel values of the smaller one, so the whole path costs little more
    than its last fit. CountSketch and sparse JL sketches are drawn anew.

    Parameters
    ----------
    start : int, default=50
        First number of rows of a sketch given by name, at most the number of rows of X.
        A recipe given as an object starts from its own size.
    max_size : int, default=3200
        Largest number of rows; at most the number of rows of X is used, and as many as
        the memory limit has room for.
    seconds : float or None, default=None
        Time budget: no size is tried that would exceed it at four times the time of the
        size before. The model then depends on the machine. None: no budget.
    tol : float, default=0.01
        Smallest relative improvement of the loss for which s keeps doubling.

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
        """Return the number of rows to add after a path of sizes, 0 to stop.

        `path` has the sizes, losses and times since the start so far; n is the number
        of rows of X.
        """
        size = path["size"][-1]
        loss = path["loss"]
        if len(loss) > 1 and loss[-1] > (1 - self.tol) * loss[-2]:
            return 0
        rows = self._affordable_rows(size, path)
        return max(0, min(rows, _solvable(min(self.max_size, n)) - size))

    def _affordable_rows(self, size: int, path: dict[str, list]) -> int:
        """Return the number of rows of a doubling, 0 without time for it."""
        seconds = path["seconds"]
        if self.seconds is None:
            return size
        last = seconds[-1] - (seconds[-2] if len(seconds) > 1 else 0.0)
        return size if seconds[-1] + 4 * last <= self.seconds else 0


class SolveOptions(NamedTuple):
    """Accuracy, largest number of iterations, and callback of a solver."""

    tol: float = 1e-6
    max_iter: int = 1000
    callback: SolverCallback | None = None


@dataclass(frozen=True)
class Plan(fields.Checked):
    """The words of an estimator, checked and resolved once for all steps of a fit."""

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
        _ = self.growth, self.stochastic  # refuses other words

    @classmethod
    def of(cls, estimator: Any, **changes: Any) -> Self:
        """Return the plan of an estimator; what it does not have is the default."""
        names = [name for name in cls.__dataclass_fields__ if hasattr(estimator, name)]
        return cls(**{name: getattr(estimator, name) for name in names} | changes)

    @cached_property
    def growth(self) -> AutoSize | None:
        """The rule by which the size is chosen; None if it is given, or the default."""
        if isinstance(self.size, str):
            if self.size != "auto":
                raise ValueError(
                    f"`size` must be an integer or 'auto', got {self.size!r}"
                )
            return AutoSize()
        return self.size if isinstance(self.size, AutoSize) else None

    @cached_property
    def stochastic(self) -> StochasticSolver | None:
        """The stochastic solver, or None for the certified ones."""
        if isinstance(self.solver, StochasticSolver):
            return self.solver
        if not isinstance(self.solver, str):
            raise TypeError(
                f"`solver` must be a name or a StochasticSolver, got {self.solver!r}"
            )
        name = check_choice("solver", self.solver, ["auto", *METHODS])
        return None if name == "auto" else StochasticSolver(method=name)

    @property
    def is_free(self) -> bool:
        """Whether neither sketch nor size is given."""
        return self.sketch is None and self.size is None

    def options(self) -> SolveOptions:
        """Return the options of a solver, which reports to whoever watches the fit."""
        callback = solver_callback("solver", self.tol)
        return SolveOptions(self.tol, self.max_iter, callback)

    def recipe(self, n: int, default: int) -> SketchRecipe:
        """Return the recipe of the first sketch of n rows, whose default size is given.

        Named or given sketches are kept. None: all rows (no sketch) if `size` is None
        and the default size is n, else sub-sampling, so that a prediction costs `size`
        kernel values. A sketch given by name without a size has the default size; half
        the rows if that is all of them, because a random square matrix loses
        directions.
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
        """Refuse a size that is to be chosen."""
        if self.growth is not None:
            raise ValueError(
                f"`size` must be an integer or None, got {self.size!r}: "
                "only `fit` can choose it"
            )

    def check_has_path(self) -> None:
        """Refuse settings for which there is no path of penalties on one sketch."""
        if self.stochastic is not None:
            raise ValueError(
                f"`solver` must be 'auto' for a path of alphas, got {self.solver!r}"
            )
        self.check_size_is_fixed()


def takes_all_rows(
    loss: str | None, n: int, n_features: int, n_outputs: int = 1
) -> bool:
    """Return whether the default of a loss is the exact machine, without a sketch.

    Parameters
    ----------
    loss : {"square", "smooth", "kinked"} or None
        Kind of the loss. None: one that has a sketch for any n.
    n, n_features, n_outputs : int
        Numbers of rows, of features and of outputs.
    """
    if loss is None or (loss != "square" and not has_few_outputs(n_outputs)):
        return False
    together, alone = (n_outputs, 1) if loss == "square" else (1, n_outputs)
    time = _PASSES[loss] * alone * (_READ + _PER_OUTPUT * together)
    time += _VALUE + _PER_FEATURE * n_features
    return n**2 / 2 * time <= _EXACT_WORK and kept_pairs(n)


def has_few_outputs(n_outputs: int) -> bool:
    """Return whether losses other than the square may have a machine on all rows."""
    return n_outputs <= _MOST_OUTPUTS


def kept_pairs(n: int) -> bool:
    """Return whether the kernel values of all pairs of rows are kept in memory."""
    return 4 * (n**2 / 2) <= _EXACT_BYTES


def is_solved_by_passes(n: int) -> bool:
    """Return whether least squares on all rows has more than one decomposition."""
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
    """Return the default number of landmarks of least squares by passes over them.

    It is n where they are more than half of the rows: passes over all pairs of rows
    then take less time (scm20d: 9 seconds instead of 16).
    """
    per_value = _COLUMN + _COLUMN_OUTPUT * n_outputs
    largest = max(_LANDMARKS, int(_MOST_VALUES / n))
    size = min(n, largest, int(max(_LANDMARKS, _VALUES / n) / per_value))
    return n if n <= 2 * size else _solvable(max(size, least_squares_size(n)))


def passes_size(loss: str, n: int) -> int:
    """Return the default number of landmarks of losses of residuals, by passes.

    The kind of the loss is "smooth" or "kinked".
    """
    largest = min(n // _ROWS_EACH, _MOST_BY_PASSES[loss])
    return _solvable(min(largest, landmarks_size(n, 1)))


def least_squares_size(n: int) -> int:
    """Return the default size of a sketch for the square loss, n up to 1500 rows."""
    if n <= _EXACT_ROWS:
        return n
    return _affordable(n, _LEAST_SQUARES_WORK, _LEAST_SQUARES_SIZE)


def iterative_size(n: int, n_solves: int = 1) -> int:
    """Return the default size for the other losses, with some problems to solve."""
    return _affordable(n, _ITERATIVE_WORK / n_solves, _ITERATIVE_SIZE)


def newton_size(loss: str, n: int, n_outputs: int) -> int:
    """Return the default number of landmarks of other losses beyond the exact machine.

    The kind of the loss is "smooth" or "kinked". More outputs than the exact machine
    takes have the size of sketches.
    """
    size = iterative_size(n, n_outputs)
    if not has_few_outputs(n_outputs):
        return size
    larger = _affordable(n, _NEWTON_WORK[loss] / n_outputs, _NEWTON_SIZE)
    return _solvable(max(size, larger))


def joint_size(n: int, n_levels: int) -> int:
    """Return the default size for quantile levels that are solved for together."""
    largest = max(_LEAST_SIZE, min(n // 4, _solvable(_JOINT_ROWS) // n_levels))
    return _affordable(n, _JOINT_WORK, largest)


def stochastic_size(n: int) -> int:
    """Return the default size for stochastic gradients in memory."""
    affordable = _affordable(n, _LEAST_SQUARES_WORK, _LEAST_SQUARES_SIZE)
    return min(n, max(_STOCHASTIC_SIZE, affordable))


def _solvable(size: int) -> int:
    """Return the size, or a smaller one whose systems fit into the limit of the user.

    What is free at the moment decides no size: the same fit has the same answer.
    """
    while size > _LEAST_SYSTEM and not fits(
        8.0 * size**2, copies=_SYSTEMS, modest=math.inf
    ):
        size = size * 3 // 4
    return size


def _affordable(n: int, work: float, largest: int) -> int:
    return min(n, max(_LEAST_SIZE, int((work / n) ** 0.5)), largest)
