"""Benchmarks of nbsketch for airspeed velocity."""

import os

from threadpoolctl import threadpool_limits

# Numba and SciPy are yet to be loaded; NumPy may be here already.
_threads = os.environ.get("NBSKETCH_BENCH_THREADS", str(os.cpu_count()))
for _name in ("NUMBA", "OMP", "OPENBLAS", "MKL"):
    os.environ.setdefault(f"{_name}_NUM_THREADS", _threads)
threadpool_limits(int(_threads), user_api="blas")
