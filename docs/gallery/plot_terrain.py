"""
A surface from a stream of measurements
=======================================

138,632 elevations of a mountain range (a sample file of matplotlib) arrive in batches.
The model uses each batch once and stores only its landmarks.
"""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.cbook import get_sample_data

import nbsketch

with get_sample_data("jacksboro_fault_dem.npz") as file:
    height = file["elevation"].astype(float)
places = np.indices(height.shape).reshape(2, -1).T.astype(float)
order = np.random.default_rng(0).permutation(len(places))
X, y = places[order], height.ravel()[order]
X_test, y_test = X[-10_000:], y[-10_000:]

# %%
# The first batch determines landmarks and length scales; later batches take only steps.
model = nbsketch.SketchedSGDRegressor(size=1000, random_state=0)
for start in range(0, 120_000, 10_000):
    model.partial_fit(X[start : start + 10_000], y[start : start + 10_000])
    if start in (0, 10_000, 110_000):
        print(f"{start + 10_000:7} samples: R2 = {model.score(X_test, y_test):.3f}")

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(7.2, 3.1), layout="constrained")
shown = {"cmap": "terrain", "vmin": height.min(), "vmax": height.max()}
left.imshow(height, **shown)
left.set_title("elevation")
right.imshow(model.predict(places).reshape(height.shape), **shown)
right.plot(*model.landmarks_[:, ::-1].T, "k.", ms=1)
right.set_title(f"model, {len(model.landmarks_)} landmarks (dots)")
for ax in (left, right):
    ax.set(xticks=[], yticks=[])
plt.show()
