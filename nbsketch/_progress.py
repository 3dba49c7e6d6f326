"""How work gets on, on one line of the terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

# What is shown of the work, where that is asked for.
SOLVING = "iteration {}: objective {:.8g}, at most {:.1e} above the minimum, {:.2f} s"
LEARNING = "length-scales, iteration {}: leave-one-out error {:.4g} of the spread of y"


@contextmanager
def showing(verbose: int, line: str) -> Iterator[Callable[..., None] | None]:
    """Give a callback that shows how work gets on, on one line of the terminal."""
    if not verbose:
        yield None
        return
    shown = False

    def show(*numbers: float) -> None:
        nonlocal shown
        shown = True
        sys.stderr.write("\r\x1b[K" + line.format(*numbers))
        sys.stderr.flush()

    try:
        yield show
    finally:
        if shown:
            sys.stderr.write("\n")
