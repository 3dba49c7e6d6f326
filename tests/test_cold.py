"""What a first fit compiles, counted: seconds depend on the machine, files do not."""

import gc
import re
import sys
from collections import Counter
from types import SimpleNamespace

import numba
import pytest
from numba.core import event

from nbsketch._jit import compiler, gram

FIT = """
import warnings
import numpy as np
import nbsketch
warnings.simplefilter("ignore")
rng = np.random.default_rng(0)
X = rng.standard_normal(({n}, 5))
y = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.1 * rng.standard_normal({n})
y = y > 0 if "Classifier" in "{name}" else y
nbsketch.{name}(random_state=0, {settings}).fit(X, y).predict(X)
"""
# Functions on disk after a first fit and prediction, each for one kind of arguments.
SQUARES = {"fold", "kernel_and_slope", "row_products"}
LOSSES = SQUARES | {
    "add_all", "add_combination", "dual_point", "slope_along", "young_sum",
}  # fmt: skip
BLOCKS = {"distances", "invert", "multiply_slopes", "weighted_distances"}
QUANTILES = {"products_of_few", "add_few_combinations", "fill_uniforms"}
FITS = [
    ("SketchedKernelRegressor", 300, "", SQUARES),
    ("SketchedKernelRegressor", 300, "loss='huber'", LOSSES),
    (
        "SketchedKernelClassifier", 300, "",
        LOSSES - {"row_products", "add_all", "add_combination"}
        | BLOCKS | {"fill_uniforms"},
    ),
    ("JointQuantileRegressor", 300, "", LOSSES - {"row_products"} | QUANTILES),
    (
        "SketchedKernelRegressor", 5000, "",
        {"fold", "kernel_and_slope", "fill_uniforms", "multiply"} | BLOCKS,
    ),
]  # fmt: skip


def compiled_functions(folder):
    """Return how many times each function is on disk."""
    names = (re.match(r"\w+\.(\w+)-", file.name)[1] for file in folder.rglob("*.nbc"))
    return Counter(names)


@pytest.mark.thin(every=10)  # the first of all
@pytest.mark.parametrize("threads", ["1", "2"])
@pytest.mark.parametrize(("name", "n", "settings", "functions"), FITS)
def test_a_first_fit_compiles_each_function_once(
    name, n, settings, functions, threads, run_python, tmp_path
):
    if int(threads) > numba.config.NUMBA_DEFAULT_NUM_THREADS:
        pytest.skip("one processor")
    code = FIT.format(name=name, n=n, settings=settings)
    cache = {"NUMBA_CACHE_DIR": str(tmp_path), "NUMBA_NUM_THREADS": threads}
    run_python(code, OMP_NUM_THREADS=threads, **cache)
    loop = {"each_tile"} if n > 1000 and threads == "2" else set()
    assert compiled_functions(tmp_path) == Counter(functions | loop)


@pytest.mark.full
@pytest.mark.parametrize("name", ["TabularKernelRegressor", "TabularKernelClassifier"])
def test_a_first_fit_of_a_table_compiles_few_functions(name, run_python, tmp_path):
    code = FIT.format(name=name, n=300, settings="")
    run_python(code, NUMBA_CACHE_DIR=str(tmp_path))
    found = compiled_functions(tmp_path)
    assert found.pop("column_squares") <= 2  # of both types
    assert set(found.values()) == {1} and len(found) <= 12


def fake_event(folder, module="nbsketch._jit.gram"):
    """Return what numba tells its listeners about a function that it compiles."""
    function = SimpleNamespace(__module__=module)
    stats = SimpleNamespace(cache_path=folder)
    return SimpleNamespace(
        data={"dispatcher": SimpleNamespace(py_func=function, stats=stats)}
    )


def test_a_higher_level_of_the_package_is_obeyed(tmp_path, caplog):
    with caplog.at_level("ERROR", "nbsketch"):
        compiler._Notice().on_start(fake_event(str(tmp_path)))
    assert not caplog.records


@pytest.mark.parametrize(
    ("on_disk", "modules", "level"),
    [
        (None, {}, "INFO"),  # no folder can be written
        ((), {}, "WARNING"),
        ((), {"ipykernel": gram}, "INFO"),
        (("gram.fold-1.py311.nbi",), {}, "INFO"),
    ],
)
def test_the_first_compilation_of_an_installation_is_said_once(
    on_disk, modules, level, tmp_path, caplog, monkeypatch
):
    for name in on_disk or ():
        (tmp_path / name).touch()
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    folder = None if on_disk is None else str(tmp_path)
    notice = compiler._Notice()
    with caplog.at_level("INFO", "nbsketch"):
        notice.on_start(fake_event(folder, "numba.cpython.builtins"))
        assert not caplog.records
        notice.on_start(fake_event(folder))
        notice.on_start(fake_event(folder))
    (record,) = caplog.records
    assert record.levelname == level and "`nbsketch warmup`" in record.getMessage()


@pytest.mark.parametrize("enabled", [True, False])
def test_garbage_is_not_collected_during_compilation(enabled, monkeypatch):
    states = [enabled]
    monkeypatch.setattr(gc, "isenabled", lambda: states[-1])
    monkeypatch.setattr(gc, "disable", lambda: states.append(False))
    monkeypatch.setattr(gc, "enable", lambda: states.append(True))
    pause, ours = compiler._Pause(), fake_event(None)
    pause.on_start(ours)
    pause.on_start(ours)
    pause.on_end(ours)
    assert states[-1] is False
    pause.on_end(ours)
    assert states[-1] is enabled


def test_another_package_compiles_as_before(monkeypatch):
    monkeypatch.setattr(gc, "disable", lambda: pytest.fail("paused"))
    pause, other = compiler._Pause(), fake_event(None, "numba.np.arrayobj")
    pause.on_start(other)
    pause.on_end(other)


def test_the_notice_takes_no_event_from_other_listeners():
    class Recorder(event.Listener):
        starts = 0

        def on_start(self, event):
            self.starts += 1

        def on_end(self, event):
            pass

    first, second = compiler._Notice(), Recorder()
    data = fake_event(None).data
    for listener in (first, second):
        event.register("test:compile", listener)
    event.start_event("test:compile", data=data)
    for listener in (first, second):
        event.unregister("test:compile", listener)
    assert first.said and second.starts == 1
