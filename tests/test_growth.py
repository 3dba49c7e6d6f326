"""Sketches that grow until it does not pay: the path, what is reused, the budgets."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.base import clone

from nbsketch import (
    AutoSize,
    JointQuantileRegressor,
    SketchedKernelClassifier,
    SketchedKernelRegressor,
    SpectralFilterRegressor,
    load,
)
from nbsketch._sketch_map import SketchMap
from nbsketch.fitting import steps
from nbsketch.losses import HuberLoss
from nbsketch.model_selection import cross_validate

GROWING = ["p-sparsified", "subsampling", "gaussian", "accumulation", "srht"]
ALL = [*GROWING, "rademacher", "leverage", "countsketch", "sparse-jl"]


def data(n=250, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-3, 3, size=(n, 2))
    y = np.sin(2 * X[:, 0]) * X[:, 1] + 0.1 * rng.normal(size=n)
    return X, y


def regressor(**options):
    options = {"bandwidth": 1.0, "random_state": 0} | options
    return SketchedKernelRegressor(**options)


@pytest.mark.parametrize("sketch", ALL)
def test_the_model_is_that_of_the_size_chosen(sketch):
    X, y = data()
    rule = AutoSize(start=7, max_size=112, tol=0.05)
    grown = regressor(sketch=sketch, size=rule).fit(X, y)
    path = grown.size_path_
    chosen = path["size"][path["loss"].argmin()]
    assert grown.sketch_.shape[0] == chosen > 7
    assert path["size"].tolist() == [7 * 2**k for k in range(len(path["size"]))]
    assert (np.diff(path["seconds"]) > 0).all()
    if sketch in GROWING:  # the same streams as at once
        fixed = regressor(sketch=sketch, size=int(chosen)).fit(X, y)
        assert_allclose(grown.predict(X), fixed.predict(X), rtol=0, atol=1e-6)
        assert_allclose(grown.alpha_, fixed.alpha_)


def test_it_stops_where_nothing_is_gained():
    X, y = data()
    path = regressor(size=AutoSize(start=5, tol=0.1)).fit(X, y).size_path_
    gains = 1 - path["loss"][1:] / path["loss"][:-1]
    assert (gains[:-1] >= 0.1).all() and gains[-1] < 0.1


def test_it_finds_a_sketch_that_is_large_enough():
    X, y = data(1000)
    auto, small = (regressor(size=size).fit(X, y) for size in ("auto", 20))
    new, target = data(seed=1)
    error = np.square(auto.predict(new) - target).mean()
    assert error < 0.2 * np.square(small.predict(new) - target).mean()
    assert error < 0.02  # the noise is 0.01


def test_features_of_each_size_are_computed_once(monkeypatch):
    X, y = data()
    rows = []
    call = SketchMap.__call__

    def counted(self, X):
        rows.append(self.weights.shape[0])
        return call(self, X)

    monkeypatch.setattr(SketchMap, "__call__", counted)
    model = regressor(size=AutoSize(start=10, max_size=80, tol=0.0)).fit(X, y)
    assert model.size_path_["size"].tolist() == [10, 20, 40, 80]
    assert rows == [10, 20, 40, 80]


def test_budget_of_size_and_of_rows():
    X, y = data(n=30)
    sizes = regressor(size=AutoSize(start=8, tol=0.0)).fit(X, y).size_path_["size"]
    assert sizes[-1] <= 30 and sizes[0] == 8
    sizes = regressor(size=AutoSize(start=50)).fit(X, y).size_path_["size"]
    assert sizes.tolist() == [30]
    sizes = regressor(size=AutoSize(start=5, max_size=11, tol=0.0)).fit(X, y)
    assert sizes.size_path_["size"].tolist() == [5, 10, 11]


def test_budget_of_time(monkeypatch):
    X, y = data()
    clock = iter(np.arange(0.0, 1000.0))  # a second for each look at it
    monkeypatch.setattr(steps.time, "perf_counter", lambda: next(clock))
    rule = AutoSize(start=5, seconds=7.0, tol=0.0)
    # one second, then (1 + 4 <= 7) another, then (2 + 4 <= 7) another
    path = regressor(size=rule).fit(X, y).size_path_
    assert path["seconds"].tolist() == [1.0, 2.0, 3.0, 4.0][: len(path["seconds"])]
    assert len(path["seconds"]) == 4


def test_a_last_step_is_as_large_as_the_time_left():
    rule = steps.LimitedSize(start=100, max_size=9000, seconds=5.5, tol=0.0)
    path = {"size": [100, 150], "seconds": [1.0, 2.5]}
    # 1.5 times the time for 1.5 times the size: twice for a doubling, or four times
    expected = 2 ** (np.log(3.0 / 1.5) / np.log((2 + 4) / 2)) - 1
    assert rule._affordable_rows(150, path) == int(150 * expected)
    path["seconds"] = [1.0, 3.3]  # less time left than the last step took
    assert rule._affordable_rows(150, path) == 0


def test_a_given_alpha_is_kept():
    X, y = data()
    model = regressor(size="auto", alpha=1e-3).fit(X, y)
    assert model.alpha_ == 1e-3
    assert regressor(size=20).fit(X, y).size_path_ is None


@pytest.mark.parametrize(
    "model",
    [
        regressor(loss=HuberLoss(1.0), size=AutoSize(start=5, max_size=40)),
        regressor(size=AutoSize(start=5, max_size=40), solver="adam"),
        SpectralFilterRegressor(
            filter="landweber", bandwidth=1.0, size="auto", random_state=0
        ),
        JointQuantileRegressor(
            (0.2, 0.8), bandwidth=1.0, size=AutoSize(start=5, max_size=20)
        ),
    ],
    ids=["huber", "adam", "landweber", "quantiles"],
)
def test_other_regressors(model):
    X, y = data(n=150)
    path = model.set_params(random_state=0).fit(X, y).size_path_
    assert len(path["size"]) > 1 and np.isfinite(path["loss"]).all()
    chosen = int(path["size"][path["loss"].argmin()])
    assert model.sketch_.shape[0] == chosen
    assert path["loss"].min() < 0.75 * path["loss"][0]
    # The model of this size at once, up to another choice of the penalty.
    fixed = clone(model).set_params(size=chosen).fit(X, y)
    assert np.abs(model.predict(X) - fixed.predict(X)).mean() < 0.1 * np.std(y)


def test_classifier():
    X, y = data()
    model = SketchedKernelClassifier(
        loss="logistic", bandwidth=1.0, size=AutoSize(start=5), random_state=0
    )
    assert model.fit(X, y > 0).score(X, y > 0) > 0.95
    assert len(model.size_path_["size"]) > 1


def test_the_rule_and_the_path_are_saved(tmp_path):
    X, y = data()
    model = regressor(size=AutoSize(start=5, max_size=40)).fit(X, y)
    model.save(tmp_path / "model.npz")
    again = load(tmp_path / "model.npz")
    assert again.size == model.size
    for name, values in model.size_path_.items():
        assert_allclose(again.size_path_[name], values)


@pytest.mark.parametrize("size", ["large", 0, AutoSize])
def test_what_is_no_size_is_refused(size):
    with pytest.raises((TypeError, ValueError), match="`size`"):
        regressor(size=size).fit(*data(20))


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"start": 0}, "start"),
        ({"start": 10, "max_size": 5}, "max_size"),
        ({"seconds": 0.0}, "seconds"),
        ({"tol": 1.0}, "tol"),
    ],
)
def test_bad_rules_are_refused(options, name):
    with pytest.raises(ValueError, match=f"`{name}`"):
        AutoSize(**options)


def test_where_a_size_must_be_given():
    X, y = data(50)
    for action in (
        lambda: regressor(size="auto").fit_path(X, y, [1.0]),
        lambda: cross_validate(regressor(size="auto"), X, y, [1.0], [1.0]),
    ):
        with pytest.raises(ValueError, match="`size` must be an integer"):
            action()
    with pytest.raises(ValueError, match="`size` must be None"):
        regressor(size="auto", sketch="identity").fit(X, y)


def test_a_summary_of_losses_of_zero_has_no_nan():
    model = SketchedKernelRegressor(size="auto", bandwidth=1.0, random_state=0)
    model.fit(np.linspace(0, 1, 300)[:, None], np.full(300, 3.0))
    model.size_path_ = {"size": np.array([10, 20]), "loss": np.zeros(2)}
    assert "nan" not in model.summary()
    assert "the held-out loss was 0" in model.summary()
