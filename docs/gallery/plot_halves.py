"""
Image completion
================

Predict the lower half of a digit from its upper half: 32 outputs. Ridge regression
predicts the mean of all possible halves, a blurred image; structured prediction
chooses the best of the lower halves of the training digits.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

import nbsketch

pixels = load_digits().data
upper, lower = pixels[:, :32], pixels[:, 32:]
train, test = slice(0, 1200), slice(1200, None)

# %%
# Several outputs: ``y`` of shape ``(n, 32)``.
regression = nbsketch.SketchedKernelRegressor(random_state=0)
regression.fit(upper[train], lower[train])

# %%
# With an output kernel, predictions are lower halves of training digits.
structured = nbsketch.InputOutputKernelRegressor(
    bandwidth="auto", alpha=1e-4, random_state=0
).fit(upper[train], lower[train])

# %%
halves = {
    "truth": lower[test],
    "regression": regression.predict(upper[test]),
    "structured": structured.predict(upper[test]),
}
figure, grid = plt.subplots(3, 10, figsize=(7.2, 2.6), layout="constrained")
for row, (name, found) in zip(grid, halves.items(), strict=True):
    for ax, top, bottom in zip(row, upper[test][:10], found, strict=False):
        ax.imshow(np.concatenate([top, bottom]).reshape(8, 8), cmap="Blues", vmin=0)
        ax.axhline(3.5, color="C1", lw=1)
        ax.set(xticks=[], yticks=[])
    row[0].set_ylabel(name)
plt.show()
