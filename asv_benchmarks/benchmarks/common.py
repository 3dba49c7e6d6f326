"""What benchmarks share: identity, profile, data, clock."""

import hashlib
import os
import time
from pathlib import Path

import numpy as np

PROFILE = os.environ.get("NBSKETCH_BENCH", "fast")


def identity(file):
    """Return the version of the benchmarks of a file: profile, threads and its code.

    asv compares results of one version only.
    """
    code = hashlib.sha256(Path(file).read_bytes()).hexdigest()[:12]
    threads = os.environ.get("NBSKETCH_BENCH_THREADS", str(os.cpu_count()))
    return f"{PROFILE}, {threads} threads, {code}"


def choose(*, fast, regular):
    """Return what the profile asks for."""
    return {"fast": fast, "regular": regular}[PROFILE]


def make_rows(n, n_features, dtype="float64", seed=0):
    """Return standard normal rows."""
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, n_features), dtype=dtype)


def make_problem(n, n_features=10, n_outputs=1, seed=0):
    """Return rows and smooth targets with heavy-tailed noise, standardized."""
    X = make_rows(n, n_features, seed=seed)
    rng = np.random.default_rng(seed + 1)
    directions = rng.normal(size=(n_features, n_outputs)) / np.sqrt(n_features)
    Y = np.sin(2 * X @ directions) + 0.3 * rng.standard_t(3, size=(n, n_outputs))
    Y /= Y.std(axis=0)
    return X, Y[:, 0] if n_outputs == 1 else Y


def bandwidth_for(n_features):
    """Return about the median distance between standard normal rows."""
    return float(np.sqrt(2 * n_features))


def fastest(*functions, repeat=5):
    """Return the least time of each function over interleaved runs, in seconds."""
    times = np.full(len(functions), np.inf)
    for _ in range(repeat):
        for i, function in enumerate(functions):
            start = time.perf_counter()
            function()
            times[i] = min(times[i], time.perf_counter() - start)
    return times.tolist()
