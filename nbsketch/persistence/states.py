"""What the fitted state of each estimator consists of, and what its parameters are.

A row is an attribute and its `Rule`; rows are checked in order, and a name with a
question mark may be missing. A new estimator adds one table to `STATES`; it can use
those of `EXPANSION` and `CERTIFIED`. The axes are

======  ================================================================
q, p    features of X, columns of the rows that the kernel compares
n       training rows
s, m    rows of the sketch, landmarks: its columns that are not zero
d       outputs; 0 for a single output without an axis
r       features of the sketched kernel
======  ================================================================

t are the features of the outputs, c their number, and axes that start with "output"
belong to the sketch of the outputs.
"""

from __future__ import annotations

from dataclasses import is_dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from nbsketch._validation import (
    check_array_of,
    check_integer,
    check_positive,
    check_real,
)
from nbsketch.kernels import as_kernel
from nbsketch.kernels.stationary import check_bandwidth
from nbsketch.losses import as_loss
from nbsketch.outputs import check_levels
from nbsketch.persistence.rules import (
    MOST_FEATURES,
    Rule,
    Scope,
    array,
    coefficients,
    flag,
    integer,
    intercepts,
    kernel,
    landmarks,
    names_of,
    number,
    optional,
    rows,
    same_as,
    scaler,
    seconds,
    sketch,
    table,
)
from nbsketch.persistence.tables import calibration, columns, machine, noise
from nbsketch.sketches import as_recipe


def _classes(name: str, value: Any, scope: Scope) -> Any:
    """Accept sorted distinct labels, two for one output and else one an output."""
    return _labels(name, value, scope.lengths["d"] or 2)


def _labels(name: str, value: Any, expected: int) -> Any:
    """Accept so many sorted distinct labels."""
    check_array_of(name, value, "biufUS", 1)
    if value.size != expected or (value[1:] <= value[:-1]).any() or value.size < 2:
        raise ValueError(f"`{name}` must be {expected} ascending labels, got {value!r}")
    return value


def _table_classes(name: str, value: Any, scope: Scope) -> Any:
    """Accept labels; a single output stands for two classes."""
    count = scope.lengths["d"]
    return _labels(name, value, 2 if count == 1 else count)


def _calibration(name: str, value: Any, scope: Scope) -> Any:
    """Accept predicted quantiles and the target of each calibration row."""
    check_array_of(name, value, "f", 2)
    scope.bind(name, "d", value.shape[1] - 1)
    return array("calibration_rows columns")(name, value, scope)


def _one_target(name: str, value: Any, scope: Scope) -> bool:
    """Accept whether the coefficients have no axis of outputs."""
    if flag(name, value, scope) != (scope.lengths["d"] == 0):
        raise ValueError(f"`{name}` must be {not value}, got {value}")
    return value


def _stream(name: str, value: Any, scope: Scope) -> Any:
    """Accept the parts of a `nbsketch.solvers.streams.StreamState`."""
    if not isinstance(value, tuple) or len(value) != 4:
        raise ValueError(f"`{name}` must have four parts, got {value!r:.60}")
    point, totals, n_steps, square_norm = value
    shape = max(1, scope.lengths["d"]), scope.lengths["r"] + 1
    for part, shapes in ((point, [shape]), (totals, [(2, *shape), (2, 0, 0)])):
        check_array_of(name, part, "f")
        if part.shape not in shapes or not np.isfinite(part).all():
            raise ValueError(
                f"`{name}` must hold finite arrays of shape {shapes}, got {part.shape}"
            )
    integer()(name, n_steps, scope)
    check_real(name, square_norm, low=0, high_open=True)
    return value


def _preconditioning(name: str, value: Any, scope: Scope) -> Any:
    """Accept the parts of a `nbsketch.fitting.descent.Preconditioning`."""
    if not isinstance(value, tuple) or len(value) != 3:
        raise ValueError(f"`{name}` must have three parts, got {value!r:.60}")
    array("r", positive=True)(name, value[0], scope)
    array("r")(name, value[1], scope)
    check_positive(name, value[2])
    return value


def _output_weights(name: str, value: Any, scope: Scope) -> Any:
    """Accept a dense or sparse matrix of the sketch of the distinct outputs."""
    if not sp.issparse(value):
        return array(" ".join(_OUTPUT_WEIGHTS))(name, value, scope)
    if value.dtype.kind != "f":
        raise TypeError(f"`{name}` must hold floats, got dtype {value.dtype}")
    for axis, length in zip(_OUTPUT_WEIGHTS, value.shape, strict=True):
        scope.bind(name, axis, length)
    return value


def _posterior(name: str, value: Any, scope: Scope) -> Any:
    """Accept the parts of a posterior; see `nbsketch.estimators._posterior`."""
    parts = {"projection", "factor", "shift", "noise"}
    if not isinstance(value, dict) or set(value) != parts:
        raise ValueError(f"`{name}` must have the parts {parts}, got {value!r:.60}")
    array("s features")(f"{name}.projection", value["projection"], scope)
    array("terms terms")(f"{name}.factor", value["factor"], scope)
    scope.bind(f"{name}.factor", "terms", scope.lengths["features"] + 1)
    if (np.diagonal(value["factor"]) <= 0).any():
        raise ValueError(f"`{name}` must have a positive diagonal, got others")
    check_positive(f"{name}.shift", value["shift"])
    scope.bind(f"{name}.noise", "outputs", max(1, scope.lengths["d"]))
    array("outputs")(f"{name}.noise", value["noise"], scope)
    return value


def _whitening(name: str, value: Any, scope: Scope) -> Any:
    """Accept None without a sketch, or the parts of a `PivotedCholesky`."""
    lengths = scope.lengths
    if value is None:
        # h(x) is in terms of the candidates themselves.
        scope.bind(name, "t", lengths["output_m"])
        return value
    if not isinstance(value, tuple) or len(value) != 2:
        raise ValueError(f"`{name}` must have two parts, got {value!r:.60}")
    factor, chosen = value
    array("t t")(f"{name}.0", factor, scope)
    array("t", "i")(f"{name}.1", chosen, scope)
    if (np.diagonal(factor) <= 0).any() or np.unique(chosen).size != chosen.size:
        raise ValueError(f"`{name}` must be a factor and distinct rows, got others")
    if not 0 <= chosen.min() <= chosen.max() < lengths["output_s"]:
        raise ValueError(f"`{name}` must have rows of the sketch, got others")
    return value


def _errors(name: str, value: Any, scope: Scope) -> Any:
    """Accept an error of a single output, or one of each."""
    if scope.values["_single"]:
        return check_real(name, value, low=0, high_open=True)
    return array("d")(name, value, scope)


def _size(name: str, value: Any, scope: Scope) -> Any:
    """Accept None, an integer, "auto" or an object that chooses it."""
    if value in (None, "auto") or is_dataclass(value):
        return value
    return check_integer(name, value)


def _sketch(name: str, value: Any, scope: Scope) -> Any:
    """Accept None, recipes and their names."""
    if value is not None:
        size = None if value == "identity" or not isinstance(value, str) else 1
        as_recipe(value, size, 2**62, prefix=name.removesuffix("sketch"))
    return value


def _bandwidth(name: str, value: Any, scope: Scope) -> Any:
    """Accept None, "auto" and what kernels take."""
    known = value is None or (isinstance(value, str) and value == "auto")
    return value if known else check_bandwidth(value, name)


def _alpha(name: str, value: Any, scope: Scope) -> Any:
    """Accept None and numbers that are not negative."""
    return value if value is None else check_real(name, value, low=0, high_open=True)


_OUTPUT_WEIGHTS = "output_s", "output_m"
_FEATURES: dict[str, Rule] = {
    "n_features_in_": integer("q", low=1, high=MOST_FEATURES),
    "feature_names_in_?": names_of("q"),
}
_LEARNED: dict[str, Rule] = {
    "scaler_": scaler("q", "p"),
    "length_scales_": optional(array("q", finite=False, positive=True)),
}
# A kernel expansion on the landmarks of a sketch.
EXPANSION: dict[str, Rule] = {
    **_FEATURES,
    "scaler_": scaler("q", "p"),
    "kernel_": kernel,
    "sketch_": sketch("s", "n", "m"),
    "landmarks_": landmarks("kernel_", "m", "p", "n"),
    "length_scales_": optional(array("q", finite=False, positive=True)),
    "bandwidth_": same_as("kernel_", "bandwidth"),
    "size_": integer("s"),
    "coef_": coefficients("s", "d"),
    "intercept_": intercepts("d"),
    "rank_": integer("r", low=1),
    "n_iter_": integer(),
}
# An expansion that minimizes an objective, with its certificate.
CERTIFIED: dict[str, Rule] = {
    **EXPANSION,
    "size_path_": optional(table("size", "loss", "seconds")),
    "alpha_": number,
    "objective_": number,
    "dual_gap_": number,
}
# An expansion by stochastic gradients, and what a stream needs to continue.
DESCENT: dict[str, Rule] = {
    **EXPANSION,
    "path_": optional(table("n_steps", "error")),
    "n_steps_": integer(),
    "_one_target": _one_target,
    "_seed": integer(),
    "alpha_": number,
    "_projection": array("s r"),
    "_preconditioning": optional(_preconditioning),
    "_stream": optional(_stream),
}


def _no_partners(name: str, value: Any, scope: Scope) -> Any:
    if len(value):
        raise TypeError(f"`{name}` must be empty in a file, got {value!r:.60}")
    return value


_TABULAR: dict[str, Rule] = {
    **_FEATURES,
    "columns_": columns,
    "machine_": machine,
    "n_outliers_": integer(),
    "n_skipped_": integer(),
    "feature_relevance_": array("features"),
    "partners_": _no_partners,
    "partner_weights_": _no_partners,
}

STATES: dict[str, dict[str, Rule]] = {
    "SketchedKernelRegressor": {
        **CERTIFIED,
        "monotonic_violation_?": number,
        "posterior_?": _posterior,
    },
    "SketchedKernelClassifier": {**CERTIFIED, "classes_": _classes},
    "JointQuantileRegressor": {
        **CERTIFIED,
        "calibration_": optional(_calibration),
        "calibration_weights_": optional(array("calibration_rows", positive=True)),
    },
    "SpectralFilterRegressor": {
        **CERTIFIED,
        "path_": optional(table("alpha", "n_iter", "error")),
    },
    "SketchedSGDRegressor": DESCENT,
    "SketchedSGDClassifier": {**DESCENT, "classes_": _classes},
    "InputOutputKernelRegressor": {
        **_FEATURES,
        **_LEARNED,
        "kernel_": kernel,
        "sketch_": sketch("s", "n", "m"),
        "landmarks_": landmarks("kernel_", "m", "p", "n"),
        "rank_": integer("r", low=1),
        "output_kernel_": kernel,
        "output_sketch_": sketch("output sketch rows", "n", "output columns"),
        "_output_weights": _output_weights,
        "output_landmarks_": landmarks("output_kernel_", "output_m", "output_p", "n"),
        "_whitening": _whitening,
        "_features": array("c t"),
        "_penalty": array("c"),
        "candidates_": rows("output_kernel_", "c", "output_p"),
        "coef_": array("s t"),
        "output_rank_": integer("t", low=1),
        "seconds_": seconds,
    },
    "TabularKernelRegressor": {
        **_TABULAR,
        "_single": flag,
        "loo_error_": _errors,
        "noise_": noise,
    },
    "TabularKernelClassifier": {
        **_TABULAR,
        "classes_": _table_classes,
        "calibration_": calibration,
        "loo_log_loss_": number,
        "loo_error_": number,
    },
    "SketchedFeatures": {
        **_FEATURES,
        **_LEARNED,
        "kernel_": kernel,
        "sketch_": sketch("s", "n", "m"),
        "landmarks_": landmarks("kernel_", "m", "p", "n"),
        "projection_": array("s r"),
        "rank_": integer("r"),
        "_n_features_out": integer("r"),
    },
    "RandomFourierFeatures": {
        **_FEATURES,
        **_LEARNED,
        "kernel_": kernel,
        "frequencies_": array("p pairs"),
        "_n_features_out": integer("features"),
    },
}


def _seconds(name: str, value: Any, scope: Scope) -> None:
    if value is not None:
        check_positive(name, value)


def _no_callback(name: str, value: Any, scope: Scope) -> None:
    if value is not None:
        raise TypeError(f"`{name}` must be None in a file, got {value!r:.60}")


# Parameters of any estimator that are checked before the first fit. All others are
# checked by `fit`, and have no part in predictions.
PARAMETERS: dict[str, Rule] = {
    **dict.fromkeys(
        ("kernel", "output_kernel"),
        lambda name, value, scope: as_kernel(value, prefix=name.removesuffix("kernel")),
    ),
    **dict.fromkeys(("sketch", "output_sketch"), _sketch),
    **dict.fromkeys(("bandwidth", "output_bandwidth"), _bandwidth),
    **dict.fromkeys(("size", "output_size"), _size),
    "alpha": _alpha,
    "loss": lambda name, value, scope: as_loss(value),
    "quantiles": lambda name, value, scope: check_levels(name, value),
    "tol": lambda name, value, scope: check_positive(name, value),
    "max_iter": integer(low=1),
    "max_seconds": _seconds,
    "verbose": integer(),
    "callback": _no_callback,
    **dict.fromkeys(("fit_intercept", "average", "early_stopping"), flag),
    "random_state": optional(integer()),
}
# Parameters whose length is that of an axis of the fitted state.
_AXES = {"quantiles": "d"}


def check_parameters(params: dict[str, Any]) -> None:
    """Raise an error if a parameter is not one that `fit` would take."""
    for name, value in params.items():
        if name in PARAMETERS:
            PARAMETERS[name](name, value, Scope())


def check_names(model: str, fitted: dict[str, Any]) -> None:
    """Raise an error unless a model has just the attributes of its table."""
    expected = STATES.get(model, {})
    known = {name.removesuffix("?") for name in expected}
    unknown = sorted(set(fitted) - known)
    missing = [name for name in expected if name[-1] != "?" and name not in fitted]
    if unknown or missing:
        raise ValueError(
            f"a fitted {model} must have the attributes of its table, got {unknown} "
            f"too many and lacks {missing}"
        )


def check_state(
    model: str, fitted: dict[str, Any], params: dict[str, Any]
) -> dict[str, Any]:
    """Return the fitted attributes of a model, checked one with another."""
    check_names(model, fitted)
    scope = Scope()
    for entry, rule in STATES[model].items():
        name = entry.removesuffix("?")
        if name in fitted:
            scope.values[name] = rule(name, fitted[name], scope)
    for name, axis in _AXES.items():
        if name in params:
            scope.bind(name, axis, len(params[name]))
    return {name: scope.values[name] for name in fitted}
