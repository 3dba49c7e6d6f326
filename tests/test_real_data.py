"""Default estimators on real data that comes with scikit-learn: no download."""

import numpy as np
import pytest
from lightgbm import LGBMRegressor
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_wine
from sklearn.model_selection import train_test_split

from nbsketch import (
    JointQuantileRegressor,
    SketchedKernelClassifier,
    SketchedKernelRegressor,
)
from nbsketch.metrics import pinball_loss


def halves(load, seed=0):
    """Return X, X_test, y, y_test of equal size."""
    X, y = load(return_X_y=True)
    return train_test_split(X, y, test_size=0.5, random_state=seed)


def test_diabetes_is_predicted_better_than_by_trees():
    ratios = []
    for seed in range(3):
        X, X_test, y, y_test = halves(load_diabetes, seed)
        errors = [
            np.sqrt(np.mean((model.fit(X, y).predict(X_test) - y_test) ** 2))
            for model in (
                SketchedKernelRegressor(random_state=0),
                LGBMRegressor(n_estimators=100, verbose=-1, n_jobs=1),
            )
        ]
        ratios.append(errors[0] / errors[1])
    assert np.mean(ratios) < 0.95


@pytest.mark.parametrize(
    ("load", "accuracy"),
    [(load_breast_cancer, 0.95), (load_wine, 0.92), (load_digits, 0.96)],
)
def test_classes(load, accuracy):
    X, X_test, y, y_test = halves(load)
    model = SketchedKernelClassifier(random_state=0).fit(X, y)
    assert model.score(X_test, y_test) > accuracy


def test_intervals_of_diabetes_have_their_coverage():
    """And a smaller loss than the quantiles of all targets."""
    covered = []
    for seed in range(4):
        X, X_test, y, y_test = halves(load_diabetes, seed)
        model = JointQuantileRegressor((0.1, 0.5, 0.9), calibration=0.3, random_state=0)
        low, high = model.fit(X, y).predict_interval(X_test, coverage=0.8).T
        covered.append(np.mean((low <= y_test) & (y_test <= high)))
        constant = np.quantile(y, [0.1, 0.5, 0.9])
        ours = pinball_loss(y_test, model.predict(X_test), [0.1, 0.5, 0.9])
        base = pinball_loss(
            y_test, np.tile(constant, (len(y_test), 1)), [0.1, 0.5, 0.9]
        )
        assert np.sum(ours) < 0.85 * np.sum(base)
    assert 0.74 < np.mean(covered) < 0.88
