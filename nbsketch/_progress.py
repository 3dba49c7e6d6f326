"""Progress of long computations, on one line of the terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

# Lines of a solver and of the search for length scales.
SOLVING = "iteration {}: objective {:.8g}, at most {:.1e} above the minimum, {:.2f} s"
LEARNING = "length-scales, iteration {}: leave-one-out error {:.4g} of the spread of y"
_WIDTH = 24


@contextmanager
def showing(verbose: int, line: str) -> Iterator[Callable[..., None] | None]:
    """Yield a callback that formats numbers into `line`; None unless verbose."""
    if not verbose:
        yield None
        return
    shown = False

    def show(*numbers: float) -> None:
        nonlocal shown
        shown = True
        overwrite(line.format(*numbers), sys.stderr)

    try:
        yield show
    finally:
        if shown:
            sys.stderr.write("\n")


def bar(share: float, text: str, left: float) -> str:
    """Return a line: a bar with the share done, a text, and the seconds left."""
    full = int(_WIDTH * share)
    return f"[{'#' * full}{'.' * (_WIDTH - full)}] {text}, {left:.0f} s left"


def overwrite(text: str, stream: TextIO) -> None:
    """Replace the current line of a terminal."""
    stream.write("\r\x1b[K" + text)
    stream.flush()


class Progress:
    """Count steps on standard error; silent unless it is a terminal.

    Parameters
    ----------
    total : int
        Number of steps.
    stream : file, optional
        Standard error by default.
    """

    def __init__(self, total: int, stream: TextIO | None = None) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._total, self._done = total, 0
        self._start = time.perf_counter()

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *error: object) -> None:
        self._write("")

    def step(self, name: str) -> None:
        """Count one step and show its name."""
        self._done += 1
        spent = time.perf_counter() - self._start
        left = spent / self._done * (self._total - self._done)
        text = f"{self._done}/{self._total} {name}"
        self._write(bar(self._done / self._total, text, left))

    def _write(self, text: str) -> None:
        if self._stream.isatty():
            overwrite(text, self._stream)
