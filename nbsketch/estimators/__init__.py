"""scikit-learn estimators; the computations are in lower modules."""

from nbsketch.estimators.classifier import SketchedKernelClassifier
from nbsketch.estimators.quantile import JointQuantileRegressor
from nbsketch.estimators.regressor import SketchedKernelRegressor
from nbsketch.estimators.sgd import SketchedSGDClassifier, SketchedSGDRegressor
from nbsketch.estimators.spectral import SpectralFilterRegressor

__all__ = [
    "JointQuantileRegressor",
    "SketchedKernelClassifier",
    "SketchedKernelRegressor",
    "SketchedSGDClassifier",
    "SketchedSGDRegressor",
    "SpectralFilterRegressor",
]
