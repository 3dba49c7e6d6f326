"""Rules for the fields of model objects: types, shapes and bounds.

A rule is called with the name of a field, its value and the `Scope` of the model. It
raises an error or returns a replacement of the value, or None to keep it. Axes have
names, such as "s" for the rows of the sketch: the first rule that meets a name fixes
its length, and later rules compare.

A class made by `stored` checks its fields in its constructor, by the rules in their
annotations, and may be part of a model file.
"""

import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cache
from importlib import import_module
from typing import Annotated, Any, ClassVar, TypeVar

import numpy as np

from nbsketch._report.validation import (
    check_array_of,
    check_choice,
    check_finite,
    check_integer,
    check_level,
    check_no_class,
    check_positive,
    check_real,
)

T = TypeVar("T")
# Classes that model files can name in addition to the public ones.
STORED: dict[str, type] = {}
NO_AXES: Mapping[str, Any] = {}
# Axes that may be empty: a single output, and features of a zero kernel.
_MAY_BE_EMPTY = "d", "r", "t"


@dataclass
class Scope:
    """Lengths of axes and attributes of a model that are already checked."""

    lengths: dict[str, int] = field(default_factory=dict)
    values: dict[str, Any] = field(default_factory=dict)

    def bind(self, name: str, axis: str, length: int) -> None:
        """Fix the length of an axis, or compare it; "d", "r" and "t" can have length 0.

        An axis that starts with an underscore belongs to its object.
        """
        if length < 1 and axis not in _MAY_BE_EMPTY:
            raise ValueError(f"`{name}` must have entries, got none")
        key = f"{name.rpartition('.')[0]}.{axis}" if axis[0] == "_" else axis
        expected = self.lengths.setdefault(key, length)
        if length != expected:
            raise ValueError(f"`{name}` must have length {expected}, got {length}")

    def bind_axes(self, name: str, axes: Sequence[str], shape: Sequence[int]) -> None:
        """Fix or compare the length of each axis of a shape."""
        for axis, length in zip(axes, shape, strict=True):
            self.bind(name, axis, length)


Rule = Callable[[str, Any, Scope], Any]


def rules(**by_name: Rule) -> Mapping[str, Rule]:
    """Return the table of rules of the parameters of a class, see `Checked`."""
    return by_name


class Checked:
    """Base of frozen dataclasses with rules for their parameters in a class table.

    The value returned by a rule replaces the parameter; rules of bases come first.
    """

    _rules: ClassVar[Mapping[str, Rule]] = {}

    def __post_init__(self) -> None:
        for cls in reversed(type(self).__mro__):
            for name, rule in vars(cls).get("_rules", {}).items():
                checked = rule(name, getattr(self, name), Scope())
                if checked is not None:
                    object.__setattr__(self, name, checked)


def named_object(
    noun: str,
    value: Any,
    by_name: Mapping[str, type],
    base: Any,
    prefix: str = "",
    **parameters: Any,
) -> Any:
    """Return an object given directly or by name; a name also takes parameters.

    Errors call it a `noun` and prepend `prefix` to the names of all arguments.
    """
    name = f"{prefix}{noun}"
    check_no_class(name, value)
    given = {key: number for key, number in parameters.items() if number is not None}
    if isinstance(value, str):
        family = by_name[check_choice(name, value, by_name)]
        for key, number in given.items():
            if key not in getattr(family, "__dataclass_fields__", {}):
                raise ValueError(
                    f"`{prefix}{key}` must be None for {name}={value!r}, got {number!r}"
                )
        return family(**given)
    if not isinstance(value, base):
        raise TypeError(f"`{name}` must be a name or a {base.__name__}, got {value!r}")
    for key, number in given.items():
        raise ValueError(
            f"`{prefix}{key}` requires the name of a {noun}, got {key}={number!r} and "
            f"{name}={value!r}: set it in the object instead"
        )
    return value


def register(cls: type[T]) -> type[T]:
    """Register a class for model files, to be recreated by its constructor.

    The arguments are attributes of the same names.
    """
    STORED[cls.__name__] = cls
    return cls


def named_class(name: Any) -> Any:
    """Return the registered or public class of a name; others are an error."""
    cls = STORED.get(str(name))
    package = import_module("nbsketch")
    if cls is None and name in package.__all__:
        cls = getattr(package, name)
    if not isinstance(cls, type):
        raise ValueError(f"the model file needs {name!r}, which nbsketch does not have")
    return cls


@typing.dataclass_transform(eq_default=False, frozen_default=True)
def stored(cls: type[T]) -> type[T]:
    """Make a frozen dataclass that checks its fields and can be in a model file.

    Its own `__post_init__` runs after the checks. Copies and pickles have the fields
    alone, not what predictions have prepared.
    """
    check_further = vars(cls).get("__post_init__")

    def __post_init__(self: Any) -> None:
        check_fields(self)
        if check_further:
            check_further(self)

    def __getstate__(self: Any) -> dict[str, Any]:
        return {f.name: getattr(self, f.name) for f in fields(self)}

    cls.__post_init__ = __post_init__  # type: ignore[attr-defined]
    cls.__getstate__ = __getstate__  # type: ignore[method-assign]
    return register(dataclass(frozen=True, eq=False)(cls))


def check_fields(value: Any, scope: Scope | None = None, path: str = "") -> None:
    """Raise an error if the fields of an object do not match their annotations."""
    scope = Scope() if scope is None else scope
    for name, hint in _hints(value.__class__).items():
        _check(f"{path}{name}", getattr(value, name), hint, scope)


@cache
def _hints(cls: Any) -> dict[str, Any]:
    return typing.get_type_hints(cls, include_extras=True)


def _check(name: str, value: Any, hint: Any, scope: Scope) -> None:
    parts = typing.get_args(hint)
    if typing.get_origin(hint) is Annotated:
        parts[1](name, value, scope)
    elif typing.get_origin(hint) is tuple:  # of any length
        if not isinstance(value, tuple):
            raise TypeError(f"`{name}` must be a tuple, got {value!r:.60}")
        for i, part in enumerate(value):
            _check(f"{name}.{i}", part, parts[0], scope)
    elif typing.get_origin(hint) is np.ndarray or not parts:
        of(typing.get_origin(hint) or hint)(name, value, scope)
    elif value is not None:  # the hint is X | None
        _check(name, value, parts[0], scope)


def of(kind: type | str, axes: Mapping[str, Callable[[Any], int]] = NO_AXES) -> Rule:
    """Return the rule for an object of a class, or of a stored or public class name.

    `axes` gives the length of some axes as functions of the object.
    """

    def rule(name: str, value: Any, scope: Scope) -> None:
        cls = named_class(kind) if isinstance(kind, str) else kind
        if not isinstance(value, cls):
            raise TypeError(
                f"`{name}` must be of type {cls.__name__}, got {value!r:.60}"
            )
        if type(value).__name__ in STORED:
            check_fields(value, scope, f"{name}.")
        for axis, length in axes.items():
            scope.bind(name, axis, length(value))

    return rule


def optional(rule: Rule) -> Rule:
    """Return a rule that also accepts None, which its errors mention."""

    def rule_or_none(name: str, value: Any, scope: Scope) -> Any:
        try:
            return None if value is None else rule(name, value, scope)
        except (TypeError, ValueError) as error:
            text = str(error).replace(", got ", " or None, got ", 1)
            raise type(error)(text) from None

    return rule_or_none


def plain(check: Callable[..., Any], **bounds: Any) -> Rule:
    """Return the rule for a check without scope, such as `check_real`."""
    return lambda name, value, scope: check(name, value, **bounds)


def choice(*values: Any) -> Rule:
    """Return the rule for one of some values."""
    return plain(check_choice, choices=values)


positive = plain(check_positive)  # and finite
not_negative = plain(check_real, low=0, high_open=True)
finite = plain(check_real, low_open=True, high_open=True)
share = plain(check_real, low=0, high=1, low_open=True)
level = plain(check_level)
count = plain(check_integer)  # an integer from 1 on


def integer(axis: str | None = None, low: int = 0, high: int = 2**62) -> Rule:
    """Return the rule for an integer, the length of an axis if one is named."""

    def rule(name: str, value: Any, scope: Scope) -> None:
        number = check_integer(name, value, low=low, high=high)
        if axis is not None:
            scope.bind(name, axis, number)

    return rule


def number(name: str, value: Any, scope: Scope) -> None:
    """Accept any real number; infinity and NaN mean unknown."""
    if value == value:
        check_real(name, value)


def array(
    axes: str, kinds: str = "f", *, finite: bool = True, positive: bool = False
) -> Rule:
    """Return the rule for an array with named axes, such as "s d".

    `finite` and `positive` are required of its numbers.
    """
    names = axes.split()

    def rule(name: str, value: Any, scope: Scope) -> None:
        check_array_of(name, value, kinds, len(names))
        scope.bind_axes(name, names, value.shape)
        if finite and value.dtype.kind == "f":
            check_finite(name, value)
        if positive and not (value > 0).all():
            raise ValueError(f"`{name}` must be positive, got other numbers")

    return rule


def entries(**rules: Rule) -> Rule:
    """Return the rule for a dict with exactly these keys, one rule per value."""

    def rule(name: str, value: Any, scope: Scope) -> None:
        if not isinstance(value, dict) or set(value) != set(rules):
            raise ValueError(
                f"`{name}` must have the parts {set(rules)}, got {value!r:.60}"
            )
        for key, inner in rules.items():
            inner(f"{name}.{key}", value[key], scope)

    return rule
