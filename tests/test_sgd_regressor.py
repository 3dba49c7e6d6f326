"""SketchedSGDRegressor: fits, early stopping, and streams."""

import pickle
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone

import nbsketch
from nbsketch import (
    GaussianKernel,
    HuberLoss,
    LinearKernel,
    PinballLoss,
    SketchedKernelRegressor,
    SketchedSGDRegressor,
    SubsamplingSketch,
)
from nbsketch._report.validation import random_generator
from nbsketch.fitting.descent import centered_features, precondition
from nbsketch.fitting.objective import Problem
from nbsketch.fitting.objectives import regression_objective
from nbsketch.fitting.plan import Plan
from nbsketch.fitting.sketched import sketch_rows
from nbsketch.solvers.sgm import (
    REGIMES,
    StreamState,
    average_start,
    sgm_iterates,
    sgm_regime,
    solve_sgm,
    stream_sgm,
)

N = 300


def data(n=N, d=None, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, size=(n, 3))
    y = np.sin(2 * X[:, 0]) + X[:, 1] + 0.3 * rng.normal(size=n) + 1.0
    if d is None:
        return X, y
    return X, np.column_stack([y, X[:, :1] ** 2, X[:, 2:] - y[:, None]])[:, :d]


def regressor(**options):
    common = {"bandwidth": 2.0, "size": 30, "random_state": 0}
    return SketchedSGDRegressor(**(common | options))


def features(model, X):
    """Return the features of rows by a fitted model, from its public attributes."""
    S, k = model.sketch_.weights, model.kernel_
    inner = S @ k(model.landmarks_) @ S.T
    values, vectors = np.linalg.eigh(inner)
    kept = values > 1e-12 * values[-1]
    return (S @ k(model.landmarks_, X)).T @ (vectors[:, kept] / np.sqrt(values[kept]))


def drawn_rng(model):
    """Return the source of what is random in a fit after the sketch is drawn."""
    return random_generator(model.random_state).spawn(3)[2]


# fits -------------------------------------------------------------------------------


@pytest.mark.parametrize("d", [None, 1, 3])
@pytest.mark.parametrize("average", [False, True])
@pytest.mark.parametrize("fit_intercept", [False, True])
def test_a_fit_is_the_solver_on_the_features(d, average, fit_intercept):
    X, y = data(d=d)
    model = regressor(
        step=0.5, batch_size=4, n_epochs=3, average=average,
        fit_intercept=fit_intercept,
    ).fit(X, y)  # fmt: skip
    new, _ = data(20, seed=5)
    solution = solve_sgm(
        features(model, X), y, step=0.5, batch_size=4, n_steps=225, average=average,
        fit_intercept=fit_intercept, rng=drawn_rng(model),
    )  # fmt: skip
    expected = features(model, new) @ solution.coef + solution.intercept
    assert_allclose(model.predict(new), expected, rtol=0, atol=1e-8)
    assert model.coef_.shape == (30,) + (() if d is None else (d,))
    assert np.shape(model.intercept_) == (() if d is None else (d,))
    assert (model.n_steps_, model.n_iter_, model.path_) == (225, 3, None)
    assert model.rank_ == len(solution.coef)


def test_defaults_come_near_ridge():
    X, y = data(3000)
    new, target = data(1000, seed=1)
    ridge = SketchedKernelRegressor(bandwidth=2.0, size=30, random_state=0).fit(X, y)
    model = regressor().fit(X, y)
    assert model.n_steps_ == 20 * 3000
    assert model.score(new, target) > ridge.score(new, target) - 0.01


@pytest.mark.parametrize("loss", ["huber", "epsilon-insensitive", "pinball"])
def test_other_losses(loss):
    X, y = data(2000)
    y[::20] += 30.0
    exact = SketchedKernelRegressor(
        bandwidth=2.0, size=30, loss=loss, alpha=1e-3, random_state=0
    ).fit(X, y)
    model = regressor(loss=loss, alpha=1e-3, step=0.3).fit(X, y)
    assert np.mean(np.abs(model.predict(X) - exact.predict(X))) < 0.05


def test_vector_losses():
    X, Y = data(2000, d=3)
    Y[::20] += 30.0
    exact = SketchedKernelRegressor(
        bandwidth=2.0, size=30, loss="huber", alpha=1e-3, random_state=0
    ).fit(X, Y)
    model = regressor(loss=HuberLoss(), alpha=1e-3, step=0.3).fit(X, Y)
    assert np.mean(np.abs(model.predict(X) - exact.predict(X))) < 0.05


@pytest.mark.parametrize("weight", [1e-8, 1e-30])
def test_rows_of_tiny_weight_do_not_shorten_steps(weight):
    X, y = np.random.default_rng(0).normal(size=(2, 200, 2))
    y = 2 * np.sin(X[:, 0]) + X[:, 1] + 0.05 * y[:, 0]
    new = np.random.default_rng(1).normal(size=(300, 2))
    weights = np.where(np.arange(200) < 100, weight, 1.0)
    wrong = np.where(weights < 1, y + 50, y)
    model = SketchedSGDRegressor(random_state=0).fit(X, wrong, sample_weight=weights)
    assert model.score(new, 2 * np.sin(new[:, 0]) + new[:, 1]) > 0.98


@pytest.mark.parametrize("name", REGIMES)
def test_regimes(name):
    X, y = data(2000)
    model = regressor(regime=name, average=False).fit(X, y)
    assert model.n_steps_ == sgm_regime(name, 2000).n_steps
    assert model.score(X, y) > 0.6
    smooth = regressor(regime=name, source=1.0, capacity=0.5).fit(X[:500], y[:500])
    regime = sgm_regime(name, 500, source=1.0, capacity=0.5)
    assert smooth.n_steps_ == regime.n_steps
    passes = regime.n_steps * regime.batch_size / 500
    assert smooth.n_iter_ == max(1, round(passes))


def test_rows_of_weight_zero_do_not_count():
    X, y = data()
    weights = np.ones(N)
    weights[::3] = 0.0
    wrong = np.where(weights > 0, y, 1e6)
    model = regressor(average=False).fit(X, wrong, sample_weight=weights)
    assert_allclose(model.intercept_, y[weights > 0].mean(), atol=2.0)
    assert model.score(X, y) > 0.5
    equal = regressor(average=False).fit(X, y, sample_weight=np.full(N, 3.0))
    # the same rows, found in another way
    assert equal.score(X, y) == pytest.approx(
        regressor(average=False).fit(X, y).score(X, y), abs=0.1
    )


def test_the_same_seed_gives_the_same_model():
    X, y = data()
    first, second, other = (
        regressor(random_state=seed, early_stopping=True).fit(X, y)
        for seed in (0, 0, 1)
    )
    assert_allclose(first.predict(X), second.predict(X), rtol=0, atol=1e-12)
    assert np.abs(first.predict(X) - other.predict(X)).max() > 1e-6


def test_any_sketch_and_kernel():
    X, y = data()
    model = SketchedSGDRegressor(
        GaussianKernel(2.0), sketch=SubsamplingSketch(20), random_state=0
    )
    assert model.fit(X, y).landmarks_.shape == (20, 3)
    gram = GaussianKernel(2.0)(X)
    given = SketchedSGDRegressor(
        "precomputed", sketch=SubsamplingSketch(20), random_state=0
    ).fit(gram, y)
    assert_allclose(given.predict(gram), model.predict(X), rtol=0, atol=1e-8)


def test_the_scale_of_a_kernel_does_not_matter():
    X, y = data()
    small = SketchedSGDRegressor(LinearKernel(), random_state=0).fit(X, y)
    large = SketchedSGDRegressor(LinearKernel(), random_state=0).fit(1000 * X, y)
    assert_allclose(small.predict(X), large.predict(1000 * X), rtol=0, atol=1e-8)


def test_single_precision():
    X, y = data()
    model = regressor().fit(X.astype(np.float32), y)
    assert model.landmarks_.dtype == np.float32
    assert_allclose(model.predict(X), regressor().fit(X, y).predict(X), atol=0.05)
    model = regressor().partial_fit(X.astype(np.float32), y).partial_fit(X, y)
    assert model.score(X, y) > 0.5


# learned length scales ----------------------------------------------------------------


def smooth(n, seed=0):
    """Return rows, targets that depend on three features of five, and clean targets."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 5))
    f = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2]
    return X, f + 0.3 * rng.normal(size=n), f


def learned(**options):
    return SketchedSGDRegressor(**({"size": 200, "random_state": 0} | options))


@pytest.fixture(scope="module")
def ridge_error():
    X, y, _ = smooth(2500)
    new, _, target = smooth(2000, seed=1)
    model = SketchedKernelRegressor(size=200, random_state=0).fit(X, y)
    return np.mean((model.predict(new) - target) ** 2)


def test_defaults_learn_as_the_default_regressor_does(ridge_error):
    X, y, _ = smooth(2500)
    new, _, target = smooth(2000, seed=1)
    model = learned().fit(X, y)
    assert model.length_scales_[:3].max() < model.length_scales_[3:].min()
    assert model.alpha_ > 0
    error = np.mean((model.predict(new) - target) ** 2)
    assert error + 0.09 < 1.1 * (ridge_error + 0.09)  # 0.09: variance of the noise
    assert error < 1.5 * ridge_error


def test_a_stream_learns_as_the_default_regressor_does(ridge_error):
    X, y, _ = smooth(2500)
    new, _, target = smooth(2000, seed=1)
    model = stream(learned(), parts(X, y, 600, 1500))
    error = np.mean((model.predict(new) - target) ** 2)
    assert error + 0.09 < 1.1 * (ridge_error + 0.09)


@pytest.mark.parametrize("loss", ["square", "huber", "pinball"])
@pytest.mark.parametrize("weighted", [False, True])
def test_a_penalty_is_solved_for_in_preconditioned_features(loss, weighted):
    X, y = data(3000)
    weights = np.where(np.arange(3000) % 2, 0.5, 2.0) if weighted else None
    options = {"loss": loss, "alpha": 1e-6, "bandwidth": 6.0, "size": 30}
    exact = SketchedKernelRegressor(**options, random_state=0).fit(X, y, weights)
    model = SketchedSGDRegressor(**options, random_state=0).fit(X, y, weights)
    plain = SketchedSGDRegressor(**options, random_state=0, step=1.0)
    distance = np.mean(np.square(model.predict(X) - exact.predict(X)))
    far = np.mean(np.square(plain.fit(X, y, weights).predict(X) - exact.predict(X)))
    assert distance < (5e-3 if loss == "pinball" else 5e-4)
    assert distance < far / 3


def test_preconditioned_features_have_the_given_covariance():
    X, y = data(200)
    plan = Plan("gaussian", 2.0, None, "gaussian", 15, 0)
    objective = regression_objective(y[:, None], None, True, "square")
    drawn = sketch_rows(Problem(X, objective, plan, True), 15)
    P, center, weights = precondition(drawn, 1e-3, objective)
    # of all 200 rows, the center from 150 of them
    Z = centered_features(drawn.sketch_map, drawn.inputs.rows, P, center)
    plain, design = drawn.design(keep=True)
    rotation = np.linalg.lstsq(plain, P, rcond=None)[0]
    centered = design.Z - design.Z.mean(axis=0)
    hessian = centered.T @ centered / 200 + 1e-3 * np.eye(15)
    assert_allclose(rotation.T @ hessian @ rotation, np.eye(15), atol=0.5)
    assert_allclose(Z, design.Z @ rotation - center, atol=1e-3)
    assert np.abs(Z.mean(axis=0)).max() < 0.3
    # the squared norm of R v is the weighted squared norm of v
    weights = np.diag(weights)
    assert_allclose(rotation.T @ rotation, weights, rtol=1e-6, atol=1e-3)


def test_the_penalty_and_the_step_that_are_given_are_kept():
    X, y, _ = smooth(300)
    assert learned(alpha=0.0, size=20).fit(X, y).alpha_ == 0.0
    assert learned(alpha=1e-3, size=20).fit(X, y).alpha_ == 1e-3
    assert learned(regime="I", size=20).fit(X, y).alpha_ == 0.0
    assert regressor().fit(X, y).alpha_ == 0.0


def test_a_learned_stream_goes_on_after_it_was_saved(tmp_path):
    X, y, _ = smooth(1200)
    model = stream(learned(size=50, loss="pinball"), parts(X, y, 400)[:1])
    model.save(tmp_path / "model.npz")
    loaded = nbsketch.load(tmp_path / "model.npz")
    for either in (model, loaded):
        either.partial_fit(X[400:], y[400:])
    assert_array_equal(loaded.predict(X), model.predict(X))
    assert "steps" in loaded.summary()


def test_the_fit_before_a_stream_counts_as_one_pass_in_its_average():
    point = np.arange(6.0).reshape(2, 3)
    for count in (1, 5, 64, 100):
        state = StreamState.after(point, count, 1.0)
        start = average_start(count)
        assert_allclose(state.totals.sum(axis=0) / (count - start), point)
    start = StreamState.after(point, 0, 1.0)
    assert start.totals.size == start.n_steps == 0
    for wrong in (np.zeros((2, 3, 2)), np.full((2, 2, 3), np.nan)):
        with pytest.raises(ValueError, match="`totals` must be finite, of one of"):
            replace(start, totals=wrong)


# early stopping ---------------------------------------------------------------------


def overfitting(**options):
    """Return a model and data on which more steps do harm in the end."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-3, 3, size=(60, 1))
    X_val = rng.uniform(-3, 3, size=(200, 1))
    y, y_val = (np.sin(x[:, 0]) + 0.8 * rng.normal(size=len(x)) for x in (X, X_val))
    common = {"bandwidth": 0.15, "sketch": "subsampling", "size": 60, "step": 1.0}
    model = SketchedSGDRegressor(**(common | {"random_state": 0} | options))
    return model, (X, y), {"X_val": X_val, "y_val": y_val}


@pytest.mark.parametrize("average", [False, True])
def test_the_best_iterate_is_kept(average):
    model, train, others = overfitting(
        early_stopping=True, n_epochs=300, average=average, step=0.1
    )
    model.fit(*train, **others)
    steps, errors = model.path_["n_steps"], model.path_["error"]
    best = errors.argmin()
    residuals = others["y_val"] - model.predict(others["X_val"])
    assert_allclose(np.mean(residuals**2) / 2, errors[best], rtol=1e-9)
    assert model.n_steps_ == steps[best]
    assert 0 < best < len(steps) - 1
    assert (np.diff(steps) > 0).all()


def test_errors_are_those_of_the_iterates():
    model, (X, y), others = overfitting(early_stopping=True, n_epochs=300)
    model.fit(X, y, **others)
    Z, Z_val = features(model, X), features(model, others["X_val"])
    iterates = sgm_iterates(
        Z, y, step=1.0, batch_size=1, checkpoints=model.path_["n_steps"].tolist(),
        fit_intercept=True, average=True, rng=drawn_rng(model),
    )  # fmt: skip
    for iterate, error in zip(iterates, model.path_["error"], strict=True):
        residuals = others["y_val"] - Z_val @ iterate.coef - iterate.intercept
        assert_allclose(np.mean(residuals**2) / 2, error, rtol=1e-6)


def test_it_stops_early():
    model, train, others = overfitting(early_stopping=True, n_epochs=20_000)
    model.fit(*train, **others)
    last = model.path_["n_steps"][-1]
    assert last < 20_000 * 60 / 10
    assert last > 2 * model.n_steps_ + 60
    assert model.path_["n_steps"][-2] <= 2 * model.n_steps_ + 60


def test_rows_held_out_are_not_learned_from():
    X, y = data(200)
    model = regressor(early_stopping=True, validation_fraction=0.25, n_epochs=10)
    model.fit(X, y)
    assert model.path_["n_steps"][-1] == 10 * 150
    # the fit with one row of two shows which of them was held out
    X, y = np.array([[0.0], [100.0]]), np.array([0.0, 7.0])
    pair = SketchedSGDRegressor(
        bandwidth=1.0, sketch="identity", early_stopping=True, random_state=0
    ).fit(X, y)
    fitted = np.abs(pair.predict(X) - y) < 1e-9
    assert fitted.sum() == 1


def test_early_stopping_of_a_loss_is_by_that_loss():
    model, train, others = overfitting(early_stopping=True, loss=PinballLoss(0.9))
    model.fit(*train, **others)
    residuals = others["y_val"] - model.predict(others["X_val"])
    error = PinballLoss(0.9).value(residuals).mean()
    assert_allclose(error, model.path_["error"].min(), rtol=1e-9)


def test_held_out_rows_have_a_weight():
    X, _ = data(100)
    weights = np.zeros(100)
    weights[:10] = 1.0
    wrong = np.where(weights > 0, 0.0, 1e9)
    model = regressor(early_stopping=True, size=5)
    model.fit(X, wrong, sample_weight=weights)
    assert model.path_["error"].max() == 0.0


# streams ----------------------------------------------------------------------------


def parts(X, y, *cuts):
    rows = np.split(np.arange(len(X)), cuts)
    return [(X[part], y[part]) for part in rows]


def stream(model, chunks):
    for X, y in chunks:
        model.partial_fit(X, y)
    return model


@pytest.mark.parametrize("d", [None, 3])
@pytest.mark.parametrize("average", [False, True])
def test_a_stream_is_one_pass_in_order(d, average):
    X, y = data(d=d)
    model = stream(regressor(average=average), parts(X, y, 100, 101, 250))
    state = None
    for rows, targets in parts(X, y, 100, 101, 250):
        coef, intercept, state = stream_sgm(
            features(model, rows), targets, "square", state, step=1.0, batch_size=1,
            fit_intercept=True, average=average,
        )  # fmt: skip
    expected = features(model, X) @ coef + intercept
    assert_allclose(model.predict(X), expected, rtol=0, atol=1e-8)
    assert (model.n_steps_, model.n_iter_, model.path_) == (N, 1, None)
    assert model._stream.n_steps - average_start(N) > N / 2


def test_it_does_not_matter_where_a_stream_is_cut():
    X, y = data()
    whole = stream(regressor(), parts(X, y, 100))
    cut = stream(regressor(), parts(X, y, 100, 101, 150, 299))
    assert_allclose(cut.predict(X), whole.predict(X), rtol=0, atol=1e-10)


def test_the_sketch_is_fixed_by_the_first_call():
    X, y = data()
    model = regressor().partial_fit(X[:100], y[:100])
    sketch, landmarks, kernel = model.sketch_, model.landmarks_, model.kernel_
    assert model.sketch_.shape == (30, 100)
    model.partial_fit(X[100:], y[100:])
    assert model.sketch_ is sketch
    assert model.landmarks_ is landmarks
    assert model.kernel_ == kernel


def test_a_stream_learns():
    X, y = data(6000)
    new, target = data(1000, seed=1)
    model = stream(regressor(), parts(X, y, *range(1000, 6000, 500)))
    assert model.score(new, target) > 0.85
    assert stream(regressor(), parts(X, y, 1000)[:1]).score(new, target) < 0.85


def test_a_stream_of_quantiles():
    X, y = data(6000)
    model = regressor(loss=PinballLoss(0.9), step=0.3)
    stream(model, parts(X, y, *range(1000, 6000, 500)))
    assert abs(np.mean(y <= model.predict(X)) - 0.9) < 0.05


def test_memory_does_not_grow_with_a_stream():
    X, y = data(2000)
    model = regressor().partial_fit(X[:500], y[:500])
    size = len(pickle.dumps(model))
    model.partial_fit(X[500:], y[500:])
    assert abs(len(pickle.dumps(model)) - size) < 100


def test_a_stream_goes_on_from_a_fit():
    X, y = data()
    model = regressor(average=False).fit(X, y)
    before, n_steps = model.predict(X), model.n_steps_
    model.partial_fit(X[:1], y[:1])
    assert model.n_steps_ == n_steps + 1
    z = features(model, X[:1])[0]
    square = np.square(features(model, X)).sum(axis=1).max()
    move = (y[0] - before[0]) * (features(model, X) @ z / (2 * square) + 0.5)
    assert_allclose(model.predict(X) - before, move, rtol=0, atol=1e-8)


def test_an_averaged_fit_is_where_a_stream_starts():
    X, y = data()
    model = regressor(early_stopping=True).fit(X, y)
    last = clone(model).set_params(average=False, early_stopping=False)
    again = regressor().fit(X, y)
    before = again.predict(X)
    again.partial_fit(X[:1], before[:1])  # nothing to learn
    assert_allclose(again.predict(X), before, rtol=0, atol=1e-9)
    assert np.abs(last.fit(X, y).predict(X) - before).max() > 1e-6


def test_fit_forgets_a_stream():
    X, y = data()
    model = stream(regressor(), parts(X, y, 100)).fit(X, y)
    assert_allclose(model.predict(X), regressor().fit(X, y).predict(X), atol=1e-12)


def test_weights_of_a_stream_are_visits():
    X, y = data()
    times = np.arange(N) % 3
    first = regressor().partial_fit(X, y)
    weighted = clone(first).partial_fit(X, y).partial_fit(X, y, sample_weight=times)
    repeated = clone(first).partial_fit(X, y)
    repeated.partial_fit(np.repeat(X, times, axis=0), np.repeat(y, times))
    assert_allclose(weighted.predict(X), repeated.predict(X), rtol=0, atol=1e-10)


def test_a_saved_stream_goes_on(tmp_path):
    X, y = data()
    model = stream(regressor(), parts(X[:200], y[:200], 100))
    model.save(tmp_path / "model.npz")
    loaded = nbsketch.load(tmp_path / "model.npz")
    assert_array_equal(loaded.predict(X), model.predict(X))
    weights = np.full(100, 1.5)  # the visits are drawn: they go on as well
    for either in (model, loaded):
        either.partial_fit(X[200:], y[200:], sample_weight=weights)
    assert_array_equal(loaded.predict(X), model.predict(X))


def test_a_saved_fit_comes_back(tmp_path):
    X, y = data(d=3)
    model = regressor(early_stopping=True).fit(X, y)
    model.save(tmp_path / "model.npz")
    loaded = nbsketch.load(tmp_path / "model.npz")
    assert_array_equal(loaded.predict(X), model.predict(X))
    assert_array_equal(loaded.path_["error"], model.path_["error"])


def test_a_call_that_fails_changes_nothing():
    X, y = data()
    model = regressor().partial_fit(X, y)
    before = model.predict(X)
    with pytest.raises(ValueError, match="NaN"):
        model.partial_fit(X, np.full(N, np.nan))
    model.set_params(step=1e6)
    with pytest.raises(FloatingPointError, match="`step` must be smaller"):
        model.partial_fit(X, y)
    assert_array_equal(model.predict(X), before)
    assert model.n_steps_ == N
    fresh = regressor(batch_size=0)
    for method in (fresh.fit, fresh.partial_fit):
        with pytest.raises(ValueError, match="`batch_size` must be"):
            method(X, y)
    assert not hasattr(fresh, "coef_")


# arguments --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"step": -1.0}, "`step` must be in"),
        ({"batch_size": 0}, "`batch_size` must be at least 1"),
        ({"n_epochs": 0}, "`n_epochs` must be at least 1"),
        ({"alpha": -1.0}, "`alpha` must be in"),
        ({"average": 2}, "`average` must be one of"),
        ({"early_stopping": "yes"}, "`early_stopping` must be one of"),
        ({"validation_fraction": 1.0}, "`validation_fraction` must be in"),
        ({"fit_intercept": None}, "`fit_intercept` must be one of"),
        ({"regime": "V"}, "`regime` must be one of"),
        ({"regime": "I", "source": 0.0}, "`source` must be in"),
        ({"regime": "I", "capacity": 2.0}, "`capacity` must be in"),
        ({"regime": "I", "step": 0.1}, "`regime` must be None unless"),
        ({"loss": "hinge"}, "`loss` must be a loss of residuals"),
    ],
)
def test_errors_name_the_argument(options, words):
    with pytest.raises(ValueError, match=words):
        regressor(**options).fit(*data())


def test_errors_of_data():
    X, Y = data(d=2)
    with pytest.raises(ValueError, match="`y` must have one column"):
        regressor(loss="pinball").fit(X, Y)
    with pytest.raises(ValueError, match="`early_stopping` needs at least two samples"):
        regressor(early_stopping=True, size=1).fit(X[:1], Y[:1])
    model = regressor().partial_fit(X, Y)
    with pytest.raises(ValueError, match=r"`y` must have shape \(300, 2\)"):
        model.partial_fit(X, Y[:, 0])
    with pytest.raises(ValueError, match="features"):
        model.partial_fit(X[:, :2], Y)


@pytest.mark.parametrize(
    ("options", "others", "words"),
    [
        ({}, (True, True), "`early_stopping` must be True with `X_val`"),
        (
            {"early_stopping": True},
            (True, False),
            "`X_val` and `y_val` must be passed together",
        ),
        (
            {"early_stopping": True},
            (False, True),
            "`X_val` and `y_val` must be passed together",
        ),
    ],
)
def test_errors_of_validation_data(options, others, words):
    X, y = data()
    given = [
        value if wanted else None for value, wanted in zip((X, y), others, strict=True)
    ]
    with pytest.raises(ValueError, match=words):
        regressor(**options).fit(X, y, X_val=given[0], y_val=given[1])


def test_validation_targets_have_the_shape_of_the_targets():
    X, y = data()
    with pytest.raises(ValueError, match="`y_val` must have shape"):
        regressor(early_stopping=True).fit(X, y, X_val=X, y_val=y[:-1])


@pytest.mark.parametrize("options", [{"regime": "I"}, {"early_stopping": True}])
def test_a_stream_has_no_end(options):
    with pytest.raises(ValueError, match="a stream has no end"):
        regressor(**options).partial_fit(*data())


def test_some_row_has_a_weight():
    with pytest.raises(ValueError, match="weight"):
        regressor().fit(*data(), sample_weight=np.zeros(N))
