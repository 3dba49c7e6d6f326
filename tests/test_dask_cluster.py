"""Fits on a cluster of two processes, and what happens when parts of it are gone."""

import os
import signal
import threading
import time

import numpy as np
import pytest
from sklearn.base import clone

from nbsketch import (
    JointQuantileRegressor,
    SketchedKernelClassifier,
    SketchedKernelRegressor,
)
from nbsketch.rows import partitions

da = pytest.importorskip("dask.array")
distributed = pytest.importorskip("distributed")

FIXED = {"bandwidth": 1.0, "size": 20, "random_state": 0}
ROWS = 2400


@pytest.fixture(scope="module")
def environment():
    """Undo what Dask does to this process: it sets OMP_NUM_THREADS for its workers."""
    known = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(known)


@pytest.fixture(scope="module")
def client(environment):
    with (
        distributed.LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            dashboard_address=":0",
            memory_limit="1GiB",
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


@pytest.fixture(autouse=True)
def few_bytes(monkeypatch):
    """Keep features in partitions, which would be brought together: they are small."""
    monkeypatch.setattr("nbsketch.rows.design._LOCAL_BYTES", 100_000)


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, size=(ROWS, 3))
    return X, np.sin(2 * X[:, 0]) + X[:, 1] + 0.2 * rng.standard_t(3, size=ROWS)


def dask_data(*arrays):
    return [da.from_array(a, chunks=(800, *a.shape[1:])) for a in arrays]


def regressor(**parameters):
    return SketchedKernelRegressor(**FIXED | {"alpha": 1e-4} | parameters)


LOSSES = {
    "square": (regressor(alpha=None), 1e-6),
    "huber": (regressor(loss="huber"), 1e-3),
    "joint": (JointQuantileRegressor((0.1, 0.5, 0.9), alpha=1e-2, **FIXED), 1e-3),
    "pinball": (regressor(loss="pinball"), 1e-3),
    "logistic": (SketchedKernelClassifier(loss="logistic", alpha=1e-3, **FIXED), 1e-3),
    "defaults": (SketchedKernelRegressor(random_state=0), 1e-3),
    "landmarks": (regressor(size=1100), 1e-3),
}


@pytest.mark.full
@pytest.mark.parametrize("model, tol", LOSSES.values(), ids=LOSSES)
def test_two_processes_fit_the_model_of_one(client, data, model, tol):
    X, y = data
    y = np.sign(y) if "Classifier" in type(model).__name__ else y
    expected = clone(model).fit(X, y)
    found = model.fit(*dask_data(X, y))
    predict = "predict_proba" if hasattr(model, "predict_proba") else "predict"
    known = getattr(expected, predict)(X[:500])
    scale = np.ptp(y)
    np.testing.assert_allclose(
        getattr(found, predict)(X[:500]), known, atol=tol * scale
    )
    lazy = getattr(found, predict)(dask_data(X[:500])[0])
    np.testing.assert_allclose(lazy.compute(), known, atol=tol * scale)


@pytest.mark.full
def test_features_that_are_not_kept_are_computed_again(client, data, monkeypatch):
    X, y = data
    expected = regressor().fit(X, y).predict(X)
    monkeypatch.setattr("nbsketch._machine.memory.SHARE", 0.0)
    found = regressor().fit(*dask_data(X, y)).predict(X)
    np.testing.assert_allclose(found, expected, atol=1e-6)


@pytest.mark.full
def test_an_interrupt_cancels_the_tasks_of_the_fit(client, data):
    X, y = data

    def slow(block):
        time.sleep(1)
        return block

    rows = dask_data(X)[0].map_blocks(slow, dtype=float, meta=np.empty((0, 3)))
    model = regressor()
    # a parent process may have had the signal ignored
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    timer = threading.Timer(0.5, signal.raise_signal, [signal.SIGINT])
    timer.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            model.fit(rows, dask_data(y)[0])
    finally:
        signal.signal(signal.SIGINT, before)
    assert not hasattr(model, "coef_")
    waiting = client.run_on_scheduler(_n_tasks)
    for _ in range(100):
        if not waiting:
            break
        time.sleep(0.1)
        waiting = client.run_on_scheduler(_n_tasks)
    assert waiting == 0


def _n_tasks(dask_scheduler):
    return len(dask_scheduler.tasks)


@pytest.mark.full
def test_a_killed_worker_changes_nothing(client, data, monkeypatch):
    X, y = data
    model = regressor(loss="huber", alpha=None)
    expected = clone(model).fit(X, y).predict(X)
    pids = client.run(os.getpid)
    calls, computed = [], partitions.computed

    def killing(todo):
        calls.append(len(todo))
        if len(calls) == 8:  # while features are kept on both workers
            os.kill(next(iter(pids.values())), signal.SIGKILL)
        return computed(todo)

    monkeypatch.setattr("nbsketch.rows.partitions.computed", killing)
    monkeypatch.setattr("nbsketch.rows.design.computed", killing)
    found = model.fit(*dask_data(X, y)).predict(X)
    assert len(calls) > 8
    np.testing.assert_allclose(found, expected, atol=1e-6)


GONE = """
import threading
import dask.array as da
import distributed
import numpy as np
from nbsketch import SketchedKernelRegressor

X = np.random.default_rng(0).uniform(-2, 2, size=(2000, 1))
model = SketchedKernelRegressor(size=9, bandwidth=1.0, alpha=1e-3).fit(X, X[:, 0])
before = model.coef_
cluster = distributed.LocalCluster(
    n_workers=0, processes=False, dashboard_address=":0"
)
client = distributed.Client(cluster)
# while the fit waits for workers
threading.Timer(0.5, cluster.loop.add_callback, [cluster.scheduler.close]).start()
rows = da.from_array(X, chunks=(500, 1))
try:
    model.fit(rows, rows[:, 0])
except ConnectionError as error:
    print("scheduler was lost" in str(error), model.coef_ is before, flush=True)
import os
os._exit(0)
"""


@pytest.mark.full
def test_a_scheduler_that_is_gone_is_an_error_and_no_harm(run_python):
    assert run_python(GONE).split() == ["True", "True"]
