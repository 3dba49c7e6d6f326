"""Callbacks of fits: those of the estimators, and those of scikit-learn.

scikit-learn has callbacks from version 1.9 on. The stages of a fit are their tasks, and
the iterations of a stage are subtasks, at most a hundred if their number is known.
"""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from nbsketch._report.progress import FitState, watching
from nbsketch._report.validation import keeping_fitted

# Maximum number of subtasks of a stage.
_SUBTASKS = 100

try:
    from sklearn import callback as _callback
    from sklearn.callback import _callback_support
except ImportError:  # older version
    _callback = None
    _ending_callbacks: Any = nullcontext
else:  # the public decorator would add a call between a warning and the user's line
    _ending_callbacks = _callback_support.callback_management_context
if TYPE_CHECKING or _callback is None:

    class CallbackSupportMixin:
        """Placeholder for the callback support of newer scikit-learn versions."""

else:
    CallbackSupportMixin = _callback.CallbackSupportMixin


@contextmanager
def watched_fit(estimator: Any) -> Iterator[None]:
    """Watch a fit; if it raises an error, restore the estimator."""
    with _ending_callbacks(estimator):
        is_watched = getattr(estimator, "_skl_callbacks", None)
        tasks = FitTasks(estimator) if is_watched else None
        limit = getattr(estimator, "max_seconds", None)
        with (
            keeping_fitted(estimator),
            watching(estimator.verbose, estimator.callback, limit, tasks),
        ):
            yield
        if tasks is not None:
            tasks.end()


class FitTasks:
    """The stages of a fit and their iterations as tasks of scikit-learn's callbacks.

    Called with the state of the fit; returns whether a callback requests a stop.
    """

    def __init__(self, estimator: Any) -> None:
        self._estimator = estimator
        self._fit = estimator._init_callback_context(max_subtasks=None)
        self._fit.call_on_fit_task_begin(estimator=estimator)
        self._name = ""

    def __call__(self, state: FitState) -> bool:
        """Update the tasks for a new state of the fit; return whether to stop."""
        if state.stage != self._name:
            self._open(state)
        stop = False
        reached = self._done + 1  # if the number of subtasks is unknown
        if self._planned is not None and state.total:
            share = state.iteration * self._planned // state.total
            reached = min(self._planned, share)
        while self._done < reached and not stop:
            self._done += 1
            task = self._stage.subcontext(task_name="iteration")
            task.call_on_fit_task_begin(estimator=self._estimator)
            stop = bool(task.call_on_fit_task_end(estimator=self._estimator))
        return stop

    def end(self) -> None:
        """End the last stage, and the fit."""
        self._close()
        self._fit.call_on_fit_task_end(
            estimator=self._estimator, reconstruction_attributes=dict
        )

    def _open(self, state: FitState) -> None:
        self._close()
        self._name = state.stage
        self._done = 0
        self._planned = min(state.total, _SUBTASKS) if state.total else None
        self._stage = self._fit.subcontext(state.stage, max_subtasks=self._planned)
        self._stage.call_on_fit_task_begin(estimator=self._estimator)

    def _close(self) -> None:
        if self._name:
            self._stage.call_on_fit_task_end(estimator=self._estimator)
        self._name = ""
