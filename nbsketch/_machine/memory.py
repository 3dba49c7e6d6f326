"""The memory limit for data that could be recomputed.

Features, transformed samples and kernel values are stored if they fit. Vectors of n
numbers, models and blocks of a few megabytes are not counted.
"""

import ctypes
import os
from collections.abc import Iterable, Iterator
from ctypes import c_uint32, c_uint64
from pathlib import Path
from typing import ClassVar

from nbsketch._report.validation import check_positive

_VARIABLE = "NBSKETCH_MEMORY_LIMIT"
# Share of the available memory used by default.
SHARE = 0.5
# Bytes that may always be used by default.
_MODEST = 32 << 20
# If the available memory is unknown: a share of all memory, or this.
_AVAILABLE = 0.5
_UNKNOWN = 4 << 30
_UNITS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}
# Files of Linux.
_MEMINFO = Path("/proc/meminfo")
_CGROUP = Path("/sys/fs/cgroup")
_PROCESS = Path("/proc/self/cgroup")
# Files of the limit and of the used bytes, in both versions of control groups, and the
# entry for file caches, which the system can reclaim.
_V2 = "memory.max", "memory.current", "inactive_file"
_V1 = "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"

_given: list[float | None] = [None]


def slices(n: int, step: int) -> Iterator[slice]:
    """Yield the slices of n rows, each of `step` rows, to process one at a time.

    Examples
    --------
    >>> from nbsketch._machine.memory import slices
    >>> list(slices(5, 3))
    [slice(0, 3, None), slice(3, 5, None)]
    """
    for start in range(0, n, step):
        yield slice(start, min(start + step, n))


def batches(sizes: Iterable[int], most: int) -> Iterator[slice]:
    """Yield slices of consecutive parts of positive sizes, to process together.

    A batch ends with the part by which it has at least `most` rows.

    Examples
    --------
    >>> from nbsketch._machine.memory import batches
    >>> list(batches([2, 2, 1], 3))
    [slice(0, 2, None), slice(2, 3, None)]
    """
    start = stop = total = 0
    for stop, size in enumerate(sizes, start=1):
        total += size
        if total >= most:
            yield slice(start, stop)
            start = stop
            total = 0
    if total:
        yield slice(start, stop)


def set_memory_limit(limit: float | str | None) -> None:
    """Set the memory that a fit may use to store features and kernel values.

    Data that do not fit are recomputed in every pass, or written to a scratch file that
    is deleted after the fit (see the page on large data). Vectors with one number per
    sample, and the data themselves, are not counted. A small limit reduces the default
    size of a sketch; a size that you pass is kept.

    Parameters
    ----------
    limit : float, str or None
        Number of bytes, or a string such as "500MB" or "4GB" (powers of 1024). None:
        the environment variable NBSKETCH_MEMORY_LIMIT if it is set, else half of the
        memory available at the start of a fit.

    Raises
    ------
    TypeError, ValueError
        If the limit is not a positive number of bytes.

    Examples
    --------
    >>> import nbsketch
    >>> nbsketch.set_memory_limit("500MB")
    >>> nbsketch.get_memory_limit()
    524288000
    >>> nbsketch.set_memory_limit(None)
    """
    _given[0] = None if limit is None else _bytes("limit", limit)


def get_memory_limit() -> int:
    """Return the number of bytes that a fit may use now; see `set_memory_limit`.

    Examples
    --------
    >>> import nbsketch
    >>> nbsketch.get_memory_limit() > 2**20
    True
    """
    limit = asked()
    return int(SHARE * _available() if limit is None else limit)


def fits(
    n_bytes: float,
    *,
    copies: int = 1,
    modest: float = _MODEST,
    unasked: float = float("inf"),
) -> bool:
    """Return whether this many bytes are within the limit.

    Parameters
    ----------
    n_bytes : float
        Number of bytes to store.
    copies : int
        Number of such arrays that must fit into the limit.
    modest, unasked : float
        If the user has set no limit: bytes that always fit, and maximum that fits.
    """
    limit = asked()
    if limit is None:
        if not modest < n_bytes <= unasked:
            return n_bytes <= unasked  # without a system call, which takes time
        limit = SHARE * _available()
    return copies * n_bytes <= limit


def asked() -> float | None:
    """Return the limit set by the user; None without one."""
    if _given[0] is not None:
        return _given[0]
    text = os.environ.get(_VARIABLE)
    return _bytes(_VARIABLE, text) if text else None


def _bytes(name: str, limit: float | str) -> float:
    if not isinstance(limit, str):
        return check_positive(name, limit)
    text = limit.strip().upper().removesuffix("B").removesuffix("I")
    unit = text[-1:] if text[-1:] in _UNITS else ""
    try:
        return check_positive(
            name, float(text.removesuffix(unit)) * 1024 ** _UNITS[unit]
        )
    except ValueError as error:
        raise ValueError(
            f"`{name}` must be a positive number of bytes or a text such as '4GB', got "
            f"{limit!r}"
        ) from error


def _available() -> float:
    """Return the available bytes of the computer, or of its container if fewer."""
    free = _from_meminfo() or _from_windows() or _from_sysconf() or _UNKNOWN
    return min(free, _from_cgroup())


def _from_meminfo() -> float:
    """Return the available bytes, including caches, as reported by Linux."""
    kilobytes = dict(line.split(":", 1) for line in _lines(_MEMINFO))
    return 1024.0 * float(kilobytes.get("MemAvailable", "0 kB").split()[0])


class _MemoryStatus(ctypes.Structure):
    """MEMORYSTATUSEX of Windows: its size, the load, and numbers of bytes."""

    _fields_: ClassVar = [
        ("size", c_uint32),
        ("load", c_uint32),
        ("sizes", c_uint64 * 7),
    ]


def _from_windows() -> float:
    """Return the available bytes of Windows, 0 elsewhere."""
    status = _MemoryStatus(ctypes.sizeof(_MemoryStatus))
    system = getattr(ctypes, "windll", None)
    if system is not None:
        system.kernel32.GlobalMemoryStatusEx(ctypes.byref(status))
    return float(status.sizes[1])


def _from_sysconf() -> float:
    """Return a share of the memory of the computer; 0 if it is unknown."""
    try:
        pages = os.sysconf("SC_PHYS_PAGES")
        size = os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return 0.0
    return _AVAILABLE * max(0, pages) * size


def _from_cgroup() -> float:
    """Return the bytes left to the process by its control groups and their parents."""
    groups = [_CGROUP, _CGROUP / "memory"]
    for line in _lines(_PROCESS):
        _, controllers, path = line.split(":", 2)
        if not controllers:  # version 2
            groups.append(_CGROUP / path.strip("/"))
        elif "memory" in controllers.split(","):
            groups.append(_CGROUP / "memory" / path.strip("/"))
    folders = {folder for group in groups for folder in (group, *group.parents)}
    return min(_left_to(f) for f in folders if f.is_relative_to(_CGROUP))


def _left_to(group: Path) -> float:
    """Return the bytes left to a group, including caches; infinite without a limit."""
    stats = dict(line.split() for line in _lines(group / "memory.stat"))
    for most, used, caches in (_V1, _V2):
        limit = "".join(_lines(group / most))
        if limit.isdigit():
            usage = int("".join(_lines(group / used)) or 0) - int(stats.get(caches, 0))
            return max(0.0, float(limit) - usage)
    return float("inf")


def _lines(path: Path) -> list[str]:
    """Return the lines of a system file; none if it cannot be read."""
    try:
        return path.read_text("ascii").splitlines()
    except OSError:
        return []
