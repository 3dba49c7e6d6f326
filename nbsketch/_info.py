"""Versions, threads, vector width and cache folder."""

from __future__ import annotations

import platform
from importlib import metadata

import nbsketch
from nbsketch._jit import gram, threads


def collect() -> dict[str, str]:
    """Return the environment for a bug report, as names and values."""
    versions = {
        name: metadata.version(name)
        for name in ("numba", "llvmlite", "numpy", "scipy", "scikit-learn")
    }
    cache = getattr(gram.fold_serial, "stats", None)
    return {
        "nbsketch": nbsketch.__version__,
        "python": f"{platform.python_version()} on {platform.platform()}",
        **versions,
        "threads": str(threads.thread_limit()),
        "vector bytes": str(gram.VECTOR),
        "cache of compiled code": getattr(cache, "cache_path", None) or "none",
    }
