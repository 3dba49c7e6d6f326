"""Progress of long computations: what a callback is told, and what is displayed.

A fit that has a callback or is verbose opens a `Watch`. Every computation inside it
that takes long reports to the watch of its thread, so nothing has to be passed down.
"""

import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple, TextIO, TypeVar

from nbsketch._report.validation import check_integer, check_positive

T = TypeVar("T")
_REFRESH = 0.1  # seconds between two updates of a line
_LOGGED = 10.0  # seconds between two lines of a log file
# Columns that a line of a notebook clears: it knows no control sequence for that.
_COLUMNS = 100
# Relative gap above which a solution is no model, and a limit of time has to wait.
USABLE_GAP = 0.1
# How long it waits at most, as a share of the limit.
_GRACE = 1.0
# What a stage minimizes, where it is not the objective of the fit.
_OBJECTIVES = {
    "length-scales": "leave-one-out error",
    "penalty": "held-out loss",
    "size": "held-out loss",
    "steps": "held-out loss",
}


class Display:
    """A line on standard error, replaced in terminals and notebooks.

    A log file gets the first line, one every ten seconds, and the last one, without
    control characters.
    """

    def __init__(self) -> None:
        self._reset()

    def _reset(self) -> None:
        self._next = 0.0
        self._line = ""
        self._written = ""

    @property
    def _in_place(self) -> bool:
        return sys.stderr.isatty() or _is_notebook(sys.stderr)

    def update(self, line: str, *, now: bool = False) -> None:
        """Show a line in the place of the last one; not too often unless `now`."""
        self._line = line
        if now or time.monotonic() >= self._next:
            self._write()

    def end(self) -> None:
        """Show the last line, and leave it where it is."""
        if self._line and (self._in_place or self._line != self._written):
            self._write()
        if self._written and self._in_place:
            sys.stderr.write("\n")
        self._reset()

    def _write(self) -> None:
        stream = sys.stderr
        line = self._line
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


# A solver's callback: iteration, objective, gap, seconds; true to stop.
SolverCallback = Callable[[int, float, float, float], bool]


class FitState(NamedTuple):
    """What a callback is told of a running fit.

    Attributes
    ----------
    stage : str
        "length-scales", "size", "penalty", "features", "solver", "steps", or a stage
        of a composed model.
    iteration : int
        Iterations done in this stage: of the search, penalties or sizes tried, Newton
        steps, passes over a Gram matrix, gradient steps.
    total : int or None
        Number of iterations planned. None: not known.
    rows, n_rows : int
        Rows done in the current pass over the features, and in a whole pass. Both are 0
        where no pass is counted.
    objective : float or None
        Value that the stage minimizes. None: not evaluated.
    gap : float or None
        Certified bound on the distance of the objective from its minimum, relative to
        the objective. None: unknown.
    seconds : float
        Time since the fit began.
    seconds_left : float or None
        Estimated time until the end of the stage. None: unknown.

    Examples
    --------
    Stop as soon as the objective is certified to one percent:

    >>> import numpy as np
    >>> from nbsketch import SketchedKernelRegressor
    >>> def close_enough(state):
    ...     return state.gap is not None and state.gap < 1e-2
    >>> X = np.random.default_rng(0).uniform(-3, 3, size=(500, 1))
    >>> y = np.sin(X[:, 0])
    >>> model = SketchedKernelRegressor(
    ...     loss="huber", bandwidth=1.0, size=50, alpha=1e-3, random_state=0,
    ...     callback=close_enough, tol=1e-2,
    ... )
    >>> bool(model.fit(X, y).dual_gap_ < 0.1)
    True
    """

    stage: str
    iteration: int = 0
    total: int | None = None
    rows: int = 0
    n_rows: int = 0
    objective: float | None = None
    gap: float | None = None
    seconds: float = 0.0
    seconds_left: float | None = None


class Watch:
    """The progress of one fit.

    Attributes
    ----------
    asked : bool
        Whether the callback has asked to stop.
    stopped : bool
        Whether it has, or the time is over. The callback is not called again.
    """

    def __init__(
        self,
        verbose: bool,
        callbacks: Sequence[Callable[[FitState], Any]],
        max_seconds: float = math.inf,
    ) -> None:
        self._callbacks = callbacks
        self._max_seconds = max_seconds
        self._display = Display() if verbose else None
        self._began = time.perf_counter()
        self.asked = self.stopped = False
        self._open("")

    @property
    def stage(self) -> str:
        """The stage that was reported last; empty before the first."""
        return self._state.stage

    def _open(self, stage: str) -> None:
        self.close()
        self._state = FitState(stage)
        self._stage_began = time.perf_counter()
        self._first: tuple[float, float] | None = None

    def report(self, stage: str, **state_fields: Any) -> bool:
        """Report fields of the state; return whether to stop.

        `tol`, the relative gap at which the stage ends, is used to estimate the time
        left.
        """
        if stage != self._state.stage:
            self._open(stage)
        now = time.perf_counter()
        tol = state_fields.pop("tol", None)
        state = self._state._replace(**state_fields, seconds=now - self._began)
        left = self._left(state, now, tol)
        self._state = state._replace(seconds_left=left)
        if self._display is not None:
            self._display.update(_line(self._state))
        if self._callbacks and not self.stopped:
            with _reporting_to(None):  # not the fits that the callback makes
                self.stopped = any([bool(c(self._state)) for c in self._callbacks])
                self.asked = self.stopped
        self.stopped |= now - self._began >= self._max_seconds
        return self.stopped

    def seconds_left(self) -> float:
        """Return the seconds until the time is over."""
        return self._began + self._max_seconds - time.perf_counter()

    @contextmanager
    def shortened(self, seconds: float) -> Iterator[None]:
        """Let the time be over sooner; what stops then does not stop the fit."""
        limit = self._max_seconds
        self._max_seconds = limit - seconds
        try:
            yield
        finally:
            self._max_seconds = limit
            self.stopped = self.asked or self.seconds_left() <= 0

    @property
    def is_overdue(self) -> bool:
        """Whether the time is over for so long that any solution is the last one."""
        return self.seconds_left() < -_GRACE * self._max_seconds

    def _left(self, state: FitState, now: float, tol: float | None) -> float | None:
        """Return the estimated seconds until the end of the stage."""
        spent = now - self._stage_began
        if state.total and state.iteration:
            return spent / state.iteration * max(0, state.total - state.iteration)
        if tol is None or not state.gap:
            if state.rows and state.objective is None:
                return spent / state.rows * (state.n_rows - state.rows)
            return state.seconds_left
        if self._first is None:
            self._first = now, state.gap
        return _by_gap(*self._first, now, state.gap, tol)

    def close(self) -> None:
        """End the display."""
        if self._display is not None:
            self._display.end()


def _by_gap(
    began: float, first: float, now: float, gap: float, tol: float
) -> float | None:
    """Return the seconds until a gap that falls geometrically reaches `tol`."""
    if gap <= tol:
        return 0.0
    if not (math.isfinite(first) and gap < first):
        return None
    return (now - began) * math.log(gap / tol) / math.log(first / gap)


def _line(state: FitState) -> str:
    """Return the line that is displayed."""
    title = state.stage
    parts = []
    if state.iteration:
        title += f", iteration {state.iteration}"
        title += f" of {state.total}" if state.total else ""
    if state.objective is not None:
        name = _OBJECTIVES.get(state.stage, "objective")
        parts.append(f"{name} {state.objective:.6g}")
    if state.gap is not None and math.isfinite(state.gap):
        parts.append(f"relative gap {state.gap:.1e}")
    if 0 < state.rows < state.n_rows:
        parts.append(f"{state.rows:,} of {state.n_rows:,} rows")
    parts.append(f"{state.seconds:.1f} s")
    if state.seconds_left:
        parts.append(f"about {state.seconds_left:.0f} s left")
    return f"{title}: {', '.join(parts)}"


_current: ContextVar[Watch | None] = ContextVar("watch", default=None)


@contextmanager
def watching(
    verbose: Any,
    callback: Any,
    max_seconds: float | None = None,
    listener: Callable[[FitState], bool] | None = None,
) -> Iterator[None]:
    """Open a watch for a fit, with the arguments of an estimator and one more callback.

    Without any of them, and if `verbose` is 0, a fit inside another one reports to the
    watch of that one.
    """
    shown = check_integer("verbose", verbose, low=0) > 0
    if callback is not None and not callable(callback):
        raise TypeError(
            "`callback` must be None or a function of one argument, got "
            f"{callback!r:.60}"
        )
    if max_seconds is not None:
        check_positive("max_seconds", max_seconds)
    callbacks = [c for c in (callback, listener) if c is not None]
    if not shown and not callbacks and max_seconds is None:
        yield
        return
    watch = Watch(shown, callbacks, math.inf if max_seconds is None else max_seconds)
    try:
        with _reporting_to(watch):
            yield
    finally:
        watch.close()


@contextmanager
def _reporting_to(watch: Watch | None) -> Iterator[None]:
    token = _current.set(watch)
    try:
        yield
    finally:
        _current.reset(token)


def is_watched() -> bool:
    """Return whether anyone wants to know of the progress."""
    return _current.get() is not None


def seconds_left() -> float:
    """Return the seconds that the running fit may still take; infinite by default."""
    watch = _current.get()
    return math.inf if watch is None else watch.seconds_left()


@contextmanager
def share_of_time(share: float) -> Iterator[None]:
    """Let a part of the running fit take this share of the time that is left."""
    watch = _current.get()
    if watch is None or math.isinf(watch.seconds_left()):
        yield
        return
    with watch.shortened((1 - share) * watch.seconds_left()):
        yield


def is_stopped() -> bool:
    """Return whether a callback, or the limit of time, has stopped the running fit."""
    watch = _current.get()
    return watch is not None and watch.stopped


def is_overdue() -> bool:
    """Return whether the time of the running fit is over for long."""
    watch = _current.get()
    return watch is not None and watch.is_overdue


def report(stage: str, **fields: Any) -> bool:
    """Report fields of `FitState` to the watch, if any; return whether to stop."""
    watch = _current.get()
    return watch is not None and watch.report(stage, **fields)


def report_rows(rows: int, n_rows: int) -> None:
    """Report the rows that are done in a pass, in whatever stage the fit is.

    The search for length scales makes no pass: one that follows it is of the features.
    """
    watch = _current.get()
    if watch is not None:
        is_over = watch.stage in ("", "length-scales")
        stage = "features" if is_over else watch.stage
        watch.report(stage, rows=rows, n_rows=n_rows)


def is_asked() -> bool:
    """Return whether a callback has asked to stop the running fit."""
    watch = _current.get()
    return watch is not None and watch.asked


def solver_callback(stage: str, tol: float) -> SolverCallback | None:
    """Return a callback for a solver; None if nobody watches.

    When the time is over, the solver goes on to a relative gap of 0.1, for at most as
    long again.
    """
    if not is_watched():
        return None

    def reported(iteration: int, objective: float, gap: float, seconds: float) -> bool:
        relative = float(gap / objective if objective > 0 else gap)
        finite = relative if math.isfinite(relative) else None
        stop = report(
            stage, iteration=iteration, objective=float(objective), gap=finite,
            tol=tol, rows=0, n_rows=0,
        )  # fmt: skip
        return stop and (is_asked() or relative <= USABLE_GAP or is_overdue())

    return reported


def counted(items: Sequence[T], name_of: Callable[[T], str]) -> Iterator[T]:
    """Yield items; on a terminal, count and name those that are done.

    The line is on standard error, and is cleared at the end.
    """
    display = Display()
    began = time.perf_counter()
    for done, item in enumerate(items, start=1):
        yield item
        left = (time.perf_counter() - began) / done * (len(items) - done)
        if sys.stderr.isatty():
            line = f"{done}/{len(items)} {name_of(item)}, {left:.0f} s left"
            display.update(line, now=True)
    if sys.stderr.isatty():
        display.update("", now=True)
