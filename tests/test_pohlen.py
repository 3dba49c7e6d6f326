"""Pohlen's evaluation: splits, the bootstrap, the sets."""

import os

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.kernel_ridge import KernelRidge

from nbsketch import cli, plots
from nbsketch.datasets import Dataset
from nbsketch.reproduce import _report, pohlen
from nbsketch.reproduce.pohlen import BOOTSTRAP, FAMILIES, MODELS, WITHOUT


def toy(n=80):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(n, 2))
    y = 5 + np.sin(3 * X[:, 0]) + 0.1 * rng.normal(size=n)
    return Dataset("toy", X, y, ("a", "b"), ("t",))


@pytest.fixture
def tiny(monkeypatch):
    monkeypatch.setattr(pohlen, "SETS", ("concrete",))
    monkeypatch.setattr(pohlen, "load", lambda name, home: toy())
    monkeypatch.setattr(pohlen, "SINE_ROWS", 80)
    monkeypatch.setattr(pohlen, "SIZES", (5, 20))
    monkeypatch.setattr(pohlen, "QUICK_SIZES", (5, 20))
    monkeypatch.setattr(pohlen, "_BANDWIDTH_FACTORS", np.array([0.5, 1.0]))
    monkeypatch.setattr(pohlen, "_ALPHAS", np.array([1e-4, 1e-2]))
    monkeypatch.setattr(plots, "_DPI", 60)


def test_splits_are_of_half_three_tenths_and_a_fifth():
    parts = pohlen._split(toy(), 0)
    assert [len(y) for _, y in parts] == [40, 24, 16]
    assert_allclose(parts.train[0].mean(axis=0), 0, atol=1e-12)
    assert_allclose(parts.train[0].std(axis=0), 1)
    assert abs(parts.test[0].mean()) > 1e-6
    values = np.concatenate([y for _, y in parts])
    assert_array_equal(np.sort(values), np.sort(toy().y))


def test_the_sine_has_clean_test_targets():
    parts = pohlen.make_sine(0)
    assert [len(y) for _, y in parts] == [1000, 600, 400]
    noise = parts.train[1].std() ** 2 - parts.test[1].std() ** 2
    assert_allclose(noise, pohlen.SINE_NOISE**2, rtol=0.5)
    assert abs(parts.test[1]).max() <= 1


def test_bootstrap_costs_what_a_sketch_does():
    for n, size in ((1000, 10), (1000, 80), (154, 40)):
        rows = pohlen.rows_of_same_cost(n, size)
        assert_allclose(MODELS * rows**3 / 3, n * size**2, rtol=0.1)


def test_bootstrap_is_a_mean_of_models_of_sampled_rows():
    parts = pohlen._split(toy(), 0)
    X, y = parts.train
    alpha, size = 1e-2, 10
    (predict,) = pohlen.fit(parts.train, BOOTSTRAP, size, 1.0, [alpha], seed=3)
    rng = np.random.default_rng(3)
    m = pohlen.rows_of_same_cost(len(y), size)
    expected = np.zeros(16)
    for _ in range(MODELS):
        rows = rng.integers(len(y), size=m)
        expected += with_intercept(X[rows], y[rows], parts.test[0], m * alpha) / MODELS
    assert_allclose(predict(parts.test[0]), expected, rtol=1e-6)


def with_intercept(X, y, X_new, penalty):
    """Return predictions of kernel ridge; a free constant makes the dual sum to 0."""
    ridge = KernelRidge(alpha=penalty, kernel="rbf", gamma=0.5)
    sides = np.column_stack([y, np.ones(len(y))])
    dual, ones = ridge.fit(X, sides).dual_coef_.T
    constant = dual.sum() / ones.sum()
    return ridge.predict(X_new) @ [1, -constant] + constant


@pytest.mark.parametrize("method", [*FAMILIES, BOOTSTRAP])
def test_every_method_learns(method):
    parts = pohlen._split(toy(200), 0)
    found = pohlen._evaluate(parts, method, 40, seed=0)
    assert found["error"] < 0.4
    assert found["seconds"] > 0


def test_small_evaluation(tiny, tmp_path, capsys):
    command = ["reproduce", "pohlen", "--replicates", "2", "--out", str(tmp_path)]
    assert cli.main(command) == 0
    assert BOOTSTRAP in capsys.readouterr().out
    rows = _report.read_csv(tmp_path / "pohlen.csv")
    # two sets, two splits; without a sketch there is one size
    assert len(rows) == 2 * 2 * (2 * len(FAMILIES) + 1)
    assert all(0 < row["error"] < 1.5 for row in rows)
    table = pohlen.summarize(rows)
    assert len(table) == len(rows) / 2
    without = [row for row in table if row["method"] == WITHOUT]
    assert [row["size"] for row in without] == [0, 0]
    picture = (tmp_path / "pohlen.png").read_bytes()
    assert picture.startswith(b"\x89PNG") and len(picture) > 20_000


def test_from_the_file_alone(tiny, tmp_path, monkeypatch):
    monkeypatch.setattr(plots, "draw", lambda *arguments: None)
    table = pohlen.run(replicates=1, quick=True, out=tmp_path)
    monkeypatch.setattr(pohlen, "measure", None)
    assert pohlen.run(out=tmp_path, plot_only=True) == table


@pytest.mark.skipif("NBSKETCH_DATA" not in os.environ, reason="needs the data sets")
@pytest.mark.parametrize("name", pohlen.SETS)
def test_the_real_sets(name):
    parts = pohlen._split(pohlen.load(name, None), 0)
    exact = pohlen._evaluate(parts, WITHOUT, 0, seed=0)["error"]
    sketched = pohlen._evaluate(parts, "p-SR, p = 20/n", 40, seed=0)["error"]
    assert exact < 0.45
    assert sketched < 0.65
