"""Print kernels of OpenBLAS that this processor can run and does not take by itself."""

import os
import subprocess
import sys

import scipy.linalg  # noqa: F401, loads OpenBLAS
from threadpoolctl import threadpool_info

PRODUCT = "import numpy, scipy.linalg; scipy.linalg.eigh(numpy.eye(300))"


def runs(name):
    """Return whether a factorization under these kernels ends."""
    environment = {**os.environ, "OPENBLAS_CORETYPE": name}
    return not subprocess.run(
        [sys.executable, "-c", PRODUCT], env=environment
    ).returncode


native = {library.get("architecture") for library in threadpool_info()}
for name in ("SkylakeX", "Haswell", "Sandybridge"):
    if name not in native and runs(name):
        print(name)
        break
else:
    raise SystemExit("no other kernels of OpenBLAS run on this processor")
