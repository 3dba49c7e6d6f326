"""Prediction intervals and sets whose coverage is guaranteed, for any estimator."""

from nbsketch.conformal.classifier import ConformalClassifier
from nbsketch.conformal.regressor import ConformalRegressor

__all__ = ["ConformalClassifier", "ConformalRegressor"]
