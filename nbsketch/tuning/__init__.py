"""Learn length scales, preprocessing and feature selection from the data."""

from nbsketch.rows.transform import InputScaler, fit_scaler
from nbsketch.tuning.tuner import Tuned, tune

__all__ = ["InputScaler", "Tuned", "fit_scaler", "tune"]
