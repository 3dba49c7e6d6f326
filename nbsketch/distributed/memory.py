"""Whether blocks are kept in memory between the passes over them."""

from __future__ import annotations

from functools import partial
from typing import Any

from nbsketch import _memory
from nbsketch.distributed.tasks import current_client

# Sets of blocks that a fit keeps: the rows and their features.
_SETS = 2


def fits(nbytes: int) -> bool:
    """Return whether so many bytes are kept, on the workers or in this process."""
    client = current_client()
    if client is None:
        return _memory.fits(nbytes, copies=_SETS)
    left = partial(_available, client)
    return _memory.fits(nbytes, copies=_SETS, modest=0, available=left)


def _available(client: Any) -> float:
    """Return the free bytes of all workers."""
    workers = client.scheduler_info(n_workers=-1)["workers"].values()
    limits = [w["memory_limit"] or float("inf") for w in workers]  # 0: no limit
    used = [w["metrics"].get("memory", 0) for w in workers]
    return sum(max(0, m - u) for m, u in zip(limits, used, strict=True))
