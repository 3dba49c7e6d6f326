"""Losses other than the square without a sketch: what the estimators fit and choose."""

import warnings

import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose
from sklearn.exceptions import ConvergenceWarning

import nbsketch
from nbsketch import SketchedKernelClassifier, SketchedKernelRegressor
from nbsketch.fitting import choice, methods, steps
from nbsketch.fitting import plan as sizes
from nbsketch.fitting.objectives import ScalarObjective
from nbsketch.kernels import PrecomputedKernel
from nbsketch.losses import as_loss
from nbsketch.solvers import solve_dual

N = 400


@pytest.fixture
def few(monkeypatch):
    """Let the dual alone solve more than 100 rows, and fit 120 rows of a sample."""
    monkeypatch.setattr(steps, "_LEAST_ROWS", 100)
    monkeypatch.setattr(methods, "_FEATURE_ROWS", 100)
    monkeypatch.setattr(choice.DualSample, "most_rows", 120)
    monkeypatch.setattr(choice, "_VALIDATION", 80)


@pytest.fixture
def data(rng):
    X = rng.uniform(-2, 2, size=(N, 3))
    y = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 0] + 0.2 * rng.standard_t(2, size=N)
    return X, y


def options(**more):
    known = {"sketch": "identity", "random_state": 0, "preprocessing": None}
    return known | more


@pytest.mark.parametrize("loss", ["huber", "pinball", "epsilon-insensitive"])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_the_solution_is_that_of_features(loss, fit_intercept, data, rng, monkeypatch):
    X, y = data
    weights = rng.exponential(size=N) * (rng.random(N) < 0.9)
    known = options(loss=loss, bandwidth=1.0, alpha=1e-3, fit_intercept=fit_intercept)
    monkeypatch.setattr(steps, "_LEAST_KINKS", N)
    features = SketchedKernelRegressor(**known).fit(X, y, weights)
    monkeypatch.setattr(steps, "_LEAST_KINKS", 100)
    monkeypatch.setattr(steps, "_LEAST_ROWS", 100)
    found = SketchedKernelRegressor(**known).fit(X, y, weights)
    assert found.dual_gap_ <= 1e-4 and found.coef_.shape == (np.sum(weights > 0),)
    assert_allclose(found.objective_, features.objective_, rtol=2e-4)
    scale = np.ptp(y)
    assert_allclose(found.predict(X), features.predict(X), atol=2e-2 * scale)


@pytest.mark.parametrize("loss", ["hinge", "squared-hinge", "logistic"])
def test_classes_are_those_of_features(loss, data, monkeypatch):
    X, y = data
    labels = np.digitize(y, [-0.5, 0.5])
    known = options(loss=loss, bandwidth=1.0, alpha=1e-3)
    monkeypatch.setattr(steps, "_LEAST_KINKS", N)
    features = SketchedKernelClassifier(**known).fit(X, labels)
    monkeypatch.setattr(steps, "_LEAST_KINKS", 100)
    monkeypatch.setattr(steps, "_LEAST_ROWS", 100)
    found = SketchedKernelClassifier(**known).fit(X, labels)
    assert_allclose(found.objective_, features.objective_, rtol=2e-4)
    assert np.mean(found.predict(X) == features.predict(X)) > 0.99


@pytest.mark.parametrize(
    "loss, more, method",
    [
        ("pinball", {}, "Dual"),
        ("huber", {}, "Newton"),
        ("pinball", {"cv": 5}, "Newton"),
    ],
)
def test_kinks_of_few_rows_are_solved_by_the_dual(loss, more, method, data):
    X, y = data
    for n in (101, N):
        planned = SketchedKernelRegressor(loss=loss, **more).plan(X[:n], y[:n])
        assert planned.method == method
    few = SketchedKernelRegressor(loss=loss, **more).plan(X[:100], y[:100])
    assert few.method == "Newton"


@pytest.mark.parametrize("n_classes, warm", [(2, True), (5, False)])
def test_a_fit_starts_from_the_mean_of_the_splits(n_classes, warm, data, monkeypatch):
    X, y = data
    labels = np.argsort(np.argsort(y)) * n_classes // N
    calls = []

    def recorded(*args, state, **options):
        for solution in solve(*args, state=state, **options):
            calls.append((state, solution.state))
            yield solution

    solve = ScalarObjective.dual_path
    monkeypatch.setattr(ScalarObjective, "dual_path", recorded)
    model = SketchedKernelClassifier(loss="hinge", bandwidth=1.0, random_state=0)
    model.fit(X, labels)
    start, end = calls[-1]
    assert (start is not None) == warm
    if start:
        assert start.coef.shape == start.dual.shape == (N, 1)
        assert np.corrcoef(start.dual[:, 0], end.dual[:, 0])[0, 1] > 0.9
        share = (start.dual * end.dual).sum() / np.square(end.dual).sum()
        assert 0.9 < share < 1.1


def test_penalty_and_width_are_chosen_on_a_sample(few, data):
    X, y = data
    model = SketchedKernelRegressor(loss="huber", sketch="identity", random_state=0)
    model.fit(X[:300], y[:300])
    errors = np.abs(y[300:] - model.predict(X[300:]))
    assert np.mean(errors) < 0.75 * np.mean(np.abs(y[300:] - np.median(y)))
    again = SketchedKernelRegressor(loss="huber", sketch="identity", random_state=0)
    assert again.fit(X[:300], y[:300]).alpha_ == model.alpha_ > 0


def test_a_path_is_that_of_single_fits(few, data):
    X, y = data
    known = options(loss="pinball", bandwidth=1.0)
    alphas = [1e-2, 1e-3]
    path = SketchedKernelRegressor(**known).fit_path(X, y, alphas)
    for alpha, model in zip(alphas, path, strict=True):
        single = SketchedKernelRegressor(**known, alpha=alpha).fit(X, y)
        gap = methods.least_tol("kinked", True, 10_000)
        assert_allclose(model.objective_, single.objective_, rtol=gap)


def test_a_precomputed_kernel_has_the_same_solution(few, data):
    X, y = data
    known = options(loss="huber", alpha=1e-3)
    kernel = nbsketch.GaussianKernel(1.0)
    rows = SketchedKernelRegressor(kernel, **known).fit(X, y)
    matrix = SketchedKernelRegressor(PrecomputedKernel(), **known).fit(kernel(X), y)
    assert_allclose(matrix.predict(kernel(X)), rows.predict(X), atol=1e-6)
    chosen = options(loss="huber")
    assert SketchedKernelRegressor("precomputed", **chosen).fit(kernel(X), y).alpha_ > 0


def test_a_fit_that_falls_short_warns(few, data):
    X, y = data
    known = options(loss="pinball", bandwidth=1.0, alpha=1e-4, max_iter=2)
    with pytest.warns(ConvergenceWarning, match="relative distance"):
        assert SketchedKernelRegressor(**known).fit(X, y).dual_gap_ > 1e-4


def test_a_callback_stops_the_fit(few, data):
    X, y = data
    known = options(loss="pinball", bandwidth=1.0, alpha=1e-3)
    steps = []

    def third(state):
        steps.append(state.iteration)
        return state.stage == "solver" and state.iteration >= 3

    with pytest.warns(ConvergenceWarning, match="has stopped"):
        SketchedKernelRegressor(**known, callback=third).fit(X, y)
    assert max(steps) == 3


def test_single_precision_that_is_too_coarse_is_left(few, data, monkeypatch):
    monkeypatch.setattr(methods, "_DOUBLE_ROWS", 0)
    X, y = data
    known = options(loss="huber", bandwidth=20.0, alpha=1e-7)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        found = SketchedKernelRegressor(**known).fit(X, y)
    assert found.dual_gap_ <= 1e-4


# The default, if neither the sketch nor its size is given.

MANY = 600


@pytest.fixture
def many(rng):
    X = rng.uniform(-2, 2, size=(MANY, 3))
    return X, np.sin(2 * X[:, 0]) + X[:, 1] + 0.2 * rng.standard_t(2, size=MANY)


def default(**more):
    return {"random_state": 0, "bandwidth": 1.0, "alpha": 1e-3} | more


@pytest.mark.parametrize("loss", ["huber", "pinball"])
def test_the_default_has_all_rows(loss, many):
    X, y = many
    known = default(kernel="gaussian", loss=loss)
    found = SketchedKernelRegressor(**known).fit(X, y)
    assert found.sketch_.is_identity and found.size_ == MANY
    least = solve_dual(nbsketch.GaussianKernel(1.0)(X), y, found.loss_, 1e-3, tol=1e-7)
    assert found.dual_gap_ <= 1e-6
    assert_allclose(found.objective_, least.objective, rtol=2e-6)
    assert "the default for 600 samples" in found.summary()


@pytest.mark.parametrize("loss", ["hinge", "logistic"])
@pytest.mark.parametrize(("classes", "size"), [(2, MANY), (3, MANY), (5, 500)])
def test_few_classes_have_all_rows(loss, classes, size, many):
    X, y = many
    labels = np.digitize(y, np.quantile(y, np.arange(1, classes) / classes))
    found = SketchedKernelClassifier(**default(loss=loss)).fit(X, labels)
    assert found.size_ == size and found.dual_gap_ <= 1e-6


@pytest.mark.parametrize(
    "more",
    [
        {"cv": 3},
        {"kernel": "linear", "bandwidth": None},
        {"solver": "adam"},
        {"sketch": "subsampling"},
        {"size": 500},
    ],
    ids=["cv", "linear", "adam", "sketch", "size"],
)
def test_others_have_a_sketch(more, many):
    X, y = many
    found = SketchedKernelRegressor(**default(loss="huber", **more)).fit(X, y)
    assert found.size_ == (3 if more.get("kernel") == "linear" else 500)


def test_the_default_of_other_inputs(many):
    X, y = many
    known = default(loss="huber")
    found = SketchedKernelRegressor(**known).fit(X, y)
    assert SketchedKernelRegressor(**known).fit(sp.csr_array(X), y).size_ == 500
    blocks = da.from_array(X, chunks=(200, 3)), da.from_array(y, chunks=200)
    of_blocks = SketchedKernelRegressor(**known).fit(*blocks)
    assert of_blocks.size_ == MANY
    assert_allclose(of_blocks.coef_, found.coef_, atol=1e-12)


def test_two_outputs_have_a_sketch(many):
    X, y = many
    Y = np.column_stack([y, y])
    assert SketchedKernelRegressor(**default(loss="huber")).fit(X, Y).size_ == 500


def test_few_rows_that_the_dual_does_not_solve_have_features(rng):
    X = rng.uniform(-2, 2, size=(MANY, 3))
    y = np.sign(np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2])
    known = default(loss="squared-hinge", alpha=1e-9)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        found = SketchedKernelClassifier(**known).fit(X, y)
    assert found.size_ == MANY and found.dual_gap_ <= 1e-6
    K = nbsketch.GaussianKernel(1.0)(X)
    assert not solve_dual(K, y, "squared-hinge", 1e-9, tol=1e-6).converged


def test_of_many_classes_the_largest_choose_the_penalty(few, data, monkeypatch):
    X, y = data
    labels = np.digitize(y, np.quantile(y, np.arange(1, 7) / 7))
    drawn = []
    draw = choice.DualSample.draw.__func__

    def kept(cls, *known):
        drawn.append(draw(cls, *known))
        return drawn[0]

    monkeypatch.setattr(choice.DualSample, "draw", classmethod(kept))
    known = options(loss="logistic", bandwidth=1.0)
    found = SketchedKernelClassifier(**known).fit(X, labels)
    assert drawn[0].objective.targets.shape[1] == 4 and found.coef_.shape == (N, 7)


def test_outliers_among_validation_rows_do_not_choose_the_penalty(rng):
    truth = rng.normal(size=(200, 1))
    targets = truth + 0.1 * rng.normal(size=(200, 1))
    targets[:8] += 100.0
    validation = ScalarObjective(targets, None, True, as_loss("huber"))
    splits = [(np.arange(0), np.arange(200))]
    sample = choice.DualSample(None, validation, splits, rng)
    near, biased = truth, truth + 0.05  # toward the outliers
    grid = [choice.Choice(0.0, None, 2.0, biased), choice.Choice(0.0, None, 1.0, near)]
    assert sample.best(grid).fitted is near
    assert validation.mean_loss(biased) < validation.mean_loss(near)


@pytest.mark.parametrize(("share", "index"), [(5e-5, 1), (1e-2, 2)])
def test_of_penalties_that_interpolate_the_strongest_is_chosen(rng, share, index):
    """Their errors differ by the accuracy of the fits; weaker ones take longer."""
    y = rng.normal(size=(200, 1))
    validation = ScalarObjective(y, None, True, as_loss("absolute_error"))
    sample = choice.DualSample(None, validation, [(y[:0], np.arange(200))], rng)
    fits = 0.0 * y, 0.9 * y, (0.9 + share) * y
    grid = [choice.Choice(0.0, None, 4.0**-k, fit) for k, fit in enumerate(fits)]
    assert sample._strongest(sample.scored(grid)) == index


@pytest.mark.parametrize(
    "loss, least", [("huber", "0.0001"), ("pinball", "0.01"), ("square", "0.001")]
)
def test_a_tolerance_that_is_raised_is_said(few, data, monkeypatch, loss, least):
    monkeypatch.setattr(sizes, "_DENSE_ROWS", 100)
    known = options(loss=loss, bandwidth=1.0, alpha=1e-4, tol=1e-9)
    model = SketchedKernelRegressor(**known).fit(*data)
    model.dual_gap_ = float(least) / 2  # a fit may get further than it has to
    text = model.summary()
    assert f"tol           1e-09, raised to {least} for passes" in text
    small = SketchedKernelRegressor(**known | {"sketch": "subsampling", "size": 20})
    assert "raised" not in small.fit(*data).summary()


@pytest.fixture
def landmarks(few, monkeypatch):
    """Let more than 100 rows have 100 landmarks by default."""
    monkeypatch.setattr(sizes, "_EXACT_WORK", 0)
    monkeypatch.setattr(sizes, "_NEWTON_SIZE", 100)
    monkeypatch.setattr(sizes, "passes_size", lambda n: 100)
    monkeypatch.setattr(sizes, "_ITERATIVE_SIZE", 100)


@pytest.mark.parametrize("loss", ["huber", "pinball", "logistic"])
def test_default_landmarks_have_the_penalty_of_all_rows(landmarks, data, loss):
    X, y = data
    estimator = SketchedKernelRegressor
    if loss == "logistic":
        estimator, y = SketchedKernelClassifier, y > 0
    sketched = estimator(loss=loss, random_state=0, preprocessing=None).fit(X, y)
    exact = estimator(loss=loss, **options()).fit(X, y)
    assert sketched.sketch_.shape[0] == 100 and exact.sketch_.is_identity
    # Without a limit of time or landmarks the same splits choose them.
    assert_allclose(sketched.alpha_, exact.alpha_, rtol=1e-6)
    assert_allclose(sketched.kernel_.bandwidth, exact.kernel_.bandwidth, rtol=1e-6)


@pytest.mark.parametrize(
    "given", [{"size": 100}, {"sketch": "subsampling"}, {"cv": 3}, {"kernel": "linear"}]
)
def test_other_sketches_choose_their_penalty_on_their_features(landmarks, data, given):
    model = SketchedKernelRegressor(loss="huber", random_state=0, **given)
    if "kernel" not in given:
        model.set_params(bandwidth=1.0)
    problem = model.prepare(*data)
    method = steps.select_method(
        problem, steps.sketch_rows(problem, steps.default_size(problem))
    )
    assert type(method) is methods.Newton
