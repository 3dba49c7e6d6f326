"""Rules for the fitted attributes in a model file: types, shapes and bounds.

Those that any field can have are in `nbsketch._fields`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from nbsketch._fields import Rule, Scope, array
from nbsketch._validation import check_array_of, check_integer, check_real, check_rows
from nbsketch.kernels import Kernel, PrecomputedKernel
from nbsketch.sketches import Sketch
from nbsketch.tuning import InputScaler

# Largest number of features: some numbers for each of them are held in memory.
MOST_FEATURES = 2**24


def names_of(axis: str) -> Rule:
    """Return the rule of an array of texts, one for each entry of an axis."""

    def rule(name: str, value: Any, scope: Scope) -> Any:
        check_array_of(name, value, "O", 1)
        scope.bind(name, axis, value.size)
        if not all(isinstance(text, str) for text in value):
            raise TypeError(f"`{name}` must hold texts, got other objects")
        return value

    return rule


def table(*columns: str) -> Rule:
    """Return the rule of a dict of arrays of one length, some of these columns."""

    def rule(name: str, value: Any, scope: Scope) -> Any:
        if not isinstance(value, dict) or not set(value) <= set(columns):
            raise ValueError(
                f"`{name}` must have the keys {columns}, got {value!r:.60}"
            )
        for key, column in value.items():
            check_array_of(f"{name}.{key}", column, "fiu", 1)
            scope.bind(f"{name}.{key}", f"rows of {name}", column.size)
        return value

    return rule


def seconds(name: str, value: Any, scope: Scope) -> Any:
    """Accept the times of named stages."""
    if not isinstance(value, dict):
        raise TypeError(f"`{name}` must be a dict of numbers, got {value!r:.60}")
    for key, spent in value.items():
        check_real(f"{name}.{key}", spent, low=0, high_open=True)
    return value


def scaler(q: str, p: str) -> Rule:
    """Return the rule of an `InputScaler` from q features to p columns, or None."""

    def rule(name: str, value: Any, scope: Scope) -> Any:
        if value is None:
            scope.bind(name, p, scope.lengths[q])
            return value
        if not isinstance(value, InputScaler):
            raise TypeError(f"`{name}` must be an InputScaler, got {value!r:.60}")
        scope.bind(f"{name}.n_features", q, value.n_features)
        scope.bind(f"{name}.center", p, value.center.size)
        return value

    return rule


def kernel(name: str, value: Any, scope: Scope) -> Kernel:
    """Accept any kernel; `landmarks` compares its parameters with the features."""
    if not isinstance(value, Kernel):
        raise TypeError(f"`{name}` must be a kernel, got {value!r:.60}")
    return value


def sketch(s: str, n: str, m: str) -> Rule:
    """Return the rule of a sketch of shape (s, n) with m columns that are not zero."""

    def rule(name: str, value: Any, scope: Scope) -> Sketch:
        if not isinstance(value, Sketch):
            raise TypeError(f"`{name}` must be a drawn sketch, got {value!r:.60}")
        for axis, length in zip((s, n), value.shape, strict=True):
            scope.bind(name, axis, length)
        columns = value.columns.size
        if columns == 0:
            raise ValueError(f"`{name}` must have a nonzero entry, got zeros only")
        scope.bind(name, m, columns)
        return value

    return rule


def landmarks(kernel_name: str, m: str, p: str, n: str) -> Rule:
    """Return the rule of m landmarks of a kernel, rows with p columns.

    For a precomputed kernel they are indices of training rows, of which the sketch has
    n: those of positive weight.
    """

    def rule(name: str, value: Any, scope: Scope) -> Any:
        found: Kernel = scope.values[kernel_name]
        if isinstance(found, PrecomputedKernel):
            width = scope.lengths.get(p, scope.lengths[n])
            scope.bind(name, p, max(width, scope.lengths[n]))
        elif not sp.issparse(value):
            check_array_of(name, value, "f", 2)
        else:
            check_integer(f"{name}.shape", value.shape[1], high=MOST_FEATURES)
        if p not in scope.lengths:
            scope.bind(name, p, value.shape[1])
        rows = found.check_landmarks(value, scope.lengths[p])
        found.compiled_form(scope.lengths[p])  # raises if its parameters do not fit
        scope.bind(name, m, rows.shape[0])
        return rows

    return rule


def rows(kernel_name: str, c: str, p: str) -> Rule:
    """Return the rule of c outputs with p columns, of any type of numbers.

    For a precomputed kernel they are the indices of all training outputs.
    """

    def rule(name: str, value: Any, scope: Scope) -> Any:
        if isinstance(scope.values[kernel_name], PrecomputedKernel):
            array(c, "i")(name, value, scope)
            if (value != np.arange(value.size)).any():
                raise ValueError(f"`{name}` must be all indices in order")
            return value
        if not sp.issparse(value):
            check_array_of(name, value, "fiub", 2)
        checked = check_rows(name, value, n_features=scope.lengths[p])
        scope.values[kernel_name].check_domain(name, checked)
        scope.bind(name, c, checked.shape[0])
        return value

    return rule


def coefficients(s: str, d: str) -> Rule:
    """Return the rule of coefficients (s,) of one output or (s, d) of several.

    The length of the axis d is 0 for the former.
    """

    def rule(name: str, value: Any, scope: Scope) -> Any:
        single = np.ndim(value) == 1
        array(s if single else f"{s} {d}")(name, value, scope)
        scope.bind(name, d, 0 if single else value.shape[1])
        if not single and value.shape[1] == 0:
            raise ValueError(f"`{name}` must have an output, got shape {value.shape}")
        return value

    return rule


def intercepts(d: str) -> Rule:
    """Return the rule of the intercepts that go with `coefficients`."""

    def rule(name: str, value: Any, scope: Scope) -> Any:
        if scope.lengths[d]:
            return array(d)(name, value, scope)
        return check_real(name, value, low_open=True, high_open=True)

    return rule


def same_as(attribute: str, part: str) -> Rule:
    """Return the rule of a copy of a part of another attribute, None if it has none."""

    def rule(name: str, value: Any, scope: Scope) -> Any:
        expected = getattr(scope.values[attribute], part, None)
        if type(value) is not type(expected) or value != expected:
            raise ValueError(f"`{name}` must be {expected!r:.60}, got {value!r:.60}")
        return value

    return rule
