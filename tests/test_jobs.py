"""Nine jobs of a new user, from the data to the answer, as the pages describe them."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from sklearn.datasets import load_breast_cancer, load_diabetes
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.inspection import PartialDependenceDisplay, permutation_importance
from sklearn.metrics import (
    PredictionErrorDisplay,
    log_loss,
    mean_absolute_error,
    root_mean_squared_error,
)
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import nbsketch
from nbsketch import (
    JointQuantileRegressor,
    SketchedKernelRegressor,
    TabularKernelClassifier,
    TabularKernelRegressor,
)
from nbsketch.conformal import ConformalRegressor
from nbsketch.explain import shapley_values
from nbsketch.plots import IntervalDisplay, plot_length_scales


def with_text_and_gaps(X, rng):
    """Return a frame with a text column and with a tenth of the numbers missing."""
    frame = pd.DataFrame(X).rename(columns=str)
    frame = frame.mask(rng.random(frame.shape) < 0.1)
    frame.insert(0, "text", np.where(X[:, 0] > np.median(X[:, 0]), "high", "low"))
    return frame


@pytest.fixture
def split():
    return train_test_split(*load_diabetes(return_X_y=True), random_state=0)


@pytest.fixture
def smooth(rng):
    X = rng.uniform(-2, 2, size=(900, 3))
    y = np.sin(2 * X[:, 0]) + X[:, 1] + 0.2 * rng.normal(size=900)
    return X[:400], X[400:], y[:400], y[400:]


def test_a_table_with_text_and_gaps_tells_its_error(split, rng):
    X_train, X_test, y_train, y_test = split
    model = TabularKernelRegressor(random_state=0)
    model.fit(with_text_and_gaps(X_train, rng), y_train)
    predicted = model.predict(with_text_and_gaps(X_test, rng))
    error = root_mean_squared_error(y_test, predicted)
    assert error < 0.85 * y_test.std()
    assert_allclose(model.loo_error_, error, rtol=0.15)


def test_classes_of_a_table_beside_boosted_trees(rng):
    X, y = load_breast_cancer(return_X_y=True)
    frame = with_text_and_gaps(X, rng)
    X_train, X_test, y_train, y_test = train_test_split(frame, y, random_state=0)
    ours = TabularKernelClassifier(random_state=0).fit(X_train, y_train)
    trees = HistGradientBoostingClassifier(random_state=0)
    trees.fit(X_train.drop(columns="text"), y_train)
    theirs = trees.predict_proba(X_test.drop(columns="text"))
    assert log_loss(y_test, ours.predict_proba(X_test)) < 1.3 * log_loss(y_test, theirs)


def test_intervals_of_three_kinds_cover_what_they_say(smooth):
    X_train, X_test, y_train, y_test = smooth
    table = TabularKernelRegressor(random_state=0).fit(X_train, y_train)
    levels = JointQuantileRegressor((0.05, 0.95), random_state=0).fit(X_train, y_train)
    conformal = ConformalRegressor(table, random_state=0).fit(X_train, y_train)
    for interval in (
        table.predict_interval(X_test, 0.9),
        levels.predict(X_test),
        conformal.predict_interval(X_test, 0.9),
    ):
        low, high = interval.T
        assert 0.84 < np.mean((low <= y_test) & (y_test <= high)) < 0.96


@pytest.mark.filterwarnings("ignore::nbsketch.OutlierWarning")
def test_wrong_targets_do_not_decide_robust_fits(smooth):
    X_train, X_test, y_train, y_test = smooth
    y_train = np.where(np.arange(400) % 20 == 7, 10 * y_train + 30, y_train)

    def error(model):
        return mean_absolute_error(y_test, model.fit(X_train, y_train).predict(X_test))

    square = error(SketchedKernelRegressor(random_state=0))
    for model in (
        SketchedKernelRegressor(loss="huber", random_state=0),
        SketchedKernelRegressor(loss="pinball", random_state=0),
        TabularKernelRegressor(loss="absolute_error", random_state=0),
    ):
        assert error(model) < min(0.25, 0.5 * square)


def test_several_outputs_in_one_fit(smooth):
    X_train, X_test, y_train, _ = smooth
    model = SketchedKernelRegressor(random_state=0)
    model.fit(X_train, np.column_stack([y_train, -10 * y_train, X_train[:, 2]]))
    predicted = model.predict(X_test)
    assert_allclose(predicted[:, 1], -10 * predicted[:, 0], atol=0.5)
    assert root_mean_squared_error(X_test[:, 2], predicted[:, 2]) < 0.05


def test_a_grid_of_thresholds_in_a_pipeline(smooth):
    X_train, X_test, y_train, y_test = smooth
    model = SketchedKernelRegressor("gaussian", bandwidth=1.0, loss="huber")
    pipeline = make_pipeline(StandardScaler(), model)
    name = "sketchedkernelregressor__"
    grid = {f"{name}loss__kappa": [0.1, 1.0], f"{name}alpha": [1e-4, 1e-3]}
    search = GridSearchCV(pipeline, grid, cv=3).fit(X_train, y_train)
    assert search.score(X_test, y_test) > 0.95
    assert set(search.best_params_) == set(grid)


def test_a_saved_model_answers_single_rows(smooth, tmp_path):
    X_train, X_test, y_train, _ = smooth
    for kind in (TabularKernelRegressor, SketchedKernelRegressor):
        model = kind(random_state=0).fit(X_train, y_train)
        model.save(tmp_path / "model.npz")
        served = nbsketch.load(tmp_path / "model.npz")
        assert_allclose(served.predict(X_test[:1]), model.predict(X_test)[:1])


def test_plots_of_a_report(smooth):
    X_train, X_test, y_train, y_test = smooth
    table = TabularKernelRegressor(random_state=0).fit(X_train, y_train)
    kernel = SketchedKernelRegressor("gaussian", random_state=0).fit(X_train, y_train)
    PredictionErrorDisplay.from_estimator(table, X_test, y_test)
    IntervalDisplay.from_estimator(table, X_test, y_test)
    PartialDependenceDisplay.from_estimator(table, X_test[:50], [0])
    plot_length_scales(table)
    plt.close("all")
    assert np.argmin(table.feature_importances_) == 2
    found = permutation_importance(table, X_test, y_test, n_repeats=1, random_state=0)
    assert np.argmin(found.importances_mean) == 2
    values = shapley_values(kernel, X_test[:5])
    assert np.abs(values[:, 2]).max() < 0.2 * np.abs(values[:, 0]).max()


def test_a_memory_map_is_fitted_as_an_array(smooth, tmp_path):
    X_train, X_test, y_train, _ = smooth
    np.save(tmp_path / "X.npy", X_train.astype(np.float32))
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    models = [
        SketchedKernelRegressor(random_state=0).fit(X, y_train)
        for X in (mapped, np.array(mapped))
    ]
    assert_allclose(*[model.predict(X_test) for model in models])
