"""Threads, forked children, worker processes, and the cache of compiled code.

What could abort or hang a process runs in one of its own, with a time limit.
"""

import os
import shutil
import threading
import time
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numba
import numpy as np
import pytest
import scipy.linalg
from conftest import ROOT
from numpy.testing import assert_allclose, assert_array_equal
from threadpoolctl import threadpool_info, threadpool_limits

from nbsketch import GaussianKernel, PSparsifiedSketch, SketchedKernelRegressor, cli
from nbsketch._jit import threads
from nbsketch._machine.blas import eigh, one_thread
from nbsketch.gram import Gram, Product

needs_two_threads = pytest.mark.skipif(
    threads.thread_limit() < 2, reason="one thread, by numba or OMP_NUM_THREADS"
)

# Work for several parallel regions, its result, and a check of it.
SETUP = """
import os, sys, threading, time
import numba, numpy as np
from nbsketch import GaussianKernel, PSparsifiedSketch
from nbsketch._jit import threads
from nbsketch.gram import Gram

X = np.random.default_rng(0).standard_normal((4000, 3))
S = PSparsifiedSketch(50).draw(4000, 0)
def product(_=None):
    return Gram(GaussianKernel(2.0), X) @ S.T
"""


@pytest.fixture
def product():
    X = np.random.default_rng(0).standard_normal((4000, 3))
    K, S = Gram(GaussianKernel(2.0), X), PSparsifiedSketch(50).draw(4000, 0)
    return lambda: K @ S.T


def in_threads(function, count):
    """Return the results of `count` concurrent calls."""
    results, start = [None] * count, threading.Barrier(count)

    def call(i):
        start.wait(60)
        results[i] = function()

    workers = [threading.Thread(target=call, args=(i,)) for i in range(count)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(120)
    return results


def test_concurrent_calls_give_the_same_bits(product):
    expected = product()
    for result in in_threads(lambda: [product() for _ in range(5)], 4):
        for array in result:
            assert_array_equal(array, expected)
    assert not threads._parallel_region.locked()


class Kernel:
    """A kernel that only writes down how it ran on which tiles."""

    def __init__(self, fail=False):
        self.calls, self.limits, self.fail = [], [], fail

    def __call__(self, first, last, together, loop):
        self.calls.append(("parallel" if loop else "serial", first, last))
        if loop:
            self.limits.append(numba.get_num_threads())
        if self.fail:
            raise KeyboardInterrupt

    def run(self, n_tiles, seconds):
        threads.run_tiles(self, n_tiles, seconds)
        return self.calls


@numba.njit
def count_together(out, bad, first, last, together, loop):
    if loop:
        threads.in_parallel()
        return
    for tile in range(first, last):
        if tile == bad:
            raise ValueError("a bad tile")
        out[tile] += 1


@numba.njit
def running_sums(out, width, first, last, together, loop):
    if loop:
        threads.in_parallel()
        return
    for tile in range(first, last):
        out[tile] = out[tile - width] + tile if tile >= width else tile


@needs_two_threads
def test_an_error_in_a_tile_of_the_parallel_loop_is_raised():
    out = np.zeros(1000)
    threads.run_tiles(count_together, 1000, 1e-4, out, -1)
    assert_array_equal(out, 1)
    with pytest.raises(ValueError, match="a bad tile"):
        threads.run_tiles(count_together, 1000, 1e-4, out, 700)
    assert out[700] == 1 and not threads._parallel_region.locked()


@needs_two_threads
@pytest.mark.parametrize("width", [1, 2, 7, 50])
@pytest.mark.parametrize("seconds", [1e-4, 7e-3])
def test_tiles_that_depend_on_earlier_ones_wait_for_them(width, seconds):
    expected = np.zeros(50, dtype=np.int64)
    running_sums(expected, width, 0, 50, 0, 0)
    out = np.zeros(50, dtype=np.int64)
    threads.run_tiles(running_sums, 50, seconds, out, width, together=width)
    assert_array_equal(out, expected)


def covered(calls):
    return [tile for _, first, last in calls for tile in range(first, last)]


@pytest.mark.parametrize("n_tiles", [0, 1, 7, 1000])
@pytest.mark.parametrize("seconds", [0.0, 1e-9, 1e-3, 0.07, 10.0])
def test_every_tile_runs_once_in_order(n_tiles, seconds):
    calls = Kernel().run(n_tiles, seconds)
    assert covered(calls) == list(range(n_tiles))
    assert len({kind for kind, _, _ in calls}) <= 1
    for _, first, last in calls:
        limit = numba.config.NUMBA_NUM_THREADS * threads.CHUNK_SECONDS
        assert last - first == 1 or (last - first) * seconds <= limit * (1 + 1e-9)


@needs_two_threads
def test_little_work_is_serial_and_much_is_parallel():
    assert {call[0] for call in Kernel().run(10, 1e-6)} == {"serial"}
    assert {call[0] for call in Kernel().run(10, 1e-2)} == {"parallel"}


@needs_two_threads
def test_slices_run_each_tile_once_and_side_by_side():
    numba.set_num_threads(2)
    both, calls = threading.Barrier(2), []

    def kernel(first, last):
        both.wait(60)  # for the other
        calls.append((threads.thread_limit(), first, last))

    threads.run_slices(kernel, 7, 2e-3)
    assert sorted(covered(calls)) == list(range(7))
    assert [limit for limit, _, _ in calls] == [1, 1]


@pytest.mark.parametrize("n_tiles", [0, 1, 1000])
@pytest.mark.parametrize("seconds", [0.0, 1e-9, 1e-3, 10.0])
def test_slices_are_short(n_tiles, seconds):
    calls = []
    threads.run_slices(lambda *cut: calls.append((0, *cut)), n_tiles, seconds)
    assert sorted(covered(calls)) == list(range(n_tiles))
    if 0 < n_tiles * seconds < threads.SLICED_SECONDS:
        assert calls == [(0, 0, n_tiles)]
    for _, first, last in calls:
        assert last - first == 1 or (last - first) * seconds <= threads.CHUNK_SECONDS


@needs_two_threads
def test_a_second_region_is_serial():
    with threads._parallel_region:
        assert {call[0] for call in Kernel().run(10, 1e-2)} == {"serial"}


@needs_two_threads
def test_an_interrupt_gives_everything_back():
    before = numba.get_num_threads()
    with pytest.raises(KeyboardInterrupt):
        Kernel(fail=True).run(10, 1e-2)
    assert numba.get_num_threads() == before
    assert not threads._parallel_region.locked()


def test_every_block_is_worked_on_once():
    for n_blocks in (0, 1, 50):
        done = []
        threads.run_blocks(done.append, range(n_blocks))
        assert sorted(done) == list(range(n_blocks))


@needs_two_threads
def test_blocks_run_side_by_side_and_are_serial_within():
    numba.set_num_threads(2)
    both, found = threading.Barrier(2), []

    def work(block):
        both.wait(60)  # for the other
        found.append((threading.get_ident(), threads.thread_limit()))

    threads.run_blocks(work, range(2))
    assert len({thread for thread, _ in found}) == 2
    assert [limit for _, limit in found] == [1, 1]
    assert threads.thread_limit() == 2


def test_an_error_in_a_block_is_raised_and_stops_the_others():
    done = []

    def work(block):
        if block == 0:
            raise KeyError("block 0")
        time.sleep(1e-3)
        done.append(block)

    with pytest.raises(KeyError, match="block 0"):
        threads.run_blocks(work, range(2000))
    assert len(done) < 1999


@needs_two_threads
@pytest.mark.parametrize(
    ("asked", "limit"),
    [("1", 1), ("2", 2), ("1,4", 1), ("10000", 2), ("", 2), ("0", 2), ("many", 2)],
)
def test_number_of_threads_of_openmp(asked, limit, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", asked)
    numba.set_num_threads(2)
    assert threads.thread_limit() == limit
    kernel = Kernel()
    kernel.run(10, 1e-2)
    assert set(kernel.limits) <= {2} and bool(kernel.limits) == (limit == 2)
    numba.set_num_threads(1)
    assert threads.thread_limit() == 1


@pytest.mark.parametrize(
    "variable",
    ["NUMBA_NUM_THREADS", pytest.param("OMP_NUM_THREADS", marks=pytest.mark.full)],
)
def test_environment_sets_the_number_of_threads(variable, run_python):
    code = "from nbsketch._jit.threads import thread_limit; print(thread_limit())"
    assert run_python(code, **{variable: "1"}) == "1"


def test_a_forked_child_computes_and_ends(run_python):
    code = """
    expected = product()  # starts the threads of the parent
    child = os.fork()
    if child == 0:
        same = (product() == expected).all() and threads.thread_limit() == 1
        os._exit(0 if same else 3)
    for _ in range(600):
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            break
        time.sleep(0.1)
    else:
        os.kill(child, 9)
        sys.exit("the child hangs")
    assert os.waitstatus_to_exitcode(status) == 0, status
    assert (product() == expected).all() and threads.thread_limit() >= 1
    """
    run_python(script(code))


@pytest.mark.full
def test_a_pool_of_forked_workers(run_python):
    code = """
    import multiprocessing
    expected = product()
    with multiprocessing.get_context("fork").Pool(2) as pool:
        results = pool.map_async(product, range(4)).get(timeout=60)
    assert len(results) == 4 and all((r == expected).all() for r in results)
    """
    run_python(script(code))


@pytest.mark.full
def test_a_fork_inside_a_parallel_region(run_python):
    code = """
    expected = product()
    with threads._parallel_region:
        child = os.fork()
        if child == 0:
            os._exit(0 if (product() == expected).all() else 3)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    """
    run_python(script(code), timeout=60)


@pytest.mark.parametrize(
    "layer", ["workqueue", pytest.param(None, marks=pytest.mark.full)]
)
def test_concurrent_calls_on_every_threading_layer(layer, run_python):
    code = """
    expected = product()
    results = []
    def call():
        results.extend(product() for _ in range(5))
    workers = [threading.Thread(target=call) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert len(results) == 20 and all((r == expected).all() for r in results)
    if numba.config.NUMBA_NUM_THREADS > 1:
        print(numba.threading_layer())
    """
    printed = run_python(script(code), NUMBA_THREADING_LAYER=layer)
    if layer is not None and threads.thread_limit() > 1:
        assert printed == layer


@pytest.mark.full
def test_workers_of_joblib(run_python):
    pytest.importorskip("joblib")
    code = """
    from joblib import Parallel, delayed
    def work():
        return threads.thread_limit(), product()
    with Parallel(n_jobs=2, backend="loky", timeout=100) as parallel:
        results = parallel(delayed(work)() for _ in range(4))
    cores = max(1, os.cpu_count() // 2)
    assert all(1 <= limit <= cores for limit, _ in results)
    assert all((r == product()).all() for _, r in results)
    """
    run_python(script(code))


EVALUATE = """
import sys
sys.stderr = sys.stdout
import numpy as np
from nbsketch._jit.products import add_all, row_products
out = np.zeros(2)
add_all(np.eye(2), np.ones(2), out)
assert (out == 1).all()
print(sum(add_all.stats.cache_hits.values()))
"""
ANOTHER = """
row_products(np.eye(2), np.ones(2), out)
assert sum(row_products.stats.cache_misses.values()) == 1
"""


def files_below(folder):
    return {
        (str(path), path.stat().st_size, path.stat().st_mtime_ns)
        for path in Path(folder).rglob("*")
        if path.is_file()
    }


def test_compiled_code_is_found_again(run_python, tmp_path):
    """Standard error says that an installation compiles, not that a process does."""
    cache = str(tmp_path)
    said = run_python(EVALUATE, NUMBA_CACHE_DIR=cache)
    assert said.count("nbsketch warmup") == 1 and said.endswith("\n0")
    stored = files_below(cache)
    assert any(path.endswith(".nbc") for path, _, _ in stored)
    assert run_python(EVALUATE + ANOTHER, NUMBA_CACHE_DIR=cache) == "1"
    assert {file for file in files_below(cache) if ".add_all-" in file[0]} == stored


def test_warmup_names_each_kind_and_its_seconds(monkeypatch, capsys):
    fits = [fit | {"rows": 20} for fit in cli._TEXTS["fits"]]
    monkeypatch.setitem(cli._TEXTS, "fits", fits)
    assert cli.main(["warmup"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line[:44].strip() for line in lines] == [fit["name"] for fit in fits]
    assert all(line.endswith(" s") for line in lines)


def test_without_a_place_for_the_cache(run_python, tmp_path):
    # Files where folders should be made stop even a user who may write anywhere.
    package = tmp_path / "nbsketch"
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "nbsketch", package, ignore=ignored)
    (package / "_jit" / "__pycache__").write_text("")
    (tmp_path / "home").write_text("")
    printed = run_python(
        EVALUATE + "print(add_all._cache.__class__.__name__)",
        root=tmp_path,
        NUMBA_CACHE_DIR=None,
        HOME=str(tmp_path / "home"),
        XDG_CACHE_HOME=str(tmp_path / "home"),
        LOCALAPPDATA=str(tmp_path / "home"),
        PYTHONDONTWRITEBYTECODE="1",
    )
    assert printed.split() == ["0", "NullCache"]


def script(code):
    """Return the setup followed by indented code."""
    lines = code.strip("\n").split("\n")
    indent = len(lines[0]) - len(lines[0].lstrip())
    return SETUP + "\n".join(line[indent:] for line in lines)


# BLAS -------------------------------------------------------------------------------


def blas_threads():
    """Return the limits of the BLAS libraries; one may be built for a single thread."""
    return [
        library["num_threads"]
        for library in threadpool_info()
        if library["user_api"] == "blas"
    ]


@pytest.fixture
def two_blas_threads():
    with threadpool_limits(limits=2, user_api="blas"):
        before = blas_threads()
        assert 2 in before
        yield before


def test_limits_of_blas_that_overlap_are_lifted_by_the_last(two_blas_threads):
    first, second = one_thread(), one_thread()
    first.__enter__()
    second.__enter__()
    assert set(blas_threads()) == {1}
    first.__exit__(None, None, None)
    assert set(blas_threads()) == {1}
    second.__exit__(None, None, None)
    assert blas_threads() == two_blas_threads


def test_a_driver_of_eigenvalues_that_fails_is_replaced(monkeypatch):
    """As it does on some matrices, which ones depends on the BLAS kernels."""
    driver = scipy.linalg.eigh

    def fail(matrix, **options):
        if options != {"driver": "evd"}:
            raise np.linalg.LinAlgError("Internal Error.")
        return driver(matrix, **options)

    monkeypatch.setattr(scipy.linalg, "eigh", fail)
    values, vectors = eigh(np.array([[2.0, 1.0], [1.0, 2.0]]))
    assert_allclose(values, [1, 3])
    assert_allclose(np.abs(vectors), 0.5**0.5)


def test_every_thread_can_limit_blas(two_blas_threads):
    # The fixture has set a number in this thread: threadpoolctl ignores other threads.
    def limited():
        with one_thread():
            return blas_threads()

    with ThreadPoolExecutor(1) as pool:
        assert set(pool.submit(limited).result()) == {1}
    assert blas_threads() == two_blas_threads
    with one_thread(), ThreadPoolExecutor(1) as pool:
        assert set(pool.submit(limited).result()) == {1}
    assert blas_threads() == two_blas_threads


def test_another_thread_can_lift_the_limit_of_blas(two_blas_threads):
    limit = one_thread()
    limit.__enter__()
    with ThreadPoolExecutor(1) as pool:
        pool.submit(limit.__exit__, None, None, None).result()
    assert blas_threads() == two_blas_threads


def test_a_fit_in_another_thread_gives_the_same_bits(two_blas_threads):
    X = np.random.default_rng(0).normal(size=(150, 3))
    model = SketchedKernelRegressor(random_state=0)
    expected = model.fit(X, np.sin(X[:, 0])).predict(X)
    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(model.fit, X, np.sin(X[:, 0])).result()
    assert_array_equal(other.predict(X), expected)


def test_the_limit_of_blas_is_lifted_after_an_error(two_blas_threads):
    with pytest.raises(KeyError), one_thread(), one_thread():
        raise KeyError
    assert blas_threads() == two_blas_threads


def test_fits_side_by_side_leave_blas_as_it_was(two_blas_threads):
    X = np.random.default_rng(0).normal(size=(200, 3))
    models = [SketchedKernelRegressor(bandwidth=1.0, random_state=0) for _ in range(8)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda model: model.fit(X, X[:, 0]), models))
    assert blas_threads() == two_blas_threads


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_child_forked_within_a_limit_can_set_its_own(two_blas_threads):
    with one_thread():
        child = os.fork()
        if child == 0:  # pragma: no cover
            with one_thread():
                os._exit(0 if set(blas_threads()) == {1} else 1)
        assert os.waitpid(child, 0)[1] == 0


@needs_two_threads
def test_parallel_calls_give_their_arrays_back():
    kernel = GaussianKernel(1.0)
    rows = np.random.default_rng(0).standard_normal((2000, 3))
    product = Product(kernel, rows[:200], np.eye(200))
    product(rows)
    tracemalloc.start()
    for _ in range(5):
        product(rows)
    kept = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert kept < 1e6  # a result has 3.2 MB
