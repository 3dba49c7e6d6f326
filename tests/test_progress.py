"""Callbacks, and the line that shows the progress."""

import contextlib
import io
import pickle
import re
import sys

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

import nbsketch
from nbsketch import (
    FitState,
    InputOutputKernelRegressor,
    JointQuantileRegressor,
    SketchedKernelClassifier,
    SketchedKernelRegressor,
    SketchedSGDClassifier,
    SketchedSGDRegressor,
    SpectralFilterRegressor,
)
from nbsketch._report.progress import Display, Watch, counted, report, watching

X = np.random.default_rng(0).uniform(-3, 3, size=(600, 2))
Y = np.sin(X[:, 0]) + 0.1 * np.random.default_rng(1).normal(size=600)
LABELS = np.sign(Y)
FIXED = {"bandwidth": 1.0, "size": 30, "random_state": 0}
# Model, targets, parameters and the stages that its callback is told of.
CASES = [
    (SketchedKernelRegressor, Y, {"loss": "huber"}, {"penalty", "solver"}),
    (SketchedKernelRegressor, Y, {"bandwidth": None}, {"length-scales", "penalty"}),
    (SketchedKernelRegressor, Y, {"alpha": 1e-3}, {"solver"}),
    (SketchedKernelRegressor, Y, {"size": "auto"}, {"size", "penalty"}),
    (
        SketchedKernelRegressor,
        np.column_stack([Y, X[:, 1]]),
        {"loss": "huber", "alpha": 1e-3},
        {"solver"},
    ),
    (SketchedKernelRegressor, Y, {"solver": "adam", "alpha": 1e-3}, {"steps"}),
    (SketchedKernelClassifier, LABELS, {"loss": "logistic"}, {"penalty", "solver"}),
    (JointQuantileRegressor, Y, {"alpha": 1e-3}, {"solver"}),
    (SpectralFilterRegressor, Y, {"bandwidth": None}, {"length-scales", "penalty"}),
    (SketchedSGDRegressor, Y, {"n_epochs": 2}, {"steps"}),
    (SketchedSGDRegressor, Y, {"early_stopping": True, "n_epochs": 2}, {"steps"}),
    (SketchedSGDClassifier, LABELS, {"n_epochs": 2}, {"steps"}),
]
EACH_CASE = pytest.mark.parametrize(("model", "y", "params", "stages"), CASES)


def always(state):
    """Stop at once."""
    return True


@EACH_CASE
def test_a_callback_is_told_of_every_stage_and_changes_nothing(
    model, y, params, stages
):
    states = []
    options = FIXED | params
    told = model(**options, callback=states.append).fit(X, y)
    assert {state.stage for state in states} == stages
    assert all(isinstance(state, FitState) for state in states)
    seconds = [state.seconds for state in states]
    assert seconds == sorted(seconds) and seconds[0] >= 0
    np.testing.assert_array_equal(told.coef_, model(**options).fit(X, y).coef_)


@EACH_CASE
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_fit_that_is_stopped_is_a_model(model, y, params, stages):
    calls = []

    def stop(state):
        calls.append(state)
        return True

    stopped = model(**(FIXED | params), callback=stop).fit(X, y)
    assert len(calls) == 1  # and never again
    values = stopped.predict(X)
    assert values.shape[0] == len(X)
    # a step of Newton's method is worth a model, one of a stochastic method is not
    if "steps" not in stages and values.shape == y.shape:
        assert np.mean((values - y) ** 2) < 0.7 * np.var(y)


def test_a_stopped_solver_warns_and_says_by_how_much():
    options = FIXED | {"loss": "pinball", "alpha": 1e-5}
    with pytest.warns(ConvergenceWarning, match="`callback` has stopped .* after 1 it"):
        early = SketchedKernelRegressor(**options, callback=always).fit(X, Y)
    full = SketchedKernelRegressor(**options).fit(X, Y)
    assert early.n_iter_ == 1 < full.n_iter_
    assert full.dual_gap_ <= 1e-6 < early.dual_gap_
    # the certificate of the early model is honest
    excess = early.objective_ - full.objective_
    assert 0 < excess <= 1.01 * early.dual_gap_ * early.objective_


def test_conjugate_gradients_stop_and_keep_the_best(monkeypatch):
    monkeypatch.setattr("nbsketch.fitting.plan._DENSE_ROWS", 100)
    options = {"sketch": "identity", "bandwidth": 1.0, "alpha": 1e-6}
    with pytest.warns(ConvergenceWarning, match="`callback` has stopped"):
        early = SketchedKernelRegressor(**options, callback=always).fit(X, Y)
    assert early.score(X, Y) > 0.5


def test_the_gap_of_a_state_is_that_of_the_model():
    states = []
    options = FIXED | {"loss": "huber", "alpha": 1e-3, "tol": 1e-6}
    model = SketchedKernelRegressor(**options, callback=states.append).fit(X, Y)
    last = states[-1]
    assert last.objective == model.objective_
    assert last.iteration == model.n_iter_
    assert last.gap <= 1e-5 and last.seconds_left == 0.0


def test_fit_path_calls_the_object_itself():
    class Counter:
        count = 0

        def add(self, state):
            self.count += 1

    counter = Counter()
    model = SketchedKernelRegressor(loss="huber", callback=counter.add, **FIXED)
    models = model.fit_path(X, Y, [1e-2, 1e-3])
    assert counter.count > 0
    assert models[0].callback == counter.add


def test_a_callback_is_cloned_and_not_saved(tmp_path):
    model = SketchedKernelRegressor(callback=always, alpha=1e-3, **FIXED)
    assert clone(model).callback is always
    assert pickle.loads(pickle.dumps(model)).callback is always
    model.fit(X, Y).save(tmp_path / "model.npz")
    again = nbsketch.load(tmp_path / "model.npz")
    assert again.callback is None
    np.testing.assert_array_equal(again.predict(X), model.predict(X))


def test_an_error_in_a_callback_leaves_the_model_as_it_was():
    model = SketchedKernelRegressor(loss="huber", alpha=1e-3, **FIXED).fit(X, Y)
    before = model.coef_

    def fail(state):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        model.set_params(callback=fail).fit(X, -Y)
    assert model.coef_ is before
    assert not report("solver")  # nobody is watching any longer


def test_a_fit_inside_a_callback_does_not_call_it():
    calls = []

    def nested(state):
        calls.append(state.stage)
        SketchedKernelRegressor(loss="huber", alpha=1e-2, **FIXED).fit(X[:50], Y[:50])

    options = FIXED | {"loss": "huber", "alpha": 1e-3}
    SketchedKernelRegressor(**options, callback=nested).fit(X, Y)
    assert 0 < len(calls) < 20 and set(calls) == {"solver"}


def test_a_fit_inside_another_reports_to_it():
    states = []
    with watching(0, states.append):
        SketchedKernelRegressor(loss="huber", alpha=1e-3, **FIXED).fit(X, Y)
    assert {state.stage for state in states} == {"solver"}


def test_callbacks_that_cannot_be_called_are_refused():
    for model, _, params, _ in CASES:
        with pytest.raises(TypeError, match="`callback` must be None or a function"):
            model(**(FIXED | params), callback="stop").fit(X, Y)
    with pytest.raises(TypeError, match="`callback` must be None or a function"):
        InputOutputKernelRegressor(callback=3).fit(X, X)


def test_structured_stages_are_told():
    states = []
    model = InputOutputKernelRegressor(
        sketch="subsampling", size=20, callback=states.append, random_state=0
    )
    model.fit(X, X > 0)
    assert "inputs: features" in {state.stage for state in states}
    rows = [s.rows for s in states if s.stage == "inputs: features"]
    assert rows[0] == 0 and rows[-1] == len(X)


def test_time_left_follows_the_gap(monkeypatch):
    clock = iter(np.arange(0.0, 100.0))
    monkeypatch.setattr("time.perf_counter", lambda: next(clock))
    states = []
    watch = Watch(False, [states.append])
    for gap in (1e-1, 1e-2, 1e-3, 1e-4):
        watch.report("solver", gap=gap, tol=1e-4)
    # a tenth each second, so three are left after the first second
    assert [s.seconds_left for s in states] == [None, 2.0, 1.0, 0.0]
    watch.report("features", rows=25, n_rows=100)
    assert states[-1].seconds_left == pytest.approx(3.0)


class Terminal(io.StringIO):
    """A stream that is a terminal."""

    def isatty(self):
        return True


class Cell(io.StringIO):
    """A stream of a notebook."""


Cell.__module__ = "ipykernel.iostream"


def shown(stream, lines):
    """Return what a display writes to a stream."""
    display = Display()
    with contextlib.redirect_stderr(stream):
        for line in lines:
            display.update(line)
        display.end()
    return stream.getvalue()


def test_a_terminal_has_one_line():
    text = shown(Terminal(), ["one", "two", "three"])
    assert text.startswith("\r\x1b[Kone") and text.endswith("\r\x1b[Kthree\n")


def test_a_notebook_has_one_line_without_control_sequences():
    text = shown(Cell(), ["one", "two"])
    assert "\x1b" not in text and text.count("\n") == 1
    assert [part.strip() for part in text.split("\r")] == ["", "one", "two"]


def test_a_log_file_has_plain_lines_now_and_then():
    lines = [f"line {i}" for i in range(100)]
    assert shown(io.StringIO(), lines) == "line 0\nline 99\n"


def test_a_log_file_gets_a_line_every_ten_seconds(monkeypatch):
    clock = iter(np.arange(0.0, 1000.0))  # one second for each look at it
    monkeypatch.setattr("time.monotonic", lambda: next(clock))
    text = shown(io.StringIO(), [f"{i}" for i in range(30)])
    times = [int(line) for line in text.split()]
    assert times[0] == 0 and times[-1] == 29
    assert all(8 <= gap <= 10 for gap in np.diff(times[:-1]))


def test_verbose_writes_no_control_characters_into_a_log(capsys):
    SketchedKernelRegressor(loss="huber", verbose=1, **FIXED).fit(X, Y)
    text = capsys.readouterr().err
    assert re.search(r"penalty, iteration \d+ of \d+: held-out loss", text)
    assert "solver" in text and "relative gap" in text
    assert not set(text) & {"\r", "\x1b"}
    assert text.endswith("\n") and text.count("\n") < 10


def test_verbose_replaces_the_line_on_a_terminal(monkeypatch):
    monkeypatch.setattr(sys, "stderr", Terminal())
    SketchedSGDRegressor(n_epochs=2, verbose=1, **FIXED).fit(X, Y)
    text = sys.stderr.getvalue()
    assert "\r\x1b[K" in text and text.count("\n") == 1
    assert "steps, iteration 1200 of 1200" in text


@pytest.mark.parametrize(
    "model",
    [
        SketchedKernelRegressor(size=30, random_state=0),
        SketchedKernelRegressor(size=30, loss="huber", random_state=0),
        SketchedSGDRegressor(size=30, n_epochs=2, random_state=0),
    ],
    ids=lambda model: type(model).__name__,
)
def test_features_are_no_part_of_the_search_for_length_scales(model):
    """Rows in single precision make them in a pass that is told."""
    states = []
    model.set_params(callback=states.append).fit(X.astype(np.float32), Y)
    assert {"length-scales", "features"} <= {state.stage for state in states}
    assert all(s.n_rows == 0 for s in states if s.stage == "length-scales")


def closed_stream():
    stream = io.StringIO()
    stream.close()
    return stream


class LostTerminal(io.StringIO):
    """A terminal whose connection was lost."""

    def isatty(self):
        return True

    def write(self, text):
        raise BrokenPipeError


@pytest.mark.parametrize("stream", [None, closed_stream(), LostTerminal()])
def test_a_fit_outlives_its_terminal(stream, monkeypatch):
    model = SketchedKernelRegressor(loss="huber", **FIXED)
    expected = model.fit(X, Y).coef_
    monkeypatch.setattr(sys, "stderr", stream)
    assert np.array_equal(model.set_params(verbose=1).fit(X, Y).coef_, expected)
    assert list(counted("ab", str)) == ["a", "b"]
