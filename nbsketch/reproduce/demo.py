"""A demo without downloads: multi-output regression with and without a sketch."""

from itertools import product

import numpy as np

from nbsketch.reproduce._data import WITHOUT, Split
from nbsketch.reproduce._report import Rows, as_text
from nbsketch.reproduce.experiment import measure_all
from nbsketch.reproduce.p_sparsified import table2

METHODS = WITHOUT, *table2.SPARSIFIED
N_TRAIN = 4000
N_TEST = 1000
N_FEATURES = 6
N_TARGETS = 5
_SETTING = {"bandwidth": 4.0, "alpha": 1e-6}
_REPLICATES = 5


def make_smooth_targets() -> Split:
    """Return inputs in six dimensions and five smooth functions of them, with noise."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(N_TRAIN + N_TEST, N_FEATURES))
    directions = rng.normal(size=(N_FEATURES, N_TARGETS)) / np.sqrt(N_FEATURES)
    Y = np.sin(3 * X @ directions) + X[:, :1] * X[:, 1:2]
    Y += 0.1 * rng.normal(size=Y.shape)
    return Split.of((X[:N_TRAIN], Y[:N_TRAIN]), (X[N_TRAIN:], Y[N_TRAIN:]))


def run() -> Rows:
    """Fit with and without a sketch; print errors and times, and return the rows."""
    split = make_smooth_targets()
    print(
        f"Kernel ridge regression on {N_TRAIN} samples, {N_FEATURES} features and "
        f"{N_TARGETS} targets, without a sketch\n"
        f"and with p-sparsified sketches of size {table2.SIZE} (20/n-SR: Rademacher, "
        "20/n-SG: Gaussian entries).\n"
        "arrmse: mean over the targets of the error relative to that of the training "
        "mean."
    )
    points = [
        ("synthetic", method, split, _SETTING, seed)
        for method, seed in product(METHODS, range(_REPLICATES))
    ]
    rows = table2.compare(measure_all(points, table2.measure, "{1}"), ["arrmse"], min)
    print(as_text(rows))
    sketched = rows[-1]
    print(
        f"\nA p-sparsified sketch trains {sketched['faster']:.0f} times faster; "
        f"error {sketched['arrmse']:.3f} against {rows[0]['arrmse']:.3f}."
    )
    return rows
