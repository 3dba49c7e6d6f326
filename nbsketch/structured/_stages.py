"""Progress and time of the stages of a fit or a prediction."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from nbsketch._progress import bar, overwrite


class Stages:
    """Timer of stages; displays them on standard error if `verbose`.

    Attributes
    ----------
    seconds : dict of str to float
        Time of each stage.
    """

    def __init__(self, verbose: int = 0) -> None:
        self.seconds: dict[str, float] = {}
        self._verbose = bool(verbose)

    @contextmanager
    def stage(self, name: str, total: int = 0) -> Iterator[Callable[[int], None]]:
        """Time a stage; yield a function that takes the amount done out of `total`."""
        start = time.perf_counter()

        def show(done: int) -> None:
            if self._verbose and total and sys.stderr.isatty():
                spent = time.perf_counter() - start
                left = spent * (total - done) / max(done, 1)
                text = f"{done / total:4.0%} {name}"
                overwrite(bar(done / total, text, left), sys.stderr)

        yield show
        self.seconds[name] = time.perf_counter() - start
        if self._verbose:
            clear = "\r\x1b[K" if sys.stderr.isatty() else ""
            sys.stderr.write(f"{clear}{name}: {self.seconds[name]:.2f} s\n")
