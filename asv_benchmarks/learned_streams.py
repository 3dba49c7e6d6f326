"""Errors of stochastic gradients and streams that learn their length scales."""

import time

import numpy as np

from nbsketch import SketchedKernelRegressor, SketchedSGDRegressor

N, TEST, NOISE = 200_000, 20_000, 0.1


def target(X):
    return np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2]


def stream(rows, X, y):
    model = SketchedSGDRegressor(random_state=0)
    for start in range(0, len(X), rows):
        part = slice(start, start + rows)
        model.partial_fit(X[part], y[part])
    return model


def main():
    rng = np.random.default_rng(0)
    X, new = rng.normal(size=(N, 10)), rng.normal(size=(TEST, 10))
    y = target(X) + NOISE * rng.normal(size=N)
    fits = {
        "regressor, size 500": SketchedKernelRegressor(size=500, random_state=0).fit,
        "projected": SketchedSGDRegressor(random_state=0).fit,
        "median bandwidth": SketchedSGDRegressor(
            bandwidth="median", random_state=0
        ).fit,
        "stream of 5000 rows": lambda X, y: stream(5000, X, y),
        "stream of 10,000 rows": lambda X, y: stream(10_000, X, y),
    }
    for name, fit in fits.items():
        start = time.perf_counter()
        model = fit(X, y)
        seconds = time.perf_counter() - start
        error = np.mean((model.predict(new) - target(new)) ** 2)
        print(f"{name:24}{error:10.5f}{seconds:8.1f} s", flush=True)


if __name__ == "__main__":
    main()
