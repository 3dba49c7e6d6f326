"""How much memory a fit may use for what it could compute again: the one limit of all.

Features, transformed rows and kernel values are stored while they fit it. Vectors of n
numbers, models and blocks of a few megabytes are not counted.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from nbsketch._report.validation import check_positive

_VARIABLE = "NBSKETCH_MEMORY_LIMIT"
# Share of the available memory that is used by default.
_SHARE = 0.5
# Bytes that are always used by default.
_MODEST = 32 << 20
# Where the system does not say how much is available.
_UNKNOWN = 4 << 30
_UNITS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}
_CGROUP, _PROCESS = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")
# Files of the limit and of the used bytes, in both versions of control groups.
_V2 = "memory.max", "memory.current"
_V1 = "memory.limit_in_bytes", "memory.usage_in_bytes"

_given: list[float | None] = [None]


def set_memory_limit(limit: float | str | None) -> None:
    """Set how much memory a fit may use to store features and kernel values.

    What does not fit is computed again in every pass over the rows, or is written to a
    scratch file that is deleted with the fit (see the page on large data). Vectors of
    one number per row, and the data themselves, are not counted.

    Parameters
    ----------
    limit : float, str or None
        Number of bytes, or a text such as "500MB" or "4GB" (powers of 1024). None: the
        environment variable NBSKETCH_MEMORY_LIMIT if it is set, else half of the memory
        that is available when a fit begins.

    Raises
    ------
    TypeError, ValueError
        If the limit is no positive number of bytes.

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
    limit = _asked()
    return int(_SHARE * _available() if limit is None else limit)


def fits(
    n_bytes: float,
    *,
    copies: int = 1,
    modest: float = _MODEST,
    unasked: float = float("inf"),
    available: Callable[[], float] | None = None,
) -> bool:
    """Return whether so many bytes are within the limit.

    Parameters
    ----------
    n_bytes : float
        Number of bytes to store.
    copies : int
        How many such arrays the limit must have room for.
    modest, unasked : float
        While the user has set no limit: bytes that always fit, and the most that does.
    available : callable or None
        Available bytes of other processes, in which the bytes are to be stored; the
        limit of the user is for this one. None: this process.
    """
    limit = _asked() if available is None else None
    if limit is None:
        if not modest < n_bytes <= unasked:
            return n_bytes <= unasked  # without asking the system, which takes time
        limit = _SHARE * (available or _available)()
    return copies * n_bytes <= limit


def _asked() -> float | None:
    """Return the limit of the user, None without one."""
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
    """Return the available bytes: of the machine, or of its container if fewer."""
    try:
        pages, size = os.sysconf("SC_AVPHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
        free = float(pages * size)
    except (AttributeError, OSError, ValueError):
        free = _UNKNOWN
    free = max(free, _from_meminfo())
    return min(free, _from_cgroup())


def _from_meminfo() -> float:
    """Return the available bytes, with those of caches, as Linux counts them."""
    try:
        lines = Path("/proc/meminfo").read_text("ascii").splitlines()
    except OSError:
        return 0.0
    kilobytes = dict(line.split(":", 1) for line in lines)
    return 1024.0 * float(kilobytes.get("MemAvailable", "0 kB").split()[0])


def _from_cgroup() -> float:
    """Return the bytes left to the process by its groups and all above them."""
    try:
        lines = _PROCESS.read_text("ascii").splitlines()
    except OSError:
        lines = []
    left = [_left_to(_CGROUP, *_V2), _left_to(_CGROUP / "memory", *_V1)]
    for line in lines:
        _, controllers, path = line.split(":", 2)
        unified = not controllers
        if unified or "memory" in controllers.split(","):
            group = (_CGROUP if unified else _CGROUP / "memory") / path.strip("/")
            above = [f for f in (group, *group.parents) if f.is_relative_to(_CGROUP)]
            left += [_left_to(folder, *(_V2 if unified else _V1)) for folder in above]
    return min(left)


def _left_to(group: Path, most: str, used: str) -> float:
    """Return the bytes left to a group; infinite without a limit."""
    try:
        limit = (group / most).read_text("ascii").strip()
        usage = float((group / used).read_text("ascii"))
        return float("inf") if limit == "max" else max(0.0, float(limit) - usage)
    except (OSError, ValueError):
        return float("inf")
