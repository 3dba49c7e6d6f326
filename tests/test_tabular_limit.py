"""The estimators for tables with a limit of time, and a clock that the tests move."""

from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.exceptions import ConvergenceWarning
from tables import small_leaves

import nbsketch
from nbsketch import TabularKernelClassifier, TabularKernelRegressor
from nbsketch._report import progress
from nbsketch.tabular import fit, partners
from nbsketch.tuning import descent


@pytest.fixture
def clock(monkeypatch):
    """Return a list with the time of nbsketch; pools of threads need their own."""
    now = [0.0]
    moved = SimpleNamespace(perf_counter=lambda: now[0], monotonic=lambda: now[0])
    for module in (progress, descent):
        monkeypatch.setattr(module, "time", moved)
    return now


@pytest.fixture
def data(rng):
    X = rng.uniform(-1, 1, size=(240, 3))
    return X, np.sin(3 * X[:, 0]) + (X[:, 1] > 0) + 0.1 * rng.normal(size=240)


@pytest.fixture
def small():
    """Let leaves have few rows, and fit a base."""
    with small_leaves(leaf_rows=120):
        yield


def regressor(**options):
    return TabularKernelRegressor(random_state=0, **options)


@pytest.mark.thin(every=2)
@pytest.mark.parametrize("model", [TabularKernelRegressor, TabularKernelClassifier])
@pytest.mark.parametrize("leaves", [False, True])
def test_without_time_there_is_a_model(model, leaves, data, request):
    if leaves:
        request.getfixturevalue("small")
    X, y = data
    y = y if model is TabularKernelRegressor else y > 0.5
    limited = model(partners="auto", max_seconds=1e-9, random_state=0)
    with pytest.warns(ConvergenceWarning) if leaves else nullcontext():
        limited.fit(X, y)
    assert limited.score(X, y) > 0.6
    trees = model is TabularKernelClassifier
    assert limited.n_skipped_ == leaves + trees
    assert ("max_seconds=1e-09" in limited.summary()) == (limited.n_skipped_ > 0)
    assert len(limited.machine_.rows) == (120 if leaves else 240)


def test_rows_are_those_that_there_is_time_for(clock, monkeypatch, data, small):
    """A leaf of 120 rows takes a second: base and two members of 240 rows six."""
    solve = fit.fit_on_tree

    def slow(*args):
        clock[0] += 1.0
        return solve(*args)

    monkeypatch.setattr(fit, "fit_on_tree", slow)
    X, y = data
    with pytest.warns(ConvergenceWarning, match="time for 200 of 240 samples"):
        model = regressor(max_seconds=6.0).fit(X, y)
    assert len(model.machine_.rows) == 200
    assert model.n_skipped_ == 1
    every = regressor(max_seconds=7.5).fit(X, y)
    assert len(every.machine_.rows) == 240 and every.n_skipped_ == 0
    assert_array_equal(every.predict(X), regressor().fit(X, y).predict(X))


def test_folds_of_trees_end_with_the_time(clock, monkeypatch, data):
    """A fold takes a second, the machine none."""
    predict = partners.Partner.predict

    def slow(*args):
        clock[0] += 1.0
        return predict(*args)

    monkeypatch.setattr(partners.Partner, "predict", slow)
    X, y = data
    model = TabularKernelClassifier(max_seconds=3.5, random_state=0).fit(X, y > 0.5)
    assert len(model.partners_[0].baseline) == 3
    assert np.isfinite(model.loo_log_loss_)


def test_time_that_suffices_changes_nothing(clock, data, tmp_path):
    X, y = data
    free = regressor().fit(X, y)
    model = regressor(max_seconds=1.0).fit(X, y)
    assert model.n_skipped_ == 0
    assert_array_equal(model.predict(X), free.predict(X))
    model.save(tmp_path / "model")
    loaded = nbsketch.load(tmp_path / "model")
    assert loaded.max_seconds == 1.0 and loaded.n_skipped_ == 0


@pytest.mark.parametrize("limit", [0, -1.0, "long"])
def test_limits_are_checked(limit, data):
    with pytest.raises((TypeError, ValueError), match="`max_seconds`"):
        regressor(max_seconds=limit).fit(*data)
