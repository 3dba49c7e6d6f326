"""Progress and time of the stages of a fit or a prediction."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from nbsketch._display import Display, bar
from nbsketch._progress import report


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
        start, display = time.perf_counter(), Display(patient=True)
        report(name, n_rows=total)

        def show(done: int) -> None:
            report(name, rows=done, n_rows=total)
            if self._verbose and total:
                spent = time.perf_counter() - start
                left = spent * (total - done) / max(done, 1)
                display.update(bar(done / total, f"{done / total:4.0%} {name}", left))

        yield show
        self.seconds[name] = time.perf_counter() - start
        if self._verbose:
            display.end(f"{name}: {self.seconds[name]:.2f} s")
