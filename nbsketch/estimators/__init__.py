"""Estimators with scikit-learn's contract; the arithmetic lives below them."""

from nbsketch.estimators._solver import StochasticSolver
from nbsketch.estimators.classifier import SketchedKernelClassifier
from nbsketch.estimators.regressor import SketchedKernelRegressor

__all__ = ["SketchedKernelClassifier", "SketchedKernelRegressor", "StochasticSolver"]
