"""The objective of a regression: which one belongs to a loss and an output matrix."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from nbsketch.fitting.least_squares import LeastSquaresObjective
from nbsketch.fitting.objectives import RadialObjective, ScalarObjective
from nbsketch.losses import SquareLoss, as_loss
from nbsketch.outputs import IdentityOutput, as_output


def regression_objective(
    Y: NDArray,
    weights: NDArray | None,
    fit_intercept: bool,
    loss: Any,
    output: Any = None,
) -> ScalarObjective | RadialObjective:
    """Return the objective for targets (n, d), a loss and an output matrix."""
    loss, output = as_loss(loss), as_output(output)
    if loss.is_classification:
        raise ValueError(
            f"`loss` must be a loss of residuals, got {loss!r}: use "
            "SketchedKernelClassifier for losses of margins"
        )
    factor = output.factor(Y.shape[1])
    if isinstance(loss, SquareLoss):
        return LeastSquaresObjective(Y, weights, fit_intercept, loss, factor)
    if Y.shape[1] == 1 and isinstance(output, IdentityOutput):
        return ScalarObjective(loss.link(Y), weights, fit_intercept, loss)
    if not loss.is_radial and Y.shape[1] == 1:
        raise ValueError(
            f"`output` must be None for one target and {loss!r}, got {output!r}"
        )
    if not loss.is_radial:
        raise ValueError(
            f"`y` must have one column for {loss!r}, got {Y.shape[1]}: "
            "it is not a loss of the norm of a residual"
        )
    return RadialObjective(Y, weights, fit_intercept, loss, factor)
