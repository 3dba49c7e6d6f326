import doctest
from itertools import cycle
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.optimize
from numpy.testing import assert_allclose

import nbsketch.solvers.design
import nbsketch.solvers.newton
from nbsketch import losses
from nbsketch._jit import losses as kernels
from nbsketch.solvers._certified.search import CertifiedSearch, convex_step
from nbsketch.solvers._newton import directions
from nbsketch.solvers._newton.directions import TermGrams, are_few, direction_of_entries
from nbsketch.solvers._newton.problem import ONE, NewtonProblem
from nbsketch.solvers._newton.search import ActiveRows
from nbsketch.solvers.design import ArrayDesign, Design
from nbsketch.solvers.newton import solve_scalar
from nbsketch.solvers.row_loss import RowLoss, balance, row_loss
from nbsketch.solvers.solution import State

ALL = [
    losses.SquareLoss(),
    losses.HuberLoss(kappa=0.5),
    losses.EpsilonInsensitiveLoss(epsilon=0.3),
    losses.SquaredEpsilonInsensitiveLoss(epsilon=0.3),
    losses.PinballLoss(quantile=0.8),
    losses.HingeLoss(),
    losses.SquaredHingeLoss(),
    losses.LogisticLoss(),
]
SMOOTH = [loss for loss in ALL if loss.is_smooth]
REGRESSION = [loss for loss in ALL if not loss.is_classification]
every_loss = pytest.mark.parametrize("loss", ALL, ids=repr)
both_intercepts = pytest.mark.parametrize("fit_intercept", [False, True])


def newton_problem(design, y, loss, alpha, weights, intercept):
    parts = {"y": y, "loss": loss, "losses": row_loss(loss, y[None]), "T": ONE}
    return NewtonProblem.of(design, alpha, weights, intercept, **parts)


def make(n=120, r=8, loss=None, seed=0):
    rng = np.random.default_rng(seed)
    Z = rng.normal(size=(n, r)) * 0.7 ** np.arange(r)
    y = Z @ rng.normal(size=r) + 0.5 * rng.standard_t(3, size=n) + 0.4
    if loss is not None and loss.is_classification:
        y = np.where(y > 0, 1.0, -1.0)
    return Z, y


def objective(Z, y, loss, alpha, w, b=0.0, s=1.0):
    f = np.asarray(Z, dtype=float) @ w + b
    x = y * f if loss.is_classification else y - f
    return np.mean(s * loss.value(x)) + alpha / 2 * (w @ w)


def dual_objective(Z, y, loss, alpha, a, s=1.0):
    """The dual function, written out; minus infinity outside its domain."""
    n, z = len(y), np.asarray(Z, dtype=float).T @ (s * a)
    turned = y * a if loss.is_classification else a
    if loss.elq is None:
        entropy = -scipy.special.entr(turned) - scipy.special.entr(1 - turned)
        value = -np.mean(s * entropy)
    else:
        value = -np.mean(s * loss.elq.conjugate(turned))
        value += np.mean(s * turned) if loss.is_classification else np.mean(s * a * y)
    return value - z @ z / (2 * alpha * n**2)


def optimum(Z, y, loss, alpha, fit_intercept, s=1.0):
    """The minimum by an interior-point solver of conic programs."""
    cvxpy = pytest.importorskip("cvxpy")
    w, b = cvxpy.Variable(Z.shape[1]), cvxpy.Variable()
    f = Z @ w + b
    r, m = y - f, cvxpy.multiply(y, f)
    match loss:
        case losses.SquareLoss():
            terms = cvxpy.square(r) / 2
        case losses.HuberLoss(kappa=k):
            terms = cvxpy.huber(r, k) / 2
        case losses.EpsilonInsensitiveLoss(epsilon=e):
            terms = cvxpy.pos(cvxpy.abs(r) - e)
        case losses.SquaredEpsilonInsensitiveLoss(epsilon=e):
            terms = cvxpy.square(cvxpy.pos(cvxpy.abs(r) - e)) / 2
        case losses.PinballLoss(quantile=t):
            terms = cvxpy.maximum(t * r, (t - 1) * r)
        case losses.HingeLoss():
            terms = cvxpy.pos(1 - m)
        case losses.SquaredHingeLoss():
            terms = cvxpy.square(cvxpy.pos(1 - m)) / 2
        case losses.LogisticLoss():
            terms = cvxpy.logistic(-m)
    total = cvxpy.sum(cvxpy.multiply(np.broadcast_to(s, len(y)), terms)) / len(y)
    goal = cvxpy.Minimize(total + alpha / 2 * cvxpy.sum_squares(w))
    problem = cvxpy.Problem(goal, [] if fit_intercept else [b == 0])
    problem.solve(solver="CLARABEL")
    return objective(Z, y, loss, alpha, w.value, float(b.value), s)


def check_certificate(solution, Z, y, loss, alpha, fit_intercept, s=1.0):
    """Weak duality, recomputed from its definition."""
    primal = objective(Z, y, loss, alpha, solution.coef, solution.intercept, s)
    dual = dual_objective(Z, y, loss, alpha, solution.dual, s)
    assert_allclose(solution.objective, primal, rtol=1e-12, atol=1e-15)
    size = np.abs(primal) + np.mean(s * np.abs(solution.dual * y))
    # A difference of margins and 1 is known to rounding errors of 1.
    atol = 1e-12 * size + 1e-16
    assert_allclose(primal - dual, solution.gap, atol=atol, rtol=1e-6)
    if fit_intercept:
        balance = np.sum(s * solution.dual)
        assert abs(balance) <= 1e-13 * np.sum(s * np.abs(solution.dual)) + 1e-300


@pytest.mark.parametrize(
    "module", [nbsketch.solvers.newton, nbsketch.solvers.design, losses]
)
def test_examples_run(module):
    results = doctest.testmod(module)
    assert results.attempted and not results.failed


@pytest.mark.thin(times=1)
@every_loss
@both_intercepts
@pytest.mark.parametrize("alpha", [1e-8, 1e-4, 1.0])
def test_reaches_the_minimum_and_certifies_it(loss, fit_intercept, alpha):
    Z, y = make(loss=loss)
    best = optimum(Z, y, loss, alpha, fit_intercept)
    for tol in (1e-2, 1e-8):
        solution = solve_scalar(Z, y, loss, alpha, fit_intercept=fit_intercept, tol=tol)
        assert solution.converged
        assert solution.relative_gap <= tol
        assert solution.gap >= solution.objective - best - 1e-7 * best
        check_certificate(solution, Z, y, loss, alpha, fit_intercept)
    assert_allclose(solution.objective, best, rtol=1e-6)


@every_loss
def test_weights_against_the_optimum(loss):
    Z, y = make(n=70, loss=loss)
    s = np.random.default_rng(3).exponential(size=len(y))
    s[::7] = 0.0
    s /= s.mean()
    solution = solve_scalar(Z, y, loss, 1e-3, sample_weight=s, tol=1e-9)
    best = optimum(Z, y, loss, 1e-3, True, s)
    assert_allclose(solution.objective, best, rtol=1e-6)
    check_certificate(solution, Z, y, loss, 1e-3, True, s)


@every_loss
@both_intercepts
def test_weights_are_repetitions_and_zero_weights_absences(loss, fit_intercept):
    Z, y = make(n=60, loss=loss)
    counts = np.random.default_rng(1).integers(0, 4, size=len(y))
    repeated = np.repeat(np.arange(len(y)), counts)
    options = {"fit_intercept": fit_intercept, "tol": 1e-11}
    weights = counts / counts.mean()
    if not loss.is_classification:
        y[counts == 0] = 1e9
    one = solve_scalar(Z, y, loss, 1e-2, sample_weight=weights, **options)
    two = solve_scalar(Z[repeated], y[repeated], loss, 1e-2, **options)
    assert_allclose(one.objective, two.objective, rtol=1e-9)
    assert_allclose(one.coef, two.coef, atol=1e-3)


@pytest.mark.parametrize("loss", SMOOTH, ids=repr)
def test_larger_smooth_problems_against_lbfgs(loss):
    Z, y = make(n=3000, r=10, loss=loss)  # enough rows for nested samples
    sign = -1.0 if not loss.is_classification else y

    def value_and_gradient(v):
        f = Z @ v[:-1] + v[-1]
        slope = sign * loss.derivative(y * f if loss.is_classification else y - f)
        gradient = np.append(Z.T @ slope / len(y) + 1e-3 * v[:-1], slope.mean())
        return objective(Z, y, loss, 1e-3, v[:-1], v[-1]), gradient

    solver = scipy.optimize.minimize(
        value_and_gradient, np.zeros(11), jac=True, options={"gtol": 1e-9}
    )
    solution = solve_scalar(Z, y, loss, 1e-3, tol=1e-10)
    assert solution.n_iter <= 12
    assert_allclose(solution.objective, solver.fun, rtol=1e-9)
    assert_allclose(solution.coef, solver.x[:-1], atol=1e-4)


@every_loss
def test_the_start_does_not_matter(loss):
    Z, y = make(n=2000, r=5, loss=loss)
    start = State(np.zeros(5), 0.0)
    nested = solve_scalar(Z, y, loss, 1e-4, tol=1e-9)
    cold = solve_scalar(Z, y, loss, 1e-4, tol=1e-9, state=start)
    assert nested.converged
    assert_allclose(nested.objective, cold.objective, rtol=3e-9)


@every_loss
@both_intercepts
def test_single_precision_features(loss, fit_intercept):
    Z, y = make(n=1500, r=12, loss=loss)
    Z = Z.astype(np.float32)
    options = {"fit_intercept": fit_intercept, "tol": 1e-9}
    single = solve_scalar(Z, y, loss, 1e-5, **options)
    double = solve_scalar(Z.astype(float), y, loss, 1e-5, **options)
    assert single.converged
    assert single.coef.dtype == np.float64
    assert_allclose(single.objective, double.objective, rtol=3e-9)
    check_certificate(single, Z, y, loss, 1e-5, fit_intercept)


class Streamed(Design):
    """A design that shows its rows in uneven pieces only."""

    def __init__(self, Z, cuts):
        self.parts, self.cuts = np.split(Z, cuts), [0, *cuts, len(Z)]
        self.shape, self.dtype = Z.shape, Z.dtype

    def blocks(self):
        yield from zip(self.cuts, self.cuts[1:], self.parts, strict=False)


@every_loss
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_design_in_blocks_is_the_same_design(loss, dtype):
    Z, y = make(n=900, r=6, loss=loss)
    Z = Z.astype(dtype)
    streamed = solve_scalar(Streamed(Z, [1, 300, 777]), y, loss, 1e-4, tol=1e-9)
    whole = solve_scalar(Z, y, loss, 1e-4, tol=1e-9)
    assert_allclose(streamed.objective, whole.objective, rtol=3e-9)
    check_certificate(streamed, Z, y, loss, 1e-4, True)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("cuts", [[], [5, 6, 701]])
def test_products_of_a_design(dtype, cuts):
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(1500, 7)).astype(dtype)
    exact, design = Z.astype(float), Streamed(Z, cuts) if cuts else ArrayDesign(Z)
    rows = np.flatnonzero(rng.random(1500) < 0.6)
    weights = rng.random(1500)
    for tail in ((), (1,), (2,), (3,), (11,)):
        W, A = rng.normal(size=(7, *tail)), rng.normal(size=(1500, *tail))
        assert_allclose(design.mv(W), exact @ W, rtol=1e-10, atol=1e-12)
        assert_allclose(design.rmv(A), exact.T @ A, rtol=1e-10, atol=1e-12)
        chosen = design.rmv(A[rows], rows)
        assert_allclose(chosen, exact[rows].T @ A[rows], rtol=1e-10, atol=1e-12)
    assert_allclose(design.gram(), exact.T @ exact, rtol=1e-10, atol=1e-10)
    weighted = exact[rows].T * weights[rows] @ exact[rows]
    assert_allclose(design.gram(rows, weights[rows]), weighted, atol=1e-10)
    assert_allclose(design.gram(rows, weights[rows], exact=False), weighted, atol=1e-2)
    gathered = design.gather(rows)
    assert gathered.Z.dtype == dtype
    assert_allclose(gathered.Z, Z[rows], rtol=0)


def hard_problems():
    Z, y = make(n=200, r=10)
    rng = np.random.default_rng(5)
    shifted = y.copy()
    shifted[:5] = 1e6
    lever = Z.copy()
    lever[:3] *= 1e5
    again = rng.integers(0, 20, size=200)
    return {
        "fewer rows than features": (Z[:6], y[:6], 1e-6),
        "one row": (Z[:1], y[:1], 1e-3),
        "duplicate columns": (np.hstack([Z, Z]), y, 1e-6),
        "a column of zeros": (np.hstack([Z, np.zeros((200, 1))]), y, 1e-6),
        "repeated rows": (Z[again], y[again], 1e-6),
        "ties": (Z, np.round(y), 1e-6),
        "constant target": (Z, np.full(200, 3.0), 1e-6),
        "zero target": (Z, np.zeros(200), 1e-6),
        "outliers": (Z, shifted, 1e-6),
        "leverage": (lever, y, 1e-6),
        "tiny alpha": (Z, y, 1e-12),
        "large alpha": (Z, y, 1e3),
        "badly scaled columns": (Z * 10.0 ** -np.arange(10), y, 1e-9),
        "large targets": (Z, 1e4 * y, 1e-6),
        "small targets": (Z, 1e-4 * y, 1e-6),
    }


@pytest.mark.thin
@pytest.mark.parametrize("case", hard_problems())
@pytest.mark.parametrize("loss", [*REGRESSION, losses.HingeLoss()], ids=repr)
@both_intercepts
def test_hard_problems(case, loss, fit_intercept):
    Z, y, alpha = hard_problems()[case]
    if loss.is_classification:
        y = np.where(y > np.median(y), 1.0, -1.0)
    solution = solve_scalar(Z, y, loss, alpha, fit_intercept=fit_intercept)
    assert solution.converged
    check_certificate(solution, Z, y, loss, alpha, fit_intercept)


NONSMOOTH = [
    losses.HingeLoss(),
    *(losses.PinballLoss(level) for level in (0.1, 0.5, 0.9)),
    *(losses.EpsilonInsensitiveLoss(epsilon) for epsilon in (0.0, 0.1, 1.0)),
]


def degenerate_targets(Z, loss):
    """Targets that leave many rows at one kink once the penalty rules."""
    n, rng = len(Z), np.random.default_rng(len(Z))
    if loss.is_classification:
        return {
            "balanced": np.where(np.arange(n) < n // 2, 1.0, -1.0),
            "random": np.where(rng.random(n) < 0.5, 1.0, -1.0),
            "unbalanced": np.where(rng.random(n) < 0.9, 1.0, -1.0),
            "separable": np.where(Z[:, 0] > 0, 1.0, -1.0),
            "separable, unbalanced": np.where(Z[:, 0] > 0.6, 1.0, -1.0),
        }
    f = 2 * Z[:, 0] + 0.2 * rng.normal(size=n)
    return {
        "random": rng.normal(size=n),
        "fitted": f,
        "integers": np.round(3 * f),
        "three values": np.round(f).clip(-1, 1),
        "constant": np.full(n, 3.0),
        "offset": 1e4 + f,
    }


@pytest.mark.thin(times=1)
@pytest.mark.parametrize("loss", NONSMOOTH, ids=repr)
@pytest.mark.parametrize("n", [30, 100, 300])
@both_intercepts
def test_strong_penalties(loss, n, fit_intercept):
    rng = np.random.default_rng(n)
    r = min(n // 2, 40)
    Z = rng.normal(size=(n, r)) * 0.8 ** np.arange(r) / 2
    weights = rng.integers(0, 4, size=n) * rng.random(n)
    each_weights = cycle([None, weights / weights.mean()])
    for name, y in degenerate_targets(Z, loss).items():
        s = next(each_weights)
        for alpha in 10.0 ** np.arange(4, -4, -1):
            solution = solve_scalar(
                Z, y, loss, alpha, sample_weight=s, fit_intercept=fit_intercept
            )
            case = name, s is not None, alpha
            assert solution.converged, case
            assert solution.n_iter <= 100, case
        w = 1.0 if s is None else s
        check_certificate(solution, Z, y, loss, alpha, fit_intercept, w)


@pytest.mark.thin(times=1)
@pytest.mark.parametrize("loss", NONSMOOTH, ids=repr)
@pytest.mark.parametrize("alpha", [1e3, 1.0])
def test_strong_penalties_against_the_optimum(loss, alpha):
    Z, _ = make(n=100, r=20)
    for y in list(degenerate_targets(Z, loss).values())[::2]:
        solution = solve_scalar(Z, y, loss, alpha, tol=1e-8)
        best = optimum(Z, y, loss, alpha, True)
        assert_allclose(solution.objective, best, rtol=1e-6, atol=1e-8)


def test_a_round_ends_where_the_rows_at_rest_no_longer_rest():
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(2000, 3))
    problem = newton_problem(ArrayDesign(Z), Z[:, 0], losses.PinballLoss(), 1, None, 1)
    res = problem.y[None].copy()
    whole = ActiveRows(problem, None, res, np.zeros((1, 2000)))
    whole.evaluate(0.1)
    few = whole.select(0.1, 0.3)
    assert 256 <= len(few.rows) < 1000  # rows near the kink, and guards
    few.res = few.res + 0.2
    assert not few.has_left
    few.res = few.res + 0.2
    assert few.has_left
    assert not whole.has_left


@pytest.mark.thin(times=1)
@pytest.mark.parametrize("offset", [0.0, 100.0])
@pytest.mark.parametrize("loss", NONSMOOTH, ids=repr)
@both_intercepts
def test_random_small_problems(loss, offset, fit_intercept):
    rng = np.random.default_rng(7)
    for _ in range(10):
        n, r = rng.integers(5, 200), rng.integers(1, 60)
        Z = offset + rng.normal(size=(n, r)) * 10.0 ** rng.integers(-2, 1)
        Z = Z[rng.integers(0, n, size=n)]
        y = np.round(2 * rng.standard_t(2, size=n))
        if loss.is_classification:
            y = np.where(y > rng.integers(-2, 3), 1.0, -1.0)
        s = rng.integers(0, 3, size=n) + 0.01
        alpha = 10.0 ** rng.uniform(-6, 4)
        options = {"sample_weight": s / s.mean(), "fit_intercept": fit_intercept}
        solution = solve_scalar(Z, y, loss, alpha, **options)
        assert solution.converged, (n, r, alpha)
        single = solve_scalar(Z.astype(np.float32), y, loss, alpha, **options)
        assert single.converged, (n, r, alpha)


@pytest.mark.parametrize("factor", [1e-8, 1e8])
def test_the_unit_of_objective_and_weights_does_not_matter(factor):
    Z, y = make(n=300)
    options = {"sample_weight": np.full(300, factor)}
    for alpha in (1e3, 1.0, 1e-3):
        one = solve_scalar(Z, y, "pinball", alpha)
        two = solve_scalar(Z, y, "pinball", factor * alpha, **options)
        assert two.converged
        assert two.n_iter == one.n_iter
        assert_allclose(two.objective, factor * one.objective, rtol=1e-9)


@pytest.mark.thin(times=1)
@pytest.mark.parametrize("n", [300, 20_000])
@pytest.mark.parametrize("scale", [1.0, 1e2, 1e4, 1e6])
@both_intercepts
def test_huber_loss_far_from_its_scale(n, scale, fit_intercept):
    Z, y = make(n=n, r=10)
    for alpha in (10.0, 1e-3, 1e-6):
        loss = losses.HuberLoss(kappa=0.01)
        solution = solve_scalar(Z, scale * y, loss, alpha, fit_intercept=fit_intercept)
        assert solution.converged
        assert solution.n_iter <= 50


def test_a_gap_of_rounding_is_relative_to_the_objective():
    """Where no typical losses are left to compare it with."""
    best = SimpleNamespace(coef=0, intercept=0, dual=0, gap=1e-9, relative_gap=np.inf)
    search = SimpleNamespace(best=best, tol=1e-6, floor=1e-8, steps=3)
    for best.objective, expected in (2.0, 5e-10), (0.0, 0.0):
        found = CertifiedSearch._solution(search, None)
        assert found.converged and found.relative_gap == expected
    search.floor = 1e-10
    assert not CertifiedSearch._solution(search, None).converged


def test_gram_matrices_follow_the_rows(rng):
    Z = rng.normal(size=(200, 4)).astype(np.float32)
    weights = rng.uniform(size=200)
    args = rng.normal(size=200), losses.HuberLoss(), 1e-3, weights, 1
    problem = newton_problem(ArrayDesign(Z), *args)
    X = np.hstack([Z.astype(float), np.ones((200, 1))])

    def check(inside, tolerance):
        expected = X[inside].T @ (weights[inside, None] * X[inside])
        found = gram.matrices[0]
        assert_allclose(np.triu(found), np.triu(expected), rtol=0, atol=tolerance)

    gram, order = TermGrams(problem), rng.permutation(200)
    for first, last in (0, 120), (10, 125), (5, 60), (0, 200):
        inside = np.isin(np.arange(200), order[first:last])
        gram.move(problem, None, inside[None])
        check(inside, 1e-4)
        if last == 200:
            gram.sharpen()
            gram.move(problem, None, inside[None])
            check(inside, 1e-12)
    rows = np.sort(order[:190])
    gram.restrict(rows)
    check(rows, 1e-11)
    gram.restrict(rows[:3])
    check(rows[:0], 0.0)  # begins again


def test_orthogonal_factors_steer_where_a_gram_matrix_cannot():
    Z, _ = make(n=5000, r=6)
    Z[:, :3] += 1e4
    Z[:, 5] = Z[:, 0]
    weights = np.random.default_rng(0).random(5000)
    problem = newton_problem(
        ArrayDesign(Z), Z[:, 1], losses.HuberLoss(), 1e-6, weights, 1
    )
    gram, every = TermGrams(problem), np.ones((1, 5000), dtype=bool)
    gram.move(problem, None, every)
    X = np.hstack([Z, np.ones((5000, 1))])
    rho = np.arange(7.0)
    with pytest.raises(np.linalg.LinAlgError):
        gram.direction(rho, 1.0)
    root = np.sqrt(weights)[:, None] * X
    tail = np.diag(np.append(np.full(6, 1e-3), 0.0))
    half = np.linalg.qr(np.vstack([root, tail]), mode="r")
    expected = -np.linalg.solve(half, np.linalg.solve(half.T, rho))
    found = gram.orthogonal_direction(problem, rho, 1.0)
    assert_allclose(found, expected, rtol=1e-5, atol=1e-9 * np.abs(expected).max())


def test_single_precision_survives_rows_of_huge_leverage():
    Z, y = make(n=1000, r=12)
    Z[:5] *= 1e6
    Z = Z.astype(np.float32)
    for loss in (losses.EpsilonInsensitiveLoss(), losses.HuberLoss()):
        solution = solve_scalar(Z, y, loss, 1e-6)
        assert solution.converged
        check_certificate(solution, Z, y, loss, 1e-6, True)


@pytest.mark.parametrize("loss", [losses.LogisticLoss(), losses.SquaredHingeLoss()])
@both_intercepts
def test_separable_classes(loss, fit_intercept):
    Z, _ = make(n=300)
    y = np.where(Z[:, 0] > 0, 1.0, -1.0)
    for alpha in (1e-3, 1e-8):
        solution = solve_scalar(Z, y, loss, alpha, fit_intercept=fit_intercept)
        assert solution.converged
        check_certificate(solution, Z, y, loss, alpha, fit_intercept)


@pytest.mark.parametrize("loss", [loss for loss in ALL if loss.is_classification])
def test_one_class_only(loss):
    Z, _ = make(n=50)
    solution = solve_scalar(Z, np.ones(50), loss, 1e-2)
    assert solution.objective < loss.value(0.0)
    assert_allclose(solution.coef, 0.0, atol=1e-2)


def test_losses_that_cost_nothing_end_at_once():
    Z, y = make()
    solution = solve_scalar(Z, y, losses.EpsilonInsensitiveLoss(1e3), 1e-3)
    assert (solution.objective, solution.gap, solution.n_iter) == (0.0, 0.0, 0)
    assert solution.converged


@pytest.mark.parametrize("loss", REGRESSION, ids=repr)
def test_an_intercept_absorbs_any_offset(loss):
    Z, y = make()
    one = solve_scalar(Z, y, loss, 1e-3, tol=1e-10)
    two = solve_scalar(Z, y + 1e3, loss, 1e-3, tol=1e-10)
    assert_allclose(two.objective, one.objective, rtol=1e-8)
    assert_allclose(two.intercept - one.intercept, 1e3, rtol=1e-5)
    assert_allclose(two.coef, one.coef, atol=1e-3)


def test_quantiles_leave_their_share_of_residuals_above():
    Z, y = make(n=400)
    for level in (0.1, 0.5, 0.9):
        found = solve_scalar(Z, y, losses.PinballLoss(level), 1e-6)
        share = np.mean(y <= Z @ found.coef + found.intercept)
        assert abs(share - level) < 0.03


@every_loss
def test_a_state_continues_and_a_path_saves_steps(loss):
    Z, y = make(n=400, r=10, loss=loss)
    alphas = np.logspace(0, -7, 6)
    path, state = [], None
    for alpha in alphas:
        path.append(solve_scalar(Z, y, loss, alpha, tol=1e-7, state=state))
        state = path[-1].state._replace(sigma=None)
    cold = [solve_scalar(Z, y, loss, alpha, tol=1e-7) for alpha in alphas]
    for warm, fresh in zip(path, cold, strict=True):
        assert warm.converged
        assert_allclose(warm.objective, fresh.objective, rtol=3e-7)
    assert sum(x.n_iter for x in path) <= sum(x.n_iter for x in cold)
    again = solve_scalar(Z, y, loss, alphas[-1], tol=1e-7, state=path[-1].state)
    assert again.n_iter <= 1


def test_a_state_serves_another_loss_but_not_another_shape():
    Z, y = make()
    state = solve_scalar(Z, y, losses.PinballLoss(0.9), 1e-4).state
    for level, fit_intercept in ((0.8, True), (0.1, True), (0.8, False)):
        loss = losses.PinballLoss(level)
        warm, cold = (
            solve_scalar(
                Z, y, loss, 1e-4, fit_intercept=fit_intercept, tol=1e-8, state=start
            )
            for start in (state, None)
        )
        assert_allclose(warm.objective, cold.objective, rtol=3e-8)
        check_certificate(warm, Z, y, loss, 1e-4, fit_intercept)
    with pytest.raises(ValueError, match=r"`state.coef` must have shape \(3,\)"):
        solve_scalar(Z[:, :3], y, "pinball", 1e-4, state=state)
    with pytest.raises(ValueError, match=r"`state.dual` must have shape \(100,\)"):
        solve_scalar(Z[:100], y[:100], "pinball", 1e-4, state=state)


@pytest.mark.parametrize("loss", ALL[1:], ids=repr)  # the first takes one step
def test_the_end_of_the_budget_is_reported(loss):
    Z, y = make(loss=loss)
    solution = solve_scalar(Z, y, loss, 1e-6, max_iter=1, tol=1e-30)
    assert not solution.converged
    assert solution.n_iter == 1
    check_certificate(solution, Z, y, loss, 1e-6, True)
    assert "stopped after 1 iterations before reaching tol=1e-30" in solution.shortfall(
        1e-30
    )


@every_loss
def test_callback_receives_each_step(loss):
    Z, y = make(loss=loss)
    steps_taken = []
    solution = solve_scalar(
        Z, y, loss, 1e-4, tol=1e-8, callback=lambda *step: steps_taken.append(step)
    )
    steps, values, gaps, seconds = np.array(steps_taken).T
    assert steps[-1] == solution.n_iter
    assert (np.diff(seconds) >= 0).all()
    assert solution.gap in gaps
    assert (values - gaps <= solution.objective * (1 + 1e-12)).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"alpha": 0.0}, r"`alpha` must be in \(0, inf\), got 0.0"),
        ({"tol": -1.0}, "`tol` must be"),
        ({"max_iter": 0}, "`max_iter` must be at least 1, got 0"),
        ({"y": np.ones(3)}, r"`y` must have shape \(4,\), got \(3,\)"),
        ({"y": np.array([1.0, np.nan, 0.0, 0.0])}, "`y` must be finite"),
        ({"loss": "hinge", "y": np.arange(4.0)}, r"`y` must hold -1 and \+1 only"),
        ({"sample_weight": np.ones(3)}, "`sample_weight` must have shape"),
        (
            {"sample_weight": np.zeros(4)},
            "`sample_weight` must be finite and nonnegative",
        ),
        ({"sample_weight": np.array([1.0, 1, 1, -1])}, "a minimum of -1.0"),
        ({"design": np.array([[np.inf]])}, "`Z` must be finite"),
        ({"loss": "none"}, "`loss` must be a Loss or one of"),
    ],
)
def test_arguments_are_checked(change, message):
    arguments = {"design": np.eye(4), "y": np.ones(4), "loss": "huber", "alpha": 1.0}
    with pytest.raises(ValueError, match=message):
        solve_scalar(**(arguments | change))


def test_balance_stays_within_bounds():
    rng = np.random.default_rng(0)
    for _ in range(50):
        lo, hi = -rng.random(20), rng.random(20)
        a, weights = rng.uniform(lo, hi), rng.random(20)
        pace = (rng.random(20) < 0.3).astype(float)
        found = balance(a, weights, lo, hi, pace)
        assert ((found >= lo) & (found <= hi)).all()
        assert_allclose(weights @ found, 0.0, atol=1e-14)


def test_line_search_finds_the_kink_of_a_convex_function():
    def derivatives(t):
        return (-1.0 + 0.01 * t, 0.01) if t < 7.3 else (5.0 + t, 1.0)

    step = convex_step(derivatives, -1.0)
    assert_allclose(step, 7.3, rtol=1e-6)
    assert convex_step(lambda t: (-0.5 + t, 1.0), -0.5) == 0.5
    assert convex_step(lambda t: (2.0, 0.0), -1.0) == 0.0


@pytest.mark.parametrize("loss", [x for x in ALL if x.elq is not None], ids=repr)
@pytest.mark.parametrize("sigma", [0.0, 0.4])
def test_kernels_agree_with_plain_numpy(loss, sigma):
    gam, eps, low, high = loss.elq
    rng = np.random.default_rng(2)
    n = 301
    res, weights = 2 * rng.normal(size=n), rng.random(n)
    lo, hi = np.full(n, low), np.full(n, high)
    center = np.clip(rng.normal(size=n), lo, hi)
    v = res + sigma * center
    expected = losses.ELQ(gam + sigma, eps, low, high).slope(v)
    a, inside = np.empty(n), np.empty(n, dtype=bool)
    total, young = kernels.dual_point(
        res, weights, center, lo, hi, gam, eps, sigma, a, inside
    )
    terms = loss.elq.value(res) + loss.elq.conjugate(a) - a * res
    assert_allclose(a, expected, atol=1e-14)
    assert_allclose(total, weights @ a)
    assert_allclose(young, weights @ terms, atol=1e-12)
    plain = kernels.young_sum(res, weights, a, lo, hi, gam, eps)
    assert_allclose(plain, young, atol=1e-12)
    rows = RowLoss(lo, hi, gam, eps)
    assert_allclose(rows.values(res), loss.elq.value(res), atol=1e-14)
    out = rows.kink_distance(res, center, sigma)
    assert ((out == 0) == inside).all() or gam + sigma == 0
    for side in (-0.99, 0.99):  # a residual that moves less keeps its dual point
        moved = np.empty(n)
        line = res + side * out, weights, center, lo, hi, gam, eps, sigma
        kernels.dual_point(*line, moved, inside)
        assert_allclose(moved, a, atol=1e-14)


@pytest.mark.parametrize("loss", [x for x in ALL if x.elq is not None], ids=repr)
def test_slope_along_is_the_derivative_of_the_smoothed_loss(loss):
    gam, eps, low, high = loss.elq
    rng = np.random.default_rng(4)
    n, sigma = 200, 0.3
    res, move, weights = rng.normal(size=n), rng.normal(size=n), rng.random(n)
    lo, hi, center = np.full(n, low), np.full(n, high), np.zeros(n)

    def slope(t):
        return kernels.slope_along(
            t, res, move, weights, center, lo, hi, gam, eps, sigma
        )

    def smoothed(t):
        return weights @ losses.ELQ(gam + sigma, eps, low, high).value(res - t * move)

    numeric = (smoothed(0.7 + 1e-6) - smoothed(0.7 - 1e-6)) / 2e-6
    assert_allclose(slope(0.7)[0], numeric, rtol=1e-7)
    numeric = (slope(0.7 + 1e-7)[0] - slope(0.7 - 1e-7)[0]) / 2e-7
    assert_allclose(slope(0.7)[1], numeric, rtol=1e-5)


@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("count", [1, 9])
def test_a_direction_from_few_rows_is_that_of_the_features(fit_intercept, dtype, count):
    rng = np.random.default_rng(count)
    Z, y = rng.normal(size=(50, 30)).astype(dtype), rng.normal(size=50)
    weights = rng.uniform(0, 2, size=50)
    weights[7] = 0.0
    problem = newton_problem(
        ArrayDesign(Z), y, losses.PinballLoss(0.5), 1e-3, weights, fit_intercept
    )
    rows = np.sort(rng.permutation(50)[:count])
    X = Z.astype(float)[rows]
    if fit_intercept:
        X = np.column_stack([X, np.ones(count)])
    rho, factor, pivot = rng.normal(size=X.shape[1]), 0.7, 3.0
    H = factor * X.T * weights[rows] @ X
    H[range(30), range(30)] += 1e-3
    if fit_intercept:
        H[-1, -1] += factor * max(0.0, pivot - weights[rows].sum())
    inside = np.isin(np.arange(50), rows)[None]
    assert are_few(count, problem)
    found = direction_of_entries(problem, inside, rho, factor, pivot)
    expected = -np.linalg.solve(H, rho)
    assert_allclose(found, expected, rtol=1e-8, atol=1e-8 * np.abs(expected).max())


def test_a_direction_that_rounding_has_spoiled_is_refused():
    Z = np.random.default_rng(0).normal(size=(40, 30))
    y, inside = np.zeros(40), np.arange(40)[None] < 12
    problem = newton_problem(
        ArrayDesign(Z), y, losses.PinballLoss(0.5), 1e-16, None, True
    )
    rho = np.random.default_rng(1).normal(size=31)
    with pytest.raises(np.linalg.LinAlgError):
        direction_of_entries(problem, inside, rho, 1e3, 1.0)


def test_both_kinds_of_directions_lead_to_one_minimum(monkeypatch):
    rng = np.random.default_rng(2)
    Z = rng.normal(size=(300, 80)) * 0.9 ** np.arange(80)
    y = np.sign(Z[:, 0] + 0.3 * rng.normal(size=300))
    found = solve_scalar(Z, y, "hinge", 1e-3, tol=1e-9)
    monkeypatch.setattr(directions, "_LESS_WORK", 0.0)
    other = solve_scalar(Z, y, "hinge", 1e-3, tol=1e-9)
    assert found.converged and other.converged
    assert_allclose(found.objective, other.objective, rtol=1e-9)
