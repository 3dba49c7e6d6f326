"""What a kernel machine sees of its inputs: with given scales, or with learned ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from nbsketch._validation import check_choice
from nbsketch.features import is_pairwise
from nbsketch.kernels import Kernel
from nbsketch.tuning import InputScaler, fit_scaler, tune
from nbsketch.tuning.inputs import PREPROCESSINGS

# Kernels by name whose length-scales can be learned, and their families.
_FAMILIES = {"auto": "auto", "gaussian": "gaussian", "matern": "matern-3/2"}
# Fewer rows than this cannot tell length-scales.
_LEAST_ROWS = 30


class TuningTarget(NamedTuple):
    """What the length-scales are to be good for.

    Attributes
    ----------
    targets : ndarray of shape (n, d)
        Targets.
    weights : ndarray of shape (n,), optional
        Non-negative weights.
    robust : bool
        Whether the loss is_robust wild targets.
    alpha : float, optional
        The penalty, where it is given, as it would be for the square loss.
    """

    targets: NDArray
    weights: NDArray | None
    robust: bool
    alpha: float | None = None


class Inputs(NamedTuple):
    """Rows as the kernel sees them, and the kernel.

    Attributes
    ----------
    rows : ndarray or csr_array of shape (n, p)
        The rows of X, transformed if there is a scaler.
    kernel, bandwidth
        As `nbsketch.kernels.as_kernel` takes them.
    scaler : InputScaler, optional
        What has transformed the rows.
    length_scales : ndarray of shape (q,), optional
        Learned length scales, in standard deviations of the features; infinite for
        constant and for dropped features.
    """

    rows: Any
    kernel: Any
    bandwidth: Any
    scaler: InputScaler | None = None
    length_scales: NDArray | None = None


def transform_rows(
    rows: Any, scaler: InputScaler | None, kernel: Kernel, name: str = "X"
) -> Any:
    """Return rows as a kernel sees them; `name` is what an error calls them."""
    if scaler is not None:
        if sp.issparse(rows):
            raise TypeError(
                f"`{name}` must be dense for a model that transforms its inputs, got a "
                "sparse matrix: fit it with sparse rows, or with a bandwidth"
            )
        rows = scaler.transform(rows)
    kernel.check_domain(name, rows)
    return rows


def is_learnable(kernel: Any, X: Any) -> bool:
    """Return whether length-scales can be learned from the rows of X."""
    return isinstance(kernel, str) and kernel in _FAMILIES and not sp.issparse(X)


def prepare_inputs(
    X: Any,
    kernel: Any,
    bandwidth: Any,
    preprocessing: str | None,
    tuning_target: TuningTarget,
    size: int,
    rng: np.random.Generator,
    callback: Callable[[int, float], None] | None = None,
) -> Inputs:
    """Return the rows of X as the kernel is to see them, and the kernel.

    Length-scales are learned if `bandwidth` is "auto". Otherwise nothing is, and
    nothing is transformed unless a `preprocessing` is named. `size` is the number of
    rows of the sketch to come.
    """
    check_choice("preprocessing", preprocessing, [None, "auto", *PREPROCESSINGS])
    learned = isinstance(bandwidth, str) and bandwidth == "auto"
    if learned and not is_learnable(kernel, X):
        raise ValueError(
            "`bandwidth` can be 'auto' for dense X and a kernel named one of "
            f"{list(_FAMILIES)}, got kernel={kernel!r}"
        )
    if learned and X.shape[0] >= _LEAST_ROWS:
        return _learn(
            X, _FAMILIES[kernel], preprocessing, tuning_target, size, rng, callback
        )
    if learned:
        bandwidth = "median"
    if preprocessing in (None, "auto"):
        return Inputs(X, kernel, bandwidth)
    scaler = _scaler(X, kernel, str(preprocessing), rng)
    return Inputs(scaler.transform(X), kernel, bandwidth, scaler)


def _learn(
    X: NDArray,
    family: str,
    preprocessing: str | None,
    tuning_target: TuningTarget,
    size: int,
    rng: np.random.Generator,
    callback: Callable[[int, float], None] | None,
) -> Inputs:
    tuned = tune(
        X,
        tuning_target.targets,
        family=family,
        # Features alone: what each is divided by is part of its length-scale.
        preprocessing="standard" if preprocessing is None else preprocessing,
        size=size,
        sample_weight=tuning_target.weights,
        alpha=tuning_target.alpha,
        robust=tuning_target.robust,
        rng=rng,
        callback=callback,
    )
    rows = X if tuned.scaler is None else tuned.scaler.transform(X)
    return Inputs(rows, tuned.kernel, None, tuned.scaler, tuned.length_scales)


def _scaler(
    X: Any, kernel: Any, preprocessing: str, rng: np.random.Generator
) -> InputScaler:
    if sp.issparse(X) or is_pairwise(kernel):
        raise ValueError(
            f"`preprocessing` must be None or 'auto' for sparse X and for "
            f"kernel={kernel!r}, got {preprocessing!r}"
        )
    return fit_scaler(X, preprocessing, rng)
