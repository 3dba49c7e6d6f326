"""
Spectrum of a Gram matrix
=========================

Eigenvalues and effective dimension of three kernels. The dots are the critical radius
and the statistical dimension, which determine the sketch size of the theory.
"""

import matplotlib.pyplot as plt
import numpy as np

from nbsketch import SobolevKernel
from nbsketch.diagnostics import (
    critical_radius,
    effective_dimension,
    spectrum,
    statistical_dimension,
)

X = np.random.default_rng(0).uniform(size=(1000, 1))
NOISE, ALPHAS = 0.3, np.logspace(-7, 0, 50)
figure, (left, right) = plt.subplots(1, 2, figsize=(7.2, 3.0), layout="constrained")
for label, kernel, bandwidth in (
    ("Gaussian", "gaussian", 0.25),
    ("Matérn 3/2", "matern", 0.25),
    ("Sobolev", SobolevKernel(), None),
):
    mu = spectrum(X, kernel, bandwidth=bandwidth)
    values = mu.values[mu.values > 1e-12]
    (line,) = left.plot(np.arange(1, len(values) + 1), values, label=label)
    d = statistical_dimension(mu, noise=NOISE)
    left.plot(d, critical_radius(mu, noise=NOISE) ** 2, "o", color=line.get_color())
    right.plot(ALPHAS, [effective_dimension(mu, alpha) for alpha in ALPHAS])
left.set(xlabel="$j$", ylabel=r"$\mu_j$", xscale="log", yscale="log", ylim=(1e-10, 2))
right.set(xlabel=r"$\alpha$", ylabel=r"$N(\alpha)$", xscale="log", yscale="log")
left.legend()
plt.show()
