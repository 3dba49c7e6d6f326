"""Defaults on tabular data: splits, ratios, baselines, files."""

import math
import os

import numpy as np
import pytest
from numpy.testing import assert_allclose

from nbsketch import cli
from nbsketch.datasets import Dataset
from nbsketch.kernels import median_distance
from nbsketch.reproduce._tools import panels, report
from nbsketch.reproduce.tabular import baselines, quantiles, regression, sketch_cost
from nbsketch.reproduce.tabular.baselines import (
    BOOSTING,
    DEFAULTS,
    EXACT,
    ISOTROPIC,
    LIGHTGBM,
    regressors,
    timed,
)


def toy(n=150):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(n, 2)) * [1, 100]
    y = 5 + np.sin(3 * X[:, 0]) + X[:, 1] / 100 + 0.05 * rng.normal(size=n)
    return Dataset("toy", X, y, ("a", "b"), ("t",))


def row(name, method, rmse, seconds):
    found = {"method": method, "rmse": rmse, "seconds": seconds}
    return {"set": name, "split": 0} | found


@pytest.fixture
def tiny(monkeypatch):
    for module in (regression, quantiles, sketch_cost):
        monkeypatch.setattr(module, "load", lambda name, home: toy())
    monkeypatch.setattr(baselines, "TREES", 30)
    monkeypatch.setattr(baselines, "LANDMARKS", 50)
    monkeypatch.setattr(panels, "DPI", 60)


@pytest.mark.parametrize("method", regressors())
def test_every_method_learns(method, tiny):
    data = toy(300)
    (X, y), (X_test, y_test) = data.random_split(0, regression.FRACTIONS)
    predict, seconds = timed(regressors()[method], X, y, 0)
    assert np.std(predict(X_test) - y_test) < 0.35 * np.std(y_test)
    assert seconds > 0


def test_one_length_scale_is_for_standardized_rows():
    X, y = toy().X, toy().y
    predict = regressors()[EXACT](X, y, 0)
    rows = (X - X.mean(axis=0)) / X.std(axis=0)
    model = predict.__self__
    assert_allclose(model.kernel_.bandwidth, median_distance(rows), rtol=1e-6)
    assert len(model.landmarks_) == len(y)


def test_trees_stop_on_rows_held_out():
    pytest.importorskip("lightgbm")
    X = np.random.default_rng(0).normal(size=(300, 3))
    noise = np.random.default_rng(1).normal(size=300)
    model = baselines.boosted_trees(X, noise, 0)
    # Of noise, next to nothing is learned; without stopping, most of it would be.
    assert np.std(model(X)) < 0.6


def test_ratios_are_to_lightgbm():
    rows = [
        row("yacht", LIGHTGBM, 2.0, 1.0),
        row("yacht", DEFAULTS, 0.5, 4.0),
        row("yacht", EXACT, 1.0, 2.0),
        row("boston", LIGHTGBM, 4.0, 2.0),
        row("boston", DEFAULTS, 3.0, 2.0),
        row("boston", DEFAULTS, 5.0, 6.0) | {"split": 1},
    ]
    table = regression.summarize(rows)
    found = {(r["set"], r["method"]): r for r in table}
    boston = found["boston", DEFAULTS]
    assert boston["rmse"] == 4.0 and boston["rmse_deviation"] == 1.0
    assert boston["ratio"] == 1.0 and boston["times"] == 2.0
    assert found["yacht", EXACT]["ratio"] == 0.5
    mean = found[regression.MEAN, DEFAULTS]
    assert_allclose(mean["ratio"], math.sqrt(0.25))
    assert_allclose(mean["times"], math.sqrt(8))
    assert mean["rmse"] is None
    assert found[regression.WITHOUT_YACHT, DEFAULTS]["ratio"] == 1.0
    # What did not run on every set has no mean.
    assert (regression.MEAN, EXACT) not in found


def test_without_lightgbm(monkeypatch):
    monkeypatch.setattr(baselines, "has_lightgbm", lambda: False)
    assert LIGHTGBM not in regressors()
    rows = [row("boston", BOOSTING, 2.0, 1.0), row("boston", DEFAULTS, 1.0, 1.0)]
    found = {r["method"]: r["ratio"] for r in regression.summarize(rows)[:2]}
    assert found == {BOOSTING: 1.0, DEFAULTS: 0.5}


def test_exact_only_up_to_its_limit(tiny, monkeypatch):
    monkeypatch.setattr(regression, "EXACT_ROWS", 100)
    assert EXACT not in [found["method"] for found in regression.evaluate(toy(), 0)]
    assert EXACT in [found["method"] for found in regression.evaluate(toy(100), 0)]


def test_small_comparison(tiny, tmp_path, capsys, monkeypatch):
    command = ["reproduce", "tabular", "--quick", "--out", str(tmp_path)]
    assert cli.main(command) == 0
    shown = capsys.readouterr().out
    assert DEFAULTS in shown and regression.MEAN in shown
    rows = report.read_csv(tmp_path / "tabular.csv")
    assert len(rows) == len(regression.QUICK_SETS) * len(regressors())
    assert all(0 < row["rmse"] < 1 for row in rows)
    picture = (tmp_path / "tabular.png").read_bytes()
    assert picture.startswith(b"\x89PNG") and len(picture) > 10_000
    monkeypatch.setattr(regression, "measure", None)
    table = regression.run(out=tmp_path, plot_only=True)
    assert table == regression.summarize(rows)


def test_panels_name_the_sets():
    rows = [row("boston", LIGHTGBM, 4.0, 2.0), row("yacht", LIGHTGBM, 2.0, 1.0)]
    rows += [row("yacht", ISOTROPIC, 1.0, 3.0)]
    errors, times = regression.panels(rows)
    assert errors.names == times.names == ("boston", "yacht")
    curves = {curve.label: curve for curve in errors.curves}
    assert list(curves) == [LIGHTGBM, ISOTROPIC]
    assert curves[ISOTROPIC].x == [1] and curves[ISOTROPIC].y == [0.5]
    assert not curves[ISOTROPIC].joined


def test_small_comparison_of_quantiles(tiny, tmp_path):
    table = quantiles.run(quick=True, out=tmp_path)
    ours = [row for row in table if row["method"] == DEFAULTS]
    assert [row["level"] for row in ours] == [0.1, 0.5, 0.9]
    assert all(row["crossing"] == 0 for row in ours)
    assert ours[0]["below"] < ours[2]["below"]
    page = (tmp_path / "tabular-quantiles.md").read_text(encoding="utf-8")
    assert "pinball" in page


def test_quantile_ratios():
    row = {"level": 0.5, "below": 0.5, "crossing": 0.0, "seconds": 1.0}
    rows = [
        row | {"method": DEFAULTS, "pinball": 1.0},
        row | {"method": LIGHTGBM, "pinball": 2.0},
    ]
    ratios = [found["ratio"] for found in quantiles.summarize(rows)]
    assert ratios == [0.5, 1.0]
    assert quantiles.summarize(rows[:1])[0]["ratio"] is None


@pytest.mark.skipif("NBSKETCH_DATA" not in os.environ, reason="needs the data sets")
def test_learned_scales_pay_on_a_real_set():
    data = regression.load("airfoil", None)
    found = {row["method"]: row["rmse"] for row in regression.evaluate(data, 0)}
    assert found[DEFAULTS] < min(found[ISOTROPIC], found[BOOSTING])


def cost(sketch, error, fit, predict, loss="square"):
    found = {"landmarks": 10, "error": error, "fit": fit, "predict": predict}
    return {"set": "toy", "loss": loss, "sketch": sketch} | found


def test_small_comparison_of_sketches(tiny, tmp_path, monkeypatch):
    problems = [p._replace(size=30) for p in sketch_cost.QUICK_PROBLEMS]
    monkeypatch.setattr(sketch_cost, "QUICK_PROBLEMS", problems)
    table = sketch_cost.run(quick=True, out=tmp_path)
    names = list(sketch_cost.sketches())
    assert [row["sketch"] for row in table] == [*names, *names, *names]
    ours = table[0]
    assert ours["sketch"] == sketch_cost.REFERENCE and ours["landmarks"] == 30
    assert ours["error_ratio"] == ours["fit_ratio"] == ours["predict_ratio"] == 1
    assert all(row["error"] < 0.3 for row in table[: 2 * len(names)])
    dense = table[names.index("p-SR, 20/n")]
    assert dense["landmarks"] > table[names.index("p-SR, 2/n")]["landmarks"] > 30
    assert "landmarks" in (tmp_path / "sketch-cost.md").read_text(encoding="utf-8")


def test_costs_are_relative_to_sub_sampling():
    rows = [
        cost(sketch_cost.REFERENCE, 1.0, 2.0, 5.0),
        cost(sketch_cost.REFERENCE, 2.0, 2.0, 4.0),
        cost("other", 4.0, 4.0, 10.0),
        cost("other", 2.0, 4.0, 8.0),
        cost(sketch_cost.REFERENCE, 1.0, 1.0, 1.0, "huber"),
        cost("other", 0.5, 0.5, 2.0, "huber"),
    ]
    table = sketch_cost.summarize(rows)
    assert [row["error"] for row in table] == [1.5, 3.0, 1.0, 0.5, None, None]
    assert table[1]["error_ratio"] == pytest.approx(2.0)  # sqrt(4 / 1 * 2 / 2)
    assert table[1]["predict"] == 8.0 and table[1]["fit_ratio"] == pytest.approx(2.0)
    mean = table[-1]
    assert mean["set"] == sketch_cost.MEAN and mean["sketch"] == "other"
    assert mean["error_ratio"] == pytest.approx(1.0)
    assert mean["predict_ratio"] == pytest.approx(2.0)


def test_problems_of_the_comparison_of_sketches(tiny):
    synthetic, real, labels = (sketch_cost.PROBLEMS[k] for k in (2, 0, -1))
    data = sketch_cost.table_of(synthetic, None)
    assert data.X.shape == (sketch_cost.SYNTHETIC_ROWS, 10)
    assert sketch_cost.table_of(real, None).name == "toy"
    y = sketch_cost.table_of(labels, None).y
    assert y.dtype == bool and 0.4 < y.mean() < 0.6
    wrong = np.array([True, False, True, True])
    assert (
        sketch_cost.wrong(wrong, ~wrong) == 1 and sketch_cost.wrong(wrong, wrong) == 0
    )
    y = np.array([0.0, 3.0])
    assert sketch_cost.rmse(y, np.array([1.0, 10.0])) == 5
    assert sketch_cost.absolute(y, np.array([1.0, -4.0])) == 4
    levels = np.column_stack([y - 1, y, y + 1])  # 0.1 above, 0.1 below
    assert sketch_cost.quantile_error(y, levels) == pytest.approx(0.2 / 3)
