"""Hyperparameters chosen by cross-validation, kept in a JSON file."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from nbsketch._progress import Progress

Key = tuple[str, ...]
Setting = dict[str, float]


def settings_for(
    keys: Sequence[Key],
    choose: Callable[[Key], Setting],
    shipped: Path,
    file: Path | None = None,
) -> dict[Key, Setting]:
    """Return the setting of each key, choosing those that are missing.

    Parameters
    ----------
    keys : sequence of tuples of str
        Nested keys of the file, as in ``("rf1", "20/n-SR")``.
    choose : callable
        Returns the setting of a key, by cross-validation.
    shipped : Path
        File that comes with the package, read if no `file` is given.
    file : Path, optional
        Read if it exists, and written after each choice.

    Raises
    ------
    ValueError
        If `file` is not JSON.
    """
    chosen = _read(shipped, file)
    missing = [key for key in keys if _find(chosen, key) is None]
    with Progress(max(1, len(missing))) as progress:
        for key in missing:
            _put(chosen, key, choose(key))
            progress.step(f"cross-validation: {' '.join(key)}")
            if file is not None:
                _write(chosen, file)
    return {key: _find(chosen, key) or {} for key in keys}


def _read(shipped: Path, file: Path | None) -> dict[str, Any]:
    if file is None:
        return json.loads(shipped.read_text(encoding="utf-8"))
    if not file.exists():
        return {}
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(
            f"{file} is not a file of settings (JSON): {error}; correct or remove it"
        ) from error


def _write(chosen: dict[str, Any], file: Path) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(chosen, indent=1) + "\n", encoding="utf-8")


def _find(chosen: dict[str, Any], key: Key) -> Setting | None:
    """Return what nested dictionaries hold under a key."""
    found: Any = chosen
    for name in key:
        found = found.get(name)
        if found is None:
            return None
    return found


def _put(chosen: dict[str, Any], key: Key, setting: Setting) -> None:
    *outer, last = key
    for name in outer:
        chosen = chosen.setdefault(name, {})
    chosen[last] = setting
