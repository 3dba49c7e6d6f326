"""Learned length scales of models that are fitted without an objective.

Features and structured prediction have no loss and no penalty of their own that could
be a `TuningTarget`: length scales are those of ridge regression to given targets.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nbsketch.distributed.rows import PartitionedRows
from nbsketch.kernels import LEARNABLE_NAMES
from nbsketch.tuning.inputs import InputScaler
from nbsketch.tuning.tuner import tune

# Length scales cannot be estimated from fewer rows.
_LEAST_ROWS = 30
# Integers with at most as many values are labels of classes.
_MOST_CLASSES = 20
# Number of features whose length scales are listed.
_SHORTEST = 5


class LearnedInputs(NamedTuple):
    """Prepared rows and their kernel.

    Attributes
    ----------
    rows : rows of shape (n, p)
        The rows of X, transformed if there is a scaler.
    kernel, bandwidth
        As `nbsketch.kernels.as_kernel` takes them.
    scaler : InputScaler or None
        Transformation of the rows; it drops features that do not matter. None: none.
    length_scales : ndarray of shape (q,) or None
        In standard deviations of the features; infinite for dropped ones. None: not
        learned.
    """

    rows: Any
    kernel: Any
    bandwidth: Any
    scaler: InputScaler | None = None
    length_scales: NDArray | None = None


def is_auto(bandwidth: Any) -> bool:
    """Return whether length scales are to be learned."""
    return isinstance(bandwidth, str) and bandwidth == "auto"


def is_learnable(kernel: Any, X: Any) -> bool:
    """Return whether there are length scales to learn: dense X and a named kernel."""
    named = isinstance(kernel, str) and kernel in LEARNABLE_NAMES
    return named and isinstance(X, np.ndarray | PartitionedRows)


def check_learnable(kernel: Any, X: Any) -> None:
    """Refuse kernels and rows for which there are no length scales to learn."""
    if not is_learnable(kernel, X):
        raise ValueError(
            "`bandwidth` can be 'auto' for a dense array X and a kernel named one of "
            f"{sorted(LEARNABLE_NAMES)}, got kernel={kernel!r} and X of type "
            f"{type(X).__name__}"
        )


def learn_inputs(
    X: Any,
    targets: NDArray,
    kernel: str,
    size: int,
    rng: np.random.Generator,
    sample_weight: NDArray | None = None,
) -> LearnedInputs:
    """Learn length scales for targets (n, d); with fewer than 30 rows, the median."""
    if len(X) < _LEAST_ROWS:
        return LearnedInputs(X, kernel, "median")
    found = tune(
        X, targets, family=LEARNABLE_NAMES[kernel], preprocessing="standard", size=size,
        sample_weight=sample_weight, rng=rng,
    )  # fmt: skip
    rows = X if found.scaler is None else _transformed(X, found.scaler)
    return LearnedInputs(rows, found.kernel, None, found.scaler, found.length_scales)


def _transformed(X: Any, scaler: InputScaler) -> Any:
    if isinstance(X, PartitionedRows):
        return X.map(scaler.transform, len(scaler.center))
    return scaler.transform(X)


def as_targets(y: Any, n: int) -> NDArray:
    """Return targets (n, d) of ridge regression for numbers or labels.

    Texts, booleans and integers with at most 20 values are labels of classes, with one
    indicator for each class.
    """
    if y is None:
        raise ValueError(
            "`y` must be given for bandwidth='auto', got None: pass targets, or "
            "bandwidth='median'"
        )
    values = np.asarray(y)
    if values.ndim not in (1, 2) or len(values) != n:
        raise ValueError(f"`y` must have shape ({n},) or ({n}, d), got {values.shape}")
    classes = np.unique(values) if values.dtype.kind in "OUSbiu" else np.empty(0)
    few = values.dtype.kind not in "iu" or len(classes) <= _MOST_CLASSES
    if values.ndim == 1 and len(classes) and few:
        return (values[:, None] == classes).astype(float)
    targets = values.reshape(n, -1).astype(float)
    if not np.isfinite(targets).all():
        raise ValueError("`y` must be finite, got NaN or infinity")
    return targets


def summary_lines(
    model: Any, entries: Iterator[tuple[str, str]] | list[tuple[str, str]]
) -> str:
    """Return a summary of a fitted model: its kernel and length scales, and entries."""
    widths = np.ravel(getattr(model.kernel_, "bandwidth", ()))
    shown = f", bandwidth {widths[0]:.4g}" if len(widths) == 1 else ""
    lines = [("kernel", type(model.kernel_).__name__ + shown)]
    if model.length_scales_ is not None:
        lines.append(("length-scales", _shortest(model)))
    found = [*lines, *entries]
    return "\n".join([type(model).__name__, *(f"  {a:<14}{b}" for a, b in found)])


def _shortest(model: Any) -> str:
    scales = model.length_scales_
    names = getattr(model, "feature_names_in_", [f"x{k}" for k in range(len(scales))])
    order = np.argsort(scales, kind="stable")[:_SHORTEST]
    listed = [f"{names[k]} {scales[k]:.3g}" for k in order if np.isfinite(scales[k])]
    rest = np.isfinite(scales).sum() - len(listed)
    return ", ".join(listed) + (f"; {rest} longer" if rest else "")
