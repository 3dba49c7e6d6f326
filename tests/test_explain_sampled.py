"""Shapley values of models that are no products over features, by shap."""

import sys
from importlib import import_module
from itertools import combinations
from math import factorial

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose

from nbsketch import (
    SketchedKernelRegressor,
    TabularKernelClassifier,
    TabularKernelRegressor,
)
from nbsketch.explain import expected_value, shapley_values
from nbsketch.kernels import MaternKernel

pytest.importorskip("shap")


@pytest.fixture(autouse=True)
def no_compilation(plain_python):
    """Parts of shap that it compiles anew in each process run as Python."""
    plain_python(import_module("shap.utils._masked_model"))


def table(n=150):
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"a": rng.normal(size=n), "b": rng.choice(["u", "v", "w"], n)})
    X["c"] = rng.normal(size=n)
    y = np.sin(X["a"]) * (1 + (X["b"] == "u")) + X["c"] ** 2
    return X, y.to_numpy()


def brute_force(predict, x, background):
    """Return the values of one row, of all coalitions."""
    names = list(background)
    q = len(names)

    def value(coalition):
        rows = background.copy()
        for name in coalition:
            rows[name] = x[name].iloc[0]
        return predict(rows).mean(axis=0)

    out = []
    for name in names:
        others = [other for other in names if other != name]
        total = 0.0
        for size in range(q):
            weight = factorial(size) * factorial(q - size - 1) / factorial(q)
            for part in combinations(others, size):
                total = total + weight * (value([*part, name]) - value(part))
        out.append(total)
    return np.array(out)


def test_values_of_tables_are_those_of_all_coalitions():
    X, y = table()
    model = TabularKernelRegressor(random_state=0).fit(X, y)
    values = shapley_values(model, X[:1], X[10:20])
    expected = brute_force(model.predict, X[:1], X[10:20])
    assert_allclose(values[0], expected, atol=0.05)
    total = values.sum(axis=1) + expected_value(model, X[10:20])
    assert_allclose(total, model.predict(X[:1]), atol=1e-8)


def test_values_of_classes_add_up_to_probabilities():
    X, y = table()
    model = TabularKernelClassifier(random_state=0).fit(X, y > 1)
    values = shapley_values(model, X[:2], X[10:15])
    assert values.shape == (2, 3, 2)
    total = values.sum(axis=1) + expected_value(model, X[10:15])
    assert_allclose(total, model.predict_proba(X[:2]), atol=1e-8)


@pytest.mark.parametrize("outputs", [1, 2])
def test_values_of_the_default_kernel_add_up(outputs):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(150, 3))
    y = np.column_stack([np.sin(3 * X[:, 0]) + X[:, 1], X[:, 2]])
    y = y[:, 0] if outputs == 1 else y
    model = SketchedKernelRegressor("matern", random_state=0).fit(X, y)
    values = shapley_values(model, X[:2])
    assert values.shape == (2, 3) if outputs == 1 else (2, 3, 2)
    total = values.sum(axis=1) + expected_value(model)
    assert_allclose(total, model.predict(X[:2]), atol=1e-6)
    assert abs(values[:, 0]).max() > abs(values.T[..., 0]).min()


def test_a_background_and_shap_are_asked_for(monkeypatch):
    X, y = table(60)
    model = TabularKernelRegressor(random_state=0).fit(X, y)
    with pytest.raises(ValueError, match="background"):
        shapley_values(model, X[:1])
    monkeypatch.setitem(sys.modules, "shap", None)
    monkeypatch.setattr("nbsketch.explain.find_spec", lambda name: None)
    with pytest.raises(ModuleNotFoundError, match="pip install shap"):
        shapley_values(model, X[:1], X)


def test_sparse_rows_are_refused_by_name():
    X = np.random.default_rng(0).normal(size=(60, 3))
    model = SketchedKernelRegressor(MaternKernel(2.0, 1.5), alpha=1e-3, random_state=0)
    model.fit(sp.csr_array(X), X[:, 0])
    with pytest.raises(TypeError, match="dense samples, got sparse"):
        shapley_values(model, X[:2])
