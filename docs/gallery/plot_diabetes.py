"""
A data frame with a category and missing values
===============================================

Fit the diabetes data of scikit-learn as a data frame, and plot predictions and 80 %
prediction intervals of the test samples.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_diabetes
from sklearn.metrics import PredictionErrorDisplay
from sklearn.model_selection import train_test_split

from nbsketch import TabularKernelRegressor
from nbsketch.plots import plot_intervals

X, y = load_diabetes(return_X_y=True, as_frame=True, scaled=False)
X["sex"] = X["sex"].map({1: "female", 2: "male"}).astype("category")
X.loc[::10, "bmi"] = np.nan
X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0)
model = TabularKernelRegressor(random_state=0).fit(X_train, y_train)

figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3.4), layout="constrained")
PredictionErrorDisplay.from_estimator(
    model, X_test, y_test, kind="actual_vs_predicted", ax=left
)
left.set_title(f"Expected error {model.loo_error_:.0f}")
plot_intervals(model, X_test, y_test, coverage=0.8, ax=right)
plt.show()

# %%
# The summary lists the columns, the kernels and the expected error on new samples.
print(model.summary())
