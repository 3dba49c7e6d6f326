"""Sections that the docstrings of the loaders share."""

import inspect
from collections.abc import Callable
from textwrap import fill, indent
from typing import TypeVar

from nbsketch.datasets._files import Source

Loader = TypeVar("Loader", bound=Callable)


def documented(
    source: Source,
    *,
    download: str,
    preparation: str | None = None,
    mismatch: str = "If the file does not have the expected columns.",
) -> Callable[[Loader], Loader]:
    """Return a decorator that adds the sections Parameters and Raises to a docstring.

    They go before Returns and after it, and before References.

    Parameters
    ----------
    source : Source
        Files of the set.
    download, preparation : str
        What these arguments do; None if there is no `preparation`.
    mismatch : str
        When a ValueError is raised.
    """
    files = " and ".join(f"``{source.name}/{file.name}``" for file in source.files)
    one = len(source.files) == 1
    parameters: dict[str, str | None] = {
        "data_home : str, path or None, default=None": (
            f"Folder that holds {files}, plain or gzipped. Searched first, then the "
            "folder in the environment variable NBSKETCH_DATA, then ``nbsketch`` in "
            "scikit-learn's data folder."
        ),
        'preparation : {"plain", "paper"}, default="plain"': preparation,
        "download : bool, default=True": download,
    }
    raises: dict[str, str | None] = {
        "FileNotFoundError": (
            f"If the {'file is' if one else 'files are'} neither found nor downloaded; "
            f"it says where {'it comes' if one else 'they come'} from and where to put "
            f"{'it' if one else 'them'}."
        ),
        "ValueError": mismatch,
    }

    def add_sections(loader: Loader) -> Loader:
        if loader.__doc__:  # python -OO leaves none
            doc = inspect.cleandoc(loader.__doc__)
            for title, entries, following in (
                ("Parameters", parameters, "Returns"),
                ("Raises", raises, "References"),
            ):
                before, after = doc.split(f"\n{following}\n", 1)
                section = _section(title, entries)
                doc = f"{before}\n{section}\n{following}\n{after}"
            loader.__doc__ = doc
        return loader

    return add_sections


def _section(title: str, entries: dict[str, str | None]) -> str:
    lines = [title, "-" * len(title)]
    for name, text in entries.items():
        if text is not None:
            lines += [name, indent(fill(text, 80, break_on_hyphens=False), "    ")]
    return "\n".join(lines) + "\n"
