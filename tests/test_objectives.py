"""The regressor with every loss: optimality, choice of alpha, paths, solvers."""

from dataclasses import replace

import cvxpy as cp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.exceptions import ConvergenceWarning

from nbsketch import (
    EpsilonInsensitiveLoss,
    GammaLoss,
    GaussianKernel,
    HingeLoss,
    HuberLoss,
    LogisticLoss,
    PinballLoss,
    PoissonLoss,
    QuantileOutput,
    SketchedKernelRegressor,
    SquaredEpsilonInsensitiveLoss,
    SquaredHingeLoss,
    SquareLoss,
    StochasticSolver,
)
from nbsketch.fitting import objectives
from nbsketch.fitting import penalty as penalties
from nbsketch.fitting.objectives import (
    JointQuantileObjective,
    ScalarObjective,
    regression_objective,
)
from nbsketch.fitting.penalty import AlphaPath, LeftOutErrors
from nbsketch.fitting.plan import SolveOptions
from nbsketch.solvers._newton.start import shared
from nbsketch.solvers.design import ArrayDesign
from nbsketch.solvers.left_out import Fold
from nbsketch.solvers.newton import solve_scalar

# One target in twenty is a gross error, which the square loss tells.
pytestmark = pytest.mark.filterwarnings("ignore::nbsketch.rows.outliers.OutlierWarning")
LOSSES = [
    SquareLoss(),
    HuberLoss(kappa=0.3),
    EpsilonInsensitiveLoss(epsilon=0.2),
    SquaredEpsilonInsensitiveLoss(epsilon=0.2),
]
KERNEL = GaussianKernel(bandwidth=1.5)
M = np.array([[2.0, 1.0, 0.0], [1.0, 2.0, 0.0], [0.0, 0.0, 0.0]])


def make_problem(n=60, n_outputs=1, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    Y = np.sin(X @ rng.normal(size=(2, n_outputs))) + 0.1 * rng.normal(
        size=(n, n_outputs)
    )
    Y[: n // 20] += 5
    return X, Y


def make_model(**options):
    return SketchedKernelRegressor(KERNEL, size=12, random_state=1, **options)


def sketched_minimum(model, X, Y, loss, alpha, output):
    """Minimize over the sketched functions with a conic solver, from the definition."""
    S = model.sketch_.to_csr().toarray()
    K = KERNEL(X)
    SKS = S @ K @ S.T
    L = np.linalg.cholesky(SKS + 1e-13 * np.eye(len(SKS)))
    root = np.linalg.cholesky(output + 1e-13 * np.eye(len(output)))
    W = cp.Variable((len(S), len(output)))
    b = cp.Variable(len(output))
    # G = L^-T W root^-1: then Tr(SKS G M G^T) = |W|^2.
    Z = np.linalg.solve(L, S @ K).T
    residual = (
        Y
        - Z @ W @ root.T
        - np.ones((len(Y), 1)) @ cp.reshape(b, (1, len(output)), order="C")
    )
    norms = cp.norm(residual, 2, axis=1)
    values = {
        SquareLoss: lambda: cp.sum_squares(residual) / 2,
        HuberLoss: lambda: cp.sum(cp.huber(norms, loss.kappa)) / 2,
        EpsilonInsensitiveLoss: lambda: cp.sum(cp.pos(norms - loss.epsilon)),
        SquaredEpsilonInsensitiveLoss: lambda: (
            cp.sum_squares(cp.pos(norms - loss.epsilon)) / 2
        ),
    }[type(loss)]()
    problem = cp.Problem(cp.Minimize(values / len(Y) + alpha / 2 * cp.sum_squares(W)))
    return problem.solve(solver="CLARABEL")


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
@pytest.mark.parametrize(("n_outputs", "output"), [(1, None), (3, None), (3, M)])
def test_the_objective_is_the_minimum_of_a_conic_solver(loss, n_outputs, output):
    X, Y = make_problem(n_outputs=n_outputs)
    model = make_model(loss=loss, alpha=1e-3, output=output)
    model.fit(X, Y[:, 0] if n_outputs == 1 else Y)
    matrix = np.eye(n_outputs) if output is None else output
    expected = sketched_minimum(model, X, Y, loss, 1e-3, matrix)
    assert_allclose(model.objective_, expected, rtol=3e-6)
    assert model.dual_gap_ <= 1e-6


@pytest.mark.parametrize("loss", [*LOSSES, PinballLoss(quantile=0.8)], ids=repr)
def test_the_reported_objective_is_that_of_the_predictions(loss):
    X, Y = make_problem()
    model = make_model(loss=loss, alpha=1e-2).fit(X, Y[:, 0])
    S = model.sketch_.to_csr().toarray()
    norm = model.coef_ @ (S @ KERNEL(X) @ S.T) @ model.coef_
    residual = Y[:, 0] - model.predict(X)
    value = loss.value(residual).mean() + 1e-2 / 2 * norm
    assert_allclose(model.objective_, value, rtol=1e-8)


@pytest.mark.parametrize("loss", [PoissonLoss(), GammaLoss()])
def test_objectives_of_means_are_in_the_units_of_the_targets(loss, rng):
    Z, y = rng.normal(size=(50, 3)), rng.gamma(2.0, size=(50, 1))
    unit, design = 7.0, ArrayDesign(Z)
    objective = ScalarObjective(loss.link(y), None, True, loss, unit)
    found = objective.solve(design, 0.3, SolveOptions(tol=1e-9))
    scores = Z @ found.coef + found.intercept
    value = loss.of_rows(loss.link(y), scores - np.log(unit)).mean()
    value = value * unit ** (2 - loss.power)
    assert_allclose(objective.mean_loss(scores), value)
    value += 0.3 / 2 * np.square(found.coef).sum()
    assert_allclose(found.objective, value, rtol=1e-8)


@pytest.mark.filterwarnings("ignore::nbsketch.OutlierWarning")
def test_robust_losses_withstand_outliers_that_ruin_least_squares():
    X, Y = make_problem(n=120)
    y = Y[:, 0].copy()
    y[:6] += 50
    clean = slice(6, None)
    errors = {
        loss: np.abs(
            SketchedKernelRegressor(loss=loss, size=20, random_state=0)
            .fit(X, y)
            .predict(X[clean])
            - y[clean]
        ).mean()
        for loss in ("square", "huber", "epsilon-insensitive", "pinball")
    }
    robust = max(errors[loss] for loss in errors if loss != "square")
    assert robust < 0.15 < errors["square"]


def test_pinball_predicts_the_quantile():
    X, Y = make_problem(n=600)
    loss = PinballLoss(quantile=0.8)
    model = make_model(loss=loss, alpha=1e-3).fit(X, Y[:, 0])
    # With a free intercept the share of rows below is exact up to the rows fitted.
    assert abs((Y[:, 0] < model.predict(X)).mean() - 0.8) < 15 / 600


@pytest.mark.parametrize("loss", ["square", "huber", "pinball"])
def test_weights_are_repetitions(loss):
    X, Y = make_problem(n=50)
    weights = np.random.default_rng(2).integers(0, 4, size=50)
    rows = np.repeat(np.arange(50), weights)
    options = {"sketch": "identity", "loss": loss, "alpha": 1e-2, "tol": 1e-10}
    weighted = SketchedKernelRegressor(KERNEL, **options).fit(X, Y[:, 0], weights)
    repeated = SketchedKernelRegressor(KERNEL, **options).fit(X[rows], Y[rows, 0])
    assert_allclose(weighted.objective_, repeated.objective_, rtol=1e-8)
    assert_allclose(weighted.predict(X), repeated.predict(X), atol=1e-4)


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
@pytest.mark.parametrize("n_outputs", [1, 2])
def test_a_path_equals_separate_fits(loss, n_outputs):
    X, Y = make_problem(n_outputs=n_outputs)
    y = Y[:, 0] if n_outputs == 1 else Y
    alphas = [1e-1, 1e-3, 1e-5]
    model = make_model(loss=loss, tol=1e-9)
    path = model.fit_path(X, y, alphas)
    assert not hasattr(model, "coef_")
    for fitted, alpha in zip(path, alphas, strict=True):
        single = make_model(loss=loss, tol=1e-9, alpha=alpha).fit(X, y)
        assert fitted.alpha_ == alpha
        assert_allclose(fitted.objective_, single.objective_, rtol=1e-8)
        assert fitted.predict(X).shape == y.shape
        assert_allclose(fitted.predict(X), single.predict(X), atol=1e-3)


def test_the_chosen_alpha_beats_far_too_much_and_far_too_little():
    X, Y = make_problem(n=300)
    X_new, Y_new = make_problem(n=300, seed=0)
    chosen = make_model(loss="huber").fit(X, Y[:, 0])
    errors = [
        np.median(np.abs(m.predict(X_new) - Y_new[:, 0]))
        for m in [chosen, *make_model(loss="huber").fit_path(X, Y[:, 0], [10.0, 1e-14])]
    ]
    assert errors[0] <= errors[1] / 2
    assert errors[0] <= 1.2 * errors[2]


def test_same_seed_same_chosen_alpha_and_model():
    X, Y = make_problem(n=200)
    first = make_model(loss="huber").fit(X, Y[:, 0])
    second = make_model(loss="huber").fit(X, Y[:, 0])
    assert first.alpha_ == second.alpha_
    assert (first.predict(X) == second.predict(X)).all()


def test_a_budget_that_ends_first_warns_and_says_how_far():
    X, Y = make_problem(n=200)
    with pytest.warns(ConvergenceWarning, match="after 1 iterations before reaching"):
        model = make_model(loss="pinball", alpha=1e-6, max_iter=1).fit(X, Y[:, 0])
    assert model.dual_gap_ > 1e-6


@pytest.mark.parametrize("n_outputs", [1, 2])
@pytest.mark.parametrize("loss", ["square", "huber"])
def test_stochastic_solvers_come_near_the_optimum(loss, n_outputs):
    X, Y = make_problem(n=200, n_outputs=n_outputs)
    y = Y[:, 0] if n_outputs == 1 else Y
    solver = StochasticSolver(learning_rate=0.05, n_epochs=300)
    best = make_model(loss=loss, alpha=1e-3).fit(X, y)
    adam = make_model(loss=loss, alpha=1e-3, solver=solver).fit(X, y)
    assert best.objective_ <= adam.objective_ <= 1.01 * best.objective_
    assert np.isinf(adam.dual_gap_)
    named = make_model(loss=loss, alpha=1e-3, solver="adam").fit(X, y)
    assert named.objective_ < 2 * best.objective_


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"loss": "hinge"}, ValueError, "`loss` must be a loss of residuals"),
        ({"loss": "absolute"}, ValueError, "`loss` must be a Loss or one of"),
        ({"solver": "newton"}, ValueError, "`solver` must be one of"),
        ({"solver": 3}, TypeError, "`solver` must be a name or a StochasticSolver"),
        ({"tol": 0.0}, ValueError, "`tol` must be in"),
        ({"max_iter": 0}, ValueError, "`max_iter` must be at least 1"),
        ({"verbose": -1}, ValueError, "`verbose` must be at least 0"),
        ({"alpha": -1.0}, ValueError, "`alpha` must be in"),
    ],
)
def test_bad_options_are_refused(options, error, message):
    X, Y = make_problem()
    with pytest.raises(error, match=message):
        make_model(**options).fit(X, Y[:, 0])


def test_pinball_of_several_targets_is_refused():
    X, Y = make_problem(n_outputs=2)
    with pytest.raises(ValueError, match="`y` must have one column for PinballLoss"):
        make_model(loss="pinball").fit(X, Y)


def test_pinball_of_one_target_takes_no_output_matrix():
    X, Y = make_problem()
    with pytest.raises(ValueError, match="`output` must be None for one target"):
        make_model(loss="pinball", output=[[2.0]]).fit(X, Y[:, 0])


@pytest.mark.parametrize("loss", ["huber", "pinball", "epsilon-insensitive"])
def test_one_row_is_predicted_as_it_is(loss):
    X, Y = make_problem()
    model = SketchedKernelRegressor(loss=loss).fit(X[:1], Y[:1, 0])
    assert_allclose(model.predict(X[:1]), Y[0, 0], atol=0.11)


def test_verbose_shows_objective_and_gap(capsys):
    X, Y = make_problem()
    make_model(loss="huber", alpha=1e-3, verbose=1).fit(X, Y[:, 0])
    assert "objective" in capsys.readouterr().err


def test_stochastic_solver_checks_its_settings():
    with pytest.raises(ValueError, match="`learning_rate` must be in"):
        StochasticSolver(learning_rate=-1)
    with pytest.raises(ValueError, match="`schedule` must be one of"):
        StochasticSolver(schedule="linear")


@pytest.mark.thin(every=3)
@pytest.mark.parametrize("seed", range(3))
def test_outliers_are_excluded_from_the_validation_of_robust_losses(seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(1000, 1))
    y = np.sin(X) + 0.1 * rng.normal(size=(1000, 1))
    outliers = rng.choice(1000, 20, replace=False)
    y[outliers] += 1e6
    design = ArrayDesign(np.hstack([X, X**3]))

    def score(targets):
        objective = ScalarObjective(targets, None, True, HuberLoss(kappa=0.3))
        return objective.errors_left_out(
            design, None, np.random.default_rng(0)
        ).errors.min()

    # of 200 rows held out about 4 are outliers, a loss of 6000 in the mean
    assert score(y) < 0.03
    y[:] = rng.standard_t(1.5, size=y.shape)
    assert score(y) > 0.1  # one in twenty at most is left out


@pytest.mark.thin(every=3)
@pytest.mark.parametrize("seed", range(3))
def test_a_path_ends_where_weaker_penalties_lose(seed, monkeypatch):
    rng = np.random.default_rng(seed)
    Z = rng.normal(size=(120, 40)) / np.arange(1, 41)
    y = Z[:, :1] + 0.5 * rng.normal(size=(120, 1))
    objective = ScalarObjective(y, None, True, HuberLoss(kappa=0.3))

    def choose():
        solved = []
        monkeypatch.setattr(
            ScalarObjective,
            "solve",
            lambda *known: solved.append(known[2]) or solve(*known),
        )
        alpha = objective.choose_alpha(ArrayDesign(Z), np.random.default_rng(0))
        return alpha, solved

    solve = ScalarObjective.solve
    alpha, tried = choose()
    monkeypatch.setattr(penalties, "_PATIENCE", 99)
    best, path = choose()
    assert alpha == best
    tried, path = tried[::5], path[::5]  # of five folds
    nearest = np.argmin(np.abs(np.log(path) - np.log(best)))
    assert tried == path[: len(tried)] and nearest + 3 <= len(tried) < 19


def joint_problem(n=1200, r=240, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-3, 3, size=(n, 1))
    # cosine features of decreasing size, as of a kernel
    Z = np.cos(X * np.arange(r) * 0.2 + np.arange(r)) * np.exp(-0.05 * np.arange(r))
    y = np.sin(2 * X) + (0.3 + 0.2 * (X > 0)) * rng.normal(size=(n, 1))
    T = QuantileOutput((0.2, 0.5, 0.8)).factor(3)
    return Z, JointQuantileObjective(y, None, True, (0.2, 0.5, 0.8), T)


@pytest.mark.thin(every=3)
@pytest.mark.parametrize("seed", range(3))
def test_a_penalty_of_a_smaller_problem_is_as_good_as_one_of_the_whole(seed):
    Z, objective = joint_problem(seed=seed)
    new_Z, new = joint_problem(2000, seed=100 + seed)
    design = ArrayDesign(Z)

    def loss(alpha):
        solution = objective.solve(design, alpha, SolveOptions(tol=1e-3))
        return new.mean_loss(new_Z @ solution.coef + solution.intercept)

    smaller = LeftOutErrors(
        objective, design, np.random.default_rng(seed)
    ).reduced_alpha()
    whole = LeftOutErrors(objective, design, np.random.default_rng(seed)).path()
    best = min(loss(alpha) for alpha in whole.alphas[6:16:3])
    assert loss(smaller) < 1.03 * best
    assert loss(10 * smaller) > loss(smaller) or loss(smaller / 10) > loss(smaller)


@pytest.mark.parametrize(
    "least, ratio", [(2e-3, 0.2), (0.5, 1.0), (1e-6, 0.01)], ids=str
)
def test_the_penalty_of_a_smaller_problem_is_corrected_by_ridge(
    least, ratio, rng, monkeypatch
):
    objective = ScalarObjective(rng.normal(size=(40, 1)), None, True, HuberLoss(0.1))
    best = {6: least, 2: 1e-2}  # by the number of features

    def path(part, alpha, guess):
        assert part.design.shape == (20, 2)
        assert_allclose(guess, 1e-2 * part.objective.slope_ratio())
        return AlphaPath(np.array([1.0, 0.1, 0.01]), np.array([2.0, 1.0, 2.0]))

    monkeypatch.setattr(
        LeftOutErrors, "_ridge_alpha", lambda part, _: best[part.design.shape[1]]
    )
    monkeypatch.setattr(LeftOutErrors, "path", path)
    left_out = LeftOutErrors(objective, ArrayDesign(rng.normal(size=(40, 6))), rng)
    assert_allclose(left_out.smaller_alpha(2, 20), ratio * 0.1)


def test_tails_of_robust_losses_are_cut_off(rng):
    Y = rng.standard_cauchy(size=(200, 2))
    Y[:150, 1] = 0.0  # has no scale
    objective = ScalarObjective(Y, None, True, HuberLoss())
    expected = np.clip(Y[:, 0], *np.quantile(Y[:, 0], [0.01, 0.99]))
    found = penalties.without_tails(objective)
    assert_array_equal(found, np.column_stack([expected, Y[:, 1]]))
    labels = replace(objective, loss=LogisticLoss())
    assert penalties.without_tails(labels) is Y


def test_the_vertex_of_a_parabola():
    values = 2.0 + 0.2 * np.square(np.arange(-1, 2) - 0.3)
    assert_allclose(penalties.vertex(*values), 0.3)
    assert penalties.vertex(1.0, 1.0, 1.0) == penalties.vertex(1.0, 2.0, 0.0) == 0.0


def test_the_ratio_of_slopes_is_that_of_weighted_means(rng):
    Y, weights = rng.normal(size=(31, 1)), rng.integers(1, 4, size=31)
    every = Y.repeat(weights)
    residual = np.abs(every - np.median(every))
    for loss, slopes in (
        (HuberLoss(0.5), np.minimum(residual, 0.5)),
        (PinballLoss(0.5), np.full(len(every), 0.5)),
    ):
        found = ScalarObjective(Y, weights / weights.mean(), True, loss).slope_ratio()
        assert_allclose(found, slopes.mean() / residual.mean(), rtol=0.03)


def test_errors_are_means_of_weighted_rows(rng):
    Y, fitted = rng.normal(size=(2, 30, 2))
    weights = rng.uniform(size=30)
    expected = np.average(np.square(Y - fitted), axis=0, weights=weights)
    square = regression_objective(Y, weights, True, "square")
    assert_allclose(square.errors(fitted), expected)
    huber = regression_objective(Y, weights, True, HuberLoss(0.5))
    norms = np.linalg.norm(Y - fitted, axis=1)
    expected = np.average(HuberLoss(0.5).value(norms), weights=weights)
    assert_allclose(huber.errors(fitted), [expected])


def test_outliers_do_not_change_the_correction_of_a_penalty():
    Z, objective = joint_problem()
    Y = objective.targets.copy()
    Y[::150] = 1e4
    design, rng = ArrayDesign(Z), np.random.default_rng
    clean = LeftOutErrors(objective, design, rng(0)).reduced_alpha()
    spoiled = LeftOutErrors(
        replace(objective, targets=Y), design, rng(0)
    ).reduced_alpha()
    assert 0.1 < spoiled / clean < 10


def test_a_smaller_problem_keeps_the_folds():
    Z, objective = joint_problem(n=600)
    blocks = np.arange(600).reshape(3, 200)
    folds = tuple(Fold(block, block) for block in blocks)
    design, rng = ArrayDesign(Z), np.random.default_rng
    grouped = replace(objective, folds=folds)
    found = {LeftOutErrors(grouped, design, rng(i)).reduced_alpha() for i in (0, 1)}
    assert len(found) == 1  # nothing is drawn at random
    assert found.pop() > 0


def test_a_guess_of_the_penalty_shortens_a_path_and_does_not_change_it(monkeypatch):
    monkeypatch.setattr(penalties, "_PATH_TOL", 1e-6)
    Z, base = joint_problem(n=600, r=40)
    signs = np.sign(base.targets - 0.2)
    known = ScalarObjective(signs, None, True, LogisticLoss()), ArrayDesign(Z)
    whole = LeftOutErrors(*known, np.random.default_rng(0)).path()
    near = LeftOutErrors(*known, np.random.default_rng(0)).path(None, whole.best)
    assert near.alphas[0] <= 30 * whole.best < whole.alphas[0]
    count = len(near.errors)
    assert 5 <= count < len(whole.errors)
    assert_allclose(near.errors, whole.errors[-count:], rtol=1e-4)
    assert near.best == whole.best
    # far too weak a guess: the first penalty is the best, and the path starts again
    far = LeftOutErrors(*known, np.random.default_rng(0)).path(None, 1e-9 * whole.best)
    assert len(far.alphas) == len(whole.alphas)
    assert np.argmin(far.errors) > 0


@pytest.mark.parametrize("loss", ["pinball", "huber"])
def test_a_guess_of_the_penalty_is_on_the_scale_of_the_loss(loss, rng):
    """A loss whose slopes do not grow has penalties in the inverse unit of targets."""
    Z = ArrayDesign(rng.normal(size=(80, 5)))
    y = Z.collect()[:, :1] + 0.3 * rng.normal(size=(80, 1))
    loss = PinballLoss(0.5) if loss == "pinball" else HuberLoss(1e9)
    power = -1 if loss == PinballLoss(0.5) else 0
    guesses = [
        LeftOutErrors(regression_objective(u * y, None, True, loss), Z, rng).guess()
        for u in (1.0, 1000.0)
    ]
    assert_allclose(guesses[1] / guesses[0], 1000.0**power, rtol=1e-6)


def test_the_path_of_few_rows_starts_near_the_penalty_of_ridge_regression(monkeypatch):
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(120, 5))
    y = np.sign(Z[:, :1] + 0.5 * rng.normal(size=(120, 1)))
    objective = ScalarObjective(y, None, True, LogisticLoss())
    tried = []
    path = LeftOutErrors._path

    def noted(left_out, alphas, least_count):
        tried.append(alphas[0])
        return path(left_out, alphas, least_count)

    monkeypatch.setattr(LeftOutErrors, "_path", noted)
    args = ArrayDesign(Z), np.random.default_rng(0)
    chosen = objective.choose_alpha(*args)
    strongest = LeftOutErrors(objective, *args).default_alphas()[0]
    assert chosen < tried[0] <= 0.1 * strongest


@pytest.mark.parametrize("d", [1, 2])
def test_only_labels_and_samples_within_a_tube_are_fitted(d):
    """Other losses keep falling without noise, also after a plateau."""
    Y = np.random.default_rng(0).normal(size=(30, d))
    fitted = {
        loss: regression_objective(Y, None, True, loss, None).fitted_loss()
        for loss in (
            SquareLoss(),
            HuberLoss(0.1),
            EpsilonInsensitiveLoss(0.4),
            SquaredEpsilonInsensitiveLoss(0.4),
        )
    }
    assert_allclose(list(fitted.values()), [0, 0, 0.01 * 0.4, 0.01 * 0.08])
    pinball = ScalarObjective(Y[:, :1], None, True, PinballLoss(0.3))
    counts = ScalarObjective(np.abs(Y[:, :1]), None, True, PoissonLoss())
    assert pinball.fitted_loss() == counts.fitted_loss() == 0


@pytest.mark.parametrize("loss", [HingeLoss(), SquaredHingeLoss(), LogisticLoss()])
def test_a_path_ends_once_labels_are_told_apart(loss, monkeypatch):
    """Weaker penalties take most of the time and leave the boundary where it is."""
    rng = np.random.default_rng(0)
    X, X_new = rng.normal(size=(2, 150, 3))
    y, signs = np.sign(X[:, :1]), np.sign(X_new[:, :1])
    X[:, :1] += 0.5 * y
    design = ArrayDesign(X)
    objective = ScalarObjective(y, None, True, loss)
    solve = ScalarObjective.solve
    solved = []

    def counted(self, *args):
        solved.append(len(args) > 3 and args[3] is not None)  # from another solution
        return solve(self, *args)

    monkeypatch.setattr(ScalarObjective, "solve", counted)
    path = LeftOutErrors(objective, design, np.random.default_rng(0)).path()
    assert len(solved) <= len(path.errors) + 1  # a failed start is the last one
    assert solved.count(True) >= 2
    monkeypatch.setattr(objectives, "_SEPARATED", 0.0)
    whole = LeftOutErrors(objective, design, np.random.default_rng(0)).path()
    assert len(path.errors) <= len(whole.errors) - 3
    assert_allclose(path.errors, whole.errors[: len(path.errors)])

    def missed(alpha):
        solution = solve(objective, design, alpha, SolveOptions(tol=1e-3))
        scores = X_new @ solution.coef + solution.intercept
        return np.mean(np.sign(scores) != signs)

    assert missed(path.best) <= missed(whole.best) + 0.01


@pytest.mark.thin(times=1)
@pytest.mark.parametrize("loss", [HingeLoss(), LogisticLoss(), PinballLoss(0.3)])
@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_problems_that_share_features_are_solved_as_by_themselves(
    loss, fit_intercept, dtype
):
    rng = np.random.default_rng(0)
    design = ArrayDesign(rng.normal(size=(300, 12)).astype(dtype))
    Y = np.sign(rng.normal(size=(300, 4)) + design.Z[:, :4])
    objective = ScalarObjective(Y, None, fit_intercept, loss)
    together = objective.solve(design, 1e-2, SolveOptions(tol=1e-9))
    for j, y in enumerate(Y.T):
        alone = solve_scalar(
            design, y, loss, 1e-2, fit_intercept=fit_intercept, tol=1e-9
        )
        assert_allclose(together.coef[:, j], alone.coef, rtol=1e-12, atol=1e-12)
        assert_allclose(together.intercept[j], alone.intercept, rtol=1e-12, atol=1e-12)


def test_the_penalty_of_many_classes_is_that_of_the_four_largest():
    rng = np.random.default_rng(0)
    design = ArrayDesign(rng.normal(size=(150, 6)))
    shares = np.array([0.05, 0.3, 0.1, 0.2, 0.05, 0.3])
    index = rng.choice(6, 150, p=shares / shares.sum())
    labels = np.where(index[:, None] == np.arange(6), 1.0, -1.0)
    largest = np.sort(np.argsort(-(labels > 0).sum(axis=0), kind="stable")[:4])
    whole = ScalarObjective(labels, None, True, HingeLoss())
    part = replace(whole, targets=labels[:, largest])
    found = [o.choose_alpha(design, np.random.default_rng(0)) for o in (whole, part)]
    assert found[0] == found[1]


def test_a_shared_gram_matrix_is_computed_once_and_never_changed():
    rng = np.random.default_rng(0)
    design = ArrayDesign(rng.normal(size=(50, 4)))
    features = shared(design, 3)
    found = features.gram()
    assert_allclose(found, design.Z.T @ design.Z, rtol=1e-12)
    found += 1.0
    assert_allclose(features.gram(), found - 1.0, rtol=1e-12)
    rows, weights = np.arange(0, 50, 3), rng.random(17)
    expected = design.gram(rows, weights)
    assert_allclose(features.gram(rows, weights), expected, rtol=1e-12)
    assert_allclose(features.gather(rows).collect(), design.Z[rows])
    assert_allclose(features.collect(), design.Z)
    assert_allclose(features.mv(np.ones(4)), design.Z.sum(axis=1))
    assert_allclose(features.rmv(np.ones(17), rows), design.Z[rows].sum(axis=0))
    expected = features.gram()
    features.blocks = None  # no feature is read again
    assert_allclose(features.gram(), expected, rtol=0)
    assert type(features) is type(design)  # products are made where the features are
    assert shared(design, 1) is design


def test_a_path_is_interpolated_around_its_minimum():
    alphas = np.logspace(1, -8, 19)
    errors = 3.0 + np.square(np.log(alphas / 2.7e-4))
    assert_allclose(AlphaPath(alphas, errors).interpolated, 2.7e-4, rtol=1e-9)
    assert_allclose(AlphaPath(alphas, errors[:13]).interpolated, 2.7e-4, rtol=1e-9)
    for errors in (alphas, -alphas, np.ones(19)):
        path = AlphaPath(alphas, errors)
        assert path.interpolated == path.best


def test_many_classes_take_the_penalty_of_a_smaller_problem(monkeypatch):
    reduced = LeftOutErrors.reduced_alpha
    smaller = []

    def recorded(self):
        smaller.append(reduced(self))
        return smaller[-1]

    monkeypatch.setattr(LeftOutErrors, "reduced_alpha", recorded)
    monkeypatch.setattr("nbsketch.fitting.objectives._SMALL_CLASSES", 350)
    rng = np.random.default_rng(0)
    X = rng.uniform(-3, 3, size=(600, 1))
    Z = np.cos(X * np.arange(100) * 0.2 + np.arange(100)) * 0.97 ** np.arange(100)
    label = np.digitize(
        np.sin(2 * X[:, 0]) + 0.3 * rng.normal(size=600), [-0.5, 0, 0.5]
    )
    signs = np.where(label[:, None] == np.arange(4), 1.0, -1.0)
    design = ArrayDesign(Z)

    def choices(columns):
        objective = ScalarObjective(signs[:, columns], None, True, HingeLoss())
        chosen = objective.choose_alpha(design, np.random.default_rng(1))
        path = LeftOutErrors(objective, design, np.random.default_rng(1)).path()
        return chosen, path

    def is_near(chosen, path):
        logs = -np.log(path.alphas[: len(path.errors)])
        return np.interp(-np.log(chosen), logs, path.errors) < 1.03 * path.errors.min()

    chosen, path = choices([0, 1, 2, 3])
    assert [chosen] == smaller
    assert is_near(chosen, path)
    assert is_near(*choices([0, 1, 2]))  # few unknowns: the whole path
    assert len(smaller) == 1


@pytest.mark.parametrize("n", [5, 103, 500])
def test_few_rows_are_each_held_out_once(n):
    folds = penalties.random_folds(n, np.random.default_rng(0))
    assert [len(f.test) // (n // 5) for f in folds] == [1] * 5
    assert all(fold.is_block for fold in folds)
    out = np.concatenate([fold.test for fold in folds])
    assert_array_equal(np.sort(out), np.arange(n))
    for count in (4, 501):
        assert penalties.random_folds(count, np.random.default_rng(0)) is None


def test_the_penalty_of_few_rows_is_that_of_five_folds():
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(100, 10)) / np.arange(1, 11)
    y = Z[:, :1] + 0.5 * rng.normal(size=(100, 1))
    objective, design = ScalarObjective(y, None, True, HuberLoss(0.3)), ArrayDesign(Z)
    folds = penalties.random_folds(100, np.random.default_rng(1))
    path = LeftOutErrors(objective, design, None).default_alphas()

    def mean_loss(alpha):
        total = 0.0
        for fold in folds:
            kept = fold.kept(100)
            found = solve_scalar(Z[kept], y[kept, 0], objective.loss, alpha, tol=1e-8)
            left = y[fold.test, 0] - Z[fold.test] @ found.coef - found.intercept
            total += objective.loss.value(left).sum()
        return total / 100

    losses = np.array([mean_loss(alpha) for alpha in path])
    found = objective.choose_alpha(design, np.random.default_rng(1))
    assert mean_loss(found) <= 1.005 * losses.min()


def test_a_warm_start_that_leads_astray_is_given_up(monkeypatch):
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(60, 5))
    y = Z[:, :1] + rng.normal(size=(60, 1))
    objective, design = ScalarObjective(y, None, True, HuberLoss(0.3)), ArrayDesign(Z)
    monkeypatch.setattr(penalties, "_PATH_TOL", 1e-8)
    known = objective, design
    expected = LeftOutErrors(*known, np.random.default_rng(0)).path()
    monkeypatch.setattr(penalties, "_WARM_STEPS", 1)
    found = LeftOutErrors(*known, np.random.default_rng(0)).path()
    assert_allclose(found.errors, expected.errors, rtol=1e-3)
