"""Fits beyond the memory limit: the same models, from a file, block by block."""

import ctypes
import os
import subprocess
import sys
import tracemalloc
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone

import nbsketch
from nbsketch import (
    JointQuantileRegressor,
    SketchedKernelClassifier,
    SketchedKernelRegressor,
    SketchedSGDClassifier,
    SketchedSGDRegressor,
    SpectralFilterRegressor,
)
from nbsketch._machine import memory as memory
from nbsketch._sketch_map import SketchMap, StreamedDesign
from nbsketch.conformal import ConformalRegressor
from nbsketch.explain import shapley_values
from nbsketch.gram import SymmetricGram
from nbsketch.rows import partitions
from nbsketch.rows.transform import LazyRows
from nbsketch.solvers import scratch
from nbsketch.solvers.design import ArrayDesign, Design
from nbsketch.solvers.scratch import RowsDesign, ScratchDesign, stored_or

N = 2400
RNG = np.random.default_rng(0)
X = RNG.uniform(-3, 3, size=(N, 2)).astype(np.float32)
Y = np.sin(X[:, 0]) * X[:, 1] + 0.1 * RNG.normal(size=N)
BOTH = np.column_stack([Y, X[:, 0]])
LABELS = np.where(Y > 0, "yes", "no")
FIXED = {"kernel": "gaussian", "bandwidth": 1.0, "size": 20, "random_state": 0}
CASES = {
    "square": (SketchedKernelRegressor, Y, {"alpha": 1e-4}),
    "square, chosen": (SketchedKernelRegressor, Y, {}),
    "square, two outputs": (SketchedKernelRegressor, BOTH, {"alpha": 1e-4}),
    "huber": (SketchedKernelRegressor, Y, {"loss": "huber", "alpha": 1e-4}),
    "pinball": (SketchedKernelRegressor, Y, {"loss": "pinball", "alpha": 1e-4}),
    "epsilon": (
        SketchedKernelRegressor,
        Y,
        {"loss": "epsilon-insensitive", "alpha": 1e-4},
    ),
    "huber, two outputs": (
        SketchedKernelRegressor,
        BOTH,
        {"loss": "huber", "alpha": 1e-4},
    ),
    "logistic": (SketchedKernelClassifier, LABELS, {"loss": "logistic", "alpha": 1e-4}),
    "hinge": (SketchedKernelClassifier, LABELS, {"loss": "hinge", "alpha": 1e-4}),
    "quantiles": (
        JointQuantileRegressor,
        Y,
        {"alpha": 1e-3, "quantiles": (0.2, 0.8), "calibration": 0.2, "tol": 1e-6},
    ),
    "landweber": (SpectralFilterRegressor, Y, {"filter": "landweber"}),
    "rank": (SketchedKernelRegressor, Y, {"preprocessing": "both", "alpha": 1e-4}),
    "grown": (SketchedKernelRegressor, Y, {"size": "auto", "alpha": 1e-4}),
    "blocks": (SketchedKernelRegressor, Y, {"cv": 3}),
    "sgd": (SketchedSGDRegressor, Y, {"n_epochs": 2}),
    "sgd, held out": (SketchedSGDRegressor, Y, {"n_epochs": 2, "early_stopping": True}),
    "sgd, classes": (SketchedSGDClassifier, LABELS, {"n_epochs": 2}),
}


@pytest.fixture
def tiny(monkeypatch):
    """Blocks of a few hundred rows, and a limit that nothing fits."""
    monkeypatch.setattr(scratch, "_BLOCK_BYTES", 1 << 15)
    for module in ("_sketch_map", "rows.transform"):
        monkeypatch.setattr(f"nbsketch.{module}.KEEP_BYTES", 1 << 10)
    nbsketch.set_memory_limit(1000)
    yield
    nbsketch.set_memory_limit(None)


@pytest.fixture
def mapped(tmp_path):
    """X in a file."""
    file = np.memmap(tmp_path / "X", np.float32, "w+", shape=X.shape)
    file[:] = X
    file.flush()
    return np.memmap(tmp_path / "X", np.float32, "r", shape=X.shape)


def decision(model):
    """Return the numbers that a model predicts."""
    return getattr(model, "decision_function", model.predict)(X)


@pytest.mark.parametrize("case", CASES)
def test_beyond_memory_the_model_is_the_same(case, tiny, mapped):
    model, y, params = CASES[case]
    options = FIXED | params
    far = model(**options).fit(mapped, y)
    nbsketch.set_memory_limit("4GB")
    near = model(**options).fit(X, y)
    scale = np.abs(decision(near)).max()
    # certified to 1e-6 from features in single precision
    np.testing.assert_allclose(decision(far), decision(near), atol=2e-3 * scale)
    if hasattr(near, "dual_gap_"):
        assert far.dual_gap_ <= (1e-4 if case == "grown" else 1e-6)


@pytest.mark.parametrize("room", [True, False], ids=["file", "no room"])
def test_a_full_disk_costs_time_alone(room, tiny, mapped, monkeypatch):
    made = []
    start = ScratchDesign.__init__

    def count(self, source):
        if not room:
            raise OSError("no space left on device")
        made.append(source.shape)
        start(self, source)

    monkeypatch.setattr(ScratchDesign, "__init__", count)
    options = FIXED | {"loss": "huber", "alpha": 1e-3}
    model = SketchedKernelRegressor(**options).fit(mapped, Y)
    assert bool(made) == room and model.dual_gap_ <= 1e-6
    far = SketchedSGDRegressor(n_epochs=2, **FIXED).fit(mapped, Y)
    nbsketch.set_memory_limit("4GB")
    near = SketchedSGDRegressor(n_epochs=2, **FIXED).fit(X, Y)
    np.testing.assert_allclose(far.predict(X), near.predict(X), atol=1e-3)


@pytest.mark.parametrize("params", [{}, {"early_stopping": True}])
def test_preconditioned_descent_stays_within_the_limit(params, monkeypatch):
    X = np.random.default_rng(0).uniform(-2, 2, size=(15_000, 2))
    y = np.sin(2 * X[:, 0])
    options = {"kernel": "laplacian", "bandwidth": 1.0, "alpha": 1e-4, "size": 100}
    model = SketchedSGDRegressor(n_epochs=1, random_state=0, **options, **params)
    near = clone(model).fit(X, y)
    monkeypatch.setattr(scratch, "_BLOCK_BYTES", 1 << 16)
    monkeypatch.setenv("NBSKETCH_MEMORY_LIMIT", "1MB")
    tracemalloc.start()
    far = clone(model).fit(X, y)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 * 15_000 * 100  # the bytes of all features in single precision
    np.testing.assert_allclose(far.predict(X), near.predict(X), atol=1e-3)


def test_a_penalty_is_chosen_on_some_rows_beyond_memory(tiny, mapped):
    options = FIXED | {"loss": "huber"}
    far = SketchedKernelRegressor(**options).fit(mapped, Y)
    nbsketch.set_memory_limit(None)
    near = SketchedKernelRegressor(**options).fit(X, Y)
    assert 0.03 < far.alpha_ / near.alpha_ < 30
    assert far.score(X, Y) > near.score(X, Y) - 0.01


def test_a_path_beyond_memory(tiny, mapped):
    model = SketchedKernelRegressor(**FIXED, loss="pinball")
    far = model.fit_path(mapped, Y, [1e-2, 1e-3])
    nbsketch.set_memory_limit("1GB")
    for one, other in zip(far, model.fit_path(X, Y, [1e-2, 1e-3]), strict=True):
        np.testing.assert_allclose(one.predict(X), other.predict(X), atol=2e-3)


def test_cross_validation_beyond_memory(tiny):
    from nbsketch.model_selection import cross_validate

    model = SketchedKernelRegressor(loss="huber", **FIXED)
    known = X, Y, [0.5, 1.0], [1e-2, 1e-3]
    far = cross_validate(model, *known, cv=3)
    nbsketch.set_memory_limit("1GB")
    near = cross_validate(model, *known, cv=3)
    np.testing.assert_allclose(far.errors, near.errors, rtol=1e-3)


def scratch_pair(n=1000, r=7):
    """Return features in a scratch file, and the same in memory."""
    Z = RNG.normal(size=(n, r)).astype(np.float32)
    return ScratchDesign(ArrayDesign(Z)), ArrayDesign(Z)


@pytest.mark.parametrize("count", [0, 1, 3, 400, 1000])
def test_products_of_a_scratch_file_are_those_in_memory(count, tiny):
    far, near = scratch_pair()
    rows = np.sort(RNG.choice(1000, count, replace=False))
    w, A = RNG.normal(size=7), RNG.normal(size=(count, 2))
    weights = RNG.uniform(size=count)
    np.testing.assert_allclose(far.mv(w), near.mv(w), rtol=1e-12)
    np.testing.assert_allclose(far.rmv(A, rows), near.rmv(A, rows), atol=1e-12)
    np.testing.assert_allclose(
        far.gram(rows, weights), near.gram(rows, weights), atol=1e-9
    )
    part = far.gather(rows)
    np.testing.assert_array_equal(part.collect(), near.Z[rows])
    assert part.shape == (count, 7)


def test_rows_of_a_design(tiny):
    far, near = scratch_pair()
    rows = np.arange(0, 1000, 3)
    some = RowsDesign(far, rows)
    w = RNG.normal(size=7)
    np.testing.assert_allclose(some.mv(w), near.Z[rows].astype(float) @ w, rtol=1e-9)
    inner = np.array([0, 5, 100])
    np.testing.assert_array_equal(some.gather(inner).collect(), near.Z[rows[inner]])


def test_nothing_is_left_of_a_scratch_file(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    far, _ = scratch_pair()
    assert scratch.scratch_folder() == str(tmp_path)
    assert list(tmp_path.iterdir()) == []  # not even a name while it is used
    assert far.mv(np.ones(7)).shape == (1000,)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_killed_process_leaves_no_scratch_file(tmp_path):
    code = (
        "import numpy as np, os, signal\n"
        "from nbsketch.solvers.design import ArrayDesign\n"
        "from nbsketch.solvers.scratch import ScratchDesign\n"
        "Z = ScratchDesign(ArrayDesign(np.ones((1000, 100))))\n"
        "link = os.readlink(f'/proc/self/fd/{Z._file.fileno()}')\n"
        f"assert link.startswith({str(tmp_path)!r}), link\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, check=False)
    assert done.returncode == -9
    assert list(tmp_path.iterdir()) == []


def test_a_disk_without_room_is_named(monkeypatch):
    full = type("Usage", (), {"free": 1000})
    monkeypatch.setattr("shutil.disk_usage", lambda folder: full)
    with pytest.raises(OSError, match="set TMPDIR to another folder"):
        ScratchDesign(ArrayDesign(np.ones((1000, 10))))
    design: Design = ArrayDesign(np.ones((1000, 10)))
    assert stored_or(design) is design


def test_the_limit_of_a_user(monkeypatch):
    assert nbsketch.get_memory_limit() > 1 << 20
    monkeypatch.setenv("NBSKETCH_MEMORY_LIMIT", "1.5GB")
    assert nbsketch.get_memory_limit() == 1.5 * 2**30
    nbsketch.set_memory_limit("200 MiB")
    assert nbsketch.get_memory_limit() == 200 * 2**20
    nbsketch.set_memory_limit(12345)
    assert nbsketch.get_memory_limit() == 12345
    nbsketch.set_memory_limit(None)
    assert nbsketch.get_memory_limit() == 1.5 * 2**30


def test_the_limit_has_room_for_all_copies(monkeypatch):
    nbsketch.set_memory_limit(1000)
    assert memory.fits(1000) and memory.fits(500, copies=2)
    assert not memory.fits(501, copies=2) and memory.fits(501)
    nbsketch.set_memory_limit(None)
    monkeypatch.setattr(memory, "_available", lambda: 2000.0)  # half of it is used
    assert memory.fits(500, copies=2, modest=0)
    assert not memory.fits(501, copies=2, modest=0)
    assert memory.fits(501, copies=2, modest=501)
    workers = {"a": {"memory_limit": 3000, "metrics": {"memory": 500}}}
    workers["b"] = {"memory_limit": 1500, "metrics": {}}
    client = SimpleNamespace(scheduler_info=lambda n_workers: {"workers": workers})
    monkeypatch.setattr(partitions, "current_client", lambda: client)
    assert partitions.fits_workers(1000) and not partitions.fits_workers(
        1001
    )  # 4000 bytes are free


@pytest.mark.parametrize("limit", ["", "4XB", "-1GB", "GB", 0, -3, "nan"])
def test_limits_that_are_none(limit):
    with pytest.raises(ValueError, match="`limit` must be"):
        nbsketch.set_memory_limit(limit)
    with pytest.raises(TypeError, match="`limit` must be"):
        nbsketch.set_memory_limit([1])


def test_the_limit_of_a_container(tmp_path, monkeypatch):
    (tmp_path / "memory.max").write_text("1000000\n")
    (tmp_path / "memory.current").write_text("400000\n")
    monkeypatch.setattr(memory, "_CGROUP", tmp_path)
    assert nbsketch.get_memory_limit() == 300_000
    (tmp_path / "memory.max").write_text("max\n")
    assert nbsketch.get_memory_limit() > 300_000


def test_kernel_values_obey_the_limit():
    """The values are 500 kB, and operators of some of the rows are stored besides."""
    kernel = nbsketch.GaussianKernel(1.0)
    v = RNG.normal(size=500)
    operators = []
    for limit in (None, 1_010_000, 990_000):
        nbsketch.set_memory_limit(limit)
        operators.append(SymmetricGram(kernel, X[:500]))
    nbsketch.set_memory_limit(None)
    assert [K._pairs._kept for K in operators] == [True, True, False]
    kept, _, again = operators
    np.testing.assert_allclose(kept @ v, again @ v, rtol=1e-12)


def test_transformed_rows_are_the_transformed_array():
    from nbsketch.tuning import fit_scaler

    scaler = fit_scaler(X, "both", 0)
    rows, whole = LazyRows(X, scaler), scaler.transform(X)
    assert rows.shape == whole.shape and rows.dtype == whole.dtype
    np.testing.assert_array_equal(rows[5:9], whole[5:9])
    np.testing.assert_array_equal(rows[[7, 1]], whole[[7, 1]])
    np.testing.assert_array_equal(np.asarray(rows), whole)


def test_passes_over_the_rows_are_reported(tiny, mapped):
    states = []
    SketchedKernelRegressor(
        loss="huber", alpha=1e-3, callback=states.append, **FIXED
    ).fit(mapped, Y)
    passes = [s.rows for s in states if s.n_rows == N]
    assert passes.count(N) > 3 and min(r for r in passes if r) < N
    assert {s.stage for s in states} == {"features", "solver"}


def test_gathered_features_leave_memory_for_their_kernel_values(monkeypatch):
    monkeypatch.setattr(scratch, "_BLOCK_BYTES", 1 << 10)
    landmarks = SketchMap(nbsketch.GaussianKernel(1.0), X[:8], sp.identity(8))
    design = StreamedDesign(landmarks, np.eye(8), X)
    rows = np.arange(0, N, 2)
    try:
        for copies, kind in ((1, ScratchDesign), (2, ArrayDesign)):
            nbsketch.set_memory_limit(copies * 8 * 8 * len(rows))
            found = design.gather(rows)
            assert type(found) is kind
            np.testing.assert_allclose(found.collect(), design.at(rows), atol=1e-6)
    finally:
        nbsketch.set_memory_limit(None)


def test_features_in_memory_are_reported(monkeypatch):
    monkeypatch.setattr("nbsketch._sketch_map.REPORTED_ROWS", 1024)
    states = []
    options = FIXED | {"loss": "huber", "alpha": 1e-3}
    model = SketchedKernelRegressor(**options, callback=states.append).fit(X, Y)
    rows = [s.rows for s in states if s.stage == "features"]
    assert rows == [0, 20 + 1024, 20 + 2048, N]  # the pass begins, and goes on
    again = SketchedKernelRegressor(**options).fit(X, Y)
    np.testing.assert_array_equal(model.coef_, again.coef_)


@pytest.fixture
def asked(monkeypatch):
    """Numbers of rows that are copied at once from those that a fit has chosen."""
    counts, copy = [], LazyRows.__getitem__

    def counted(self, rows):
        found = copy(self, rows)
        counts.append(len(found))
        return found

    monkeypatch.setattr(LazyRows, "__getitem__", counted)
    monkeypatch.setattr("nbsketch._sketch_map.REPORTED_ROWS", 256)
    monkeypatch.setattr("nbsketch.rows.transform._FITTED_ROWS", 200)  # samples
    return counts


WEIGHTS = np.tile([0.0, 1.0, 2.0], N // 3)
CHOSEN = {
    "square": (SketchedKernelRegressor, Y, {"alpha": 1e-4}),
    "huber": (SketchedKernelRegressor, Y, {"loss": "huber", "alpha": 1e-4}),
    "classes": (SketchedKernelClassifier, LABELS, {"loss": "logistic", "alpha": 1e-4}),
    "ranks": (SketchedKernelRegressor, Y, {"preprocessing": "both", "alpha": 1e-4}),
    "quantiles": CASES["quantiles"],
}


@pytest.mark.parametrize("case", CHOSEN)
def test_chosen_rows_are_copied_block_by_block(case, tiny, mapped, asked):
    model, y, params = CHOSEN[case]
    options = FIXED | params
    far = model(**options).fit(mapped, y, sample_weight=WEIGHTS)
    # blocks, and a sample in which gross errors are sought
    assert len(asked) > 3 and max(asked) <= 1000 < N // 2
    nbsketch.set_memory_limit("4GB")
    del asked[:]
    near = model(**options).fit(X, y, sample_weight=WEIGHTS)
    assert not asked
    scale = np.abs(decision(near)).max()
    np.testing.assert_allclose(decision(far), decision(near), atol=2e-3 * scale)


def test_intervals_beyond_memory_are_those_in_memory(tiny, mapped, asked):
    options = FIXED | CASES["quantiles"][2]
    far = JointQuantileRegressor(**options).fit(mapped, Y)
    assert max(asked) < N // 4
    nbsketch.set_memory_limit("4GB")
    near = JointQuantileRegressor(**options).fit(X, Y)
    known = near.predict_interval(X, 0.5)
    np.testing.assert_allclose(far.predict_interval(X, 0.5), known, atol=2e-3)


def test_extreme_values_of_lazy_rows(monkeypatch):
    monkeypatch.setattr("nbsketch.rows.transform._BLOCK_ROWS", 100)
    chosen = np.arange(0, N, 2)
    rows = LazyRows(X, chosen=chosen)
    assert rows.max() == X[chosen].max()
    np.testing.assert_array_equal(rows.min(axis=0), X[chosen].min(axis=0))
    np.testing.assert_array_equal(np.asarray(rows), X[chosen])


def test_the_domain_of_a_kernel_is_checked_block_by_block(tiny, mapped):
    kernel = {"kernel": "sobolev", "size": 20, "random_state": 0, "alpha": 1e-4}
    with pytest.raises(ValueError, match=r"`X` must be in \[0, 1\] for SobolevKernel"):
        SketchedKernelRegressor(**kernel).fit(mapped, Y, sample_weight=WEIGHTS)


def test_a_memory_map_is_not_copied(tmp_path):
    """The memory of a fit of the square loss does not grow with the rows of a file."""
    import tracemalloc

    n = 200_000
    file = np.memmap(tmp_path / "big", np.float32, "w+", shape=(n, 8))
    file[:] = RNG.normal(size=(n, 8))
    y = np.asarray(file[:, 0], dtype=float)
    model = SketchedKernelRegressor(**(FIXED | {"alpha": 1e-3}))
    model.fit(file[:2000], y[:2000])
    nbsketch.set_memory_limit(1000)
    tracemalloc.start()
    model.fit(file, y)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    nbsketch.set_memory_limit(None)
    # a few vectors of the rows, and blocks of at most 16 MB and their products
    assert peak < 8 * 8 * n + 48e6


V2 = "memory.max", "memory.current", "inactive_file"
V1 = "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"


def write_group(folder, names, limit, used, caches=0):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / names[0]).write_text(f"{limit}\n")
    (folder / names[1]).write_text(f"{used}\n")
    (folder / "memory.stat").write_text(f"anon 5\n{names[2]} {caches}\n")


@pytest.mark.parametrize(
    "folder, names, line",
    [("a", V2, "0::/a/b\n"), ("memory/a", V1, "9:cpu,cpuset:/c\n4:memory:/a/b")],
)
def test_limits_of_groups_above_count(tmp_path, monkeypatch, folder, names, line):
    write_group(tmp_path / folder, names, 1_000_000, 400_000)
    write_group(tmp_path / folder / "b", names, 9_000_000, 400_000)
    write_group(tmp_path / "memory/c", names, 9, 4)  # of another process
    (tmp_path / "process").write_text(line)
    monkeypatch.setattr(memory, "_CGROUP", tmp_path)
    monkeypatch.setattr(memory, "_PROCESS", tmp_path / "process")
    assert nbsketch.get_memory_limit() == 300_000
    # Mapped files that were read do not count: the system takes their memory back.
    write_group(tmp_path / folder, names, 1_000_000, 990_000, caches=590_000)
    assert nbsketch.get_memory_limit() == 300_000
    (tmp_path / folder / "memory.stat").unlink()
    assert nbsketch.get_memory_limit() == 5_000
    (tmp_path / folder / names[1]).unlink()
    assert nbsketch.get_memory_limit() == 500_000


class Windows:
    """The system of a machine with 7 GB of memory, of which 3 are available."""

    def __init__(self):
        self.kernel32 = self

    def GlobalMemoryStatusEx(self, reference):
        status = reference._obj
        assert status.size == 64  # else the call fails
        status.sizes[:2] = 7 << 30, 3 << 30


MACOS = {"SC_PHYS_PAGES": 1 << 20, "SC_PAGE_SIZE": 4096}


def raises(error):
    def sysconf(name):
        raise error

    return sysconf


@pytest.mark.parametrize(
    "sysconf, windows, available",
    [
        pytest.param(None, True, 3 << 30, id="windows"),
        pytest.param(
            {"SC_PHYS_PAGES": 1 << 20, "SC_PAGE_SIZE": 4096}.get,
            False,
            2 << 30,
            id="macos",
        ),
        pytest.param(lambda name: -1, False, 4 << 30, id="unknown"),
        pytest.param(raises(ValueError("no such name")), False, 4 << 30, id="other"),
        pytest.param(None, False, 4 << 30, id="none"),
    ],
)
def test_memory_of_other_systems(tmp_path, monkeypatch, sysconf, windows, available):
    for name in ("_MEMINFO", "_CGROUP", "_PROCESS"):
        monkeypatch.setattr(memory, name, tmp_path / "missing")
    monkeypatch.delattr(os, "sysconf")
    if sysconf is not None:
        monkeypatch.setattr(os, "sysconf", sysconf, raising=False)
    if windows:
        monkeypatch.setattr(ctypes, "windll", Windows(), raising=False)
    assert nbsketch.get_memory_limit() == available / 2


def test_the_limit_decides_between_a_factorization_and_passes(rng, monkeypatch):
    X = rng.uniform(-1, 1, size=(1200, 2))
    y, known = np.sin(3 * X[:, 0]), {"sketch": "identity", "alpha": 1e-3}
    model = SketchedKernelRegressor(bandwidth=1.0, random_state=0, **known)
    free = model.fit(X, y).predict(X)
    monkeypatch.setattr(memory, "_given", [8 << 20])
    model.fit(X, y)  # loads the compiled code
    tracemalloc.start()
    try:
        found = model.fit(X, y).predict(X)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 8 * 1200**2  # the Gram matrix, of which there were three
    assert np.abs(found - free).max() < 0.05


SCALED = {"bandwidth": 1.0, "preprocessing": "both", "alpha": 1e-3, "random_state": 0}
DENSE = RNG.normal(size=(200, 3))
WAVE = np.sin(DENSE[:, 0]) + 0.1 * RNG.normal(size=200)
# What takes rows after a fit, of models that transform them.
USES = {
    "predict": lambda model: model.predict(DENSE),
    "score": lambda model: model.score(DENSE, WAVE),
    "summed": lambda model: model.set_params(size=3).fit(DENSE, WAVE).predict(DENSE),
    "dense sketch": lambda model: (
        model.set_params(sketch="gaussian", size=20).fit(DENSE, WAVE).predict(DENSE)
    ),
    "linear": lambda model: (
        model.set_params(kernel="linear", bandwidth=None, preprocessing="rank")
        .fit(DENSE, WAVE)
        .predict(DENSE)
    ),
    "function": lambda model: (
        model.set_params(
            kernel=lambda A, B: np.exp(-((A[:, None] - B) ** 2).sum(2)), bandwidth=None
        )
        .fit(DENSE, WAVE)
        .predict(DENSE)
    ),
    "median": lambda model: (
        model.set_params(bandwidth="median", preprocessing="both")
        .fit(DENSE, WAVE)
        .predict(DENSE)
    ),
    "posterior": lambda model: model.fit_posterior(DENSE, WAVE).predict(
        DENSE, return_std=True
    )[1],
    "jackknife": lambda model: (
        ConformalRegressor(model, method="jackknife+")
        .fit(DENSE, WAVE)
        .predict_interval(DENSE)
    ),
    "monotone": lambda model: (
        model.set_params(monotonic_cst=[1, 0, 0], size=40)
        .fit(DENSE, WAVE)
        .predict(DENSE)
    ),
    "calibrated": lambda model: (
        JointQuantileRegressor(calibration=0.2, size=30, **SCALED)
        .fit(DENSE, WAVE)
        .predict_interval(DENSE, 0.8)
    ),
    "classes": lambda model: (
        SketchedKernelClassifier(**SCALED).fit(DENSE, WAVE > 0).decision_function(DENSE)
    ),
    "shapley": lambda model: shapley_values(
        model.set_params(kernel="gaussian").fit(DENSE, WAVE), DENSE[:20]
    ),
}


@pytest.mark.thin(every=2)
@pytest.mark.parametrize("use", USES)
def test_transformed_rows_are_used_tile_by_tile(use, monkeypatch):
    monkeypatch.setattr("nbsketch.gram.lazy._LAZY_ROWS", 64)
    monkeypatch.setenv("NBSKETCH_MEMORY_LIMIT", "1000")
    model = SketchedKernelRegressor(**SCALED)
    far = USES[use](clone(model).fit(DENSE, WAVE))
    monkeypatch.setenv("NBSKETCH_MEMORY_LIMIT", "4GB")
    near = USES[use](model.fit(DENSE, WAVE))
    # passes that end at a gap of 1e-3, and a factorization of all rows
    np.testing.assert_allclose(far, near, atol=0.02)
