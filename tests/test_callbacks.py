"""Callbacks of scikit-learn: stages of a fit are tasks, through pipelines as well."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from nbsketch import (
    InputOutputKernelRegressor,
    JointQuantileRegressor,
    SketchedKernelClassifier,
    SketchedKernelRegressor,
    SketchedSGDRegressor,
    SpectralFilterRegressor,
    TabularKernelRegressor,
    load,
)

pytest.importorskip("sklearn.callback", reason="of scikit-learn 1.9")

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 3))
y = np.sin(X[:, 0]) + 0.1 * RNG.normal(size=60)


class Recorder:
    """A callback that keeps the names of tasks, and may ask to stop."""

    max_propagation_depth = None

    def __init__(self, stop_after=np.inf):
        self.stop_after = stop_after
        self.events = []

    def setup(self, estimator, context):
        self.events.append("setup")

    def on_fit_task_begin(self, estimator, context):
        self.events.append(f"begin {context.task_name}")

    def on_fit_task_end(self, estimator, context):
        self.events.append(f"end {context.task_name}")
        return self.events.count("end iteration") >= self.stop_after

    def teardown(self, estimator, context):
        self.events.append("teardown")

    @property
    def stages(self):
        """The stages that have begun, in order."""
        begun = (e.split()[1] for e in self.events if e.startswith("begin"))
        return [name for name in begun if name not in ("fit", "iteration")]


def huber(**options):
    return SketchedKernelRegressor(loss="huber", size=40, random_state=0, **options)


MODELS = [
    huber(),
    SketchedKernelClassifier(size=40, random_state=0),
    JointQuantileRegressor([0.2, 0.8], size=40, random_state=0),
    SpectralFilterRegressor(size=40, random_state=0),
    SketchedSGDRegressor(size=40, random_state=0),
    InputOutputKernelRegressor(alpha=1e-3, random_state=0),
    TabularKernelRegressor(random_state=0),
]


@pytest.mark.parametrize("model", MODELS, ids=lambda model: type(model).__name__)
def test_every_task_that_begins_ends(model):
    recorder = Recorder()
    target = (y > 0).astype(int) if "Classifier" in type(model).__name__ else y
    if "InputOutput" in type(model).__name__:
        target = np.column_stack([y > 0, y > 0.5]).astype(float)
    plain = clone(model).fit(X, target)
    model = clone(model).set_callbacks(recorder).fit(X, target)
    assert recorder.events[:2] == ["setup", "begin fit"]
    assert recorder.events[-2:] == ["end fit", "teardown"]
    begun = sorted(e[6:] for e in recorder.events if e.startswith("begin "))
    assert begun == sorted(e[4:] for e in recorder.events if e.startswith("end "))
    assert not {name for name in vars(model) if "callback_fit" in name}
    np.testing.assert_array_equal(model.predict(X), plain.predict(X))


def test_stages_are_those_of_the_fit():
    recorder = Recorder()
    stages = []
    huber(callback=lambda state: stages.append(state.stage)).set_callbacks(
        recorder
    ).fit(X, y)
    assert recorder.stages == list(dict.fromkeys(stages))
    assert "length-scales" in recorder.stages


def test_a_callback_stops_a_fit():
    recorder = Recorder(stop_after=3)
    with pytest.warns(match="`callback` has stopped"):
        huber(tol=1e-12).set_callbacks(recorder).fit(X, y)
    assert recorder.events.count("end iteration") == 3
    assert recorder.events[-1] == "teardown"


def test_a_fit_that_fails_ends_its_callbacks():
    recorder = Recorder()
    model = huber(alpha=-1.0).set_callbacks(recorder)
    with pytest.raises(ValueError, match="`alpha`"):
        model.fit(X, y)
    assert recorder.events == ["setup", "begin fit", "teardown"]


def test_callbacks_reach_a_model_in_a_pipeline_and_in_a_search():
    recorder = Recorder()
    pipeline = make_pipeline(StandardScaler(), huber()).set_callbacks(recorder)
    pipeline.fit(X, y)
    assert "length-scales" in recorder.stages
    recorder = Recorder()
    grid = {"size": [10, 20]}
    GridSearchCV(huber(), grid, cv=2).set_callbacks(recorder).fit(X, y)
    assert recorder.stages.count("length-scales") == 5


def test_progress_bars_and_files(tmp_path, capsys):
    pytest.importorskip("rich")
    from sklearn.callback import ProgressBar

    model = huber().set_callbacks(ProgressBar()).fit(X, y)
    assert "length-scales" in capsys.readouterr().out
    model.save(tmp_path / "model.nbs")
    np.testing.assert_array_equal(
        load(tmp_path / "model.nbs").predict(X), model.predict(X)
    )
