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


def seconds_in_new_process(code, **environment):
    """Return how long the code takes in a new interpreter that has just started."""
    timed = (
        "import time; start = time.perf_counter()\n"
        f"{code}\nprint(time.perf_counter() - start)"
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
