"""Estimators with scikit-learn's contract; the arithmetic lives below them."""

from nbsketch.estimators.regressor import SketchedKernelRegressor

__all__ = ["SketchedKernelRegressor"]
