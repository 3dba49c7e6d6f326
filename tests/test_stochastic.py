"""The stochastic methods: their gradients, their steps, and where they lead."""

from itertools import pairwise

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import minimize

from nbsketch.losses import (
    EpsilonInsensitiveLoss,
    HingeLoss,
    HuberLoss,
    LogisticLoss,
    Loss,
    PinballLoss,
    SquaredEpsilonInsensitiveLoss,
    SquaredHingeLoss,
    SquareLoss,
)
from nbsketch.solvers.design import ArrayDesign, Design, as_design
from nbsketch.solvers.solution import Solution
from nbsketch.solvers.stochastic import (
    SCHEDULES,
    StochasticSolver,
    solve_stochastic,
    stochastic_problem,
)

N, R, D = 37, 4, 3
LEVELS = np.array([0.2, 0.5, 0.9])

REGRESSION = [
    SquareLoss(),
    HuberLoss(0.7),
    EpsilonInsensitiveLoss(0.3),
    SquaredEpsilonInsensitiveLoss(0.3),
]
CLASSIFICATION = [HingeLoss(), SquaredHingeLoss(), LogisticLoss()]
SCALAR = [*REGRESSION, PinballLoss(0.8), *CLASSIFICATION]
SHAPES = ["scalar", "radial", "joint"]
# Settings of the papers.
PLAIN = {"learning_rate": 0.01, "batch_size": 1, "schedule": "constant"}


def solve(Z, Y, loss, alpha, *, callback=None, **options):
    """Solve, by the settings of the papers unless others are given."""
    names = set(StochasticSolver.__dataclass_fields__) & set(options)
    settings = PLAIN | {name: options.pop(name) for name in names}
    shape = {"sample_weight": None, "fit_intercept": False} | options
    problem = stochastic_problem(as_design(Z), Y, loss, alpha, **shape)
    return solve_stochastic(problem, StochasticSolver(**settings), callback)


class Case:
    """A problem with its objective and gradient, in plain numpy."""

    def __init__(self, loss, shape, weighted=True):
        rng = np.random.default_rng(3)
        self.loss, self.shape = loss, shape
        self.Z = rng.normal(size=(N, R))
        self.weights = rng.uniform(0.5, 2.0, N) if weighted else None
        self.alpha = 0.1
        self.Y = rng.normal(size=(N, D) if shape == "radial" else N)
        if loss.is_classification:
            self.Y = np.where(self.Y > 0, 1.0, -1.0)
        self.T = rng.normal(size=(2, D)) if shape != "scalar" else None

    @property
    def options(self):
        return {
            "T": self.T,
            "sample_weight": self.weights,
            "quantiles": LEVELS if self.shape == "joint" else None,
        }

    def solve(self, **options):
        return solve(self.Z, self.Y, self.loss, self.alpha, **(self.options | options))

    @property
    def mix(self):
        if self.T is None:
            return np.eye(1 if self.shape == "scalar" else D)
        return self.T

    @property
    def start(self):
        return np.zeros((R, len(self.mix))), np.zeros(self.mix.shape[1])

    @property
    def middle(self):
        """Where an intercept starts."""
        if self.loss.is_classification:
            return np.zeros(1)
        if self.shape == "joint":
            return np.quantile(self.Y, LEVELS)
        if isinstance(self.loss, SquareLoss):
            return np.atleast_1d(np.average(self.Y, axis=0, weights=self.weights))
        return np.atleast_1d(np.median(self.Y, axis=0))

    def losses(self, rows, coef, intercept):
        F = self.Z[rows] @ coef @ self.mix + intercept
        Y = self.Y[rows]
        if self.shape == "radial":
            return self.loss.value(np.linalg.norm(Y - F, axis=1))
        if self.shape == "joint":
            columns = [PinballLoss(t).value(Y - F[:, j]) for j, t in enumerate(LEVELS)]
            return np.sum(columns, axis=0)
        x = F[:, 0]
        return self.loss.value(Y * x if self.loss.is_classification else Y - x)

    def objective(self, coef, intercept, rows=slice(None)):
        s = np.ones(N) if self.weights is None else self.weights
        data = np.mean(s[rows] * self.losses(rows, coef, intercept))
        return data + self.alpha / 2 * np.sum(coef**2)

    def pull(self, rows, coef, intercept):
        """Return minus the derivatives of the losses by the predictions."""
        F = self.Z[rows] @ coef @ self.mix + intercept
        Y = self.Y[rows]
        if self.shape == "radial":
            norm = np.linalg.norm(Y - F, axis=1, keepdims=True)
            return self.loss.derivative(norm) * (Y - F) / norm
        if self.shape == "joint":
            residual = Y[:, None] - F
            return np.where(residual > 0, LEVELS, LEVELS - 1) * (residual != 0)
        x = F[:, 0]
        if self.loss.is_classification:
            return -(Y * self.loss.derivative(Y * x))[:, None]
        return self.loss.derivative(Y - x)[:, None]

    def gradient(self, rows, coef, intercept):
        s = np.ones(N) if self.weights is None else self.weights
        a = -self.pull(rows, coef, intercept) * s[rows, None] / len(rows)
        slopes = self.Z[rows].T @ a @ self.mix.T
        return slopes + self.alpha * coef, a.sum(axis=0)

    def as_matrix(self, solution):
        return solution.coef.reshape(R, -1), np.reshape(solution.intercept, -1)


def adam(case, batch_size, n_epochs, rate, betas=(0.9, 0.999), fit_intercept=False):
    """Plain Adam over the rows in order; returns the points, one after each step."""
    (coef, intercept), points = case.start, []
    intercept = case.middle if fit_intercept else intercept
    first = second = np.zeros(coef.size + intercept.size)
    for t in range(1, n_epochs * -(-N // batch_size) + 1):
        begin = (t - 1) * batch_size % (-(-N // batch_size) * batch_size)
        rows = np.arange(begin, min(begin + batch_size, N))
        slopes, slope = case.gradient(rows, coef, intercept)
        g = np.append(slopes, slope * fit_intercept)
        first = betas[0] * first + (1 - betas[0]) * g
        second = betas[1] * second + (1 - betas[1]) * g**2
        root = np.sqrt(second / (1 - betas[1] ** t)) + 1e-8
        move = rate * first / (1 - betas[0] ** t) / root
        coef = coef - move[: coef.size].reshape(coef.shape)
        intercept = intercept - move[coef.size :]
        points.append((coef, intercept))
    return points


def numeric_gradient(function, x, step=1e-6):
    out = np.zeros_like(x)
    for index in np.ndindex(x.shape):
        move = np.zeros_like(x)
        move[index] = step
        out[index] = (function(x + move) - function(x - move)) / (2 * step)
    return out


CASES = [
    *(pytest.param(loss, "scalar", id=f"{loss}") for loss in SCALAR),
    *(pytest.param(loss, "radial", id=f"norm-{loss}") for loss in REGRESSION),
    pytest.param(PinballLoss(), "joint", id="joint"),
]


# gradients ------------------------------------------------------------------------


@pytest.mark.thin
@pytest.mark.parametrize(("loss", "shape"), CASES)
def test_gradient_is_that_of_the_objective(loss, shape):
    case = Case(loss, shape)
    (coef, intercept), (after, intercept_after) = (
        case.as_matrix(
            case.solve(
                method="sgd", batch_size=N, n_epochs=n_epochs, learning_rate=0.05,
                fit_intercept=True,
            )
        )
        for n_epochs in (1, 2)
    )  # fmt: skip
    slope = numeric_gradient(lambda x: case.objective(x, intercept), coef)
    assert_allclose((coef - after) / 0.05, slope, rtol=1e-5, atol=1e-7)
    slope = numeric_gradient(lambda x: case.objective(coef, x), intercept)
    assert_allclose((intercept - intercept_after) / 0.05, slope, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(("loss", "shape"), CASES)
def test_objective_is_exact(loss, shape):
    case = Case(loss, shape)
    result = case.solve(n_epochs=2, fit_intercept=True)
    assert_allclose(result.objective, case.objective(*case.as_matrix(result)))


# steps ----------------------------------------------------------------------------


@pytest.mark.parametrize("batch_size", [1, 16])
@pytest.mark.parametrize(
    ("loss", "shape"),
    [
        (HuberLoss(0.7), "scalar"),
        (EpsilonInsensitiveLoss(0.3), "radial"),
        (PinballLoss(), "joint"),
    ],
)
@pytest.mark.parametrize("fit_intercept", [False, True])
def test_adam_is_adam(loss, shape, batch_size, fit_intercept):
    case = Case(loss, shape)
    result = case.solve(
        batch_size=batch_size, n_epochs=3, learning_rate=0.05, shuffle=False,
        fit_intercept=fit_intercept,
    )  # fmt: skip
    coef, intercept = adam(case, batch_size, 3, 0.05, fit_intercept=fit_intercept)[-1]
    found, found_intercept = case.as_matrix(result)
    assert_allclose(found, coef, rtol=0, atol=1e-12)
    assert_allclose(found_intercept, intercept, rtol=0, atol=1e-12)


def test_first_step_of_adam_has_the_length_of_the_rate():
    case = Case(SquareLoss(), "scalar", weighted=False)
    result = case.solve(batch_size=N, n_epochs=1, learning_rate=0.25)
    assert_allclose(np.abs(result.coef), 0.25, rtol=1e-6)


def test_one_row_in_order_at_a_constant_rate_is_the_papers_method():
    case = Case(HuberLoss(0.7), "scalar", weighted=False)
    papers = adam(case, 1, 25, 0.01)[-1][0]
    assert_allclose(case.solve(shuffle=False).coef, papers[:, 0], rtol=0, atol=1e-12)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_schedules(schedule):
    case, batch_size, n_epochs = Case(SquareLoss(), "scalar"), 10, 3
    n_steps = 4 * n_epochs
    n_visited = np.add.outer(N * np.arange(n_epochs), batch_size * np.arange(4)).ravel()
    rates = (
        0.02
        * {
            "constant": np.ones(n_steps),
            "inverse-sqrt": 1 / np.sqrt(np.arange(1, n_steps + 1)),
            "cosine": (1 + np.cos(np.pi * n_visited / (N * n_epochs))) / 2,
        }[schedule]
    )
    coef, zero = case.start
    for t, rate in enumerate(rates):
        begin = t % 4 * batch_size
        rows = np.arange(begin, min(begin + batch_size, N))
        coef = coef - rate * case.gradient(rows, coef, zero)[0]
    found = case.solve(
        method="sgd", batch_size=batch_size, n_epochs=n_epochs, learning_rate=0.02,
        schedule=schedule, shuffle=False,
    ).coef  # fmt: skip
    assert_allclose(found, coef[:, 0], rtol=0, atol=1e-13)


def test_average_is_the_mean_of_the_second_half():
    case = Case(HuberLoss(0.7), "scalar")
    points = [coef for coef, _ in adam(case, 5, 3, 0.05)]
    found = case.solve(
        batch_size=5, n_epochs=3, learning_rate=0.05, shuffle=False, average=True
    )
    assert_allclose(found.coef, np.mean(points[8:], axis=0)[:, 0], atol=1e-12)


# optima ---------------------------------------------------------------------------


def large_problem(n=2000, r=5):
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(n, r)) / np.sqrt(r)
    return Z, Z @ rng.normal(size=r) * 3 + rng.normal(size=n)


@pytest.mark.parametrize("method", ["adam", "sgd"])
@pytest.mark.parametrize("average", [False, True])
def test_square_loss_reaches_ridge(method, average):
    Z, y = large_problem()
    n, alpha = len(y), 1e-2
    ridge = np.linalg.solve(Z.T @ Z / n + alpha * np.eye(Z.shape[1]), Z.T @ y / n)
    best = np.mean((y - Z @ ridge) ** 2) / 2 + alpha / 2 * ridge @ ridge
    result = solve(
        Z, y, "square", alpha, method=method, batch_size=16, schedule="cosine",
        learning_rate=0.05 if method == "adam" else 0.3, average=average,
    )  # fmt: skip
    assert best <= result.objective <= 1.0001 * best
    assert_allclose(result.coef, ridge, rtol=0.02, atol=0.02)


def test_huber_reaches_the_optimum_of_lbfgs():
    Z, y = large_problem()
    y[:100] += 50.0
    loss, alpha = HuberLoss(1.0), 1e-3

    def objective(w):
        return np.mean(loss.value(y - Z @ w)) + alpha / 2 * w @ w

    def slope(w):
        return -Z.T @ loss.derivative(y - Z @ w) / len(y) + alpha * w

    best = minimize(objective, np.zeros(Z.shape[1]), jac=slope, method="L-BFGS-B").fun
    result = solve(
        Z, y, loss, alpha, batch_size=16, learning_rate=0.05, schedule="cosine"
    )
    assert best * (1 - 1e-6) <= result.objective <= 1.001 * best


def test_intercept_follows_a_shift_of_the_targets():
    Z, y = large_problem()
    options = {"fit_intercept": True, "batch_size": 16, "schedule": "cosine"}
    result = solve(Z, y + 2.0, "square", 1e-2, learning_rate=0.1, **options)
    assert_allclose(result.intercept, 2.0, atol=0.1)
    assert solve(Z, y + 2.0, "square", 1e-2).intercept == 0.0


@pytest.mark.parametrize("loss", ["square", "huber", "pinball"])
@pytest.mark.parametrize("method", ["adam", "sgd"])
def test_targets_far_from_zero_change_nothing_but_the_intercept(loss, method):
    Z, y = large_problem(200)
    options = {"fit_intercept": True, "method": method, "n_epochs": 3}
    near, far = (
        solve(Z, y + shift, loss, 1e-2, learning_rate=0.01, **options)
        for shift in (0.0, 2.0**20)
    )
    assert_allclose(far.coef, near.coef, atol=1e-7)
    assert_allclose(far.intercept - 2.0**20, near.intercept, atol=1e-7)


def test_quantile_levels_start_at_the_quantiles_of_the_targets():
    _, y = large_problem(200)
    levels = [0.1, 0.5, 0.8]
    result = solve(
        np.zeros((200, 1)), y, "pinball", 0.0, quantiles=levels, fit_intercept=True,
        method="sgd", learning_rate=1e-12, n_epochs=1,
    )  # fmt: skip
    assert_allclose(result.intercept, np.quantile(y, levels), atol=1e-8)


# rows, weights, order -------------------------------------------------------------


def test_integer_weights_are_repetitions():
    Z, y = large_problem(60)
    times = np.arange(60) % 3
    options = {"method": "sgd", "learning_rate": 0.1, "n_epochs": 20}
    weighted = solve(Z, y, "huber", 0.1, sample_weight=times, batch_size=60, **options)
    rows = np.repeat(np.arange(60), times)  # 60 of them: the mean weight is one
    repeated = solve(Z[rows], y[rows], "huber", 0.1, batch_size=60, **options)
    assert_allclose(weighted.coef, repeated.coef, rtol=1e-12)
    assert_allclose(weighted.objective, repeated.objective, rtol=1e-12)


def test_same_seed_same_result():
    case = Case(PinballLoss(), "joint")
    results = [case.solve(random_state=seed, n_epochs=3) for seed in (7, 7, 8)]
    assert_array_equal(results[0].coef, results[1].coef)
    assert np.abs(results[0].coef - results[2].coef).max() > 1e-6


def test_without_shuffling_the_seed_is_no_matter():
    case = Case(HuberLoss(), "scalar")
    options = {"shuffle": False, "n_epochs": 2}
    found = [case.solve(random_state=seed, **options).coef for seed in (1, 2)]
    assert_array_equal(*found)


def test_shuffling_visits_every_row_once():
    # with rate 1 on the square loss and unit rows, each visit solves its own row
    result = solve(
        np.eye(50), np.arange(50.0), "square", 0.0, method="sgd", learning_rate=1.0,
        n_epochs=1,
    )  # fmt: skip
    assert_array_equal(result.coef, np.arange(50.0))


class Blocks(Design):
    """Three blocks of one matrix."""

    def __init__(self, Z, cuts):
        self.Z, self.cuts, self.shape, self.dtype = Z, cuts, Z.shape, Z.dtype

    def blocks(self):
        for start, stop in pairwise(self.cuts):
            yield start, stop, np.asfortranarray(self.Z[start:stop])


def test_blocks_are_visited_in_order():
    case = Case(EpsilonInsensitiveLoss(0.3), "radial")
    whole = case.solve(batch_size=5, shuffle=False, n_epochs=3, schedule="cosine")
    case.Z = Blocks(case.Z, [0, 10, 25, N])  # whole batches but for the last
    parts = case.solve(batch_size=5, shuffle=False, n_epochs=3, schedule="cosine")
    assert_allclose(parts.coef, whole.coef, rtol=0, atol=1e-12)
    assert_allclose(parts.objective, whole.objective, rtol=1e-12)


@pytest.mark.full
def test_single_precision_features():
    Z, y = large_problem(200)
    single = solve(Z.astype(np.float32), y, "huber", 0.1)
    stored = solve(Z.astype(np.float32).astype(float), y, "huber", 0.1)
    assert single.coef.dtype == np.float64
    assert_allclose(single.coef, stored.coef, rtol=1e-9)


def test_residual_zero_pulls_nowhere():
    result = solve(np.ones((3, 1)), np.zeros((3, 2)), "huber", 0.1)
    assert_array_equal(result.coef, np.zeros((1, 2)))


# results --------------------------------------------------------------------------


@pytest.mark.parametrize("shape", SHAPES)
def test_shapes(shape):
    case = Case(PinballLoss() if shape == "joint" else HuberLoss(), shape)
    result = case.solve(n_epochs=1)
    assert isinstance(result, Solution)
    assert result.coef.shape == ((R,) if shape == "scalar" else (R, 2))
    assert np.shape(result.intercept) == (() if shape == "scalar" else (D,))
    case.T = None
    assert case.solve(n_epochs=1).coef.shape == ((R,) if shape == "scalar" else (R, D))


def test_nothing_is_certified():
    result = Case(HuberLoss(), "scalar").solve(n_epochs=4)
    assert result.gap == result.relative_gap == np.inf
    assert result.dual is None
    assert not result.converged
    assert result.n_iter == 4
    assert result.seconds > 0


def test_callback_hears_every_epoch():
    case, calls = Case(HuberLoss(0.7), "scalar"), []
    result = case.solve(n_epochs=3, callback=lambda *args: calls.append(args))
    assert [epoch for epoch, *_ in calls] == [1, 2, 3]
    assert [gap for *_, gap, _ in calls] == 3 * [np.inf]
    assert calls[-1][1] == result.objective
    seconds = [seconds for *_, seconds in calls]
    assert seconds == sorted(seconds)
    assert_array_equal(result.coef, case.solve(n_epochs=3).coef)


def test_callback_ends_the_search():
    case = Case(HuberLoss(0.7), "scalar")
    result = case.solve(n_epochs=5, callback=lambda epoch, *_: epoch == 2)
    assert result.n_iter == 2
    assert_array_equal(result.coef, case.solve(n_epochs=2).coef)


def test_divergence_is_an_error():
    Z, y = large_problem(200)
    with pytest.raises(FloatingPointError, match="`learning_rate` must be smaller"):
        solve(Z, y, "square", 0.0, method="sgd", learning_rate=100.0)


# arguments ------------------------------------------------------------------------

Z0, Y0 = np.ones((4, 2)), np.array([1.0, -1.0, 1.0, 2.0])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"alpha": -1.0}, "`alpha` must be in"),
        ({"loss": "cauchy"}, "`loss` must be a Loss or one of"),
        ({"loss": "hinge"}, "`Y` must hold -1 and \\+1 only"),
        ({"Y": np.ones(3)}, "`Y` must have shape \\(4,\\) or \\(4, d\\)"),
        ({"Y": np.full(4, np.nan)}, "`Y` must be finite"),
        ({"Y": np.ones((4, 2)), "loss": "pinball"}, "`Y` must have shape \\(4,\\)"),
        ({"method": "momentum"}, "`method` must be one of"),
        ({"schedule": "linear"}, "`schedule` must be one of"),
        ({"batch_size": 0}, "`batch_size` must be at least 1"),
        ({"n_epochs": 0}, "`n_epochs` must be at least 1"),
        ({"learning_rate": 0.0}, "`learning_rate` must be in"),
        ({"sample_weight": np.ones(3)}, "`sample_weight` must have shape"),
        ({"sample_weight": -np.ones(4)}, "`sample_weight` must be finite"),
    ],
)
def test_errors_name_the_argument(options, words):
    settings = {"Z": Z0, "Y": Y0, "loss": "square", "alpha": 0.1} | options
    with pytest.raises(ValueError, match=words):
        solve(**settings)


def test_a_loss_without_numbers_is_refused():
    class OwnLoss(Loss):
        pass

    with pytest.raises(TypeError, match="`loss` must be logistic or give `elq`"):
        solve(Z0, Y0, OwnLoss(), 0.1)


def test_array_and_design_are_the_same():
    first = solve(Z0, Y0, "square", 0.1)
    second = solve(ArrayDesign(Z0), Y0, "square", 0.1)
    assert_array_equal(first.coef, second.coef)
