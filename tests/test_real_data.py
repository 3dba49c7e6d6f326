"""Real data that comes with scikit-learn and Matplotlib: no download."""

import warnings

import numpy as np
import pytest
from lightgbm import LGBMRegressor
from matplotlib import cbook
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_wine
from sklearn.model_selection import KFold, train_test_split

from nbsketch import (
    DependentRowsWarning,
    JointQuantileRegressor,
    SketchedKernelClassifier,
    SketchedKernelRegressor,
    TabularKernelRegressor,
)
from nbsketch.metrics import pinball_loss


def halves(load, seed=0):
    """Return X, X_test, y, y_test of equal size."""
    X, y = load(return_X_y=True)
    return train_test_split(X, y, test_size=0.5, random_state=seed)


def test_diabetes_is_predicted_better_than_by_trees():
    ratios = []
    for seed in range(3):
        X, X_test, y, y_test = halves(load_diabetes, seed)
        errors = [
            np.sqrt(np.mean((model.fit(X, y).predict(X_test) - y_test) ** 2))
            for model in (
                SketchedKernelRegressor(random_state=0),
                LGBMRegressor(n_estimators=100, verbose=-1, n_jobs=1),
            )
        ]
        ratios.append(errors[0] / errors[1])
    assert np.mean(ratios) < 0.95


@pytest.mark.parametrize(
    ("load", "accuracy"),
    [
        (load_breast_cancer, 0.95),
        pytest.param(load_wine, 0.92, marks=pytest.mark.full),
        pytest.param(load_digits, 0.96, marks=pytest.mark.full),
    ],
)
def test_classes(load, accuracy):
    X, X_test, y, y_test = halves(load)
    model = SketchedKernelClassifier(random_state=0).fit(X, y)
    assert model.score(X_test, y_test) > accuracy


def test_intervals_of_diabetes_have_their_coverage():
    """And a smaller loss than the quantiles of all targets."""
    covered = []
    for seed in range(2):
        X, X_test, y, y_test = halves(load_diabetes, seed)
        model = JointQuantileRegressor((0.1, 0.5, 0.9), calibration=0.3, random_state=0)
        low, high = model.fit(X, y).predict_interval(X_test, coverage=0.8).T
        covered.append(np.mean((low <= y_test) & (y_test <= high)))
        constant = np.quantile(y, [0.1, 0.5, 0.9])
        ours = pinball_loss(y_test, model.predict(X_test), [0.1, 0.5, 0.9])
        base = pinball_loss(
            y_test, np.tile(constant, (len(y_test), 1)), [0.1, 0.5, 0.9]
        )
        assert np.sum(ours) < 0.85 * np.sum(base)
    assert 0.74 < np.mean(covered) < 0.88


def patients():
    """Return the 442 patients as measured, with a category and missing values."""
    data = load_diabetes(as_frame=True, scaled=False)
    X = data.data.copy()
    X["sex"] = X["sex"].map({1.0: "one", 2.0: "two"}).astype("category")
    X.loc[::7, "s6"] = np.nan
    X.loc[3::11, "bmi"] = np.nan
    return X, data.target.to_numpy()


def test_a_table_with_categories_and_missing_values():
    """The expected error and the intervals hold on rows that were not fitted."""
    X, y = patients()
    found = []
    for seed in range(2):
        order = np.random.default_rng(seed).permutation(len(y))
        fitted, new = order[:300], order[300:]
        model = TabularKernelRegressor(random_state=0)
        model.fit(X.iloc[fitted], y[fitted])
        error = np.sqrt(np.mean((model.predict(X.iloc[new]) - y[new]) ** 2))
        low, high = model.predict_interval(X.iloc[new], coverage=0.9).T
        covered = np.mean((low <= y[new]) & (y[new] <= high))
        found.append((error / y[new].std(), error / model.loo_error_, covered))
    share, ratio, covered = np.mean(found, axis=0)
    assert share < 0.8  # measured: 0.75
    assert 0.9 < ratio < 1.1
    assert 0.85 < covered < 0.95


def trading_days(n=500):
    """Return the last days of a share: a frame, and the logarithm of its price."""
    pandas = pytest.importorskip("pandas")
    days = cbook.get_sample_data("goog.npz")["price_data"][-n:]
    X = pandas.DataFrame({"day": days["date"].astype("M8[ns]")})
    X["weekday"] = X["day"].dt.day_name().astype("category")
    X["volume"] = np.log(days["volume"].astype(float))
    X["range"] = np.log(days["high"] / days["low"])
    return X, np.log(days["close"])


def test_days_depend_on_their_neighbors():
    """Single days are interpolated between their neighbors, blocks are not."""
    X, y = trading_days(300)
    errors = []
    for cv in (None, KFold(5)):
        model = TabularKernelRegressor(cv=cv, random_state=0)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            errors.append(model.fit(X, y).loo_error_)
        warned = any(w.category is DependentRowsWarning for w in caught)
        assert warned == (cv is None)
    assert errors[1] > 4 * errors[0]  # measured: 0.156 and 0.018
    numbers = X[["volume", "range"]].assign(day=np.arange(len(y)))
    with pytest.warns(DependentRowsWarning):
        SketchedKernelRegressor(random_state=0).fit(numbers, y)


def test_quantiles_of_the_range_of_the_next_day():
    X, _ = trading_days()
    ranges, levels = X["range"].to_numpy(), [0.1, 0.5, 0.9]
    before = np.lib.stride_tricks.sliding_window_view(ranges, 5)[:-1]
    rows = np.column_stack([before[:, -1], before.mean(axis=1), X["volume"][4:-1]])
    target = np.log(ranges[5:])
    fitted, new = slice(0, 330), slice(330, None)
    model = JointQuantileRegressor(levels, random_state=0)
    predicted = model.fit(rows[fitted], target[fitted]).predict(rows[new])
    constant = np.tile(np.quantile(target[fitted], levels), (len(predicted), 1))
    ours, base = (pinball_loss(target[new], p, levels) for p in (predicted, constant))
    assert np.sum(ours) < 0.85 * np.sum(base)  # measured: 0.76
    assert (np.diff(predicted, axis=1) > -1e-3).all()
