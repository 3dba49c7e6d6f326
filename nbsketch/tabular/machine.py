r"""The predictor of a table: a global base, members that correct it, and a stack.

.. math:: f(x) = \bar y + (1 - v - u)\, g(x)
          + \sum_m w_m \frac{1}{T} \sum_t f_{m,t}(x) + v\, h(x) + u\, r(x)

with g a ridge on few landmarks and f_{m, t} the exact solution on the leaf of tree t
that x falls in, with the kernel of member m, fitted to the residuals of g; h is linear,
and left out if its weight v is below 0.05; r is a global ridge on more landmarks, for
smooth targets. Up to 1500 rows there is no base, and a
single leaf.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nbsketch._blas import one_thread
from nbsketch._progress import report
from nbsketch.solvers.order import OrderEffect
from nbsketch.tabular.base import Base, Ridge
from nbsketch.tabular.efforts import ALONE, LEAF_ROWS, LEFT_OUT_TREES, Effort
from nbsketch.tabular.influence import fitted_shares
from nbsketch.tabular.limit import TimeLimit
from nbsketch.tabular.linear import Linear, fit_linear
from nbsketch.tabular.members import (
    Member,
    Training,
    fit_tree,
    form_of,
    predict_member,
)
from nbsketch.tabular.metric import EXACT_ROWS, Global, fit_global, lacks_landmarks
from nbsketch.tabular.order import table_order
from nbsketch.tabular.outliers import inliers, limits, widened
from nbsketch.tabular.partition import grow, whole
from nbsketch.tabular.scales import (
    SMOOTH,
    Fitted,
    SampleError,
    Scales,
    best_width,
    learn_scales,
    learn_within,
    sampled_leaves,
)
from nbsketch.tabular.stack import stack_weights
from nbsketch.tuning import InputScaler, fit_scaler
from nbsketch.tuning.inputs import CONSTANT
from nbsketch.tuning.rows import Rows, prepare

# Rows of a single leaf that choose its penalty: tau is a ratio of variances, which does
# not depend on the number of rows.
_PENALTY_ROWS = 700
# Fewer rows have no gross errors that could be told.
_LEAST_ROWS = 50
# A linear function with less weight is left out of the stack.
_LEAST_WEIGHT = 0.05
# Predictions leave the range of the targets by at most this share of it.
_MARGIN = 0.1


class Machine(NamedTuple):
    """The fitted predictor: what prediction needs, as arrays and tuples of arrays.

    Attributes
    ----------
    scaler : InputScaler
        Preprocessing, from q features to p columns.
    low, high : ndarray of shape (q,)
        Limits to which features are clipped.
    center, spread, y_low, y_high : ndarray of shape (d,)
        Mean and standard deviation of the targets, and limits of predictions.
    rows : ndarray of shape (n, p)
        Preprocessed training rows.
    base : Base or None
        The global model.
    base_scales : ndarray of shape (p,)
        Its inverse length scales.
    members : tuple of Member
        The members.
    weights : ndarray of shape (members,)
        Weights of the members; if they and that of the linear function add up to less
        than one, the base has the rest.
    linear : Linear or None
        The linear function.
    ridge : Global or None
        The global ridge.
    """

    scaler: InputScaler
    low: NDArray
    high: NDArray
    center: NDArray
    spread: NDArray
    y_low: NDArray
    y_high: NDArray
    rows: NDArray
    base: Base | None
    base_scales: NDArray
    members: tuple[Member, ...]
    weights: NDArray
    linear: Linear | None
    ridge: Global | None

    @classmethod
    def of(cls, parts: tuple[Any, ...]) -> Machine:
        """Return the machine with these parts, plain tuples if it was loaded."""
        found = cls(*parts)
        base = None if found.base is None else Base(*found.base)
        linear = None if found.linear is None else Linear(*found.linear)
        ridge = None if found.ridge is None else Global.of(found.ridge)
        members = tuple(map(Member.of, found.members))
        return found._replace(base=base, members=members, linear=linear, ridge=ridge)

    @property
    def rest(self) -> float:
        """Weight of the base by itself; zero without one."""
        known = self.weights.sum() + self._weight_without_base
        return 0.0 if self.base is None else float(max(1 - known, 0.0))

    @property
    def _weight_without_base(self) -> float:
        """Weight of the parts that the base is not added to."""
        return sum(p.weight for p in (self.linear, self.ridge) if p is not None)

    def relevance(self) -> NDArray:
        """Return the relevance of the q features, relative to the largest.

        Inverse length scales of the columns of a feature are added as squares. They are
        those of the base or, without one, of the members, averaged by their weights,
        with the linear function and the global ridge.
        """
        known = [(self.base_scales, 1 - self._weight_without_base)]
        if self.base is None:
            scales = [member.scales for member in self.members]
            known = list(zip(scales, self.weights.tolist(), strict=True))
        others = [part for part in (self.linear, self.ridge) if part is not None]
        known += [(part.slopes(), part.weight) for part in others]
        total = np.zeros(self.scaler.n_features)
        for inverse, weight in known:
            squares = np.bincount(self.scaler.features, inverse**2, len(total))
            total += weight * np.sqrt(squares / (squares.max() or 1.0))
        total = np.where(self.low < self.high, total, 0.0)
        return total / (total.max() or 1.0)

    def n_numbers(self) -> int:
        """Return how many numbers predictions need."""
        trees = [tree for member in self.members for tree in member.trees]
        base = 0 if self.base is None else self.base.landmarks.size
        base += 0 if self.linear is None else self.linear.coef.size
        base += 0 if self.ridge is None else self.ridge.base.landmarks.size
        return self.rows.size + base + sum(2 * tree.coef.size for tree in trees)

    def prepare(self, X: NDArray) -> NDArray:
        """Return rows of X clipped to their limits and preprocessed."""
        return self.scaler.transform(clipped(X, self.low, self.high))

    def predict(self, X: NDArray) -> NDArray:
        """Return predictions of shape (n, d)."""
        with one_thread():
            return self._predict(X)

    def _predict(self, X: NDArray) -> NDArray:
        rows = self.prepare(X)
        out = np.zeros((len(rows), len(self.center)))
        if self.base is not None:
            values = self.base.predict(form_of(SMOOTH, self.base_scales), rows)
            out += (1 - self._weight_without_base) * values
        if self.linear is not None:
            out += self.linear.weight * self.linear.predict(rows)
        if self.ridge is not None:
            out += self.ridge.weight * self.ridge.predict(SMOOTH, rows)
        for member, weight in zip(self.members, self.weights, strict=True):
            if weight > 0:
                out += weight * predict_member(member, self.rows, rows)
        return np.clip(self.center + self.spread * out, self.y_low, self.y_high)


class LeftOut(NamedTuple):
    """Left-out residuals of a machine.

    Attributes
    ----------
    drawn : ndarray of int of shape (m,)
        Training rows they belong to.
    members : ndarray of shape (k, m, d)
        Residuals of the members, of the base, if there is one, and of the linear
        function and the global ridge, if they have a weight.
    residual : ndarray of shape (m, d)
        Residuals of the stack, in units of the targets.
    n_used : int
        Number of rows without gross errors.
    order : OrderEffect or None
        Errors of leaving blocks of rows out. None: blocks were left out in the fit.
    """

    drawn: NDArray
    members: NDArray
    residual: NDArray
    n_used: int
    order: OrderEffect | None


class _Problem(NamedTuple):
    """Standardized data of a fit, and how much to spend on it."""

    rows: Rows
    data: Training
    effort: Effort
    rng: np.random.Generator
    budget: TimeLimit


def fit_machine(
    X: NDArray,
    Y: NDArray,
    weights: NDArray | None,
    labels: NDArray | None,
    effort: Effort,
    rng: np.random.Generator,
    budget: TimeLimit,
    *,
    robust: bool = False,
) -> tuple[Machine, LeftOut]:
    """Fit rows X (n, q) and targets Y (n, d).

    `weights` have mean one, `labels` are blocks of rows that are left out together.
    `robust`: rows with gross errors in the targets are not used. The result does not
    depend on the number of threads: leaves are solved side by side, and BLAS has one
    thread.
    """
    with one_thread():
        low, high = limits(X)
        X, kept = clipped(X, low, high), np.arange(len(X))
        rows = prepare(X, Y, weights, fit_scaler(X, "both", rng), kept, labels=labels)
        if robust and len(X) >= _LEAST_ROWS:
            kept = inliers(rows, SMOOTH, rng)
        if len(kept) < len(X):
            X, Y = X[kept], Y[kept]
            weights = None if weights is None else weights[kept] / weights[kept].mean()
            labels = None if labels is None else labels[kept]
            every, scaler = np.arange(len(X)), rows.scaler
            rows = prepare(X, Y, weights, scaler, every, labels=labels)
        machine, left_out = _fit(rows, effort, rng, budget, Y)
    low, high = widened(X, low, high)
    machine = machine._replace(low=low, high=high)
    return machine, left_out._replace(drawn=kept[left_out.drawn], n_used=len(kept))


def _fit(
    rows: Rows,
    effort: Effort,
    rng: np.random.Generator,
    budget: TimeLimit,
    Y: NDArray,
) -> tuple[Machine, LeftOut]:
    scaler, scales = learn_scales(rows, effort, rng, budget)
    center, spread = _moments(Y, rows.weights)
    Z = scaler.transform(rows.X)
    data = Training(Z, (Y - center) / spread, rows.weights, rows.labels)
    problem = _Problem(replace(rows, scaler=scaler), data, effort, rng, budget)
    fit = _fit_alone if len(Y) <= ALONE else _fit_on_base
    base, members, residuals, index = fit(problem, scales)
    start = None if base is None else (base, residuals[-1])
    residuals, stack, linear = _with_linear(problem, scales[0], residuals, index)
    ridge = None
    found = _global_ridge(problem, scales[0], start, residuals, stack, index)
    if found is not None:
        residuals, stack, ridge = found
        linear = linear and linear._replace(weight=float(stack[-2]))
    y_low, y_high = Y.min(axis=0), Y.max(axis=0)
    margin = _MARGIN * (y_high - y_low)
    machine = Machine(
        scaler,
        rows.X.min(axis=0),
        rows.X.max(axis=0),
        center,
        spread,
        y_low - margin,
        y_high + margin,
        Z,
        base,
        scales[0].inverse,
        tuple(members),
        stack[: len(members)],
        linear,
        ridge,
    )
    left_out = np.einsum("k,kmd->md", stack, residuals) * spread
    order = None if data.labels is not None else table_order(scales[0].form, data)
    return machine, LeftOut(index, residuals, left_out, len(Y), order)


def _with_linear(
    problem: _Problem, scales: Scales, residuals: NDArray, index: NDArray
) -> tuple[NDArray, NDArray, Linear | None]:
    """Return residuals and weights of the stack, and the linear function if it helps.

    `residuals` (k, m, d) are those of the other parts, at the rows `index`.
    """
    data = problem.data
    known = None if data.weights is None else data.weights[index]
    found = fit_linear(data, scales.inverse, index, problem.rng)
    if found is not None:
        more = np.concatenate([residuals, found[1][None]])
        stack = stack_weights(more, known)
        if stack[-1] >= _LEAST_WEIGHT:
            return more, stack, found[0]._replace(weight=float(stack[-1]))
    return residuals, stack_weights(residuals, known), None


def _global_ridge(
    problem: _Problem,
    scales: Scales,
    start: tuple[Base, NDArray] | None,
    residuals: NDArray,
    stack: NDArray,
    index: NDArray,
) -> tuple[NDArray, NDArray, Global] | None:
    """Return residuals and weights of the stack with a global ridge, if it helps.

    `start`: the base and its left-out residuals, None if there is none.

    It is tried if the stack leaves little error or, where all rows can be used, if the
    base lacks landmarks; it is used if its own error is less. Up to `ALONE` rows the
    members are global, and it needs a metric to differ.
    """
    data, budget = problem.data, problem.budget
    known = None if data.weights is None else data.weights[index]
    error = _error(np.einsum("k,kmd->md", stack, residuals), known)
    effort = budget.affordable(problem.effort)
    if not (
        error < effort.global_below or _lacks_landmarks(problem, scales, start, index)
    ):
        budget.skipped += bool(error < problem.effort.global_below)
        return None
    found = fit_global(
        scales.family,
        data,
        scales.inverse,
        index,
        problem.rng,
        only_rotated=start is None,
    )
    if found is None or not _error(found[1], known) < error:
        return None
    more = np.concatenate([residuals, found[1][None]])
    weights = stack_weights(more, known)
    return more, weights, found[0]._replace(weight=float(weights[-1]))


def _lacks_landmarks(
    problem: _Problem,
    scales: Scales,
    start: tuple[Base, NDArray] | None,
    index: NDArray,
) -> bool:
    """Return whether there are few enough rows to use all, and the base lacks some."""
    data = problem.data
    if start is None or len(data.Y) > EXACT_ROWS:
        return False
    return lacks_landmarks(scales.form, data, *start, index, problem.rng)


def _error(residual: NDArray, weights: NDArray | None) -> float:
    """Return the root mean square of residuals (m, d); rows with NaN do not count."""
    squares = np.square(residual).mean(axis=1)
    some = np.isfinite(squares)
    if not some.any():
        return np.inf
    known = None if weights is None else weights[some]
    return float(np.sqrt(np.average(squares[some], weights=known)))


def _fit_alone(
    problem: _Problem, scales: list[Scales]
) -> tuple[None, list[Member], NDArray, NDArray]:
    """Fit each member on all rows; return no base, members and left-out residuals."""
    n, data = len(problem.data.Y), problem.data
    members, residuals = [], []
    some = np.arange(n)
    if n > _PENALTY_ROWS:
        some = np.sort(problem.rng.choice(n, _PENALTY_ROWS, replace=False))
    for start in scales:
        found = SampleError(data, start, [some]).best_penalty()
        found = best_width(data, start, [some], found)
        form = form_of(start.family, found.inverse)
        tree, residual = fit_tree(form, data, whole(n), found.tau, left_out=True)
        members.append(Member(start.family, found.inverse, found.tau, (tree,)))
        residuals.append(np.asarray(residual))
    return None, members, np.stack(residuals), np.arange(n)


def _fit_on_base(
    problem: _Problem, scales: list[Scales]
) -> tuple[Base, list[Member], NDArray, NDArray]:
    """Fit the base, and members to what it leaves; see `_fit_alone`."""
    data, effort, rng = problem.data, problem.effort, problem.rng
    form = scales[0].form
    ridge = Ridge(form, data.rows, data.weights, effort.landmarks, rng, data.labels)
    base, base_residual = ridge.fit(data.Y)
    data = data._replace(Y=data.Y - base.predict(form, data.rows))
    index = ridge.validation
    # A row also pulls the base toward itself, which the leaves undo in part.
    change = base_residual - data.Y[index]
    members, residuals = [], []
    problem = problem._replace(data=data)
    for k, start in enumerate(scales):
        end = problem.budget.share_end(len(scales) - k)
        member, residual = _fit_member(problem, start, index, end)
        members.append(member)
        share = _passed(problem, member, index, change, base_residual, ridge)
        residuals.append(residual[index] + share[:, None] * change)
    return base, members, np.stack([*residuals, base_residual]), index


def _passed(
    problem: _Problem,
    member: Member,
    index: NDArray,
    change: NDArray,
    residual: NDArray,
    ridge: Ridge,
) -> NDArray:
    """Return the share of each change of the base that passes through the leaves.

    With blocks of rows that are left out together it is one, which is too large.
    """
    data = problem.data
    if data.labels is not None:
        return np.ones(len(index))
    tree, form = member.trees[0].partition, form_of(member.family, member.scales)
    few = range(min(problem.effort.sampled, tree.n_leaves))
    leaves, hat = [tree.leaf(i) for i in few], ridge.influence
    return fitted_shares(form, member.tau, data, leaves, index, change, residual, hat)


def _fit_member(
    problem: _Problem, start: Scales, index: NDArray, end: float
) -> tuple[Member, NDArray]:
    """Return a member and left-out residuals (n, d), those of `index` at least.

    No more trees than needed are grown after the time `end`.
    """
    data, effort, rng = problem.data, problem.effort, problem.rng
    wanted = np.zeros(len(data.Y), dtype=bool)
    wanted[index] = True
    found = _refined(problem, start)
    form = form_of(start.family, found.inverse)
    trees, residuals = [], list[NDArray]()
    for k in range(effort.trees):
        tree, residual = fit_tree(
            form,
            data,
            grow(data.rows, found.inverse, LEAF_ROWS, rng),
            found.tau,
            left_out=wanted & (k < LEFT_OUT_TREES),
        )
        trees.append(tree)
        if residual is not None:
            residuals.append(residual)
        report("leaves", iteration=k + 1, total=effort.trees)
        if len(residuals) == LEFT_OUT_TREES and problem.budget.is_over(end):
            break
    problem.budget.skipped += effort.trees - len(trees)
    member = Member(start.family, found.inverse, found.tau, tuple(trees))
    return member, _averaged(residuals, len(trees))


def _averaged(residuals: list[NDArray], count: int) -> NDArray:
    """Return residuals of the mean of `count` trees from those of two of them.

    The variance of a mean of T exchangeable residuals is c + (v - c) / T, for their
    covariance c and variance v: residuals of the mean of two are scaled accordingly.
    """
    first, second = residuals
    known = np.isfinite(first) & np.isfinite(second)
    common = max(float((first * second)[known].sum()), 0.0)
    single = float((np.square(first) + np.square(second))[known].sum()) / 2
    of_two = (common + single) / 2
    factor = (common + (single - common) / count) / of_two if of_two > 0 else 1.0
    return np.sqrt(factor) * (first + second) / 2


def _refined(problem: _Problem, start: Scales) -> Fitted:
    """Return scales, width and penalty, chosen on some leaves.

    Scales learned again within other leaves are kept if they lower the error.
    """
    data, rng = problem.data, problem.rng
    effort = problem.budget.affordable(problem.effort)
    problem.budget.skipped += problem.effort.rounds - effort.rounds
    tree = grow(data.rows, start.inverse, LEAF_ROWS, rng)
    judged = sampled_leaves(tree, effort.sampled, rng)
    rest = problem.rows
    rows = prepare(
        rest.X, data.Y, data.weights, rest.scaler, rest.kept, labels=data.labels
    )
    within = sampled_leaves(tree, effort.rounds, rng)
    learned = learn_within(rows, start, within, rng, problem.budget)
    again = SampleError(data, learned, judged).best_penalty()
    found = SampleError(data, start, judged).best_penalty(again.tau)
    if again.error < found.error:
        start, found = learned, again
    return best_width(data, start, judged, found)


def _moments(Y: NDArray, weights: NDArray | None) -> tuple[NDArray, NDArray]:
    """Return means and standard deviations of the targets; one for constants."""
    center = np.average(Y, axis=0, weights=weights)
    spread = np.sqrt(np.average(np.square(Y - center), axis=0, weights=weights))
    varies = spread > CONSTANT * np.abs(center)
    return center, np.where(varies, spread, 1.0)


def clipped(X: NDArray, low: NDArray, high: NDArray) -> NDArray:
    """Return rows with each feature between its limits, in their type."""
    return np.clip(X, low, high).astype(X.dtype, copy=False)
