"""A progress bar on the terminal: what runs, how far, and how long still."""

from __future__ import annotations

import sys
import time
from typing import TextIO

_WIDTH = 24


class Progress:
    """Counts steps on standard error; silent where that is not a terminal."""

    def __init__(self, total: int, stream: TextIO | None = None) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._total, self._done = total, 0
        self._start = time.perf_counter()

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *error: object) -> None:
        self._write("")

    def step(self, what: str) -> None:
        """Count one step, of which `what` is the name."""
        self._done += 1
        spent = time.perf_counter() - self._start
        left = spent / self._done * (self._total - self._done)
        full = _WIDTH * self._done // self._total
        bar = "#" * full + "." * (_WIDTH - full)
        self._write(f"[{bar}] {self._done}/{self._total} {what}, {left:.0f} s left")

    def _write(self, line: str) -> None:
        if self._stream.isatty():
            self._stream.write("\r\x1b[K" + line)
            self._stream.flush()
