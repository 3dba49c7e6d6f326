import gc
import os
import random
import subprocess
import sys
from collections import Counter, defaultdict
from pathlib import Path

import numba
import numpy as np
import pytest
from threadpoolctl import threadpool_limits

os.environ.setdefault("MPLBACKEND", "agg")  # no windows
# Idle threads of OpenMP sleep: beside another worker they would spin in its time.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
ROOT = Path(__file__).parents[1]

gc.disable()  # while tests are collected, which are no garbage

# What algebra may lose to rounding, relative to the largest number of the result.
TOLERANCE = {np.dtype(np.float64): 1e-12, np.dtype(np.float32): 1e-5}


def thinned(*, every=None, times=2):
    """Return the arguments of the mark `thin`."""
    return every, times


def identity(value):
    """Return what values of a parameter share; partial functions share a function."""
    return id(getattr(value, "func", value))


def few_cases(cases, times=2):
    """Return the positions of cases that show each value of a parameter `times` times.

    A few of all cases (tuples of values) meet every kernel and every sketch, if not
    every pair of them. Their order is shuffled, lest all meet the first kernel.
    """
    order = list(range(len(cases)))
    random.Random(0).shuffle(order)
    shown = Counter()
    few = set()
    for position in order:
        values = list(enumerate(cases[position]))
        if any(shown[value] < times for value in values):
            shown.update(values)
            few.add(position)
    return few


@pytest.hookimpl(tryfirst=True)  # before `-m` chooses
def pytest_collection_modifyitems(items):
    """Mark as `full` what the mark `thin` leaves out of the short run."""
    grids = defaultdict(list)
    for item in items:
        if item.get_closest_marker("thin"):
            grids[item.nodeid.split("[")[0]].append(item)
    for grid in grids.values():
        every, times = thinned(**grid[0].get_closest_marker("thin").kwargs)
        cases = [tuple(map(identity, item.callspec.params.values())) for item in grid]
        few = range(0, len(grid), every) if every else few_cases(cases, times)
        for position in set(range(len(grid))) - set(few):
            grid[position].add_marker("full")


def pytest_collection_finish():
    """Collect no garbage among the tests."""
    gc.freeze()
    gc.enable()


@pytest.fixture(autouse=True, scope="session")
def one_thread_of_libraries():
    """Keep BLAS and boosted trees to one thread: theirs wait for each other."""
    with threadpool_limits(1):
        yield


@pytest.fixture(autouse=True)
def numba_threads():
    """Restore the number of numba's threads after each test."""
    before = numba.get_num_threads()
    yield
    numba.set_num_threads(before)


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.fixture(params=[np.float64, np.float32], ids=["float64", "float32"])
def dtype(request):
    return np.dtype(request.param)


@pytest.fixture
def tol(dtype):
    return TOLERANCE[dtype]


@pytest.fixture
def problem(rng):
    """Return X (80, 5) and a smooth noisy y (80,)."""
    X = rng.uniform(-1, 1, size=(80, 5))
    y = np.sin(3 * X[:, 0]) + X[:, 1] ** 2 + 0.1 * rng.standard_normal(80)
    return X, y


@pytest.fixture
def surface(rng):
    """Return X (300, 3) and y (300,), in which the first two features act jointly."""
    X = rng.uniform(-2, 2, size=(300, 3))
    return X, np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 0] + 0.1 * rng.normal(size=300)


@pytest.fixture
def short_searches(monkeypatch):
    """Let searches for length scales by evidence have half of their rows, or fewer."""
    from nbsketch.tuning import search  # what few tests need

    monkeypatch.setattr(search, "_CHECK", 300)
    for name, rows in (("_EVIDENCE", 300), ("_FURTHER", 300), ("SHORT", 400)):
        stage = getattr(search, name)
        monkeypatch.setattr(search, name, stage._replace(rows=rows))


@pytest.fixture
def plain_python(monkeypatch):
    """Return a function that makes the parts of compiled functions of a module Python.

    Parts have no way in from Python: the ``py_func`` of what calls them needs it.
    """

    def plain(module):
        for name, part in list(vars(module).items()):
            if name.startswith("_") and hasattr(part, "py_func"):
                monkeypatch.setattr(module, name, part.py_func)

    return plain


@pytest.fixture
def run_python():
    """Return a function that runs code in a new interpreter and returns its output.

    Keywords are environment variables; None takes one away.
    """

    def run(code, *, root=ROOT, timeout=120, **environment):
        env = {**os.environ, "PYTHONPATH": str(root), **environment}
        done = subprocess.run(
            [sys.executable, "-c", code],
            cwd=root,
            env={name: value for name, value in env.items() if value is not None},
            capture_output=True,
            text=True,
            timeout=timeout,
        )
        assert done.returncode == 0, f"exit {done.returncode}\n{done.stderr}"
        return done.stdout.strip()

    return run
