import warnings
from unittest import mock

import cvxpy as cp
import numpy as np
import pytest

from nbsketch import SketchedKernelRegressor
from nbsketch._expansion import projection
from nbsketch.kernels import GaussianKernel
from nbsketch.losses import (
    EpsilonInsensitiveLoss,
    HuberLoss,
    SquaredEpsilonInsensitiveLoss,
    SquareLoss,
)
from nbsketch.outputs import GraphOutput
from nbsketch.solvers.design import ArrayDesign, Design
from nbsketch.solvers.newton import solve_scalar
from nbsketch.solvers.radial import RadialProblem, _resolvent, solve_radial
from nbsketch.solvers.row_loss import row_loss

LOSSES = {
    "square": SquareLoss(),
    "huber": HuberLoss(kappa=0.8),
    "eps": EpsilonInsensitiveLoss(epsilon=0.4),
    "norm": EpsilonInsensitiveLoss(epsilon=0.0),
    "squared eps": SquaredEpsilonInsensitiveLoss(epsilon=0.4),
}
PATH = np.diag([1.0, 1.0], 1) + np.diag([1.0, 1.0], -1)
FACTORS = {
    "identity": np.eye(3),
    "full": GraphOutput(PATH, mu=0.6).factor(3),
    "singular": GraphOutput(PATH, mu=1.0).factor(3),
}
EACH_LOSS = pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)


class Blocks(Design):
    """The same features in several blocks, as if streamed."""

    def __init__(self, Z, size):
        self.Z, self.size, self.shape, self.dtype = Z, size, Z.shape, Z.dtype

    def blocks(self):
        for start in range(0, len(self.Z), self.size):
            stop = min(start + self.size, len(self.Z))
            yield start, stop, self.Z[start:stop].copy()


def problem(n=70, r=6, d=3, seed=0):
    rng = np.random.default_rng(seed)
    Z = rng.normal(size=(n, r)) * 0.6 ** np.arange(r)
    noise = 0.4 * rng.normal(size=(n, d)) * rng.lognormal(size=(n, 1))
    return Z, Z @ rng.normal(size=(r, d)) + noise + np.arange(1.0, d + 1)


def objective(Z, Y, loss, T, alpha, W, b, weights=None):
    weights = np.ones(len(Y)) if weights is None else weights
    losses = loss.norm_value(Y - Z @ W @ T - b)
    return weights @ losses / len(Y) + alpha / 2 * (W**2).sum()


def phi(loss, size):
    """The loss of a norm as a convex, nondecreasing expression."""
    match loss:
        case SquareLoss():
            return cp.square(size) / 2
        case HuberLoss():
            return cp.huber(size, loss.kappa) / 2
        case EpsilonInsensitiveLoss():
            return cp.pos(size - loss.epsilon)
        case SquaredEpsilonInsensitiveLoss():
            return cp.square(cp.pos(size - loss.epsilon)) / 2


def reference(Z, Y, loss, T, alpha, intercept, weights=None):
    """The minimum, from a conic solver on the textbook problem."""
    n, d = Y.shape
    W, b, size = cp.Variable((Z.shape[1], len(T))), cp.Variable(d), cp.Variable(n)
    res = Y - Z @ W @ T - cp.reshape(b, (1, d), order="C")
    weights = np.ones(n) if weights is None else weights
    value = weights @ phi(loss, size) / n + alpha / 2 * cp.sum_squares(W)
    constraints = [cp.norm(res, axis=1) <= size] + ([] if intercept else [b == 0])
    with warnings.catch_warnings():
        # Said where rounding stops it short of these tolerances, on some machines.
        warnings.filterwarnings("ignore", "Solution may be inaccurate")
        return cp.Problem(cp.Minimize(value), constraints).solve(
            solver=cp.CLARABEL, tol_gap_abs=1e-9, tol_gap_rel=1e-9, tol_feas=1e-9
        )


def check(solution, Z, Y, loss, T, alpha, best, weights=None):
    """The objective is what it claims, optimal, and no further off than certified."""
    W, b = solution.coef, solution.intercept
    value = objective(Z, Y, loss, T, alpha, W, b, weights)
    assert solution.converged
    assert solution.objective == pytest.approx(value, rel=1e-10, abs=1e-12)
    assert abs(value - best) <= 1e-6 * best + 1e-9
    assert value - best <= solution.gap + 1e-7 * best


@pytest.mark.thin
@EACH_LOSS
@pytest.mark.parametrize("T", FACTORS.values(), ids=FACTORS)
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("alpha", [1e-8, 1e-4, 1.0])
def test_against_a_conic_solver(loss, T, intercept, alpha):
    Z, Y = problem()
    best = reference(Z, Y, loss, T, alpha, intercept)
    solution = solve_radial(Z, Y, loss, T, alpha, fit_intercept=intercept)
    check(solution, Z, Y, loss, T, alpha, best)
    assert intercept or not solution.intercept.any()


@pytest.mark.parametrize("intercept", [False, True])
def test_square_loss_has_a_closed_form(intercept):
    Z, Y = problem()
    n, alpha, T = len(Y), 1e-3, FACTORS["full"]
    s = solve_radial(Z, Y, "square", T, alpha, fit_intercept=intercept, tol=1e-13)
    mean, y_mean = (Z.mean(axis=0), Y.mean(axis=0)) if intercept else (0.0, 0.0)
    X = np.kron(T.T, Z - mean)  # of all outputs at once
    normal = X.T @ X / n + alpha * np.eye(X.shape[1])
    W = np.linalg.solve(normal, X.T @ (Y - y_mean).T.ravel() / n)
    np.testing.assert_allclose(s.coef.T.ravel(), W, rtol=1e-6, atol=1e-8)


def test_steps_take_few_products_whatever_the_output_matrix(rng, monkeypatch):
    Z = rng.normal(size=(80, 12)) * np.logspace(0, -2, 12)
    Y = rng.normal(size=(80, 3))
    product = mock.Mock(side_effect=ArrayDesign.mv)
    monkeypatch.setattr(ArrayDesign, "mv", lambda *args: product(*args))
    factor = np.diag([1.0, 10.0, 0.1])
    solve_radial(Z, Y, HuberLoss(100.0), factor, 1e-2, tol=1e-8)
    assert product.call_count <= 4  # 254 without the factor in the preconditioner


@EACH_LOSS
@pytest.mark.parametrize("intercept", [False, True])
def test_the_dual_point_proves_the_gap(loss, intercept):
    Z, Y = problem()
    T, alpha, n = FACTORS["full"], 1e-3, len(Y)
    s = solve_radial(Z, Y, loss, T, alpha, fit_intercept=intercept)
    a = s.dual
    if intercept:
        np.testing.assert_allclose(a.sum(axis=0), 0.0, atol=1e-12)
    size = np.linalg.norm(a, axis=1)
    assert (size <= loss.elq.hi * (1 + 1e-14)).all()
    conjugate = loss.elq.conjugate(np.minimum(size, loss.elq.hi))
    pulled = Z.T @ a @ T.T
    dual = ((a * Y).sum() - conjugate.sum()) / n
    dual -= (pulled**2).sum() / (2 * alpha * n**2)
    assert s.objective - dual == pytest.approx(s.gap, abs=1e-12)


@EACH_LOSS
def test_the_gap_bounds_the_distance_on_the_way(loss):
    Z, Y = problem()
    T, reports = FACTORS["full"], []
    best = reference(Z, Y, loss, T, 1e-3, True)
    solve_radial(Z, Y, loss, T, 1e-3, callback=lambda *report: reports.append(report))
    assert len(reports) > 1
    assert all(value - best <= gap + 1e-8 * best for _, value, gap, _ in reports)


@EACH_LOSS
def test_weights_are_repetitions(loss):
    Z, Y = problem()
    counts = np.random.default_rng(1).integers(0, 4, len(Y))
    T, rows = FACTORS["full"], np.repeat(np.arange(len(Y)), counts)
    weights = counts / counts.mean()
    s = solve_radial(Z, Y, loss, T, 1e-4, sample_weight=weights)
    best = reference(Z, Y, loss, T, 1e-4, True, weights)
    check(s, Z, Y, loss, T, 1e-4, best, weights)
    again = solve_radial(Z[rows], Y[rows], loss, T, 1e-4)
    assert again.objective == pytest.approx(s.objective, rel=2e-6)


HARD = {
    "fewer rows than features": lambda Z, Y: (Z[:4], Y[:4]),
    "duplicates": lambda Z, Y: (np.tile(Z[:20], (3, 2)), np.tile(Y[:20], (3, 1))),
    "outliers": lambda Z, Y: (Z, np.where(np.arange(len(Y))[:, None] < 3, 1e6, Y)),
    "ties": lambda Z, Y: (Z, np.round(Y)),
    "tiny features": lambda Z, Y: (1e-6 * Z, Y),
}


@pytest.mark.thin(times=1)
@pytest.mark.parametrize("change", HARD.values(), ids=HARD)
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("loss", [LOSSES["huber"], LOSSES["eps"]], ids=["huber", "eps"])
def test_hard_cases(loss, change, intercept):
    Z, Y = change(*problem())
    T = FACTORS["full"]
    best = reference(Z, Y, loss, T, 1e-4, intercept)
    s = solve_radial(Z, Y, loss, T, 1e-4, fit_intercept=intercept, tol=1e-7)
    assert s.converged
    assert s.objective - best <= 1e-6 * best + 1e-9


@EACH_LOSS
def test_scales_of_the_target(loss):
    Z, Y = problem()
    T = FACTORS["full"]
    for scale, offset in ((1e4, 0.0), (1e-4, 0.0), (1.0, 1e5)):
        s = solve_radial(Z, scale * Y + offset, loss, T, 1e-4)
        assert s.converged, (scale, offset)


@EACH_LOSS
def test_constant_target(loss):
    Z, Y = problem()[0], np.tile([1.0, -2.0, 3.0], (70, 1))
    s = solve_radial(Z, Y, loss, FACTORS["full"], 1e-3)
    assert s.converged and s.objective == pytest.approx(0.0, abs=1e-12)


def test_intercept_without_curvature_does_not_overflow():
    rng = np.random.default_rng(3)
    X = rng.normal(size=(100, 3))
    Y = np.column_stack([np.sin(X[:, 0]) + 0.1 * rng.normal(size=100), np.ones(100)])
    model = SketchedKernelRegressor(
        loss="epsilon-insensitive", bandwidth=1.0, sketch="identity", random_state=0
    )
    found = model.fit(X, Y).predict(X)  # without warnings
    assert np.ptp(found[:, 0]) > 1 and np.abs(found[:, 1] - 1).max() <= 0.2


def test_tiny_penalty_with_fewer_rows_than_features():
    Z, Y = problem(10, 20)
    s = solve_radial(Z, Y, LOSSES["eps"], FACTORS["full"], 1e-8)
    assert s.gap <= 1e-6


def test_tube_wider_than_the_data():
    Z, Y = problem()
    s = solve_radial(Z, Y, EpsilonInsensitiveLoss(1e3), FACTORS["full"], 1e-3)
    assert s.converged and s.objective == 0.0


@EACH_LOSS
def test_single_precision_and_streamed_features(loss):
    Z, Y = problem(500, 10)
    T = FACTORS["full"]
    s = solve_radial(ArrayDesign(Z), Y, loss, T, 1e-4)
    streamed = solve_radial(Blocks(Z, 77), Y, loss, T, 1e-4)
    assert streamed.objective == pytest.approx(s.objective, rel=2e-6)
    single = ArrayDesign(Z.astype(np.float32))
    s = solve_radial(single, Y, loss, T, 1e-4)
    same = single.Z.astype(float)  # the problem solved is that of the stored features
    value = objective(same, Y, loss, T, 1e-4, s.coef, s.intercept)
    assert s.converged and s.objective == pytest.approx(value, rel=1e-10)


@EACH_LOSS
def test_any_factor_of_the_output_matrix_gives_the_same_predictions(loss):
    Z, Y = problem()
    T = FACTORS["full"]
    turn = np.linalg.qr(np.random.default_rng(0).normal(size=(4, 3)))[0]
    one = solve_radial(Z, Y, loss, T, 1e-2, tol=1e-10)
    two = solve_radial(Z, Y, loss, turn @ T, 1e-2, tol=1e-10)
    assert two.coef.shape == (6, 4)
    np.testing.assert_allclose(one.coef @ T, two.coef @ turn @ T, atol=2e-4)
    assert one.objective == pytest.approx(two.objective, rel=1e-9)


@EACH_LOSS
def test_one_output_is_the_scalar_problem(loss):
    Z, Y = problem(300, d=1)
    vector = solve_radial(Z, Y, loss, np.eye(1), 1e-3, tol=1e-9)
    scalar = solve_scalar(Z, Y[:, 0], loss, 1e-3, tol=1e-9)
    assert vector.objective == pytest.approx(scalar.objective, rel=1e-8)


@EACH_LOSS
def test_nested_samples_and_warm_starts(loss):
    Z, Y = problem(3000, 5)
    T = FACTORS["full"]
    first = solve_radial(Z, Y, loss, T, 1e-4)
    assert first.converged
    again = solve_radial(Z, Y, loss, T, 1e-4, state=first.state)
    assert again.n_iter == 0
    assert again.objective == pytest.approx(first.objective, rel=1e-10)
    near = solve_radial(Z, Y, loss, T, 2e-4, state=first.state)
    cold = solve_radial(Z, Y, loss, T, 2e-4)
    assert near.objective == pytest.approx(cold.objective, rel=2e-6)


def test_an_exhausted_budget_says_so():
    Z, Y = problem()
    loss, T = LOSSES["eps"], FACTORS["full"]
    s = solve_radial(Z, Y, loss, T, 1e-6, max_iter=2)
    assert not s.converged and s.n_iter <= 2
    assert s.objective - reference(Z, Y, loss, T, 1e-6, True) <= s.gap


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"Y": np.zeros((3, 3))}, r"`Y` must have shape \(70, 3\)"),
        ({"Y": np.full((70, 3), np.inf)}, "`Y` must be finite"),
        ({"T": np.eye(2)}, r"`Y` must have shape \(70, 2\)"),
        ({"loss": "pinball"}, "`loss` must be one of .*'huber'"),
        ({"loss": "logistic"}, "`loss` must be one of .*'huber'"),
        ({"alpha": -1.0}, "`alpha` must be in"),
        ({"tol": 0.0}, "`tol` must be in"),
        (
            {"sample_weight": np.zeros(70)},
            "`sample_weight` must be finite and nonnegative",
        ),
    ],
)
def test_wrong_arguments(change, message):
    Z, Y = problem()
    arguments = {"Y": Y, "loss": "huber", "T": np.eye(3), "alpha": 1.0} | change
    with pytest.raises(ValueError, match=message):
        solve_radial(Z, **arguments)


def test_a_state_of_another_problem_is_an_error():
    Z, Y = problem()
    state = solve_radial(Z, Y, "huber", np.eye(3), 1.0).state
    with pytest.raises(ValueError, match="`state` must hold"):
        solve_radial(Z[:, :2], Y, "huber", np.eye(3), 1.0, state=state)


def test_the_gradient_of_a_balanced_dual_point_is_its_own():
    (Z, Y), rng = problem(), np.random.default_rng(1)
    weights, loss = rng.uniform(0.2, 3.0, size=len(Y)), LOSSES["huber"]
    y = np.ascontiguousarray(Y.T)
    p = RadialProblem.of(
        ArrayDesign(Z), 0.1, weights, True,
        y=y, loss=loss, T=np.eye(3), losses=row_loss(loss, y),
        numbers=loss.linear_quadratic(),
    )  # fmt: skip
    a = p.bounded(rng.normal(size=y.shape))
    balanced, gradient = p._balanced(a, Z.T @ (weights * a).T, None)
    np.testing.assert_allclose(balanced @ weights, 0, atol=1e-12)
    np.testing.assert_allclose(gradient, Z.T @ (weights * balanced).T, atol=1e-12)


def test_large_residuals_do_not_overflow():
    Z, Y = problem()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        solution = solve_radial(Z, 1e8 * Y, LOSSES["norm"], np.eye(3), 1e-10)
    relative = solve_radial(Z, Y, LOSSES["norm"], np.eye(3), 1e-2)
    np.testing.assert_allclose(solution.coef / 1e8, relative.coef, rtol=1e-3)


@pytest.mark.parametrize("d", [3, 20])  # fewer and more scales than are factorized
@pytest.mark.parametrize("rank", [7, 4])
def test_a_resolvent_is_the_inverse_for_each_scale(d, rank):
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(rank, 7))
    gram = Z.T @ Z
    scales = np.append(np.linspace(0, 2, d - 1), 2.0)
    W = rng.normal(size=(7, d))
    expected = [
        np.linalg.solve(scale * gram + 0.1 * np.eye(7), w)
        for scale, w in zip(scales, W.T, strict=True)
    ]
    np.testing.assert_allclose(_resolvent(gram, scales, 0.1)(W).T, expected)


def test_a_resolvent_of_an_indefinite_matrix_raises_its_eigenvalues():
    solved = _resolvent(np.diag([-1e-9, 1.0]), np.ones(2), 1e-12)(np.eye(2))
    np.testing.assert_allclose(solved, np.diag([1e12, 1 / (1 + 1e-12)]))


@pytest.mark.parametrize("d", [1, 4, 10])
def test_the_penalty_of_an_insensitive_loss_can_be_solved(d):
    # Within the tube weaker penalties hardly change held-out errors, without an end.
    rng = np.random.default_rng(5)
    X = rng.normal(size=(150, 3))
    columns = [np.sin((1 + 0.2 * j) * X[:, 0]) + X[:, j % 3] for j in range(d)]
    Y = np.stack(columns, axis=1) + 0.1 * rng.normal(size=(150, d))
    model = SketchedKernelRegressor(
        loss="squared_epsilon_insensitive", max_iter=100, random_state=0
    )
    assert model.fit(X, Y).dual_gap_ < 1e-5


def test_a_path_of_penalties_takes_few_steps(rng):
    """The smoothing of kinks is wide at first and decreases slowly."""
    X = rng.normal(size=(200, 4))
    f = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2]
    Y = np.column_stack([f, f**2, f - X[:, 0] / 2]) + 0.1 * rng.normal(size=(200, 3))
    K = GaussianKernel(2.5)(X)
    Z = K @ projection(K)
    state = None
    steps = 0
    for alpha in np.logspace(-1, -7, 13):
        arguments = EpsilonInsensitiveLoss(0.1), np.eye(3), alpha
        solution = solve_radial(Z, Y, *arguments, tol=1e-2, state=state)
        assert solution.converged
        state = solution.state._replace(sigma=None)
        steps += solution.n_iter
    assert steps < 150
