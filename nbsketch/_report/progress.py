"""Progress of long computations: state passed to callbacks, and its display.

A fit that has a callback or is verbose opens a `Watch`. Long computations inside it
report to the watch of their thread, so no argument has to be passed down.
"""

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from math import inf, isfinite, log
from typing import Any, NamedTuple, TypeVar

from nbsketch._report.fields import Scope, optional, positive
from nbsketch._report.validation import check_integer

T = TypeVar("T")
_REFRESH = 0.1  # seconds between two updates of a line
_LOGGED = 10.0  # seconds between two lines of a log file
# Columns cleared on a notebook line, which supports no control sequence for that.
_COLUMNS = 100
# Relative gap above which a solution is unusable, so the time limit is extended.
USABLE_GAP = 0.1
# Maximum extension, as a share of the limit.
_GRACE = 1.0
# Errors of a stream that does not exist or is closed: a fit outlives its terminal.
_LOST = AttributeError, OSError, ValueError
# Quantity that a stage minimizes, if it is not the objective of the fit.
_OBJECTIVES = {
    "length-scales": "leave-one-out error",
    "penalty": "held-out loss",
    "size": "held-out loss",
    "steps": "held-out loss",
}


class Display:
    """A line on standard error, replaced in terminals and notebooks.

    A log file gets the first line, one line every ten seconds, and the last one,
    without control characters.
    """

    def __init__(self) -> None:
        self._reset()

    def _reset(self) -> None:
        self._next = 0.0
        self._line = ""
        self._written = ""

    @property
    def _in_place(self) -> bool:
        return _is_terminal() or _is_notebook()

    def update(self, line: str, *, now: bool = False) -> None:
        """Replace the displayed line; at a limited rate unless `now`."""
        self._line = line
        if now or time.monotonic() >= self._next:
            self._write()

    def end(self) -> None:
        """Display the last line and keep it."""
        if self._line and (self._in_place or self._line != self._written):
            self._write()
        if self._written and self._in_place:
            _write("\n")
        self._reset()

    def _write(self) -> None:
        line = self._line
        if _is_terminal():
            _write(f"\r\x1b[K{line}")
        elif _is_notebook():
            _write(f"\r{line:<{_COLUMNS}}")
        else:
            _write(f"{line}\n")
        self._written = line
        self._next = time.monotonic() + (_REFRESH if self._in_place else _LOGGED)


def _is_terminal() -> bool:
    """Return whether standard error is a terminal."""
    with suppress(*_LOST):
        return sys.stderr.isatty()
    return False


def _write(text: str) -> None:
    """Write to standard error, if it is open."""
    with suppress(*_LOST):
        sys.stderr.write(text)
        sys.stderr.flush()


def _is_notebook() -> bool:
    """Return whether standard error is a notebook cell."""
    return type(sys.stderr).__module__.partition(".")[0] in ("ipykernel", "google")


# Callback of a solver: iteration, objective, gap, seconds; returns true to stop.
SolverCallback = Callable[[int, float, float, float], bool]


class FitState(NamedTuple):
    """State of a running fit, passed to callbacks.

    Attributes
    ----------
    stage : str
        "length-scales", "size", "penalty", "features", "solver", "steps", or a stage
        of a composed model.
    iteration : int
        Iterations done in this stage: search iterations, penalties or sizes tried,
        Newton steps, passes over a Gram matrix, or gradient steps.
    total : int or None
        Number of iterations planned. None: unknown.
    rows, n_rows : int
        Samples done in the current pass over the features, and in a full pass. Both are
        0 if no pass is counted.
    objective : float or None
        Value minimized by the stage. None: not evaluated.
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
    >>> model.fit(X, y).dual_gap_ < 1e-2
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
        Whether the callback has requested a stop.
    stopped : bool
        Whether a stop was requested or the time is over. The callback is not called
        again.
    """

    def __init__(
        self,
        verbose: bool,
        callbacks: Sequence[Callable[[FitState], Any]],
        max_seconds: float = inf,
    ) -> None:
        self._callbacks = callbacks
        self.max_seconds = max_seconds
        self._display = Display() if verbose else None
        self._began = time.perf_counter()
        self.asked = self.stopped = False
        self._open("")

    @property
    def stage(self) -> str:
        """The last reported stage; empty before the first."""
        return self._state.stage

    def _open(self, stage: str) -> None:
        self.close()
        self._state = FitState(stage)
        self._stage_began = time.perf_counter()
        self._first: tuple[float, float] | None = None

    def report(self, stage: str, **state_fields: Any) -> bool:
        """Update fields of the state; return whether to stop.

        `tol`, the relative gap at which the stage ends, is used to estimate the
        remaining time.
        """
        if stage != self._state.stage:
            self._open(stage)
        now = time.perf_counter()
        tol = state_fields.pop("tol", None)
        state = self._state._replace(**state_fields, seconds=now - self._began)
        self._state = state._replace(seconds_left=self._left(state, now, tol))
        if self._display is not None:
            self._display.update(_line(self._state))
        if self._callbacks and not self.stopped:
            with _reporting_to(_IDLE):  # ignore fits inside the callback
                self.stopped = any([c(self._state) for c in self._callbacks])
                self.asked = self.stopped
        self.stopped |= now - self._began >= self.max_seconds
        return self.stopped

    def seconds_left(self) -> float:
        """Return the remaining seconds."""
        return self._began + self.max_seconds - time.perf_counter()

    @property
    def is_overdue(self) -> bool:
        """Whether the time has been over so long that any solution is accepted."""
        return self.seconds_left() < -_GRACE * self.max_seconds

    def _left(self, state: FitState, now: float, tol: float | None) -> float | None:
        """Return the estimated seconds until the end of the stage."""
        gap = state.gap
        spent = now - self._stage_began
        if state.total and state.iteration:
            return spent / state.iteration * max(0, state.total - state.iteration)
        if tol is None or not gap:
            if state.rows and state.objective is None:
                return spent / state.rows * (state.n_rows - state.rows)
            return state.seconds_left
        if self._first is None:
            self._first = now, gap
        began, first = self._first
        if gap <= tol:
            return 0.0
        if not (isfinite(first) and gap < first):
            return None
        # The gap decreases geometrically.
        return (now - began) * log(gap / tol) / log(first / gap)

    def close(self) -> None:
        """End the display."""
        if self._display is not None:
            self._display.end()


def _line(state: FitState) -> str:
    """Return the line to display."""
    title = state.stage
    parts = []
    if state.iteration:
        title += f", iteration {state.iteration}"
        title += f" of {state.total}" if state.total else ""
    if state.objective is not None:
        name = _OBJECTIVES.get(state.stage, "objective")
        parts.append(f"{name} {state.objective:.6g}")
    if state.gap is not None and isfinite(state.gap):
        parts.append(f"relative gap {state.gap:.1e}")
    if 0 < state.rows < state.n_rows:
        parts.append(f"{state.rows:,} of {state.n_rows:,} samples")
    parts.append(f"{state.seconds:.1f} s")
    if state.seconds_left:
        parts.append(f"about {state.seconds_left:.0f} s left")
    return f"{title}: {', '.join(parts)}"


# The watch of computations that nobody observes.
_IDLE = Watch(False, ())
_current: ContextVar[Watch] = ContextVar("watch", default=_IDLE)


@contextmanager
def watching(
    verbose: Any,
    callback: Any,
    max_seconds: float | None = None,
    listener: Callable[[FitState], bool] | None = None,
) -> Iterator[None]:
    """Open a watch for a fit, with the arguments of an estimator and one more callback.

    If no callback is given and `verbose` is 0, a nested fit reports to the watch of the
    outer fit.
    """
    shown = check_integer("verbose", verbose, low=0) > 0
    if callback is not None and not callable(callback):
        raise TypeError(
            "`callback` must be None or a function of one argument, got "
            f"{callback!r:.60}"
        )
    optional(positive)("max_seconds", max_seconds, Scope())
    callbacks = [c for c in (callback, listener) if c is not None]
    if not shown and not callbacks and max_seconds is None:
        yield
        return
    watch = Watch(shown, callbacks, inf if max_seconds is None else max_seconds)
    try:
        with _reporting_to(watch):
            yield
    finally:
        watch.close()


@contextmanager
def _reporting_to(watch: Watch) -> Iterator[None]:
    token = _current.set(watch)
    try:
        yield
    finally:
        _current.reset(token)


def is_watched() -> bool:
    """Return whether progress is observed."""
    return _current.get() is not _IDLE


def seconds_left() -> float:
    """Return the seconds left for the running fit; infinite by default."""
    return _current.get().seconds_left()


@contextmanager
def share_of_time(share: float) -> Iterator[None]:
    """Limit a part of the running fit to this share of the remaining time."""
    watch = _current.get()
    limit = watch.max_seconds
    if isfinite(limit):
        watch.max_seconds = limit - (1 - share) * watch.seconds_left()
    try:
        yield
    finally:  # stopping the part does not stop the fit
        watch.max_seconds = limit
        watch.stopped = watch.asked or watch.seconds_left() <= 0


def is_stopped() -> bool:
    """Return whether a callback or the time limit has stopped the running fit."""
    return _current.get().stopped


def is_overdue() -> bool:
    """Return whether the time limit of the running fit is exceeded by far."""
    return _current.get().is_overdue


def report(stage: str, **fields: Any) -> bool:
    """Report fields of `FitState` to the watch, if any; return whether to stop."""
    return is_watched() and _current.get().report(stage, **fields)


def report_rows(rows: int, n_rows: int) -> None:
    """Report the number of samples done in a pass, in any stage.

    The search for length scales makes no pass: passes after it belong to "features".
    """
    stage = _current.get().stage
    is_over = stage in ("", "length-scales")
    report("features" if is_over else stage, rows=rows, n_rows=n_rows)


def is_asked() -> bool:
    """Return whether a callback has requested to stop the running fit."""
    return _current.get().asked


def solver_callback(stage: str, tol: float) -> SolverCallback | None:
    """Return a callback for a solver; None if progress is not observed.

    When the time is over, the solver continues until the relative gap is 0.1, for at
    most the same time again.
    """
    if not is_watched():
        return None

    def reported(iteration: int, objective: float, gap: float, seconds: float) -> bool:
        relative = float(gap / objective if objective > 0 else gap)
        finite = relative if isfinite(relative) else None
        stop = report(
            stage, iteration=iteration, objective=float(objective), gap=finite,
            tol=tol, rows=0, n_rows=0,
        )  # fmt: skip
        return stop and (is_asked() or relative <= USABLE_GAP or is_overdue())

    return reported


def path_callback() -> SolverCallback | None:
    """Return a callback for the fits of a path of penalties; None if not observed.

    Fits after a stop are completed, unless the time limit is exceeded by far.
    """
    if not is_watched():
        return None
    stopped = is_stopped()
    return lambda *_: is_overdue() if stopped else report("penalty")


def counted(items: Sequence[T], name_of: Callable[[T], str]) -> Iterator[T]:
    """Yield items; in a terminal, display their count and names.

    The line is on standard error and is cleared at the end.
    """
    display = Display()
    began = time.perf_counter()
    for done, item in enumerate(items, start=1):
        yield item
        left = (time.perf_counter() - began) / done * (len(items) - done)
        if _is_terminal():
            line = f"{done}/{len(items)} {name_of(item)}, {left:.0f} s left"
            display.update(line, now=True)
    if _is_terminal():
        display.update("", now=True)
