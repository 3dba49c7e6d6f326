"""Whether blocks are kept in memory between the passes over them."""

from __future__ import annotations

from nbsketch import _memory
from nbsketch.distributed.tasks import current_client

# Share of the free memory of all workers that one set of blocks may take. A fit keeps
# two, the rows and their features, and works on copies of single blocks.
_SHARE = 0.3


def fits(nbytes: int) -> bool:
    """Return whether so many bytes are kept, on the workers or in this process."""
    client = current_client()
    if client is None:
        return _memory.fits(nbytes)
    workers = client.scheduler_info(n_workers=-1)["workers"].values()
    limits = [w["memory_limit"] or float("inf") for w in workers]  # 0: no limit
    used = [w["metrics"].get("memory", 0) for w in workers]
    left = sum(max(0, m - u) for m, u in zip(limits, used, strict=True))
    return nbytes <= _SHARE * left
