"""The machine for a limited time, with a clock that the tests move."""

import math
import time
import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

import nbsketch
from nbsketch import (
    JointQuantileRegressor,
    SketchedKernelClassifier,
    SketchedKernelRegressor,
)
from nbsketch._report.progress import (
    is_stopped,
    report,
    seconds_left,
    share_of_time,
    solver_callback,
    watching,
)
from nbsketch.fitting import methods, penalty, steps
from nbsketch.fitting import methods as budget
from nbsketch.fitting import plan as sizes
from nbsketch.solvers.conjugate import NotConvergedError, conjugate_path

N = 300


class Clock:
    """A clock that advances by a step each time it is read, and when it is told."""

    def __init__(self, monkeypatch, step=0.0):
        self.now, self.step = 0.0, step
        monkeypatch.setattr(time, "perf_counter", self)
        monkeypatch.setattr(time, "monotonic", self)

    def __call__(self):
        self.now += self.step
        return self.now


@pytest.fixture
def low(monkeypatch):
    """Let more than 100 rows be many."""
    monkeypatch.setattr(sizes, "_EXACT_ROWS", 100)
    monkeypatch.setattr(sizes, "_DENSE_ROWS", 200)
    monkeypatch.setattr(steps, "START", 20)


def sketched(problem):
    return steps.sketch_rows(problem, steps.default_size(problem))


def model(**options):
    return SketchedKernelRegressor(**{"random_state": 0, "bandwidth": 1.0} | options)


def test_the_watch_stops_when_the_time_is_over(monkeypatch):
    clock = Clock(monkeypatch)
    assert seconds_left() == math.inf
    with watching(0, None, 10):
        clock.now = 9
        assert seconds_left() == 1 and not report("solver", iteration=1)
        clock.now = 11
        assert report("solver", iteration=2)
    assert seconds_left() == math.inf


def test_a_solver_goes_on_to_a_usable_gap(monkeypatch):
    clock, asked = Clock(monkeypatch), []
    with watching(0, None, 10):
        go_on = solver_callback("solver", 1e-6)
        clock.now = 11
        assert not go_on(1, 1.0, 0.5, 0.0) and go_on(2, 1.0, 0.05, 0.0)
    with watching(0, lambda state: asked.append(state) or True):
        assert solver_callback("solver", 1e-6)(1, 1.0, 0.5, 0.0)  # as it was asked


@pytest.mark.parametrize(
    ("choice", "solution", "exact"), [(1, 1, True), (5, 1, True), (5, 6, False)]
)
def test_the_exact_machine_is_taken_if_there_is_time(
    low, surface, monkeypatch, choice, solution, exact
):
    clock = Clock(monkeypatch)
    for module in (steps, methods):
        monkeypatch.setattr(module, "exact_seconds", lambda *known: (choice, solution))
    found = model(max_seconds=10).fit(*surface)
    assert found.sketch_.is_identity == exact
    assert exact == (found.size_path_ is None)
    # A choice that takes longer than expected leaves no time for the solution.
    chosen = methods.choose_on_sample

    def slow(*known):
        clock.now += 9.5
        return chosen(*known)

    monkeypatch.setattr(methods, "choose_on_sample", slow)
    assert not model(max_seconds=10).fit(*surface).sketch_.is_identity


def test_times_are_measured_on_a_few_rows(low, surface, monkeypatch):
    clock, seen = Clock(monkeypatch), []

    class Slow(budget.SymmetricGram):
        def __matmul__(self, V):
            clock.now += 0.1
            seen.append(self.shape)
            return super().__matmul__(V)

    monkeypatch.setattr(budget, "SymmetricGram", Slow)
    monkeypatch.setattr(budget, "_PROBE", 50)
    problem = model().prepare(*surface)
    choice, solution = budget.exact_seconds(sketched(problem), 1)
    assert set(seen) == {(50, 50)}
    assert np.isclose(solution, 0.1 * budget._KEPT * (N / 50) ** 2)
    assert np.isclose(choice, 0.1 * budget._CHOICES * (N / 50) ** 2)


@pytest.mark.parametrize("loss", ["square", "huber"])
@pytest.mark.parametrize("limit", [2, 20, 200])
def test_sketches_grow_within_the_time(low, surface, monkeypatch, loss, limit):
    clock = Clock(monkeypatch)
    monkeypatch.setattr(steps, "exact_seconds", lambda *known: (0, np.inf))
    features = steps.SketchedData.design

    def slow(self, keep=None):  # s rows take (s / 20)^2 seconds
        clock.now += 0 if self.features else (self.sketch.shape[0] / 20) ** 2
        return features(self, keep)

    monkeypatch.setattr(steps.SketchedData, "design", slow)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = model(max_seconds=limit, loss=loss).fit(*surface)
    assert clock.now <= 1.2 * limit
    # The next size would have taken too long, or lost.
    losses = found.size_path_["loss"]
    last = found.size_path_["size"][-1] / 20
    grew = len(losses) == 1 or losses[-1] <= losses[-2]
    spent = clock.now + (2 * last) ** 2 > 0.7 * limit
    assert spent or not grew or last * 20 == N


def test_the_last_size_uses_the_time_that_is_left():
    rule = steps.growth(10_000, 10.0)  # seconds of growth: 0.7 of these
    path = {"size": [100], "loss": [1.0], "seconds": [1.0]}
    assert rule.rows_to_add(path, 10_000) == 100  # 1 + 2.5 <= 7
    path = {"size": [100, 200], "loss": [1.0, 0.9], "seconds": [1.0, 3.5]}
    # Twice the size takes (4 + 2.5) / 2 times the last step, of which 1.4 is left.
    share = np.log(1.4) / np.log(3.25)
    assert rule.rows_to_add(path, 10_000) == int(200 * (2**share - 1))
    assert rule.rows_to_add(path | {"loss": [0.9, 1.0]}, 10_000) == 0
    assert rule.rows_to_add(path, 210) == 10
    path["seconds"] = [1.0, 4.0]  # as much again is not worth a step
    assert rule.rows_to_add(path, 10_000) == 0


@pytest.mark.parametrize("seconds, size", [(1e-9, 10), (0.156, 15), (1e3, 20)])
def test_the_first_sketch_is_smaller_where_time_is_short(
    low, surface, monkeypatch, seconds, size
):
    monkeypatch.setattr(steps, "_seconds_per_landmark", lambda data: 1e-3)
    problem = model().prepare(*surface)
    found = steps.first_sketch(sketched(problem), seconds)
    # 0.005 seconds for a row of the sketch, in half of the time
    assert found.sketch.shape == (size, N)


def test_the_time_of_a_landmark_is_measured_on_all_rows(low, surface, monkeypatch):
    clock = Clock(monkeypatch)
    call = nbsketch._sketch_map.SketchMap.__call__

    def slow(self, X):
        clock.now += 0.01 * self.weights.shape[0] * X.shape[0] / N
        return call(self, X)

    monkeypatch.setattr(nbsketch._sketch_map.SketchMap, "__call__", slow)
    found = steps._seconds_per_landmark(sketched(model().prepare(*surface)))
    assert found == pytest.approx(0.01)


def test_what_is_given_is_kept(low, surface, monkeypatch):
    Clock(monkeypatch)
    monkeypatch.setattr(steps, "exact_seconds", None)
    found = model(max_seconds=1e-3, size=40, alpha=1e-2).fit(*surface)
    assert found.size_ == 40 and found.alpha_ == 1e-2
    assert model(max_seconds=1e-3, sketch="p-sparsified").fit(*surface).size_ < N


@pytest.mark.parametrize("limit", [0, -1.0, np.nan, "1"])
def test_limits_are_positive(surface, limit):
    with pytest.raises((TypeError, ValueError), match="`max_seconds`"):
        model(max_seconds=limit).fit(*surface)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_other_estimators_and_files(low, surface, tmp_path):
    X, y = surface
    options = {"max_seconds": 0.2, "bandwidth": 1.0, "random_state": 0}
    models = [
        SketchedKernelClassifier(**options).fit(X, y > 0),
        JointQuantileRegressor((0.2, 0.8), **options).fit(X, y),
        model(max_seconds=0.2).fit(X, y),
    ]
    for found in models:
        found.save(tmp_path / "model.npz")
        loaded = nbsketch.load(tmp_path / "model.npz")
        assert loaded.max_seconds == 0.2
        np.testing.assert_array_equal(loaded.predict(X), found.predict(X))


def test_the_warning_names_the_limit(surface, monkeypatch):
    clock = Clock(monkeypatch)

    def late(state):
        clock.now += 1

    options = {"loss": "pinball", "alpha": 1e-6, "size": 50, "tol": 1e-12}
    with pytest.warns(ConvergenceWarning, match="`max_seconds` has stopped the solver"):
        found = model(max_seconds=5, callback=late, **options).fit(*surface)
    assert 1e-12 < found.dual_gap_ <= 0.1


def test_a_solver_does_not_go_on_for_longer_than_the_limit(monkeypatch):
    clock = Clock(monkeypatch)
    with watching(0, None, 10):
        go_on = solver_callback("solver", 1e-6)
        clock.now = 19
        assert not go_on(1, 1.0, 0.5, 0.0)
        clock.now = 21
        assert go_on(2, 1.0, 0.5, 0.0)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_path_of_penalties_ends_with_the_time(surface, monkeypatch):
    clock = Clock(monkeypatch)
    (X, y), fitted, ends = surface, penalty._Part.fitted, []

    def late(state):
        clock.now += 1.0

    def counted(self, alpha):
        values = fitted(self, alpha)
        ends.append((clock.now, is_stopped()))
        return values

    monkeypatch.setattr(penalty._Part, "fitted", counted)
    options = {"size": 40, "bandwidth": 1.0, "random_state": 0, "callback": late}
    found = JointQuantileRegressor((0.2, 0.8), max_seconds=40, **options).fit(X, y)
    # Each Newton step takes a second; then five penalties are tried on the folds.
    assert ends[0][0] > 2 and not ends[0][1]
    late_fits = sum(stopped for _, stopped in ends)
    assert 5 * penalty._FEWEST <= late_fits <= 5 * (penalty._FEWEST + 1)
    assert found.score(X, y) > 0.5 * found.score(0 * X, y)


def test_a_part_of_a_fit_has_a_share_of_the_time(monkeypatch):
    clock = Clock(monkeypatch)
    with watching(0, None, 10):
        clock.now = 2
        with share_of_time(0.5):
            clock.now = 5
            assert seconds_left() == 1 and not report("penalty")
            clock.now = 7
            assert report("penalty")
        assert not is_stopped() and seconds_left() == 3
    with share_of_time(0.5):
        assert seconds_left() == math.inf


def failing(solver):
    """Return a solver whose conjugate gradients end at a gap of one half."""

    def solve(*args, **options):
        solution = solver(*args, **options)
        solution = solution._replace(relative_gap=0.5, converged=False)
        raise NotConvergedError("the relative duality gap is 0.5", solution)

    return solve


@pytest.mark.parametrize("time", [5, 20])
@pytest.mark.parametrize("kind", ["identity", "subsampling"])
def test_no_factorization_is_begun_without_time_for_it(
    low, surface, monkeypatch, kind, time
):
    first, begun = failing(lambda *a, **o: next(conjugate_path(*a, **o))), []
    monkeypatch.setattr(
        methods, "conjugate_path", lambda *a, **o: (first(*a, **o) for _ in range(1))
    )
    monkeypatch.setattr(methods, "solve_nystrom", failing(methods.solve_nystrom))
    monkeypatch.setattr(sizes, "_LARGE_SIZE", 100)
    for name in ("dense_seconds", "closed_seconds"):
        monkeypatch.setattr(methods, name, lambda *shape: begun.append(shape) or time)
    Clock(monkeypatch)
    size = None if kind == "identity" else 150
    given = {"sketch": kind, "size": size, "alpha": 1e-3}
    if time < 10:
        found = model(max_seconds=10, **given).fit(*surface)
        assert found.dual_gap_ < 1e-6  # of a factorization
    else:
        with pytest.warns(ConvergenceWarning, match="at most 5.0e-01"):
            found = model(max_seconds=10, **given).fit(*surface)
        assert found.dual_gap_ == 0.5
    assert found.size_ == (size or N) and found.alpha_ == 1e-3 and begun
    del begun[:]
    assert model(**given).fit(*surface).dual_gap_ < 1e-6
    assert not begun  # without a limit nothing is measured


def test_a_closed_form_without_time_for_it_becomes_passes(low, surface, monkeypatch):
    Clock(monkeypatch)
    monkeypatch.setattr(steps, "_FEW_ROWS", 100)
    kinds = []
    monkeypatch.setattr(
        methods.Nystrom,
        "solve",
        lambda self: kinds.append(type(self)) or methods.ClosedForm.solve(self),
    )
    for seconds, count in ((5, 0), (20, 1)):
        monkeypatch.setattr(steps, "closed_seconds", lambda *_, s=seconds: s)
        model(max_seconds=10, size=150).fit(*surface)
        assert len(kinds) == count
    model(size=150).fit(*surface)  # without a limit nothing is measured
    assert len(kinds) == 1


@pytest.mark.parametrize(("seconds", "exact"), [(5, True), (15, False)])
def test_few_rows_are_exact_if_there_is_time(surface, monkeypatch, seconds, exact):
    Clock(monkeypatch)
    monkeypatch.setattr(steps, "_FEW_ROWS", 100)
    monkeypatch.setattr(steps, "closed_seconds", lambda n, size: seconds)
    found = model(max_seconds=10).fit(*surface)
    assert found.sketch_.is_identity == exact


@pytest.mark.parametrize(("limit", "size"), [(1, 18), (3, 75), (None, 300)])
def test_sketches_of_dask_are_smaller_without_time(surface, monkeypatch, limit, size):
    da = pytest.importorskip("dask.array")
    X, y = (da.from_array(a, chunks=(100, *a.shape[1:])) for a in surface)
    Clock(monkeypatch)
    monkeypatch.setattr("nbsketch.fitting.sketched._FEW_ROWS", 100)
    monkeypatch.setattr(steps, "START", 20)
    monkeypatch.setattr(steps, "closed_seconds", lambda n, size: size / 30)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        found = model(loss="huber", max_seconds=limit, alpha=1e-3).fit(X, y)
    assert found.size_ == size


def test_conjugate_gradients_on_a_large_sketch_listen(surface, monkeypatch):
    monkeypatch.setattr(sizes, "_LARGE_SIZE", 20)
    monkeypatch.setattr(sizes, "_LARGE_SEARCH", 20)
    stages, options = [], {"sketch": "subsampling", "size": 60, "alpha": 1e-6}

    def callback(state):
        stages.append(state.stage)
        return state.stage == "solver"

    with pytest.warns(ConvergenceWarning, match="`callback` has stopped the solver"):
        model(callback=callback, **options).fit(*surface)
    assert stages[-1] == "solver"


@pytest.mark.parametrize("loss", ["square", "huber"])
def test_the_choice_of_all_rows_listens(low, surface, monkeypatch, loss):
    monkeypatch.setattr(steps, "_LEAST_ROWS", 100)
    monkeypatch.setattr(methods, "_FEATURE_ROWS", 100)
    states = []

    def run(stop):
        states.clear()

        def callback(state):
            states.append(state)
            return stop and state.stage == "penalty"

        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            found = model(sketch="identity", loss=loss, callback=callback).fit(*surface)
        assert np.isfinite(found.predict(surface[0])).all()
        return sum(state.stage == "penalty" for state in states)

    assert run(False) > 5 and run(True) == 1
