"""Other losses than the square by passes over columns, against stored features."""

import cvxpy as cp
import numpy as np
import pytest
from numpy.testing import assert_allclose
from reference import dense_sketch
from scipy.linalg import solve_triangular
from sklearn.exceptions import ConvergenceWarning

from nbsketch import (
    CountSketch,
    GaussianKernel,
    HuberLoss,
    IdentitySketch,
    JointQuantileRegressor,
    MaternKernel,
    PinballLoss,
    PSparsifiedSketch,
    SketchedKernelClassifier,
    SketchedKernelRegressor,
    SubsamplingSketch,
)
from nbsketch.fitting import certificate, choice, methods, objective, objectives, steps
from nbsketch.fitting import plan as sizes
from nbsketch.gram import SketchedColumns, columns
from nbsketch.losses import ELQ, Loss
from nbsketch.outputs import QuantileOutput
from nbsketch.solvers import passes, solve_joint_dual
from nbsketch.solvers.newton import solve_joint_pinball, solve_scalar
from nbsketch.solvers.passes import LandmarkDesign


class Stiff(Loss):
    """A loss of curvature 1/4 whose slopes end at 2: Huber's in other units."""

    elq = ELQ(4.0, 0.0, -2.0, 2.0)


LOSSES = ["huber", HuberLoss(0.1), "squared-epsilon-insensitive", Stiff(), "poisson"]
LABELS = ["logistic", "squared-hinge"]
KINKED = [PinballLoss(0.8), "epsilon-insensitive", "hinge"]


def draw_problem(seed):
    """Return columns, their whitened features, targets and options of a problem."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(60, 200))
    loss = (LOSSES + LABELS + KINKED)[seed % 10]
    X = rng.normal(size=(n, 2))
    score = np.sin(X @ rng.normal(size=2)) + 0.3 * rng.normal(size=n)
    y = score + rng.choice([0.0, 5.0]) * rng.standard_t(1, size=n)
    if loss == "poisson":
        y = rng.poisson(np.exp(score))
        y = np.log(y + 0.5)
    if loss in [*LABELS, "hinge"]:
        y = np.where(score > 0, 1.0, -1.0)
    kernel = [GaussianKernel(0.7), MaternKernel(2.0)][int(rng.integers(2))]
    recipe = [SubsamplingSketch, PSparsifiedSketch, CountSketch][int(rng.integers(3))]
    S = recipe(int(rng.integers(5, n // 2))).draw(n, seed)
    options = {"loss": loss, "alpha": 10 ** rng.uniform(-6, -1)}
    options["fit_intercept"] = bool(rng.random() < 0.7)
    if rng.random() < 0.4:
        weights = rng.exponential(size=n)
        options["sample_weight"] = weights / weights.mean()
    operator = SketchedColumns(kernel, X, S, dtype=np.float64)
    design = LandmarkDesign(operator, options["alpha"])
    K = kernel(X) @ dense_sketch(S).T
    return design, solve_triangular(np.triu(design.upper), K.T, trans=1).T, y, options


@pytest.mark.parametrize("seed", range(3))
def test_products_are_those_of_the_features(seed):
    design, Z, *_ = draw_problem(seed)
    n, s = Z.shape
    rng = np.random.default_rng(seed)
    W, A = rng.normal(size=(s, 2)), rng.normal(size=(n, 2))
    rows = np.arange(0, n, 3)
    close = {"rtol": 1e-6, "atol": 1e-6 * np.abs(Z).sum()}
    assert_allclose(design.mv(W), Z @ W, **close)
    assert_allclose(design.mv(W[:, 0]), Z @ W[:, 0], **close)
    assert_allclose(design.rmv(A), Z.T @ A, **close)
    assert_allclose(design.rmv(A[rows, 0], rows), Z[rows].T @ A[rows, 0], **close)
    assert_allclose(design.gather(rows).mv(W), Z[rows] @ W, **close)


@pytest.mark.thin(every=2)
@pytest.mark.parametrize("seed", range(60))
def test_gaps_bound_the_distance_from_the_minimum(seed):
    design, Z, y, options = draw_problem(seed)
    least = solve_scalar(Z, y, **options, tol=1e-8)
    tol = 5e-2 if options["loss"] in KINKED else 1e-3
    found = solve_scalar(design, y, **options, tol=tol)
    assert found.converged
    rounding = 1e-7 * abs(least.objective)
    assert found.objective - least.objective <= found.gap + rounding
    assert found.objective >= least.objective - least.gap - rounding
    # a solution is where the next search ends at once
    again = solve_scalar(design, y, **options, tol=tol, state=found.state)
    assert again.n_iter == 0


def test_passes_are_few():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(4000, 3))
    score = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2]
    S = SubsamplingSketch(200).draw(4000, 0)
    operator = SketchedColumns(MaternKernel(1.0), X, S)
    targets = {
        "huber": score + 0.1 * rng.standard_t(2, size=4000),
        "logistic": np.where(score + 0.3 * rng.normal(size=4000) > 0, 1.0, -1.0),
    }
    for loss, y in targets.items():
        before = operator.n_passes
        design = LandmarkDesign(operator, 1e-5)
        assert solve_scalar(design, y, loss, 1e-5, tol=1e-3).converged
        assert operator.n_passes - before <= 150
    X = rng.uniform(-1, 1, size=(3000, 5))
    y = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.1 * rng.normal(size=3000)
    S = SubsamplingSketch(700).draw(3000, 0)
    operator = SketchedColumns(MaternKernel(4.0), X, S)
    assert solve_scalar(
        LandmarkDesign(operator, 1e-7), y, "pinball", 1e-7, tol=5e-2
    ).converged
    assert operator.n_passes <= 300  # Newton steps took 500
    # within its bounds this loss is a quarter of the square: a system of equations
    quarter = solve_scalar(design, score.clip(-3, 3), Stiff(), 1e-3, tol=1e-3)
    assert quarter.converged and quarter.n_iter <= 5


@pytest.mark.parametrize(
    ("loss", "tol", "count", "most"),
    [("pinball", 5e-2, 1, 110), (HuberLoss(0.01), 1e-3, 2, 35)],  # 92 and 27 passes
)
def test_preconditioners_are_new_if_the_curvature_is(
    loss, tol, count, most, monkeypatch
):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(1000, 2))
    y = np.sin(3 * X[:, 0]) + X[:, 1] + 0.01 * rng.standard_t(2, size=1000)
    S = SubsamplingSketch(100).draw(1000, 0)
    operator = SketchedColumns(MaternKernel(2.0), X, S)
    made = []

    kind = passes.InverseHessian
    monkeypatch.setattr(passes, "InverseHessian", lambda P: made.append(P) or kind(P))
    design = LandmarkDesign(operator, 1e-4)
    assert solve_scalar(design, y, loss, 1e-4, tol=tol).converged
    assert len(made) == count and operator.n_passes <= most


def draw_levels(seed):
    """Return columns, their features and the arguments of a problem of levels."""
    design, Z, _, options = draw_problem(seed)
    rng = np.random.default_rng(seed)
    d = int(rng.integers(1, 5))
    levels = np.sort(rng.choice(np.arange(1, 20) / 20, size=d, replace=False))
    T = QuantileOutput(tuple(levels), rng.choice([0.0, 1.0, 100.0])).factor(d)
    y = np.sin(Z[:, 0]) + 0.3 * rng.standard_t(2, size=len(Z))
    del options["loss"]
    return design, Z, (y, levels, T, options.pop("alpha")), options


@pytest.mark.thin(every=2)
@pytest.mark.parametrize("seed", range(40))
def test_gaps_of_levels_bound_the_distance_from_the_minimum(seed):
    design, Z, known, options = draw_levels(seed)
    least = solve_joint_pinball(Z, *known, **options, tol=1e-8)
    found = solve_joint_pinball(design, *known, **options, tol=1e-2)
    assert found.converged and found.dual.shape == least.dual.shape
    y, levels, T, alpha = known
    res = y[:, None] - Z @ found.coef @ T - found.intercept
    losses = np.maximum(levels * res, (levels - 1) * res).sum(axis=1)
    value = np.average(losses, weights=options.get("sample_weight"))
    value += alpha / 2 * np.square(found.coef).sum()
    assert_allclose(found.objective, value, rtol=1e-6)
    rounding = 1e-7 * abs(least.objective)
    assert value - least.objective <= found.gap + rounding
    assert value >= least.objective - least.gap - rounding
    again = solve_joint_pinball(design, *known, **options, tol=1e-2, state=found.state)
    assert again.n_iter == 0


def test_all_rows_as_landmarks_have_the_quantiles_of_other_solvers():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2))
    y = np.sin(X[:, 0]) + 0.3 * rng.normal(size=60)
    levels, alpha = (0.2, 0.7), 1e-3
    T = QuantileOutput(levels, 1.0).factor(2)
    K = GaussianKernel(1.0)(X)
    columns = SketchedColumns(
        GaussianKernel(1.0), X, IdentitySketch().draw(60), dtype=np.float64
    )
    design = LandmarkDesign(columns, alpha)
    found = solve_joint_pinball(design, y, levels, T, alpha, tol=1e-4)
    dual = solve_joint_dual(K, y, levels, T, alpha, tol=1e-6, random_state=0)
    assert_allclose(found.objective, dual.objective, rtol=2e-4)
    root = np.linalg.cholesky(K + 1e-9 * np.eye(60))
    W, b = cp.Variable((60, 2)), cp.Variable((1, 2))
    r = y[:, None] - root @ W @ T - np.ones((60, 1)) @ b
    losses = [cp.maximum(t * r[:, j], (t - 1) * r[:, j]) for j, t in enumerate(levels)]
    total = cp.sum(losses[0] + losses[1]) / 60 + alpha / 2 * cp.sum_squares(W)
    least = cp.Problem(cp.Minimize(total)).solve(solver=cp.CLARABEL)
    assert_allclose(found.objective, least, rtol=2e-4)


@pytest.fixture
def surface():
    rng = np.random.default_rng(1)
    X = rng.uniform(-2, 2, size=(900, 2))
    y = np.sin(2 * X[:, 0]) * X[:, 1] + 0.1 * rng.standard_t(2, size=900)
    return X, y


@pytest.fixture
def by_passes(monkeypatch):
    """Solve sketches of more than 100 rows by passes; return the methods taken."""
    monkeypatch.setattr(sizes, "_LARGE_SIZE", 100)
    monkeypatch.setattr(sizes, "_LARGE_SEARCH", 100)
    taken = []
    kind = steps._kind

    def noted(problem, data):
        taken.append(kind(problem, data))
        return taken[-1]

    monkeypatch.setattr(steps, "_kind", noted)
    return taken


def regressor(**changes):
    given = {"bandwidth": 1.0, "size": 150, "alpha": 1e-4, "random_state": 0}
    return SketchedKernelRegressor(**{"loss": "huber"} | given | changes)


def test_fits_are_those_of_stored_features(surface, by_passes, monkeypatch):
    X, y = surface
    weights = np.random.default_rng(2).exponential(size=len(X))
    for loss, targets in (("huber", y), ("poisson", np.exp(y).clip(0, 20))):
        model = regressor(loss=loss).fit(X, targets, weights)
        assert by_passes[-1] is methods.Passes
        assert model.dual_gap_ <= 1e-3
        with monkeypatch.context() as patch:
            patch.setattr(sizes, "_LARGE_SIZE", 1000)
            stored = regressor(loss=loss).fit(X, targets, weights)
        assert by_passes[-1] is methods.Newton
        lost = model.objective_ / stored.objective_ - 1
        assert -1e-6 < lost <= model.dual_gap_
        apart = model.predict(X) - stored.predict(X)
        assert np.sqrt(np.mean(apart**2)) <= 0.02 * np.std(targets)


def test_memory_changes_no_fit(surface, by_passes, monkeypatch):
    kept = regressor().fit(*surface)
    monkeypatch.setattr(columns, "MEMORY", 0.0)
    monkeypatch.setattr(sizes, "_EVALUATED_AGAIN", 0)
    anew = regressor().fit(*surface)
    assert_allclose(anew.predict(surface[0]), kept.predict(surface[0]), atol=1e-4)


def test_dask_rows_have_the_same_fit(surface, by_passes):
    da = pytest.importorskip("dask.array")
    X, y = surface
    here = regressor(alpha=None).fit(X, y)
    there = regressor(alpha=None)
    there.fit(da.from_array(X, (300, 2)), da.from_array(y, 300))
    assert by_passes[-1] is methods.Passes
    assert_allclose(there.predict(X), here.predict(X), atol=1e-4)


def test_a_path_has_the_solutions_of_fits(surface, by_passes):
    alphas = [1e-3, 1e-5]
    models = regressor().fit_path(*surface, alphas)
    for alpha, model in zip(alphas, models, strict=True):
        fitted = regressor(alpha=alpha).fit(*surface)
        assert model.objective_ == pytest.approx(fitted.objective_, rel=1e-3)


def test_penalties_are_chosen_on_a_sample(surface, by_passes):
    X, y = surface
    model = regressor(alpha=None).fit(X, y)
    assert by_passes[-1] is methods.Passes
    assert np.mean(np.abs(model.predict(X) - np.sin(2 * X[:, 0]) * X[:, 1])) < 0.06


def test_labels_have_passes_for_a_given_penalty(surface, by_passes):
    X, y = surface
    labels = y > 0
    options = {"loss": "logistic", "bandwidth": 0.7, "size": 150, "random_state": 0}
    model = SketchedKernelClassifier(**options)
    assert model.set_params(alpha=1e-3).fit(X, labels).score(X, labels) > 0.9
    assert by_passes[-1] is methods.Passes
    thirds = np.digitize(y, [-0.5, 0.5])
    assert model.fit(X, thirds).score(X, thirds) > 0.8
    assert by_passes[-1] is methods.Passes
    model.set_params(alpha=None).fit(X, labels)
    assert by_passes[-1] is methods.Newton


def test_default_sizes():
    rows = (8200, 10_000, 20_000, 40_000, 10**7)
    found = [sizes.passes_size(n) for n in rows]
    assert found == [2733, 3333, 4500, 2500, 2500]
    assert found[2:] == [sizes.landmarks_size(n, 1) for n in rows[2:]]

    sizes_of_levels = [sizes.levels_size(n, 3) for n in (3999, 4000, 20_000, 10**7)]
    assert sizes_of_levels == [999, 1333, 4166, 2500]
    assert [sizes.levels_size(n, 1) for n in (5999, 6000)] == [1499, 2000]
    assert sizes.levels_size(20_000, 10) == 1250


@pytest.fixture
def levels_by_passes(by_passes, monkeypatch):
    """Use landmarks for levels of more than 300 rows; return the methods taken."""
    monkeypatch.setattr(sizes, "LEVELS_ROWS", 600)
    monkeypatch.setattr(objective, "JOINT_ROWS", 300)
    return by_passes


def joint(**changes):
    given = {"quantiles": (0.2, 0.5, 0.7), "bandwidth": 1.0, "random_state": 0}
    return JointQuantileRegressor(**given | changes)


def test_default_landmarks_of_levels(surface, levels_by_passes, monkeypatch):
    X, y = surface
    weights = np.random.default_rng(2).exponential(size=len(X))
    model = joint().fit(X, y, weights)
    assert levels_by_passes[-1] is methods.Passes
    assert model.size_ == 300 and model.dual_gap_ <= 5e-2
    assert np.mean(np.abs(model.predict(X)[:, 1] - np.sin(2 * X[:, 0]) * X[:, 1])) < 0.1
    joint(quantiles=(0.5,)).fit(X, y)
    assert levels_by_passes[-1] is methods.Passes
    model = joint(alpha=1e-4).fit(X, y, weights)
    sketch = {"sketch": "subsampling", "size": 300, "alpha": 1e-4, "tol": 1e-6}
    given = joint(**sketch).fit(X, y, weights)
    assert levels_by_passes[-1] is methods.Passes
    assert given.objective_ == model.objective_
    monkeypatch.setattr(sizes, "LEVELS_ROWS", 3 * len(X) + 1)
    stored = joint(**sketch).fit(X, y, weights)
    assert levels_by_passes[-1] is methods.Newton
    assert -1e-6 < model.objective_ / stored.objective_ - 1 <= model.dual_gap_
    apart = model.predict(X) - stored.predict(X)
    assert np.sqrt(np.mean(apart**2)) <= 0.05 * np.std(y)
    model.dual_gap_ = 1e-2
    assert "0.001, raised to 0.05 for passes" in model.summary()


def test_levels_of_dask_rows_have_the_same_fit(surface, levels_by_passes):
    da = pytest.importorskip("dask.array")
    X, y = surface
    here = joint(alpha=1e-4).fit(X, y)
    there = joint(alpha=1e-4)
    there.fit(da.from_array(X, (300, 2)), da.from_array(y, 300))
    assert levels_by_passes[-1] is methods.Passes
    assert_allclose(there.predict(X), here.predict(X), atol=1e-4)


def test_levels_without_a_usable_gap_are_told(surface, levels_by_passes, monkeypatch):
    monkeypatch.setattr(methods, "LARGEST_GAP", 0.0)
    with pytest.warns(ConvergenceWarning):
        model = joint(alpha=1e-4, max_iter=1).fit(*surface)
    assert levels_by_passes[-1] is methods.Passes and model.dual_gap_ > 5e-2


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(
    ("limit", "sketch"),
    [("_MOST_PASSES", SubsamplingSketch(300)), ("_MOST_STEPS", IdentitySketch())],
)
def test_a_chosen_penalty_has_few_steps(surface, by_passes, monkeypatch, limit, sketch):
    """A given one has as many as it needs: no other penalty is tried."""
    X, y = surface
    monkeypatch.setattr(methods, "_FEATURE_ROWS", 0)
    monkeypatch.setattr(methods, limit, 3)
    monkeypatch.setattr(methods, "LARGEST_GAP", np.inf)
    monkeypatch.setattr(certificate, "LARGEST_GAP", np.inf)
    model = SketchedKernelRegressor(
        loss="pinball", bandwidth=1.0, sketch=sketch, random_state=0
    )
    assert model.fit(X, y).n_iter_ == 3
    alpha = model.alpha_
    assert model.fit_path(X, y, [alpha])[0].n_iter_ > 3
    assert model.set_params(alpha=alpha).fit(X, y).n_iter_ > 3


@pytest.mark.parametrize(("gamma", "ratio"), [(0.0, 3.0), (1e6, 1.0)])
def test_the_penalty_of_levels_is_that_of_the_level_at_the_center(gamma, ratio):
    """Parallel levels share a function, the others have one each."""
    output = QuantileOutput((0.1, 0.6, 0.9), gamma)
    factor = output.factor(3)
    y = np.arange(5.0)[:, None]
    levels = objectives.JointQuantileObjective(y, None, True, output.quantiles, factor)
    central, found = levels.central()
    assert central.loss == PinballLoss(0.6)
    assert found == pytest.approx(ratio)


def test_the_strongest_of_equal_penalties_is_chosen_for_levels(surface):
    X, y = surface
    model = joint().fit(X, y)
    problem = model.prepare(X, y)
    data = steps.sketch_rows(problem, steps.default_size(problem))
    central, _ = problem.objective.central()
    sample = choice.LevelsSample.draw(data, central)
    grid = sample.search(data.kernel, 1e-2)
    errors = np.array([c.error for c in sample.scored(grid)])
    equal = np.array([c.lam for c in grid])[errors <= 1.005 * errors.min()]
    assert sample.chosen(grid).lam == max(sample.best(grid).lam, *equal)


def test_without_a_usable_gap_features_are_stored(surface, by_passes, monkeypatch):
    monkeypatch.setattr(methods, "LARGEST_GAP", 0.0)
    assert regressor().fit(*surface).dual_gap_ <= 1e-6


def test_the_summary_tells_the_tolerance(surface, by_passes):
    model = regressor(tol=1e-9).fit(*surface)
    assert "raised to 0.001" in model.summary()


def test_without_noise_penalties_are_raised_until_they_converge(
    surface, by_passes, monkeypatch
):
    X, _ = surface
    monkeypatch.setattr(methods, "_CLOSED_FORM_WORK", 0.0)  # features are dear
    model = regressor(alpha=None).fit(X, np.sin(2 * X[:, 0]) * X[:, 1])
    assert by_passes[-1] is methods.Passes
    assert model.alpha_ >= 2e-7 / 150
    assert model.dual_gap_ <= 0.1


@pytest.mark.parametrize("loss", ["pinball", "epsilon-insensitive"])
def test_default_landmarks_of_losses_with_kinks(surface, by_passes, monkeypatch, loss):
    X, y = surface
    monkeypatch.setattr(sizes, "_EXACT_WORK", 0)
    model = regressor(loss=loss, size=None, alpha=None).fit(X, y)
    assert by_passes[-1] is methods.Passes
    assert model.size_ == 300 and model.dual_gap_ <= 5e-2
    assert np.mean(np.abs(model.predict(X) - np.sin(2 * X[:, 0]) * X[:, 1])) < 0.06
    model.dual_gap_ = 1e-2
    assert "1e-06, raised to 0.05 for passes" in model.summary()
    regressor(loss=loss).fit(X, y)  # as a size that is given
    assert by_passes[-1] is methods.Passes
