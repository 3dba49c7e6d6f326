"""Numbers in sentences of the documentation are those of the files of results."""

import importlib.util

import pytest
from conftest import ROOT


@pytest.fixture(scope="module")
def numbers():
    path = ROOT / "docs" / "check_numbers.py"
    spec = importlib.util.spec_from_file_location("check_numbers", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_numbers_of_the_pages(numbers):
    assert numbers.check() == []


@pytest.mark.parametrize("text", ["errors .05 and -3 s", "errors .055 and -2.6 s"])
def test_rounded_numbers_pass(numbers, text):
    assert list(numbers.problems(text, "errors {} and {} s", [0.0549, -2.6])) == []


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("errors .056 and -2.6 s", ".056 is 0.0549"),
        ("errors .055 and 2.6 s", "2.6 is -2.6"),
        ("errors in .055 s", "not on the page"),
    ],
)
def test_problems_are_found(numbers, text, problem):
    (line,) = numbers.problems(text, "errors {} and {} s", [0.0549, -2.6])
    assert problem in line
