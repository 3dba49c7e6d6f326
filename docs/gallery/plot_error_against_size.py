"""
Error against the size of a sketch
==================================

Test error of sketches against their number of rows :math:`s` (unknowns of the fit) and
against their number of landmarks :math:`s'` (stored samples, cost of a prediction);
then error and time of the three solvers of least squares, up to :math:`s = n`.
"""

import time

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


figure, (left, right) = plt.subplots(
    1, 2, figsize=(7.2, 3.2), sharey=True, layout="constrained"
)
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

# %%
# Three solvers
# -------------
#
# Small sketches are solved in closed form, sketches of more than 1000 rows by
# preconditioned conjugate gradients on their columns, and all samples (the exact model)
# by conjugate gradients on the Gram matrix. On a function with fine structure the error
# decreases up to :math:`s = n`. The time grows as :math:`n s^2` for the closed form, as
# :math:`s^3` with a small constant for larger sketches. The exact model, whose
# preconditioner has rank :math:`8 \sqrt n`, costs less than a sketch of half the
# samples. :ref:`machines` has the theory.

n = 8000
rng = np.random.default_rng(0)
X, X_test = rng.uniform(-1, 1, size=(2, n, 4))


def truth(X):
    """Return a function with fine structure in the first two features."""
    return np.sin(8 * X[:, 0]) * np.cos(6 * X[:, 1]) + np.abs(X[:, 2])


y = truth(X) + 0.1 * rng.normal(size=n)
KERNEL = nbsketch.MaternKernel(bandwidth=1.0)


def measure(size):
    """Return the error, the seconds of a fit, and the passes of its solver."""
    options = {"size": size} if size < n else {"sketch": "identity"}
    model = nbsketch.SketchedKernelRegressor(
        KERNEL, alpha=1e-6, random_state=0, **options
    )
    start = time.process_time()
    model.fit(X, y)
    seconds = time.process_time() - start
    error = np.sqrt(np.mean((model.predict(X_test) - truth(X_test)) ** 2))
    return error, seconds, model.n_iter_


SOLVERS = {
    "closed form": [125, 250, 500, 1000],
    "conjugate gradients, sketch": [1400, 2000, 2800],
    "conjugate gradients, all samples": [n],
}
for sizes in SOLVERS.values():
    measure(sizes[0])  # compiles

figure, (left, right) = plt.subplots(1, 2, figsize=(7.6, 3.2), layout="constrained")
for name, sizes in SOLVERS.items():
    errors, seconds, passes = zip(*(measure(size) for size in sizes), strict=True)
    left.plot(sizes, errors, "o-", ms=4, label=name)
    right.plot(sizes, seconds, "o-", ms=4, label=name)
    print(f"{name}: passes {passes}")
left.set(xlabel="size $s$", ylabel="error", xscale="log", yscale="log")
right.set(xlabel="size $s$", ylabel="processor time (s)", xscale="log", yscale="log")
for axes in (left, right):
    axes.set_xticks([125, 500, 2000, n], ["125", "500", "2000", str(n)])
    axes.minorticks_off()
left.legend(fontsize="small", loc="lower left")
plt.show()
