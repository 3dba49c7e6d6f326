"""Numbers in sentences of the documentation are those of the files of results."""

import importlib.util
import json
import re

import pytest
from conftest import ROOT

PAGE = (ROOT / "docs" / "reproduction.rst").read_text(encoding="utf-8")
REPRODUCED = sorted(set(re.findall(r"\.\. results:: (?!paper_)(\w+)", PAGE)))


@pytest.fixture(scope="module")
def numbers():
    path = ROOT / "docs" / "check_numbers.py"
    spec = importlib.util.spec_from_file_location("check_numbers", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_numbers_of_the_pages(numbers):
    assert numbers.check() == []


@pytest.mark.parametrize("name", REPRODUCED)
def test_results_have_a_commit_and_a_command(name):
    path = ROOT / "docs" / "results" / f"{name}.json"
    known = json.loads(path.read_text(encoding="utf-8"))
    assert re.match("[0-9a-f]{7}", known["commit"])
    assert known["command"].startswith("nbsketch reproduce")


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
