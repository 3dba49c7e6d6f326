"""The stub of the package, and what methods say they return."""

import ast
import inspect
import typing

import pytest
from conftest import ROOT
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

import nbsketch
from nbsketch._report.validation import declares_parameters
from nbsketch.conformal import ConformalClassifier, ConformalRegressor

PUBLIC = [getattr(nbsketch, name) for name in nbsketch.__all__]
ESTIMATORS = [c for c in PUBLIC if inspect.isclass(c) and issubclass(c, BaseEstimator)]
ESTIMATORS += [ConformalRegressor, ConformalClassifier]
# Structured outputs are of any type.
ANY = {("InputOutputKernelRegressor", "predict")}
RETURNS_ARRAYS = "predict", "decision_function", "transform", "fit_transform"


def test_the_stub_has_the_table_of_names():
    tree = ast.parse((ROOT / "nbsketch" / "__init__.pyi").read_text("utf-8"))
    modules = {}
    for node in tree.body:
        if isinstance(node, ast.ImportFrom):
            assert all(alias.name == alias.asname for alias in node.names)
            modules |= {alias.name: node.module for alias in node.names}
    expected = nbsketch._MODULE_OF | dict.fromkeys(nbsketch._SUBMODULES, "nbsketch")
    assert modules == expected
    declared = {n.target.id for n in tree.body if isinstance(n, ast.AnnAssign)}
    assert declared == {"__version__", "__all__"}


def arrays(estimator):
    """Yield the methods whose result is an array."""
    for name, method in inspect.getmembers(estimator):
        stem = name if name in RETURNS_ARRAYS else name.partition("_")[0]
        known = stem in RETURNS_ARRAYS and (estimator.__name__, name) not in ANY
        if known and method.__module__.startswith("nbsketch") and "topk" not in name:
            yield method


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda c: c.__name__)
def test_methods_say_that_they_return_arrays(estimator):
    for method in arrays(estimator):
        forms = typing.get_overloads(method) or [method]
        assert typing.get_type_hints(forms[0])["return"] == NDArray, method


def test_decorators_of_classes_keep_the_type():
    hints = typing.get_type_hints(declares_parameters)
    assert hints["return"] == hints["estimator"]
    assert isinstance(typing.get_args(hints["return"])[0], typing.TypeVar)


@pytest.mark.parametrize("name", ["rowwise", "available_where"])
def test_decorators_keep_the_type_of_a_method(name):
    hints = typing.get_type_hints(getattr(nbsketch.rows.inputs, name))
    (given,), returned = typing.get_args(hints["return"])
    assert given is returned
    assert isinstance(given, typing.TypeVar)


@pytest.mark.parametrize(
    "others", ["kept", pytest.param("forgotten", marks=pytest.mark.full)]
)
def test_modules_are_attributes_before_they_are_imported(run_python, others):
    """All of them, from a package that has imported no other or has what they need."""
    code = f"""
import sys, nbsketch
for name in sorted(nbsketch._SUBMODULES):
    mine = "nbsketch." + (name if {others!r} == "kept" else "")
    for module in [m for m in sys.modules if m.startswith(mine)]:
        del sys.modules[module]
        vars(nbsketch).pop(module.split(".")[1], None)
    assert name not in vars(nbsketch)
    assert getattr(nbsketch, name).__name__ == f"nbsketch.{{name}}"
print("all")
"""
    assert run_python(code) == "all"
