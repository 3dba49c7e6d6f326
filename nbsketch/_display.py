"""One line of progress: in a terminal, in a notebook, or in a log file."""

from __future__ import annotations

import sys
import time
from typing import TextIO

# Seconds between two updates of a line, and between two lines of a log file.
_REFRESH, _LOGGED = 0.1, 10.0
_WIDTH = 24
# Columns that a line of a notebook clears: it knows no control sequence for that.
_COLUMNS = 100


def bar(share: float, text: str, left: float | None) -> str:
    """Return a line: a bar with the share done, a text, and the seconds left."""
    full = int(_WIDTH * share)
    line = f"[{'#' * full}{'.' * (_WIDTH - full)}] {text}"
    return line if left is None else f"{line}, {left:.0f} s left"


class Display:
    """A line that is replaced in terminals and notebooks, and repeated in log files.

    A log file gets the first line, one every ten seconds, and the last one, without
    control characters.

    Parameters
    ----------
    stream : file, optional
        Standard error by default, looked up at each line.
    patient : bool, default=False
        Whether a log file gets its first line after ten seconds.
    """

    def __init__(self, stream: TextIO | None = None, *, patient: bool = False) -> None:
        self._given, self._patient = stream, patient
        self._reset()

    def _reset(self) -> None:
        wait = self._patient and not self._in_place
        self._next = time.monotonic() + _LOGGED if wait else 0.0
        self._line = self._written = ""

    @property
    def _stream(self) -> TextIO:
        return sys.stderr if self._given is None else self._given

    @property
    def _in_place(self) -> bool:
        return self._stream.isatty() or _is_notebook(self._stream)

    def update(self, line: str, *, now: bool = False) -> None:
        """Show a line in the place of the last one; not too often unless `now`."""
        self._line = line
        if now or time.monotonic() >= self._next:
            self._write()

    def end(self, line: str | None = None) -> None:
        """Show the last line, or another in its place, and leave it where it is."""
        if line is not None:
            self._line = line
        if self._line and (self._in_place or self._line != self._written):
            self._write()
        if self._written and self._in_place:
            self._stream.write("\n")
        self._reset()

    def _write(self) -> None:
        stream, line = self._stream, self._line
        if stream.isatty():
            stream.write(f"\r\x1b[K{line}")
        elif _is_notebook(stream):
            stream.write(f"\r{line:<{_COLUMNS}}")
        else:
            stream.write(f"{line}\n")
        stream.flush()
        self._written = line
        self._next = time.monotonic() + (_REFRESH if self._in_place else _LOGGED)


def _is_notebook(stream: TextIO) -> bool:
    """Return whether a stream writes to a cell of a notebook."""
    return type(stream).__module__.partition(".")[0] in ("ipykernel", "google")
