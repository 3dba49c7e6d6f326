"""Data frames as numbers."""

import numpy as np
import pandas as pd

from benchmarks.common import choose, identity
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
