"""
Error against the size of a sketch
==================================

Test error of sketches against their number of rows :math:`s` (unknowns of the fit) and
against their number of landmarks :math:`s'` (rows of the model, cost of a prediction).
"""

import matplotlib.pyplot as plt
import numpy as np

import nbsketch
from nbsketch.datasets import make_friedman_outliers

X, y = make_friedman_outliers(3000, random_state=0)
X_test, y_test = make_friedman_outliers(2000, noise=0.0, random_state=1)
BANDWIDTH = nbsketch.GaussianKernel().resolve(X, 0).bandwidth  # the median distance
SKETCHES = {
    "sub-sampling": (nbsketch.SubsamplingSketch, [10, 20, 40, 80, 160, 320]),
    "p-sparsified, $p = 20/n$": (nbsketch.PSparsifiedSketch, [10, 20, 40, 80, 160]),
    "Gaussian": (nbsketch.GaussianSketch, [10, 20, 40, 80, 160]),
}


def evaluate(sketch, seed):
    """Return the mean squared error and the number of landmarks of one draw."""
    model = nbsketch.SketchedKernelRegressor(
        bandwidth=BANDWIDTH, sketch=sketch, alpha=1e-8, random_state=seed
    ).fit(X, y)
    return np.mean((model.predict(X_test) - y_test) ** 2), model.sketch_.columns.size


figure, (left, right) = plt.subplots(1, 2, figsize=(7.2, 3.2), sharey=True)
for label, (family, sizes) in SKETCHES.items():
    runs = [[evaluate(family(size), seed) for seed in range(3)] for size in sizes]
    errors, landmarks = np.moveaxis(np.array(runs), 2, 0)
    for axes, x in ((left, sizes), (right, landmarks.mean(axis=1))):
        (line,) = axes.plot(x, errors.mean(axis=1), "o-", ms=3, label=label)
        low, high = errors.min(axis=1), errors.max(axis=1)
        axes.fill_between(x, low, high, color=line.get_color(), alpha=0.15, lw=0)
for axes, what in ((left, "size $s$ of the sketch"), (right, "landmarks $s'$")):
    axes.set(xlabel=what, xscale="log", ylim=(0, None))
left.set_ylabel("mean squared error")
left.legend()
plt.show()
