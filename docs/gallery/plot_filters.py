"""
Spectral filters and saturation
===============================

The share of an eigendirection that each filter keeps, and saturation: the rate of ridge
regression stops improving with the smoothness of the target.
"""

import matplotlib.pyplot as plt
import numpy as np

from nbsketch import (
    CutoffFilter,
    IteratedRidgeFilter,
    LandweberFilter,
    RidgeFilter,
    SpectralFilterRegressor,
)
from nbsketch.datasets import DiagonalDesign

FILTERS = {
    "ridge": RidgeFilter(),
    "iterated ridge, 4": IteratedRidgeFilter(order=4),
    "cutoff": CutoffFilter(),
    "Landweber": LandweberFilter(step=0.5),
}
figure, (left, right) = plt.subplots(1, 2, figsize=(7.2, 3.2), layout="constrained")

u = np.logspace(-4, 0, 400)
for label, filter in FILTERS.items():
    left.plot(u, u * filter.values(u, 0.01), label=label)
left.set(xlabel="eigenvalue $u$", ylabel=r"$u\,G_\alpha(u)$", xscale="log")
left.set_title(r"Share kept, $\alpha = 0.01$")
left.legend()

SOURCE, SIZES, SEEDS = 3.0, 2 ** np.arange(7, 11), range(5)
design = DiagonalDesign(capacity=0.5, n_modes=100)
alphas = np.logspace(0, -3.5, 15)
for filter in FILTERS.values():
    model = SpectralFilterRegressor(
        "linear", filter=filter, sketch="subsampling", size=60, fit_intercept=False,
        random_state=0,
    )  # fmt: skip
    risks = np.zeros((len(SIZES), len(alphas)))
    for i, n in enumerate(SIZES):
        for seed in SEEDS:
            X, y = design.draw(n, SOURCE, noise=0.1, random_state=seed)
            for j, fitted in enumerate(model.fit_path(X, y, alphas)):
                w = fitted.predict(np.eye(100))  # a linear function
                risks[i, j] += design.excess_risk(w, SOURCE) / len(SEEDS)
    right.plot(SIZES, risks.min(axis=1), "o-", ms=3)
right.set(xlabel="samples $n$", ylabel="excess risk", xscale="log", yscale="log")
right.set_xticks(SIZES, SIZES)
right.tick_params(axis="x", which="minor", bottom=False, labelbottom=False)
right.set_title(r"A smooth target, $\zeta = 3$")
plt.show()
