"""Square and Huber loss with outliers; a band between two quantiles."""

import matplotlib.pyplot as plt
import numpy as np

import nbsketch

rng = np.random.default_rng(0)
x = np.sort(rng.uniform(0, 6, 400))
grid = np.linspace(0, 6, 300)
figure, (left, right) = plt.subplots(1, 2, figsize=(7.2, 3.0))

y = np.sin(x) + 0.15 * rng.normal(size=400)
y[::10] += rng.uniform(2, 5, 40)
left.plot(x, y, ".", color="0.6", ms=2)
left.plot(grid, np.sin(grid), "k:", lw=1, label="truth")
for label, loss in (("square", "square"), ("Huber", nbsketch.HuberLoss(kappa=0.2))):
    model = nbsketch.SketchedKernelRegressor(
        loss=loss, bandwidth=1.0, size=40, random_state=0
    ).fit(x[:, None], y)
    left.plot(grid, model.predict(grid[:, None]), label=label)
left.set_ylim(-1.6, 7)
left.legend(ncols=3, loc="upper center")

y = np.sin(x) + (0.1 + 0.1 * x) * rng.normal(size=400)
model = nbsketch.JointQuantileRegressor(
    quantiles=(0.1, 0.5, 0.9), bandwidth=1.5, size=40, random_state=0
).fit(x[:, None], y)
low, median, high = model.predict(grid[:, None]).T
right.plot(x, y, ".", color="0.6", ms=2)
right.fill_between(grid, low, high, alpha=0.25, lw=0, label="0.1 to 0.9")
right.plot(grid, median, label="median")
right.legend()
for axes in (left, right):
    axes.set_xlabel("$x$")
left.set_ylabel("$y$")
