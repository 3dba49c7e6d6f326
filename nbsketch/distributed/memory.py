"""Whether blocks are kept in memory between the passes over them."""

from __future__ import annotations

import os

from nbsketch.distributed.tasks import current_client

# Share of the free memory that one set of blocks may take. A fit keeps two, the rows
# and their features, and works on copies of single blocks.
_SHARE = 0.3


def fits(nbytes: int) -> bool:
    """Return whether so many bytes are kept, on the workers or in this process."""
    return nbytes <= _SHARE * _free()


def _free() -> float:
    client = current_client()
    if client is None:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    workers = client.scheduler_info(n_workers=-1)["workers"].values()
    return sum(
        max(0, (w["memory_limit"] or 0) - w["metrics"].get("memory", 0))
        for w in workers
    )
