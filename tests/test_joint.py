import cvxpy as cp
import numpy as np
import pytest

from nbsketch.losses import PinballLoss
from nbsketch.outputs import QuantileOutput
from nbsketch.solvers._certified.search import cold_start
from nbsketch.solvers._newton import directions
from nbsketch.solvers._newton import start as starts
from nbsketch.solvers._newton.directions import TermGrams, direction_of_entries
from nbsketch.solvers._newton.problem import NewtonProblem
from nbsketch.solvers._newton.start import splitting_start
from nbsketch.solvers.design import ArrayDesign, Design
from nbsketch.solvers.newton import solve_joint_pinball, solve_scalar
from nbsketch.solvers.row_loss import pinball_rows

LEVELS = (0.1, 0.5, 0.8)
FACTORS = {
    "identity": np.eye(3),
    "full": QuantileOutput(LEVELS, gamma=2.0).factor(3),
    "singular": QuantileOutput(LEVELS, gamma=0.0).factor(3),
}


class Blocks(Design):
    """The same features in several blocks, as if streamed."""

    def __init__(self, Z, size):
        self.Z, self.size, self.shape, self.dtype = Z, size, Z.shape, Z.dtype

    def blocks(self):
        for start in range(0, len(self.Z), self.size):
            stop = min(start + self.size, len(self.Z))
            yield start, stop, self.Z[start:stop].copy()


def problem(n=80, r=6, seed=0):
    rng = np.random.default_rng(seed)
    Z = rng.normal(size=(n, r)) * 0.6 ** np.arange(r)
    y = Z @ rng.normal(size=r) + (0.5 + np.abs(Z[:, 0])) * rng.normal(size=n) + 2.0
    return Z, y


def joint_problem(Z, y, T, alpha, intercept=True, weights=None, ordered=False):
    losses = pinball_rows(np.array(LEVELS), len(y), ordered)
    parts = {"y": y, "losses": losses, "T": T, "ordered": ordered}
    return NewtonProblem.of(ArrayDesign(Z), alpha, weights, intercept, **parts)


def objective(Z, y, T, alpha, W, b, weights=None, levels=LEVELS):
    res = y[:, None] - Z @ W @ T - b
    losses = sum(PinballLoss(t).value(res[:, j]) for j, t in enumerate(levels))
    weights = np.ones(len(y)) if weights is None else weights
    return weights @ losses / len(y) + alpha / 2 * (W**2).sum()


def reference(Z, y, T, alpha, intercept, weights=None):
    """The minimum, from a conic solver on the textbook problem."""
    n, d = len(y), len(LEVELS)
    W, b = cp.Variable((Z.shape[1], len(T))), cp.Variable(d)
    res = y[:, None] - Z @ W @ T - cp.reshape(b, (1, d), order="C")
    losses = sum(
        cp.maximum(t * res[:, j], (t - 1) * res[:, j]) for j, t in enumerate(LEVELS)
    )
    weights = np.ones(n) if weights is None else weights
    value = weights @ losses / n + alpha / 2 * cp.sum_squares(W)
    constraints = [] if intercept else [b == 0]
    return cp.Problem(cp.Minimize(value), constraints).solve(
        solver=cp.CLARABEL, tol_gap_abs=1e-10, tol_gap_rel=1e-10, tol_feas=1e-10
    )


def check(solution, Z, y, T, alpha, best, weights=None):
    """The objective is what it claims, optimal, and no further off than certified."""
    value = objective(Z, y, T, alpha, solution.coef, solution.intercept, weights)
    assert solution.converged
    assert solution.objective == pytest.approx(value, rel=1e-12)
    assert abs(value - best) <= 1e-6 * best
    assert value - best <= solution.gap + 1e-8 * best


@pytest.mark.thin(times=1)
@pytest.mark.parametrize("T", FACTORS.values(), ids=FACTORS)
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("alpha", [1e-8, 1e-4, 1.0])
def test_against_a_conic_solver(T, intercept, alpha):
    Z, y = problem()
    best = reference(Z, y, T, alpha, intercept)
    solution = solve_joint_pinball(Z, y, LEVELS, T, alpha, fit_intercept=intercept)
    check(solution, Z, y, T, alpha, best)
    assert intercept or not solution.intercept.any()


@pytest.mark.parametrize("intercept", [False, True])
def test_the_dual_point_proves_the_gap(intercept):
    Z, y = problem()
    T, alpha, n = FACTORS["full"], 1e-3, len(y)
    s = solve_joint_pinball(Z, y, LEVELS, T, alpha, fit_intercept=intercept)
    levels, a = np.array(LEVELS), s.dual
    assert (a >= levels - 1).all() and (a <= levels).all()
    if intercept:
        np.testing.assert_allclose(a.sum(axis=0), 0.0, atol=1e-12)
    pulled = Z.T @ a @ T.T
    dual = (a * y[:, None]).sum() / n - (pulled**2).sum() / (2 * alpha * n**2)
    assert s.objective - dual == pytest.approx(s.gap, abs=1e-12)


def test_the_gap_bounds_the_distance_on_the_way():
    Z, y = problem()
    T, reports = FACTORS["full"], []
    best = reference(Z, y, T, 1e-3, True)
    solve_joint_pinball(
        Z, y, LEVELS, T, 1e-3, callback=lambda *report: reports.append(report)
    )
    assert len(reports) > 2
    assert all(value - best <= gap + 1e-9 for _, value, gap, _ in reports)


def test_weights_are_repetitions():
    Z, y = problem(60)
    counts = np.random.default_rng(1).integers(0, 4, 60)
    T, rows = FACTORS["full"], np.repeat(np.arange(60), counts)
    weights = counts / counts.mean()
    s = solve_joint_pinball(Z, y, LEVELS, T, 1e-4, sample_weight=weights)
    best = reference(Z, y, T, 1e-4, True, weights)
    check(s, Z, y, T, 1e-4, best, weights)
    again = solve_joint_pinball(Z[rows], y[rows], LEVELS, T, 1e-4)
    assert again.objective == pytest.approx(s.objective, rel=2e-6)


HARD = {
    "fewer rows than features": lambda Z, y: (Z[:4], y[:4]),
    "duplicates": lambda Z, y: (np.tile(Z[:20], (4, 2)), np.tile(y[:20], 4)),
    "outliers": lambda Z, y: (Z, np.where(np.arange(len(y)) < 3, 1e6, y)),
    "ties": lambda Z, y: (Z, np.round(y)),
    "large offset": lambda Z, y: (Z, y + 1e5),
    "tiny features": lambda Z, y: (1e-6 * Z, y),
}


@pytest.mark.parametrize("change", HARD.values(), ids=HARD)
@pytest.mark.parametrize("intercept", [False, True])
def test_hard_cases(change, intercept):
    Z, y = change(*problem())
    T = FACTORS["full"]
    best = reference(Z, y, T, 1e-4, intercept)
    s = solve_joint_pinball(Z, y, LEVELS, T, 1e-4, fit_intercept=intercept, tol=1e-7)
    assert s.converged
    assert s.objective - best <= 1e-6 * best + 1e-9


def test_constant_target():
    Z, y = problem()[0], np.full(80, 3.0)
    s = solve_joint_pinball(Z, y, LEVELS, FACTORS["full"], 1e-3)
    assert s.converged and s.objective == pytest.approx(0.0, abs=1e-12)
    np.testing.assert_allclose(s.intercept, 3.0, rtol=1e-9)


def test_tiny_penalty_with_fewer_rows_than_features():
    """All levels interpolate: W is the least of those with Z W T + b = y."""
    Z, y = problem(10, 20)
    T, alpha = FACTORS["full"], 1e-8
    s = solve_joint_pinball(Z, y, LEVELS, T, alpha)
    rows, ones = np.kron(Z, T.T), np.kron(np.ones((10, 1)), np.eye(3))
    K = np.block([[rows @ rows.T, ones], [ones.T, np.zeros((3, 3))]])
    c = np.linalg.solve(K, np.append(np.repeat(y, 3), np.zeros(3)))[:30]
    least = alpha / 2 * np.square(c @ rows).sum()
    assert s.objective == pytest.approx(least, rel=1e-6)
    assert s.gap <= 1e-6 * s.objective
    value = objective(Z, y, T, alpha, s.coef, s.intercept)
    assert value == pytest.approx(least, rel=1e-6)


def test_single_precision_and_streamed_features():
    Z, y = problem(500, 10)
    T = FACTORS["full"]
    s = solve_joint_pinball(ArrayDesign(Z), y, LEVELS, T, 1e-4)
    streamed = solve_joint_pinball(Blocks(Z, 77), y, LEVELS, T, 1e-4)
    assert streamed.objective == pytest.approx(s.objective, rel=1e-6)
    single = ArrayDesign(Z.astype(np.float32))
    s = solve_joint_pinball(single, y, LEVELS, T, 1e-4)
    same = single.Z.astype(float)  # the problem solved is that of the stored features
    value = objective(same, y, T, 1e-4, s.coef, s.intercept)
    assert s.converged and s.objective == pytest.approx(value, rel=1e-10)


def test_any_factor_of_the_output_matrix_gives_the_same_predictions():
    Z, y = problem()
    T = FACTORS["full"]
    turn = np.linalg.qr(np.random.default_rng(0).normal(size=(3, 3)))[0]
    one = solve_joint_pinball(Z, y, LEVELS, T, 1e-2, tol=1e-10)
    two = solve_joint_pinball(Z, y, LEVELS, turn @ T, 1e-2, tol=1e-10)
    np.testing.assert_allclose(one.coef @ T, two.coef @ turn @ T, atol=1e-5)
    assert one.objective == pytest.approx(two.objective, rel=1e-9)


def test_one_level_is_the_scalar_problem():
    Z, y = problem(300)
    joint = solve_joint_pinball(Z, y, [0.3], np.eye(1), 1e-3, tol=1e-9)
    scalar = solve_scalar(Z, y, PinballLoss(0.3), 1e-3, tol=1e-9)
    assert joint.objective == pytest.approx(scalar.objective, rel=1e-8)
    np.testing.assert_allclose(joint.coef[:, 0], scalar.coef, atol=1e-4)


def test_nested_samples_and_warm_starts():
    Z, y = problem(6000, 10)
    T = FACTORS["full"]
    first = solve_joint_pinball(Z, y, LEVELS, T, 1e-4)
    assert first.converged
    again = solve_joint_pinball(Z, y, LEVELS, T, 1e-4, state=first.state)
    assert again.n_iter == 0 and again.objective == first.objective
    near = solve_joint_pinball(Z, y, LEVELS, T, 2e-4, state=first.state)
    cold = solve_joint_pinball(Z, y, LEVELS, T, 2e-4)
    assert near.objective == pytest.approx(cold.objective, rel=2e-6)


def test_a_search_may_be_stopped_after_each_step():
    """Also in the rounds on few active rows, of up to 50 steps: time has a limit."""
    x = np.sort(np.random.default_rng(0).uniform(-3, 3, 3000))
    Z = np.exp(-np.square(x[:, None] - np.linspace(-3, 3, 20)))
    args = Z, np.sin(2 * x), LEVELS, np.eye(3), 1e-7
    steps = []
    solve_joint_pinball(*args, callback=lambda step, *_: steps.append(step))
    assert np.diff(steps).max() == 1
    last = steps[-1] - 3  # within the last round
    assert solve_joint_pinball(*args, callback=lambda k, *_: k >= last).n_iter == last


def test_an_exhausted_budget_says_so():
    Z, y = problem()
    s = solve_joint_pinball(Z, y, LEVELS, FACTORS["full"], 1e-6, max_iter=2)
    assert not s.converged and s.n_iter <= 2
    best = reference(Z, y, FACTORS["full"], 1e-6, True)
    assert s.objective - best <= s.gap
    assert "tol" in s.shortfall(1e-6)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"y": np.zeros(3)}, r"`y` must have shape \(80,\)"),
        ({"y": np.full(80, np.nan)}, "`y` must be finite"),
        ({"quantiles": (0.5, 0.1)}, "`quantiles` must be strictly ascending"),
        ({"T": np.eye(2)}, "`T` must have 3 columns"),
        ({"alpha": 0.0}, "`alpha` must be in"),
        ({"tol": -1.0}, "`tol` must be in"),
        (
            {"sample_weight": np.full(80, -1.0)},
            "`sample_weight` must be finite and nonnegative",
        ),
    ],
)
def test_wrong_arguments(change, message):
    Z, y = problem()
    arguments = {"y": y, "quantiles": LEVELS, "T": np.eye(3), "alpha": 1.0} | change
    with pytest.raises(ValueError, match=message):
        solve_joint_pinball(Z, **arguments)


def test_a_state_of_another_problem_is_an_error():
    Z, y = problem()
    state = solve_joint_pinball(Z, y, LEVELS, np.eye(3), 1.0).state
    with pytest.raises(ValueError, match="`state` must hold"):
        solve_joint_pinball(Z, y, (0.5,), np.eye(1), 1.0, state=state)


def crossing_problem(n=50):
    """Few rows and many features: unconstrained quantiles cross."""
    rng = np.random.default_rng(3)
    Z = rng.normal(size=(n, 12))
    return Z, rng.standard_t(3, size=n)


def constrained_reference(Z, y, T, alpha, weights):
    W, b = cp.Variable((Z.shape[1], len(T))), cp.Variable((1, len(LEVELS)))
    fitted = Z @ W @ T + np.ones((len(y), 1)) @ b
    losses = sum(
        cp.maximum(t * (y - fitted[:, j]), (t - 1) * (y - fitted[:, j]))
        for j, t in enumerate(LEVELS)
    )
    value = weights @ losses / len(y) + alpha / 2 * cp.sum_squares(W)
    counted = np.flatnonzero(weights)
    ascending = [fitted[counted, :-1] <= fitted[counted, 1:]]
    return cp.Problem(cp.Minimize(value), ascending).solve(
        solver=cp.CLARABEL, tol_gap_abs=1e-10, tol_gap_rel=1e-10, tol_feas=1e-10
    )


@pytest.mark.thin(times=1)
@pytest.mark.parametrize("gamma", [0.5, 50.0])
@pytest.mark.parametrize("alpha", [1e-6, 1e-3, 1e-1])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_constrained_minimum_is_that_of_a_conic_solver(gamma, alpha, weighted):
    Z, y = crossing_problem()
    T = QuantileOutput(LEVELS, gamma).factor(3)
    counts = np.random.default_rng(0).integers(0, 3, len(y)).astype(float)
    weights = counts / counts.mean() if weighted else np.ones(len(y))
    known = Z, y, LEVELS, T, alpha
    given = {"sample_weight": weights} if weighted else {}
    s = solve_joint_pinball(*known, non_crossing=True, tol=1e-7, **given)
    best = constrained_reference(Z, y, T, alpha, weights)
    value = objective(Z, y, T, alpha, s.coef, s.intercept, weights)
    assert s.converged
    assert s.objective == pytest.approx(value, rel=1e-12)
    assert abs(value - best) <= 2e-7 * best + 1e-9
    fitted = (Z @ s.coef @ T + s.intercept)[weights > 0]
    assert np.diff(fitted, axis=1).min() >= -1e-12
    free = solve_joint_pinball(*known, tol=1e-7, **given)
    if alpha < 1e-1 and gamma > 1:  # the constraints hold back some rows
        fitted = (Z @ free.coef @ T + free.intercept)[weights > 0]
        assert np.diff(fitted, axis=1).min() < -1e-2
        assert s.objective > free.objective * (1 + 1e-5)


def test_multipliers_prove_the_gap_of_the_constrained_problem():
    Z, y = crossing_problem()
    T, alpha, n = QuantileOutput(LEVELS, 50.0).factor(3), 1e-3, len(y)
    s = solve_joint_pinball(Z, y, LEVELS, T, alpha, non_crossing=True)
    levels, a, multipliers = np.array(LEVELS), s.dual[:, :3], -s.dual[:, 3:]
    assert (a >= levels - 1).all() and (a <= levels).all()
    assert multipliers.min() >= 0 and multipliers.max() > 0
    # f_(j+1) gains what f_j loses
    force = a + np.pad(multipliers, ((0, 0), (1, 0)))
    force = force - np.pad(multipliers, ((0, 0), (0, 1)))
    np.testing.assert_allclose(force.sum(axis=0), 0.0, atol=1e-10)
    pulled = Z.T @ force @ T.T
    dual = (a * y[:, None]).sum() / n - (pulled**2).sum() / (2 * alpha * n**2)
    assert s.objective - dual == pytest.approx(s.gap, abs=1e-10)
    assert 0 <= s.gap <= 1e-6 * s.objective


def test_constraints_that_hold_anyway_change_nothing():
    Z, y = problem()
    known = Z, y, LEVELS, FACTORS["full"], 1e-1
    free = solve_joint_pinball(*known, tol=1e-8)
    fitted = Z @ free.coef @ FACTORS["full"] + free.intercept
    assert np.diff(fitted, axis=1).min() > 0
    s = solve_joint_pinball(*known, tol=1e-8, non_crossing=True)
    assert s.objective == pytest.approx(free.objective, rel=2e-8)


def test_constraints_on_many_rows_start_from_samples():
    Z, y = problem(4000, 4)
    T = QuantileOutput(LEVELS, 50.0).factor(3)
    s = solve_joint_pinball(Z, y, LEVELS, T, 1e-5, non_crossing=True)
    assert s.converged
    assert np.diff(Z @ s.coef @ T + s.intercept, axis=1).min() >= -1e-12


def test_constraints_need_an_intercept():
    Z, y = problem()
    with pytest.raises(ValueError, match="`non_crossing` needs an intercept"):
        solve_joint_pinball(
            Z, y, LEVELS, np.eye(3), 1.0, fit_intercept=False, non_crossing=True
        )


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("ordered", [False, True])
def test_a_direction_from_few_entries_is_that_of_the_coefficients(intercept, ordered):
    Z, y = problem(40, 15)
    rng = np.random.default_rng(4)
    weights = rng.uniform(0.0, 2.0, 40)
    weights[3] = 0.0
    known = joint_problem(Z, y, FACTORS["full"], 1e-3, intercept, weights, ordered)
    inside = rng.random((known.mix.shape[1], 40)) < 0.15
    grams = TermGrams(known)
    grams.move(known, None, inside)
    rho = rng.normal(size=15 * 3 + 3 * intercept)
    expected = grams.direction(rho, 0.8)
    found = direction_of_entries(known, inside, rho, 0.8, grams.pivot)
    np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("non_crossing", [False, True])
def test_both_kinds_of_directions_lead_to_one_minimum(monkeypatch, non_crossing):
    rng = np.random.default_rng(2)
    Z = rng.normal(size=(120, 60)) * 0.9 ** np.arange(60)
    y = Z[:, 0] + rng.normal(size=120)
    known = Z, y, LEVELS, FACTORS["full"], 1e-3
    options = {"tol": 1e-8, "non_crossing": non_crossing}
    found = []
    for work in (np.inf, 0.0):
        monkeypatch.setattr(directions, "_LESS_WORK", work)
        found.append(solve_joint_pinball(*known, **options))
    assert found[0].converged and found[1].converged
    assert found[0].objective == pytest.approx(found[1].objective, rel=2e-8)


@pytest.mark.thin(times=1)
@pytest.mark.parametrize("T", FACTORS.values(), ids=FACTORS)
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_a_start_by_splitting_is_near_the_minimum(monkeypatch, T, intercept, weighted):
    monkeypatch.setattr(starts, "_LARGE", 0.0)
    Z, y = problem(n=200)
    rng = np.random.default_rng(1)
    weights = rng.integers(0, 3, 200) * 1.0 if weighted else np.ones(200)
    known = joint_problem(Z, y, T, 1e-3, intercept, weights if weighted else None)
    start = splitting_start(known)
    best = reference(Z, y, T, 1e-3, intercept, weights)
    value = objective(Z, y, T, 1e-3, start.coef, start.intercept, weights)
    assert best <= value <= 1.01 * best
    found = known.certify(
        start.coef, start.intercept, known.residual(start.coef, start.intercept),
        start.dual.T,
    )  # fmt: skip
    assert value - best <= found.gap <= 0.05 * best


@pytest.mark.parametrize("seed", range(3))
def test_a_start_by_splitting_needs_no_newton_step(monkeypatch, seed):
    monkeypatch.setattr(starts, "_LARGE", 0.0)
    rng = np.random.default_rng(seed)
    Z = rng.normal(size=(400, 60)) * 0.93 ** np.arange(60)
    y = Z[:, 0] + (1 + np.abs(Z[:, 1])) * rng.normal(size=400)
    known = joint_problem(Z, y, FACTORS["full"], 1e-3)
    start = splitting_start(known)
    point = start.coef, start.intercept
    found = known.certify(*point, known.residual(*point), start.dual.T)
    assert found.gap < 2.2e-4 * found.objective  # without over-relaxation 4e-4


@pytest.mark.parametrize("alpha", [1e-12, 1e-6, 1.0])
def test_a_start_by_splitting_is_stable_in_single_precision(monkeypatch, alpha):
    monkeypatch.setattr(starts, "_LARGE", 0.0)
    monkeypatch.setattr(starts, "_SMALL", 0)
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(300, 40)) * 0.5 ** np.arange(40)  # eigenvalues below rounding
    y, T = np.sin(Z[:, 0]) + 0.1 * rng.normal(size=300), FACTORS["full"]
    known = joint_problem(Z, y, T, alpha)
    start = splitting_start(known)
    value = objective(Z, y, T, alpha, start.coef, start.intercept)
    best = solve_joint_pinball(Z, y, LEVELS, T, alpha, state=cold_start(known))
    assert best.objective <= value <= 1.02 * best.objective


@pytest.mark.parametrize("non_crossing", [False, True])
@pytest.mark.parametrize("T", FACTORS.values(), ids=FACTORS)
def test_both_starts_lead_to_one_minimum(monkeypatch, T, non_crossing):
    Z, y = problem(n=150, r=20)
    y[0] = 1e4
    options = {"tol": 1e-8, "non_crossing": non_crossing}
    found = []
    for large in (np.inf, 0.0):
        monkeypatch.setattr(starts, "_LARGE", large)
        found.append(solve_joint_pinball(Z, y, LEVELS, T, 1e-4, **options))
    cold, split = found
    assert cold.converged and split.converged
    assert split.objective == pytest.approx(cold.objective, rel=2e-8)
