"""Compile what the estimators use: one small fit and prediction of each kind."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np

import nbsketch

# Rows of a small fit, of one that has conjugate gradients, and columns.
_SMALL, _LARGE, _COLUMNS = 200, 5000, 5

# Estimators by name: class, parameters, rows, and whether the targets are classes.
_KINDS: dict[str, tuple[str, dict[str, Any], int, bool]] = {
    "regression": ("SketchedKernelRegressor", {}, _SMALL, False),
    "regression, thousands of rows": ("SketchedKernelRegressor", {}, _LARGE, False),
    "regression on a sketch": ("SketchedKernelRegressor", {"size": 50}, _SMALL, False),
    "robust regression": ("SketchedKernelRegressor", {"loss": "huber"}, _SMALL, False),
    "robust regression, thousands of rows": (
        "SketchedKernelRegressor",
        {"loss": "huber"},
        _LARGE,
        False,
    ),
    "classification": ("SketchedKernelClassifier", {}, _SMALL, True),
    "probabilities": ("SketchedKernelClassifier", {"loss": "logistic"}, _SMALL, True),
    "joint quantiles": ("JointQuantileRegressor", {}, _SMALL, False),
    "tables": ("TabularKernelRegressor", {}, _SMALL, False),
    "tables, thousands of rows": ("TabularKernelRegressor", {}, _LARGE, False),
    "tables, classes": ("TabularKernelClassifier", {}, _SMALL, True),
}


def compile_all() -> Iterator[tuple[str, float]]:
    """Fit and predict with each kind of model; yield its name and the seconds."""
    for name, (cls, parameters, n, has_classes) in _KINDS.items():
        rng = np.random.default_rng(0)
        X = rng.normal(size=(n, _COLUMNS))
        y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=n)
        model = getattr(nbsketch, cls)(random_state=0, **parameters)
        began = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of data that mean nothing
            model.fit(X, y > 0 if has_classes else y).predict(X)
        yield name, time.perf_counter() - began
