"""
Three classes with probabilities
================================

A classifier with the logistic loss fits one model per class; ``predict_proba``
normalizes the probabilities. The reliability plot compares predicted probabilities with
observed frequencies.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.calibration import CalibrationDisplay

import nbsketch

rng = np.random.default_rng(0)


def draw(n):
    """Return points of three overlapping spirals, and their numbers."""
    label = rng.integers(3, size=n)
    radius = rng.uniform(0.3, 2, n)
    angle = 2 * radius + label * 2 * np.pi / 3
    points = radius[:, None] * np.column_stack([np.cos(angle), np.sin(angle)])
    return points + 0.25 * rng.normal(size=(n, 2)), label


X, y = draw(1500)
X_test, y_test = draw(3000)

# %%
model = nbsketch.SketchedKernelClassifier(loss="logistic", random_state=0).fit(X, y)
print(f"accuracy on new samples: {model.score(X_test, y_test):.3f}")
print(model.summary())

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(7.6, 3.4), layout="constrained")
side = np.linspace(-2.5, 2.5, 80)
grid = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)
colors = model.predict_proba(grid).reshape(80, 80, 3)
left.imshow(colors, origin="lower", extent=(-2.5, 2.5) * 2, alpha=0.7)
left.scatter(*X[:400].T, c=np.eye(3)[y[:400]] * 0.8, s=5)
left.set(title="probabilities as red, green, blue", xlabel="$x_0$", ylabel="$x_1$")
for label, p in enumerate(model.predict_proba(X_test).T):
    CalibrationDisplay.from_predictions(
        y_test == label, p, n_bins=10, name=f"class {label}", ax=right
    )
plt.show()
