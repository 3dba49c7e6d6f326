"""Loaders made of a reader and of a function that has the docstring of the set."""

import inspect
import os
from collections.abc import Callable
from functools import update_wrapper
from textwrap import fill, indent

from nbsketch.datasets._dataset import Dataset
from nbsketch.datasets._files import Source

Folder = str | os.PathLike | None
Loader = Callable[..., Dataset]
# The attributes of a function that its loader takes over.
_NAMES = ("__module__", "__name__", "__qualname__", "__doc__")


def loader(
    source: Source, read: Callable[[Folder, bool], Dataset], **texts: str
) -> Callable[[Callable[[], None]], Loader]:
    """Return a decorator that makes a loader of a set without options.

    `read` takes the arguments of the loader; `texts` are those of `documented`.
    """

    def load(*, data_home: Folder = None, download: bool = True) -> Dataset:
        return read(data_home, download)

    return documented(load, source, **texts)


def documented(
    load: Loader,
    source: Source,
    *,
    download: str,
    preparation: str | None = None,
    as_frame: str | None = None,
    note: str = "",
    mismatch: str = "If the file does not have the expected columns.",
) -> Callable[[Callable[[], None]], Loader]:
    """Return a decorator that gives a loader the name and docstring of a function.

    The sections Parameters and Raises are added before and after Returns.

    Parameters
    ----------
    load : callable
        The loader.
    source : Source
        Files of the set.
    download, preparation, as_frame : str
        What these arguments do; None if there is no such argument.
    note : str
        A paragraph in front of the parameters.
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
        "as_frame : bool, default=False": as_frame,
    }
    raises: dict[str, str | None] = {
        "FileNotFoundError": (
            f"If the {'file is' if one else 'files are'} neither found nor downloaded; "
            f"it says where {'it comes' if one else 'they come'} from and where to put "
            f"{'it' if one else 'them'}."
        ),
        "ValueError": mismatch,
    }

    def add_sections(described: Callable[[], None]) -> Loader:
        update_wrapper(load, described, assigned=_NAMES, updated=())
        del load.__wrapped__  # type: ignore[attr-defined]  # its signature is another
        if load.__doc__:  # python -OO leaves none
            doc = inspect.cleandoc(load.__doc__)
            if note:
                doc = doc.replace("\nReturns\n", f"\n{fill(note, 84)}\n\nReturns\n", 1)
            for title, entries, following in (
                ("Parameters", parameters, "Returns"),
                ("Raises", raises, "References"),
            ):
                before, after = doc.split(f"\n{following}\n", 1)
                section = _section(title, entries)
                doc = f"{before}\n{section}\n{following}\n{after}"
            load.__doc__ = doc
        return load

    return add_sections


def _section(title: str, entries: dict[str, str | None]) -> str:
    lines = [title, "-" * len(title)]
    for name, text in entries.items():
        if text is not None:
            lines += [name, indent(fill(text, 80, break_on_hyphens=False), "    ")]
    return "\n".join(lines) + "\n"
