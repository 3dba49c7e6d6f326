"""Fitted attributes and parameters of each estimator in a model file.

Each entry is an attribute and its `Rule`; entries are checked in order, and names with
a question mark are optional. A new estimator adds one table to `STATES`, which may
include `EXPANSION` and `CERTIFIED`. The axes are

======  ================================================================
q, p    features of X, columns of the samples that the kernel compares
n       training samples
s, m    rows of the sketch, landmarks: its nonzero columns
d       outputs; 0 for a single output without an axis
r       features of the sketched kernel
======  ================================================================

t is the number of features of the outputs, c the number of outputs, and axes that start
with "output" belong to the output sketch.
"""

from collections.abc import Callable
from dataclasses import is_dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from nbsketch._report.fields import (
    Rule,
    Scope,
    array,
    entries,
    finite,
    integer,
    not_negative,
    number,
    of,
    optional,
    plain,
    positive,
)
from nbsketch._report.validation import (
    check_array_of,
    check_indices,
    check_integer,
    check_rows,
)
from nbsketch.kernels import Kernel, PrecomputedKernel, as_kernel, check_bandwidth
from nbsketch.losses import as_loss
from nbsketch.outputs import check_levels
from nbsketch.rows.inputs import TrainingRows
from nbsketch.rows.transform import InputScaler
from nbsketch.sketches import Sketch, as_recipe

Rules = dict[str, Rule]  # of attributes or parameters
# Maximum number of features: memory grows with it.
MOST_FEATURES = 2**24
# Parameters whose length equals an axis of the fitted state.
_AXES = {"quantiles": "d"}


def names(name: str, value: Any, scope: Scope) -> None:
    """Accept an array of strings, one for each of the q features."""
    array("q", "O")(name, value, scope)
    _check_strings(name, value)


def _check_strings(name: str, value: Any) -> None:
    """Check that the objects of an array are strings: a file holds no others."""
    if value.dtype == object and not all(isinstance(text, str) for text in value):
        raise TypeError(f"`{name}` must hold strings, got other objects")


def table(*columns: str) -> Rule:
    """Return the rule for a dict of these columns, arrays of equal length."""
    return entries(**dict.fromkeys(columns, array("_rows", "fiu", finite=False)))


def seconds(name: str, value: Any, scope: Scope) -> None:
    """Accept the times of named stages."""
    of(dict)(name, value, scope)
    for key, spent in value.items():
        not_negative(f"{name}.{key}", spent, scope)


def scaler(q: str, p: str) -> Rule:
    """Return the rule for an `InputScaler` from q features to p columns, or None."""
    fitted = of(InputScaler, {q: lambda s: s.n_features, p: lambda s: s.center.size})

    def rule(name: str, value: Any, scope: Scope) -> None:
        if value is None:
            scope.bind(name, p, scope.lengths[q])
        else:
            fitted(name, value, scope)

    return rule


def sketch(s: str, m: str) -> Rule:
    """Return the rule for a sketch of shape (s, n) with m nonzero columns."""
    lengths = {s: lambda S: S.shape[0], "n": lambda S: S.shape[1]}
    return of(Sketch, {**lengths, m: lambda S: S.columns.size})


def landmarks(kernel_name: str, m: str, p: str) -> Rule:
    """Return the rule for m landmarks of a kernel, with p columns.

    For a precomputed kernel they are indices of training samples, and the sketch has n
    columns for those of positive weight.
    """

    def rule(name: str, value: Any, scope: Scope) -> Any:
        lengths = scope.lengths
        kernel = scope.values[kernel_name]
        if isinstance(kernel, PrecomputedKernel):
            n = lengths["n"]
            scope.bind(name, p, max(lengths.get(p, n), n))
        elif not sp.issparse(value):
            check_array_of(name, value, "f", 2)
        else:
            check_integer(f"{name}.shape", value.shape[1], high=MOST_FEATURES)
        if p not in lengths:
            scope.bind(name, p, value.shape[1])
        rows = kernel.check_landmarks(value, lengths[p])
        kernel.compiled_form(lengths[p])  # raises for incompatible parameters
        scope.bind(name, m, rows.shape[0])
        return rows

    return rule


def candidates(name: str, value: Any, scope: Scope) -> None:
    """Accept c outputs of any numeric dtype.

    For a precomputed kernel they are the indices of all training outputs.
    """
    kernel = scope.values["output_kernel_"]
    if isinstance(kernel, PrecomputedKernel):
        array("c", "i")(name, value, scope)
        if (value != np.arange(value.size)).any():
            raise ValueError(f"`{name}` must be all indices in order")
        return
    if not sp.issparse(value):
        check_array_of(name, value, "fiub", 2)
    checked = check_rows(name, value, n_features=scope.lengths["output_p"])
    kernel.check_domain(name, checked)
    scope.bind(name, "c", checked.shape[0])


def coefficients(name: str, value: Any, scope: Scope) -> None:
    """Accept coefficients (s,) of one output or (s, d) of several.

    The length of the axis d is 0 for the former.
    """
    single = np.ndim(value) == 1
    array("s" if single else "s d")(name, value, scope)
    scope.bind(name, "d", 0 if single else value.shape[1])
    if not single and value.shape[1] == 0:
        raise ValueError(f"`{name}` must have an output, got shape {value.shape}")


def intercepts(name: str, value: Any, scope: Scope) -> None:
    """Accept the intercepts for `coefficients`."""
    (array("d") if scope.lengths["d"] else finite)(name, value, scope)


def _errors(name: str, value: Any, scope: Scope) -> None:
    """Accept an error of a single output, or one per output."""
    rule = not_negative if scope.values["_single"] else array("d")
    rule(name, value, scope)


def _row_indices(name: str, value: Any, scope: Scope) -> None:
    """Accept ascending indices of samples, possibly none."""
    check_array_of(name, value, "i", 1)
    if (value < 0).any() or (value[1:] <= value[:-1]).any():
        raise ValueError(f"`{name}` must be ascending row indices, got {value!r}")


def _outliers(name: str, value: Any, scope: Scope) -> None:
    """Accept `n_outliers_` indices of excluded samples."""
    _row_indices(name, value, scope)
    if len(value) != scope.values["n_outliers_"]:
        raise ValueError(f"`{name}` must have `n_outliers_` rows, got {len(value)}")


def equal(expected_in: Callable[[Scope], Any]) -> Rule:
    """Return the rule for a value determined by other parts of the model."""

    def rule(name: str, value: Any, scope: Scope) -> None:
        expected = expected_in(scope)
        if type(value) is not type(expected) or value != expected:
            raise ValueError(f"`{name}` must be {expected!r:.60}, got {value!r:.60}")

    return rule


def labels(name: str, value: Any, scope: Scope) -> None:
    """Accept ascending labels: two for a single output, else one per output."""
    scope.bind(name, "classes", max(2, scope.lengths["d"]))
    expected = scope.lengths["classes"]
    check_array_of(name, value, "biufUSO", 1)
    _check_strings(name, value)
    if value.size != expected or (value[1:] <= value[:-1]).any():
        raise ValueError(f"`{name}` must be {expected} ascending labels, got {value!r}")


def _calibration(name: str, value: Any, scope: Scope) -> None:
    """Accept predicted quantiles and the target of each calibration sample."""
    array("calibration_rows columns")(name, value, scope)
    scope.bind(name, "d", value.shape[1] - 1)


def _stream(name: str, value: Any, scope: Scope) -> None:
    """Accept the state of a stream for the outputs and features of the model."""
    of("StreamState")(name, value, scope)
    shape = max(1, scope.lengths["d"]), scope.lengths["r"] + 1
    if value.point.shape != shape:
        raise ValueError(
            f"`{name}.point` must have shape {shape}, got {value.point.shape}"
        )


def _held(name: str, value: Any, scope: Scope) -> TrainingRows:
    """Accept the first samples of a stream, with targets and weights."""
    of(tuple)(name, value, scope)
    X, Y, weights, kept, n_given = value
    if kept is not None or n_given:
        raise ValueError(f"`{name}` must end with None and 0, got {value[3:]!r:.60}")
    if not sp.issparse(X):
        check_array_of(f"{name}.X", X, "f", 2)
    X = check_rows(f"{name}.X", X, n_features=scope.lengths["q"])
    scope.bind(f"{name}.X", "held", X.shape[0])
    scope.bind(f"{name}.y", "outputs", max(1, scope.lengths["d"]))
    array("held outputs")(f"{name}.y", Y, scope)
    optional(array("held", positive=True))(f"{name}.weights", weights, scope)
    return TrainingRows(X, Y, weights)


def _output_weights(name: str, value: Any, scope: Scope) -> None:
    """Accept a dense or sparse matrix of the sketch of the distinct outputs."""
    if sp.issparse(value):
        array("entries")(name, value.data, scope)
        scope.bind_axes(name, ("output_s", "output_m"), value.shape)
    else:
        array("output_s output_m")(name, value, scope)


def _posterior(name: str, value: Any, scope: Scope) -> None:
    """Accept the parts of a posterior; see `nbsketch.estimators.posterior`."""
    scope.bind(name, "outputs", max(1, scope.lengths["d"]))
    entries(
        projection=array("s features"),
        factor=array("terms terms"),
        shift=positive,
        noise=array("outputs"),
        scores=optional(array("outputs groups terms")),
    )(name, value, scope)
    scope.bind(f"{name}.factor", "terms", scope.lengths["features"] + 1)
    if (np.diagonal(value["factor"]) <= 0).any():
        raise ValueError(f"`{name}` must have a positive diagonal, got others")


def _training(name: str, value: Any, scope: Scope) -> None:
    """Accept the targets and weights of a model of all samples, or None."""
    scope.bind(name, "outputs", max(1, scope.lengths["d"]))
    weights = optional(array("n", positive=True))
    optional(entries(targets=array("n outputs"), weights=weights))(name, value, scope)


def _whitening(name: str, value: Any, scope: Scope) -> None:
    """Accept None without a sketch, or a factor of rows of the sketch."""
    lengths = scope.lengths
    if value is None:
        # Without a sketch, h(x) is a combination of the candidates.
        scope.bind(name, "t", lengths["output_m"])
        return
    of("PivotedCholesky", {"t": lambda factor: factor.rank})(name, value, scope)
    check_indices(f"{name}.chosen", value.chosen, lengths["output_s"])


def _partners(name: str, value: Any, scope: Scope) -> None:
    """Accept a tuple of partners for the features and outputs of the model."""
    of(tuple)(name, value, scope)
    for k, partner in enumerate(value):
        place = f"{name}.{k}"
        if type(partner).__name__ == "BoostedTrees":
            _trees(place, partner, scope)
            continue
        of("Partner")(place, partner, scope)
        count = len(partner.fits[0]) if partner.fits else 0
        scope.bind(
            place, "classes" if partner.classes else "d", partner.classes or count
        )


def _trees(name: str, trees: Any, scope: Scope) -> None:
    """Accept boosted trees that split the encoded features."""
    of("BoostedTrees")(name, trees, scope)
    high = scope.lengths["features"] - 1
    check_integer(f"{name}.feature", trees.feature.max(), low=-1, high=high)
    axis = "classes" if trees.is_classifier else "d"
    scope.bind(name, axis, trees.baseline.shape[1])


def _partner_weights(name: str, value: Any, scope: Scope) -> None:
    """Accept the weights of the partners and, for classes, of the kernel model."""
    check_array_of(name, value, "f", 1)
    count = len(scope.values["partners_"])
    if len(value) not in (count, count + (count > 0)):
        raise ValueError(f"`{name}` must be weights of {count} partners, got {value!r}")


def _size(name: str, value: Any, scope: Scope) -> None:
    """Accept None, an integer, "auto" or an `AutoSize`."""
    if not (value in (None, "auto") or is_dataclass(value)):
        check_integer(name, value)


def _recipe(name: str, value: Any, scope: Scope) -> None:
    """Accept recipes and their names."""
    size = None if value == "identity" or not isinstance(value, str) else 1
    as_recipe(value, size, 2**62)


def _bandwidth(name: str, value: Any, scope: Scope) -> None:
    """Accept "auto" and bandwidths of kernels."""
    if not (isinstance(value, str) and value == "auto"):
        check_bandwidth(name, value)


def _kernel(name: str, value: Any, scope: Scope) -> None:
    """Accept fitted kernels with a numeric bandwidth."""
    of(Kernel)(name, value, scope)
    bandwidth = getattr(value, "bandwidth", None)
    if isinstance(bandwidth, str):
        raise ValueError(f"`{name}` must have a numeric bandwidth, got {bandwidth!r}")


_FEATURES: Rules = {
    "n_features_in_": integer("q", low=1, high=MOST_FEATURES),
    "feature_names_in_?": names,
}
_LEARNED: Rules = {
    **_FEATURES,
    "scaler_": scaler("q", "p"),
    "length_scales_": optional(array("q", finite=False, positive=True)),
    "kernel_": _kernel,
}
_SKETCHED: Rules = {
    **_LEARNED,
    "sketch_": sketch("s", "m"),
    "landmarks_": landmarks("kernel_", "m", "p"),
    "rank_": integer("r"),
}
# Coordinates of outputs in a sketched space.
_OUTPUT_SPACE: Rules = {
    "output_kernel_": _kernel,
    "output_sketch_": sketch("output sketch rows", "output columns"),
    "_output_weights": _output_weights,
    "output_landmarks_": landmarks("output_kernel_", "output_m", "output_p"),
    "_whitening": _whitening,
    "_features": array("c t"),
    "_penalty": array("c"),
    "candidates_": candidates,
    "output_rank_": integer("t"),
}
# A kernel expansion on the landmarks of a sketch.
EXPANSION: Rules = {
    **_SKETCHED,
    "bandwidth_": equal(lambda s: getattr(s.values["kernel_"], "bandwidth", None)),
    "size_": integer("s"),
    "coef_": coefficients,
    "intercept_": intercepts,
    "n_iter_": integer(),
    "n_copies_?": integer(),
}
# An expansion that minimizes an objective, with its certificate.
CERTIFIED: Rules = {
    **EXPANSION,
    "size_path_": optional(table("size", "loss", "seconds")),
    "alpha_": number,
    "objective_": number,
    "dual_gap_": number,
}
# An expansion by stochastic gradients, and the state to continue a stream.
_loss = plain(lambda name, value: as_loss(value))
DESCENT: Rules = {
    **EXPANSION,
    "path_": optional(table("n_steps", "error")),
    "n_steps_": integer(),
    "_one_target": equal(lambda scope: scope.lengths["d"] == 0),
    "_seed": integer(),
    "_limit?": not_negative,
    "_first_settings?": of(dict),
    "alpha_": number,
    "_projection": array("s r"),
    "_preconditioning": optional(of("Preconditioning")),
    "_stream": optional(_stream),
    "_held?": _held,
}


_TABULAR: Rules = {
    **_FEATURES,
    "columns_": of(
        "TableColumns",
        {"q": lambda c: len(c.columns), "features": lambda c: len(c.kept)},
    ),
    "machine_": of("Machine"),
    "n_copies_?": integer(),
    "n_outliers_": integer(),
    "outliers_?": _outliers,
    "suspects_?": _row_indices,
    "n_skipped_": integer(),
    "feature_relevance_": array("features"),
    "partners_": _partners,
    "partner_weights_": _partner_weights,
}

STATES: dict[str, Rules] = {
    "SketchedKernelRegressor": {
        **CERTIFIED,
        "monotonic_violation_?": number,
        "suspects_?": _row_indices,
        "loss_?": _loss,
        "posterior_?": _posterior,
        "_training?": _training,
    },
    "SketchedKernelClassifier": {**CERTIFIED, "classes_": labels, "loss_?": _loss},
    "JointQuantileRegressor": {
        **CERTIFIED,
        "monotonic_violation_?": number,
        "quantiles_?": array("d"),
        "calibration_": optional(_calibration),
        "calibration_weights_": optional(array("calibration_rows", positive=True)),
    },
    "SpectralFilterRegressor": {
        **CERTIFIED,
        "path_": optional(table("alpha", "n_iter", "error")),
    },
    "SketchedSGDRegressor": {**DESCENT, "loss_?": _loss},
    "SketchedSGDClassifier": {**DESCENT, "classes_": labels, "loss_?": _loss},
    "InputOutputKernelRegressor": {
        **_SKETCHED,
        **_OUTPUT_SPACE,
        "coef_": array("s t"),
        "seconds_": seconds,
    },
    "OutputEmbedding": _OUTPUT_SPACE,
    "TabularKernelRegressor": {
        **_TABULAR,
        "_single": of(bool),
        "loss_?": _loss,
        "loo_error_": _errors,
        "noise_": of("Noise"),
    },
    "TabularKernelClassifier": {
        **_TABULAR,
        "classes_": labels,
        "calibration_": of("Calibration"),
        "loo_log_loss_": number,
        "loo_error_": number,
    },
    "SketchedFeatures": {
        **_SKETCHED,
        "projection_": array("s r"),
        "_n_features_out": integer("r"),
    },
    "RandomFourierFeatures": {
        **_LEARNED,
        "frequencies_": array("p pairs"),
        "_n_features_out": integer("features"),
    },
}


# Parameters of any estimator that are checked before the first fit. The others are
# checked by `fit` and do not affect predictions.
PARAMETERS: Rules = {
    "kernel": plain(lambda name, value: as_kernel(value)),
    "sketch": optional(_recipe),
    "bandwidth": optional(_bandwidth),
    "size": _size,
    "alpha": optional(not_negative),
    "loss": _loss,
    "quantiles": plain(check_levels),
    "tol": positive,
    "max_iter": integer(low=1),
    "max_seconds": optional(positive),
    "verbose": integer(),
    "callback": of(type(None)),
    **dict.fromkeys(("fit_intercept", "average", "early_stopping"), of(bool)),
    "random_state": optional(integer()),
}


def check_parameters(params: dict[str, Any]) -> None:
    """Raise an error if a parameter is invalid for `fit`."""
    for name, value in params.items():
        rule = PARAMETERS.get(name.removeprefix("output_"))
        if rule is not None:
            rule(name, value, Scope())


def check_state(
    model: str, fitted: dict[str, Any], params: dict[str, Any]
) -> dict[str, Any]:
    """Return the fitted attributes after checking their consistency."""
    expected = STATES[model]
    scope = Scope()
    unknown = sorted(set(fitted) - {name.removesuffix("?") for name in expected})
    missing = [name for name in expected if name[-1] != "?" and name not in fitted]
    if unknown or missing:
        raise ValueError(
            f"a fitted {model} must have the attributes of its table, got the unknown "
            f"{unknown}, without {missing}"
        )
    for entry, rule in expected.items():
        name = entry.removesuffix("?")
        if name in fitted:
            replaced = rule(name, fitted[name], scope)
            scope.values[name] = fitted[name] if replaced is None else replaced
    for name, axis in _AXES.items():
        if name in params:
            scope.bind(name, axis, len(params[name]))
    return {name: scope.values[name] for name in fitted}
