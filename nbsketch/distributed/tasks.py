"""Tasks of Dask: run to the end, kept on the workers, and summed in a tree."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from nbsketch._blas import one_thread
from nbsketch.distributed.collections import dask_module
from nbsketch.solvers.design import added

# A task is run again so many times after an error of a worker.
_RETRIES = 3
# Results that are added in one task.
_FAN_IN = 8


def task(function: Callable, *args: Any) -> Any:
    """Return the task of calling a function, with BLAS limited to one thread.

    Arguments that are tasks are replaced by their results.
    """
    return dask_module().delayed(_run, pure=False)(function, *args)


def literal(value: Any) -> Any:
    """Return a task whose result is a value, sent to each worker once."""
    return dask_module().delayed(value, pure=False, traverse=False)


def computed(tasks: Sequence[Any]) -> list[Any]:
    """Return the results of tasks.

    On a cluster the tasks of a lost worker run again, and an interrupt cancels those
    that have not begun.

    Raises
    ------
    ConnectionError
        If the scheduler of the cluster is gone.
    """
    client = current_client()
    options = {} if client is None else {"retries": _RETRIES}
    with _Lost(client), warnings.catch_warnings():
        # Numbers of each row are sent with the tasks that multiply them by features.
        warnings.filterwarnings("ignore", "Sending large graph")
        return list(dask_module().compute(*tasks, **options))


def kept(tasks: Sequence[Any]) -> list[Any]:
    """Run tasks and keep their results: on the workers of a cluster, or here.

    Results of a lost worker are computed again from what they depend on.
    """
    client = current_client()
    if client is None:
        return list(dask_module().persist(*tasks))
    results = client.persist(list(tasks), retries=_RETRIES)
    with _Lost(client):
        try:
            dask_module("distributed").wait(results)
        except BaseException:
            client.cancel(results)
            raise
    return results


def tree_sum(tasks: Sequence[Any]) -> Any:
    """Return the task that adds tuples of arrays, always in the same order."""
    while len(tasks) > 1:
        groups = [tasks[k : k + _FAN_IN] for k in range(0, len(tasks), _FAN_IN)]
        tasks = [task(_add, *group) for group in groups]
    return tasks[0]


def current_client() -> Any:
    """Return the client of the cluster that Dask computes on; None: this process."""
    if "distributed" not in sys.modules:
        return None
    get = dask_module("dask.base").get_scheduler()
    owner = getattr(get, "__self__", None)
    return owner if hasattr(owner, "scheduler_info") else None


class _Lost:
    """Turns errors of a client whose scheduler is gone into a ConnectionError."""

    def __init__(self, client: Any) -> None:
        self.client = client

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
        interrupted = isinstance(error, KeyboardInterrupt | SystemExit)
        if error is None or self.client is None or interrupted:
            return
        if self.client.status != "running":
            raise ConnectionError(
                "the Dask scheduler is gone and the fit not finished, the estimator is "
                "as it was before: start a cluster with a new Client and fit again"
            ) from error


def _run(function: Callable, *args: Any) -> Any:
    with one_thread():
        return function(*args)


def _add(*terms: tuple) -> tuple:
    return added(terms)
