"""Learning what a kernel machine leaves open: length-scales, inputs, family, size."""

from nbsketch.tuning.inputs import InputScaler, fit_scaler
from nbsketch.tuning.tuner import Tuned, tune

__all__ = ["InputScaler", "Tuned", "fit_scaler", "tune"]
