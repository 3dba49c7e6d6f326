"""Data sets by their names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nbsketch import datasets


def load(name: str, data_home: Path | None, **options: Any) -> Any:
    """Return what the loader of a set returns."""
    return getattr(datasets, f"load_{name}")(data_home=data_home, **options)
