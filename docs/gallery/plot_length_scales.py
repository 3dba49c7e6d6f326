"""
Learned length scales and calibrated intervals
==============================================

The first five of ten features are relevant. A model with one length scale per feature
finds them; its prediction intervals are calibrated on held-out samples.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import make_friedman1
from sklearn.model_selection import train_test_split

import nbsketch
from nbsketch.plots import IntervalDisplay, plot_length_scales

X, y = make_friedman1(5000, n_features=10, noise=1.0, random_state=0)
X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0)
model = nbsketch.JointQuantileRegressor(
    quantiles=(0.1, 0.5, 0.9), calibration=0.2, size=200, random_state=0
).fit(X_train, y_train)
figure, (left, right) = plt.subplots(1, 2, figsize=(7.6, 3.2), layout="constrained")
plot_length_scales(model, ax=left)
IntervalDisplay.from_estimator(model, X_test, y_test, coverage=0.8, ax=right)
plt.show()
