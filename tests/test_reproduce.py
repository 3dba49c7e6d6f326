"""The command line, the tables and figures of the papers on tiny settings, reports."""

import io
import json
import os
import re
import subprocess
import sys
from itertools import product
from shutil import which

import numpy as np
import pytest
from conftest import ROOT
from numpy.testing import assert_allclose

import nbsketch
from nbsketch import RandomFourierFeatures, cli, plots, reproduce
from nbsketch._report import progress
from nbsketch.datasets import Dataset, _files, make_friedman_outliers
from nbsketch.kernels import median_distance
from nbsketch.reproduce import (
    EXPERIMENTS,
    _data,
    _figures,
    _report,
    demo,
    experiment,
    options_of,
    runner,
)
from nbsketch.reproduce._data import Split
from nbsketch.reproduce.p_sparsified import figures, table1, table2

METHODS = list(table2.METHODS)
needs_data = pytest.mark.skipif(
    "NBSKETCH_DATA" not in os.environ, reason="needs the data sets"
)


class Terminal(io.StringIO):
    def isatty(self):
        return True


def toy(name, n=60, n_train=None, n_targets=0):
    """Return a data set of a smooth target, or several."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(n, 3))
    y = np.sin(3 * X[:, 0]) + 0.2 * rng.normal(size=n)
    targets = ("t",)
    if n_targets:
        y = np.column_stack([y + j * X[:, 1] for j in range(n_targets)])
        targets = tuple(f"t{j}" for j in range(n_targets))
    return Dataset(name, X, y, ("a", "b", "c"), targets, n_train)


@pytest.fixture
def tiny_table1(monkeypatch):
    """Shrink Table 1: 60 rows for Boston, 36 images, small sketches, short grids."""
    pictures = table1.make_rings(n_train=30, n_test=6)
    monkeypatch.setattr(table1, "load_boston", lambda data_home: toy("boston"))
    monkeypatch.setattr(table1, "load_images", lambda data_home: pictures)
    monkeypatch.setattr(table1, "SIZE", 8)
    for name, value in {
        "_STAND_IN_SIZE": 12,
        "_FOLDS": 2,
        "_BANDWIDTH_FACTORS": np.array([1.0]),
        "_ALPHAS": np.array([1e-2, 1e-3]),
        "_GAMMAS": (1.0,),
    }.items():
        monkeypatch.setattr(table1, name, value)


@pytest.fixture
def tiny_table2(monkeypatch):
    """Shrink Table 2: one set of 80 rows, sketches of 10 rows, short grids."""
    data = toy("rf1", n=80, n_train=60, n_targets=2)
    monkeypatch.setattr(table2, "_load", lambda name, home: Split.published(data))
    monkeypatch.setattr(table2, "SETS", ("rf1",))
    monkeypatch.setattr(table2, "SIZE", 10)
    monkeypatch.setattr(table2, "_BANDWIDTH_FACTORS", np.array([1.0, 2.0]))
    monkeypatch.setattr(table2, "_TUNING_DRAWS", 2)


@pytest.fixture
def tiny_figures(monkeypatch):
    """Shrink the figures: 120 rows, two sizes, two more of sub-sampling."""
    monkeypatch.setattr(figures, "N_ROWS", 120)
    monkeypatch.setattr(figures, "SIZES", [[10, 20], [10, 20]])
    monkeypatch.setattr(figures, "LANDMARKS", [[40, 60], [40]])
    monkeypatch.setattr(_figures, "DPI", 100)


@pytest.fixture
def no_data(monkeypatch, tmp_path):
    """Leave no data set to be found, on disk or elsewhere."""

    def fail(*arguments, **options):
        raise OSError("no network here")

    monkeypatch.setenv("NBSKETCH_DATA", str(tmp_path / "nothing"))
    monkeypatch.setenv("SCIKIT_LEARN_DATA", str(tmp_path / "nothing"))
    monkeypatch.setattr(_files, "fetch", fail)
    monkeypatch.setattr("sklearn.datasets.fetch_openml", fail)


# the command line -------------------------------------------------------------------


def test_version(capsys):
    with pytest.raises(SystemExit) as end:
        cli.main(["--version"])
    assert end.value.code == 0
    assert capsys.readouterr().out.strip() == nbsketch.__version__


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["nothing"],
        ["reproduce"],
        ["reproduce", "table9"],
        ["reproduce", "table2", "--replicates", "0"],
        ["reproduce", "table2", "--replicates", "many"],
    ],
    ids=" ".join,
)
def test_misuse_is_status_2(arguments, capsys):
    with pytest.raises(SystemExit) as end:
        cli.main(arguments)
    assert end.value.code == 2
    assert "usage: nbsketch" in capsys.readouterr().err


def test_no_command_prints_the_help(capsys):
    with pytest.raises(SystemExit):
        cli.main([])
    assert "fit a synthetic problem" in capsys.readouterr().err


def test_an_unwritable_folder_is_an_error_of_one_line(tmp_path, capsys):
    (tmp_path / "file").touch()
    out = ["--out", str(tmp_path / "file" / "results")]
    assert cli.main(["reproduce", "table1", *out]) == 1
    error = capsys.readouterr().err
    assert error.startswith("nbsketch: ") and error.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["table1", "--plot-only"], "--plot-only is not an option of table1"),
        (["figure1", "--tuning", "x.json"], "--tuning is not an option of figure1"),
        (["figure4", "--data-home", "x"], "--data-home is not an option of figure4"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_options_that_would_do_nothing_are_refused(arguments, message, capsys):
    assert cli.main(["reproduce", *arguments]) == 1
    assert capsys.readouterr().err == f"nbsketch: {message}\n"


def test_info(capsys):
    assert cli.main(["info"]) == 0
    out = capsys.readouterr().out
    assert all(name in out for name in ("nbsketch", "numba", "threads", "cache"))


def test_a_reader_that_has_read_enough_is_no_error():
    command = [sys.executable, "-m", "nbsketch", "datasets"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    pipes["env"] = os.environ | {"NBSKETCH_DATA": ""}  # reads no set
    with subprocess.Popen(command, **pipes) as process:
        process.stdout.close()  # as `head` does
        errors = process.stderr.read()
        assert process.wait() == 141  # as of a command that SIGPIPE has ended
    assert "Pipe" not in errors and "Traceback" not in errors


def test_unknown_experiment_is_named(capsys):
    with pytest.raises(SystemExit):
        cli.main(["reproduce", "tabel2"])
    assert "argument NAME: invalid choice: 'tabel2'" in capsys.readouterr().err


def test_datasets_that_are_found(no_data, capsys):
    assert cli.main(["datasets"]) == 0
    captured = capsys.readouterr()
    lines = captured.out.splitlines()
    assert captured.err.startswith("Set NBSKETCH_DATA")
    assert "boston       not found" in lines
    assert all(line.endswith("not found") for line in lines)


@pytest.mark.parametrize("table", ["table1", "table2"])
def test_missing_data_is_status_1(table, no_data, capsys):
    assert cli.main(["reproduce", table]) == 1
    captured = capsys.readouterr()
    assert captured.err.startswith("nbsketch: The data set")
    assert "NBSKETCH_DATA" in captured.err
    assert captured.out == ""


@pytest.mark.parametrize("table", ["table1", "table2", "table6"])
def test_sets_are_selected(table, monkeypatch, capsys):
    def load(name, *args):
        raise FileNotFoundError(name)  # the set, instead of measuring it

    monkeypatch.setattr(table1, "_load", load)
    monkeypatch.setattr(table2, "_load", load)
    chosen = {"table1": "otoliths"}.get(table, "scm1d")
    assert cli.main(["reproduce", table, "--sets", chosen]) == 1
    assert capsys.readouterr().err == f"nbsketch: {chosen}\n"
    assert cli.main(["reproduce", table, "--sets", "nothing"]) == 1
    assert "`sets` must be among" in capsys.readouterr().err


def test_the_module_runs(run_python):
    code = "import runpy, sys; sys.argv = ['nbsketch', 'info']\n"
    code += "try: runpy.run_module('nbsketch', run_name='__main__')\n"
    code += "except SystemExit as end: print('status', end.code)"
    assert run_python(code).endswith("status 0")


def test_demo(monkeypatch, capsys):
    monkeypatch.setattr(demo, "N_TRAIN", 300)
    monkeypatch.setattr(demo, "N_TEST", 100)
    monkeypatch.setattr(table2, "SIZE", 30)
    monkeypatch.setattr(demo, "_REPLICATES", 1)
    assert cli.main(["demo"]) == 0
    out = capsys.readouterr().out
    assert all(method in out for method in demo.METHODS)
    assert "times faster" in out


# tables -----------------------------------------------------------------------------


def test_table1(tiny_table1, tmp_path, capsys, monkeypatch):
    tuning = tmp_path / "new" / "tuning.json"
    command = ["reproduce", "table1", "--replicates", "2", "--out", str(tmp_path)]
    assert cli.main([*command, "--tuning", str(tuning)]) == 0
    rows = _report.read_csv(tmp_path / "table1.csv")
    assert [row["set"] for row in rows] == [
        name for name in ("boston", "otoliths, synthetic") for _ in METHODS
    ]
    assert [row["method"] for row in rows] == 2 * METHODS
    boston, rings = rows[: len(METHODS)], rows[len(METHODS) :]
    assert [row["paper"] for row in boston] == [51.28, 54.75, 54.78, 54.73, 54.60]
    assert [row["paper_seconds"] for row in boston] == [6.97, 1.43, 1.38, 1.48, 1.23]
    assert all(row["paper"] is None for row in rings)
    for row in rows:
        assert (row["faster"] is None) == (row["method"] == "without sketch")
    # The best constants have a pinball loss of about 160.
    assert all(20 < row["pinball"] < 150 for row in boston)
    assert all(0 <= row["crossing"] < 20 for row in rows)
    chosen = json.loads(tuning.read_text("utf-8"))
    assert list(chosen["boston"]["20/n-SR"]) == ["0", "1"]
    assert list(chosen["otoliths, synthetic"]["20/n-SG"]) == ["0"]
    assert "20/n-SG" in capsys.readouterr().out
    monkeypatch.setattr(table1, "tune", None)  # nothing is chosen twice
    again = table1.run(replicates=2, quick=True, tuning=tuning)
    assert [row["pinball"] for row in again] == [row["pinball"] for row in boston]


def is_on_the_grid(value, grid):
    return np.isclose(value, grid, rtol=1e-9, atol=0).any()


def assert_of_one_grid(bandwidths, factors):
    """Check that bandwidths are multiples of one median by factors of the grid."""
    ratios = np.log2(np.array(bandwidths) / min(bandwidths))
    assert_allclose(ratios, ratios.round(), atol=1e-9)
    assert ratios.max() < len(factors)


@pytest.mark.parametrize(
    ("data_set", "replicates"),
    [("boston", table1.run.entry["replicates"][0]), ("otoliths, synthetic", 1)],
)
def test_shipped_choices_of_table1_are_those_of_its_grids(data_set, replicates):
    for i in range(replicates):
        keys = [(data_set, method, str(i)) for method in METHODS]
        chosen = _data.settings_for(keys, None, table1.SETTINGS).values()
        assert all(is_on_the_grid(s["alpha"], table1._ALPHAS) for s in chosen)
        assert {s["gamma"] for s in chosen} <= set(table1._GAMMAS)
        factors = table1._BANDWIDTH_FACTORS
        assert_of_one_grid([s["bandwidth"] for s in chosen], factors)


@pytest.mark.parametrize("data_set", table2.SETS)
def test_shipped_choices_of_table2_are_inside_its_grids(data_set):
    """At no end: the best bandwidth and penalty are not beyond the grid."""
    keys = [(data_set, method) for method in METHODS]
    chosen = _data.settings_for(keys, None, table2.SETTINGS)
    for (_, method), setting in chosen.items():
        coarse = method == _data.WITHOUT
        grid = table2._COARSE_ALPHAS if coarse else table2._ALPHAS
        assert is_on_the_grid(setting["alpha"], grid[1:-1])
    factors = table2._BANDWIDTH_FACTORS
    assert_of_one_grid([setting["bandwidth"] for setting in chosen.values()], factors)


@needs_data
@pytest.mark.parametrize("data_set", ["rf1", "scm20d"])
def test_shipped_bandwidths_of_table2_are_multiples_of_the_median(data_set):
    found = json.loads(table2.SETTINGS.read_text("utf-8"))[data_set]
    median = median_distance(table2._load(data_set, None).X_train, rng=0)
    for method in METHODS:
        factor = found[method]["bandwidth"] / median
        assert is_on_the_grid(factor, table2._BANDWIDTH_FACTORS[1:-1])


def test_targets_are_scaled_by_the_training_rows():
    split = table1._splits(toy("boston"), 1)[0]
    assert_allclose([split.Y_train.mean(), split.Y_train.std()], [0, 1], atol=1e-12)
    assert_allclose(split.X_train.mean(axis=0), 0, atol=1e-12)
    assert abs(split.Y_test.mean()) > 1e-6


def test_rings_tell_an_age():
    data = table1.make_rings(n_train=40, n_test=5)
    assert data.X.shape == (45, 4096) and data.n_train == 40
    assert data.y.min() >= 1 and data.y.max() <= 26
    assert np.corrcoef(data.X.sum(axis=1), data.y)[0, 1] > 0.5


def test_otoliths_stand_in_is_announced(no_data, monkeypatch, capsys):
    monkeypatch.setattr(table1, "make_rings", lambda: "rings")
    assert table1.load_images() == "rings"
    out = capsys.readouterr().out
    assert "Put the files into" in out and "synthetic" in out


def test_table2(tiny_table2, tmp_path, capsys):
    tuning = tmp_path / "tuning.json"
    command = ["reproduce", "table2", "--quick", "--out", str(tmp_path / "new")]
    assert cli.main([*command, "--tuning", str(tuning)]) == 0
    rows = _report.read_csv(tmp_path / "new" / "table2.csv")
    added = rows.pop(1)
    assert added["method"] == "without sketch, iterative" and added["paper"] is None
    assert added["arrmse"] == pytest.approx(rows[0]["arrmse"], abs=1e-9)
    rows, of_program = rows[:5], rows[5:]
    assert [row["method"] for row in rows] == METHODS
    assert [row["paper"] for row in rows] == [0.575, 0.584, 0.583, 0.592, 0.575]
    assert [row["method"] for row in of_program] == [
        f"{method}, program" for method in METHODS[1:4]
    ]
    assert [row["paper"] for row in of_program] == [0.584, 0.583, 0.592]
    assert [row["paper_seconds"] for row in rows] == [1.73, 0.22, 0.25, 0.6, 0.66]
    assert all(0.1 < row["arrmse"] < 1 for row in rows)
    assert set(json.loads(tuning.read_text("utf-8"))["rf1"]) == set(METHODS)
    assert (tmp_path / "new" / "table2.md").read_text("utf-8").startswith("# Table 2")
    assert "20/n-SG" in capsys.readouterr().out


@pytest.mark.full
@needs_data
def test_table2_on_real_data(monkeypatch):
    monkeypatch.setattr(table2, "SETS", ("rf1",))
    monkeypatch.setattr(table2, "_EXACT_REPLICATES", 1)
    exact, *sketched = table2.run(replicates=1, quick=True)
    assert exact["arrmse"] < 0.585
    assert all(row["arrmse"] < 0.61 for row in sketched)


@needs_data
def test_table1_on_real_data(monkeypatch):
    monkeypatch.setattr(table1, "METHODS", table2.METHODS[1:])
    rows = table1.run(replicates=3, quick=True)
    for row in rows:
        assert row["pinball"] < 50
        assert row["crossing"] < 1


# figures ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name == "figure4" else pytest.mark.full)
        for name in figures.FIGURES  # the first is drawn below
    ],
)
def test_figures(name, tiny_figures, tmp_path, capsys):
    command = ["reproduce", name, "--replicates", "2", "--out", str(tmp_path)]
    assert cli.main(command) == 0
    fits = _report.read_csv(tmp_path / f"{name}.csv")
    # 4 sizes of sub-sampling; 2 of four densities, accumulation, Fourier features,
    # CountSketch, the Gaussian sketch, ROS, Adam, leverage scores and pivots.
    assert len(fits) == 2 * (4 + 2 * 4 + 2 * 8)
    assert all(0 < fit["error"] < 100 and fit["seconds"] > 0 for fit in fits)
    law = "S" + figures.FIGURES[name].law[0].upper()
    assert f"30/n-{law}, Adam" in capsys.readouterr().out
    picture = (tmp_path / f"{name}.png").read_bytes()
    assert picture.startswith(b"\x89PNG") and len(picture) > 50_000


def test_figures_are_drawn_again_without_fitting(tiny_figures, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(figures, "NONZEROS", (10,))
    monkeypatch.setattr(_figures, "DPI", 60)
    table = figures.RUNS["figure1"](quick=True, replicates=1)
    results = tmp_path / "results"  # where they go by default
    for suffix in ("md", "png"):
        (results / f"figure1.{suffix}").unlink()
    monkeypatch.setattr(experiment, "measure_all", None)
    command = ["reproduce", "figure1", "--plot-only", "--out", str(results)]
    assert cli.main(command) == 0
    assert (results / "figure1.png").exists() and (results / "figure1.md").exists()
    monkeypatch.setattr(experiment, "save_panels", lambda *arguments: None)
    assert figures.RUNS["figure1"](plot_only=True) == table


def test_nothing_to_draw_again_is_status_1(tmp_path, capsys):
    command = ["reproduce", "figure2", "--plot-only", "--out", str(tmp_path)]
    assert cli.main(command) == 1
    assert "run without --plot-only first" in capsys.readouterr().err


def test_table6_has_the_targets_of_table2(tiny_table2, monkeypatch):
    figures = dict.fromkeys(METHODS, 0.5) | {"low": 0.1, "high": 0.9}
    known = [{"set": "rf1", "target": target, **figures} for target in "ab"]
    monkeypatch.setattr(table2, "TARGETS", known)
    targets = table2.targets(replicates=2)
    assert [row["target"] for row in targets] == ["a", "b"]
    assert targets[0]["20/n-SR, paper"] == 0.5
    for row in table2.run(replicates=2):
        if row["method"] in METHODS:
            mean = np.mean([target[row["method"]] for target in targets])
            assert_allclose(mean, row["arrmse"])


def test_losses_of_vectors_and_an_output_matrix(tiny_table2, monkeypatch):
    monkeypatch.setattr(table2, "_ALPHAS", np.array([1e-4, 1e-3, 1e-2]))
    table = table2.vector(replicates=1)
    assert [row["method"] for row in table][:2] == ["square", "Huber, kappa = 1"]
    assert table[-1]["method"] == "graph" and len(table) == 5
    errors = [row["arrmse"] for row in table]
    assert len(set(errors)) == 5 and all(0.1 < error < 1 for error in errors)


def test_published_targets_average_to_the_published_errors():
    for name in table2.SETS:
        rows = _report.where(table2.TARGETS, set=name)
        for method in METHODS:
            mean = np.mean([row[method] for row in rows])
            (published,) = _report.where(table2.PAPER, set=name, method=method)
            assert abs(mean - published["paper"]) < 2e-3


def test_no_matplotlib_is_said_before_any_fit(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(plots, "find_spec", lambda name: None)
    monkeypatch.setattr(experiment, "measure_all", None)
    assert cli.main(["reproduce", "figure1", "--out", str(tmp_path)]) == 1
    assert 'pip install "nbsketch[plot]"' in capsys.readouterr().err


def test_fourier_features_are_solved_as_a_linear_model(tiny_figures):
    X, y = make_friedman_outliers(300, random_state=0)
    problem = figures.FIGURES["figure5"]
    predict, landmarks = figures._fit_fourier(problem, 20, 0, (X, y))
    features = RandomFourierFeatures(figures._KERNEL, size=20, random_state=0)
    Z = features.fit_transform(X)
    ridge = Z.T @ Z / 300 + problem.alpha * np.eye(20)
    w = np.linalg.solve(ridge, Z.T @ y / 300)
    assert landmarks == 0
    assert_allclose(predict(X), Z @ w, rtol=1e-4, atol=1e-4)


def test_figures_are_numbered_as_in_the_paper():
    found = [
        (type(problem.loss).__name__, problem.law)
        for problem in figures.FIGURES.values()
    ]
    huber, tube = "HuberLoss", "EpsilonInsensitiveLoss"
    laws = ["rademacher", "gaussian"]
    assert found[:4] == [(loss, law) for loss in (huber, tube) for law in laws]


def test_outliers_have_the_stated_variance_in_an_experiment_of_their_own():
    spreads = {}
    for name in ("figure1", "outliers"):
        (X, _), _ = figures._data(10_000, 0, figures.FIGURES[name].outlier_std)
        spreads[name] = X[X.max(axis=1) > 1].std()
    assert spreads["figure1"] == pytest.approx(0.25, rel=0.1)
    assert spreads["outliers"] ** 2 == pytest.approx(0.25, rel=0.1)


def test_data_are_the_same_for_all_sketches(tiny_figures):
    problem = figures.FIGURES["figure1"]
    sizes = figures.sizes_of(problem, quick=True)["sub-sampling"]
    rows = [
        row
        for replicate, _, size in product(range(2), "ab", sizes)
        for row in figures.measure(problem, "sub-sampling", size, replicate, False)
    ]
    errors = np.array([row["error"] for row in rows]).reshape(2, 2, -1)
    assert_allclose(errors[:, 0], errors[:, 1])
    assert not np.allclose(errors[0], errors[1])


def test_figures_interpolate_sub_sampling_in_time():
    fits = [
        {"series": s, "size": k, "error": e, "seconds": t, "landmarks": k}
        for s, k, e, t in [
            ("sub-sampling", 10, 1.0, 1.0),
            ("sub-sampling", 10, 3.0, 4.0),
            ("sub-sampling", 20, 0.5, 4.0),
            ("other", 10, 0.3, 2.0),
            ("other", 20, 0.2, 5.0),
        ]
    ]
    table = {(row["series"], row["size"]): row for row in figures.summarize(fits)}
    first = table["sub-sampling", 10]
    assert (first["error"], first["error_deviation"], first["seconds"]) == (2, 1, 1)
    assert_allclose(table["other", 10]["subsampling_same_time"], 1.0)
    assert table["other", 20]["subsampling_same_time"] is None


def test_panels_have_room_for_every_kind_of_curve(tmp_path):
    curve = _figures.Curve("one", [1, 2], [0.1, 0.2], spread=[0.01, 0.02])
    panel = _figures.Panel(
        "title", "x", "y", [curve, curve._replace(label="two")], "xy"
    )
    _figures.save_panels([panel] * 3, "three of four", tmp_path / "plot.png")
    assert (tmp_path / "plot.png").stat().st_size > 10_000


# reports ----------------------------------------------------------------------------

ROWS = [
    {"name": "a, b", "count": 3, "share": 1 / 3, "none": None},
    {"name": "c", "count": -1, "share": 1e-7, "none": None},
]


def publish_rows(folder):
    """Write the rows as the table of an experiment, and return it."""
    table = experiment.Experiment("table4", None, None)
    return table.publish(ROWS, folder / "rows.csv")


def test_csv_round_trip(tmp_path):
    assert publish_rows(tmp_path) == ROWS
    assert _report.read_csv(tmp_path / "rows.csv") == ROWS


def test_commits_are_text(tmp_path):
    rows = [{"n": 10, "commit": commit} for commit in ("6344e40", "1234567", None)]
    _report.write_csv(rows, tmp_path / "rows.csv")
    assert _report.read_csv(tmp_path / "rows.csv") == rows


def test_markdown():
    lines = _report.as_markdown(ROWS, "Title", ["One.", "Two."]).splitlines()
    assert lines[0] == "# Title"
    assert lines[2:6] == [
        "| name | count | share | none |",
        "| --- | --- | --- | --- |",
        "| a, b | 3 | 0.333 | - |",
        "| c | -1 | 1e-07 | - |",
    ]
    assert lines[6:] == ["", "One.", "", "Two."]


def test_text_is_aligned():
    head, rule, *body = _report.as_text(ROWS).splitlines()
    assert head.index("count") == body[0].index("3") and set(rule) == {"-"}


def test_every_experiment_has_its_module():
    for name in EXPERIMENTS:
        options = vars(cli._parser().parse_args(["reproduce", name]))
        assert callable(runner(name))
        assert {"replicates", "quick", "out"} <= options_of(name) <= options.keys()


def test_every_experiment_has_its_texts():
    for entry in reproduce.ENTRIES.values():
        known = reproduce.ENTRIES.get(entry.get("like"), {}) | entry
        assert {"title", "replicates", "label", "notes"} <= known.keys()
    unseen = runner("unseen").entry
    assert unseen["notes"] == runner("tabular").entry["notes"]
    assert unseen["preface"].startswith("Sets from R's packages")


def test_style_is_that_of_the_label():
    assert _figures.style_of("p-SR, p = 20/n (added)") == _figures.STYLES["p-SR"]
    assert _figures.style_of("5/n-SG") != _figures.style_of("50/n-SG")
    assert _figures.style_of("regime IV") != _figures.style_of("regime I")
    assert _figures.style_of("another") == _figures.Style("#1764ab", "o")


def test_summary():
    assert _report.spread("loss", [1.0, 3.0]) == {"loss": 2.0, "loss_deviation": 1.0}
    assert _report.spread("loss", [2.0]) == {"loss": 2.0, "loss_deviation": None}
    rows = [
        {"set": "toy", "method": method, "loss": 1.0, "seconds": seconds}
        for method, times in (("without sketch", (6.0, 7.0)), ("20/n-SR", (2.0, 5.0)))
        for seconds in times
    ]
    first, second = table2.compare(rows, ["loss"], min)
    assert (first["seconds"], first["faster"]) == (6.0, None)
    assert (second["seconds"], second["faster"]) == (2.0, 3.0)
    assert list(second)[:4] == ["set", "method", "loss", "loss_deviation"]


def test_a_wide_legend_stays_within_the_figure():
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4, 3), layout="constrained")
    ax = figure.subplots()
    for k in range(6):
        ax.plot([0, 1], [k, k], label=f"a method with a long name, {k}")
    _figures.add_legend(figure, [ax])
    (legend,) = figure.legends
    assert legend.get_window_extent().width <= figure.bbox.width
    assert len(legend.get_texts()) == 6


# progress and tuning files ----------------------------------------------------------


def test_progress_is_silent_off_the_terminal(capsys):
    assert list(progress.counted([1, 2], str)) == [1, 2]
    assert capsys.readouterr().err == ""


def test_progress_on_a_terminal(monkeypatch):
    monkeypatch.setattr(sys, "stderr", Terminal())
    assert list(progress.counted(["one", "two"], str)) == ["one", "two"]
    shown = sys.stderr.getvalue()
    assert "1/2 one" in shown and "2/2 two, 0 s left" in shown
    assert shown.endswith("\r\x1b[K")


def test_choices_are_kept_and_completed(tmp_path):
    file, asked = tmp_path / "new" / "choices.json", []

    def choose(key):
        asked.append(key)
        return {"bandwidth": 1.0, "alpha": float(len(asked))}

    first = _data.settings_for([("a", "x")], choose, None, file)
    both = _data.settings_for([("a", "x"), ("a", "y")], choose, None, file)
    settings = [{"bandwidth": 1.0, "alpha": alpha} for alpha in (1.0, 2.0)]
    assert first == {("a", "x"): settings[0]}
    assert both == {**first, ("a", "y"): settings[1]}
    assert asked == [("a", "x"), ("a", "y")]
    written = json.loads(file.read_text("utf-8"))
    assert written == {"a": {"x": settings[0], "y": settings[1]}}


def test_a_file_that_holds_no_choices_is_named(tiny_table1, tmp_path, capsys):
    file = tmp_path / "bad.json"
    file.write_text("not JSON", "utf-8")
    command = ["reproduce", "table1", "--quick", "--tuning", str(file)]
    assert cli.main(command) == 1
    assert "bad.json is not a file of settings" in capsys.readouterr().err


def test_all_runs_every_experiment_and_names_what_is_missing(monkeypatch, capsys):
    """With the options that it takes; a data set that is not there stops no other."""
    given = {}

    def runner_of(name):
        def run(quick=False):
            given[name] = quick
            if name == "table2":
                raise FileNotFoundError("rf1 is not there")
            return []

        return run

    monkeypatch.setattr(reproduce, "runner", runner_of)
    assert cli.main(["reproduce", "all", "--quick"]) == 1
    assert given == dict.fromkeys(EXPERIMENTS, True)
    out, err = capsys.readouterr()
    assert "table2 was left out. rf1 is not there" in out
    assert err == "nbsketch: not run: table2; see the reasons above\n"


def test_a_result_says_when_and_where_it_was_measured(tmp_path):
    publish_rows(tmp_path)
    known = json.loads((tmp_path / "rows.json").read_text())
    assert known["nbsketch"] == nbsketch.__version__
    assert {"date", "numba", "numpy", "processor", "threads"} <= known.keys()
    sentence = (tmp_path / "rows.md").read_text().splitlines()[-1]
    assert known["date"] in sentence and known["processor"] in sentence


def test_results_name_their_command_without_folders(monkeypatch):
    words = ["nbsketch", "reproduce", "tabular", "--out", "/a", "--sets", "car prices"]
    monkeypatch.setattr(sys, "argv", words)
    known = _report.provenance()
    assert known["command"] == "nbsketch reproduce tabular --sets 'car prices'"
    if (ROOT / ".git").exists() and which("git"):
        assert re.fullmatch(r"[0-9a-f]{7,40}\+?", known["commit"])
        assert f"commit {known['commit']}" in _report.as_sentence(known)
    monkeypatch.setattr(_report, "which", lambda name: None)
    assert _report.provenance()["commit"] == ""
