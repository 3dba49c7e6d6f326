"""The estimators for tables with a limit of time, and a clock that the tests move."""

import time

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from tables import small_leaves

import nbsketch
from nbsketch import TabularKernelClassifier, TabularKernelRegressor


@pytest.fixture
def clock(monkeypatch):
    """Return a list with the time."""
    now = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
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


def regressor(effort, **options):
    return TabularKernelRegressor(effort, random_state=0, **options)


@pytest.mark.thin(every=2)
@pytest.mark.parametrize("model", [TabularKernelRegressor, TabularKernelClassifier])
@pytest.mark.parametrize("leaves", [False, True])
def test_the_least_is_the_fast_recipe(model, leaves, data, request):
    if leaves:
        request.getfixturevalue("small")
    X, y = data
    y = y if model is TabularKernelRegressor else y > 0.5
    fast = model("fast", random_state=0)
    limited = model("high", max_seconds=1e-9, random_state=0)
    expected, found = fast.fit(X, y).predict(X), limited.fit(X, y).predict(X)
    assert_array_equal(found, expected)
    partners = model is TabularKernelClassifier  # the boosted trees
    assert limited.n_skipped_ == partners
    assert ("max_seconds=1e-09" in limited.summary()) == partners
    assert fast.n_skipped_ == 0 and "skipped" not in fast.summary()


def test_time_that_suffices_changes_nothing(clock, data, tmp_path):
    X, y = data
    free = regressor("high").fit(X, y)
    model = regressor("high", max_seconds=1.0).fit(X, y)
    assert model.n_skipped_ == 0
    assert_array_equal(model.predict(X), free.predict(X))
    model.save(tmp_path / "model")
    loaded = nbsketch.load(tmp_path / "model")
    assert loaded.max_seconds == 1.0 and loaded.n_skipped_ == 0


@pytest.mark.parametrize("limit", [0, -1.0, "long"])
def test_limits_are_checked(limit, data):
    with pytest.raises((TypeError, ValueError), match="`max_seconds`"):
        regressor("fast", max_seconds=limit).fit(*data)
