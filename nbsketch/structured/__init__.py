"""Structured prediction: outputs of any kind with a kernel.

This module also selects sketch sizes by validation.
"""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, is_dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from nbsketch._report import validation
from nbsketch._sketch_map import features_recipe
from nbsketch.metrics import example_f1
from nbsketch.plots import BLUE, axes_or_new, finish, mark_sizes
from nbsketch.structured._outputs import (
    TopK,
    TrainingOutputs,
    check_training_outputs,
    draw_outputs,
    one_set,
    places_of,
)
from nbsketch.structured.regressor import InputOutputKernelRegressor, OutputEmbedding

__all__ = [
    "InputOutputKernelRegressor",
    "OutputEmbedding",
    "SizePath",
    "TopK",
    "select_input_size",
    "select_output_size",
]


@dataclass(frozen=True, eq=False)
class SizePath:
    """Validation scores of several sketch sizes.

    Attributes
    ----------
    sizes : ndarray of shape (m,)
        Sizes tried, ascending; fewer than requested if the budget was exceeded.
    scores : ndarray of shape (m,)
        Scores of the sizes; greater is better.
    seconds : ndarray of shape (m,)
        Time of each size.
    label : str
        Name of the score.
    """

    sizes: NDArray
    scores: NDArray
    seconds: NDArray
    label: str

    def best(self, tolerance: float = 0.01) -> int:
        """Return the smallest size whose score is within a tolerance of the best.

        Parameters
        ----------
        tolerance : float
            Accepted loss of score, relative to the absolute value of the best score.
        """
        share = validation.check_real("tolerance", tolerance, low=0, high_open=True)
        top = self.scores.max()
        return int(self.sizes[np.argmax(self.scores >= top - share * abs(top))])

    def plot(self, *, ax: Any = None) -> Any:
        """Plot the scores against the sizes.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Axes to draw on. Default: the axes of a new figure.

        Returns
        -------
        matplotlib Axes
            The axes; ``ax.figure.savefig(path)`` writes a file.
        """
        ax = axes_or_new(ax)
        ax.plot(self.sizes, self.scores, "o-", markersize=3.5, color=BLUE)
        mark_sizes(ax, self.sizes)
        return finish(ax, xlabel="Sketch size", ylabel=self.label)


def select_output_size(
    model: InputOutputKernelRegressor,
    Y: Any,
    Y_val: Any,
    sizes: Iterable[int],
    *,
    scoring: Callable[[Any, Any], float] = example_f1,
    budget: float | None = None,
) -> SizePath:
    r"""Score sizes of the output sketch, assuming a perfect regression.

    For each size, the true :math:`\psi(y)` of each validation output is projected on
    the sketched output space and decoded among the training outputs. The error is then
    caused by the sketch alone; no inputs are needed.

    Parameters
    ----------
    model : InputOutputKernelRegressor
        Model with the output kernel and type of output sketch; not modified.
    Y, Y_val : array, CSR matrix or objects
        Training and validation outputs.
    sizes : iterable of int
        Sizes to try, in ascending order.
    scoring : callable
        ``scoring(Y_val, Y_decoded)``, greater is better. Default: the F1 score of label
        sets, averaged over samples.
    budget : float, optional
        Seconds after which no more sizes are started. None: no limit.

    Returns
    -------
    SizePath
        Score of each size.

    Notes
    -----
    El Ahmad, Brogat-Motte, Laforgue and d'Alche-Buc, AISTATS 2024: the score of a
    "perfect h".

    Examples
    --------
    >>> import numpy as np
    >>> from nbsketch import InputOutputKernelRegressor
    >>> from nbsketch.structured import select_output_size
    >>> Y = (np.random.default_rng(0).random((400, 8)) < 0.3).astype(int)
    >>> model = InputOutputKernelRegressor(output_sketch="gaussian", random_state=0)
    >>> path = select_output_size(model, Y[:300], Y[300:], [2, 20])
    >>> path.scores.round(1), path.best()
    (array([0.2, 1. ]), 20)
    """
    kernel, outputs = check_training_outputs(model, Y)
    n = outputs.shape[0]
    recipe = _sized("output_", model.output_sketch, model.output_size, n)
    places = places_of(kernel, outputs)

    def evaluate(size: int) -> float:
        rng = validation.random_generator(model.random_state).spawn(2)[1]
        drawn = draw_outputs(kernel, outputs, replace(recipe, size=size), None, rng)
        training, _ = TrainingOutputs.of(drawn[0], outputs, drawn[1], places)
        truth = training.check("Y_val", Y_val)
        best = TopK.empty(truth.shape[0], 1)
        candidates = one_set(training)
        candidates.keep_best(training.encode(truth).features, 0, best)
        return scoring(Y_val, candidates.pick(best.indices[:, 0]))

    return _path(evaluate, sizes, n, budget, "score of perfect h")


def select_input_size(
    model: InputOutputKernelRegressor,
    X: Any,
    Y: Any,
    X_val: Any,
    Y_val: Any,
    sizes: Iterable[int],
    *,
    budget: float | None = None,
) -> SizePath:
    r"""Score sizes of the input sketch by the surrogate error on validation data.

    The score is minus the mean of :math:`\|h(x) - \psi(y)\|^2`, without decoding.

    Parameters
    ----------
    model : InputOutputKernelRegressor
        Model to fit with each size of the input sketch; not modified.
    X, Y, X_val, Y_val : array, CSR matrix or objects
        Training and validation data.
    sizes : iterable of int
        Sizes to try, in ascending order.
    budget : float, optional
        Seconds after which no more sizes are started. None: no limit.

    Returns
    -------
    SizePath
        Score of each size.

    Notes
    -----
    El Ahmad, Brogat-Motte, Laforgue and d'Alche-Buc, AISTATS 2024.

    Examples
    --------
    >>> import numpy as np
    >>> from nbsketch import InputOutputKernelRegressor
    >>> from nbsketch.structured import select_input_size
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-3, 3, size=(400, 1))
    >>> Y = np.column_stack([np.sin(X), np.cos(X)]) + 0.1 * rng.normal(size=(400, 2))
    >>> model = InputOutputKernelRegressor(
    ...     output_kernel="linear", sketch="subsampling", random_state=0
    ... )
    >>> data = X[:300], Y[:300], X[300:], Y[300:]
    >>> path = select_input_size(model, *data, [1, 20, 40])
    >>> path.best(), path.scores[1].round(2)
    (20, np.float64(-0.02))
    """
    n = check_training_outputs(model, Y)[1].shape[0]
    recipe = _sized("", model.sketch, model.size, n)

    def evaluate(size: int) -> float:
        probe = clone(model).set_params(sketch=replace(recipe, size=size), size=None)
        return probe.fit(X, Y).score(X_val, Y_val)

    return _path(evaluate, sizes, n, budget, "minus the surrogate error")


def _sized(prefix: str, sketch: Any, size: int | None, n: int) -> Any:
    """Return the recipe whose sizes are scored."""
    recipe = features_recipe(sketch, size, n, prefix)
    if not (is_dataclass(recipe) and hasattr(recipe, "size")):
        raise ValueError(
            f"`{prefix}sketch` must be a sketch with a size, got {recipe!r}"
        )
    return recipe


def _path(
    evaluate: Callable[[int], float],
    sizes: Iterable[int],
    n: int,
    budget: float | None,
    label: str,
) -> SizePath:
    requested = sorted(
        {validation.check_integer("sizes", size, high=n) for size in sizes}
    )
    if not requested:
        raise ValueError("`sizes` must not be empty")
    limit = np.inf if budget is None else validation.check_positive("budget", budget)
    begin = time.perf_counter()
    scores = []
    ends = []
    for size in requested:
        scores.append(evaluate(size))
        ends.append(time.perf_counter() - begin)
        if ends[-1] >= limit:
            break
    tried = np.array(requested[: len(scores)])
    return SizePath(tried, np.array(scores), np.diff(ends, prepend=0.0), label)
