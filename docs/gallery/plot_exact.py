"""
Sketch or exact model
=====================

The error decreases with the size of a sketch, up to the exact model, whose size is the
number of samples. A sketch of size :math:`s` costs about :math:`n s^2` operations, and
the exact model about ten passes over :math:`n^2 / 2` pairs of samples, as much as a
sketch of one to two thousand rows. A prediction costs :math:`s` kernel values with
sub-sampling, and :math:`n` with the exact model.
"""

import time

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.ticker import LogLocator

import nbsketch

rng = np.random.default_rng(0)
X, X_test = rng.uniform(-1, 1, size=(2, 5000, 4))


def truth(X):
    """Return a function with fine structure in the first two features."""
    return np.sin(5 * X[:, 0]) * np.cos(4 * X[:, 1]) + np.abs(X[:, 2])


y = truth(X) + 0.1 * rng.normal(size=5000)
SETTINGS = {"kernel": nbsketch.MaternKernel(bandwidth=1.0), "random_state": 0}


def measure(**options):
    """Return seconds of a fit, and the root mean squared test error."""
    model = nbsketch.SketchedKernelRegressor(**SETTINGS, **options)
    start = time.process_time()
    model.fit(X, y)
    seconds = time.process_time() - start
    return seconds, np.sqrt(np.mean((model.predict(X_test) - truth(X_test)) ** 2))


_ = measure(sketch="p-sparsified", size=50), measure(sketch="identity")  # compiles

# %%
# Each fit chooses its own penalty. ``sketch="identity"`` is the exact model.
SIZES = [100, 200, 400, 800, 1600]
results = {
    "sub-sampling": [measure(sketch="subsampling", size=size) for size in SIZES],
    "p-sparsified": [measure(sketch="p-sparsified", size=size) for size in SIZES],
    "exact": [measure(sketch="identity")],
}

# %%
figure, (left, right) = plt.subplots(
    1, 2, figsize=(7.6, 3.2), sharey=True, layout="constrained"
)
for name, points in results.items():
    seconds, errors = np.array(points).T
    sizes = SIZES if len(points) > 1 else [len(X)]
    left.plot(sizes, errors, "o-", ms=4, label=name)
    right.plot(seconds, errors, "o-", ms=4)
left.set(xlabel="size $s$", ylabel="error", xscale="log", yscale="log")
right.set(xlabel="processor time of the fit (s)", xscale="log")
right.xaxis.set_major_locator(LogLocator(subs=[1, 2, 5]))
right.xaxis.set_major_formatter("{x:g}")
right.xaxis.set_minor_formatter("")
left.legend()
plt.show()
