"""Data frames as numbers, and fits of tables."""

import numpy as np
import pandas as pd

from benchmarks.common import choose, identity
from nbsketch import TabularKernelClassifier, TabularKernelRegressor
from nbsketch.tabular.columns import fit_columns

version = identity(__file__)

COLUMNS = choose(fast=600, regular=6000)


class OneRow:
    """One row of a frame with many columns, as in a service."""

    def setup(self):
        values = np.random.default_rng(0).random((30, COLUMNS))
        X = pd.DataFrame(values, columns=[f"x{j}" for j in range(COLUMNS)])
        self.columns, _ = fit_columns(X, np.arange(30.0))
        self.row = X[:1]

    def time_transform(self):
        self.columns.transform(self.row)


class Fits:
    """Fits of the estimators for tables: a single leaf, and a base with leaves."""

    params = ("regression", "classes"), (500, choose(fast=1600, regular=10_000))
    param_names = "task", "rows"

    def setup(self, task, rows):
        rng = np.random.default_rng(0)
        self.X = rng.normal(size=(rows, 8))
        noise = 0.3 * rng.normal(size=rows)
        self.y = np.sin(2 * self.X[:, 0]) * self.X[:, 1] + self.X[:, 2] ** 2 + noise
        self.model = TabularKernelRegressor(random_state=0)
        if task == "classes":
            self.y = self.y > 1
            self.model = TabularKernelClassifier(random_state=0)
        self.model.fit(self.X, self.y)

    def time_fit(self, task, rows):
        self.model.fit(self.X, self.y)

    def time_predict(self, task, rows):
        self.model.predict(self.X)

    def time_predict_one_row(self, task, rows):
        self.model.predict(self.X[:1])
