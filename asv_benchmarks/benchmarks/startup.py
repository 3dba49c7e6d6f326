"""What users feel first: the import, and the first fit of a process."""

import os
import subprocess
import sys
import tempfile

from benchmarks.common import choose, identity

version = identity(__file__)

THREADS = "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"
IMPORT = "import nbsketch"
FIT = """
import numpy as np
from nbsketch import SketchedKernelRegressor
X = np.random.default_rng(0).normal(size=(5000, 5))
SketchedKernelRegressor(bandwidth="median", size=50, random_state=0).fit(X, X[:, 0])
"""
DEFAULT = """
import numpy as np
import nbsketch
rng = np.random.default_rng(0)
X = rng.uniform(-1, 1, size=({n}, 5))
y = np.sin(3 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.3 * rng.standard_normal({n})
model = nbsketch.{model}
model.set_params(random_state=0).fit(X, y > 0 if "Classifier" in "{model}" else y)
model.predict(X)
"""
# Model and number of samples of first fits.
FITS = {
    "square, 300": ("SketchedKernelRegressor()", 300),
    "square, 5000": ("SketchedKernelRegressor()", 5000),
    "square, 20000": ("SketchedKernelRegressor()", 20_000),
    "huber, 300": ("SketchedKernelRegressor(loss='huber')", 300),
    "huber, 2000": ("SketchedKernelRegressor(loss='huber')", 2000),
    "classes, 300": ("SketchedKernelClassifier()", 300),
    "quantiles, 300": ("JointQuantileRegressor()", 300),
    "table, 500": ("TabularKernelRegressor()", 500),
    "table, 3000": ("TabularKernelRegressor()", 3000),
    "table of classes, 500": ("TabularKernelClassifier()", 500),
}


def seconds_in_new_process(code, **environment):
    """Return how long the code takes in a new interpreter that has just started."""
    clock = "time.perf_counter()"
    timed = f"import time; start = {clock}\n{code}\nprint({clock} - start)"
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
    """Seconds that compilation adds to a first fit and prediction with all defaults."""

    unit = "seconds"
    timeout = 600
    params = (choose(fast=("square, 300",), regular=tuple(FITS)), (1, 2))
    param_names = ("fit", "threads")

    def track_compilation(self, fit, threads):
        model, n = FITS[fit]
        code = DEFAULT.format(model=model, n=n)
        with tempfile.TemporaryDirectory() as folder:
            limits = dict.fromkeys(THREADS, str(threads)) | {"NUMBA_CACHE_DIR": folder}
            cold, warm = (seconds_in_new_process(code, **limits) for _ in range(2))
        return cold - warm
