"""What type checkers infer of the public names: ``mypy`` and ``basedpyright``."""

from typing import assert_type

import numpy as np
from numpy.typing import NDArray

import nbsketch
from nbsketch import (
    HuberLoss,
    JointQuantileRegressor,
    SketchedKernelClassifier,
    SketchedKernelRegressor,
    SketchedSGDRegressor,
    TabularKernelClassifier,
    TabularKernelRegressor,
)

X = np.zeros((10, 2))
y = X[:, 0]
model = SketchedKernelRegressor(loss=HuberLoss(kappa=0.2), random_state=0).fit(X, y)
assert_type(model, SketchedKernelRegressor)
assert_type(model.predict(X), NDArray)
assert_type(model.predict(X, return_std=True), tuple[NDArray, NDArray])
assert_type(model.fit_path(X, y, [1.0]), list[SketchedKernelRegressor])
assert_type(SketchedSGDRegressor().partial_fit(X, y).predict(X), NDArray)
quantiles = JointQuantileRegressor((0.1, 0.9)).fit(X, y)
assert_type(quantiles.predict_interval(X, coverage=0.8), NDArray)
assert_type(quantiles.predict_quantiles(X, [0.2]), NDArray)
classifier = SketchedKernelClassifier(loss="logistic").fit(X, y > 0)
assert_type(classifier.predict(X), NDArray)
assert_type(classifier.predict_proba(X), NDArray)
table = TabularKernelRegressor(random_state=0).fit(X, y)
assert_type(table.predict_interval(X, coverage=0.9), NDArray)
assert_type(TabularKernelClassifier().fit(X, y > 0).predict_proba(X), NDArray)
assert_type(nbsketch.explain.shapley_values(model, X), NDArray)
intervals = nbsketch.conformal.ConformalRegressor(model).fit(X, y)
assert_type(intervals.predict_interval(X), NDArray)
