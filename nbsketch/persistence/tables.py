"""Rules for the models of tables: nested tuples of arrays, checked one with another."""

from __future__ import annotations

from typing import Any

import numpy as np

from nbsketch._validation import (
    check_array_of,
    check_choice,
    check_positive,
)
from nbsketch.kernels import LEARNABLE
from nbsketch.persistence.rules import Scope, array, scaler
from nbsketch.tabular.columns import TableColumns

_MACHINE = (
    "scaler",
    "low",
    "high",
    "center",
    "spread",
    "y_low",
    "y_high",
    "rows",
    "base",
    "base_scales",
    "members",
    "weights",
)


def columns(name: str, value: Any, scope: Scope) -> Any:
    """Accept fitted encodings of the columns of a table."""
    if not isinstance(value, TableColumns):
        raise TypeError(f"`{name}` must be encodings of columns, got {value!r:.60}")
    scope.bind(name, "q", len(value.columns))
    scope.bind(name, "features", len(value.kept))
    return value


def machine(name: str, value: Any, scope: Scope) -> Any:
    """Accept the parts of a `nbsketch.tabular.machine.Machine`."""
    parts = dict(zip(_MACHINE, _tuple(name, value, len(_MACHINE)), strict=True))
    scaler("features", "p")(f"{name}.scaler", parts["scaler"], scope)
    for key, axes in (
        *dict.fromkeys(("low", "high"), "features").items(),
        *dict.fromkeys(("center", "spread", "y_low", "y_high"), "d").items(),
        ("rows", "n p"),
        ("weights", "members"),
    ):
        array(axes)(f"{name}.{key}", parts[key], scope)
    array("p", positive=True)(f"{name}.base_scales", parts["base_scales"], scope)
    if parts["base"] is not None:
        base(f"{name}.base", parts["base"], scope)
    members = _tuple(f"{name}.members", parts["members"], scope.lengths["members"])
    for i, part in enumerate(members):
        _member(f"{name}.members.{i}", part, scope)
    return value


def base(name: str, value: Any, scope: Scope) -> Any:
    """Accept the parts of a `nbsketch.tabular.ridge.LandmarkFunction`."""
    landmarks, coef, intercept = _tuple(name, value, 3)
    array(f"{name} p")(f"{name}.landmarks", landmarks, scope)
    array(f"{name} d")(f"{name}.coef", coef, scope)
    array("d")(f"{name}.intercept", intercept, scope)
    return value


def noise(name: str, value: Any, scope: Scope) -> Any:
    """Accept the parts of a `nbsketch.tabular.noise.Noise`."""
    size, scores, shares = _tuple(name, value, 3)
    base(f"{name}.size", size, scope)
    array("scores d")(f"{name}.scores", scores, scope)
    array("scores d")(f"{name}.shares", shares, scope)
    if (np.diff(scores, axis=0) < 0).any() or (shares < 0).any():
        raise ValueError(f"`{name}` must have ascending scores, got others")
    return value


def calibration(name: str, value: Any, scope: Scope) -> Any:
    """Accept the parts of a `nbsketch.tabular.calibration.Calibration`."""
    slopes, offsets, least = _tuple(name, value, 3)
    check_array_of(f"{name}.slopes", slopes, "f", 1)
    if slopes.shape != (2,) or not (slopes >= 0).all() or np.isinf(slopes).any():
        raise ValueError(f"`{name}.slopes` must be two finite slopes, got {slopes}")
    check_array_of(f"{name}.offsets", offsets, "f", 1)
    expected = scope.values["classes_"].size
    if offsets.size != expected or not np.isfinite(offsets).all():
        raise ValueError(f"`{name}.offsets` must be {expected} numbers, got {offsets}")
    check_positive(f"{name}.least", least)
    return value


def _member(name: str, value: Any, scope: Scope) -> None:
    family, scales, tau, tree, is_on_base = _tuple(name, value, 5)
    check_choice(f"{name}.family", family, LEARNABLE)
    array("p", positive=True)(f"{name}.scales", scales, scope)
    check_positive(f"{name}.tau", tau)
    if not isinstance(is_on_base, bool):
        raise TypeError(f"`{name}.is_on_base` must be a bool, got {is_on_base!r:.60}")
    _tree(f"{name}.tree", tree, scope)


def _tree(name: str, value: Any, scope: Scope) -> None:
    partition, coef, intercept = _tuple(name, value, 3)
    feature, threshold, child, order, starts = _tuple(f"{name}.partition", partition, 5)
    nodes, leaves = f"nodes.{name}", f"leaves.{name}"
    array("n d")(f"{name}.coef", coef, scope)
    array(f"{leaves} d")(f"{name}.intercept", intercept, scope)
    array("n", "i")(f"{name}.order", order, scope)
    array(nodes, "i")(f"{name}.feature", feature, scope)
    array(nodes)(f"{name}.threshold", threshold, scope)
    array(nodes, "i")(f"{name}.child", child, scope)
    check_array_of(f"{name}.starts", starts, "i", 1)
    n, p, count = (scope.lengths[axis] for axis in ("n", "p", leaves))
    if starts.size != count + 1 or starts[0] != 0 or starts[-1] != n:
        raise ValueError(f"`{name}.starts` must go from 0 to {n}, got others")
    if (np.diff(starts) <= 0).any() or not np.array_equal(np.sort(order), np.arange(n)):
        raise ValueError(f"`{name}` must have each row in one leaf, got others")
    is_leaf, index = feature < 0, np.arange(feature.size)
    # Children come after their parents, so that no path has a cycle.
    inner = (child > index) & (child < feature.size - 1) & (feature < p)
    at_leaf = (child >= 0) & (child < count)
    if not np.where(is_leaf, at_leaf, inner).all():
        raise ValueError(f"`{name}` must be a binary tree, got other nodes")


def _tuple(name: str, value: Any, length: int) -> tuple[Any, ...]:
    if not isinstance(value, tuple) or len(value) != length:
        raise ValueError(f"`{name}` must have {length} parts, got {value!r:.60}")
    return value
