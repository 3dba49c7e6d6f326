"""The experiments of structured prediction on tiny settings."""

import os

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal

from nbsketch import GaussianKernel, PSparsifiedSketch, cli
from nbsketch.datasets import Dataset, make_documents
from nbsketch.reproduce import _data, _report
from nbsketch.reproduce.sisokr import least_squares, multilabel
from nbsketch.reproduce.sisokr.multilabel import PaperFit

needs_data = pytest.mark.skipif(
    "NBSKETCH_DATA" not in os.environ, reason="needs the data sets"
)


def toy(n=90, n_train=60, sparse=True):
    X, Y = make_documents(n, n_words=120, n_labels=8, random_state=0)
    X = X if sparse else X.toarray()
    words = tuple(f"word{j}" for j in range(X.shape[1]))
    labels = tuple(f"label{j}" for j in range(Y.shape[1]))
    return Dataset("toy", X, Y.toarray(), words, labels, n_train)


def load(name, data_home):
    if name == "absent":
        raise FileNotFoundError("Fetch it from elsewhere.")
    return toy()


def setting_of(name, method):
    """Return the setting of a method on a set."""
    (found,) = [s for s in multilabel.SETTINGS if (s.set, s.method) == (name, method)]
    return found


@pytest.fixture
def tiny(monkeypatch):
    """Shrink everything: 60 training rows, sketches of 20 and 5 rows."""
    paper = {"paper_f1": 50.0, "paper_training": 2.5}
    settings = [
        PaperFit("toy", "IOKR", 1e-3, 100.0, 1.0, **paper),
        PaperFit("toy", "SIOKR", 1e-3, 100.0, None, 20, None, is_subsampled=False),
        PaperFit("toy", "ISOKR", 1e-3, 100.0, 1.0, None, 5),
        PaperFit("toy", "SISOKR", 1e-3, 100.0, 1.0, 20, 5),
        PaperFit("absent", "IOKR", 1e-3, 100.0, 1.0),
    ]
    monkeypatch.setattr(multilabel, "SETTINGS", settings)
    monkeypatch.setattr(multilabel, "load", load)
    for name, value in {
        "N_TRAIN": [60, 60],
        "N_OTHERS": 20,
        "N_FEATURES": 12,
        "SIZES": [[5, 10], [5, 10]],
        "FIXED_SIZE": 10,
        "RATE_ROWS": [[], [40, 80]],
    }.items():
        monkeypatch.setattr(least_squares, name, value)


def test_the_command_writes_table_and_figure(tiny, tmp_path, capsys, monkeypatch):
    options = ["--quick", "--out", str(tmp_path)]
    assert cli.main(["reproduce", "sisokr", *options]) == 0
    shown = capsys.readouterr().out
    assert "absent was not found. Fetch it from elsewhere." in shown
    rows = _report.read_csv(tmp_path / "sisokr.csv")
    assert [row["method"] for row in rows] == list(SKETCHED)
    assert rows[0]["paper_f1"] == 50 and rows[0]["paper_training"] == 2.5
    assert rows[0]["paper_inference"] is None and rows[1]["paper_f1"] is None
    assert_allclose(
        rows[3]["training_faster"], rows[0]["training"] / rows[3]["training"]
    )
    command = ["reproduce", "sisokr_synthetic", *options]
    assert cli.main(command) == 0
    files = [f"sisokr_synthetic.{kind}" for kind in ("csv", "md", "png")]
    assert all((tmp_path / name).stat().st_size > 100 for name in files)
    # the figure again, from its file alone
    (tmp_path / "sisokr_synthetic.png").unlink()
    monkeypatch.setattr(least_squares, "make_problem", None)
    assert cli.main([*command, "--plot-only"]) == 0
    assert (tmp_path / "sisokr_synthetic.png").exists()


def test_the_set_of_the_size_of_bookmarks(monkeypatch):
    monkeypatch.setattr(multilabel, "LARGE", [None, [400, 100, 50, 20]])
    monkeypatch.setattr(multilabel, "N_WORDS", 120)
    monkeypatch.setattr(multilabel, "N_LABELS", 8)
    (row,) = multilabel.RUNS["sisokr_large"](quick=True)
    assert (row["rows"], row["test_rows"]) == (400, 100)
    assert (row["input_size"], row["output_size"]) == (50, 20)
    assert 0 < row["f1"] <= 100


def test_sizes_of_both_sides_are_scored(tiny, monkeypatch, tmp_path):
    monkeypatch.setattr(multilabel, "SIZES", [None, [[5, 20], [2, 8]]])
    monkeypatch.setattr(multilabel, "_SIZED", "toy")
    rows = multilabel.RUNS["sisokr_sizes"](quick=True, out=tmp_path)
    assert [(row["side"], row["size"]) for row in rows] == [
        ("inputs", 5),
        ("inputs", 20),
        ("outputs", 2),
        ("outputs", 8),
    ]
    few, many, rough, fine = (row["score"] for row in rows)
    assert few < many < 0  # squared distances
    assert 0 < rough < fine <= 100  # percent
    assert fine > 70  # eight labels, eight directions


def test_rates_stand_beside_those_that_are_stated(tiny):
    table = least_squares.RUNS["sisokr_rates"](quick=True)
    assert [(row["name"], row["quantity"]) for row in table] == [
        (name, quantity)
        for name in ("IOKR", "SISOKR")
        for quantity in ("training", "inference", "excess")
    ]
    assert [row["stated"] for row in table] == [3, 2, -0.3, 0, 1, 0]
    excess = table[2]
    assert excess["low"] < excess["slope"] < excess["high"]
    assert 0 < excess["last"] < excess["first"]
    assert_allclose(
        excess["slope"], np.log2(excess["last"] / excess["first"]), atol=0.1
    )


def test_excess_risk_is_the_distance_from_the_best_predictions(tiny):
    problem = least_squares.make_problem(60, 0)
    method = least_squares.SketchPair("IOKR", "input", None, None)
    exact = least_squares.evaluate(method, problem, 0)
    A = problem.X.T @ problem.X / 60 + problem.alpha * np.eye(12)
    slope = np.linalg.solve(A, problem.X.T @ problem.Y / 60)
    distance = np.square(problem.X_test @ slope - problem.truth).sum(axis=1).mean()
    assert_allclose(exact["excess"], np.sqrt(distance), rtol=1e-6)


def test_exact_methods_are_left_out_on_many_rows(tiny, monkeypatch):
    monkeypatch.setattr(multilabel, "MOST_EXACT_ROWS", 59)
    rows = multilabel.RUNS["sisokr"](replicates=1, quick=True)
    assert [row["method"] for row in rows] == ["SIOKR", "SISOKR"]
    assert rows[0]["training_faster"] is None


@pytest.mark.parametrize("sparse", [True, False])
def test_inputs_are_scaled(sparse):
    data = toy(sparse=sparse)
    X, X_test = multilabel.scaled(data.X_train, data.X_test)
    assert sp.issparse(X) == sparse
    dense = [
        A.toarray() if sparse else A for A in (X, X_test, data.X_train, data.X_test)
    ]
    deviation = dense[2].std(axis=0)
    deviation[deviation == 0] = 1
    assert_allclose(dense[0], dense[2] / deviation, rtol=1e-10)
    assert_allclose(dense[1], dense[3] / deviation, rtol=1e-10)


def test_settings_are_those_of_the_program():
    labels = np.array([[1, 1, 1], [1, 0, 0]])
    model = setting_of("mediamill", "SIOKR").model(3, labels)
    assert model.output_kernel.bandwidth == 2**0.5
    assert model.kernel.bandwidth == 10 and model.random_state == 3
    assert model.sketch == PSparsifiedSketch(8000, law="gaussian")
    assert model.alpha == 1e-8


# The sketches of inputs and outputs that make each method.
SKETCHED = {
    "IOKR": (False, False),
    "SIOKR": (True, False),
    "ISOKR": (False, True),
    "SISOKR": (True, True),
}


@pytest.mark.parametrize("name", ["bibtex", "bookmarks", "mediamill"])
def test_methods_have_the_sketches_that_their_names_say(name):
    """Of 2250 rows on bibtex, 8000 elsewhere; 200 and 500 of the outputs."""
    settings = {
        s.method: s for s in multilabel.SETTINGS if s.set == name and s.paper_f1
    }
    input_size, output_size = (2250, 200) if name == "bibtex" else (8000, 500)
    assert settings.keys() >= {"SIOKR", "SISOKR"}
    for method, setting in settings.items():
        assert None not in (setting.paper_f1, setting.paper_training)
        model = setting.model(0, np.ones((2, 3)))
        of_inputs, of_outputs = SKETCHED[method]
        assert getattr(model.sketch, "size", None) == (
            input_size if of_inputs else None
        )
        found = getattr(model.output_sketch, "size", None)
        assert found == (output_size if of_outputs else None)


@pytest.mark.parametrize("name", SKETCHED)
def test_the_score_is_that_of_the_dense_formula(name, tiny):
    """All rows of 60 as a sub-sample: of inputs, of outputs, of both, of neither."""
    data = toy()
    X, X_new = multilabel.scaled(data.X_train, data.X_test)
    of_inputs, of_outputs = SKETCHED[name]
    sizes = 60 if of_inputs else None, 60 if of_outputs else None
    model = PaperFit("toy", name, 1e-3, 100.0, 1.0, *sizes).model(1, data.y_train)
    found = multilabel.evaluate(model, X, data.y_train, X_new, data.y_test)
    kernel, output_kernel = GaussianKernel(10.0), GaussianKernel(1.0)
    Y = data.y_train.astype(float)
    candidates = np.unique(Y, axis=0)
    weights = np.linalg.solve(kernel(X) + 60 * 1e-3 * np.eye(60), kernel(X, X_new))
    scores = weights.T @ output_kernel(Y, candidates)
    predicted = candidates[scores.argmax(axis=1)]
    overlap = (predicted * data.y_test).sum(axis=1)
    total = (predicted + data.y_test).sum(axis=1)
    assert_allclose(found["f1"], 100 * np.mean(2 * overlap / total))


def test_the_synthetic_problem_has_the_stated_law(monkeypatch):
    monkeypatch.setattr(least_squares, "N_FEATURES", 20)
    problem = least_squares.make_problem(20_000, seed=0)
    values = np.linalg.eigvalsh(np.cov(problem.X.T))[::-1]
    assert_allclose(values, np.arange(1, 21) ** -1.5, rtol=0.05)
    slope = np.linalg.lstsq(problem.X, problem.Y, rcond=None)[0]
    noise = np.linalg.eigvalsh(np.cov((problem.Y - problem.X @ slope).T))[::-1]
    assert_allclose(noise, 0.2 * np.arange(1, 21) ** -0.1, rtol=0.1)
    assert problem.alpha in least_squares._ALPHAS


def test_documents():
    X, Y = make_documents(500, n_words=300, n_labels=10, random_state=0)
    for rows in (X, Y):
        assert set(np.unique(rows.data)) == {1}
        assert rows.has_canonical_format
    assert Y.sum(axis=1).min() >= 1 and Y.dtype == np.int8
    again = make_documents(500, n_words=300, n_labels=10, random_state=0)
    assert_array_equal(again[0].indices, X.indices)


def test_the_large_set_reports_its_cost(capsys):
    documents = make_documents(300, n_words=200, n_labels=10, random_state=0)
    (row,) = multilabel.measure_large(*documents, 200, 50, 20)
    assert row["test_rows"] == 100 and row["f1"] > 20 and row["gibibytes"] > 0
    shown = capsys.readouterr().err
    assert all(
        f"{name}: " in shown for name in ("outputs", "inputs: features", "decoding")
    )


@pytest.mark.full
@needs_data
def test_bibtex_has_the_score_of_the_paper():
    """Draws of the sketches vary by 0.15."""
    data = _data.load("bibtex", None)
    X, X_test = multilabel.scaled(data.X_train, data.X_test)
    setting = setting_of("bibtex", "SISOKR")
    split = X, data.y_train, X_test, data.y_test
    (row,) = multilabel.measure(setting, 0, split)
    assert abs(row["f1"] - setting.paper_f1) < 0.5
