"""
Learned length scales and calibrated intervals
==============================================

House prices in California, or synthetic data of the same shape if the data set is not
on disk. A model with one length scale per feature shows which features are relevant.
"""

import matplotlib.pyplot as plt
import numpy as np

import nbsketch
from nbsketch.datasets import Dataset, load_california, make_friedman_outliers
from nbsketch.plots import plot_length_scales


def load():
    """Return California housing from disk, or synthetic data."""
    try:
        return load_california(download=False)
    except FileNotFoundError:
        X, y = make_friedman_outliers(6000, n_outliers=0, random_state=0)
        names = tuple(f"x{j}" for j in range(X.shape[1]))
        return Dataset("synthetic", X, y, names, ("y",))


data = load()
(X, y), (X_test, y_test) = data.random_split(0, (4000 / len(data.y), 0.1))
model = nbsketch.JointQuantileRegressor(
    quantiles=(0.1, 0.5, 0.9), calibration=0.2, size=200, random_state=0
).fit(X, y)
figure, (left, right) = plt.subplots(1, 2, figsize=(7.2, 3.2), layout="constrained")

plot_length_scales(model, ax=left)
left.set(title=f"Relevance, {data.name}")

intervals = model.predict_interval(X_test, coverage=0.8)
middle = model.predict(X_test)[:, 1]
covered = (intervals[:, 0] <= y_test) & (y_test <= intervals[:, 1])
shown = np.argsort(middle)[:: max(1, len(middle) // 60)]
place = np.arange(len(shown))
right.vlines(place, *intervals[shown].T, color="C0", alpha=0.4, label="80 % interval")
right.plot(place, y_test[shown], "k.", ms=3, label="test target")
right.set(xlabel="test samples by predicted median", ylabel=data.target_names[0])
right.set_title(f"{covered.mean():.0%} of all test targets inside")
right.legend()
plt.show()
