"""The estimators for tables: errors, intervals, weights, threads, files."""

import pickle
from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.metrics import r2_score
from tables import small_leaves, training

import nbsketch
from nbsketch import (
    DependentRowsWarning,
    OutlierWarning,
    TabularKernelClassifier,
    TabularKernelRegressor,
)
from nbsketch.files import Encoder
from nbsketch.tabular import fit
from nbsketch.tabular.ridge import LandmarkFunction


def target(X):
    return np.sin(3 * X[:, 0]) * X[:, 1] + (X[:, 2] > 0)


def some_table(n=300, noise=0.1, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, size=(n, 5))
    return X, target(X) + noise * rng.normal(size=n)


@pytest.fixture(scope="module")
def leaves():
    """Return a model with a base and leaves."""
    X, y = some_table(800)
    with small_leaves(leaf_rows=200):
        return TabularKernelRegressor(random_state=0).fit(X, y)


@pytest.fixture(scope="module")
def new():
    return some_table(1500, seed=1)


def rmse(model, X, y):
    return float(np.sqrt(np.mean(np.square(model.predict(X) - y))))


def test_error_is_near_the_noise_and_is_known(leaves, new):
    error = rmse(leaves, *new)
    assert error < 0.15  # 0.1 of it is noise
    assert_allclose(leaves.loo_error_, error, rtol=0.1)
    relevance = leaves.feature_relevance_
    assert relevance.max() == 1 and relevance[:3].min() > 3 * relevance[3:].max()


def test_intervals_cover_and_quantiles_ascend(leaves, new):
    X, y = new
    for coverage in (0.5, 0.9):
        low, high = leaves.predict_interval(X, coverage).T
        assert_allclose(np.mean((low <= y) & (y <= high)), coverage, atol=0.05)
    levels = np.array([0.05, 0.5, 0.95])
    quantiles = leaves.predict_quantiles(X, levels)
    assert (np.diff(quantiles, axis=1) > 0).all()
    assert_allclose((y[:, None] <= quantiles).mean(axis=0), levels, atol=0.03)


def test_the_distribution_function_is_the_inverse_of_the_quantiles(leaves, new):
    X = new[0][:50]
    levels = np.linspace(0.02, 0.98, 25)
    values = leaves.predict_quantiles(X, levels)
    assert_allclose(leaves.predict_cdf(X, values), np.tile(levels, (50, 1)))
    assert_array_equal(leaves.predict_quantiles(X, levels[3]), values[:, 3:4])
    grid = leaves.predict_cdf(X, [-50.0, 0.0, 50.0])
    assert grid.shape == (50, 3) and (np.diff(grid, axis=1) >= 0).all()
    assert_array_equal(grid[:, [0, 2]], [[0.0, 1.0]] * 50)
    assert leaves.predict_cdf(X, 0.5).shape == (50, 1)
    with pytest.raises(ValueError, match=r"or have shape \(k,\) or \(50, k\)"):
        leaves.predict_cdf(X, values[:3])


def test_probabilities_of_new_targets_are_uniform(leaves, new):
    X, y = new
    found = leaves.predict_cdf(X, y[:, None])[:, 0]
    assert_allclose(np.quantile(found, [0.1, 0.5, 0.9]), [0.1, 0.5, 0.9], atol=0.03)


@pytest.mark.parametrize("weighted", [False, True])
def test_intervals_cover_a_target_that_most_samples_share(weighted):
    inside = []
    for seed in range(5):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(600, 3))  # unrelated to the claims
        y = np.where(rng.random(600) < 0.05, rng.gamma(2.0, 500.0, 600), 0.0)
        weights = rng.exponential(size=100) if weighted else None
        model = TabularKernelRegressor(random_state=0).fit(X[:100], y[:100], weights)
        low, high = model.predict_interval(X[100:], 0.8).T
        inside.append(np.mean((low <= y[100:]) & (y[100:] <= high)))
    assert np.mean(inside) > 0.8 and min(inside) > 0.65


def test_intervals_follow_the_noise():
    X, _ = some_table(500)
    rng = np.random.default_rng(2)
    y = X[:, 0] + np.exp(2 * X[:, 1]) * rng.normal(size=len(X))
    model = TabularKernelRegressor(random_state=0).fit(X, y)
    at = np.zeros((2, 5))
    at[:, 1] = -0.8, 0.8
    low, high = model.predict_interval(at, 0.8).T
    assert 8 < (high - low)[1] / (high - low)[0] < 60  # exp(3.2) = 24.5


def test_models_do_not_depend_on_threads(monkeypatch):
    X, y = some_table(200)
    found = []
    for threads in (1, 2):
        monkeypatch.setenv("OMP_NUM_THREADS", str(threads))
        with small_leaves(leaf_rows=100):
            model = TabularKernelRegressor(random_state=0).fit(X, y)
        found.append(model.predict(X))
    assert_array_equal(*found)


def test_saved_models_predict_the_same(leaves, new, tmp_path):
    leaves.save(tmp_path / "model.npz")
    again = nbsketch.load(tmp_path / "model.npz")
    X = new[0][:100]
    assert_array_equal(again.predict(X), leaves.predict(X))
    assert_array_equal(again.predict_interval(X), leaves.predict_interval(X))
    assert again.summary() == leaves.summary()
    for word in ("800, 5 columns", "300 landmarks", "laplacian, 4 leaves"):
        assert word in leaves.summary()


def test_predictions_stay_within_the_range_of_the_targets(leaves):
    X, y = some_table(800)
    far = 1e3 * np.random.default_rng(3).normal(size=(50, 5))
    edge = np.clip(far, X.min(axis=0), X.max(axis=0))
    assert_array_equal(leaves.predict(far), leaves.predict(edge))
    machine = leaves.machine_
    points = machine.prepare(X[:9])
    margin = 0.1 * np.ptp(y)
    for step, end in (1e3, y.max() + margin), (-1e3, y.min() - margin):
        wrong = replace(machine, center=machine.center + step)
        assert_allclose(wrong.predict(points), end)
    names = "center", "y_low", "y_high"
    moved = replace(machine, **{name: getattr(machine, name) + 1e3 for name in names})
    assert_allclose(moved.predict(points), machine.predict(points) + 1e3)


def test_rows_of_weight_zero_are_left_out():
    X, y = some_table(200)
    weights = np.repeat([1.0, 0.0], [150, 50])
    spoiled = np.where(weights > 0, y, 1e3)
    model = TabularKernelRegressor(random_state=0)
    expected = model.fit(X[:150], y[:150]).predict(X)
    assert_array_equal(model.fit(X, spoiled, weights).predict(X), expected)


def test_weights_pull_predictions():
    X = np.repeat(some_table(100)[0], 2, axis=0)
    y = np.tile([0.0, 1.0], 100)
    model = TabularKernelRegressor(random_state=0)
    assert_allclose(model.fit(X, y).predict(X[:20]), 0.5, atol=0.15)
    weighted = model.fit(X, y, sample_weight=1 + 8 * y).predict(X[:20])
    assert_allclose(weighted, 0.9, atol=0.15)


def test_several_outputs_share_the_model():
    X, y = some_table(200)
    Y = np.column_stack([y, 3 - 2 * y])
    model = TabularKernelRegressor(random_state=0).fit(X, Y)
    predicted = model.predict(X[:50])
    assert_allclose(predicted[:, 1], 3 - 2 * predicted[:, 0], atol=1e-6)
    assert model.predict_interval(X[:7], 0.5).shape == (7, 2, 2)
    assert model.predict_quantiles(X[:7], [0.1, 0.5, 0.9]).shape == (7, 2, 3)
    values = model.predict_quantiles(X[:7], [0.1, 0.5, 0.9])
    assert_allclose(model.predict_cdf(X[:7], values), [[[0.1, 0.5, 0.9]] * 2] * 7)
    assert_allclose(model.loo_error_[1], 2 * model.loo_error_[0], rtol=1e-6)


def test_single_precision_is_enough(new):
    X, y = some_table(150)
    model = TabularKernelRegressor(random_state=0)
    expected = model.fit(X, y).predict(new[0][:200])
    narrow = model.fit(X.astype(np.float32), y)
    assert model.machine_.rows.dtype == np.float32
    assert_allclose(narrow.predict(new[0][:200].astype(np.float32)), expected, atol=0.1)


@pytest.mark.thin(every=2)
@pytest.mark.parametrize("leaf_rows", [None, 200])
def test_groups_are_left_out_together(leaf_rows):
    """Within a group targets are equal, and so are features but for noise."""
    n, rng = 250, np.random.default_rng(0)
    groups = np.arange(n) // 10
    centers, levels = rng.normal(size=(n // 10, 4)), rng.normal(size=n // 10)
    X = centers[groups] + 0.01 * rng.normal(size=(n, 4))
    y = levels[groups]
    alone = TabularKernelRegressor(random_state=0)
    whole = TabularKernelRegressor(cv=5, random_state=0)
    with nullcontext() if leaf_rows is None else small_leaves(leaf_rows=leaf_rows):
        with pytest.warns(DependentRowsWarning):
            alone.fit(X, y)
        whole.fit(X, y, groups=groups)
    # There is nothing to learn for a new group: the error is the spread of the levels
    assert alone.loo_error_ < 0.3 * y.std()
    assert whole.loo_error_ > 0.8 * y.std()


@pytest.mark.parametrize("model", [TabularKernelRegressor, TabularKernelClassifier])
def test_effort_says_what_takes_its_place(model):
    for effort in ("fast", "high"):
        with pytest.raises(TypeError, match=r"no parameter 'effort': .* partners="):
            model(effort=effort, random_state=0)
    assert "effort" not in model().get_params()
    assert clone(model(partners=None, max_seconds=3)).max_seconds == 3


def test_the_expected_error_is_that_of_weighted_rows(leaves, rng):
    residual, weights = rng.normal(size=(40, 2)), rng.uniform(size=40)
    errors = training(residual, residual, weights)
    found = leaves._expected_error(residual, errors, 1.0)
    expected = np.average(np.square(residual), axis=0, weights=weights)
    assert_allclose(np.square(found), expected)


def test_predictions_are_the_stack_of_base_and_leaves(leaves, new):
    machine = leaves.machine_
    assert isinstance(machine.members[0], LandmarkFunction)
    points = machine.prepare(leaves.columns_.transform(new[0][:50]))
    assert len(machine.members) == 3
    assert_allclose(machine.weights.sum(), 1)
    out = 0.0
    for member, weight in zip(machine.members, machine.weights, strict=True):
        out += weight * member.predict(points, machine.rows)
    out = machine.center + machine.spread * out
    assert_allclose(leaves.predict(new[0][:50]), out[:, 0], rtol=1e-10)
    encode = Encoder()
    encode(machine, "machine")
    size = sum(array.nbytes for array in encode.arrays.values())
    assert size > machine.rows.nbytes
    assert f"model of {size / 1e6:.3g} MB" in leaves.summary()


def test_pickles_do_not_have_what_predictions_prepare(leaves, new):
    copied = pickle.loads(pickle.dumps(leaves))
    size = len(pickle.dumps(copied))
    expected = leaves.predict(new[0])
    assert_array_equal(copied.predict(new[0]), expected)
    assert len(pickle.dumps(copied)) == size


def test_a_callback_is_told_and_can_stop(monkeypatch):
    X, y = some_table(300)
    stages, steps, told = [], [], fit.report_search

    def stop(state):
        stages.append(state.stage)
        return True

    def counted(iteration, error):
        steps.append(iteration)
        return told(iteration, error)

    monkeypatch.setattr(fit, "report_search", counted)
    model = TabularKernelRegressor(callback=stop, random_state=0)
    with small_leaves(leaf_rows=150):
        model.fit(X, y)
        assert stages == ["length-scales"]  # it is not called again
        assert len(steps) == 1  # and the search has stopped
        assert rmse(model, X, y) < 0.2 * y.std()
        del steps[:]
        clone(model).set_params(callback=lambda state: False).fit(X, y)
    assert len(steps) > 10


def test_a_callback_is_told_how_many_members_have_leaves():
    X, y = some_table(300)
    states = []
    model = TabularKernelRegressor(callback=states.append, random_state=0)
    with small_leaves(leaf_rows=150):
        model.fit(X, y)
    told = [state[1:3] for state in states if state.stage == "leaves"]
    assert told == [(k, told[0][1]) for k in range(1, len(told) + 1)]
    assert len(told) == told[0][1] == 2


@pytest.mark.thin(every=2)
@pytest.mark.parametrize("leaf_rows", [None, 200])
@pytest.mark.parametrize("where", ["targets", "inputs"])
def test_one_percent_of_gross_errors_costs_little(where, leaf_rows, new):
    X, y = some_table(300)
    rng = np.random.default_rng(5)
    spoiled = rng.choice(300, 3, replace=False)
    X_bad, y_bad = X.copy(), y.copy()
    if where == "targets":
        y_bad[spoiled] += 30 * rng.choice([-1, 1], 3)
    else:
        X_bad[spoiled] = 1e3 * rng.normal(size=(3, 5))
    model = TabularKernelRegressor(random_state=0)
    with nullcontext() if leaf_rows is None else small_leaves(leaf_rows=leaf_rows):
        clean = rmse(model.fit(X, y), *new)
        assert model.n_outliers_ == 0
        is_told = where == "targets"
        with pytest.warns(OutlierWarning) if is_told else nullcontext():
            model.fit(X_bad, y_bad)
        assert rmse(model, *new) < 1.08 * clean
    assert where == "inputs" or model.n_outliers_ == 3
    told = "new samples without gross errors" in model.summary()
    assert told == (model.n_outliers_ > 0)


def test_predictable_extremes_are_no_errors():
    """Rare targets that follow from the features are not left out."""
    X, y = some_table(450)
    y = y + 40 * (X[:, 3] > 0.95)
    model = TabularKernelRegressor(random_state=0).fit(X, y)
    assert model.n_outliers_ == 0


def test_few_rows_and_constant_targets():
    X, y = some_table(12)
    model = TabularKernelRegressor(random_state=0).fit(X, y)
    assert np.isfinite(model.predict(X)).all()
    constant = TabularKernelRegressor(random_state=0).fit(X, np.full(12, 3.0))
    assert_allclose(constant.predict(X), 3.0)
    with pytest.raises(ValueError, match="at least 2 rows"):
        model.fit(X[:1], y[:1])
    assert np.isfinite(model.predict(X)).all()  # the model before the error


def test_data_frames_with_categories_and_missing_values():
    pd = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    X, _ = some_table(400)
    # A copy: the frames of pandas 2 would share the rows of X.
    frame = pd.DataFrame(X.copy(), columns=list("abcde"))
    frame["kind"] = pd.Categorical(rng.choice(["u", "v", "w"], 400))
    frame.loc[:20, "a"] = np.nan
    y = target(X) + frame["kind"].map({"u": 0.0, "v": 1.0, "w": 3.0}).astype(float)
    model = TabularKernelRegressor(random_state=0).fit(frame[:300], y[:300])
    assert r2_score(y[300:], model.predict(frame[300:])) > 0.9
    assert "5 numbers" in model.summary()
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame.drop(columns="kind"))


def test_sparse_rows_are_refused():
    sp = pytest.importorskip("scipy.sparse")
    X, y = some_table(50)
    with pytest.raises(TypeError, match="Sparse data was passed"):
        TabularKernelRegressor().fit(sp.csr_array(X), y)
