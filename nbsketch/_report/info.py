"""Versions, processor, threads, vector width and cache folder."""

import platform
from importlib import metadata
from pathlib import Path

import nbsketch
from nbsketch._jit import gram, threads


def collect() -> dict[str, str]:
    """Return the environment for a bug report, as names and values."""
    versions = {
        name: metadata.version(name)
        for name in ("numba", "llvmlite", "numpy", "scipy", "scikit-learn")
    }
    cache = getattr(gram.fold, "stats", None)
    return {
        "nbsketch": nbsketch.__version__,
        "python": f"{platform.python_version()} on {platform.platform()}",
        **versions,
        "processor": processor(),
        "threads": str(threads.thread_limit()),
        "vector bytes": str(gram.VECTOR),
        "cache of compiled code": getattr(cache, "cache_path", None) or "none",
    }


def processor() -> str:
    """Return the model of the processor, if the system reports it."""
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
