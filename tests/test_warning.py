"""Warnings name the line of the user's code."""

import re
from pathlib import Path

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import cross_val_predict

import nbsketch
from nbsketch import OutlierWarning, SketchedKernelRegressor, TabularKernelRegressor

HERE = str(Path(__file__))
PACKAGE = Path(nbsketch.__file__).parent


@pytest.fixture
def outlying(rng):
    X = rng.normal(size=(100, 2))
    y = np.sin(X[:, 0])
    y[7] = 1e4
    return X, y


@pytest.mark.parametrize("kind", [SketchedKernelRegressor, TabularKernelRegressor])
def test_warnings_of_fits_name_the_line_of_the_user(kind, outlying):
    with pytest.warns(OutlierWarning) as caught:
        kind(random_state=0).fit(*outlying)
    assert [warning.filename for warning in caught] == [HERE]


def test_warnings_below_another_package_name_its_line(outlying):
    model = SketchedKernelRegressor(loss="huber", max_iter=1, random_state=0)
    with pytest.warns(ConvergenceWarning) as caught:
        cross_val_predict(model, *outlying, cv=2)
    assert all("sklearn" in warning.filename for warning in caught)


def test_no_level_of_a_stack_is_counted_by_hand():
    sources = [p for p in PACKAGE.rglob("*.py") if p.name != "validation.py"]
    assert not [p for p in sources if re.search(r"warnings\.warn\(", p.read_text())]
