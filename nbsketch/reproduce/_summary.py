"""Replicates summed up in the columns of a table."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np


def spread(name: str, values: Iterable[float]) -> dict[str, float]:
    """Return mean and standard deviation as the columns `name` and name_deviation."""
    array = np.array(list(values))
    return {name: float(array.mean()), f"{name}_deviation": float(array.std())}


def timing(seconds: float, seconds_without: float | None) -> dict[str, Any]:
    """Return the training time, and how many times faster than without a sketch."""
    faster = None if seconds_without is None else seconds_without / seconds
    return {"seconds": seconds, "faster": faster}
