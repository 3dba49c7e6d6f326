"""Estimators with scikit-learn's contract; the arithmetic lives below them."""

from nbsketch.estimators._growth import AutoSize
from nbsketch.estimators._solver import StochasticSolver
from nbsketch.estimators.classifier import SketchedKernelClassifier
from nbsketch.estimators.regressor import SketchedKernelRegressor
from nbsketch.estimators.sgd import SketchedSGDRegressor
from nbsketch.estimators.spectral import SpectralFilterRegressor

__all__ = [
    "AutoSize",
    "SketchedKernelClassifier",
    "SketchedKernelRegressor",
    "SketchedSGDRegressor",
    "SpectralFilterRegressor",
    "StochasticSolver",
]
