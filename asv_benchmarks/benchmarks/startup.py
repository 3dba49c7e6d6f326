"""What users feel first: the import, and the first fit of a process."""

import os
import subprocess
import sys
import tempfile

from benchmarks.common import choose, identity

version = identity(__file__)

IMPORT = "import nbsketch"
FIT = """
import numpy as np
from nbsketch import SketchedKernelRegressor
X = np.random.default_rng(0).normal(size=(5000, 5))
SketchedKernelRegressor(bandwidth="median", size=50, random_state=0).fit(X, X[:, 0])
"""
DEFAULT = """
import numpy as np
from nbsketch import SketchedKernelRegressor
rng = np.random.default_rng(0)
X = rng.standard_normal(({n}, 5))
y = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.1 * rng.standard_normal({n})
SketchedKernelRegressor(random_state=0).fit(X, y).predict(X)
"""


def seconds_in_new_process(code, clock="perf_counter", **environment):
    """Return how long the code takes in a new interpreter that has just started."""
    timed = (
        f"import time; start = time.{clock}()\n{code}\nprint(time.{clock}() - start)"
    )
    done = subprocess.run(
        [sys.executable, "-c", timed],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return float(done.stdout)


class Startup:
    """Seconds; each new process of its own."""

    unit = "seconds"
    timeout = 600

    def setup_cache(self):
        repeat = choose(fast=1, regular=5)
        with tempfile.TemporaryDirectory() as folder:
            cache = {"NUMBA_CACHE_DIR": folder}
            cold = seconds_in_new_process(FIT, **cache)
            warm = [seconds_in_new_process(FIT, **cache) for _ in range(repeat)]
        imports = [seconds_in_new_process(IMPORT) for _ in range(repeat)]
        return {"cold": cold, "warm": min(warm), "import": min(imports)}

    def track_import(self, seconds):
        return seconds["import"]

    def track_first_fit_without_cache(self, seconds):
        return seconds["cold"]

    def track_first_fit_with_cache(self, seconds):
        return seconds["warm"]


class FirstDefaultFit:
    """Processor seconds of a first fit and prediction with all defaults, no cache.

    Imports included; 1000 rows take the compiled code of a sketch, 5000 rows also that
    of the exact machine.
    """

    unit = "seconds"
    timeout = 600
    params = choose(fast=(300,), regular=(300, 1000, 5000))
    param_names = ("n",)

    def track_processor_time(self, n):
        with tempfile.TemporaryDirectory() as folder:
            return seconds_in_new_process(
                DEFAULT.format(n=n), clock="process_time", NUMBA_CACHE_DIR=folder
            )
