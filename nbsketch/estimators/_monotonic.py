r"""Least squares and joint quantiles under monotonicity constraints.

For least squares, with :math:`\tilde z = (1, z)` and A as in the posterior, the
constrained solution is the projection, in the norm of A, of the unconstrained one onto
a cone:

.. math:: \min_w \tfrac12 (w - \hat w)^\top A\, (w - \hat w)
          \quad \text{s.t.} \quad D w \ge 0 .

Each row of D is the difference of the features at two neighboring knots of a line: a
training sample with one column moved through its quantiles. The dual is a nonnegative
least squares problem and is solved exactly. Constraints are added where the function
decreases most, until no line decreases. All quantile levels share D, as constraints of
an interior-point method.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import scipy.optimize
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.linalg import solve_triangular
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import _check_monotonic_cst

from nbsketch._report.validation import row_weights, warn
from nbsketch.estimators import posterior
from nbsketch.fitting.objective import Objective, Problem
from nbsketch.fitting.objectives import JointQuantileObjective
from nbsketch.losses import SquareLoss
from nbsketch.rows.inputs import is_pairwise
from nbsketch.rows.partitions import PartitionedRows
from nbsketch.solvers.interior import PiecewiseProblem, solve_piecewise

# Lines per constrained column and half of the knots per line: with 300 lines violations
# are 1.6 times as large, in 60 % of the time (a function of 6 columns, 1500 samples).
# Quantiles alone as knots leave violations of 11 to 44 % of the range of predictions
# (monotone functions of 3 normal columns, 120 and 500 samples), both kinds at most 2 %.
_LINES = 1000
_KNOTS = 20
# Lines and knots for measuring the remaining violation: other lines, denser knots.
_MEASURED_LINES = 1000
_MEASURED_KNOTS = 50
# Quantiles are taken over at least this many samples.
_RANKED = 100_000
# Decreases up to this share of the range of the targets count as rounding, and up to
# this share of the largest one.
_ROUNDING = 1e-9
_LAST = 1e-14
# Violations above this share of the range of predictions are told.
_TOLD = 0.05
# Maximum of rounds, and of constraints added per column in one round. 6 to 10 rounds
# are enough; adding all at once takes minutes with a tiny penalty and wrong signs.
_ROUNDS = 50
_ADDED = 100
# Relative gap of constrained quantiles. Beyond three digits, which take ten steps of
# the interior-point method, this costs one or two more.
_TOL = 1e-8


class Lines(NamedTuple):
    """Samples along one column: `count` lines of `knots` samples each."""

    rows: NDArray
    knots: int
    sign: int

    def steps(self, values: NDArray) -> NDArray:
        """Return the least increase of any output to the next knot, (count, knots - 1).

        `values` are predictions of shape (count knots,) or (count knots, d).
        """
        along = values.reshape(len(self.rows) // self.knots, self.knots, -1)
        return (self.sign * np.diff(along, axis=1)).min(axis=2)

    def fall(self, values: NDArray) -> float:
        """Return the largest decrease between any two knots of a line."""
        along = self.sign * values.reshape(-1, self.knots, *values.shape[1:])
        return float((np.maximum.accumulate(along, axis=1) - along).max())

    def at(self, lines: NDArray, knot: NDArray) -> NDArray:
        """Return the samples of these lines at the given knots, (len(lines), q)."""
        return self.rows[lines * self.knots + knot]


def planned(model: Any, problem: Problem) -> Problem:
    """Return the problem, with a sketch if the default uses all of many samples.

    Check `monotonic_cst` and the parameters that it is compatible with.
    """
    constraints = model.monotonic_cst
    if constraints is None:
        return problem
    if not isinstance(constraints, dict) and np.ndim(constraints) != 1:
        raise ValueError(
            "`monotonic_cst` must be a sequence of -1, 0 and 1, a dict by column name "
            f"or None, got {constraints!r}"
        )
    _check_monotonic_cst(model, constraints)
    objective = problem.objective
    rows = problem.rows
    in_memory = not (isinstance(rows, PartitionedRows) or sp.issparse(rows))
    is_square = getattr(model, "loss", "square") in ("square", SquareLoss())
    crossing = getattr(model, "non_crossing", None) == "constraint"
    for name, possible, expected in (
        ("loss", is_square, "the square loss"),
        ("output", getattr(model, "output", None) is None, "None"),
        ("non_crossing", not crossing, "'sort' or None"),
        ("solver", model.solver == "auto", "'auto'"),
        ("kernel", not is_pairwise(model.kernel), "a kernel of samples"),
        ("X", in_memory, "dense and in memory (not sparse, no Dask collection)"),
        ("y", objective.targets.shape[1] == 1, "a single target"),
    ):
        if not possible:
            got = f", got {getattr(model, name)!r}" if hasattr(model, name) else ""
            raise ValueError(f"`{name}` must be {expected} for `monotonic_cst`{got}")
    size = objective.default_size()
    plan = problem.plan
    if plan.is_free and size < len(objective.targets):
        plan = replace(plan, sketch="subsampling", size=size)
    return problem._replace(plan=plan)


def constrain(model: Any, problem: Problem) -> None:
    """Replace the unconstrained solution by the monotone one; measure violations."""
    X = problem.rows
    levels = np.size(getattr(model, "quantiles", 0.5))
    if model.size_ * levels > posterior.MOST_FEATURES:
        each = f" for each of {levels} levels" if levels > 1 else ""
        raise ValueError(
            f"`size` must be at most {posterior.MOST_FEATURES // levels} for "
            f"`monotonic_cst`{each}, got {model.size_}"
        )
    signs = _check_monotonic_cst(model, model.monotonic_cst)
    order = np.random.default_rng(0).permutation(len(X))
    lines = list(_lines(X, signs, order[:_LINES], _KNOTS))
    Y = problem.objective.targets
    rounding = max(_ROUNDING * np.ptp(Y), _LAST * np.abs(Y).max())
    if any(_is_falling(line, model._values(line.rows), rounding) for line in lines):
        _project(model, problem, lines, rounding)
    others = list(_lines(X, signs, order[::-1][:_MEASURED_LINES], _MEASURED_KNOTS))
    values = [model._values(line.rows) for line in others]
    falls = [line.fall(part) for line, part in zip(others, values, strict=True)]
    violation = model.monotonic_violation_ = max(falls, default=0.0)
    told = [max(_TOLD * np.ptp(v), rounding) for v in values]
    if violation > max(told, default=0.0):
        _warn(
            f"predictions move by up to {violation:.2g} against `monotonic_cst` "
            "(`monotonic_violation_`) between its constraints"
        )


def _lines(X: NDArray, signs: NDArray, index: NDArray, knots: int) -> Iterator[Lines]:
    """Yield the lines through a subset of samples along each constrained column."""
    ranked = X[:: max(1, len(X) // _RANKED)]  # a slice, since X may be lazy
    for column in np.flatnonzero(signs):
        values = np.quantile(ranked[:, column], np.linspace(0, 1, knots))
        even = np.linspace(values[0], values[-1], knots)  # tails have few quantiles
        values = np.unique(np.append(values, even).astype(X.dtype))
        rows = np.repeat(X[index], len(values), axis=0)
        rows[:, column] = np.tile(values, len(index))
        yield Lines(rows, len(values), int(signs[column]))


def _is_falling(line: Lines, values: NDArray, rounding: float) -> bool:
    return bool((line.steps(values) < -rounding).any())


def _project(model: Any, problem: Problem, lines: list[Lines], rounding: float) -> None:
    """Set coefficients, objective and gap of the constrained solution."""
    X = problem.rows
    objective = problem.objective
    cone: _Squares | _Quantiles
    if isinstance(objective, JointQuantileObjective):
        cone = _Quantiles(model, X, objective)
    else:
        cone = _Squares(model, X, objective)
    D = np.empty((0, cone.P.shape[1] + 1))
    free_gap = model.dual_gap_
    for _ in range(_ROUNDS):
        added = [_steepest(model, cone.P, line, rounding) for line in lines]
        if not sum(map(len, added)):
            break
        D = cone.solve(np.concatenate([D, *added]))
    else:
        _warn(f"constraints of `monotonic_cst` are violated after {_ROUNDS} rounds")
    if model.dual_gap_ > free_gap + model.tol:
        _warn(f"with `monotonic_cst` the relative gap is {model.dual_gap_:.1e}")


def _warn(text: str) -> None:
    text += ": pass a larger `alpha`"
    warn(text, ConvergenceWarning)


class _Squares:
    """Least squares restricted to a cone."""

    def __init__(self, model: Any, X: NDArray, objective: Objective):
        targets = objective.targets
        weights = objective.weights
        self.P, self.U, c = posterior.penalized_products(model, X, targets, weights)
        self.free = solve_triangular(self.U, c[:, 0], trans="T")
        self.model = model
        self.n = len(X)
        self.objective = model.objective_
        self.gap = model.dual_gap_

    def solve(self, D: NDArray) -> NDArray:
        """Set the solution with D w >= 0; return the active constraints."""
        cone = solve_triangular(self.U, D.T, trans="T")
        norms = np.linalg.norm(cone, axis=0)
        D = D / norms[:, None]
        cone = cone / norms
        model = self.model
        multipliers, _ = scipy.optimize.nnls(-cone, self.free, maxiter=10 * len(D))
        change = cone @ multipliers
        w = solve_triangular(self.U, self.free + change)
        model.coef_ = self.P @ w[1:]
        model.intercept_ = float(w[0])
        slack = abs(float(multipliers @ (D @ w)))
        model.objective_ = self.objective + float(change @ change) / (2 * self.n)
        model.dual_gap_ = self.gap + slack / (self.n * max(model.objective_, 1e-300))
        return D[multipliers > 0]


class _Quantiles:
    """Joint quantiles, each restricted to the cone."""

    def __init__(self, model: Any, X: NDArray, objective: JointQuantileObjective):
        weights = row_weights(objective.weights, X)
        counted = weights > 0
        levels = np.array(objective.quantiles)
        shares = weights[counted, None] / len(X)
        self.P = posterior.feature_projection(model)
        self.model = model
        Z = posterior.features_of(model, self.P, X)[counted]
        bounds = (levels - 1) * shares, levels * shares
        targets = objective.targets[counted, 0]
        factor = objective.factor
        self.problem = PiecewiseProblem(Z, targets, *bounds, factor, model.alpha_)

    def solve(self, D: NDArray) -> NDArray:
        """Set the solution with D W >= 0 at each level; return all constraints."""
        D = D / np.linalg.norm(D, axis=1, keepdims=True)
        solution = solve_piecewise(self.problem.constrained(D), _TOL)
        model = self.model
        model.coef_ = self.P @ (solution.W @ self.problem.T)
        model.intercept_ = solution.b
        model.objective_ = solution.objective
        model.dual_gap_ = solution.gap / max(solution.objective, 1e-300)
        return D


def _steepest(model: Any, P: NDArray, line: Lines, rounding: float) -> NDArray:
    """Return the constraints for the steepest decrease of each decreasing line."""
    values = model._values(line.rows)
    if not _is_falling(line, values, rounding):
        return np.empty((0, P.shape[1] + 1))
    steps = line.steps(values)
    index = np.argsort(steps.min(axis=1))[:_ADDED]
    index = index[steps[index].min(axis=1) < -rounding]
    knot = steps[index].argmin(axis=1)
    below = line.at(index, knot)
    above = line.at(index, knot + 1)
    return line.sign * (
        posterior.features_of(model, P, above) - posterior.features_of(model, P, below)
    )
