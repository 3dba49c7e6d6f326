"""
Robust regression
=================

Outliers in the targets bias least squares. The Huber loss limits the influence of each
sample; the median (pinball loss) does not depend on the size of an outlier.
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np

import nbsketch

rng = np.random.default_rng(0)
x = np.sort(rng.uniform(0, 6, 400))
y = np.sin(x) + 0.15 * rng.normal(size=400)
y[::10] += rng.uniform(2, 5, 40)  # 10 % outliers

# %%
# Pass a name as ``loss``, or an object with parameters. ``kappa`` is the residual, in
# units of the targets, above which the Huber loss is linear: about one standard
# deviation of the noise. Least squares warns of the outliers; the warning is silenced.
warnings.simplefilter("ignore", nbsketch.OutlierWarning)
losses = {
    "square": nbsketch.SquareLoss(),
    "Huber": nbsketch.HuberLoss(kappa=0.2),
    "median": nbsketch.PinballLoss(quantile=0.5),
}
models = {
    name: nbsketch.SketchedKernelRegressor(
        loss=loss, bandwidth=1.0, size=40, random_state=0
    ).fit(x[:, None], y)
    for name, loss in losses.items()
}

# %%
# Every fit reports a bound on the distance of its objective from the minimum, relative
# to the objective of constant predictions.
for name, model in models.items():
    print(f"{name:8} relative gap at most {model.dual_gap_:.0e}")

# %%
grid = np.linspace(0, 6, 300)
figure, ax = plt.subplots(figsize=(6, 3.2), layout="constrained")
ax.plot(x, y, ".", color="0.6", ms=3)
ax.plot(grid, np.sin(grid), "k:", lw=1, label="truth")
for name, model in models.items():
    ax.plot(grid, model.predict(grid[:, None]), label=name)
ax.set(xlabel="$x$", ylabel="$y$", ylim=(-1.6, 6))
figure.legend(ncols=4, loc="outside upper center")
plt.show()
