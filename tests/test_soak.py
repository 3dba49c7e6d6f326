"""Every estimator by its defaults, under limits of memory and of time.

A fit ends with the answer of rows in memory without limits, or with a clear error. Data
and limits are small; the limits are so low that nothing of any size is kept.
"""

import sys
import tracemalloc
import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from tables import training

import nbsketch
from nbsketch import (
    AutoSize,
    GaussianKernel,
    InputOutputKernelRegressor,
    JointQuantileRegressor,
    PSparsifiedSketch,
    RandomFourierFeatures,
    SketchedFeatures,
    SketchedKernelClassifier,
    SketchedKernelRegressor,
    SketchedSGDClassifier,
    SketchedSGDRegressor,
    SpectralFilterRegressor,
    TabularKernelClassifier,
    TabularKernelRegressor,
)
from nbsketch._machine import memory
from nbsketch._sketch_map import SketchMap, sketched_design
from nbsketch.conformal import ConformalClassifier, ConformalRegressor
from nbsketch.fitting import plan as sizes
from nbsketch.fitting import steps
from nbsketch.solvers import scratch
from nbsketch.tabular import members
from nbsketch.tabular.scales import Scales

N = 150
LIMIT = 20_000  # bytes: less than a column of kernel values for each feature
RNG = np.random.default_rng(0)
X = RNG.uniform(-2, 2, size=(N, 3))


def draw_targets(X, rng):
    """Return targets of every kind for rows."""
    n = len(X)
    signal = np.sin(2 * X[:, 0]) + X[:, 1]
    return {
        "one": signal + 0.1 * rng.normal(size=n),
        "two": np.column_stack([signal, X[:, 0]]) + 0.1 * rng.normal(size=(n, 2)),
        "classes": np.digitize(signal, [-0.7, 0.7]),
        "counts": rng.poisson(np.exp(signal)).astype(float),
    }


TARGETS = draw_targets(X, RNG)
WEIGHTS = np.tile([1.0, 0.0, 2.0], N // 3)
SEED = {"random_state": 0}
PROBABILITIES = SketchedKernelClassifier(loss="logistic", **SEED)
# By its defaults: a model and its targets.
MODELS = {
    "square": (SketchedKernelRegressor(**SEED), "one"),
    "square, two outputs": (SketchedKernelRegressor(**SEED), "two"),
    "huber": (SketchedKernelRegressor(loss="huber", **SEED), "one"),
    "huber, two outputs": (SketchedKernelRegressor(loss="huber", **SEED), "two"),
    "poisson": (SketchedKernelRegressor(loss="poisson", **SEED), "counts"),
    "classes": (SketchedKernelClassifier(**SEED), "classes"),
    "probabilities": (PROBABILITIES, "classes"),
    "quantiles": (JointQuantileRegressor(**SEED), "one"),
    "filter": (SpectralFilterRegressor(**SEED), "one"),
    "filter, two outputs": (SpectralFilterRegressor(**SEED), "two"),
    "descent": (SketchedSGDRegressor(**SEED), "one"),
    "descent, two outputs": (SketchedSGDRegressor(**SEED), "two"),
    "descent, classes": (SketchedSGDClassifier(**SEED), "classes"),
    "structured": (InputOutputKernelRegressor(size=100, **SEED), "two"),
    "table": (TabularKernelRegressor(**SEED), "one"),
    "table, two outputs": (TabularKernelRegressor(**SEED), "two"),
    "table, classes": (TabularKernelClassifier(**SEED), "classes"),
    "features": (SketchedFeatures(**SEED), None),
    "fourier": (RandomFourierFeatures(**SEED), None),
    "intervals": (ConformalRegressor(SketchedKernelRegressor(**SEED), **SEED), "one"),
    "sets": (ConformalClassifier(PROBABILITIES, **SEED), "classes"),
}
# Conformal fits refuse rows of Dask, by name.
IN_MEMORY = "intervals", "sets"


def answer(model, rows):
    """Return what a model predicts, as numbers in memory."""
    if isinstance(model, ConformalClassifier):
        values = model.predict_set(rows)
    elif isinstance(model, ConformalRegressor):
        values = model.predict_interval(rows, 0.8)
    elif hasattr(model, "transform"):
        values = model.transform(rows)
    else:
        values = model.predict(rows)
    return np.asarray(values, dtype=float)


_expected = {}


def expected(name, weighted):
    """Return the answer of rows in memory without limits."""
    if (name, weighted) not in _expected:
        fitted = fit(name, X, lambda values: values, weighted)
        _expected[name, weighted] = answer(fitted, X)
    return _expected[name, weighted]


def fit(name, rows, container, weighted, **params):
    """Fit a copy of a model to rows, targets and weights in a container."""
    model, kind = MODELS[name]
    targets = () if kind is None else (container(TARGETS[kind]),)
    weights = {"sample_weight": container(WEIGHTS)} if weighted else {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return clone(model).set_params(**params).fit(rows, *targets, **weights)


def assert_alike(found, reference):
    """Compare answers: a penalty may be chosen on other rows beyond a limit."""
    assert found.shape == reference.shape and np.isfinite(found).all()
    assert np.mean(np.square(found - reference)) < 0.1 * reference.var()


@pytest.fixture
def limited():
    nbsketch.set_memory_limit(LIMIT)
    yield
    nbsketch.set_memory_limit(None)


@pytest.fixture(scope="module")
def mapped(tmp_path_factory):
    """X in a file."""
    path = tmp_path_factory.mktemp("soak") / "X"
    file = np.memmap(path, X.dtype, "w+", shape=X.shape)
    file[:] = X
    file.flush()
    return np.memmap(path, X.dtype, "r", shape=X.shape)


@pytest.mark.thin(times=1)
@pytest.mark.parametrize("weighted", [False, True], ids=["", "weights"])
@pytest.mark.parametrize("name", MODELS)
def test_under_a_limit_of_memory(name, weighted, mapped, limited):
    if weighted and name in ("features", "fourier"):
        pytest.skip("transformers have no weights")
    found = answer(fit(name, mapped, lambda values: values, weighted), mapped)
    nbsketch.set_memory_limit(None)
    assert_alike(found, expected(name, weighted))


@pytest.mark.thin(times=1)
@pytest.mark.parametrize("weighted", [False, True], ids=["", "weights"])
@pytest.mark.parametrize("name", MODELS)
def test_on_dask_under_a_limit(name, weighted, limited, monkeypatch):
    da = pytest.importorskip("dask.array")
    if weighted and name in ("features", "fourier"):
        pytest.skip("transformers have no weights")
    monkeypatch.setattr(
        "nbsketch.fitting.sketched._FEW_ROWS", 100
    )  # rows stay where they are
    rows = da.from_array(X, chunks=(70, 3))

    def container(values):
        return da.from_array(values, chunks=(60, *values.shape[1:]))

    if name in IN_MEMORY:
        with pytest.raises(TypeError, match="`X` must be in memory"):
            fit(name, rows, container, weighted)
        return
    found = answer(fit(name, rows, container, weighted), X)
    nbsketch.set_memory_limit(None)
    assert_alike(found, expected(name, weighted))


DEFAULT_SIZES = {
    "square": lambda: sizes.landmarks_size(18_000, 1),
    "square, two outputs": lambda: sizes.landmarks_size(40_000, 2),
    "residuals": lambda: sizes.passes_size(12_000),
    "labels": lambda: sizes.newton_size("kinked", 12_000, 1),
    "quantiles": lambda: 5 * sizes.joint_size(40_000, 5),
    "auto": lambda: 60 + AutoSize().rows_to_add(
        {"size": [60], "loss": [1.0], "seconds": [0.0]}, 10**6
    ),
    "auto, at its end": lambda: 2000 + AutoSize().rows_to_add(
        {"size": [2000], "loss": [1.0], "seconds": [0.0]}, 10**6
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", DEFAULT_SIZES)
def test_systems_of_default_sizes_fit_the_limit(name):
    usual = DEFAULT_SIZES[name]()
    try:
        nbsketch.set_memory_limit("50MB")
        limited = DEFAULT_SIZES[name]()
        nbsketch.set_memory_limit(1)
        least = DEFAULT_SIZES[name]()
    finally:
        nbsketch.set_memory_limit(None)
    if name == "auto":
        assert usual == limited == 120
    elif name == "auto, at its end":
        assert (usual, limited) == (3200, 2000)
    else:
        assert 6 * 8 * limited**2 <= 50 * 2**20 < 6 * 8 * usual**2
        assert 300 < least <= 500


@pytest.mark.parametrize("name", DEFAULT_SIZES)
def test_free_memory_decides_no_size(name, monkeypatch):
    usual = DEFAULT_SIZES[name]()
    monkeypatch.setattr(memory, "_available", lambda: 1.0)
    assert DEFAULT_SIZES[name]() == usual


TIMED = [n for n, (model, _) in MODELS.items() if "max_seconds" in model.get_params()]


@pytest.mark.thin(times=1)
@pytest.mark.parametrize("seconds", [1e-6, 1e6])
@pytest.mark.parametrize("name", TIMED)
def test_under_a_limit_of_time(name, seconds, limited, monkeypatch):
    monkeypatch.setattr(steps, "_FEW_ROWS", 100)
    found = answer(fit(name, X, lambda values: values, True, max_seconds=seconds), X)
    assert np.isfinite(found).all()
    nbsketch.set_memory_limit(None)
    reference = expected(name, True)
    if seconds > 1:
        assert_alike(found, reference)
    else:  # the model for which there was time
        assert found.shape == reference.shape
        assert np.mean(np.square(found - reference)) < 2 * reference.var()


def traced_peak(function):
    """Return the largest number of bytes that a call has at a time."""
    tracemalloc.start()
    try:
        function()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_a_posterior_is_made_in_blocks(monkeypatch):
    """Not with some copies of the features of thousands of rows (8 MB)."""
    monkeypatch.setattr("nbsketch.solvers.scratch._BLOCK_BYTES", 1 << 16)
    X = RNG.uniform(-2, 2, size=(4000, 3))
    y = draw_targets(X, RNG)["one"]
    model = SketchedKernelRegressor(size=60, bandwidth=1.0, alpha=1e-6, **SEED)
    model.fit(X, y).fit_posterior(X, y)
    assert traced_peak(lambda: model.fit_posterior(X, y)) < 1e6
    assert traced_peak(lambda: model.predict(X, return_std=True)) < 1e6


@pytest.mark.parametrize("law", ["rademacher", "gaussian"])
def test_sketches_of_many_landmarks_are_made_in_blocks(law, limited, monkeypatch):
    """S K, of a column for each landmark (1 MB), is not kept beyond the limit."""
    X = RNG.uniform(-2, 2, size=(6000, 3))
    kernel = GaussianKernel(1.0)
    sketch = PSparsifiedSketch(20, density=0.2, law=law).draw(6000, 0)
    sketch_map = SketchMap.of(kernel, X, sketch)
    whole = sketch_map(sketch_map.landmarks) @ sketch_map.weights.T
    monkeypatch.setattr("nbsketch.solvers.scratch._BLOCK_BYTES", 1 << 14)
    assert np.allclose(sketch_map.inner(X), whole, rtol=1e-12)
    peak = traced_peak(lambda: sketched_design(sketch_map, X, keep=False))
    assert peak < 0.7e6 < 8 * sketch_map.weights.shape[0] * sketch_map.weights.shape[1]


def test_blocks_and_leaves_fit_the_limit(rng, monkeypatch):
    """Eight blocks of features at once, and three matrices of a leaf."""
    roomy = scratch.rows_per_block(1000, np.dtype(float))
    nbsketch.set_memory_limit("50MB")
    try:
        sizes = []
        grow = members.grow
        monkeypatch.setattr(
            members, "grow", lambda *args: [grow(*args), sizes.append(args[2])][0]
        )
        data = training(rng.normal(size=(4000, 2)), np.zeros((4000, 1)))
        members.fit_on_tree(data, Scales("gaussian", np.ones(2), 1.0), 4000, rng)
        assert sizes == [1000]
        assert 8 * 8000 * scratch.rows_per_block(1000, np.dtype(float)) < 50e6
    finally:
        nbsketch.set_memory_limit(None)
    assert roomy == (16 << 20) // 8000


PEAK = """
import os, resource, sys
sys.path.insert(0, "tests")
import numpy as np
import nbsketch
import test_soak as soak

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

name, rng = os.environ["SOAK"], np.random.default_rng(1)
soak.answer(soak.fit(name, soak.X, np.asarray, False), soak.X)  # loads compiled code
rows = rng.normal(size=(6000, 10))
soak.TARGETS.update(soak.draw_targets(rows, rng))
nbsketch.set_memory_limit("50MB")
before = peak()
soak.answer(soak.fit(name, rows, np.asarray, False), rows)
print(peak() - before)
"""


@pytest.mark.full
@pytest.mark.skipif(sys.platform != "linux", reason="counts kilobytes")
@pytest.mark.parametrize("name", MODELS)
def test_peak_memory_of_many_rows(name, run_python):
    """The limit, blocks of 16 MB in each of some steps, and systems of least size."""
    assert float(run_python(PEAK, SOAK=name, NUMBA_NUM_THREADS="1")) < 50 + 200
