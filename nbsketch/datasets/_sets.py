"""The sets of the table file: their files, columns, and the texts about them."""

import inspect
import os
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from textwrap import indent
from typing import Any, TypeVar

from nbsketch.datasets._dataset import Dataset
from nbsketch.datasets._files import RemoteFile, Source

Folder = str | os.PathLike | None
Loader = Callable[..., Dataset]


@dataclass(frozen=True)
class Entry(Source):
    """A set of the table file; `text` holds the parts of its documentation."""

    text: dict[str, str]


E = TypeVar("E", bound=Entry)


def read_entries(kind: type[E], section: str) -> dict[str, E]:
    """Return the sets in a section of the table file by name."""
    return {
        name: kind(name=name, **{key: _parsed(key, fields[key]) for key in fields})
        for name, fields in _table_file()[section].items()
    }


@cache
def _table_file() -> dict[str, dict[str, dict[str, Any]]]:
    path = Path(__file__).with_name("sets.toml")
    return tomllib.loads(path.read_text("utf-8"))


def _parsed(key: str, value: Any) -> Any:
    if key == "files":
        return tuple(RemoteFile(**file) for file in value)
    return tuple(value) if isinstance(value, list) else value


def described(load: Loader, entry: Entry, **defaults: str) -> Loader:
    """Return the loader of a set, its docstring filled with the texts of the set."""
    load.__name__ = load.__qualname__ = f"load_{entry.name.replace('-', '_')}"
    if load.__doc__:  # python -OO leaves none
        files = " and ".join(f"``{entry.name}/{file.name}``" for file in entry.files)
        texts = {"details": "", **defaults, **entry.text, "files": files}
        for name in texts.keys() & {"download", "preparation", "returns"}:
            texts[name] = indent(texts[name], "    ")
        doc = inspect.cleandoc(load.__doc__).format(loader=load.__name__, **texts)
        load.__doc__ = doc.replace("\n\n\n\n", "\n\n")  # a set without details
    return load
