"""Predict from a model file of nbsketch with NumPy alone."""

import json

import numpy as np


def predict(path, X):
    """Return the predictions of a saved regressor, without nbsketch."""
    with np.load(path) as arrays:
        fitted = json.loads(str(arrays["model"]))["fitted"]
        loss = json.loads(str(arrays["model"]))["params"].get("loss")
        arrays = {name.removeprefix("fitted."): a for name, a in arrays.items()}
    rows = preprocessed(X, arrays) if fitted["scaler_"] else X
    kernel, name = fitted["kernel_"]["fields"], fitted["kernel_"]["$object"]
    width = kernel["bandwidth"]
    width = np.array(width["$tuple"] if isinstance(width, dict) else width)
    difference = (rows[:, None] - arrays["landmarks_"]) / width
    if name == "LaplacianKernel":
        K = np.exp(-np.abs(difference).sum(axis=2))
    elif name == "GaussianKernel":
        K = np.exp(-np.square(difference).sum(axis=2) / 2)
    else:  # the default: a Matern kernel with nu = 3/2
        assert (name, kernel["nu"]) == ("MaternKernel", 1.5)
        u = np.sqrt(3 * np.square(difference).sum(axis=2))
        K = (1 + u) * np.exp(-u)
    columns = np.unique(arrays["sketch_.matrix.indices"], return_inverse=True)[1]
    W = np.zeros((fitted["size_"], K.shape[1]))  # of the landmarks in the sketch
    pointers = np.diff(arrays["sketch_.matrix.indptr"])
    W[np.repeat(np.arange(len(W)), pointers), columns] = arrays["sketch_.matrix.data"]
    scores = K @ W.T @ arrays["coef_"] + arrays.get("intercept_", fitted["intercept_"])
    return np.exp(scores) if loss in ("poisson", "gamma") else scores


def preprocessed(X, arrays):
    """Return standardized features, and ranks among the quantiles of training rows."""
    plain, ranked, center, width, quantiles = (
        arrays[f"scaler_.{name}"]
        for name in ("plain", "ranked", "center", "width", "quantiles")
    )
    steps, ranks = np.linspace(0, 1, len(quantiles)), []
    for feature, knots in zip(X[:, ranked].T, quantiles.T, strict=True):
        low = np.interp(feature, knots, steps)
        high = np.interp(-feature, -knots[::-1], -steps[::-1])
        ranks.append((low - high) / 2)  # the mean rank of equal quantiles
    return (np.column_stack([X[:, plain], *ranks]) - center) / width
