"""
Quantiles and prediction intervals
==================================

`~nbsketch.JointQuantileRegressor` fits several conditional quantiles in one problem.
Its intervals are calibrated on held-out samples, so that they have the nominal coverage
in finite samples, for any distribution of exchangeable samples.
"""

import matplotlib.pyplot as plt
import numpy as np

import nbsketch
from nbsketch.plots import plot_intervals, plot_quantiles

rng = np.random.default_rng(0)


def draw(n):
    """Return inputs, and targets whose noise grows with the input."""
    x = rng.uniform(0, 6, n)
    return x[:, None], np.sin(x) + (0.1 + 0.1 * x) * rng.normal(size=n)


X, y = draw(1000)
X_test, y_test = draw(2000)

# %%
# Five levels, a fifth of the samples held out for calibration:
model = nbsketch.JointQuantileRegressor(
    (0.1, 0.3, 0.5, 0.7, 0.9), calibration=0.2, size=40, random_state=0
).fit(X, y)

# %%
# Quantiles are sorted by default, so they never cross.
figure, (left, right) = plt.subplots(1, 2, figsize=(7.6, 3.2), layout="constrained")
plot_quantiles(model, X_test, y_test, ax=left)
plot_intervals(model, X_test, y_test, coverage=0.8, ax=right)
plt.show()

# %%
# Coverage of the 80 % intervals on the test samples, and in the half with the larger
# noise: calibration guarantees the first, and quantiles keep the second close to it.
low, high = model.predict_interval(X_test, coverage=0.8).T
inside = (low <= y_test) & (y_test <= high)
print(f"{inside.mean():.1%} of all, {inside[X_test[:, 0] > 3].mean():.1%} for x > 3")
