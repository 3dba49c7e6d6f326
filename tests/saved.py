"""A small saved model of each estimator, which all later versions load.

``python tests/saved.py`` writes the files anew: only for a format of files that is not
released yet, or with new names beside the old ones for a new estimator.
"""

from pathlib import Path

import fuzz
import numpy as np

FOLDER = Path(__file__).with_name("saved")


def predictions(model, X):
    """Return what a model makes of rows."""
    for name in "transform", "encode", "predict":
        if hasattr(model, name):
            return getattr(model, name)(X)


def write():
    """Write a model of each estimator, rows, and the predictions for them."""
    FOLDER.mkdir(exist_ok=True)
    expected = {}
    for make in fuzz.models().values():
        model, X = make()
        name = type(model).__name__
        if name not in expected:
            model.save(FOLDER / f"{name}.npz")
            expected[name] = predictions(model, X)
            rows = X  # the same for all
    np.savez_compressed(FOLDER / "expected.npz", X=rows, **expected)


if __name__ == "__main__":
    write()
