r"""Least squares with predictions that are monotone in some columns.

With :math:`\tilde z = (1, z)` and A as for the posterior, the constrained solution is
the point nearest to the free one in the norm of A among those of a cone:

.. math:: \min_w \tfrac12 (w - \hat w)^\top A\, (w - \hat w)
          \quad \text{s.t.} \quad D w \ge 0 .

A row of D is the difference of features between two neighboring knots of a line: a
training row with one column moved through its quantiles. The dual is a problem of
nonnegative least squares, solved exactly. D grows by the differences that fall most,
until none of any line does.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg
import scipy.optimize
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import _check_monotonic_cst

from nbsketch._rows import is_pairwise
from nbsketch.distributed.rows import PartitionedRows
from nbsketch.estimators.posterior import (
    MOST_FEATURES,
    features_of,
    penalized_products,
)
from nbsketch.fitting.objective import Problem
from nbsketch.losses import SquareLoss

# Lines of each constrained column, and knots of a line: 300 lines leave falls 1.6 times
# as large, in 60 % of the time (a function of 6 columns, 1500 rows).
_LINES, _KNOTS = 1000, 20
# Lines and knots by which what is left is measured: others, and between the knots.
_MEASURED_LINES, _MEASURED_KNOTS = 1000, 50
# Rows, at least, of which quantiles are taken.
_RANKED = 100_000
# Falls up to this share of the largest prediction are rounding.
_ROUNDING = 1e-9
# Rounds, and constraints of each column that one adds at most: 6 to 10 rounds are
# enough, and all at once take minutes where the penalty is tiny and signs are wrong.
_ROUNDS, _ADDED = 50, 100


class Lines(NamedTuple):
    """Rows along one column: `count` lines of so many `knots`, one after another."""

    rows: NDArray
    knots: int
    sign: int

    def steps(self, values: NDArray) -> NDArray:
        """Return the increase from each knot to the next, (count, knots - 1, ...)."""
        shape = -1, self.knots, *values.shape[1:]
        return self.sign * np.diff(values.reshape(shape), axis=1)

    def fall(self, values: NDArray) -> float:
        """Return the largest fall between any two knots of a line."""
        along = self.sign * values.reshape(-1, self.knots)
        return float((np.maximum.accumulate(along, axis=1) - along).max())

    def at(self, lines: NDArray, knot: NDArray) -> NDArray:
        """Return these lines at knots, (len(lines), q)."""
        return self.rows[lines * self.knots + knot]


def check_monotonic(model: Any, X: Any, single: bool) -> NDArray:
    """Return the sign of each column; refuse what has no constraints."""
    if not isinstance(model.monotonic_cst, dict) and np.ndim(model.monotonic_cst) != 1:
        raise ValueError(
            "`monotonic_cst` must be a sequence of -1, 0 and 1, a dict by column name "
            f"or None, got {model.monotonic_cst!r}"
        )
    signs = _check_monotonic_cst(model, model.monotonic_cst)
    rows = not (is_pairwise(model.kernel) or sp.issparse(X))
    for name, possible, expected in (
        ("loss", model.loss in ("square", SquareLoss()), "the square loss"),
        ("output", model.output is None, "None"),
        ("solver", model.solver == "auto", "'auto'"),
        ("kernel", not is_pairwise(model.kernel), "a kernel of rows"),
        ("X", rows and not isinstance(X, PartitionedRows), "dense and in memory"),
        ("y", single, "a single target"),
    ):
        if not possible:
            got = f", got {getattr(model, name)!r}" if hasattr(model, name) else ""
            raise ValueError(f"`{name}` must be {expected} for `monotonic_cst`{got}")
    return signs


def constrain(model: Any, problem: Problem) -> None:
    """Replace a free solution by the monotone one, and measure what is left."""
    if model.size_ > MOST_FEATURES:
        raise ValueError(
            f"`size` must be at most {MOST_FEATURES} for `monotonic_cst`, got "
            f"{model.size_}"
        )
    X, objective = problem.rows, problem.objective
    signs = _check_monotonic_cst(model, model.monotonic_cst)
    order = np.random.default_rng(0).permutation(len(X))
    lines = list(_lines(X, signs, order[:_LINES], _KNOTS))
    if any(_is_falling(line, model._values(line.rows)) for line in lines):
        _project(model, X, objective.targets, objective.weights, lines)
    others = _lines(X, signs, order[::-1][:_MEASURED_LINES], _MEASURED_KNOTS)
    falls = [line.fall(model._values(line.rows)) for line in others]
    model.monotonic_violation_ = max(falls, default=0.0)


def _lines(X: NDArray, signs: NDArray, index: NDArray, knots: int) -> Iterator[Lines]:
    """Yield the lines through some rows along each constrained column."""
    ranked = X[:: max(1, len(X) // _RANKED)]  # a slice, since X may be lazy
    for column in np.flatnonzero(signs):
        values = np.quantile(ranked[:, column], np.linspace(0, 1, knots))
        values = np.unique(values.astype(X.dtype))
        rows = np.repeat(X[index], len(values), axis=0)
        rows[:, column] = np.tile(values, len(index))
        yield Lines(rows, len(values), int(signs[column]))


def _is_falling(line: Lines, values: NDArray) -> bool:
    return bool((line.steps(values) < -_ROUNDING * np.abs(values).max()).any())


def _project(
    model: Any, X: NDArray, Y: NDArray, weights: NDArray | None, lines: list[Lines]
) -> None:
    """Set coefficients, objective and gap of the constrained solution."""
    P, U, c = penalized_products(model, X, Y, weights)
    free = scipy.linalg.solve_triangular(U, c[:, 0], trans="T")
    D, multipliers = np.empty((0, len(U))), np.empty(0)
    for _ in range(_ROUNDS):
        added = [_steepest(model, P, line) for line in lines]
        if not sum(map(len, added)):
            break
        D = np.concatenate([D[multipliers > 0], *added])
        cone = scipy.linalg.solve_triangular(U, D.T, trans="T")
        norms = np.linalg.norm(cone, axis=0)
        D, cone = D / norms[:, None], cone / norms
        multipliers, _ = scipy.optimize.nnls(-cone, free, maxiter=10 * len(D))
        change = cone @ multipliers
        w = scipy.linalg.solve_triangular(U, free + change)
        model.coef_, model.intercept_ = P @ w[1:], float(w[0])
    else:
        text = (
            f"constraints of `monotonic_cst` are left after {_ROUNDS} rounds: pass a "
        )
        warnings.warn(text + "larger `alpha`", ConvergenceWarning, stacklevel=6)
    slack = abs(float(multipliers @ (D @ w)))
    model.objective_ += float(change @ change) / (2 * len(X))
    model.dual_gap_ += slack / (len(X) * max(model.objective_, 1e-300))


def _steepest(model: Any, P: NDArray, line: Lines) -> NDArray:
    """Return the rows of D for the steepest fall of each line that falls."""
    values = model._values(line.rows)
    if not _is_falling(line, values):
        return np.empty((0, P.shape[1] + 1))
    steps = line.steps(values)
    index = np.argsort(steps.min(axis=1))[:_ADDED]
    index = index[steps[index].min(axis=1) < -_ROUNDING * np.abs(values).max()]
    knot = steps[index].argmin(axis=1)
    below, above = line.at(index, knot), line.at(index, knot + 1)
    return line.sign * (features_of(model, P, above) - features_of(model, P, below))
